"""How much may be in flight (functions/congestion.md). Bytes and seconds; nothing of it is on the wire."""

PACKET = 1200


class NewReno:
    """Mechanism 1; and what all windowed mechanisms share: C-1 to C-4, C-8, C-11."""

    beta = 0.5

    def __init__(self, summary=None):
        self.window, self.threshold = summary or (10 * PACKET, None)
        self.recovery_until = -1

    def summary(self):
        return self.window, self.threshold

    def on_acked(self, packet, used, now, smoothed):
        """`used` says that the sender was held up by the window (C-4)."""
        if packet.number <= self.recovery_until or not used:
            return
        if self.threshold is None or self.window < self.threshold:
            self.window += packet.size
        else:
            self.avoid(packet, now, smoothed)

    def avoid(self, packet, now, smoothed):  # C-10
        self.window += PACKET * packet.size / self.window

    def on_lost(self, packet, next_number, now):
        if packet.number <= self.recovery_until:
            return
        self.recovery_until = next_number - 1
        self.reduced(now)
        self.window = max(2 * PACKET, self.window * self.beta)
        self.threshold = self.window

    def reduced(self, now):
        """Called before a reduction."""

    def on_persistent(self):  # C-8
        self.window = 2 * PACKET

    def rate(self, smoothed):
        """The rate of pacing: a window and a quarter in a round trip, twice as much in slow start."""
        slow_start = self.threshold is None or self.window < self.threshold
        return (2 if slow_start else 1.25) * self.window / max(smoothed, 0.0001)


class Cubic(NewReno):
    """Mechanism 2 (RFC 9438), without HyStart++."""

    beta = 0.7

    def __init__(self, summary=None):
        super().__init__(summary)
        self.plateau, self.begin, self.friendly = self.window, None, self.window

    def reduced(self, now):
        self.plateau = self.window if self.window >= self.plateau else self.window * (1 + self.beta) / 2
        self.begin, self.friendly = None, self.window * self.beta

    def avoid(self, packet, now, smoothed):
        if self.begin is None:
            self.begin = now
            self.distance = (max(self.plateau - self.window, 0) / PACKET / 0.4) ** (1 / 3)
        self.friendly += 0.53 * PACKET * packet.size / self.window
        target = 0.4 * (now - self.begin + smoothed - self.distance) ** 3 * PACKET + self.plateau
        target = min(max(target, self.friendly), 1.5 * self.window)
        if target > self.window:
            self.window += (target - self.window) * packet.size / self.window


class Bbr(NewReno):
    """Mechanism 3 in short: the rate is what arrives, the window two products of that and the smallest round trip.

    Startup and ProbeBW only: no ProbeRTT, and the bounds that losses leave (C-33 to C-36) are not kept apart. A round
    that loses more than the threshold ends Startup and takes a tenth off the rate.
    """

    GAINS = (1.25, 0.75, 1, 1, 1, 1, 1, 1)

    def __init__(self, summary=None, loss_threshold=20):
        super().__init__(summary)
        self.threshold_share = loss_threshold / 1000
        self.samples, self.smallest, self.full, self.stalls = [], None, 0, 0
        self.startup, self.round_end = True, 0.0
        self.delivered = self.lost = self.phase = 0

    def bandwidth(self):
        return max(self.samples, default=0)

    def on_acked(self, packet, used, now, smoothed):
        self.delivered += packet.size
        trip = max(now - packet.time, 0.0001)
        self.smallest = trip if self.smallest is None else min(self.smallest, trip)
        if now < self.round_end:
            return
        elapsed = max(now - self.round_end + smoothed, 0.001) if self.round_end else smoothed
        if used or self.delivered / elapsed > self.bandwidth():
            self.samples = (self.samples + [self.delivered / elapsed])[-10:]
        self._round(self.delivered, self.lost)
        self.delivered = self.lost = 0
        self.round_end = now + smoothed
        self.phase = (self.phase + 1) % 8
        product = self.bandwidth() * self.smallest
        self.window = max(4 * PACKET, (2.77 if self.startup else 2) * product, 10 * PACKET if self.startup else 0)

    def _round(self, delivered, lost):
        if lost > self.threshold_share * (delivered + lost) + 5 * PACKET:
            self.startup = False
            self.samples = [s * 0.9 for s in self.samples]
        if self.bandwidth() > 1.25 * self.full:
            self.full, self.stalls = self.bandwidth(), 0
        else:
            self.stalls += 1
            self.startup = self.startup and self.stalls < 3

    def on_lost(self, packet, next_number, now):
        self.lost += packet.size

    def rate(self, smoothed):
        if not self.samples:
            return super().rate(smoothed)
        return self.bandwidth() * (2.77 if self.startup else self.GAINS[self.phase])


class Unlimited(NewReno):
    """Mechanism 0, `none`: it keeps the predecessor's window for a successor."""

    def on_acked(self, packet, used, now, smoothed):
        pass

    def on_lost(self, packet, next_number, now):
        pass

    def on_persistent(self):
        pass

    def rate(self, smoothed):
        return None


MECHANISMS = {"none": Unlimited, "new-reno": NewReno, "cubic": Cubic, "bbr": Bbr}


def start(profile, predecessor=None):
    """The mechanism of a profile, from what the one before hands over (C-5)."""
    summary = predecessor.summary() if predecessor else None
    if profile["congestion"] == "bbr":
        return Bbr(summary, profile.get("congestion", "loss-threshold", 20))
    return MECHANISMS[profile["congestion"]](summary)


class Bucket:
    """Pacing (functions/rate.md R-3 to R-7)."""

    def __init__(self, now, burst):
        self.level, self.time, self.burst = burst * PACKET, now, burst * PACKET

    def wait(self, rate, now):
        """How long a packet has to wait; 0 if it may leave."""
        if not rate:
            return 0
        burst = max(self.burst, rate * 0.004)
        self.level = min(burst, self.level + (now - self.time) * rate)
        self.time = now
        return 0 if self.level >= 0 else -self.level / rate

    def take(self, size):
        self.level -= size
