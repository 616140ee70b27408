"""Cases in which this end breaks a rule on purpose: what the peer does then, and that it serves the next client.

What a peer with keys says is in spec/vectors/breaches.json; what comes before keys, and what needs several packets that
follow from each other, is below.
"""

import json
import os
import socket
import time

from . import frames, hello, keys, packets
from .codec import varint
from .connection import TRANSPORT, Config, Connection
from .endpoint import bind
from .profile import choice, spec, standard
from .stock import Failure, OurServer, Peer, cases, expect

CASES, case = cases()
#: A flow far above those that the vectors name.
AFTERWARDS = 45


def all_cases():
    return CASES + hello_cases() + server_hellos() + vector_cases()


def vector_cases():
    path = spec() / "vectors" / "breaches.json"
    vectors = json.loads(path.read_text())["vectors"] if path.exists() else []
    mirrored = [v | {"to": "client"} for v in vectors if v["to"] == "server" and v["outcome"] == "end"
                and bytes.fromhex(v["packets"][0])[0] in WITHOUT_FLOW]
    return [(f"breach: {v['name']} ({v['rule']}, to the {v['to']})",
             (to_server if v["to"] == "server" else to_client)(v)) for v in vectors + mirrored]


#: An id of the vectors: ours have four bytes as well where these are said (P-3).
VECTOR_ID = bytes.fromhex("aabbccdd")
#: Types of frames that name no flow: what they break, they break towards a client as well.
WITHOUT_FLOW = {0x01, 0x02, 0x03, 0x04, 0x0B, 0x18, 0x1A, 0xC1}


def to_server(vector):
    payloads = [bytes.fromhex(p) for p in vector["packets"]]

    def once(server, together):
        with Peer(server("--no-adapt"), lenient=True, id_length=len(VECTOR_ID)) as peer:
            c = peer.connection
            c.issued["vector"] = VECTOR_ID
            peer.pause(0.03)  # So that the server knows that the handshake is over.
            said = [named(payload, c) for payload in payloads]
            numbers = [c.send_raw(payload, time.monotonic()) for payload in (joined(said) if together else said)]
            if vector["outcome"] == "end":
                check_ended(peer, seconds=20 if len(payloads) == 1 else 2)
            else:
                peer.until(lambda: not any(n in c.ledger.packets for n in numbers), 20, "the acknowledgement")
                c.next_index = max(c.next_index, AFTERWARDS)
                peer.echo()

    def run(home, server):
        try:
            once(server, False)
        except Failure:
            # The service may be done with a flow before the second packet is there: then all frames in one.
            if len(payloads) == 1:
                raise
            once(server, True)
        with Peer(server("--no-adapt")) as peer:
            peer.echo()

    return run


def joined(payloads):
    """One payload with the frames of all."""
    content = [frame for payload in payloads for frame in frames.decode(payload)]
    return [b"".join(frames.encode(frame | ({"LEN": True} if "LEN" in frame else {})) for frame in content)]


def named(payload, connection):
    """A payload, with a number that has arrived in an acknowledgement of number 0, which may have been left out, and with
    the begin of a request to `pipe` at the begin of flows, so that the service waits for more of it (services.md V-3)."""
    if payload == bytes.fromhex("0200000000"):
        return b"\x02\x00" + varint(connection.reporter.largest) + b"\0\0"
    return payload.replace(b"\0a", b"\0\1") if payload[0] in (0x42, 0x46) else payload


def check_ended(peer, code=TRANSPORT, seconds=20):
    c = peer.connection
    peer.endpoint.run(lambda: c.state in ("draining", "closed"), seconds)
    expect(c.state == "draining", f"the peer has not closed the connection: {c.state}")
    expect(c.code == code, f"the peer closed with {c.code}, not with {code}")


