"""`uts media` beside SRT and RIST on one machine: `make bench-media`.

Each carries a live transport stream between two hosts of a testbed, encrypted, with the same latency.
"""

import argparse
import json
import os
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
# Testbeds, servers and what is said of a machine are those of copies.
sys.path.append(str(ROOT / "bench/copies"))

import outcome  # noqa: E402
import report  # noqa: E402
import stream  # noqa: E402
from datagram import DATAGRAM_BYTES  # noqa: E402
from programs import Program, Rist, Srt, UtsMedia, UtsMediaOut  # noqa: E402
from tools import Place  # noqa: E402
from turns import carry_out, choose, draw, in_turns, introduce, pick  # noqa: E402
from world import Bed, Road, both  # noqa: E402

SERVER = "10.77.0.2"
TOOLS = ("uts", "uts-out", "srt", "rist")
# Wi-Fi: aggregates of 40 packets at the most, one each 8 ms, and each 60 ms while others have the air, 5 s of each 20.
AGGREGATE, QUIET_MS, SHARED_MS, CYCLE_MS, SHARED_PART_MS = 40, 8, 60, 20_000, 5_000


def aggregates(work: Path) -> str:
    """A trace of a Wi-Fi of which the stations of another network take their part now and then."""
    times, at = [], 0
    source = random.Random(54)
    while at < CYCLE_MS * 3:
        is_shared = at % CYCLE_MS >= CYCLE_MS - SHARED_PART_MS
        at += round((SHARED_MS if is_shared else QUIET_MS) * source.uniform(0.75, 1.25))
        times += [at] * AGGREGATE
    path = work / "aggregates"
    path.write_text("".join(f"{time}\n" for time in times))
    return str(path)


def roads(work: Path) -> dict[str, tuple[Road, float]]:
    """The paths, each with the time in milliseconds that a datagram needs where nothing waits."""
    wide = ("20mbit", "20ms", "500kB")
    wifi = f"rate=trace:{aggregates(work)} delay=10ms buffer=500kB loss=ge:0.01,4"
    cellular = ["--fwd", "rate=cellular:20mbit,2 delay=25ms buffer=500kB", "--bwd", "rate=cellular:40mbit,1 delay=25ms buffer=1MB"]
    known = [
        (Road("clean", "20 Mbit/s, round trip 40 ms, a buffer of 500 kB, no loss", both(*wide)), 21.0),
        (Road("2 %", "as clean, and 2 % of the packets are lost in bursts of 4 each way", both(*wide, "loss=ge:0.02,4")), 21.0),
        (Road("8 %", "as clean, and 8 % are lost in bursts of 4 each way", both(*wide, "loss=ge:0.08,4")), 21.0),
        (Road("cellular", "rates that vary tenfold within seconds, 20 Mbit/s at the most, round trip 50 ms", cellular), 26.0),
        (
            Road("wifi", "aggregates of 40 packets each 8 ms, or each 60 ms while the air is shared, 1 % lost, 20 ms", ["--both", wifi]),
            18.0,
        ),
    ]
    return {road.name.replace(" ", "").replace("%", ""): (road, way_ms) for road, way_ms in known}


PATHS = ("clean", "2", "8", "cellular", "wifi")


