"""`uts tunnel` beside ssh -L and others on one machine: `make bench-tunnels`.

Each carries keystrokes beside a download, a page of small objects, and a file, between two hosts of a testbed.
"""

import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Testbeds, servers and what is said of a machine are those of copies.
sys.path.append(str(ROOT / "bench/copies"))

import outcome  # noqa: E402
import report  # noqa: E402
import works  # noqa: E402
from carriers import HERE, Carrier, Kcp, SshTunnel, UtsTunnel, WireGuard  # noqa: E402
from tools import Place, SBIN  # noqa: E402
from turns import carry_out, choose, draw, in_turns, introduce, pick  # noqa: E402
from world import Bed, Road, both  # noqa: E402

MB = 1_000_000
SERVER = "10.77.0.2"


WIDE = ("100mbit", "20ms", "500kB")
ROADS = {
    "clean": Road("clean", "100 Mbit/s, round trip 40 ms, a buffer of 500 kB, no loss", both(*WIDE)),
    "loss": Road("loss", "the same, and 1 % of the packets are lost each way", both(*WIDE, "loss=0.01")),
    "bursts": Road("bursts", "the same, and 5 % in bursts of 4 each way", both(*WIDE, "loss=ge:0.05,4")),
    "satellite": Road("satellite", "20 Mbit/s, 300 ms one way, a buffer of 1.5 MB", both("20mbit", "300ms", "1500kB")),
    "cellular": Road(
        "cellular",
        "rates that vary tenfold within seconds, 40 Mbit/s to the client and 20 from it, round trip 50 ms",
        ["--fwd", "rate=cellular:20mbit,2 delay=25ms buffer=500kB", "--bwd", "rate=cellular:40mbit,1 delay=25ms buffer=1MB"],
    ),
    "moving": Road("moving", "as clean, and the client has another address every 5 s", both(*WIDE)),
}


def main() -> int:
    arguments = parse()
    if arguments.client:
        works.main(arguments.client)
        return 0
    measured = carry_out(arguments, measure, "tunnels")
    if measured is None:
        return 1
    draw(arguments)
    own = [result for result in measured["results"] if result["tool"] == UtsTunnel.name]
    return 1 if any("error" in run for result in own for run in result["runs"]) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-tunnels", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small works, each once: to see that it works")
    parser.add_argument("--runs", type=int, default=0, metavar="N", help="runs of each kind (3; with --quick 1)")
    parser.add_argument("--paths", default=",".join(ROADS), help=f"of {','.join(ROADS)} (all)")
    parser.add_argument("--works", default=",".join(works.WORKS), help=f"of {','.join(works.WORKS)} (all)")
    parser.add_argument("--tools", default="uts,ssh,kcp,wireguard", help="of uts,ssh,kcp,wireguard (all that are here)")
    parser.add_argument("--file", type=int, default=0, metavar="MB", help="size of the file (64; with --quick 4)")
    parser.add_argument("--keys", type=float, default=0, metavar="S", help="seconds of typing (15; with --quick 6)")
    parser.add_argument("--limit", type=float, default=45, metavar="S", help="a file is ended after that (45)")
    parser.add_argument("--cipher", help="cipher of ssh, as aes128-gcm@openssh.com (its default)")
    parser.add_argument("--tcp", default="cubic", help="TCP's congestion control (cubic, as Linux comes)")
    parser.add_argument("--uts", type=Path, default=ROOT / "target/release/uts", help="the program uts")
    parser.add_argument("--lab", type=Path, default=ROOT / "target/release/uts-lab", help="the program uts-lab")
    parser.add_argument("--rivals", type=Path, default=ROOT / "bench/out/rivals", help="where rivals were built")
    picture = ROOT / "target/release/examples/tunnels"
    parser.add_argument("--picture", type=Path, default=picture, help="the program that draws")
    parser.add_argument("--dir", help="where keys and logs are kept (the system's temporary directory)")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/out/tunnels.json", help="where the JSON goes")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    choices = (("paths", ROADS), ("works", works.WORKS), ("tools", ["uts", "ssh", "kcp", "wireguard"]))
    for option, known in choices:
        pick(parser, arguments, option, known)
    arguments.runs = arguments.runs or (1 if arguments.quick else 3)
    arguments.file = arguments.file or (4 if arguments.quick else 64)
    arguments.keys = arguments.keys or (6.0 if arguments.quick else 15.0)
    for option in ("uts", "lab", "rivals"):
        setattr(arguments, option, getattr(arguments, option).resolve())
    return arguments