def to_client(vector):
    # A stock client opens flow 0 at once: a flow further up stands in its place.
    payloads = [bytes.fromhex(p) for p in vector["packets"]]
    if "flow" in vector["name"]:
        payloads = [p[:1] + b"\x3c" + p[2:] if p[1:2] == b"\0" else p for p in payloads]

    def run(home, server):
        ours, said = OurServer(lenient=True), []

        def breach():
            if not said and ours.seen and ours.seen[0].state == "connected":
                c = ours.seen[0]
                said.append(c)
                for payload in payloads:
                    c.send_raw(payload, time.monotonic())
            if said and vector["outcome"] == "end" and said[0].state == "connected":
                ours.serving.streams.clear()

        status, _, text = ours.stock_client(home, os.urandom(5_000_000), each=breach, seconds=10)
        ours.close()
        if vector["outcome"] == "end":
            expect(said and said[0].code == TRANSPORT, f"the client closed with {said and said[0].code}: {text}")
            expect(status == 1, f"the client's status is {status}: {text}")
        else:
            expect(status == 0, f"the client's status is {status}: {text}")

    return run


# What breaks a rule in the handshake.


def hello_cases():
    """Hellos that break a rule: the server ends the handshake with 1 (packets.md P-51, P-59)."""
    def without(number):
        return lambda said: {n: v for n, v in said.items() if n != number}

    def raw(change):
        return lambda said: change(hello.encode(said))

    unagreed = _with(standard(), _choice(12, 0))
    changes = {f"without item {number}": without(number) for number in (1, 2, 5, 6, 7, 8, 9, 10, 11, 13, 14)}
    changes |= {
        "with an item twice": raw(lambda data: data + b"\x0a\x01\x19"),
        "with an item that is a server's": raw(lambda data: data + b"\x03\x08" + bytes(8)),
        "with a reset token of a client's": raw(lambda data: data + b"\x0c\x10" + bytes(16)),
        "with an item that is cut short": raw(lambda data: data + b"\x15\x09abc"),
        "with a tail behind a number": lambda said: raw(lambda d: d + b"\x0a\x02\x19\x00")(without(10)(said)),
        "with a mechanism twice": lambda said: said | {5: said[5] + said[5][:1]},
        "with another id than it has": lambda said: said | {2: b"otherid!"},
        "with a payload that is too small": _small,
        "with a first profile of what is not known": lambda said: said | {13: said[13] + [_choice(99, 1)]},
        "with a first profile out of range": lambda said: said | {13: said[13][:-1] + [choice("fec", "xor", 1)]},
        "with a first profile without protection": lambda said: said | {13: unagreed, 14: unagreed},
        "with a first profile without flow control":
            lambda said: said | {13: _with(said[13], choice("flow", "none"))},
    }
    return [(f"breach: a Hello {name}", hello_case(change)) for name, change in changes.items()]


def _choice(function, mechanism):
    return {"function": function, "mechanism": mechanism, "parameters": [0, 0, 0, 0]}


def _with(profile, value):
    return [c for c in profile if c["function"] != value["function"]] + [value]


def _small(said):
    data = hello.encode({n: v for n, v in said.items() if n != 9})
    return data + b"\x09\x02\x44\xaf"


def hello_case(change):
    def run(home, server):
        with Peer(server("--no-adapt"), wait=False, tamper=change) as peer:
            check_refused(peer, 1)
        with Peer(server("--no-adapt")) as peer:
            peer.echo()

    return run


def check_refused(peer, code):
    """The server has ended the handshake with a code, maybe under the keys of Initial only: as a hint."""
    c = peer.connection
    peer.endpoint.run(lambda: c.hint or c.state in ("draining", "closed"), 20)
    found = c.code if c.code is not None else int(c.hint.split()[2].rstrip(":")) if c.hint and "with" in c.hint else None
    expect(found == code, f"the server answered {found} ({c.hint or c.reason or c.state}), not {code}")


