"""The establishment of a connection (functions/establishment.md, keys.md), for both ends."""

from . import hello, keys, packets
from .codec import WireError
from .ranges import Ranges
from .tls import Alert

FIRST_WAIT, LONGEST_WAIT = 0.999, 2.0
BYTES = {"Initial": 16384, "Handshake": 32768}


class Level:
    def __init__(self):
        self.sends = self.reads = None  # keys
        self.next = 0
        self.seen = Ranges()
        self.owes = False  # an acknowledgement
        self.asks = False  # a ping
        self.out, self.pending, self.acked = b"", Ranges(), Ranges()
        self.sent = {}  # number -> run of bytes, instant
        self.pieces, self.taken = {}, 0

    def queue(self, data):
        self.pending.add(len(self.out), len(self.out) + len(data))
        self.out += data

    def unacked(self):
        return self.acked.missing(0, len(self.out))

    def take(self, offset, data, most):
        """The bytes that follow on those taken so far."""
        if offset + len(data) > self.taken + most or len(self.pieces) > 32:
            return b""
        if len(data) > len(self.pieces.get(offset, b"")):
            self.pieces[offset] = data
        out = b""
        for at in sorted(self.pieces):
            if at <= self.taken + len(out):
                piece = self.pieces.pop(at)
                out += piece[self.taken + len(out) - at :]
        self.taken += len(out)
        return out


