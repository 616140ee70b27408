"""The laboratory, if it is built."""

from __future__ import annotations

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

    def test_what_is_wrong_is_said(self) -> None:
        with self.assertRaisesRegex(uts.lab.LabError, "nonsense"):
            uts.lab.run("nonsense = 1\ntitle = 'x'\n")


if __name__ == "__main__":
    unittest.main()
