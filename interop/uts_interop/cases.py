"""Cases in which both ends keep the rules."""

import os
import socket

from . import packets, tls
from .connection import Config, Connection
from .endpoint import bind
from .exchange import RECEIVER, SENDER
from .profile import BY_NUMBER, FUNCTIONS, OURS, choice, standard
from .programs import Asker
from .relay import Relay
from .stock import OurServer, Peer, Server, cases, expect

#: A server that takes whatever we ask for, and asks for nothing by itself.
WILLING = ("--no-adapt", "--property", "uts.consent=all")
PLAIN = ("--no-adapt",)
ALL = {(m.function_name, m.name) for m in OURS}
CASES, case = cases()


def all_cases():
    return CASES + [exchange_case(role, m) for m in OURS for role in (SENDER, RECEIVER)]


def blob(size):
    return os.urandom(size)


# Connections and data.


@case("client: 2 MB both ways")
def bulk(home, server):
    with Peer(server()) as peer:
        peer.echo(blob(2_000_000))


@case("client: a tenth of all packets lost, others reordered")
def lossy(home, server):
    with Peer(server(), relay={"loss": 0.1, "reorder": 0.1}) as peer:
        peer.echo(blob(300_000), seconds=40)


@case("client: a third of all packets lost")
def very_lossy(home, server):
    with Peer(server(), relay={"loss": 0.3, "seed": 2}, patience=30) as peer:
        peer.echo(blob(20_000), seconds=40)


@case("client: more flows than the first bound allows")
def many_flows(home, server):
    with Peer(server()) as peer:
        for number in range(peer.connection.peer_hello[6] + 20):
            peer.until(lambda: peer.connection.next_index < peer.connection.peer_bound, 20, "a higher bound")
            peer.echo(b"%d" % number)


@case("client: forty flows at once")
def flows_at_once(home, server):
    with Peer(server()) as peer:
        from . import pipe

        streams = [pipe.Client(peer.connection.open_flow(), "echo") for _ in range(40)]
        got, data = [bytearray() for _ in streams], blob(20_000)
        for stream in streams:
            stream.write(data)
            stream.finish()

        def done():
            for stream, taken in zip(streams, got):
                taken.extend(stream.poll())
            return all(stream.done() for stream in streams)

        peer.until(done, 30, "the echoes")
        expect(all(taken == data for taken in got), "a flow came back changed")


@case("client: a service that is not there")
def no_service(home, server):
    from . import pipe

    with Peer(server()) as peer:
        stream = pipe.Client(peer.connection.open_flow(), "nothing")
        peer.until(lambda: stream.poll() is not None and stream.done(), 20, "the refusal")
        expect(stream.answer == "not there", f"the answer was {stream.answer}")
        peer.echo()


@case("client: shows its key")
def client_key(home, server):
    identity = tls.identity()
    path = os.path.join(home.directory.name, "keys")
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.write(tls.fingerprint(identity[1]) + "\n")
    strict = Server(home, "--authorized-keys", path)
    try:
        with Peer(strict, identity=identity) as peer:
            peer.echo()
        for who, alert in ((None, 0x100 + 116), (tls.identity(), 0x100 + 46)):  # K-11
            with Peer(strict, wait=False, identity=who) as peer:
                c = peer.connection
                peer.endpoint.run(lambda: c.state in ("draining", "closed"), 20)
                expect(c.code == alert, f"the server closed with {c.code}, not with {alert}")
    finally:
        strict.stop()


@case("server: 1 MB both ways, a Retry, the client's key")
def our_server(home, server):
    ours = OurServer(retry=True, want_client=True)
    data = blob(1_000_000)
    status, out, said = ours.stock_client(home, data)
    ours.close()
    expect(status == 0 and out == data, f"status {status}, {len(out)} bytes: {said}")
    expect(ours.seen[0].handshake.peer() is None or ours.seen[0].handshake.peer().startswith("SHA256:"), "no key")


