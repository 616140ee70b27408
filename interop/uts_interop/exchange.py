"""The negotiated exchange of profiles in one direction (exchange.md). Time is in seconds."""

SENDER, RECEIVER = "sender", "receiver"
TRIES = 8


class Exchange:
    """What one end keeps of one direction. `role` is its own: SENDER or RECEIVER.

    The owner has `judge(group, profile)`, which raises profile.Refused or returns; `opened(epoch, group, profile)`,
    `closed(epoch)`, `used(epoch, group, profile)` and `told(what, epoch, detail)`. It takes frames from `take()`.
    """

    def __init__(self, role, owner, profile):
        self.role, self.owner = role, owner
        self.profiles = {0: (0, profile)}  # number -> group and profile, of epochs that are open or in use
        self.in_use = {0: 0}  # group -> epoch
        self.highest = self.decided = 0
        self.asking = self.doubt = None  # number, group, choices
        self.answer = None  # the number that was last answered, and the answer's frame
        self.accepted = None  # the number of our last accepted request
        self.waiting = None  # the number whose Confirm we wait for
        self.tries, self.due = 0, None
        self.retiring = []  # instants and epochs
        self.out = []

    def frame(self, name, **fields):
        # P-25: a direction is 0, what the sender of the frame sends, or 1, what it receives.
        return {"frame": name, "direction": 0 if self.role == SENDER else 1} | fields

    def say(self, name, **fields):
        self.out = [f for f in self.out if f["frame"] != name][-3:] + [self.frame(name, **fields)]

    def take(self):
        out, self.out = self.out, []
        return out

    def oldest(self):
        return min(self.profiles)

    # What this end wishes.

    def ask(self, group, choices, now, pto):
        """Begins an exchange; False if it has to wait (X-1, X-13, X-22)."""
        if self.asking or self.waiting is not None:
            return False
        if self.doubt and ((self.doubt[1], self.doubt[2]) == (group, choices) or self.role == RECEIVER):
            self.asking, self.doubt = self.doubt, None
            self._request(now, pto)
            return (self.asking[1], self.asking[2]) == (group, choices)
        parity = 0 if self.role == SENDER else 1
        number = self.highest + 1
        if self.role == SENDER:
            number += 1
        if number % 2 != parity:
            number += 1
        if number >= self.oldest() + 24:
            return False
        self.doubt, self.asking = None, (number, group, choices)
        self.highest = self.decided = number
        if self.role == RECEIVER:
            self._open(number, group, choices)
        self._request(now, pto)
        return True

    def _request(self, now, pto):
        self.tries, self.due = 1, now + pto
        self._send_request()

    def _send_request(self):
        number, group, choices = self.asking
        using = [None] * 8
        if self.role == SENDER:
            using = [self.in_use.get(g) for g in range(8)]
        self.say("Request-PF", group=group, epoch=number, using=using, profile=choices)

    def _open(self, number, group, choices):
        self.profiles[number] = (group, choices)
        self.owner.opened(number, group, choices)

    def _close(self, number):
        if number in self.profiles:
            del self.profiles[number]
            self.owner.closed(number)

    def _use(self, number, group, choices):
        old = self.in_use.get(group)
        if old is not None and old >= number:
            return
        self.profiles[number] = (group, choices)
        self.in_use[group] = number
        self.owner.used(number, group, choices)
        if old is not None:
            self.profiles.pop(old, None)

    # What the peer says.

    def on_frame(self, frame, now, pto):
        name, number = frame["frame"], frame["epoch"]
        if name == "Request-PF":
            self._on_request(frame, now, pto)
            return
        pending = self.asking or self.doubt
        if pending and pending[0] == number:
            if name == "ACK-PF":
                self._accepted(now, pto, confirm=True)
            elif name == "NAK-PF":
                self._withdraw("refused", (frame["function"], frame["reason"], frame["choice"]))
            elif name == "Stale-PF" and frame["highest_epoch"] < self.highest + 32:
                self._withdraw("withdrawn", frame["highest_epoch"])
                self.highest = max(self.highest, frame["highest_epoch"])
        elif name == "ACK-PF" and number == self.accepted:
            self.say("Confirm-PF", epoch=number)
        elif name == "Confirm-PF" and self.answer and self.answer[1]["frame"] == "ACK-PF" and number == self.answer[0]:
            self._confirmed(number, now, pto)  # Also after the last try.

    def _accepted(self, now, pto, confirm):
        number, group, choices = self.asking or self.doubt
        self.asking = self.doubt = self.due = None
        self.accepted = number
        if confirm:
            self.say("Confirm-PF", epoch=number)
        if self.role == SENDER:
            self._use(number, group, choices)
        else:
            self._in_use(number, now, pto)
        self.owner.told("accepted", number, None)

    def _withdraw(self, what, detail):
        pending = self.asking or self.doubt
        told = self.asking is not None or what == "refused"
        self.asking = self.doubt = self.due = None
        if self.role == RECEIVER:
            self._close(pending[0])
        if told:
            self.owner.told(what, pending[0], detail)

    def _confirmed(self, number, now, pto):
        if self.waiting == number:
            self.waiting = self.due = None
        if self.role == RECEIVER and number in self.profiles:
            self._in_use(number, now, pto)

    def _in_use(self, number, now, pto):
        group = self.profiles[number][0]
        if self.in_use.get(group, -1) >= number:
            return
        self.in_use[group] = number
        lower = [n for n, (g, _) in self.profiles.items() if g == group and n < number]
        self.retiring += [(now + 3 * pto, n) for n in lower]

    def on_packet(self, epoch, now, pto):
        """An authentic packet came under an epoch (X-8); only at the receiver."""
        pending = self.asking or self.doubt
        if pending and pending[0] == epoch:
            self._accepted(now, pto, confirm=True)
        elif self.waiting == epoch:
            self._confirmed(epoch, now, pto)
        elif epoch in self.profiles:
            self._in_use(epoch, now, pto)

    def _on_request(self, frame, now, pto):
        number, group = frame["epoch"], frame["group"]
        peer_parity = 1 if self.role == SENDER else 0
        if number % 2 != peer_parity or number >= self.highest + 32:
            return
        if self.answer and self.answer[0] == number:
            self.out.append(self.answer[1])
            return
        if number <= self.decided:
            self.say("Stale-PF", epoch=number, highest_epoch=self.highest)
            return
        if self.role == RECEIVER and not self._learn(frame["using"], number, now, pto):
            return
        if number >= self.oldest() + 32:
            return
        if self.asking or self.doubt:
            self._withdraw("withdrawn", number)
        self.highest = self.decided = number
        self._decide(number, group, frame["profile"], now, pto)

    def _decide(self, number, group, choices, now, pto):
        from .profile import Refused

        try:
            self.owner.judge(group, choices)
        except Refused as refused:
            answer = self.frame("NAK-PF", epoch=number, function=refused.function, reason=refused.reason, choice=None)
            self.waiting = self.due = None
        else:
            if self.role == RECEIVER:
                self._open(number, group, choices)
            else:
                self._use(number, group, choices)
            answer = self.frame("ACK-PF", epoch=number)
            self.waiting, self.tries, self.due = number, 1, now + pto
        self.answer = (number, answer)
        self.out.append(answer)

    def _learn(self, using, number, now, pto):
        """Takes in what a request of the sender says that it uses (X-17); False if that contradicts what is known."""
        for group, epoch in enumerate(using):
            known = self.in_use.get(group)
            if epoch is None:
                if known is not None:
                    return False
            elif self.profiles.get(epoch, (None,))[0] != group or epoch >= number or epoch < (known or 0):
                return False
        for group, epoch in enumerate(using):
            if epoch is None:
                continue
            pending = self.asking or self.doubt
            if pending and pending[0] == epoch:
                self._accepted(now, pto, confirm=False)
            elif self.waiting == epoch:
                self._confirmed(epoch, now, pto)
            else:
                self._in_use(epoch, now, pto)
        latest = {g: e for g, e in enumerate(using) if e is not None}
        for epoch, (group, _) in list(self.profiles.items()):
            if latest.get(group, -1) < epoch < number:
                if (self.asking or self.doubt or (None,))[0] == epoch:
                    self._withdraw("withdrawn", number)
                if self.waiting == epoch:
                    self.waiting = self.due = None
                self._close(epoch)
        return True

    # Time and loss.

    def on_timer(self, now, pto):
        for when, epoch in list(self.retiring):
            if when <= now:
                self.retiring.remove((when, epoch))
                self._close(epoch)
        if self.due is None or now < self.due:
            return
        if self.tries >= TRIES:
            self.due = None
            if self.asking:
                self.doubt, self.asking = self.asking, None
                self.owner.told("failed", self.doubt[0], None)
            else:
                self.waiting = None
            return
        self.tries += 1
        self.due = now + pto * 2 ** (self.tries - 1)
        self.repeat()

    def repeat(self):
        """Says again what waits for an answer; so when its packet was lost, which is no try (X-20)."""
        if self.asking:
            self._send_request()
        elif self.waiting is not None and self.answer and self.answer[0] == self.waiting:
            self.out.append(self.answer[1])

    def next_timer(self):
        times = [when for when, _ in self.retiring] + ([self.due] if self.due is not None else [])
        return min(times, default=None)
