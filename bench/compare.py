"""Compares a run of `make bench` with the state that was recorded before, and says what fell by more than its spread.

usage: compare.py NEW RECORD [--record]
       compare.py --test

A figure fell if its median is worse than the recorded one by more than the larger of both spreads (largest less
smallest). Figures of rivals are compared as well: where those fell too, the machine did. The state is recorded if there
is none yet, if nothing of UTS fell, or with --record. Nothing is compared with another machine, or another amount of
work. The exit status says nothing of time: it is 1 only if a file cannot be read or written.
"""

import json
import os
import statistics
import sys
import unittest
from dataclasses import dataclass
from pathlib import Path

# The figures of rows that are compared, and whether more of them is better.
FIGURES = {
    "gbps": True,
    "sender_s_per_gb": False,
    "receiver_s_per_gb": False,
    "p50_us": False,
    "p99_us": False,
    "client_us": False,
    "per_s": True,
    "sender_us": False,
    "receiver_us": False,
    "per_core_s": True,
    "client_bytes": False,
    "server_bytes": False,
    "jain": True,
}
# What else a run has, what a thing of it goes by, and its figures, of which less is better.
OTHERS = {
    "parts": (["function", "part", "bytes"], ["ns"]),
    "factors": (["left_out", "bytes"], ["sender_ns", "receiver_ns"]),
    "adaptivity": (["profile"], ["synthesised_ns"]),
    "exchanges": (["way"], ["sender_us", "receiver_us"]),
}
KEY = ["work", "path", "cores", "transport", "connections"]
# What must be the same for figures to be compared.
SAME_HOST = ["cores", "processor"]


@dataclass(frozen=True)
class Figure:
    """What repetitions of one measurement gave."""

    median: float
    spread: float
    more_is_better: bool
    is_ours: bool


def figures(run: dict) -> dict[str, Figure]:
    """All figures of a run, by what they go by."""
    found = {}
    for row in run.get("rows", []):
        for name, more_is_better in FIGURES.items():
            values = [value for value in row["figures"].get(name, []) if value is not None]
            if not values:
                continue
            what = ", ".join(str(row[key]) for key in KEY if row[key] != 1)
            is_ours = row["transport"].startswith("uts")
            spread = max(values) - min(values)
            found[f"{what}: {name}"] = Figure(statistics.median(values), spread, more_is_better, is_ours)
    for part, (keys, names) in OTHERS.items():
        for one in run.get(part, []):
            what = ", ".join([part, *(str(one.get(key, "")) for key in keys)])
            for name in names:
                if ns := one.get(name):
                    found[f"{what}: {name}"] = Figure(ns["median"], ns["max"] - ns["min"], False, True)
    return found


def why_not(new: dict, old: dict) -> str | None:
    """Why two runs cannot be compared, if so."""
    for key in SAME_HOST:
        if new["host"].get(key) != old["host"].get(key):
            return f"it was recorded with {key} {old['host'].get(key)}, and here it is {new['host'].get(key)}"
    amount = {key: value for key, value in new["plan"].items() if key != "repetitions"}
    for key, value in amount.items():
        if old["plan"].get(key) != value:
            return f"it was recorded with {key} {old['plan'].get(key)}, and this run has {value}"
    return None


def changes(new: dict, old: dict) -> list[tuple[float, str, Figure, Figure]]:
    """What changed by more than its spread: by what part for the better, and what it is; the worst first."""
    before, found = figures(old), []
    for what, now in figures(new).items():
        then = before.get(what)
        if then is None or then.median == 0:
            continue
        difference = now.median - then.median
        if abs(difference) <= max(now.spread, then.spread):
            continue
        gain = difference / abs(then.median) * (1 if now.more_is_better else -1)
        found.append((gain, what, now, then))
    return sorted(found, key=lambda change: change[0])


def tell(new: dict, old: dict) -> tuple[list[str], bool]:
    """Lines for people, and whether something of UTS fell."""
    compared = figures(new).keys() & figures(old).keys()
    found = changes(new, old)
    ours = [change for change in found if change[2].is_ours]
    fallen = [change for change in ours if change[0] < 0]
    risen = [change for change in ours if change[0] > 0]
    others = [change for change in found if not change[2].is_ours and change[0] < 0]
    lines = [
        f"Compared with what was recorded: {len(compared)} figures, of which {len(fallen)} of UTS fell and"
        f" {len(risen)} rose by more than their spread"
    ]
    for title, some in [("fell", fallen), ("rose", list(reversed(risen)))]:
        for gain, what, now, then in some:
            lines.append(
                f"  {title} {abs(gain) * 100:5.1f} %  {what}  {then.median:.4g} -> {now.median:.4g}"
                f" (spread {then.spread:.2g}, {now.spread:.2g})"
            )
    if fallen and others:
        lines.append(f"  {len(others)} figures of rivals fell as well, so that the machine may be slower than it was")
    loads = [run["load"] for run in (old, new)]
    if fallen and any(load > 1.0 for pair in loads for load in pair):
        lines.append(f"  load then {loads[0][0]:.2f} to {loads[0][1]:.2f}, now {loads[1][0]:.2f} to {loads[1][1]:.2f}")
    return lines, bool(fallen)