@case("server: a tenth of all packets lost, others reordered")
def our_server_lossy(home, server):
    ours, data = OurServer(), blob(200_000)
    relay = Relay(("127.0.0.1", ours.endpoint.port), 11, loss=0.1, reorder=0.1)
    status, out, said = ours.stock_client(home, data, relay=relay, seconds=40)
    relay.close()
    ours.close()
    expect(status == 0 and out == data, f"status {status}, {len(out)} bytes: {said}")


@case("server: a Retry of the stock server")
def stock_retry(home, server):
    crowd = Server(home, *PLAIN)
    try:
        # Clients that say nothing further: a server then has addresses proved first.
        for number in range(400):
            other = Connection(True, Config(service="pipe"), 0.0, crowd.address)
            with bind(f"127.0.0.{2 + number % 4}") as sock:
                for datagram, address in other.datagrams(0.0):
                    sock.sendto(datagram, address)
        with Peer(crowd) as peer:
            expect(peer.connection.retry_scid is not None, "there was no Retry")
            peer.echo()
    finally:
        crowd.stop()


@case("server: a version that it does not speak")
def other_version(home, server):
    target = server().address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(3)
        packet = b"\xff" + b"UTS\xff" + bytes([8]) + b"D" * 8 + bytes([3]) + b"SRC"
        sock.sendto(packet.ljust(1200, b"\0"), target)
        answer = packets.parse_long(sock.recv(2000))
    expect(answer["packet"] == "version refusal", f"the answer was a {answer['packet']}")
    expect(packets.VERSION in answer["versions"], "its own version is not in the list")
    expect((answer["dcid"], answer["scid"]) == (b"SRC", b"D" * 8), "the ids are not exchanged")


@case("server: a stateless reset for what it has forgotten")
def stateless_reset(home, server):
    first = Server(home, *PLAIN)
    with Peer(first) as peer:
        peer.echo()
        first.stop(kill=True)
        again = Server(home, *PLAIN, port=first.port)
        try:
            peer.connection.control.append({"frame": "Ping"})
            peer.endpoint.run(lambda: peer.connection.state == "closed", 20)
            expect(peer.connection.reason == "stateless reset", f"{peer.connection.state}: {peer.connection.reason}")
        finally:
            again.stop()


@case("client: a stateless reset of ours ends the stock client")
def our_reset(home, server):
    ours = OurServer()

    def forget():
        if ours.seen and ours.seen[0].confirmed and ours.seen[0].flows:
            ours.endpoint.connections.clear()
            ours.serving.streams.clear()

    status, _, said = ours.stock_client(home, blob(3_000_000), each=forget, seconds=30)
    ours.close()
    expect(status == 1, f"status {status}: {said}")


# Ends.


@case("client: resets a flow")
def resets(home, server):
    from . import pipe

    with Peer(server()) as peer:
        flow = peer.connection.open_flow()
        stream = pipe.Client(flow, "echo")
        stream.write(blob(50_000))
        peer.until(lambda: len(stream.poll()) > 0, 20, "the echo")
        peer.connection.reset_flow(flow, 5)
        peer.until(lambda: stream.poll() is not None and stream.done(), 20, "the end of the other half")
        peer.until(lambda: flow.id not in peer.connection.flows, 20, "the end of the flow")
        peer.echo()


@case("client: stops a flow")
def stops(home, server):
    from . import pipe

    with Peer(server()) as peer:
        flow = peer.connection.open_flow()
        stream = pipe.Client(flow, "echo")
        stream.write(blob(200_000))
        peer.until(lambda: stream.answer is not None or stream.poll() is None, 20, "the answer")
        peer.connection.stop_flow(flow, 9)
        peer.until(lambda: flow.recv.reset or flow.recv.fin is not None, 20, "the reset that answers a stop")
        expect(flow.recv.reset is None or flow.recv.reset[0] == 9, f"the code of the reset is {flow.recv.reset}")
        peer.connection.reset_flow(flow, 0)
        peer.echo()


@case("client: is closed by the server")
def closed(home, server):
    mine = Server(home, *PLAIN)
    with Peer(mine) as peer:
        peer.echo()
        mine.stop()
        peer.endpoint.run(lambda: peer.connection.state in ("draining", "closed"), 20)
        expect(peer.connection.code == 1, f"{peer.connection.state} with {peer.connection.code}")  # services.md V-1