def main() -> int:
    arguments = parse()
    if arguments.client:
        stream.main(arguments.client)
        return 0
    measured = carry_out(arguments, measure, "media")
    if measured is None:
        return 1
    draw(arguments)
    own = [result for result in measured["results"] if result["tool"].startswith(UtsMedia.name)]
    return 1 if any(result["summary"]["failed"] for result in own) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-media", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two paths, one latency, each once: to see that it works")
    parser.add_argument("--runs", type=int, default=0, metavar="N", help="runs of each kind (3; with --quick 1)")
    parser.add_argument("--paths", default="", help=f"of {','.join(PATHS)} (all)")
    parser.add_argument("--tools", default=",".join(TOOLS), help=f"of {','.join(TOOLS)} (all that are here)")
    parser.add_argument("--latencies", default="", metavar="MS", help="latencies in ms (60,120,240; with --quick 120)")
    parser.add_argument("--seconds", type=float, default=0, metavar="S", help="seconds that are measured (20; with --quick 8)")
    parser.add_argument("--rate", type=float, default=4.0, metavar="MBIT", help="of the stream, in Mbit/s (4)")
    parser.add_argument("--tcp", default="cubic", help=argparse.SUPPRESS)
    parser.add_argument("--uts", type=Path, default=ROOT / "target/release/uts", help="the program uts")
    parser.add_argument("--lab", type=Path, default=ROOT / "target/release/uts-lab", help="the program uts-lab")
    picture = ROOT / "target/release/examples/media"
    parser.add_argument("--picture", type=Path, default=picture, help="the program that draws")
    parser.add_argument("--dir", help="where keys and logs are kept (the system's temporary directory)")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/out/media.json", help="where the JSON goes")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.paths = arguments.paths or ("2,wifi" if arguments.quick else ",".join(PATHS))
    for option, known in (("paths", PATHS), ("tools", TOOLS)):
        pick(parser, arguments, option, known)
    words = (arguments.latencies or ("120" if arguments.quick else "60,120,240")).split(",")
    if not all(word.isdigit() and 1 <= int(word) <= 10_000 for word in words):
        parser.error(f"--latencies: `{','.join(words)}` must be milliseconds, 1 to 10000 each, as in 60,120")
    arguments.latencies = [int(word) for word in words]
    if not 0.1 <= arguments.rate <= 100:
        parser.error("--rate: must be 0.1 to 100 Mbit/s")
    arguments.runs = arguments.runs or (1 if arguments.quick else 3)
    arguments.seconds = arguments.seconds or (8.0 if arguments.quick else 20.0)
    for option in ("uts", "lab"):
        setattr(arguments, option, getattr(arguments, option).resolve())
    return arguments


def measure(arguments: argparse.Namespace, work: Path) -> dict | None:
    """Prints tables as it goes; gives everything."""
    programs = {
        "uts": UtsMedia(arguments.uts), "uts-out": UtsMediaOut(arguments.uts), "srt": Srt(), "rist": Rist()
    }
    tools, left_out = choose(programs, arguments.tools, work)
    if not tools:
        print(f"bench-media: nothing to measure: {'; '.join(left_out.values())}", file=sys.stderr)
        return None
    machine = report.machine(work) | {"load_at_begin": os.getloadavg()[0]}
    versions = introduce(machine, tools, left_out, 15)
    limit_s = stream.READY_S + stream.WARM_S + arguments.seconds + stream.DRAIN_S + stream.PLAYER_S
    bed = Bed(arguments.lab, work, limit_s, arguments.tcp)
    known, results = roads(work), []
    for path in arguments.paths:
        road, way_ms = known[path]
        print(f"\n{road.name}: {road.says}", flush=True)
        for latency_ms in arguments.latencies:
            runs: dict[str, list[dict]] = {tool.name: [] for tool in tools}
            for turn, tool in in_turns(tools, arguments.runs):
                tool.latency_ms = latency_ms
                runs[tool.name].append(one(arguments, bed, tool, road, work, turn))
            here = [
                {"path": road.name, "says": road.says, "latency_ms": latency_ms, "tool": tool.name}
                | {"summary": outcome.summary(runs[tool.name], latency_ms, way_ms), "runs": runs[tool.name]}
                for tool in tools
            ]
            print(f"latency {latency_ms} ms\n{outcome.table(here)}", flush=True)
            results += here
    print("\n" + outcome.notes(arguments.rate * 1e6, arguments.seconds))
    return {
        "machine": machine,
        "versions": versions,
        "left_out": left_out,
        "quick": arguments.quick,
        "rate_bps": arguments.rate * 1e6,
        "seconds": arguments.seconds,
        "load_at_end": os.getloadavg()[0],
        "results": results,
    }


def one(arguments: argparse.Namespace, bed: Bed, tool: Program, road: Road, work: Path, seed: int) -> dict:
    """The stream once, through programs that are started for it."""
    place = Place(work, work, SERVER, True)
    bed.clear()
    for left in ("first", "over", "came.json", "serve.log"):
        (work / left).unlink(missing_ok=True)
    spec = {
        "work": str(work),
        "address": SERVER,
        "ready": vars(tool.ready(place)),
        "setting": bed.congestion(0),
        "command": tool.start(place),
        "rate_bps": arguments.rate * 1e6,
        "seconds": arguments.seconds,
    }
    (work / "spec.json").write_text(json.dumps(spec))
    player = f"{sys.executable} {HERE / 'player.py'} {work} & "
    result = bed.measure(tool, road, place, seed, HERE, player)
    if "sent_since_first" in result and (paths := result.pop("paths", None)):
        ways = (paths[0]["forward"], paths[0]["backward"])
        result["wire"] = sum(way["bytes_in"] for way in ways) / (result["sent_since_first"] * DATAGRAM_BYTES)
    return result


if __name__ == "__main__":
    sys.exit(main())
