"""Adaptive packets of a connection: reading, building, timers (packets.md P-16 to P-38; functions/*)."""

import hmac
import os

from . import acknowledgement, congestion, detection, frames, keys, packets
from .codec import WireError
from .flows import Breach, Unheld
from .handlers import Handlers
from .recovery import Claim, Ledger, Sent

SILENT = ("Padding", "Ack", "Ack with ECN", "Repaired", "Close")  # P-22


class Adaptive(Handlers):
    """The part of a connection that begins with the handshake's end. What it needs of the rest: see Connection."""

    def init_adaptive(self, now):
        self.ledger = Ledger(self.config.seed)
        self.reporter = acknowledgement.Reporter()
        self.control = []  # frames that wait
        self.repairs = []  # epochs and frames of redundancy that wait
        self.bucket = congestion.Bucket(now, 10)
        self.probes = 0
        self.held_up = False  # by the window
        self.confirmed = False
        self.our_bound = self.said_bound = self.config.flows
        self.our_got = self.their_got_gone = self.their_consumed_gone = 0
        self.said_connection = self.config.connection_credit
        self.say_all_limits = False
        self.until_poll = 0
        self.failed_to_open = 0
        self.pace_until = None
        self.last_turn = 0
        self.path_trial = None
        self.proved_address = None
        self.packets_read = self.repaired = 0

    # Reading.

    def on_short(self, data, address, now):
        opened = self.open_short(data)
        if opened is None:
            self.failed_to_open += 1
            if self.is_reset(data):
                self.end("stateless reset")
            return
        epoch, number, payload, news = opened
        self.last_heard = now
        self.confirm_handshake()
        if address != self.address:
            self.on_other_place(address, news, len(data), now)
        elif self.path_trial:
            self.path_trial["brought"] += len(data)
        self.packets_read += 1
        self.rx.exchange.on_packet(epoch.number, now, self.probe_timeout())
        if not self.take_payload(epoch, number, payload, now):
            return
        if epoch.decoder:
            self.after_repair(epoch, epoch.decoder.arrived(number, payload), now)

    def is_reset(self, data):
        """Whether a datagram ends in the token of the peer's id that is in use (P-18). Those of ids that were retired do
        not count: late packets with these are answered so although the connection lives (RFC 9000, section 10.3.1)."""
        token = self.peer_ids.get(self.peer_number, (None, None))[1]
        return token is not None and len(data) >= 21 and hmac.compare_digest(bytes(data[-16:]), token)

    def confirm_handshake(self):  # K-19
        if not self.confirmed:
            self.confirmed = True
            self.levels["Handshake"].sends = self.levels["Handshake"].reads = None
            self.give_ids()

    def open_short(self, data):
        """The epoch, number and payload of a packet, and whether its number is the largest; None if it is dropped."""
        size = len(self.local_id)
        residue = data[0] >> 2
        epoch = next((e for e in self.rx.epochs.values() if e.number % 32 == residue), None)  # P-17
        if epoch is None or len(data) < 1 + size + 1:
            return None
        mask = bytes(5)
        if epoch.keys:
            if len(data) < 1 + size + 20:
                return None
            mask = epoch.keys.mask(bytes(data[1 + size + 4 : 1 + size + 20]))
        try:
            head = packets.parse_short(data, size, mask)
            largest = self.reporter.largest
            number = packets.complete(head["number"], head["number_bytes"], largest)
            clear = head["payload"]
            if epoch.keys:
                clear = epoch.keys.open(number, clear, keys.associated(head["dcid"]))
            plain = packets.short_header(epoch.number, head["dcid"], number, head["number_bytes"])
            payload = detection.check(epoch.profile["detection"], plain, number, clear)
        except (keys.Unauthentic, WireError):
            return None
        if self.reporter.duplicate(number) or number <= epoch.above:
            return None
        return epoch, number, payload, number > largest

    def take_payload(self, epoch, number, payload, now, recovered=False):
        """Frames of a packet; False if they ended the connection."""
        try:
            content = frames.decode(payload)
            asks = any(f["frame"] not in SILENT for f in content)
            polls = any(f["frame"] == "Poll" for f in content)
            for frame in content:
                if recovered and frame["frame"].startswith("Repair"):
                    continue  # fec.md R-1
                self.on_frame(frame, epoch, now)
                if self.state != "connected":
                    return False
        except Unheld:
            return False
        except (WireError, Breach, Claim) as breach:
            if isinstance(breach, WireError) and epoch.keys is None:  # P-20: anybody can have made it
                return False
            self.close((1 << 32) - 1, f"{breach}"[:200])
            return False
        if recovered:
            self.reporter.on_repaired(number)
        self.reporter.on_packet(number, asks, polls, now, epoch.profile, self.ledger.timing.smallest)
        return True

    def after_repair(self, epoch, recovered, now):
        for number, payload in recovered:
            if not self.reporter.duplicate(number) and not self.take_payload(epoch, number, payload, now, recovered=True):
                return

    # Timers.

    def profile(self):
        """The profile that governs what this end sends (X-29)."""
        return self.tx.current().profile

    def report_delay(self):
        return acknowledgement.longest_delay(self.profile(), self.ledger.timing.smoothed)

    def probe_timeout(self):
        if not self.adaptive:
            return 1.0
        return self.ledger.timing.timeout(self.profile()) + self.report_delay()

    def adaptive_timers(self, now):
        times = [self.reporter.due, self.tx.exchange.next_timer(), self.rx.exchange.next_timer(), self.pace_until,
                 self.ledger.next_timer(self.profile(), self.report_delay())]
        if self.idle:
            times.append(self.last_heard + max(self.idle, self.three_timeouts()))
        if self.path_trial:
            times.append(self.path_trial["next"])
        times += [e.encoder.due() for e in self.tx.epochs.values() if e.encoder]
        return times

    def on_adaptive_timer(self, now):
        if self.idle and now >= self.last_heard + max(self.idle, self.three_timeouts()):  # P-61
            self.end("nothing heard")
            return
        pto = self.probe_timeout()
        self.tx.exchange.on_timer(now, pto)
        self.rx.exchange.on_timer(now, pto)
        for epoch in self.tx.epochs.values():
            if epoch.encoder and epoch.encoder.due() is not None and epoch.encoder.due() <= now:
                self.repairs += [(epoch.number, frame) for frame in epoch.encoder.close()]
        self.on_trial_timer(now)
        for packet in self.ledger.find_lost(now, self.profile()):
            self.on_lost_packet(packet, now)
        due = self.ledger.next_timer(self.profile(), self.report_delay())
        if due is not None and due <= now:
            self.ledger.timeouts += 1
            self.probes = 2 if self.ledger.timeouts < 3 else 1  # timing.md R-11
            self.prepare_probe()

    def prepare_probe(self):
        """Orders the oldest data in flight once more (finding.md R-6)."""
        again = self.profile()["retransmission"] != "none"
        for packet in list(self.ledger.packets.values())[: 2 if self.ledger.timeouts < 3 else 0]:
            for kind, value in packet.items:
                if kind == "data" and again and value[0] in self.flows:
                    self.flows[value[0]].send.repeat(value[1], value[2])
        self.control.append({"frame": "Ping"})

    # What becomes of packets.

    def on_acked_packet(self, packet, now):
        for kind, value in packet.items:
            if kind == "data" and value[0] in self.flows:
                self.flows[value[0]].send.acknowledged(value[1], value[2])
            elif kind == "report":
                self.reporter.confirmed(value)
            elif kind == "frame" and value["frame"].startswith("ResetFlow") and value["flow"] in self.flows:
                self.flows[value["flow"]].send.reset_acked = True
        if packet.asks:
            self.congestion.on_acked(packet, self.held_up, now, self.ledger.timing.smoothed)

    def on_lost_packet(self, packet, now):
        self.congestion.on_lost(packet, self.ledger.next, now)
        self.again(packet)

    def again(self, packet):
        """What is said again of a packet that is lost."""
        for kind, value in packet.items:
            if kind == "data" and value[0] in self.flows:
                self.lost_data(packet.number, *value)
            elif kind == "exchange":
                (self.tx if value == 0 else self.rx).exchange.repeat()
            elif kind == "limits":
                self.say_all_limits = True
            elif kind == "frame" and self.still_true(value):
                self.control.append(value)

    def still_true(self, frame):
        name = frame["frame"]
        if name in ("Ping", "Poll", "PathResponse", "PathChallenge"):
            return False
        if name.startswith("ResetFlow"):
            flow = self.flows.get(frame["flow"])
            return flow is not None and flow.send.reset == frame
        return True

    def lost_data(self, number, flow_id, begin, end):
        half, name = self.flows[flow_id].send, self.profile()["retransmission"]
        if half.reset:
            return
        if name == "none":  # retransmission.md R-4
            for a, b in half.give_up(begin, end):
                self.control.append({"frame": "Skip", "flow": flow_id, "start": a, "length": b - a})
        elif name == "go-back-n":
            if number > half.returned:
                half.repeat(begin, half.sent)
                half.returned = self.ledger.next - 1
            else:
                half.repeat(begin, end)
        else:
            half.repeat(begin, end)

    # Building.

    def room(self, epoch):
        head = 1 + len(self.remote_id) + 4
        return self.max_size - head - (keys.TAG if epoch.keys else 0) - detection.TRAILERS[epoch.profile["detection"]][0]

    def allowance(self):
        """What the connection's credit leaves for new data (flow.md R-33); None: no limit."""
        if not self.credit_counts or self.peer_connection_limit is None or self.profile()["flow"] == "none":
            return None
        sent = self.our_got + sum(f.send.got for f in self.flows.values())
        return max(0, self.peer_connection_limit - sent)

    def may_send(self, now):
        """Whether window and pace let a packet leave."""
        self.pace_until = None
        if self.probes:
            return True
        if self.path_trial and self.path_trial["sent"] + self.max_size > 3 * self.path_trial["brought"]:  # M-3
            return False
        if self.congestion_limits() and self.ledger.in_flight + self.max_size > self.congestion.window:
            self.held_up = True
            return False
        if self.profile()["rate"] == "pacing-bucket":
            wait = self.bucket.wait(self.congestion.rate(self.ledger.timing.smoothed), now)
            if wait > 0.0005:
                self.pace_until = now + wait
                return False
        return True

    def congestion_limits(self):
        return self.profile()["congestion"] != "none"

    def build_packets(self, now):
        self.collect_control()
        for _ in range(256):
            datagram = self.build_packet(now)
            if datagram is None:
                return
            self.outbox.append((datagram, self.address))

    def build_packet(self, now):
        may = self.may_send(now)
        if self.repairs and may:
            number, repair = self.repairs.pop(0)
            if number in self.tx.epochs:
                return self.seal(self.tx.epochs[number], [repair], now)
        epoch, content, items = self.tx.current(), [], []
        due = self.reporter.due is not None and self.reporter.due <= now
        urgent = [f for f in self.control if f["frame"].startswith("Path")]
        if not may and not due and not urgent:
            return None
        room = self.room(epoch)
        if self.reporter.unreported or due:
            content = self.reporter.report(now)
            items = [("report", self.reporter.largest)]
        room -= sum(len(frames.encode(f)) for f in content)
        room = self.add_control(content, items, room, urgent if not may else None)
        if may:
            epoch, room = self.add_data(epoch, content, items, room)
        if not content:
            self.probes = 0
            return None
        asks = any(f["frame"] not in SILENT for f in content)
        if asks and self.polls(epoch, now) and room > 2:
            content.append({"frame": "Poll"})
        if asks and self.probes:
            self.probes -= 1
        return self.seal(epoch, content, now, items)

    def add_control(self, content, items, room, only):
        waiting, self.control = self.control, []
        for frame in waiting:
            size = len(frames.encode(frame))
            if size > room or only is not None and frame not in only:
                self.control.append(frame)
                continue
            room -= size
            content.append(frame)
            if frame["frame"] in ("Request-PF", "ACK-PF"):
                items.append(("exchange", frame["direction"]))
            elif frame["frame"] in ("Credit", "ConnectionCredit", "FlowLimit"):
                items.append(("limits", None))
            elif not frame["frame"].endswith("-PF"):
                items.append(("frame", frame))
        return room

    def add_data(self, epoch, content, items, room):
        """Puts data of flows of one group into a packet; the epoch that the packet has by then."""
        order = list(self.flows.values())
        if not order:
            return epoch, room
        self.last_turn = (self.last_turn + 1) % len(order)
        chosen = None
        for flow in order[self.last_turn :] + order[: self.last_turn]:
            own = self.tx.current(flow.send.group)
            if not flow.send.waits() or own is None or chosen not in (None, flow.send.group):
                continue
            if own.encoder:  # fec.md R-8
                room = min(room, self.room(own) - 64 - sum(len(frames.encode(f)) for f in content))
            while room > 32:
                frame = flow.send.next_frame(room, self.allowance())
                if frame is None:
                    break
                chosen, epoch = flow.send.group, own
                begin, end = frames.span(frame)
                if frame["BEGIN"] and frame["END"] and not frame["FIN"] and not own.profile.counts_positions():  # P-30
                    frame["offset"] = None
                room -= len(frames.encode(frame))
                content.append(frame)
                items.append(("data", (flow.id, begin, end)))
        return epoch, room

    def polls(self, epoch, now):
        """Whether a packet asks for a status (acknowledgement.md R-11)."""
        if epoch.profile["acknowledgement"] != "poll-status":
            return False
        self.until_poll += 1
        every = epoch.profile.get("acknowledgement", "every", 32)
        more = any(f.send.waits() and (f.send.lost.runs or f.send.limit is None or f.send.sent < f.send.limit)
                   for f in self.flows.values()) or self.control
        full = self.congestion_limits() and self.ledger.in_flight + 2 * self.max_size > self.congestion.window
        if self.until_poll >= every or not more or full or self.probes:
            self.until_poll = 0
            return True
        return False

    def seal(self, epoch, content, now, items=()):
        """A datagram of these frames under an epoch, and its entry in the ledger."""
        number = self.ledger.number()
        least = 2 if epoch.keys is None and epoch.profile["detection"] == "none" else 1  # P-5
        known = self.ledger.largest if least == 1 else None
        count = packets.number_bytes(number, known, least)
        head = packets.short_header(epoch.number, self.remote_id, number, count)
        payload = b"".join(map(frames.encode, content))
        if epoch.keys:  # P-6: room for the sample
            payload += bytes(max(0, 4 - count - len(payload)))
        if epoch.encoder and any(kind == "data" for kind, _ in items):
            self.repairs += [(epoch.number, f) for f in epoch.encoder.source(number, payload, now)]
        clear = payload + detection.trailer(epoch.profile["detection"], head, number, payload)
        datagram = keys.seal_short(epoch.keys, head, len(self.remote_id), number, clear)
        asks = any(f["frame"] not in SILENT for f in content)
        self.ledger.on_sent(Sent(number, now, len(datagram), asks, list(items)))
        self.bucket.take(len(datagram) if asks else 0)
        if self.path_trial:
            self.path_trial["sent"] += len(datagram)
        return datagram

    def send_raw(self, payload, now):
        """Sends a payload as it is, for tests of what a peer does with it."""
        epoch = self.tx.current()
        number = self.ledger.number()
        least = max(1, 4 - len(payload))  # So many bytes of the number need no padding (P-6).
        count = packets.number_bytes(number, self.ledger.largest, least)
        head = packets.short_header(epoch.number, self.remote_id, number, count)
        self.ledger.on_sent(Sent(number, now, len(payload) + 40, True, []))
        self.outbox.append((keys.seal_short(epoch.keys, head, len(self.remote_id), number, payload), self.address))
        return number

    def close_blocks(self, epoch):
        """The last repairs of an epoch, in packets of its own, before another is used (fec.md R-4, R-8)."""
        if epoch.encoder:
            waiting = [frame for number, frame in self.repairs if number == epoch.number] + epoch.encoder.close()
            self.repairs = [pair for pair in self.repairs if pair[0] != epoch.number]
            for frame in waiting:
                self.outbox.append((self.seal(epoch, [frame], self.now), self.address))

    def on_profile(self, profile):
        """Another profile of group 0 governs what this end sends."""
        self.congestion = congestion.start(profile, self.congestion)

    def give_ids(self):
        """Gives the peer an id beyond that in use (M-8)."""
        room = self.peer_hello.get(18, 0) if self.local_id else 0  # P-37
        while len(self.issued) < 1 + min(room, 1) and self.state == "connected":
            made, token = self.make_id(self.address) if self.make_id else (os.urandom(len(self.local_id)), None)
            frame = {"frame": "NewId", "number": self.next_id, "retire_below": 0, "id": made}
            if token:
                frame |= {"frame": "NewId with a reset token", "token": token}
            self.issued[self.next_id] = made
            self.next_id += 1
            self.control.append(frame)