@case("client: asks for a service that the server has not")
def no_such_server(home, server):
    with Peer(server(), wait=False, service="perf") as peer:
        peer.endpoint.run(lambda: peer.connection.state in ("draining", "closed"), 20)
        expect(peer.connection.code == 2, f"{peer.connection.state} with {peer.connection.code}")  # V-1


# Places.


@case("client: its port changes on the way")
def translated(home, server):
    with Peer(server(), relay={"delay": 0.001}) as peer:
        peer.echo(blob(50_000))
        peer.relay.move()
        peer.echo(blob(200_000))
        peer.relay.move()
        peer.echo(blob(50_000))


@case("client: moves knowingly")
def moves(home, server):
    with Peer(server()) as peer:
        peer.echo(blob(50_000))
        peer.until(lambda: len(peer.connection.peer_ids) > 1, 20, "another id")
        before = peer.connection.remote_id
        peer.endpoint.rebind()
        peer.connection.moved()
        expect(peer.connection.remote_id != before, "the id is the same")
        peer.echo(blob(200_000))
        peer.until(lambda: len(peer.connection.peer_ids) > 1, 20, "a further id")


@case("server: the stock client's port changes on the way")
def server_follows(home, server):
    ours, data, moved = OurServer(), blob(2_000_000), []
    relay = Relay(("127.0.0.1", ours.endpoint.port), 12)

    def move():
        streams = [s for _, s in ours.serving.streams]
        if not moved and streams and streams[0].received > 200_000:
            moved.append(ours.seen[0].address)
            relay.move()

    status, out, said = ours.stock_client(home, data, relay=relay, each=move, seconds=30)
    relay.close()
    ours.close()
    expect(status == 0 and out == data, f"status {status}, {len(out)} bytes: {said}")
    expect(moved and ours.seen[0].address != moved[0], "the server did not follow")


# Tunnels: flows of messages (services.md V-4, V-5).


@case("tunnel: datagrams, as messages in any order, some of them lost")
def datagrams(home, server):
    target = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    target.bind(("127.0.0.1", 0))
    target.setblocking(False)
    identity = tls.identity()
    path = os.path.join(home.directory.name, "tunnel-keys")
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.write(tls.fingerprint(identity[1]) + "\n")
    port = target.getsockname()[1]
    tunnels = Server(home, "--forward", f"udp/127.0.0.1:{port}", "--authorized-keys", path, *WILLING)
    try:
        for order, repeats in (("ordered", True), ("unordered", True), ("unordered", False)):
            profile = standard()
            for value in (choice("segmentation", "messages"), choice("sequencing", order)):
                profile = [c for c in profile if c["function"] != value["function"]] + [value]
            way = {"loss": 0.05, "reorder": 0.1, "delay": 0.001}
            with Peer(tunnels, service="tunnel", identity=identity, outgoing=profile, incoming=list(profile), relay=way,
                      consents=ALL) as peer:
                exchange_datagrams(peer, target, port, repeats)
    finally:
        tunnels.stop()
        target.close()


def without_positions(peer, each):
    """Exchanges what still needs positions in either direction (packets.md P-62)."""
    wishes = [(role, choice(f, "none")) for role in (SENDER, RECEIVER) for f in ("retransmission", "flow")]
    asker = Asker(peer.connection, wishes)
    peer.until(lambda: each() or asker.poll() is None and asker.idle(), 20, "the exchanges")
    expect([o[1] for o in asker.outcomes] == ["accepted"] * 4, f"outcomes {asker.outcomes}")
    expect(not peer.connection.tx.current().profile.counts_positions(), "positions are counted")


def datagram(number):
    """As long that two fill a packet: one that is lost takes no more with it."""
    return (b"datagram %d " % number).ljust(500, b".")


