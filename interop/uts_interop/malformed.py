"""Cases with packets and frames that cannot be read: the errors of spec/vectors, and what is like them."""

import json
import time

from . import keys, packets
from .breaches import check_ended, check_refused, raw, stray
from .codec import varint
from .exchange import SENDER
from .fec import symbol
from .profile import choice, spec
from .programs import Asker
from .stock import OurServer, Peer, cases, expect

CASES, case = cases()


def vectors(file):
    return json.loads((spec() / "vectors" / file).read_text())["vectors"]


def all_cases():
    wrong = [v for v in vectors("frames.json") if "error" in v]
    return CASES + [(f"breach: frames.json, {v['name']}, to the {end}", case_of(v))
                    for v in wrong for end, case_of in (("server", frame_to_server), ("client", frame_to_client))]


def frame_to_server(vector):
    def run(home, server):
        with Peer(server("--no-adapt"), lenient=True) as peer:
            raw(peer, bytes.fromhex(vector["hex"]))
            check_ended(peer)

    return run


def frame_to_client(vector):
    def run(home, server):
        ours, said = OurServer(lenient=True), []

        def breach():
            if not said and ours.seen and ours.seen[0].state == "connected":
                said.append(ours.seen[0])
                said[0].send_raw(bytes.fromhex(vector["hex"]), time.monotonic())

        status, _, text = ours.stock_client(home, bytes(1_000_000), each=breach, seconds=20)
        ours.close()
        expect(said and said[0].code == 4294967295, f"the client closed with {said and said[0].code}: {text}")
        expect(status == 1, f"the client's status is {status}: {text}")

    return run


@case("survive: every frame of frames.json, in a connection of its own")
def good_frames(home, server):
    target = server("--no-adapt")
    for vector in vectors("frames.json"):
        if "error" not in vector:
            with Peer(target, lenient=True) as peer:
                raw(peer, bytes.fromhex(vector["hex"]))
                peer.pause(0.01)
                expect(target.lives(), f"{vector['name']}: the server has ended")
    with Peer(target) as peer:
        peer.echo()


@case("breach: the Hellos of hello.json")
def wrong_hellos(home, server):
    for vector in vectors("hello.json"):
        if vector["parser"] == "hello" and "error" in vector and vector["from"] == "client":
            with Peer(server("--no-adapt"), wait=False, tamper=lambda _: bytes.fromhex(vector["hex"])) as peer:
                check_refused(peer, 1)


@case("drop: the packets of packets.json")
def wrong_packets(home, server):
    target = server("--no-adapt")
    wrong = [bytes.fromhex(v["hex"]) for v in vectors("packets.json") if v["parser"] == "packet"]
    wrong += [packet.ljust(1200, b"\0") for packet in wrong]
    for answer in stray(target, wrong):
        expect(packets.parse_long(answer)["packet"] == "version refusal", f"an answer: {answer.hex()}")
    with Peer(target) as peer:
        peer.echo()


def initial_bodies():
    """Bodies that a server drops, by what is wrong."""
    ping, own = bytes.fromhex("01200000"), bytes.fromhex("02400300deadbeef")
    many = b"".join(bytes([1, 0x40, n, 0]) for n in range(17))
    found = {f"packets.json, {v['name']}": bytes.fromhex(v["hex"]) for v in vectors("packets.json")
             if v["parser"] == "body" and "error" in v}
    return found | {
        "17 headers": many + b"\0", "a ping with a trailer": ping[:3] + b"\1" + b"\0x",
        "the same unknown header twice": own + own + b"\0", "bytes of TLS beyond 2^32":
            bytes.fromhex("03000000ffffffff00000001") + b"\0x",
        "a field that is to be zero": bytes.fromhex("030000000000000000010001") + b"\0x",
        "an acknowledgement of 17 ranges": b"\x14\x06\0\0" + (100).to_bytes(4, "big") + bytes(4) + bytes(68) + b"\0",
    }


@case("drop: bodies of establishment packets that break a rule (packets.md P-11 to P-15)")
def wrong_bodies(home, server):
    for name, body in initial_bodies().items():
        with Peer(server("--no-adapt"), wait=False) as peer:
            c = peer.connection
            level = c.levels["Initial"]
            number, level.next = level.next, level.next + 1
            head = packets.long_header("Initial", c.remote_id, c.local_id, b"", number, len(body) + keys.TAG)
            wrong = keys.seal_long(level.sends, head, body)
            for datagram, address in c.datagrams(time.monotonic()):
                peer.endpoint.sock.sendto(wrong + datagram, address)  # P-19
            peer.until(lambda: c.confirmed, 20, f"the handshake behind a body with {name}")
            peer.echo()


@case("pass: function headers that nobody knows (packets.md P-13)")
def unknown_headers(home, server):
    with Peer(server("--no-adapt"), wait=False) as peer:
        c = peer.connection
        seal = c.seal_level
        unknown = [{"header": "unknown", "function": 0x40, "mechanism": n, "fields": b"four" * n, "trailer": b"t" * n}
                   for n in range(3)]

        def with_unknown(name, level, number, headers, padding=0):
            content = packets.body(unknown[:2] + headers + unknown[2:], max(0, padding - 40))
            head = packets.long_header(name, c.remote_id, c.local_id, c.token, number, len(content) + keys.TAG)
            c.last_packets = [p for p in c.last_packets if p[0] != name] + [(name, number, headers)]
            return keys.seal_long(level.sends, head, content)

        c.levels["Initial"].pending.runs.clear()
        c.repeat_all()
        c.seal_level = with_unknown
        peer.until(lambda: c.confirmed, 20, "the handshake")
        c.seal_level = seal
        peer.echo()


