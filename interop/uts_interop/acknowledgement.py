"""When a receiver reports what has arrived (functions/acknowledgement.md). Time is in seconds."""

from .ranges import Ranges


def longest_delay(profile, smoothed):
    """The longest delay that the receiver's mechanism admits to (R-12)."""
    name = profile["acknowledgement"]
    if name == "delayed":
        return profile.get("acknowledgement", "delay", 25) / 1e3
    if name == "piggybacked":
        return min(smoothed / profile.get("acknowledgement", "part", 8), profile.get("acknowledgement", "delay", 25) / 1e3)
    return 0.0


class Reporter:
    def __init__(self):
        self.seen = Ranges()
        self.repaired = Ranges()
        self.floor = 0  # numbers below count as duplicates
        self.report_from = 0  # numbers below need not be reported again
        self.largest, self.largest_time = -1, 0.0
        self.unreported, self.due = 0, None
        self.repaired_news = False

    def duplicate(self, number):
        return number < self.floor or number in self.seen

    def on_packet(self, number, asks, polls, now, profile, shortest):
        """An authentic packet arrived; `shortest` is the shortest round trip of this end's packets, or None."""
        jumps = number != self.largest + 1
        self.seen.add(number, number + 1)
        while len(self.seen.runs) > 64:
            self.floor = self.seen.runs.pop(0)[1]
        if number > self.largest:
            self.largest, self.largest_time = number, now
        if not asks:
            return
        self.unreported += 1
        due = self._due(jumps, polls, now, profile, shortest)
        if due is not None:
            self.due = due if self.due is None else min(self.due, due)

    def _due(self, jumps, polls, now, profile, shortest):
        name = profile["acknowledgement"]
        if name == "per-packet":
            return now
        if name == "poll-status":
            return now if polls else None
        delay = profile.get("acknowledgement", "delay", 25) / 1e3
        if name == "piggybacked":
            wait = 0 if shortest is None else min(shortest / profile.get("acknowledgement", "part", 8), delay)
            return now if self.unreported > 1 or jumps or polls or wait < 0.001 else now + wait
        if self.unreported >= profile.get("acknowledgement", "packets", 2) or jumps or polls:
            return now
        return now + delay if self.unreported == 1 else self.due

    def on_repaired(self, number):
        self.repaired.add(number, number + 1)
        self.repaired_news = True

    def report(self, now):
        """The frames of a report, newest ranges first."""
        runs = [[a, b - 1] for a, b in self.seen.runs if b > self.report_from][-32:]
        frames = []
        if runs:
            delay = int(max(now - self.largest_time, 0) * 1e6)
            frames.append({"frame": "Ack", "delay": delay, "ranges": runs[::-1]})
        if self.repaired_news:
            frames.append({"frame": "Repaired", "ranges": [[a, b - 1] for a, b in self.repaired.runs[-16:]][::-1]})
            self.repaired_news = False
        self.unreported, self.due = 0, None
        return frames

    def confirmed(self, largest):
        """The sender has acknowledged a packet that reported up to `largest` (R-4)."""
        self.report_from = max(self.report_from, largest - 64)  # What is overtaken by fewer is reported still.
