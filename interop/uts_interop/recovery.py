"""What is in flight, how long the way takes, and what is lost
(functions/retransmission.md, timing.md, finding.md). Time is in seconds."""

import random
from dataclasses import dataclass, field

PACKETS = 3  # finding.md R-4


class Claim(Exception):
    """A report of a packet that never was (retransmission.md R-10)."""


@dataclass
class Sent:
    number: int
    time: float
    size: int
    asks: bool  # whether it is to be acknowledged (P-22)
    items: list = field(default_factory=list)
    polls: bool = False
    probe_number: int = 0


class Timing:
    """Round trips (timing.md R-1 to R-4, R-7 to R-10)."""

    def __init__(self):
        self.latest = self.smallest = None
        self.smoothed, self.deviation = 0.333, 0.1665

    def sample(self, value, delay):
        self.smallest = value if self.smallest is None else min(self.smallest, value)
        adjusted = value - delay if value - delay >= self.smallest else value
        if self.latest is None:
            self.smoothed, self.deviation = adjusted, adjusted / 2
        else:
            self.deviation += (abs(adjusted - self.smoothed) - self.deviation) / 4
            self.smoothed += (adjusted - self.smoothed) / 8
        self.latest = adjusted

    def timeout(self, profile):
        """The time-out without back-off (R-6, R-7)."""
        if profile["timing"] == "fixed":
            return max(profile.get("timing", "timeout") / 1e3 + profile.get("timing", "micros") / 1e6, 10e-6)
        return self.smoothed + max(profile.get("timing", "k", 4) * self.deviation, 0.001)

    def loss_delay(self, profile):
        """How old a packet before an acknowledged one is when it counts as lost (R-6, R-8)."""
        if profile["timing"] == "fixed":
            return self.timeout(profile)
        return max(9 / 8 * max(self.smoothed, self.latest or 0), 0.001)


class Ledger:
    """The packets that are neither acknowledged nor lost."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.next = 0
        self.skipped = set()
        self.skip_at = self.random.randrange(1, 32)
        self.packets = {}
        self.late = {}
        self.largest = None
        self.timing = Timing()
        self.timeouts = 0
        self.in_flight = 0
        self.threshold = PACKETS
        self.last_asking = None  # when the last packet left that is to be acknowledged

    def number(self):
        """The number of the next packet; some are left out (retransmission.md R-10)."""
        if self.next == self.skip_at:
            self.skipped.add(self.next)
            self.skip_at += self.random.randrange(2, 4096)
            self.next += 1
        self.next += 1
        return self.next - 1

    def on_sent(self, packet):
        self.packets[packet.number] = packet
        if packet.asks:
            self.in_flight += packet.size
            self.last_asking = packet.time

    def on_report(self, ranges, delay, now, profile):
        """Packets that a report acknowledges anew, and those that are lost by it."""
        if ranges[0][1] >= self.next:
            raise Claim(f"packet {ranges[0][1]} was not sent")
        for low, high in ranges:
            if any(low <= number <= high for number in self.skipped):
                raise Claim("a packet that was left out")
        new = [n for n in self._covered(self.packets, ranges)]
        acked = [self.packets.pop(n) for n in sorted(new)]
        late = [self.late.pop(n) for n in sorted(self._covered(self.late, ranges))]
        for packet in late:  # the path reorders
            self.threshold = min(256, max(self.threshold, (self.largest or 0) - packet.number + 1))
        for packet in acked:
            self.in_flight -= packet.size if packet.asks else 0
        largest = ranges[0][1]
        if acked and acked[-1].number == largest and acked[-1].asks:
            self.timing.sample(max(now - acked[-1].time, 0), delay)
        self.largest = largest if self.largest is None else max(self.largest, largest)
        if any(p.asks for p in acked):
            self.timeouts = 0
        return acked + late, self.find_lost(now, profile)

    @staticmethod
    def _covered(packets, ranges):
        out = []
        for number in packets:
            if any(low <= number <= high for low, high in ranges):
                out.append(number)
        return out

    def find_lost(self, now, profile):
        if self.largest is None:
            return []
        delay, out = self.timing.loss_delay(profile), []
        for packet in list(self.packets.values()):
            if packet.number > self.largest:
                break
            if self.largest - packet.number >= self.threshold or packet.time + delay <= now:
                out.append(self.packets.pop(packet.number))
        for packet in out:
            self.in_flight -= packet.size if packet.asks else 0
            self.late[packet.number] = packet
        while len(self.late) > 1024:
            self.late.pop(next(iter(self.late)))
        return [p for p in out if p.asks]

    def forget_all(self):
        """Everything in flight is lost: what left for another path (migration.md M-7)."""
        out = [p for p in self.packets.values() if p.asks]
        self.packets.clear()
        self.in_flight = 0
        return out

    def next_timer(self, profile, report_delay):
        """The instant at which a packet counts as lost or a probe is due (finding.md R-2), or None."""
        if self.largest is not None:
            first = next(iter(self.packets.values()), None)
            if first is not None and first.number < self.largest:
                return first.time + self.timing.loss_delay(profile)
        if not self.in_flight or self.last_asking is None:
            return None
        return self.last_asking + self.pto(profile, report_delay)

    def pto(self, profile, report_delay):  # timing.md R-10
        single = self.timing.timeout(profile) + report_delay
        bound = max(1.0, single) if self.timeouts < 3 else 0.1 * 2 ** min((self.timeouts - 3) // 32, 9)
        return min(single * 2**self.timeouts, max(bound, single))
