"""A connection, without sockets: datagrams go in and out, and time is told in seconds."""

import os
from dataclasses import dataclass, field

from . import congestion, hello, packets
from .adaptive import Adaptive
from .establish import Establishment
from .exchange import RECEIVER, SENDER, Exchange
from .fec import Decoder, Encoder
from .flows import Breach, ReceiveHalf, SendHalf
from .keys import Ratchet
from .profile import BY_NUMBER, OURS, Profile, Refused, standard
from .ranges import Ranges
from .tls import Handshake

TRANSPORT = (1 << 32) - 1  # the code of a Close by the transport (P-59)


@dataclass
class Config:
    """What an end is told. Times are in seconds; `consents` are mechanisms that a peer may ask for, as (function, name)."""

    service: str | None = None
    identity: tuple | None = None
    pin: str | None = None
    server_name: str | None = None
    want_client: bool = False
    patience: float = 10.0
    idle: float = 30.0
    flows: int = 64
    credit: int = 1 << 20
    connection_credit: int | None = 4 << 20  # None: the credit of the connection does not count (P-57)
    ids: int = 2
    id_length: int = 8
    consents: set = field(default_factory=set)
    outgoing: list = field(default_factory=standard)
    incoming: list = field(default_factory=standard)
    mechanisms: list | None = None
    alpn: str = "uts/1"
    lenient: bool = False  # passes over frames of flows that this end has not opened, when a test named them
    tamper: object = None  # changes the Hello before it is sent: for tests of what a peer does then
    seed: int | None = None


@dataclass
class Epoch:
    number: int
    group: int
    profile: Profile
    keys: object
    above: int = -1  # the largest number received when it was opened
    encoder: object = None
    decoder: object = None


class Direction:
    """The owner of an Exchange: what an end does as epochs come and go."""

    def __init__(self, connection, role, label, choices):
        self.connection, self.role = connection, role
        self.ratchet = Ratchet(connection.handshake.exported, label)
        self.epochs = {}
        self.exchange = Exchange(role, self, choices)
        self.add(0, 0, choices)
        self.news = []  # outcomes of this end's own requests

    def add(self, number, group, choices):
        profile = Profile(choices, asked=True)
        epoch = Epoch(number, group, profile, self.ratchet.keys(number, profile["protection"]))
        if profile["fec"] != "none":
            epoch.encoder = Encoder(profile) if self.role == SENDER else None
            epoch.decoder = Decoder(profile) if self.role == RECEIVER else None
        if self.role == RECEIVER:
            epoch.above = self.connection.reporter.largest
        self.epochs[number] = epoch

    def judge(self, group, choices):
        profile = Profile(choices)
        sides = ("sender", "both") if self.role == SENDER else ("receiver", "both")
        for value in choices:
            mechanism = BY_NUMBER[value["function"], value["mechanism"]]
            name = (mechanism.function_name, mechanism.name)
            if mechanism.consent in sides and name not in self.connection.config.consents:  # selection.md S-37
                raise Refused(mechanism.function, 4 if name == ("protection", "none") else 5)
            if self.role == SENDER and name not in self.connection.config.consents:
                for param, given in zip(mechanism.params, value["parameters"]):  # S-38
                    bold = param.get("bold")
                    if bold == "above" and given > param["default"] or bold == "below" and given < param["default"]:
                        raise Refused(mechanism.function, 5)
        if group and 0 in self.exchange.in_use:
            own = self.epochs[self.exchange.in_use[0]].profile
            if (own["protection"] == "none") != (profile["protection"] == "none"):
                raise Refused(12, 3)

    def opened(self, number, group, choices):
        self.add(number, group, choices)
        if Profile(choices, asked=True)["flow"] == "credit":  # flow.md R-7
            self.connection.say_all_limits = True

    def closed(self, number):
        self.epochs.pop(number, None)
        if self.epochs:
            self.ratchet.forget_below(min(self.epochs))

    def used(self, number, group, choices):
        old = [e for e in self.epochs.values() if e.group == group]
        for epoch in old:
            self.connection.close_blocks(epoch)
        self.add(number, group, choices)
        for epoch in old:
            del self.epochs[epoch.number]
        self.ratchet.forget_below(min(self.epochs))
        if group == 0:
            self.connection.on_profile(self.epochs[number].profile)

    def told(self, what, number, detail):
        self.news.append((what, number, detail))

    def current(self, group=0):
        """The epoch in use for a group at its sender, or None."""
        number = self.exchange.in_use.get(group)
        return None if number is None else self.epochs[number]


class Flow:
    def __init__(self, number, send, recv, ours):
        self.id, self.send, self.recv, self.ours = number, send, recv, ours
        self.events = []

    def read(self):
        """What has arrived since the last time: tuples of kind and content."""
        out, self.events = self.events, []
        return out


