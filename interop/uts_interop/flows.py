"""Flows: positions, order, credit, ends (flows.md; functions/segmentation.md, sequencing.md, flow.md)."""

from bisect import bisect_right

from .frames import span
from .ranges import Ranges


class Breach(Exception):
    """An error of the peer that ends the connection; the text says which rule it broke."""


class Unheld(Exception):
    """What there is no room for: its packet is dropped, unacknowledged."""


#: Runs of positions that a receiver keeps apart in a flow (sequencing.md R-11; packets.md P-20, Skip).
GAPS = 8192
#: Positions ahead of what was read that a flow without a limit may have.
MEMORY = 16 << 20


class SendHalf:
    """What this end sends in a flow, by positions (segmentation.md R-1)."""

    def __init__(self, flow, limit, group=0):
        self.flow, self.limit, self.group = flow, limit, group
        self.units, self.starts = [], []  # what was handed over: first position, bytes, whether it is a message
        self.end = self.sent = 0  # behind what was handed over; the first position that was never sent
        self.got = 0  # how far data was sent (flow.md R-33)
        self.fin = None  # the position that the end takes
        self.lost, self.done, self.given_up = Ranges(), Ranges(), Ranges()
        self.reset = None  # a frame, or None
        self.reset_acked = False
        self.returned = -1  # the packet number of the last return (retransmission.md R-6)

    def write(self, data, message=False):
        if self.fin is not None or self.reset:
            raise ValueError("the flow has ended")
        self.units.append((self.end, bytes(data), message))
        self.starts.append(self.end)
        self.end += len(data) + message

    def finish(self):
        if self.fin is None and not self.reset:
            self.fin = self.end
            self.end += 1

    def waits(self):
        """Whether something could leave if the limits let it."""
        return not self.reset and (bool(self.lost.runs) or self.sent < self.end)

    def is_done(self):
        return self.reset_acked if self.reset else self.fin is not None and self.done.has(0, self.fin + 1)

    def next_frame(self, space, allowance):
        """The next frame Data of at most `space` bytes; `allowance` is what the connection's credit leaves."""
        if self.reset or space < 24:
            return None
        if self.lost.runs:  # segmentation.md R-3
            begin, end = self.lost.runs[0]
            frame = self._frame(begin, end, space)
        elif self.sent < self.end:
            end = self.end if self.limit is None else min(self.end, self.limit)
            if self.sent != self.fin and allowance is not None:
                end = min(end, self.sent + allowance)
            if self.sent >= end:
                return None
            frame = self._frame(self.sent, end, space)
        else:
            return None
        begin, end = span(frame)
        self.lost.remove(begin, end)
        self.sent = max(self.sent, end)
        self.got = max(self.got, end - frame["FIN"])
        return frame

    def _frame(self, begin, end, space):
        frame = {"frame": "Data", "flow": self.flow, "offset": begin, "LEN": True, "FIN": False, "MESSAGE": False,
                 "BEGIN": False, "END": False, "bytes": b""}
        room = space - 20
        index = bisect_right(self.starts, begin) - 1
        if begin != self.fin:
            start, data, message = self.units[index]
            take = data[begin - start : begin - start + min(room, end - begin)]
            frame["bytes"], frame["MESSAGE"] = take, message
            begin += len(take)
            if message:
                frame["BEGIN"] = frame["offset"] == start
                frame["END"] = begin == start + len(data) and begin < end
                begin += frame["END"]
        if begin == self.fin and begin < end:
            frame["FIN"] = True
        return frame

    def acknowledged(self, begin, end):
        self.done.add(begin, end)
        self.lost.remove(begin, end)
        reach = self.done.reach(0)
        while self.units and self.units[0][0] + len(self.units[0][1]) + self.units[0][2] <= reach:
            del self.units[0], self.starts[0]

    def repeat(self, begin, end):
        """Orders positions to be sent again, but for those that are done (retransmission.md R-3)."""
        for a, b in self.done.missing(begin, min(end, self.sent)):
            self.lost.add(a, b)

    def give_up(self, begin, end):
        """Gives up what was lost, by whole messages; the runs that the peer is told of (R-4, segmentation.md R-6)."""
        if self.fin is not None and begin <= self.fin < end:
            self.lost.add(self.fin, self.fin + 1)
            end = self.fin
        for start, data, message in self.units:
            if message and start < end and start + len(data) + 1 > begin:
                begin, end = min(begin, start), max(end, start + len(data) + 1)
        runs = self.done.missing(begin, end)
        for a, b in runs:
            self.done.add(a, b)
            self.given_up.add(a, b)
            self.lost.remove(a, b)
        self.sent = max(self.sent, end)
        return runs

    def give_reset(self, code, with_sent):
        """The frame of a reset with the lowest position that is not acknowledged (flow.md R-31, R-35)."""
        final = self.done.reach(0)
        self.reset = {"frame": "ResetFlow", "flow": self.flow, "code": code, "final_position": min(final, self.got)}
        if with_sent:
            self.reset |= {"frame": "ResetFlow with what was sent", "sent_position": self.got}
        return self.reset


