"""Sockets and time: connections of one UDP port, as client or server."""

import hashlib
import hmac
import os
import selectors
import socket
import time

from . import keys, packets
from .connection import Connection

ID = 8
#: Ports of services that answer whoever a datagram seems to come from (migration.md M-15).
REFLECTORS = {0, 7, 13, 17, 19, 37, 53, 69, 111, 123, 137, 161, 389, 427, 500, 520, 1900, 3702, 5353, 5355, 5683, 11211}


def bind(host="127.0.0.1", port=0):
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.setblocking(False)
    sock.bind((host, port))
    return sock


class Endpoint:
    """One UDP socket and its connections. A server has `config`; with `retry` it proves addresses first."""

    def __init__(self, config=None, host="127.0.0.1", port=0, retry=False):
        self.config, self.retry = config, retry
        self.sock = bind(host, port)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.sock, selectors.EVENT_READ)
        self.connections, self.by_id, self.accepted = [], {}, []
        self.key = os.urandom(32)
        self.resets = 0

    @property
    def port(self):
        return self.sock.getsockname()[1]

    def connect(self, address, config):
        connection = Connection(True, config, time.monotonic(), address)
        self.connections.append(connection)
        return connection

    def rebind(self):
        """Gives the socket another port, as a network address translator or another network would."""
        self.selector.unregister(self.sock)
        host = self.sock.getsockname()[0]
        self.sock.close()
        self.sock = bind(host)
        self.selector.register(self.sock, selectors.EVENT_READ)

    def close(self):
        self.selector.close()
        self.sock.close()

    # Ids and tokens of a server.

    def make_id(self, address):
        """An id for an address, and its reset token (P-53)."""
        drawn = os.urandom(ID - 4)
        total = self._sum(drawn, address)
        return drawn + total[:4], total[4:20]

    def _sum(self, drawn, address):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        message = socket.inet_pton(family, address[0]) + address[1].to_bytes(2, "big") + drawn
        return hmac.new(self.key, message, hashlib.sha256).digest()

    def token(self, address, dcid):
        """A token of a Retry: the address in a sum, and the dcid of the client's first packet."""
        stamp = int(time.monotonic()).to_bytes(8, "big") + dcid
        message = stamp + repr(address[:2]).encode()
        return hmac.new(self.key, message, hashlib.sha256).digest()[:16] + stamp

    def original_of(self, token, address):
        """The dcid that a token was made for, or None."""
        stamp = token[16:]
        expected = hmac.new(self.key, stamp + repr(address[:2]).encode(), hashlib.sha256).digest()[:16]
        fresh = time.monotonic() - int.from_bytes(stamp[:8], "big") < 30
        return stamp[8:] if fresh and hmac.compare_digest(expected, token[:16]) else None

    # Datagrams.

    def on_datagram(self, data, address, now):
        if not data:
            return
        try:
            if data[0] & 0x80:
                packet = packets.parse_long(data)
                dcid = packet["dcid"]
            else:
                packet, dcid = None, bytes(data[1 : 1 + ID])
        except packets.WireError:
            return
        connection = self.find(dcid) if packet else self.find_short(data, address)
        if connection is not None:
            connection.receive(data, address, now)
        elif packet is None and self.reset(data, address):
            return
        elif self.config is not None and address[1] not in REFLECTORS:
            if packet is None:
                self.stateless_reset(data, dcid, address)
            elif packet["packet"] == "another version" and len(data) >= 268:  # P-10
                refusal = packets.version_refusal(packet["scid"], dcid, [packets.VERSION])
                self.sock.sendto(refusal, address)
            elif packet["packet"] == "Initial" and len(data) >= 268:  # establishment.md R-8
                self.accept(data, packet, address, now)

    def find(self, dcid):
        for connection in self.connections:
            if dcid in connection.issued.values() or not connection.is_client and dcid == connection.first_id:
                return connection
        return None

    def find_short(self, data, address):
        for connection in self.connections:
            size = len(connection.local_id)
            if bytes(data[1 : 1 + size]) in connection.issued.values() if size else address == connection.address:
                return connection
        return None

    def reset(self, data, address):
        """Whether a datagram is a stateless reset of a connection's peer, which ends it (P-18)."""
        for connection in self.connections:
            if address == connection.address and connection.is_reset(data):
                connection.end("stateless reset")
                return True
        return False

    def stateless_reset(self, data, dcid, address):  # P-18, P-53, P-54
        total = self._sum(dcid[:-4], address)
        if len(data) < 22 or dcid[-4:] != total[:4] or self.resets >= 1000:
            return
        self.resets += 1
        drawn = os.urandom(min(len(data) - 1, 40) - 16)
        self.sock.sendto(bytes([drawn[0] & 0x7F]) + drawn[1:] + total[4:20], address)

    def accept(self, data, packet, address, now):
        dcid, token = packet["dcid"], packet["token"]
        original, after_retry = dcid, None
        if token:
            original = self.original_of(token, address)
            if original is None:
                return
            after_retry = dcid
        elif len(dcid) < 8:  # K-14
            return
        elif self.retry:
            head = packets.retry(packet["scid"], self.make_id(address)[0], self.token(address, dcid))
            self.sock.sendto(head + keys.retry_integrity(dcid, head), address)
            return
        local, reset_token = self.make_id(address)
        connection = Connection(False, self.config, now, address, dcid, local, after_retry)
        connection.remote_id = packet["scid"]
        connection.prepare_server(original, self.make_id, reset_token)
        connection.receive(data, address, now)
        if connection.heard:  # Only what authenticates begins a connection.
            self.connections.append(connection)
            self.accepted.append(connection)

    def step(self, longest):
        """Sends what is due, waits for at most `longest` seconds, takes in what comes, runs timers."""
        now = time.monotonic()
        self.send_all(now)
        due = min([c.next_timer(now) for c in self.connections], default=now + longest)
        for key, _ in self.selector.select(max(0, min(due - now, longest))):
            if key.fileobj is self.sock:
                self.receive_all()
            else:
                key.data()
        now = time.monotonic()
        for connection in list(self.connections):
            if connection.next_timer(now) <= now:
                connection.on_timer(now)
            if connection.state == "closed":
                self.send_all(now)
                self.connections.remove(connection)
        self.send_all(now)

    def receive_all(self):
        for _ in range(256):
            try:
                data, address = self.sock.recvfrom(65535)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # ICMP says that nobody is there: a hint (timing.md R-15)
                continue
            self.on_datagram(data, address[:2], time.monotonic())  # Of IPv6 no flow label, no zone.

    def send_all(self, now):
        for connection in self.connections:
            for datagram, address in connection.datagrams(now):
                try:
                    self.sock.sendto(datagram, address)
                except OSError:
                    continue

    def run(self, until, timeout):
        """Steps until `until()` is true; False if `timeout` seconds are over before."""
        end = time.monotonic() + timeout
        while not until():
            if time.monotonic() > end:
                return False
            self.step(min(0.05, end - time.monotonic() + 0.001))
        return True