def server_hellos():
    """Hellos of a server that break a rule: the client ends the handshake (packets.md P-51, P-52)."""
    def without(number):
        return lambda said: {n: v for n, v in said.items() if n != number}

    changes = {f"without item {number}": without(number) for number in (1, 2, 3, 5, 9)}
    changes |= {
        "with another id than it has": lambda said: said | {2: b"otherid!"},
        "with another first id than the client's": lambda said: said | {3: b"otherid!"},
        "with the id of a Retry that was not": lambda said: said | {4: b"otherid!"},
        "that decides on a profile": lambda said: said | {13: standard(), 14: standard()},
        "with an item twice": lambda said: hello.encode(said) + b"\x0a\x01\x19",
    }
    return [(f"breach: a server's Hello {name}", server_hello_case(change)) for name, change in changes.items()]


def server_hello_case(change):
    def run(home, server):
        ours = OurServer(tamper=change)
        status, _, text = ours.stock_client(home, b"hello", seconds=15)
        ours.close()
        expect(status == 1, f"the client's status is {status}: {text}")
        expect(ours.seen and ours.seen[0].code == 1, f"the client closed with {ours.seen and ours.seen[0].code}: {text}")

    return run


@case("breach: a key of ours that is not the pinned one (keys.md K-10, K-12)")
def our_wrong_key(home, server):
    ours = OurServer()
    right, ours.pin = ours.pin, "SHA256:" + "A" * 43
    status, _, text = ours.stock_client(home, b"hello")
    expect(status == 1, f"the client's status is {status}: {text}")
    expect(ours.seen[0].code in range(0x100, 0x200), f"the client closed with {ours.seen[0].code}: {text}")
    ours.pin = right
    ours.check_served(home, "the next client")


@case("breach: another protocol in the ALPN extension (keys.md K-3)")
def other_alpn(home, server):
    with Peer(server("--no-adapt"), wait=False, alpn="h3") as peer:
        check_refused(peer, 0x100 + 120)


@case("breach: no Hello (keys.md K-4)")
def no_hello(home, server):
    peer = Peer(server("--no-adapt"), wait=False, tamper=lambda said: None)
    with peer:
        check_refused(peer, 0x100 + 109)


@case("breach: bytes that are no TLS (keys.md K-12)")
def no_tls(home, server):
    with Peer(server("--no-adapt"), wait=False) as peer:
        level = peer.connection.levels["Initial"]
        level.out = b"\x01\x00\x00\x04none" + level.out[8:]
        check_refused(peer, 0x100 + 50)


@case("breach: a Finished that is wrong (keys.md K-12)")
def wrong_finished(home, server):
    with Peer(server("--no-adapt"), wait=False) as peer:
        level = peer.connection.levels["Handshake"]
        queue = level.queue
        level.queue = lambda data: queue(data[:-1] + bytes([data[-1] ^ 1]) if data else data)
        check_refused(peer, 0x100 + 51)


@case("breach: a server's key that is not the pinned one (keys.md K-10)")
def wrong_pin(home, server):
    target = server("--no-adapt")
    with Peer(target, wait=False, pin="SHA256:" + "A" * 43) as peer:
        peer.endpoint.run(lambda: peer.connection.state == "closing", 20)
        expect(peer.connection.alert == 46, "the key was taken")
    with Peer(target) as peer:
        peer.echo()


