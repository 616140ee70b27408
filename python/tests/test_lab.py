"""The laboratory, if it is built."""

from __future__ import annotations

import gzip
import importlib.util
import os
import shutil
import tempfile
import unittest
from pathlib import Path

import uts.lab

EXPERIMENT = """
title = "A notebook's"
world = "sim"

[path.wan]
forward = "rate=20mbit delay=10ms buffer=64p"

[workload.file]
kind = "bulk"
bytes = "200kB"

[transport.uts]
kind = "uts"

[[sweep]]
key = "path.wan.loss"
values = [0, 0.01]
"""


class Columns(unittest.TestCase):
    def test_columns_are_numbers_or_words(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "a.csv"
            file.write_text("n,word\n1,one\n,two\n2.5,three\n")
            found = uts.lab.columns(file)
            self.assertEqual(found["word"], ["one", "two", "three"])
            first, second, third = found["n"]
            self.assertEqual((first, third), (1.0, 2.5))
            self.assertNotEqual(second, second)
            file.write_text("n,word\n")
            self.assertEqual(uts.lab.columns(file), {"n": [], "word": []})

    def test_compressed_files_are_read(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "a.csv"
            with gzip.open(f"{file}.gz", "wt", encoding="utf-8") as lines:
                lines.write("n,word\n1,one\n")
            self.assertEqual(uts.lab.columns(file), {"n": [1.0], "word": ["one"]})
            with self.assertRaises(FileNotFoundError):
                uts.lab.columns(file.with_name("b.csv"))


@unittest.skipUnless(shutil.which(os.environ.get("UTS_LAB", "uts-lab")), "there is no uts-lab (UTS_LAB names one)")
class Laboratory(unittest.TestCase):
    def test_experiment_becomes_columns(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = uts.lab.run(EXPERIMENT, Path(folder) / "out")
            measures = done.measures()
            self.assertGreater(len(done.runs()), 0)
            self.assertEqual({len(column) for column in measures.values()}, {len(measures["value"])})
            self.assertTrue(all(isinstance(value, float) for value in measures["value"]))
            self.assertEqual(uts.lab.run(EXPERIMENT, Path(folder) / "out").measures(), measures)

    def test_compressed_samples_are_the_same(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            plain = uts.lab.run(EXPERIMENT, Path(folder) / "plain")
            small = uts.lab.run(f"{EXPERIMENT}\n[record]\ncompress = true\n", Path(folder) / "small")
            self.assertEqual(small.runs(), plain.runs())
            run = plain.runs()[0]
            self.assertTrue((small.folder / "runs" / run / "samples" / "goodput.csv.gz").is_file())
            self.assertEqual(small.samples(run, "goodput"), plain.samples(run, "goodput"))

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "there is no pandas")
    def test_experiment_becomes_a_frame(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = uts.lab.run(f"{EXPERIMENT}\n[record]\ncompress = true\n", Path(folder) / "out")
            frame = done.frame()
            self.assertEqual(len(frame), len(done.measures()["value"]))
            goodput = done.frame("goodput")
            self.assertEqual(sorted(goodput["run"].unique()), done.runs())
            self.assertEqual(len(done.frame("tcp_probe")), 0)

    def test_what_is_wrong_is_said(self) -> None:
        with self.assertRaisesRegex(uts.lab.LabError, "nonsense"):
            uts.lab.run("nonsense = 1\ntitle = 'x'\n")


if __name__ == "__main__":
    unittest.main()