def exchange_datagrams(peer, target, port, repeats):
    stream, count = peer.connection.open_flow(), 100
    head = b"\x80\x01\x80\0\0" + bytes([9]) + b"127.0.0.1" + port.to_bytes(2, "big") + b"\0"
    stream.send.write(head + datagram(0), message=True)
    answers, refused = set(), []

    def step():
        try:
            while True:
                data, source = target.recvfrom(2000)
                target.sendto(b"answer to " + data, source)
        except BlockingIOError:
            pass
        for kind, content in stream.read():
            if kind == "message" and content[:1] == b"\0":
                answers.add(content[1:])
            else:
                refused.append((kind, content))
        return refused or len(answers) >= enough

    enough = 1
    peer.until(step, 20, "the first answer")
    if not repeats:
        without_positions(peer, lambda: step() and refused)
    for number in range(1, count):
        stream.send.write(b"\0" + datagram(number), message=True)
    enough = count if repeats else count // 2
    peer.until(step, 20, f"{enough} answers")
    expect(not refused, f"{refused[:3]}")
    expect(answers <= {b"answer to " + datagram(n) for n in range(count)}, "an answer is changed")


# Exchanges.

#: What a service of bytes does not outlive, unless nothing is lost.
FRAGILE = {"retransmission=none", "sequencing=unordered"}


def exchange_case(role, mechanism):
    text = f"{mechanism.function_name}={mechanism.name}"
    data = blob(60_000)

    def run(home, server):
        way = {"delay": 0.001} if text in FRAGILE else {"delay": 0.001, "loss": 0.03, "reorder": 0.03}
        with Peer(server(*WILLING), relay=way, consents=ALL) as peer:
            c = peer.connection
            asker = Asker(c, [(role, choice(mechanism.function_name, mechanism.name))])
            peer.until(lambda: asker.poll() is None and asker.idle(), 10, "the exchange")
            expect([o[:2] for o in asker.outcomes] == [(role, "accepted")], f"outcomes {asker.outcomes}")
            peer.echo(data)
            if role == SENDER:
                expect(c.tx.current().profile[mechanism.function_name] == mechanism.name, "another mechanism is in use")
            else:
                peer.until(lambda: c.rx.exchange.in_use[0] % 2 == 1, 20, "a packet of the new epoch")
            if mechanism.function_name == "fec" and mechanism.name != "none":
                check_repairs(peer, role, data)

    return f"exchange: the {role} asks for {text}", run


def check_repairs(peer, role, data):
    """Goes on until a packet was recovered from redundancy: by us, or by the stock program as it reports."""
    c = peer.connection

    def recovered():
        if role == SENDER:
            return c.repaired > 0
        return any(e.decoder and e.decoder.recovered for e in c.rx.epochs.values())

    for _ in range(10):
        if recovered():
            return
        peer.echo(data)
    expect(recovered(), "nothing was recovered from redundancy")


@case("exchange: twenty, one after another, both ways")
def many_exchanges(home, server):
    names = ["new-reno", "cubic", "bbr"]
    with Peer(server(*WILLING), relay={"loss": 0.05, "reorder": 0.05, "delay": 0.001}) as peer:
        wishes = [(role, choice("congestion", names[i % 3])) for i in range(10) for role in (SENDER, RECEIVER)]
        asker = Asker(peer.connection, wishes)
        peer.echo(blob(400_000), each=asker.poll, seconds=40)
        peer.until(lambda: asker.poll() is None and asker.idle(), 20, "the exchanges")
        outcomes = [o[1] for o in asker.outcomes]
        expect(outcomes == ["accepted"] * 20, f"outcomes {outcomes}")
        peer.echo()