class Establishment:
    """The part of a connection that ends with the handshake. What it needs of the rest: `config`, `now`,
    `local_id`, `remote_id`, `handshake` (TLS), `close_with`, `begin_adaptive`, `confirm`."""

    def init_establishment(self, now, first_dcid):
        self.levels = {"Initial": Level(), "Handshake": Level()}
        self.first_dcid, self.token, self.retry_scid = first_dcid, b"", None
        self.peer_scid = None
        self.set_initial_keys(first_dcid)
        self.tries, self.retry_at = 0, None
        self.began, self.heard_real, self.heard = now, False, False
        self.received_bytes = self.sent_bytes = 0
        self.proved = self.is_client
        self.size = 1200
        self.trip = None
        self.hint = None
        self.alert = None
        self.last_packets = []

    def set_initial_keys(self, cid):
        client, server = keys.initial(cid)
        level = self.levels["Initial"]
        level.sends, level.reads = (client, server) if self.is_client else (server, client)

    def on_keys(self, level, sends, suite, secret):
        made = keys.handshake(suite, secret)
        if sends:
            self.levels[level].sends = made
        else:
            self.levels[level].reads = made

    # Receiving.

    def on_long(self, data, packet, now):
        if packet["packet"] == "Retry":
            self.on_retry(data, packet)
        elif packet["packet"] == "version refusal":
            if not self.heard and packets.VERSION not in packet["versions"]:
                self.hint = self.hint or "the server speaks no common version"  # P-10, R-6
        elif packet["packet"] in self.levels:
            self.on_level(data, packet, now)

    def on_retry(self, data, packet):  # P-9, K-21
        if not self.is_client or self.heard or self.retry_scid is not None:
            return
        if packet["integrity"] != keys.retry_integrity(self.first_dcid, bytes(data[:-16])):
            return
        self.retry_scid, self.token = packet["scid"], packet["token"]
        self.remote_id = packet["scid"]
        self.set_initial_keys(packet["scid"])
        self.repeat_all()

    def on_level(self, data, packet, now):
        name = packet["packet"]
        level = self.levels[name]
        if level.reads is None:
            return
        try:
            number, clear = keys.open_long(level.reads, data, packet)
            if number in level.seen:
                return
            content = packets.parse_body(clear)
        except (keys.Unauthentic, WireError):
            return
        level.seen.add(number, number + 1)
        self.heard, self.last_heard = True, now
        if self.peer_scid is None:
            self.peer_scid = packet["scid"]
            self.remote_id = packet["scid"]  # P-3
        if name == "Handshake" and not self.is_client:
            self.levels["Initial"].reads = self.levels["Initial"].sends = None  # K-20
            self.proved = self.heard_real = True
        self.heard_real |= self.is_client
        for header in content["headers"]:
            self.on_header(name, level, header, now)
            if self.state not in ("handshake", "connected"):
                return

    def on_header(self, name, level, header, now):
        kind = header["header"]
        if kind == "handshake bytes":
            level.owes = True
            fresh = level.take(header["offset"], header["bytes"], BYTES[name])
            if fresh:
                self.feed_tls(fresh)
        elif kind == "ping":
            level.owes = True
        elif kind == "acknowledgement":
            for number in [n for n in level.sent if any(a <= n <= b for a, b in header["ranges"])]:
                begin, end, when = level.sent.pop(number)
                level.acked.add(begin, end)
                level.pending.remove(begin, end)
                if number == header["ranges"][0][1]:
                    self.trip = now - when
        elif kind == "close":
            if name == "Initial":
                self.hint = self.hint or f"closed with {header['code']}: {header['reason']} (not authenticated)"
            else:
                self.peer_closed(header["code"], header["reason"])

    def feed_tls(self, data):
        try:
            for name, out in self.handshake.feed(data).items():
                self.levels[name].queue(out)
            if self.peer_hello is None:
                self.read_hello()
            if self.handshake.exported and self.peer_hello and not self.adaptive:
                self.begin_adaptive(self.handshake.exported)
            if self.handshake.done:
                self.levels["Initial"].sends = self.levels["Initial"].reads = None  # K-20
                if not self.is_client:
                    self.levels["Handshake"].sends = self.levels["Handshake"].reads = None
                    self.confirm()
        except Alert as alert:
            self.alert = alert.number
            self.close_establishment(0x100 + alert.number, str(alert))  # K-12

    def read_hello(self):
        content = self.handshake.peer_hello()
        if content is None:
            return
        try:
            said = hello.decode(content, "server" if self.is_client else "client")
        except WireError as error:
            self.close_establishment(1, f"Hello: {error}")  # P-59
            return
        wrong = said[2] != self.peer_scid
        if self.is_client:
            wrong |= said[3] != self.first_dcid or said.get(4) != self.retry_scid
        if wrong:
            self.close_establishment(1, "Hello: another connection id than was seen")
            return
        self.peer_hello = said
        self.on_peer_hello(said)

    # Sending.

    def repeat_all(self):
        for level in self.levels.values():
            for begin, end in level.unacked():
                level.pending.add(begin, end)
        if self.is_client and not any(level.pending.runs for level in self.levels.values()):
            name = "Handshake" if self.levels["Handshake"].sends else "Initial"
            self.levels[name].asks = True

    def establishment_datagrams(self, now):
        """Datagrams of establishment packets that are due."""
        out = []
        while True:
            allowed = self.size if self.proved else min(self.size, 3 * self.received_bytes - self.sent_bytes)
            datagram, has_initial, self.last_packets = b"", False, []
            for name, level in self.levels.items():
                packet = self.next_packet(name, level, allowed - len(datagram), now)
                datagram += packet
                has_initial |= bool(packet) and name == "Initial"
            if not datagram:
                return out
            if has_initial and self.is_client and len(datagram) < self.size:
                datagram = self.padded(self.size - len(datagram))
            self.sent_bytes += len(datagram)
            out.append(datagram)

    def next_packet(self, name, level, room, now, padding=0):
        if level.sends is None or not (level.pending.runs or level.owes or level.asks):
            return b""
        head_size = 7 + len(self.remote_id) + len(self.local_id) + 6 + (len(self.token) + 2) * (name == "Initial")
        room -= head_size + 17
        headers, run = [], None
        if level.seen.runs:
            runs = [[a, b - 1] for a, b in level.seen.runs[-16:]][::-1]
            headers.append({"header": "acknowledgement", "delay": 0, "ranges": runs})
            room -= 12 + 4 * len(runs)
        if level.asks:
            headers.append({"header": "ping"})
            room -= 4
        if level.pending.runs and room > 32:
            begin, end = level.pending.runs[0]
            end = min(end, begin + room - 12)
            run = (begin, end, now)
            headers.append({"header": "handshake bytes", "offset": begin, "bytes": level.out[begin:end]})
            level.pending.remove(begin, end)
        if room < 0 or not headers or not (run or level.asks or level.owes):
            return b""
        level.owes = level.asks = False
        number, level.next = level.next, level.next + 1
        if run:
            level.sent[number] = run
        return self.seal_level(name, level, number, headers, padding)

    def seal_level(self, name, level, number, headers, padding=0):
        content = packets.body(headers, padding)
        head = packets.long_header(name, self.remote_id, self.local_id, self.token, number, len(content) + keys.TAG)
        self.last_packets = [p for p in self.last_packets if p[0] != name] + [(name, number, headers)]
        return keys.seal_long(level.sends, head, content)

    def padded(self, missing):
        """The datagram just made once more, its Initial packet filled up; the numbers have not been on the wire."""
        out = b""
        parts = {name: (number, headers) for name, number, headers in self.last_packets}
        for name, level in self.levels.items():
            if name in parts and level.sends is not None and parts[name][0] == level.next - 1:
                number, headers = parts[name]
                out += self.seal_level(name, level, number, headers, missing if name == "Initial" else 0)
        return out

    def arm_establishment(self, now):
        """Sets the timer of a flight (R-2)."""
        first = FIRST_WAIT if self.trip is None else max(3 * self.trip, 0.030)
        wait = min(first * 2**self.tries, max(LONGEST_WAIT, 1.5 * (self.trip or 0)), self.config.patience)
        self.retry_at = now + wait

    def on_establishment_timer(self, now):
        if now - self.began > self.config.patience * (6 if self.heard_real else 3 if self.heard else 1):
            self.end(self.hint or "no answer")
            return
        if self.retry_at is not None and now >= self.retry_at:
            self.tries += 1
            if self.is_client:
                self.size = 1200 if self.tries < 2 else 548 if self.tries < 4 else 268
            self.repeat_all()
            self.arm_establishment(now)

    def close_establishment(self, code, reason):
        """Ends the handshake with a close in the highest level that has keys (P-13, P-59)."""
        out = b""
        for name in ("Handshake", "Initial"):
            level = self.levels[name]
            if level.sends is None:
                continue
            number, level.next = level.next, level.next + 1
            headers = [{"header": "close", "code": code, "reason": reason.encode()[:255].decode(errors="ignore")}]
            self.last_packets = []
            packet = self.seal_level(name, level, number, headers)
            if name == "Initial" and self.is_client:
                packet = self.seal_level(name, level, number, headers, max(0, self.size - len(packet) - len(out)))
            out = packet + out
        self.closing_with(out, code, reason)
