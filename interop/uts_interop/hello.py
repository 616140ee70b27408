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
    23: ("numbers", "own numbers", 1, 32),
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
    elif kind == "numbers":
        value = _numbers(reader, most)
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


def _numbers(reader, most):  # P-67
    value = {"functions": [], "mechanisms": [], "named": []}
    taken, names = set(), set()
    for _ in range(reader.uint(1, "count of functions")):
        start, (function, own) = reader.at, _bytes(reader, 2, "number of a function")
        if own in taken or function in names:
            raise WireError("duplicate", "number of a function", start)
        value["functions"].append([function, own])
        taken.add(own), names.add(function)
    taken, names = set(), set()
    for _ in range(reader.uint(1, "count of mechanisms")):
        start, (function, mechanism, own) = reader.at, _bytes(reader, 3, "number of a mechanism")
        if (function, own) in taken or (function, mechanism) in names:
            raise WireError("duplicate", "number of a mechanism", start)
        value["mechanisms"].append([function, mechanism, own])
        taken.add((function, own)), names.add((function, mechanism))
    names = set()
    while reader.left():
        start, (function, own) = reader.at, _bytes(reader, 2, "number of a mechanism")
        name = _name(reader, most)
        if (function, own) in taken or (function, name) in names:
            raise WireError("duplicate", "named mechanism", start)
        value["named"].append([function, own, name])
        taken.add((function, own)), names.add((function, name))
    return value


def _bytes(reader, count, what):
    return [reader.uint(1, what) for _ in range(count)]


def _name(reader, most):
    start, size = reader.at, reader.uint(1, "length of a name")
    if not size:
        raise WireError("missing", "name of a mechanism", start)
    if size > most:
        raise WireError("too-long", "name of a mechanism", start)
    start, name = reader.at, reader.bytes(size, "name of a mechanism")
    for at, byte in enumerate(name):
        if byte not in b"abcdefghijklmnopqrstuvwxyz0123456789-":
            raise WireError("value", "name of a mechanism", start + at)
    return name.decode()


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
        elif kind == "numbers":
            content = b"".join(bytes([len(value[of])]) + b"".join(map(bytes, value[of]))
                               for of in ("functions", "mechanisms"))
            content += b"".join(bytes([function, own, len(name)]) + name.encode()
                                for function, own, name in value["named"])
        else:
            content = {"flag": lambda: b"", "text": value.encode if kind == "text" else None, "bytes": lambda: value}[kind]()
        out += varint(number) + counted(content)
    return out
