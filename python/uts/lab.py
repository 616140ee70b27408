"""The laboratory from a notebook: an experiment runs in virtual time, and its figures come as columns.

    experiment = uts.lab.run("sweep.toml")
    frame = experiment.frame()

``docs/lab.md`` says what an experiment's file holds and what a run leaves. The program ``uts-lab`` has
to be installed, or ``UTS_LAB`` names it.
"""

from __future__ import annotations

import csv
import gzip
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Column = list[float] | list[str]


class LabError(Exception):
    """What the laboratory says of an experiment that it does not run."""


@dataclass(frozen=True)
class Experiment:
    """What an experiment has left in a folder."""

    #: The folder: docs/lab.md describes it.
    folder: Path

    def measures(self) -> dict[str, Column]:
        """Each figure of each run: columns by their names in ``measures.csv``."""
        return columns(self.folder / "measures.csv")

    def runs(self) -> list[str]:
        """The ids of runs that have left something."""
        place = self.folder / "runs"
        return sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []

    def samples(self, run: str, name: str) -> dict[str, Column]:
        """What a run has recorded, such as ``window`` or ``goodput``."""
        return columns(self._samples(run, name))

    def _samples(self, run: str, name: str) -> Path:
        return self.folder / "runs" / run / "samples" / f"{name}.csv"

    def frame(self, name: str = "measures") -> Any:
        """:meth:`measures` as a DataFrame of pandas; or samples of all runs, such as ``latency``, with a column ``run``.

        For more than fits into memory there is ``uts-lab parquet``.
        """
        import pandas

        if name == "measures":
            return pandas.DataFrame(self.measures())
        frames = [
            pandas.DataFrame(self.samples(run, name)).assign(run=run)
            for run in self.runs()
            if _place(self._samples(run, name)).is_file()
        ]
        return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()


def run(
    experiment: str | Path,
    out: str | Path | None = None,
    *,
    options: Sequence[str] = (),
    program: str | None = None,
) -> Experiment:
    """Runs what is missing of an experiment.

    ``experiment`` is a file, or its text if it has more than one line. ``out`` is the folder for what it
    leaves; without, a new one in the system's place for such. ``options`` are those of ``uts-lab run``.
    """
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="uts-lab-"))
    with tempfile.TemporaryDirectory() as beside:
        file = Path(experiment) if "\n" not in str(experiment) else Path(beside) / "experiment.toml"
        if file.parent == Path(beside):
            file.write_text(str(experiment), encoding="utf-8")
        words = [*shlex.split(program or os.environ.get("UTS_LAB", "uts-lab")), "run", str(file)]
        done = subprocess.run([*words, "--out", str(folder), *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(done.stderr.strip() or f"uts-lab has ended with {done.returncode}")
    return Experiment(folder)


def columns(file: Path) -> dict[str, Column]:
    """The columns of a CSV file, or of its compressed form, by their names.

    A column of numbers is one of floats, NaN where it is empty.
    """
    place = _place(file)
    opened: Any = gzip.open if place.suffix == ".gz" else open
    with opened(place, "rt", newline="", encoding="utf-8") as lines:
        rows = csv.reader(lines)
        names = next(rows, [])
        cells: list[list[str]] = [list(column) for column in zip(*rows)] or [[] for _ in names]
    return {name: _typed(column) for name, column in zip(names, cells)}


def _place(file: Path) -> Path:
    """The file, or its compressed form if only that is there."""
    compressed = file.with_name(f"{file.name}.gz")
    return compressed if compressed.is_file() and not file.is_file() else file


def _typed(column: list[str]) -> Column:
    try:
        return [float(cell) if cell else float("nan") for cell in column]
    except ValueError:
        return column