class Connection(Establishment, Adaptive):
    """One end of a connection. `state` is handshake, connected, closing, draining or closed."""

    def __init__(self, is_client, config, now, address=None, first_dcid=None, local_id=None, retry_scid=None):
        self.is_client, self.config, self.now = is_client, config, now
        self.state, self.reason, self.code = "handshake", None, None
        self.address = address
        self.local_id = local_id or os.urandom(config.id_length)
        self.remote_id = first_dcid or os.urandom(8)  # K-14
        self.first_id = self.remote_id
        self.peer_hello, self.adaptive = None, False
        self.outbox, self.flows, self.gone = [], {}, [Ranges(), Ranges()]
        self.new_flows, self.next_index = [], 0
        self.kept, self.early = [], []
        self.last_heard = now
        self.end_at = None
        self.closings = 0
        self.close_datagram = b""
        self.issued, self.next_id, self.peer_ids = {0: self.local_id}, 1, {}
        self.peer_number, self.retired = 0, set()
        self.first_token = None
        self.make_id = None  # of a server: makes an id and its token for an address (P-53)
        self.init_adaptive(now)
        self.init_establishment(now, self.remote_id)
        if not is_client and retry_scid is not None:
            self.retry_scid, self.proved, self.heard_real = retry_scid, True, True
        self.handshake = Handshake(is_client, None, config.identity, config.pin, config.server_name, self.on_keys,
                                   config.want_client, config.alpn)
        self.original = first_dcid
        if is_client:
            self.handshake.set_hello(self.our_hello())
            self.feed_tls(b"")
            self.arm_establishment(now)

    def our_hello(self, original=None):
        config = self.config
        mechanisms = config.mechanisms or [[m.function, m.number] for m in OURS]
        said = {1: [packets.VERSION], 2: self.local_id, 5: mechanisms, 6: config.flows, 7: config.credit,
                8: int(config.idle * 1000), 9: 1452, 10: 25, 11: 1 << 20, 17: None, 18: config.ids}
        if config.connection_credit is not None:
            said[20] = config.connection_credit
        if config.service is not None:
            said[16] = config.service
        if self.is_client:
            said[13], said[14] = config.outgoing, config.incoming
        else:
            said[3] = original
            if self.retry_scid is not None:
                said[4] = self.retry_scid
            if self.make_id and self.first_token:
                said[12] = self.first_token
        if config.tamper:
            said = config.tamper(said)
        if said is None:
            return None
        return said if isinstance(said, bytes) else hello.encode(said)

    def prepare_server(self, original, make_id=None, token=None):
        """Completes a server's end: `original` is the dcid of the client's first packet."""
        self.make_id, self.first_token = make_id, token
        self.handshake.set_hello(self.our_hello(original))

    def on_peer_hello(self, said):
        """Takes the peer's Hello; the first profile is the client's proposal (P-52)."""
        client = said if not self.is_client else None
        out = self.config.outgoing if self.is_client else client[14]
        into = self.config.incoming if self.is_client else client[13]
        try:
            self.first_profiles = (Profile(out), Profile(into))
        except Refused as refused:
            self.close_establishment(1, f"first profile: {refused}")
            return
        self.choices = (out, into)
        timeouts = [t for t in (said[8], int(self.config.idle * 1000)) if t]
        self.idle = min(timeouts) / 1000 if timeouts else None  # P-61
        self.peer_bound = said[6]
        self.peer_ids[0] = (self.remote_id, said.get(12))

    def begin_adaptive(self, exported):
        labels = ("uts c2s", "uts s2c") if self.is_client else ("uts s2c", "uts c2s")
        self.adaptive = True
        self.tx = Direction(self, SENDER, labels[0], self.choices[0])
        self.rx = Direction(self, RECEIVER, labels[1], self.choices[1])
        self.congestion = congestion.start(self.first_profiles[0])
        self.credit_counts = 20 in self.peer_hello and self.config.connection_credit is not None
        self.peer_connection_limit = self.peer_hello.get(20)
        self.connection_limit = self.config.connection_credit
        if self.is_client:
            self.connected(self.now)

    def confirm(self):
        """The client's Finished was right (K-18)."""
        if self.state == "handshake":
            self.connected(self.now)
            self.control.append({"frame": "Ping"})

    def connected(self, now):
        self.state = "connected"
        self.confirmed = not self.is_client
        self.max_size = self.size
        if self.confirmed:
            self.give_ids()
        for data in self.early:
            self.on_short(data, self.address, now)
        self.early = []

    # Datagrams.

    def receive(self, data, address, now):
        """Takes in a datagram that was found to be this connection's."""
        self.now = now
        if self.state in ("draining", "closed"):
            return
        if self.state == "closing":  # P-60
            if self.closings < 8:
                self.closings += 1
                self.outbox.append((self.close_datagram, self.address))
            return
        if self.state == "handshake":
            self.received_bytes += len(data)
        if not self.proved:
            self.size = min(self.size, max(len(data), 268))
        at = 0
        while at < len(data) and data[at] & 0x80:
            try:
                packet = packets.parse_long(data, at)
            except packets.WireError:
                return
            if packet["packet"] != "another version":
                self.on_long(data, packet, now)
            at = packet["end"]
        if at < len(data):
            if not self.adaptive or self.state == "handshake":
                if sum(map(len, self.early)) < 16384:
                    self.early.append(data[at:])
            else:
                self.on_short(data[at:], address, now)

    def datagrams(self, now):
        """Datagrams that are to leave now, each with where to."""
        self.now = now
        if self.state in ("handshake", "connected"):
            if self.state == "handshake" or not self.confirmed or self.levels["Handshake"].sends:
                for datagram in self.establishment_datagrams(now):
                    self.outbox.append((datagram, self.address))
                if self.retry_at is None:
                    self.arm_establishment(now)
            if self.state == "connected":
                self.build_packets(now)
        out, self.outbox = self.outbox, []
        return out

    def next_timer(self, now):
        times = []
        if self.state == "handshake" or self.state == "connected" and not self.confirmed:
            times.append(self.retry_at)
        if self.state == "connected":
            times += self.adaptive_timers(now)
        times.append(self.end_at)
        return min((t for t in times if t is not None), default=now + 1)

    def on_timer(self, now):
        self.now = now
        if self.end_at is not None and now >= self.end_at:
            self.state = "closed"
        elif self.state == "handshake" or self.state == "connected" and not self.confirmed:
            self.on_establishment_timer(now)
        if self.state == "connected":
            self.on_adaptive_timer(now)

    # Ends.

    def end(self, reason):
        """Forgets the connection without a word."""
        self.state, self.reason = "closed", self.reason or reason

    def three_timeouts(self):
        if not self.adaptive:
            return 3.0
        return 3 * self.probe_timeout()

    def closing_with(self, datagram, code, reason):
        self.state, self.code, self.reason = "closing", code, reason
        self.close_datagram = datagram
        if datagram:
            self.outbox.append((datagram, self.address))
        self.end_at = self.now + self.three_timeouts()

    def peer_closed(self, code, reason):
        self.state, self.code, self.reason = "draining", code, f"closed by the peer: {reason}"
        self.end_at = self.now + self.three_timeouts()

    def close(self, code=0, reason=""):
        if self.state == "connected":
            frames = self.reporter.report(self.now) + [{"frame": "Close", "code": code, "reason": reason}]  # P-27
            self.closing_with(self.seal(self.tx.current(), frames, self.now), code, reason)
        elif self.state == "handshake":
            self.close_establishment(0, reason)

    # Flows.

    def open_flow(self, group=0):
        """A new flow, or None while the peer's bound does not allow one (flows.md F-2)."""
        if self.next_index >= self.peer_bound:
            return None
        number = 2 * self.next_index + (not self.is_client)  # F-1
        self.next_index += 1
        return self.make_flow(number, True, group)

    def make_flow(self, number, ours, group=0):
        def first(limit, profile):  # flow.md R-24
            window = profile.window()
            return None if window is None else min(limit, window)

        send = SendHalf(number, first(self.peer_hello[7], self.first_profiles[0]), group)
        window = self.first_profiles[1].window()
        recv = ReceiveHalf(number, None if window is None else self.config.credit,
                           None if window is None else min(window, self.config.credit))
        if window is not None:
            recv.said = min(self.config.credit, window)
        flow = self.flows[number] = Flow(number, send, recv, ours)
        if not ours:
            self.new_flows.append(flow)
        return flow

    def flow_of(self, number, opens=True):
        """The flow that a frame of the peer names, None if it is forgotten; raises Breach (F-3, F-4)."""
        if number in self.flows:
            return self.flows[number]
        index, ours = number >> 1, number % 2 == (not self.is_client)
        if index in self.gone[number & 1]:
            return None  # F-12
        if ours and self.config.lenient:
            return None
        if ours:
            raise Breach("F-3: a flow that was not opened")
        if index >= self.our_bound:
            raise Breach("F-4: a flow beyond the bound")
        return self.make_flow(number, False) if opens else None

    def reset_flow(self, flow, code):
        self.control.append(flow.send.give_reset(code, self.credit_counts))

    def stop_flow(self, flow, code):
        flow.recv.stopped = True
        self.control.append({"frame": "StopFlow", "flow": flow.id, "code": code})

    def ask(self, role, choices, group=0):
        """Asks for a profile of one direction; False if that has to wait. Outcomes are in `news` of the direction."""
        direction = self.tx if role == SENDER else self.rx
        return direction.exchange.ask(group, choices, self.now, self.probe_timeout())
