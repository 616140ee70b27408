"""UTS for Python beside aioquic and qh3, all with asyncio, over the loopback of this machine.

A server and a client are a process each. Each round has all libraries, one after the other, so that what else the machine
does is the same for both. Rates are given as medians with quartiles, and as ratios of the medians.
"""

import argparse
import asyncio
import importlib
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

PIECE = 1 << 20
BULK, REQUESTS, HANDSHAKES = 64 << 20, 1000, 100
LIBRARIES = ("uts", "aioquic", "qh3")
#: What is measured, and its unit.
MEASURES = {"bulk": "MB/s", "requests": "1/s", "handshakes": "1/s"}
#: Windows of aioquic and of qh3, which has come from it. Their own of 1 MiB hold them up.
WINDOWS = {"max_data": 64 << 20, "max_stream_data": 64 << 20}
#: Seconds after which a process is given up.
PATIENCE = 300


async def serve_uts(_):
    import uts

    listener = uts.listen("127.0.0.1:0", identity="ephemeral")
    print(json.dumps({"address": listener.address, "pin": listener.fingerprint}), flush=True)

    async def answer(flow):
        room = bytearray(1 << 20)
        while await flow.readinto(room):
            pass
        await flow.write(b"ok")
        await flow.finish()
        await flow.finished()

    async def carry(connection):
        async with connection:
            async for flow in connection.flows():
                keep(answer(flow))

    async for connection in listener:
        keep(carry(connection))


class Uts:
    """A client."""

    async def connect(self, server):
        import uts

        self.connection = await uts.connect(server["address"], pin=server["pin"])

    async def ask(self, data):
        flow = await self.connection.open_flow()
        await flow.write(data)
        await flow.finish()
        return await flow.read()

    async def close(self):
        self.connection.close()


def quic(library, **settings):
    """The calls of a library of QUIC, and its settings for an end."""
    configuration = importlib.import_module(f"{library}.quic.configuration")
    settings = {"alpn_protocols": ["bench"], **WINDOWS, **settings}
    return importlib.import_module(f"{library}.asyncio"), configuration.QuicConfiguration(**settings)


async def serve_quic(library, directory):
    def on_stream(reader, writer):
        async def answer():
            while await reader.read(1 << 20):
                pass
            writer.write(b"ok")
            writer.write_eof()

        keep(answer())

    calls, configuration = quic(library, is_client=False)
    configuration.load_cert_chain(*certificate(library, directory))
    server = await calls.serve("127.0.0.1", 0, configuration=configuration, stream_handler=on_stream)
    address = server._transport.get_extra_info("sockname")
    print(json.dumps({"address": list(address)}), flush=True)
    await asyncio.Event().wait()


class Quic:
    """A client of aioquic, or of qh3."""

    def __init__(self, library):
        self.library = library

    async def connect(self, server):
        calls, configuration = quic(self.library, is_client=True, verify_mode=ssl.CERT_NONE)
        self.context = calls.connect(*server["address"], configuration=configuration)
        self.protocol = await self.context.__aenter__()

    async def ask(self, data):
        reader, writer = await self.protocol.create_stream()
        for at in range(0, len(data), PIECE):
            writer.write(data[at : at + PIECE])
        writer.write_eof()
        return await reader.read()

    async def close(self):
        self.protocol.close()


