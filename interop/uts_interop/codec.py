"""Numbers and byte strings as they stand on the wire (packets.md, Basics)."""


class WireError(Exception):
    """A breach of the format: its kind, the field, and where the field begins, in bytes."""

    def __init__(self, kind, what, at):
        super().__init__(f"{kind} {what} at {at}")
        self.kind, self.what, self.at = kind, what, at


class Reader:
    """Reads fields from `data`, from `at` up to `end`."""

    def __init__(self, data, at=0, end=None):
        self.data, self.at = data, at
        self.end = len(data) if end is None else end

    def left(self):
        return self.end - self.at

    def bytes(self, count, what):
        if count > self.left():
            raise WireError("truncated", what, self.at)
        self.at += count
        return bytes(self.data[self.at - count : self.at])

    def uint(self, size, what):
        return int.from_bytes(self.bytes(size, what), "big")

    def varint(self, what, below=1 << 62):  # P-1
        start = self.at
        if self.left() < 1:
            raise WireError("truncated", what, start)
        size = 1 << (self.data[start] >> 6)
        if self.left() < size:
            raise WireError("truncated", what, start)
        value = int.from_bytes(self.data[start : start + size], "big") & ((1 << (8 * size - 2)) - 1)
        self.at += size
        if value >= below:
            raise WireError("value", what, start)
        return value

    def counted(self, what, most, least=0, kind="too-long"):
        """Bytes behind their length."""
        start = self.at
        count = self.varint(what)
        if count > most or count < least:
            raise WireError(kind, what, start)
        return self.bytes(count, what)

    def text(self, what, most):
        start = self.at
        try:
            return self.counted(what, most).decode()
        except UnicodeDecodeError:
            raise WireError("not-text", what, start) from None


def varint(value):  # P-1
    for bits, size in ((6, 1), (14, 2), (30, 4), (62, 8)):
        if value < 1 << bits:
            return (value | (size.bit_length() - 1) << (8 * size - 2)).to_bytes(size, "big")
    raise ValueError(f"{value} is not below 2^62")


def counted(data):
    return varint(len(data)) + data