class ReceiveHalf:
    """What this end receives in a flow. `window` is None where nothing is limited."""

    def __init__(self, flow, granted, window):
        self.flow, self.granted, self.window = flow, granted, window
        self.said = granted
        self.settled, self.arrived, self.delivered = Ranges(), Ranges(), Ranges()
        self.pieces = {}  # first position -> bytes
        self.begins, self.ends = set(), set()  # first positions of messages, and those of their ends
        self.parts = Ranges()  # positions of messages
        self.fin = self.reset = None
        self.got = 0  # how far data has come (flow.md R-33)
        self.group = None
        self.told_end = self.stopped = False
        self.loose = []  # messages without a position (sequencing.md R-10)
        self.lost = 0  # positions given up, as the application was told

    def take(self, frame):
        """Takes a frame Data in; raises Breach. True if something may have become readable."""
        begin, end = span(frame)
        data_end = end - frame["FIN"]
        if frame["FIN"] and self.fin is not None and self.fin != end - 1:
            raise Breach("F-10: the end moves")
        if self.fin is not None and data_end > self.fin:
            raise Breach("F-10: data behind the end")
        if frame["FIN"] and self.settled.runs and self.settled.runs[-1][1] > end:
            raise Breach("F-10: an end before what was seen")
        if self.granted is not None and data_end > self.granted:
            raise Breach("sequencing.md R-2: beyond the credit")
        if self.granted is None and end > self.delivered.total() + MEMORY:  # flow.md R-8
            raise Unheld
        if len(self.settled.runs) >= GAPS and begin > self.settled.runs[-1][1]:
            raise Unheld
        if frame["FIN"]:
            self.fin = end - 1
        self.got = max(self.got, data_end)
        if frame["MESSAGE"]:
            self.parts.add(begin, data_end)
        if frame["BEGIN"] and begin not in self.delivered:
            self.begins.add(begin)
        if frame["END"] and data_end - 1 not in self.delivered:
            self.ends.add(data_end - 1)
        for a, b in self.settled.missing(begin, end):
            content = frame["bytes"][a - begin : b - begin]
            if content:
                self.pieces[a] = content
            self.arrived.add(a, b)
        self.settled.add(begin, end)
        return True

    def skip(self, begin, end):
        if self.fin is not None:
            end = min(end, self.fin)
        self.settled.add(begin, end)
        if len(self.settled.runs) > GAPS:
            raise Breach("P-20: a Skip that leaves more gaps than are kept")
        if begin <= self.got < end:  # flow.md R-33
            self.got = end

    def set_reset(self, frame):
        final = frame["final_position"]
        if self.fin is not None and final > self.fin:
            raise Breach("flow.md R-30: a reset behind the end")
        if self.reset is None or final < self.reset[1]:
            self.reset = (frame["code"], final)
        self.got = max(self.got, frame.get("sent_position", 0))

    def read(self, ordered):
        """Everything that can be handed over: tuples of kind ("bytes", "message", "end", "reset") and content."""
        out = [("message", data) for data in self.loose]
        self.loose = []
        if self.stopped:
            return out
        at = self.delivered.reach(0)
        while True:
            step = self._step(at)
            if step is not None:
                at = step[2]
                out += [step[:2]] if step[1] is not None else []
                continue
            if ordered:
                break
            later = [a for a, b in self.settled.runs for a, _ in self.delivered.missing(max(a, at + 1), b)]
            later += [a for a in self.begins if a > at and a not in self.delivered]
            if not later:
                break
            at = min(later)
        return out + self._ending()

    def _step(self, at):
        """One thing that begins at `at`: kind, content or None, and the position behind; None if it has to wait."""
        if at == self.fin or at not in self.settled or at in self.delivered:
            return None
        if at not in self.arrived:
            return self._drop(at, self.arrived.missing(at, self.settled.reach(at))[0][1])
        if at in self.parts:
            return self._message(at)
        end = self.arrived.reach(at)
        stops = [b for b in self.begins if at < b < end] + [self.fin] * (self.fin is not None and self.fin < end)
        data = self._gather(at, min(stops + [end]))
        self.delivered.add(at, at + len(data))
        return ("bytes", data, at + len(data)) if data else None

    def _message(self, at):
        """The message that begins at `at`, or the rest of one whose begin was given up (R-3, R-4)."""
        reach = self.settled.reach(at)
        stop = min([b for b in self.begins if b > at] + [reach])
        end = min((e for e in self.ends if at <= e < stop), default=None)
        if at not in self.begins:
            lost = at - 1 in self.settled and at - 1 not in self.arrived or at - 1 in self.delivered
            return self._drop(at, stop if end is None else end + 1) if lost else None
        if end is None:
            gaps = self.arrived.missing(at, stop)
            if stop < reach or gaps:  # Its end was given up, or something before that.
                return self._drop(at, gaps[-1][1] if gaps else stop)
            return None
        if not self.arrived.has(at, end + 1):
            return self._drop(at, end + 1)
        data = self._gather(at, end)
        self.begins.discard(at)
        self.ends.discard(end)
        self.delivered.add(at, end + 1)
        return "message", data, end + 1

    def _drop(self, begin, end):
        """What will not come, or is of no use without that, counts as given up."""
        self._gather(begin, end)
        self.begins -= {b for b in self.begins if begin <= b < end}
        self.ends -= {e for e in self.ends if begin <= e < end}
        self.lost += end - begin
        self.delivered.add(begin, end)
        return "lost", None, end

    def _gather(self, begin, end):
        starts = sorted(start for start in self.pieces if begin <= start < end)
        return b"".join(self.pieces.pop(start) for start in starts)

    def _ending(self):
        reach = self.delivered.reach(0)
        if self.told_end:
            return []
        if self.reset and reach >= self.reset[1]:
            self.told_end = True
            return [("reset", self.reset[0])]
        if self.fin is not None and reach >= self.fin:
            self.told_end = True
            return [("end", None)]
        return []

    def consumed(self):
        return self.got if self.stopped or self.told_end else self.delivered.total()

    def credit(self):
        """A new limit if it is due (flow.md R-3, R-4), else None."""
        if self.window is None or self.granted is None or self.told_end or self.stopped:
            return None
        limit = self.consumed() + self.window
        if limit < self.said + self.window // 4:
            return None
        self.granted = max(self.granted, limit)
        self.said = limit
        return limit