@case("exchange: refusals, which change nothing")
def refusals(home, server):
    unknown = {"function": 4, "mechanism": 200, "parameters": [0, 0, 0, 0]}
    elsewhere = {"function": 99, "mechanism": 1, "parameters": [0, 0, 0, 0]}
    wide = choice("fec", "xor", 65)
    lonely = {"function": 1, "mechanism": 1, "parameters": [64, 0, 0, 0]}  # lz4 without messages
    open_ = {"function": 12, "mechanism": 0, "parameters": [0, 0, 0, 0]}
    wishes = [(SENDER, unknown, 1), (RECEIVER, unknown, 1), (SENDER, elsewhere, 1), (SENDER, wide, 2), (RECEIVER, wide, 2),
              (RECEIVER, lonely, 3), (SENDER, open_, 4), (SENDER, choice("flow", "none"), 5),
              (RECEIVER, choice("congestion", "none"), 5), (RECEIVER, choice("timing", "fixed", 1), 5),
              (RECEIVER, choice("acknowledgement", "delayed", 200, 1000), 5)]
    with Peer(server(*PLAIN)) as peer:
        c = peer.connection
        for role, wish, reason in wishes:
            asker = Asker(c, [(role, wish)])
            peer.until(lambda: asker.poll() is None and asker.idle(), 20, f"the answer to {wish}")
            outcome = asker.outcomes[0]
            expect(outcome[1] == "refused", f"{wish} was {outcome[1]}")
            expect(outcome[3][:2] == (wish["function"], reason), f"{role}, {wish}: refused with {outcome[3]}, not {reason}")
        expect(c.tx.exchange.in_use == {0: 0} and sorted(c.rx.epochs) == [0], "something is in use that was refused")
        peer.echo()


@case("exchange: requests that cross")
def crossing(home, server):
    # The stock server performs another timing than is proposed, and asks for that at once (selection.md S-40).
    proposal = [c for c in standard() if c["function"] != 7] + [choice("timing", "fixed", 10)]
    crossed = 0
    for number in range(3):
        with Peer(server(*PLAIN), incoming=proposal, wait=False, relay={"delay": 0.01, "seed": number}) as peer:
            c = peer.connection
            peer.until(lambda: c.state == "connected", 10, "the handshake")
            asker = Asker(c, [(RECEIVER, choice("acknowledgement", "per-packet"))])
            asker.poll()
            expect(c.rx.exchange.asking is not None, "this end did not ask")
            peer.until(lambda: asker.idle() and asker.poll() is None and c.rx.exchange.in_use[0] > 0, 10, "the exchanges")
            crossed += any(o[1] == "withdrawn" for o in asker.outcomes)
            expect(c.rx.exchange.in_use[0] == 2, f"epoch {c.rx.exchange.in_use[0]} has won, not the sender's")
            peer.echo(blob(30_000))
    expect(crossed == 3, f"{crossed} of 3 requests crossed")


@case("exchange: the stock client asks for what we lack")
def stock_asks(home, server):
    everything = [[m.function, m.number] for m in BY_NUMBER.values()]  # That is what our Hello says that we have.
    ours, data = OurServer(mechanisms=everything), blob(200_000)
    status, out, said = ours.stock_client(home, data, "--profile", "acknowledgement=every")
    answers = [c.tx.exchange.answer or c.rx.exchange.answer for c in ours.seen]
    ours.close()
    expect(status == 0 and out == data, f"status {status}: {said}")
    expect(answers and answers[0] and answers[0][1]["frame"] == "NAK-PF" and answers[0][1]["reason"] == 1,
           f"we answered {answers}")


@case("exchange: we ask the stock client, and it asks us")
def both_ask(home, server):
    wishes = [(SENDER, choice("congestion", "new-reno")), (RECEIVER, choice("acknowledgement", "per-packet")),
              (SENDER, choice("fec", "xor", 4, 2)), (RECEIVER, choice("congestion", "bbr"))]
    ours, data = OurServer(wishes=wishes), blob(600_000)
    relay = Relay(("127.0.0.1", ours.endpoint.port), 5, loss=0.03, reorder=0.03)
    status, out, said = ours.stock_client(home, data, "--profile", "acknowledgement=every", relay=relay, seconds=40)
    outcomes = [o[1] for a in ours.serving.askers.values() for o in a.outcomes]
    relay.close()
    ours.close()
    expect(status == 0 and out == data, f"status {status}: {said}")
    expect(len(outcomes) == 4 and outcomes.count("accepted") >= 2, f"outcomes {outcomes}")


