"""The service `pipe`: a flow that is carried on to a TCP service (streams.md T-1, T-3), with byte 1 in the request."""

from .codec import Reader, WireError

ANSWERS = {0: "there", 1: "not there", 2: "not permitted"}


def request(name):
    return b"\1" + bytes([len(name)]) + name.encode()


class Client:
    """A stream of a client, over a flow of a connection."""

    def __init__(self, flow, name):
        self.flow, self.answer, self.buffer = flow, None, b""
        self.ended, self.failed = False, None
        flow.send.write(request(name))

    def write(self, data):
        self.flow.send.write(data)

    def finish(self):
        self.flow.send.finish()

    def poll(self):
        """Takes what has come; returns the bytes of the service."""
        out = []
        for kind, content in self.flow.read():
            if kind == "bytes":
                out.append(self._take(content))
            elif kind in ("reset", "stopped"):
                self.failed = self.failed or f"{kind} with {content}"
            elif kind == "end":
                self.ended = True
        return b"".join(out)

    def _take(self, data):
        if self.answer is not None:
            return data if self.answer == "there" else b""
        self.buffer += data
        size = 2 + self.buffer[1] if len(self.buffer) > 1 else 2
        if len(self.buffer) < size:
            return b""
        self.answer = ANSWERS.get(self.buffer[0], "?")
        if self.answer != "there":
            self.failed = f"{self.answer}: {self.buffer[2:size].decode(errors='replace')}"
            return b""
        return self.buffer[size:]

    def done(self):
        return self.failed is not None or self.ended


class Server:
    """A stream of a server's: it answers a request, and says back whatever comes (a service called `echo`)."""

    def __init__(self, flow, services=("echo",)):
        self.flow, self.services = flow, services
        self.buffer, self.asked, self.received = b"", None, 0

    def poll(self):
        for kind, content in self.flow.read():
            if kind == "bytes":
                self._take(content)
            elif kind == "end" and self.flow.send.fin is None and not self.flow.send.reset:
                self.flow.send.finish()

    def _take(self, data):
        if self.flow.send.reset or self.flow.send.fin is not None:
            return
        if self.asked is None:
            self.buffer += data
            reader = Reader(self.buffer)
            try:
                kind = reader.uint(1, "kind")
                self.asked = reader.bytes(reader.uint(1, "length"), "service").decode(errors="replace")
            except WireError:
                return
            data = self.buffer[reader.at :]
            if kind != 1 or self.asked not in self.services:
                text = b"no such service"
                self.flow.send.write(b"\1" + bytes([len(text)]) + text)
                self.flow.send.finish()
                return
            self.flow.send.write(b"\0\0")
        if data:
            self.received += len(data)
            self.flow.send.write(data)
