"""Hellos (packets.md P-50 to P-52). A Hello is a dict from item numbers to values."""

from .codec import Reader, WireError, counted, varint
from .profile import read_profile, write_profile

#: Numbers of items: what they hold, their name, and the least and most of a number or a length.
ITEMS = {
    1: ("versions", "versions", 1, 16),
    2: ("bytes", "initial source connection id", 0, 20),
    3: ("bytes", "original destination connection id", 0, 20),
    4: ("bytes", "retry source connection id", 0, 20),
    5: ("pairs", "mechanisms", 0, 256),
    6: ("number", "flows", 0, (1 << 32) - 1),
    7: ("number", "first credit", 0, (1 << 62) - 1),
    8: ("number", "idle time-out", 0, (1 << 32) - 1),
    9: ("number", "largest UDP payload", 1200, 65535),
    10: ("number", "longest delay", 0, 65535),
    11: ("number", "memory for FEC", 0, (1 << 32) - 1),
    12: ("bytes", "stateless reset token", 16, 16),
    13: ("profile", "first profile out", 0, 0),
    14: ("profile", "first profile in", 0, 0),
    15: ("flag", "unprotected", 0, 0),
    16: ("text", "service", 0, 64),
    17: ("flag", "messages of one length", 0, 0),
    18: ("number", "ids", 0, 255),
    19: ("flag", "expedited", 0, 0),
    20: ("number", "first credit of the connection", 0, (1 << 62) - 1),
    21: ("flag", "envelopes", 0, 0),
    22: ("ticket", "ticket", 1, 128),
}
MANDATORY = (1, 2, 5, 6, 7, 8, 9, 10, 11)
#: Items of one end only, and those of them that it must have.
ONLY = {"server": (3, 4, 12, 22), "client": (13, 14)}
NEEDED = {"server": (3,), "client": (13, 14)}


def decode(data, sender):
    """The items of the Hello of `sender` ("client" or "server"); raises WireError."""
    reader, hello, places = Reader(data), {}, {}
    while reader.left():
        start = reader.at
        number, length = reader.varint("item"), reader.varint("item")
        if length > reader.left():
            raise WireError("truncated", "item", reader.at)
        end = reader.at + length
        if number in hello:
            raise WireError("duplicate", "item", start)
        if number in ITEMS:
            hello[number], places[number] = _value(Reader(data, reader.at, end), *ITEMS[number]), start
        reader.at = end
    for number in sorted(hello):
        for end in ("client", "server"):
            if number in ONLY[end] and end != sender:
                raise WireError("misplaced", ITEMS[number][1], places[number])
    for number in sorted(MANDATORY + NEEDED[sender]):
        if number not in hello:
            raise WireError("missing", ITEMS[number][1], len(data))
    return hello


def _value(reader, kind, what, least, most):
    start, size = reader.at, reader.left()
    if kind == "number":
        value = reader.varint(what)
        if not least <= value <= most:
            raise WireError("value", what, start)
    elif kind in ("bytes", "text"):
        if not least <= size <= most:
            raise WireError("too-long" if size > most else "truncated", what, start)
        value = reader.bytes(size, what) if kind == "bytes" else _text(reader, what)
    elif kind == "versions":
        if size % 4 or not size:
            raise WireError("truncated", what, start)
        value = [reader.bytes(4, what) for _ in range(size // 4)]
        if len(value) > most:
            raise WireError("too-long", what, start)
    elif kind == "pairs":
        value = _pairs(reader, what, most)
    elif kind == "ticket":
        value = _ticket(reader, what, most)
    else:
        value = read_profile(reader) if kind == "profile" else None
    if reader.left():
        raise WireError("trailing", "item", reader.at)
    return value


def _text(reader, what):
    start = reader.at
    try:
        return reader.bytes(reader.left(), what).decode()
    except UnicodeDecodeError:
        raise WireError("not-text", what, start) from None


def _ticket(reader, what, most):
    value = {"lifetime": reader.uint(4, what), "secret": reader.bytes(32, what)}
    start = reader.at
    if not reader.left():
        raise WireError("missing", what, start)
    if reader.left() > most:
        raise WireError("too-long", what, start)
    return value | {"words": reader.bytes(reader.left(), what)}


def _pairs(reader, what, most):
    value = []
    while reader.left():
        start = reader.at
        pair = list(reader.bytes(2, what))
        if pair in value:
            raise WireError("duplicate", what, start)
        value.append(pair)
    if len(value) > most:
        raise WireError("too-long", what, reader.at)
    return value


def encode(hello):
    out = b""
    for number, value in sorted(hello.items()):
        kind = ITEMS[number][0]
        if kind == "number":
            content = varint(value)
        elif kind == "profile":
            content = write_profile(value)
        elif kind in ("versions", "pairs"):
            content = b"".join(map(bytes, value))
        elif kind == "ticket":
            content = value["lifetime"].to_bytes(4, "big") + value["secret"] + value["words"]
        else:
            content = {"flag": lambda: b"", "text": value.encode if kind == "text" else None, "bytes": lambda: value}[kind]()
        out += varint(number) + counted(content)
    return out
