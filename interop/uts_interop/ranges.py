"""Sets of numbers as runs, lowest first: [begin, end), not touching each other."""

from bisect import bisect_left, bisect_right


class Ranges:
    def __init__(self):
        self.runs = []

    def add(self, begin, end):
        if begin >= end:
            return
        first = bisect_left(self.runs, begin, key=lambda run: run[1])
        last = bisect_right(self.runs, end, key=lambda run: run[0])
        if first < last:
            begin, end = min(begin, self.runs[first][0]), max(end, self.runs[last - 1][1])
        self.runs[first:last] = [[begin, end]]

    def remove(self, begin, end):
        kept = []
        for a, b in self.runs:
            if a < begin:
                kept.append([a, min(b, begin)])
            if b > end:
                kept.append([max(a, end), b])
        self.runs = [run for run in kept if run[0] < run[1]]

    def missing(self, begin, end):
        """The runs of [begin, end) that are not in the set."""
        out, at = [], begin
        first = bisect_right(self.runs, begin, key=lambda run: run[1])
        for a, b in self.runs[first:]:
            if a >= end:
                break
            if a > at:
                out.append((at, a))
            at = max(at, b)
        if at < end:
            out.append((at, end))
        return out

    def has(self, begin, end):
        return not self.missing(begin, end)

    def __contains__(self, number):
        return self.has(number, number + 1)

    def reach(self, begin):
        """The end of the run that holds `begin`, or `begin`."""
        for a, b in self.runs:
            if a <= begin < b:
                return b
        return begin

    def total(self):
        return sum(b - a for a, b in self.runs)
