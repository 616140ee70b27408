"""Whatever keeps the rules, at random from a seed: loss, reordering, moves, exchanges of both ends, many flows."""

import os
import random

from . import pipe
from .cases import ALL, FRAGILE, WILLING
from .exchange import RECEIVER, SENDER
from .flows import ReceiveHalf, SendHalf
from .frames import span
from .profile import FUNCTIONS, choice
from .programs import Asker
from .relay import Relay
from .stock import OurServer, Peer, expect

#: What a service of bytes outlives, whatever is lost; parameters that are drawn beside the defaults.
MECHANISMS = [
    ("fec", "none"), ("fec", "xor"), ("fec", "xor", 2, 1), ("fec", "xor", 64, 16, 1), ("fec", "reed-solomon"),
    ("fec", "reed-solomon", 64, 32), ("fec", "reed-solomon", 2, 1, 0, 1), ("retransmission", "go-back-n"),
    ("retransmission", "selective"), ("acknowledgement", "per-packet"), ("acknowledgement", "delayed"),
    ("acknowledgement", "delayed", 1, 1), ("acknowledgement", "poll-status"), ("acknowledgement", "piggybacked"),
    ("flow", "credit"), ("flow", "none"), ("rate", "pacing-bucket"), ("congestion", "new-reno"), ("congestion", "cubic"),
    ("congestion", "bbr"), ("detection", "none"), ("detection", "internet-16"), ("detection", "crc-32c"),
    ("protection", "aes-128-gcm"), ("protection", "chacha20-poly1305"), ("segmentation", "messages"),
    ("segmentation", "bytes"), ("timing", "jacobson"), ("sequencing", "ordered"),
]


def seeds():
    """Seeds of the torture: UTS_INTEROP_SEEDS has the first and how many, as `100+50`."""
    first, _, count = os.environ.get("UTS_INTEROP_SEEDS", "0+4").partition("+")
    return range(int(first), int(first) + int(count or 1))


def all_cases():
    drawn = [(f"torture: seed {seed}, our {end}", case(seed)) for seed in seeds()
             for end, case in (("client", as_client), ("server", as_server))]
    return [("torture: flows cut up, mixed and given up", halves), *drawn]


def draw(chance, count):
    """Wishes for exchanges."""
    found = []
    for _ in range(count):
        function, name, *parameters = chance.choice(MECHANISMS)
        assert name in FUNCTIONS[function] and f"{function}={name}" not in FRAGILE
        found.append((chance.choice((SENDER, RECEIVER)), choice(function, name, *parameters)))
    return found


def path(chance):
    return {"seed": chance.random(), "loss": chance.choice((0, 0.02, 0.1, 0.2)), "reorder": chance.choice((0, 0.02, 0.2)),
            "delay": chance.choice((0.0005, 0.005, 0.02))}


def as_client(seed):
    def run(home, server):
        chance = random.Random(seed)
        willing, way, wishes = chance.random() < 0.7, path(chance), draw(chance, 12)
        with Peer(server(*WILLING) if willing else server(), relay=way, seed=seed, consents=ALL, patience=30) as peer:
            c, data = peer.connection, chance.randbytes(60_000)
            asker, waiting, streams = Asker(c, wishes), 4, []
            moves = [chance.randrange(3) for _ in range(4)]

            def step():
                nonlocal waiting
                asker.poll()
                if waiting and len([s for s, _ in streams if not s.done()]) < 2:
                    waiting -= 1
                    stream = pipe.Client(c.open_flow(), "echo")
                    stream.write(data)
                    stream.finish()
                    streams.append((stream, bytearray()))
                    if moves[waiting] == 1:
                        peer.relay.move()
                for stream, got in streams:
                    got.extend(stream.poll())
                return not waiting and all(s.done() for s, _ in streams) and asker.idle()

            peer.until(step, 60, f"seed {seed}, {way}")
            for stream, got in streams:
                expect(stream.failed is None and bytes(got) == data, f"seed {seed}: {stream.failed}, {len(got)} bytes")
            lost = [o for o in asker.outcomes if o[1] not in ("accepted", "refused", "withdrawn")]
            expect(not lost, f"seed {seed}: {lost}")

    return run


def as_server(seed):
    def run(home, server):
        chance = random.Random(seed)
        way, wishes, data = path(chance), draw(chance, 8), chance.randbytes(200_000)
        ours = OurServer(wishes=wishes, consents=ALL, retry=chance.random() < 0.5)
        relay, moved = Relay(("127.0.0.1", ours.endpoint.port), **way), []

        def each():
            streams = [s for _, s in ours.serving.streams]
            if not moved and streams and streams[0].received > 100_000:
                moved.append(True)
                relay.move()

        asked = chance.choice(("acknowledgement=delayed", "detection=parity", "detection=crc-32", "fec=xor"))
        options = ("--profile", asked)
        consent = ("--property", "uts.consent=all", "--patience", "30s")
        status, out, said = ours.stock_client(home, data, *options, *consent, relay=relay, each=each, seconds=60)
        relay.close()
        ours.close()
        expect(status == 0 and out == data, f"seed {seed}, {way}: status {status}, {len(out)} bytes: {said}")

    return run


def halves(home, server):
    """Both halves of a flow, without a connection: what is not given up arrives once, and the end is told."""
    for seed in range(200):
        chance = random.Random(seed)
        ordered, messages, gives_up = chance.random() < 0.5, chance.random() < 0.8, chance.random() < 0.5
        said = [chance.randbytes(chance.choice((0, 1, 5, 60, 300))) for _ in range(chance.randrange(1, 12))]
        sender, receiver, cut, heard = SendHalf(0, 1 << 30), ReceiveHalf(0, None, None), [], []
        for content in said:
            sender.write(content, messages)
        sender.finish()
        while frame := sender.next_frame(chance.choice((24, 30, 60, 400)), None):
            cut.append(frame)
        events = [(True, frame) for frame in cut if frame["FIN"] or not gives_up or chance.random() < 0.7]
        for frame in cut:
            if (True, frame) not in events:
                events += [(False, run) for run in sender.give_up(*span(frame))]
        chance.shuffle(events)
        for arrives, what in events + [e for e in events if e[0] and chance.random() < 0.2]:
            receiver.take(what) if arrives else receiver.skip(*what)
            heard += [e for e in receiver.read(ordered) if e[1] is not None or e[0] == "end"]
        got, whole, at = [content for _, content in heard[:-1]], [], 0
        for content in said:
            if not messages or sender.given_up.missing(at, at + len(content) + 1) == [(at, at + len(content) + 1)]:
                whole.append(content)
            at += len(content) + messages
        expect(heard and heard[-1] == ("end", None), f"seed {seed}: the end was not told")
        if messages:
            expect(got == whole if ordered else sorted(got) == sorted(whole), f"seed {seed}: other messages")
        elif ordered and not gives_up:
            expect(b"".join(got) == b"".join(said), f"seed {seed}: other bytes")
