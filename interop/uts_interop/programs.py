"""The client and the server as programs."""

import os
import socket
import sys
import time
from argparse import ArgumentTypeError

from . import pipe, tls
from .connection import Config
from .endpoint import Endpoint
from .exchange import RECEIVER, SENDER
from .profile import FUNCTIONS, choice


def parse_choice(text):
    """`fec=xor(8,2)` as a choice; raises argparse.ArgumentTypeError."""
    function, _, rest = text.partition("=")
    name, _, values = rest.rstrip(")").partition("(")
    if name not in FUNCTIONS.get(function, {}):
        raise ArgumentTypeError(f"no mechanism {text}: expected FUNCTION=MECHANISM(NUMBERS), as functions.toml names them")
    params = FUNCTIONS[function][name].params
    numbers = [v for v in values.split(",") if v]
    if len(numbers) > len(params) or not all(v.strip().isdigit() for v in numbers):
        raise ArgumentTypeError(f"{text}: expected at most {len(params)} numbers: {', '.join(p['name'] for p in params)}")
    for param, number in zip(params, numbers):
        if not param["min"] <= int(number) <= param["max"]:
            raise ArgumentTypeError(f"{text}: {param['name']} is from {param['min']} to {param['max']}")
    return choice(function, name, *map(int, numbers))


def parse_mechanism(text):
    """`flow/none` as function and mechanism."""
    function, _, name = text.partition("/")
    if name not in FUNCTIONS.get(function, {}):
        raise ArgumentTypeError(f"no mechanism {text}: expected FUNCTION/MECHANISM, as functions.toml names them")
    return function, name


def parse_server(text):
    """`HOST:PORT` as an address that a socket takes."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ArgumentTypeError(f"{text}: expected HOST:PORT, of IPv6 [HOST]:PORT")
    try:
        return socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0][4][:2]
    except OSError as error:
        raise ArgumentTypeError(f"{host}: {error.strerror}") from None


def make_config(options, **more):
    config = Config(service="pipe", idle=options.idle, seed=options.seed, consents=set(options.consent), **more)
    for value in options.first:
        for profile in (config.outgoing, config.incoming):
            profile[:] = [c for c in profile if c["function"] != value["function"]] + [value]
    return config


def wished(options):
    return [(SENDER, value) for value in options.ask_sending] + [(RECEIVER, value) for value in options.ask_receiving]


class Asker:
    """Asks for profiles in mid-connection, one after another, and waits for each outcome."""

    def __init__(self, connection, wishes):
        self.connection, self.wishes, self.outcomes = connection, list(wishes), []

    def poll(self):
        c = self.connection
        for direction, role in ((c.tx, SENDER), (c.rx, RECEIVER)):
            for what, number, detail in direction.news:
                self.outcomes.append((role, what, number, detail))
            direction.news = []
        if self.wishes:
            role, wish = self.wishes[0]
            direction = c.tx if role == SENDER else c.rx
            current = direction.epochs[direction.exchange.in_use[0]].profile
            if c.ask(role, current.replaced(wish)):
                self.wishes.pop(0)

    def idle(self):
        c = self.connection
        return not self.wishes and not any(d.exchange.asking or d.exchange.waiting is not None for d in (c.tx, c.rx))


def client(options):
    """Carries standard input, all of it once it has ended, to a service, and what that says to standard output."""
    config = make_config(options, pin=options.pin, patience=options.patience)
    if options.key:
        config.identity = tls.identity()
    endpoint = Endpoint(host="::" if ":" in options.server[0] else "0.0.0.0")
    connection = endpoint.connect(options.server, config)
    if not endpoint.run(lambda: connection.confirmed or connection.state not in ("handshake", "connected"), 60):
        connection.end("no answer")
    if connection.state != "connected":
        print(f"uts_interop: no connection: {connection.reason}", file=sys.stderr)
        return 1
    stream = pipe.Client(connection.open_flow(), options.service)
    stream.write(sys.stdin.buffer.read())
    stream.finish()
    asker = Asker(connection, wished(options))

    def step():
        if connection.state == "connected":
            asker.poll()
            sys.stdout.buffer.write(stream.poll())
        return connection.state != "connected" or stream.done() and asker.idle()

    done = endpoint.run(step, options.time)
    sys.stdout.buffer.flush()
    for role, what, number, detail in asker.outcomes:
        print(f"uts_interop: epoch {number} of the {role}: {what}{'' if detail is None else f' {detail}'}", file=sys.stderr)
    failed = stream.failed or (None if done else "out of time") or (connection.reason if not stream.ended else None)
    endpoint.run(lambda: not connection.flows, 1)
    connection.close(0, "")
    endpoint.run(lambda: False, 0.05)
    endpoint.close()
    if failed:
        print(f"uts_interop: {failed}", file=sys.stderr)
    return 1 if failed else 0


def server(options):
    """Serves the service `echo` to stock clients until it is ended."""
    identity = tls.identity()
    config = make_config(options, identity=identity, want_client=options.want_client)
    endpoint = Endpoint(config, options.host, options.port, options.retry)
    print(f"serving echo at {options.host}:{endpoint.port}, key {tls.fingerprint(identity[1])}", flush=True)
    end = time.monotonic() + options.time
    serving = Serving(endpoint, options)
    while time.monotonic() < end and os.getppid() != 1:
        endpoint.step(0.05)
        serving.poll()
    return 0


class Serving:
    """What a server does for its clients."""

    def __init__(self, endpoint, options=None):
        self.endpoint, self.streams, self.askers = endpoint, [], {}
        self.wishes = wished(options) if options else []

    def poll(self):
        for connection in self.endpoint.accepted:
            while connection.new_flows:
                self.streams.append((connection, pipe.Server(connection.new_flows.pop(0))))
            if connection.state == "connected" and connection not in self.askers:
                self.askers[connection] = Asker(connection, self.wishes)
            if connection.state == "connected":
                self.askers[connection].poll()
        for connection, stream in self.streams:
            stream.poll()
        self.streams = [(c, s) for c, s in self.streams if c.state in ("handshake", "connected") and s.flow.id in c.flows]
        self.endpoint.accepted = [c for c in self.endpoint.accepted if c.state in ("handshake", "connected")]