def stray(server, datagrams, source="127.0.0.1"):
    """Sends datagrams from a socket of its own; what comes back within 0.3 s."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((source, 0))
        for datagram in datagrams:
            sock.sendto(datagram, server.address)
        sock.settimeout(0.3)
        out = []
        try:
            while True:
                out.append(sock.recv(2000))
        except TimeoutError:
            return out


def first_packet(dcid=None, size=1200):
    """A client's first datagram, with an id of one's choice."""
    c = Connection(True, Config(service="pipe"), 0.0, ("127.0.0.1", 1))
    if dcid is not None:
        c.remote_id = c.first_dcid = dcid
        c.set_initial_keys(dcid)
    c.size = size
    return c.datagrams(0.0)[0][0]


@case("drop: datagrams that are no packets")
def rubbish(home, server):
    target = server("--no-adapt")
    good = first_packet()
    wrong = bytearray(good)
    wrong[600] ^= 1
    reserved = bytes([good[0] | 4]) + good[1:]
    kind3 = bytes([0x83]) + good[1:]
    long_id = good[:5] + b"\x15" + bytes(21) + good[6:]
    datagrams = [b"", b"\0", bytes(1200), b"\xff" * 1200, os.urandom(1200), bytes(wrong), reserved, kind3, long_id,
                 good[:200], good[:267], b"\x80" + packets.VERSION, bytes([0x40]) * 60, os.urandom(40)]
    answers = stray(target, [d for d in datagrams if d])
    # Only a packet of another version may be answered, and that with a version refusal (P-10).
    kinds = [a[:1] + a[1:5] for a in answers]
    expect(all(k[0] & 0x80 and k[1:] == bytes(4) for k in kinds), f"{len(answers)} answers: {kinds}")
    with Peer(target) as peer:
        peer.echo()


@case("drop: a first packet with an id of 7 bytes (keys.md K-14)")
def short_id(home, server):
    target = server("--no-adapt")
    expect(not stray(target, [first_packet(b"7 bytes")]), "the server answered")
    expect(stray(target, [first_packet(b"8 bytes!")]), "the server did not answer to 8 bytes")


@case("drop: a first packet in less than 268 bytes (establishment.md R-8)")
def small_first(home, server):
    expect(not stray(server("--no-adapt"), [first_packet(size=200)]), "the server answered")


@case("drop: a token that nobody gave (packets.md P-28)")
def false_token(home, server):
    c = Connection(True, Config(service="pipe"), 0.0, ("127.0.0.1", 1))
    c.token = b"false token"
    answers = stray(server("--no-adapt"), [c.datagrams(0.0)[0][0]])
    expect(sum(map(len, answers)) <= 3 * 1200, "more than three times as much came back (RFC 9000, section 8.1)")
    with Peer(server("--no-adapt")) as peer:
        peer.echo()


@case("drop: more than three times as much for an address that is not proved (establishment.md R-8)")
def amplification(home, server):
    for size in (268, 400, 1200):
        answers = sum(map(len, stray(server("--no-adapt"), [first_packet(size=size)])))
        expect(answers < 3 * size, f"{answers} bytes answer {size}")


@case("drop: a Retry with a wrong field `integrity` (keys.md K-22)")
def false_retry(home, server):
    ours = OurServer()
    endpoint = ours.endpoint
    accept, sent = endpoint.accept, []

    def forged(data, packet, address, now):
        if not sent:
            head = packets.retry(packet["scid"], b"elsewher", b"token")
            endpoint.sock.sendto(head + bytes(16), address)
            sent.append(True)
        accept(data, packet, address, now)

    endpoint.accept = forged
    ours.check_served(home)


@case("drop: a close and a version refusal before the handshake (establishment.md R-6)")
def hints(home, server):
    ours = OurServer()
    endpoint = ours.endpoint
    accept, sent = endpoint.accept, []

    def forged(data, packet, address, now):
        if not sent:
            sent.append(True)
            refusal = packets.version_refusal(packet["scid"], packet["dcid"], [b"UTS\xff"])
            endpoint.sock.sendto(refusal, address)
            body = packets.body([{"header": "close", "code": 1, "reason": "forged"}])
            head = packets.long_header("Initial", packet["scid"], b"", b"", 0, len(body) + keys.TAG)
            endpoint.sock.sendto(keys.seal_long(keys.initial(packet["dcid"])[1], head, body), address)
        accept(data, packet, address, now)

    endpoint.accept = forged
    ours.check_served(home, seconds=15)


# What breaks a rule in adaptive packets, beyond what the vectors have.


def raw(peer, payload):
    """Sends a payload under the epoch in use; its packet number."""
    return peer.connection.send_raw(payload, time.monotonic())


def passes_over(peer, numbers):
    c = peer.connection
    peer.pause(0.15)
    expect(c.state == "connected", f"the connection has ended: {c.reason}")
    expect(all(n in c.ledger.packets or n in c.ledger.late for n in numbers), "the packet was acknowledged")
    peer.echo()


@case("drop: a packet that is changed (protection.md R-8)")
def changed(home, server):
    with Peer(server("--no-adapt")) as peer:
        c = peer.connection
        numbers = [raw(peer, b"\x01")]
        datagram, address = c.outbox.pop()
        for at in (1, 9, len(datagram) - 1):
            wrong = bytearray(datagram)
            wrong[at] ^= 0x20
            c.outbox.append((bytes(wrong), address))
        passes_over(peer, numbers)


@case("drop: a packet of an epoch that is not open (packets.md P-17)")
def closed_epoch(home, server):
    with Peer(server("--no-adapt")) as peer:
        c = peer.connection
        number = raw(peer, b"\x01")
        datagram, address = c.outbox.pop()
        c.outbox.append((bytes([datagram[0] ^ 0x08]) + datagram[1:], address))
        passes_over(peer, [number])


@case("drop: a packet once more (packets.md P-5)")
def repeated(home, server):
    with Peer(server("--no-adapt")) as peer:
        c = peer.connection
        raw(peer, bytes.fromhex("42320061"))  # flow 50, one byte
        c.outbox.append(c.outbox[-1])
        c.config.lenient = True
        peer.pause(0.1)
        expect(c.state == "connected", f"the connection has ended: {c.reason}")
        peer.echo()


@case("breach: an acknowledgement of a number that was left out (retransmission.md R-10)")
def optimistic(home, server):
    with Peer(server("--no-adapt")) as peer:
        c = peer.connection
        # What the server sends has a gap within its first 32 numbers: claim all of them.
        for _ in range(40):
            peer.echo()
        top = c.reporter.largest
        gaps = [n for n in range(top) if n not in c.reporter.seen]
        expect(gaps, "the server has left out no number")
        raw(peer, b"\x02\x00" + b"\x80" + top.to_bytes(3, "big") + b"\x00" + b"\x80" + top.to_bytes(3, "big"))
        check_ended(peer)


@case("breach: more than the credit of the connection (packets.md P-57)")
def connection_credit(home, server):
    with Peer(server("--no-adapt"), lenient=True) as peer:
        c = peer.connection
        limit, flow, each = c.peer_hello[20], 20, c.peer_hello[7]
        for number in range(limit // each + 2):
            at = (each - 1).to_bytes(4, "big")
            raw(peer, b"\x42" + bytes([flow + 2 * number]) + bytes([at[0] | 0x80]) + at[1:] + b"x")
        check_ended(peer)


@case("breach: data of a flow under another group's epoch (exchange.md X-28)")
def other_group(home, server):
    with Peer(server("--no-adapt")) as peer:
        c = peer.connection
        expect(c.ask("sender", list(c.config.outgoing), group=1), "the request has to wait")
        peer.until(lambda: c.tx.current(1) is not None, 20, "the group")
        flow = c.open_flow()
        flow.send.write(b"\1\4echo")
        peer.until(lambda: flow.send.done.has(0, 6), 20, "the acknowledgement")
        flow.send.group = 1
        flow.send.write(b"and now elsewhere")
        check_ended(peer)


@case("breach: more flows than the bound, one after another (flows.md F-4)")
def beyond_bound(home, server):
    with Peer(server("--no-adapt"), lenient=True) as peer:
        bound = peer.connection.peer_bound
        raw(peer, b"\x42" + (0x4000 | 2 * (bound - 1)).to_bytes(2, "big") + b"\x00\x01")
        peer.pause(0.1)
        expect(peer.connection.state == "connected", "the last flow below the bound was refused")
        raw(peer, b"\x42" + (0x4000 | 2 * bound).to_bytes(2, "big") + b"\x00\x01")
        check_ended(peer)


@case("breach: a packet without a frame (packets.md P-20)")
def empty(home, server):
    with Peer(server("--no-adapt")) as peer:
        raw(peer, b"")
        check_ended(peer)


@case("breach: Skips that leave more gaps than are kept (packets.md P-20)")
def gaps(home, server):
    with Peer(server("--no-adapt"), lenient=True) as peer:
        skips = [b"\x07\x32" + varint(2 * number + 1) + b"\x01" for number in range(8300)]
        for begin in range(0, len(skips), 150):
            raw(peer, b"".join(skips[begin : begin + 150]))
            if begin % 1500 == 0:
                peer.pause(0.02)
        check_ended(peer)


@case("breach: credit of the connection that was not agreed to (packets.md P-57, P-58)")
def not_agreed(home, server):
    with Peer(server("--no-adapt"), connection_credit=None) as peer:
        peer.echo(os.urandom(100_000))
        raw(peer, b"\x1d\x40\x64")
        check_ended(peer)
    with Peer(server("--no-adapt"), connection_credit=None, lenient=True) as peer:
        raw(peer, bytes.fromhex("1e32000000"))
        check_ended(peer)


@case("breach: an id of an end whose own has no bytes (packets.md P-37)")
def id_of_none(home, server):
    with Peer(server("--no-adapt"), id_length=0) as peer:
        peer.echo(os.urandom(100_000))
        raw(peer, b"\x18\x01\x00\x04" + VECTOR_ID)
        check_ended(peer)


@case("breach: a request for a group beyond the eighth (packets.md P-25)")
def ninth_group(home, server):
    with Peer(server("--no-adapt")) as peer:
        raw(peer, bytes.fromhex("0a000802010000"))
        check_ended(peer)


@case("pass: requests that nobody may decide on (exchange.md X-25)")
def odd_requests(home, server):
    for payload in ("0a000003010000", "0a00004100010000", "0a0000020000", "0a00000201020000"):
        with Peer(server("--no-adapt")) as peer:
            number = raw(peer, bytes.fromhex(payload))
            peer.until(lambda: number not in peer.connection.ledger.packets, 20, "the acknowledgement")
            expect(peer.connection.rx.exchange.in_use == {0: 0}, "something was exchanged")
            peer.echo()


@case("place: a packet from elsewhere for which nobody answers (migration.md M-3, M-4)")
def elsewhere(home, server):
    with Peer(server("--no-adapt")) as peer:
        c = peer.connection
        peer.echo()
        raw(peer, b"\x01" + bytes(60))
        datagram, address = c.outbox.pop()
        with bind() as other:
            other.sendto(datagram, address)
            peer.pause(0.6)
            heard = 0
            while True:
                try:
                    heard += len(other.recv(2000))
                except BlockingIOError:
                    break
        expect(0 < heard <= 3 * len(datagram), f"{heard} bytes came to the other place, for {len(datagram)}")
        peer.echo(os.urandom(50_000))


@case("pass: silence, and then again (packets.md P-61)")
def silence(home, server):
    with Peer(server("--no-adapt"), idle=1.0) as peer:
        peer.echo()
        peer.pause(0.5)
        peer.echo()
        # Nothing further is asked of us: the server forgets the connection without a word.
        peer.endpoint.run(lambda: peer.connection.state == "closed", 20)
        expect(peer.connection.reason == "nothing heard", f"{peer.connection.state}: {peer.connection.reason}")


@case("pass: a client that closes again and again (packets.md P-60)")
def closes(home, server):
    with Peer(server("--no-adapt")) as peer:
        c = peer.connection
        c.close(0, "enough")
        for _ in range(20):
            c.outbox.append((c.close_datagram, c.address))
        peer.pause(0.2)
    with Peer(server("--no-adapt")) as peer:
        peer.echo()


@case("pass: a peer that is closed stays silent, and answers late packets with its close (packets.md P-60)")
def answers_again(home, server):
    with Peer(server("--no-adapt"), lenient=True) as peer:
        c = peer.connection
        peer.pause(0.05)
        raw(peer, b"\x3f")
        check_ended(peer)
        c.state, c.code, c.end_at = "connected", None, None
        raw(peer, b"\x01")
        peer.endpoint.run(lambda: c.state == "draining", 0.5)
        expect(c.code == TRANSPORT, "the late packet was not answered with the close")