@case("exchange: the stock client asks for what we have, and uses it")
def stock_asks_well(home, server):
    for text in ("detection=parity", "detection=crc-32"):  # Optional ones: it asks for them in flight (selection.md S-41).
        ours, data = OurServer(), blob(100_000)
        relay = Relay(("127.0.0.1", ours.endpoint.port), 8, loss=0.03, reorder=0.03)
        status, out, said = ours.stock_client(home, data, "--profile", text, relay=relay)
        c = ours.seen[0]
        used = c.rx.epochs[max(c.rx.epochs)].profile["detection"]  # Of what the client sends.
        relay.close()
        ours.close()
        expect(status == 0 and out == data, f"status {status}: {said}")
        expect(used == text.split("=")[1], f"{used} is used")


@case("exchange: copies of requests and answers, and late requests")
def copies(home, server):
    with Peer(server(*PLAIN)) as peer:
        c, heard = peer.connection, peer.record("-PF")
        request = {"frame": "Request-PF", "direction": 0, "group": 0, "epoch": 4, "using": [0] + [None] * 7,
                   "profile": list(c.config.outgoing)}

        def said(frame):
            del heard[:]
            c.control.append(frame)
            peer.until(lambda: heard, 20, f"the answer to {frame}")
            return heard[-1]

        first = said(request)
        expect((first["frame"], first["epoch"]) == ("ACK-PF", 4), f"{first}")
        expect(said(request) == first, "a copy of the request is answered otherwise")
        stale = said(request | {"epoch": 2})
        expect((stale["frame"], stale["highest_epoch"]) == ("Stale-PF", 4), f"{stale}")
        c.control.append({"frame": "Confirm-PF", "direction": 0, "epoch": 4})
        # This end's own request, whose answer is lost for it: the other end repeats it, and hears the Confirm.
        asker = Asker(c, [(RECEIVER, choice("congestion", "new-reno"))])
        peer.until(lambda: asker.poll() is None and asker.idle(), 20, "the exchange")
        del heard[:]
        peer.pause(0.3)
        expect(not heard, f"something is repeated that was confirmed: {heard}")


@case("exchange: an answer that is not confirmed is repeated")
def unconfirmed(home, server):
    with Peer(server(*PLAIN)) as peer:
        c, heard = peer.connection, peer.record("-PF")
        c.control.append({"frame": "Request-PF", "direction": 0, "group": 0, "epoch": 2, "using": [0] + [None] * 7,
                          "profile": list(c.config.outgoing)})
        peer.until(lambda: len(heard) >= 3, 20, "three copies of the answer")
        expect(all(f == {"frame": "ACK-PF", "direction": 1, "epoch": 2} for f in heard), f"{heard}")
        peer.echo()


@case("exchange: a group of flows with a profile of its own")
def groups(home, server):
    with Peer(server(*WILLING), relay={"loss": 0.05, "delay": 0.001}) as peer:
        c = peer.connection
        own = [v for v in c.config.outgoing if v["function"] != 5] + [choice("retransmission", "go-back-n")]
        expect(c.ask(SENDER, own, group=1), "the request has to wait")
        peer.until(lambda: c.tx.current(1) is not None, 20, "the group")
        peer.echo(blob(100_000), group=1)
        peer.echo(blob(100_000))


@case("first profile: what everybody has")
def first_profiles(home, server):
    for function, name in (("protection", "chacha20-poly1305"), ("detection", "crc-32c"), ("fec", "reed-solomon"),
                           ("retransmission", "go-back-n"), ("acknowledgement", "poll-status"), ("congestion", "bbr"),
                           ("acknowledgement", "piggybacked"), ("fec", "xor")):
        value = choice(function, name)
        profile = [c for c in standard() if c["function"] != value["function"]] + [value]
        with Peer(server(*PLAIN), outgoing=profile, incoming=list(profile), relay={"loss": 0.03, "delay": 0.001}) as peer:
            peer.echo(blob(60_000))


@case("first profile: nothing named but what has to be")
def least_profile(home, server):
    names = {"flow", "rate", "congestion", "timing", "protection", "retransmission"}
    numbers = {next(iter(FUNCTIONS[n].values())).function for n in names}
    profile = [c for c in standard() if c["function"] in numbers]
    with Peer(server(*PLAIN), outgoing=profile, incoming=list(profile)) as peer:
        expect(peer.connection.tx.current().profile["acknowledgement"] == "per-packet", "the default is another")
        peer.echo(blob(100_000))