@case("drop: more bytes of TLS than a server keeps (establishment.md R-5)")
def too_much_tls(home, server):
    with Peer(server("--no-adapt"), wait=False) as peer:
        c = peer.connection
        level, good = c.levels["Initial"], c.datagrams(time.monotonic())
        for begin in range(4096, 200_000, 1000):  # Pieces that never join.
            headers = [{"header": "handshake bytes", "offset": begin, "bytes": bytes(900)}]
            number, level.next = level.next, level.next + 1
            peer.endpoint.sock.sendto(c.seal_level("Initial", level, number, headers, 200), c.address)
        for datagram, address in good:
            peer.endpoint.sock.sendto(datagram, address)
        peer.until(lambda: c.confirmed or c.hint, 20, "an answer")
    with Peer(server("--no-adapt")) as peer:
        peer.echo()


@case("pass: redundancy that breaks a rule, which is refused (fec.md R-9, R-10)")
def wrong_repairs(home, server):
    with Peer(server("--no-adapt", "--property", "uts.consent=all")) as peer:
        c = peer.connection
        asker = Asker(c, [(SENDER, choice("fec", "reed-solomon", 8, 2))])
        peer.until(lambda: asker.poll() is None and asker.idle() and c.tx.exchange.in_use[0] == 2, 20, "the exchange")
        peer.echo()
        first = c.ledger.next + 40
        base = {"frame": "Repair", "first": first, "mask": b"\x03", "index": 0, "count": 2, "symbol": symbol(b"\x01" * 40)}
        wrong = [{"mask": b"\x02"}, {"mask": b"\x03\x00"}, {"mask": b"\xff\xff"}, {"count": 3}, {"symbol": b"\x00"},
                 {"mask": b"\x01", "symbol": b"\xff\xff" + bytes(40)}, {"mask": b"\x01", "symbol": b"\0\1\1x"},
                 {"symbol": symbol(b"\x01" * 41)}]
        for change in wrong:
            c.control.append(base | change)
            peer.pause(0.01)
            expect(c.state == "connected", f"{change} ended the connection: {c.reason}")
        peer.echo(bytes(50_000))


def recovered(peer, payload):
    """Has the peer recover a payload of ours from redundancy, under a number that no packet had."""
    c = peer.connection
    asker = Asker(c, [(SENDER, choice("fec", "xor", 8, 1))])
    peer.until(lambda: asker.poll() is None and asker.idle() and c.tx.exchange.in_use[0] == 2, 20, "the exchange")
    peer.echo()
    c.ledger.next += 1
    c.control.append({"frame": "Repair", "first": c.ledger.next - 1, "mask": b"\x01", "index": 0, "count": 1,
                      "symbol": symbol(payload)})


@case("breach: redundancy from which a breach comes out (fec.md R-11, flows.md F-3)")
def breach_recovered(home, server):
    with Peer(server("--no-adapt", "--property", "uts.consent=all")) as peer:
        recovered(peer, bytes.fromhex("050100"))
        check_ended(peer)


@case("drop: redundancy from which nothing comes out that can be read (fec.md R-11)")
def rubbish_recovered(home, server):
    with Peer(server("--no-adapt", "--property", "uts.consent=all")) as peer:
        recovered(peer, b"\x3f")
        peer.pause(0.05)
        expect(peer.connection.repaired == 0, "it was reported as repaired")
        peer.echo()


@case("pass: a stateless reset with the token of an id that was retired (packets.md P-18)")
def retired_reset(home, server):
    ours, steps = OurServer(), []

    def each():
        c = ours.seen[0] if ours.seen else None
        if c is None or c.state != "connected" or not ours.serving.streams:
            return
        if not steps:
            made, token = ours.endpoint.make_id(c.address)
            c.issued[c.next_id] = made
            c.control.append({"frame": "NewId with a reset token", "number": c.next_id, "retire_below": c.next_id,
                              "id": made, "token": token})
            c.next_id += 1
            steps.append("asked")
        elif len(steps) == 1 and 0 not in c.issued:
            ours.endpoint.sock.sendto(b"\x40" + bytes(30) + c.first_token, c.address)
            steps.append("reset")

    data = bytes(3_000_000)
    status, out, text = ours.stock_client(home, data, each=each)
    ours.close()
    expect(len(steps) == 2, "the client has not retired its id")
    expect(status == 0 and out == data, f"status {status}, {len(out)} bytes: {text}")


@case("survive: challenges without end, and no acknowledgement (migration.md M-5)")
def challenges(home, server):
    with Peer(server("--no-adapt")) as peer:
        c = peer.connection
        peer.echo()
        c.reporter.report = lambda now: []
        heard, receive = [], c.receive
        c.receive = lambda data, address, now: (heard.append(len(data)), receive(data, address, now))
        for number in range(1500):
            raw(peer, b"\x11" + number.to_bytes(8, "big"))
            if number % 100 == 0:
                peer.pause(0.005)
        peer.pause(0.2)
        expect(sum(heard) < 60_000, f"{sum(heard)} bytes of answers that nobody acknowledged")
        del c.reporter.report
        peer.until(lambda: c.reporter.due is None or c.reporter.due > 0, 20, "peace")
        peer.echo()


@case("survive: a hundred flows that are opened and reset at once")
def resets(home, server):
    with Peer(server("--no-adapt"), lenient=True) as peer:
        for number in range(100):
            flow = varint(2 * number)
            raw(peer, b"\x42" + flow + b"\x00\x01\x04echo" if number % 2 else b"\x1e" + flow + b"\x00\x00\x00")
            raw(peer, b"\x09" + flow + b"\x00\x1e" + flow + b"\x05\x00\x06")
        peer.pause(0.2)
        expect(peer.connection.state == "connected", f"the connection has ended: {peer.connection.reason}")
    with Peer(server("--no-adapt")) as peer:
        peer.echo()