def write(run: dict, path: Path) -> None:
    """Writes a state, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(run, indent=1) + "\n")
    os.replace(aside, path)


def merged(new: dict, old: dict | None) -> dict:
    """What is recorded: this run, and what only the one before had, as where a part was left out."""
    if old is None:
        return new
    measured = [[row[name] for name in KEY] for row in new.get("rows", [])]
    rows = new.get("rows", []) + [
        row for row in old.get("rows", []) if [row[name] for name in KEY] not in measured
    ]
    others = {part: new.get(part) or old.get(part, []) for part in OTHERS}
    return {**new, "rows": rows, **others}


def main(arguments: list[str]) -> int:
    paths = [Path(argument) for argument in arguments if not argument.startswith("--")]
    unknown = [a for a in arguments if a.startswith("--") and a != "--record"]
    if len(paths) != 2 or unknown:
        print(__doc__, file=sys.stderr)
        return 1
    new_path, record = paths
    try:
        new = json.loads(new_path.read_text())
        old = json.loads(record.read_text()) if record.exists() else None
        lines, is_kept, hint = [], False, "RECORD=1 records this run all the same"
        if old is None:
            lines = [f"Recorded in {record}: there was nothing to compare with"]
        elif why := why_not(new, old):
            lines, is_kept, old_kept = [f"Not compared with {record}: {why}"], True, None
        else:
            lines, is_kept = tell(new, old)
            old_kept = old
        if old is None:
            write(new, record)
        elif "--record" in arguments or not is_kept:
            write(merged(new, old_kept), record)
            lines.append(f"Recorded in {record}")
        else:
            lines.append(f"{record} stays as it is; {hint}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"compare.py: {new_path}, {record}: {error!r}", file=sys.stderr)
        return 1
    print("\n" + "\n".join(lines))
    return 0


class Tests(unittest.TestCase):
    """`python3 bench/compare.py --test`."""

    def run_of(self, gbps: list[float], ns: tuple[float, float, float] = (10, 9, 11), **more) -> dict:
        summary = dict(zip(("median", "min", "max"), ns, strict=True))
        row = dict(work="bulk", path="veth", cores="two", connections=1, figures={"gbps": gbps})
        return {
            "host": {"cores": 2, "processor": "p", "kernel": "k"},
            "load": [0.1, 0.2],
            "plan": {"repetitions": len(gbps), "bulk_s": 0.4},
            "rows": [{**row, "transport": transport} for transport in ("uts", "quinn")],
            "parts": [{"function": "f", "part": "p", "bytes": 7, "ns": summary}],
            **more,
        }

    def test_what_is_within_its_spread_did_not_fall(self) -> None:
        lines, fell = tell(self.run_of([9.1, 9.9]), self.run_of([10.0, 10.6, None]))
        self.assertFalse(fell, lines)
        self.assertIn("3 figures, of which 0 of UTS fell and 0 rose", lines[0])

    def test_what_fell_is_named_with_both_figures(self) -> None:
        lines, fell = tell(self.run_of([8.0, 8.2], (20, 19, 21)), self.run_of([10.0, 10.2]))
        self.assertTrue(fell)
        self.assertIn("2 of UTS fell", lines[0])
        self.assertIn("fell 100.0 %  parts, f, p, 7: ns  10 -> 20", lines[1])
        self.assertIn("fell  19.8 %  bulk, veth, two, uts: gbps  10.1 -> 8.1", lines[2])
        self.assertIn("1 figures of rivals fell as well", lines[3])

    def test_less_time_is_better(self) -> None:
        lines, fell = tell(self.run_of([10.0], (5, 4.9, 5.1)), self.run_of([10.0]))
        self.assertFalse(fell)
        self.assertIn("rose  50.0 %  parts", lines[1])

    def test_other_machines_and_other_amounts_are_not_compared(self) -> None:
        run = self.run_of([1.0])
        self.assertIsNone(why_not(run, self.run_of([1.0, 2.0])))
        self.assertIn("processor q", why_not(run, {**run, "host": {"cores": 2, "processor": "q"}}))
        self.assertIn("bulk_s 0.8", why_not(run, {**run, "plan": {"bulk_s": 0.8}}))

    def test_a_record_stays_until_nothing_falls_and_keeps_what_was_not_measured(self) -> None:
        import contextlib
        import io
        import tempfile

        with tempfile.TemporaryDirectory() as name:
            new, record = Path(name, "new.json"), Path(name, "sub", "record.json")

            def compare(run: dict, *options: str) -> str:
                new.write_text(json.dumps(run))
                said = io.StringIO()
                with contextlib.redirect_stdout(said):
                    self.assertEqual(main([str(new), str(record), *options]), 0)
                return said.getvalue()

            def recorded() -> dict:
                return json.loads(record.read_text())

            self.assertIn("nothing to compare with", compare(self.run_of([10.0])))
            self.assertIn("stays as it is", compare(self.run_of([5.0])))
            self.assertEqual(recorded()["rows"][0]["figures"]["gbps"], [10.0])
            compare({**self.run_of([11.0]), "parts": []})
            self.assertEqual(recorded()["rows"][0]["figures"]["gbps"], [11.0])
            self.assertEqual(len(recorded()["parts"]), 1)
            compare(self.run_of([5.0]), "--record")
            self.assertEqual(recorded()["rows"][0]["figures"]["gbps"], [5.0])
            self.assertIn("Not compared", compare(self.run_of([5.0], plan={"bulk_s": 9})))
            record.write_text("{")
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(main([str(new), str(record)]), 1)
            self.assertIn("record.json", said.getvalue())


if __name__ == "__main__":
    if "--test" in sys.argv[1:]:
        unittest.main(argv=[sys.argv[0]])
    sys.exit(main(sys.argv[1:]))
