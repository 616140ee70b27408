"""The stock programs, as black boxes, and a TCP service for them to reach."""

import os
import re
import socket
import subprocess
import tempfile
import threading
import time

from . import pipe
from .connection import Config
from .endpoint import Endpoint
from .relay import Relay


class Failure(Exception):
    """A case that did not go as the pages say."""


def expect(condition, text):
    if not condition:
        raise Failure(text)


def cases():
    """A list of cases, and a decorator that puts a function into it under a name."""
    found = []

    def case(name):
        def add(function):
            found.append((name, function))
            return function

        return add

    return found, case


class Echo:
    """A TCP service that says back what it hears, in threads of its own."""

    def __init__(self):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(64)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    @staticmethod
    def _serve(connection):
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass


class Home:
    """A home of its own for the stock programs, so that nothing of the user's is read or written."""

    def __init__(self, program):
        self.program = os.path.abspath(program)
        self.directory = tempfile.TemporaryDirectory(prefix="uts-interop-")
        base = self.directory.name
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("UTS_", "XDG_", "QLOG"))}
        self.environment |= {"HOME": base, "XDG_CONFIG_HOME": base + "/config", "TMPDIR": base}
        self.echo = Echo()

    def run(self, *arguments, **more):
        return subprocess.Popen([self.program, *arguments], env=self.environment, **more)


class Server:
    """`uts serve` with a service `echo`."""

    def __init__(self, home, *options, port=0):
        self.home = home
        who = [] if "--authorized-keys" in options else ["--anyone"]
        self.process = home.run("serve", "--pipe", f"echo={home.echo.port}", "--listen", f"127.0.0.1:{port}", *who, *options,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if found := re.search(r"at 127\.0\.0\.1:(\d+).*(SHA256:[A-Za-z0-9+/]{43})", line):
                self.port, self.pin = int(found[1]), found[2]
                break
        else:
            raise Failure(f"the stock server did not start: {self.lines}")
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    @property
    def address(self):
        return ("127.0.0.1", self.port)

    def lives(self):
        return self.process.poll() is None

    def stop(self, kill=False):
        self.process.kill() if kill else self.process.terminate()
        self.process.wait(10)


class Peer:
    """A client of ours and its connection; `relay` has the options of a Relay to stand in between."""

    def __init__(self, server, relay=None, wait=True, **options):
        options = {"service": "pipe", "pin": server.pin, "seed": 1} | options
        self.relay = Relay(server.address, **({"seed": 7} | relay)) if relay is not None else None
        self.endpoint = Endpoint()
        self.connection = self.endpoint.connect(self.relay.address if self.relay else server.address, Config(**options))
        if wait:
            self.until(lambda: self.connection.confirmed, 20, "the handshake")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.connection.state == "connected":
            self.connection.close()
        self.endpoint.run(lambda: False, 0.01)
        self.endpoint.close()
        if self.relay:
            self.relay.close()

    def until(self, condition, seconds, what):
        """Steps until something holds, or fails."""
        c = self.connection
        ends = ("closing", "draining", "closed")
        met = []

        def check():
            if condition():
                met.append(True)
            return met or c.state in ends

        done = self.endpoint.run(check, seconds)
        if not met:
            raise Failure(f"{what}: {c.reason or c.hint or c.state}" if done else f"{what}: nothing for {seconds} s")

    def record(self, ending):
        """A list that gets the frames of the peer whose names end so."""
        c, heard = self.connection, []
        act = c.on_frame

        def on_frame(frame, epoch, now):
            if frame["frame"].endswith(ending):
                heard.append(frame)
            act(frame, epoch, now)

        c.on_frame = on_frame
        return heard

    def pause(self, seconds):
        self.endpoint.run(lambda: False, seconds)

    def echo(self, data=b"still here", group=0, each=None, seconds=30, name="echo"):
        """Data to the service and back on a flow of its own."""
        flow = self.connection.open_flow(group)
        expect(flow is not None, "the bound of flows allows no further one")
        return self.echo_on(flow, data, each, seconds, name)

    def echo_on(self, flow, data, each=None, seconds=30, name="echo"):
        stream, got = pipe.Client(flow, name), bytearray()
        stream.write(data)
        stream.finish()

        def done():
            if each:
                each()
            got.extend(stream.poll())
            return stream.done()

        self.until(done, seconds, "the echo")
        expect(stream.failed is None, f"the stream failed: {stream.failed}")
        expect(bytes(got) == data, f"{len(data)} bytes went, {len(got)} others came back")
        return stream


class OurServer:
    """A server of ours in this process, for stock clients; `step()` runs it."""

    def __init__(self, retry=False, wishes=(), **options):
        from . import tls
        from .programs import Serving

        identity = tls.identity()
        self.pin = tls.fingerprint(identity[1])
        self.endpoint = Endpoint(Config(identity=identity, seed=3, **options), retry=retry)
        self.serving = Serving(self.endpoint)
        self.serving.wishes = list(wishes)
        self.seen = []

    def step(self):
        self.endpoint.step(0.02)
        self.seen += [c for c in self.endpoint.accepted if c not in self.seen]
        self.serving.poll()

    def check_served(self, home, who="the client", **options):
        """Runs a stock client that has to be served, and closes this server."""
        status, out, text = self.stock_client(home, b"hello", **options)
        self.close()
        expect(status == 0 and out == b"hello", f"{who}'s status is {status}: {text}")

    def stock_client(self, home, data, *options, seconds=20, relay=None, each=None, more=()):
        """Runs `uts pipe` against this server; its exit status, what it wrote, and what it said."""
        port = relay.address[1] if relay else self.endpoint.port
        process = home.run("pipe", "--pin", self.pin, *options, f"127.0.0.1:{port}", "echo", stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        result = {}

        def run():
            result["out"], result["err"] = process.communicate(data)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        end = time.monotonic() + seconds
        while thread.is_alive():
            if time.monotonic() > end:
                process.kill()
                thread.join()
                raise Failure(f"the stock client did not end in {seconds} s: {result.get('err', b'')[-300:]}")
            self.step()
            if each:
                each()
        for _ in range(5):  # What it said last may still be on the way.
            self.step()
        return process.returncode, result["out"], result["err"].decode(errors="replace")

    def close(self):
        self.endpoint.close()
