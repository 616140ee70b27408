"""What measurements of several tools have in common: they are chosen, take turns, and leave a file."""

import json
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


def carry_out(arguments: Namespace, measure: Callable[[Namespace, Path], dict | None], what: str) -> dict | None:
    """Measures in a folder that is gone afterwards, and writes what came of it to `--out`; nothing if it cannot begin."""
    for program in (arguments.uts, arguments.lab):
        if not program.exists():
            print(f"bench-{what}: {program} is missing; run: cargo build --release", file=sys.stderr)
            return None
    # Who ends it finds nothing left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix=f"uts-{what}-", dir=arguments.dir) as work:
        measured = measure(arguments, Path(work))
    if measured is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(measured, indent=1) + "\n")
        print(f"\nwritten to {arguments.out}")
    return measured


def pick(parser: ArgumentParser, arguments: Namespace, option: str, known: Iterable[str]) -> None:
    """Makes a list of the names that an option has, each once, which must be among those that are known."""
    names = getattr(arguments, option).split(",")
    if unknown := [name for name in names if name not in known]:
        parser.error(f"--{option}: `{unknown[0]}` is none of {', '.join(known)}")
    setattr(arguments, option, list(dict.fromkeys(names)))


def draw(arguments: Namespace) -> None:
    """Draws what was measured, if the program that does it was built."""
    if not arguments.picture.exists():
        return
    picture = arguments.out.with_suffix(".svg")
    drawn = subprocess.run([arguments.picture, arguments.out, picture], check=False)
    if drawn.returncode == 0:
        print(f"drawn to {picture}")


def introduce(machine: dict, tools: list, left_out: dict[str, str], width: int) -> dict[str, str]:
    """Prints where it is measured, and what with; gives the versions of the tools."""
    print("; ".join(f"{value:.1f} load" if name == "load_at_begin" else f"{value}" for name, value in machine.items()))
    versions = {tool.name: tool.version() for tool in tools}
    for tool in tools:
        print(f"  {tool.name:{width}} {versions[tool.name]}: {tool.says}")
    for name, why in left_out.items():
        print(f"  {name:{width}} left out: {why}")
    return versions


def choose(known: dict, names: list[str], work: Path) -> tuple[list, dict[str, str]]:
    """The tools that are here and ready, and why others are not."""
    tools, left_out = [], {}
    for name in names:
        if why := known[name].missing():
            left_out[known[name].name] = why
            continue
        known[name].prepare(work)
        tools.append(known[name])
    return tools, left_out


def in_turns(tools: list, runs: int) -> Iterator[tuple[int, object]]:
    """The tools in turns, another one first each time, each with the number of the turn."""
    for turn in range(runs):
        begin = turn % len(tools)
        for tool in tools[begin:] + tools[:begin]:
            yield turn + 1, tool