def measure(arguments: argparse.Namespace, work: Path) -> dict | None:
    """Prints tables as it goes; gives everything."""
    tools, left_out = choose(known(arguments), arguments.tools, work)
    if not tools:
        print(f"bench-tunnels: nothing to measure: {'; '.join(left_out.values())}", file=sys.stderr)
        return None
    machine = report.machine(work) | {"tcp": arguments.tcp, "load_at_begin": os.getloadavg()[0]}
    versions = introduce(machine, tools, left_out, 11)
    bed = Bed(arguments.lab, work, arguments.limit + arguments.keys + 200.0, arguments.tcp)
    results: list[dict] = []
    for path in arguments.paths:
        road = ROADS[path]
        print(f"\n{path}: {road.says}", flush=True)
        here = compare(arguments, bed, tools, road, work)
        print(outcome.table(here, arguments.works), flush=True)
        results += here
    print("\n" + outcome.notes(arguments.file, arguments.limit))
    return {
        "machine": machine,
        "versions": versions,
        "left_out": left_out,
        "quick": arguments.quick,
        "file_bytes": arguments.file * MB,
        "limit_s": arguments.limit,
        "load_at_end": os.getloadavg()[0],
        "results": results,
    }


def known(arguments: argparse.Namespace) -> dict[str, Carrier]:
    """All tools, by the names that `--tools` has for them."""
    return {
        "uts": UtsTunnel(arguments.uts),
        "ssh": SshTunnel(arguments.cipher),
        "kcp": Kcp(arguments.rivals),
        "wireguard": WireGuard(arguments.rivals, arguments.tcp),
    }


def compare(arguments: argparse.Namespace, bed: Bed, tools: list[Carrier], road: Road, work: Path) -> list[dict]:
    """Each tool in turns, another one first each time."""
    runs: dict[str, list[dict]] = {tool.name: [] for tool in tools}
    for turn, tool in in_turns(tools, arguments.runs):
        runs[tool.name].append(one(arguments, bed, tool, road, work, turn))
    return [
        {"path": road.name, "says": road.says, "tool": tool.name, "runs": runs[tool.name]}
        | {"summary": outcome.summary(runs[tool.name], arguments.works)}
        for tool in tools
    ]


def one(arguments: argparse.Namespace, bed: Bed, tool: Carrier, road: Road, work: Path, seed: int) -> dict:
    """All works once, each through a tunnel of its own."""
    place = Place(work, work, SERVER, True)
    bed.clear()
    moves = road.name == "moving"
    # The server knows where every address of the client is: nobody has to ask over the path.
    known = f"for n in $(seq 11 250); do PATH=$PATH:{SBIN} ip neigh replace 10.77.0.$n lladdr 02:00:00:00:00:01 dev eth0"
    spec = {
        "work": str(work),
        "address": SERVER,
        "ready": vars(tool.ready(place)),
        "setting": bed.congestion(0),
        "command": tool.start(place),
        "meets": tool.meets,
        "works": arguments.works,
        "moves": moves,
        "seed": seed,
        "keys_s": arguments.keys,
        "file_bytes": arguments.file * MB,
        "limit_s": arguments.limit,
    }
    (work / "spec.json").write_text(json.dumps(spec))
    before = f"{known} nud permanent; done; " if moves else ""
    services = f"{sys.executable} {HERE / 'services.py'} {arguments.file * MB} & "
    return bed.measure(tool, road, place, seed, HERE, before + services)


if __name__ == "__main__":
    sys.exit(main())