def certificate(library, directory):
    """Files of a certificate and its key: of the kind that a server of UTS has, or of P-256, where qh3 signs with nothing else."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    is_short = library != "qh3"
    key = Ed25519PrivateKey.generate() if is_short else ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(1))
    paths = [os.path.join(directory, file) for file in ("certificate.pem", "key.pem")]
    pem = serialization.Encoding.PEM
    contents = made.sign(key, None if is_short else hashes.SHA256()).public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for path, content in zip(paths, contents):
        with open(path, "wb") as file:
            file.write(content)
    return paths


TASKS = set()


def keep(work):
    """Runs something beside the rest, and holds it until it has ended."""
    task = asyncio.ensure_future(work)
    TASKS.add(task)
    task.add_done_callback(TASKS.discard)


async def measure(library, server, scale):
    """Rates of a client, in the units of `MEASURES`."""
    def kind():
        return Uts() if library == "uts" else Quic(library)

    client = kind()
    await client.connect(server)
    expected(await client.ask(b"first"))
    rates = {}
    data = bytes(BULK // scale)
    began = time.perf_counter()
    expected(await client.ask(data))
    rates["bulk"] = len(data) / 1e6 / (time.perf_counter() - began)
    began = time.perf_counter()
    for _ in range(REQUESTS // scale):
        expected(await client.ask(b"r" * 100))
    rates["requests"] = REQUESTS // scale / (time.perf_counter() - began)
    await client.close()
    began = time.perf_counter()
    for _ in range(HANDSHAKES // scale):
        client = kind()
        await client.connect(server)
        await client.close()
    rates["handshakes"] = HANDSHAKES // scale / (time.perf_counter() - began)
    print(json.dumps(rates), flush=True)
    # What is still to be closed is of no interest.
    os._exit(0)


def expected(answer):
    if bytes(answer) != b"ok":
        raise SystemExit(f"the answer is {bytes(answer)[:20]!r}, where b'ok' was expected")


def round_of(library, scale, directory):
    """One server, one client; the client's rates."""
    program = [sys.executable, os.path.abspath(__file__), "--as", library, "--directory", directory]
    server = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    try:
        place = server.stdout.readline()
        if not place:
            raise SystemExit(f"the server of {library} does not begin")
        client = subprocess.run(
            [*program, "--scale", str(scale), "--server", place], stdout=subprocess.PIPE, text=True, timeout=PATIENCE
        )
        if client.returncode or not client.stdout:
            raise SystemExit(f"the client of {library} has failed")
        return json.loads(client.stdout)
    finally:
        server.kill()
        server.wait()


def table(rounds):
    heads = [word for library in LIBRARIES for word in (library, "ratio")]
    heads.remove("ratio")
    lines = [f"| | {' | '.join(heads)} |", "| --- " * (len(heads) + 1) + "|"]
    for measure, unit in MEASURES.items():
        cells, ours = [], None
        for library in LIBRARIES:
            values = sorted(rates[measure] for rates in rounds[library])
            low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
            cells.append(f"{median:.1f} ({low:.1f} to {high:.1f}) {unit}")
            # How many times as much UTS does.
            if ours is not None:
                cells.append(f"{ours / median:.1f}")
            ours = ours or median
        lines.append(f"| {measure} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="bench/python", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all libraries [default: 5]")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, in two rounds")
    for hidden in ("--as", "--directory", "--server"):
        parser.add_argument(hidden, help=argparse.SUPPRESS, dest=hidden.strip("-") + "_")
    parser.add_argument("--scale", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_ and arguments.server_:
        return asyncio.run(measure(arguments.as_, json.loads(arguments.server_), arguments.scale))
    if arguments.as_:
        directory = arguments.directory_
        return asyncio.run(serve_uts(directory) if arguments.as_ == "uts" else serve_quic(arguments.as_, directory))
    if arguments.rounds < 1:
        parser.error(f"--rounds: {arguments.rounds}, where at least 1 was expected")
    rounds = {library: [] for library in LIBRARIES}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(2 if arguments.quick else arguments.rounds):
            for library in LIBRARIES:
                rates = round_of(library, 10 if arguments.quick else 1, directory)
                rounds[library].append(rates)
                told = ", ".join(f"{rates[measure]:.1f} {unit} {measure}" for measure, unit in MEASURES.items())
                print(f"round {number + 1}, {library}: {told}", file=sys.stderr)
    print(table(rounds))


if __name__ == "__main__":
    main()
