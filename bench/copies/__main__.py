"""`uts cp` beside scp, rsync and croc on one machine: `make bench-copies`.

Each tool copies with its own encryption, from one host to another of a testbed or within one, in turns with the others.
"""

import argparse
import os
import sys
from pathlib import Path

import client
import report
from cases import MB, Sizes, make
from tools import Croc, Rsync, Scp, Tool, Uts
from turns import carry_out, choose, in_turns, pick
from world import ROADS, Bench

ROOT = Path(__file__).resolve().parents[2]
CASES = ["one", "many", "sparse", "half"]
# A copy that takes longer than that is not repeated.
ONCE_S = 100.0

SIZES = {
    "loopback": Sizes(1000 * MB, 20_000, 5000 * MB, 4 * MB, 1000 * MB),
    # 1 GB would take 85 s for each copy of each tool at 100 Mbit/s.
    "clean": Sizes(200 * MB, 1000, 5000 * MB, 4 * MB, 200 * MB),
    # TCP gets some 3 Mbit/s through it.
    "lossy": Sizes(50 * MB, 1000, 5000 * MB, 4 * MB, 50 * MB),
}
QUICK = {
    "loopback": Sizes(20 * MB, 300, 200 * MB, MB, 200 * MB),
    "clean": Sizes(5 * MB, 20, 20 * MB, MB // 4, 10 * MB),
    "lossy": Sizes(MB, 10, 5 * MB, MB // 8, 2 * MB),
}


def main() -> int:
    arguments = parse()
    if arguments.client:
        client.main(arguments.client)
        return 0
    measured = carry_out(arguments, measure, "copies")
    if measured is None:
        return 1
    has_failed = any("error" in run for result in measured["results"] for run in result["runs"])
    return 1 if has_failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-copies", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small files, and each copy once: to see that it works")
    parser.add_argument("--runs", type=int, default=0, metavar="N", help="copies of each kind (5; with --quick 1)")
    parser.add_argument("--paths", default=",".join(ROADS), help="of loopback,clean,lossy (all)")
    parser.add_argument("--cases", default=",".join(CASES), help="of one,many,sparse,half (all)")
    parser.add_argument("--tools", default="uts,scp,rsync,croc", help="of uts,scp,rsync,croc (all that are here)")
    parser.add_argument("--limit", type=float, default=300, metavar="S", help="a copy that takes longer is ended (300)")
    parser.add_argument("--cipher", help="cipher of ssh, as aes128-gcm@openssh.com (its default)")
    parser.add_argument("--tcp", default="cubic", help="TCP's congestion control (cubic, as Linux comes)")
    parser.add_argument("--croc", default="croc", help="the program croc (croc)")
    parser.add_argument("--uts", type=Path, default=ROOT / "target/release/uts", help="the program uts")
    parser.add_argument("--lab", type=Path, default=ROOT / "target/release/uts-lab", help="the program uts-lab")
    parser.add_argument("--dir", help="where files are made and copied to (the system's temporary directory)")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/out/copies.json", help="where the JSON goes")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for option, known in (("paths", ROADS), ("cases", CASES), ("tools", ["uts", "scp", "rsync", "croc"])):
        pick(parser, arguments, option, known)
    arguments.runs = arguments.runs or (1 if arguments.quick else 5)
    arguments.uts, arguments.lab = arguments.uts.resolve(), arguments.lab.resolve()
    return arguments


def measure(arguments: argparse.Namespace, work: Path) -> dict | None:
    """Prints tables as it goes; gives everything."""
    tools, left_out = choose(known(arguments), arguments.tools, work)
    if not any(tool.name == "uts cp" for tool in tools):
        print("bench-copies: uts itself was left out", file=sys.stderr)
        return None
    machine = report.machine(work) | {"tcp": arguments.tcp, "load_at_begin": os.getloadavg()[0]}
    print("; ".join(f"{value:.1f} load" if name == "load_at_begin" else f"{value}" for name, value in machine.items()))
    versions = {tool.name: tool.version() for tool in tools}
    for name, version in versions.items():
        print(f"  {name:8} {version}")
    for name, why in left_out.items():
        print(f"  {name:8} left out: {why}")
    bench = Bench(arguments.lab, work, arguments.limit, arguments.tcp)
    results: list[dict] = []
    for path in arguments.paths:
        sizes = (QUICK if arguments.quick else SIZES)[path]
        for case in make(arguments.cases, sizes, work):
            print(f"\n{ROADS[path].says}: {case.says}", flush=True)
            here = compare(arguments, bench, tools, case, path)
            print(report.table(here), flush=True)
            results += here
    print("\n" + report.notes(tools, arguments.cases))
    return {
        "machine": machine,
        "versions": versions,
        "left_out": left_out,
        "quick": arguments.quick,
        "load_at_end": os.getloadavg()[0],
        "results": results,
    }


def known(arguments: argparse.Namespace) -> dict[str, Tool]:
    """All tools, by the names that `--tools` has for them."""
    return {
        "uts": Uts(arguments.uts),
        "scp": Scp(arguments.cipher),
        "rsync": Rsync(arguments.cipher),
        "croc": Croc(arguments.croc),
    }


def compare(arguments: argparse.Namespace, bench: Bench, tools: list[Tool], case, path: str) -> list[dict]:
    """Copies by each tool in turns, another one first each time."""
    runs: dict[str, list[dict]] = {tool.name: [] for tool in tools}
    for turn, tool in in_turns(tools, arguments.runs):
        before = runs[tool.name]
        if any("seconds" not in run or run["seconds"] > ONCE_S for run in before):
            continue
        before.append(bench.run(tool, case, ROADS[path], seed=turn))
    return [
        {
            "path": path,
            "case": case.name,
            "says": case.says,
            "content_bytes": case.content_bytes,
            "files": case.files,
            "tool": tool.name,
            "resumes": tool.resumes,
            "limit_s": arguments.limit,
            "summary": report.summary(runs[tool.name]),
            "runs": runs[tool.name],
        }
        for tool in tools
    ]


if __name__ == "__main__":
    sys.exit(main())
