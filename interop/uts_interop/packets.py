"""Packets and the bodies of establishment packets (packets.md P-3 to P-18). Protection is in `keys`."""

from .codec import Reader, WireError, counted

VERSION = bytes.fromhex("55545302")  # P-2
LONG = ("Initial", "Handshake", "Retry", "Early")
KNOWN = {(0, 0): "handshake bytes", (6, 0): "acknowledgement", (0x20, 0): "ping", (0x21, 0): "close"}
NUMBERS = {name: key for key, name in KNOWN.items()}


def _id(reader, what, most):
    start = reader.at
    count = reader.uint(1, what)
    if count > most:
        raise WireError("too-long", what, start)
    return reader.bytes(count, what)


def parse_long(data, at=0):
    """The header of the long packet at `at`: a dict, with `number_at` and `end` where it is protected."""
    reader = Reader(data, at)
    first = reader.uint(1, "first byte")
    if not first & 0x80:
        raise WireError("value", "first byte", at)
    version = reader.bytes(4, "version")
    most = 20 if version == VERSION else 255  # P-10
    dcid = _id(reader, "destination connection id", most)
    scid = _id(reader, "source connection id", most)
    packet = {"dcid": dcid, "scid": scid, "start": at, "end": len(data)}
    if version == bytes(4):
        return _version_refusal(reader, packet)
    if version != VERSION:
        return packet | {"packet": "another version", "version": version}
    if first & 0x7C:
        raise WireError("value", "first byte", at)
    packet["packet"] = LONG[first & 3]
    if packet["packet"] == "Retry":  # P-9
        if reader.left() < 16:
            raise WireError("truncated", "integrity", reader.at)
        if reader.left() == 16:
            raise WireError("missing", "token", reader.at)
        packet["token"] = reader.bytes(reader.left() - 16, "token")
        return packet | {"integrity": reader.bytes(16, "integrity")}
    packet["token"] = reader.counted("token", 128) if packet["packet"] in ("Initial", "Early") else b""  # P-28
    start = reader.at
    length = reader.varint("length")
    if not 20 <= length <= 16383:  # P-8
        raise WireError("value", "length", start)
    if length > reader.left():
        raise WireError("truncated", "packet", reader.at)
    return packet | {"number_at": reader.at, "end": reader.at + length}


def _version_refusal(reader, packet):
    start = reader.at
    count = reader.left() // 4
    if not 1 <= count <= 16 or reader.left() % 4:
        raise WireError("truncated", "version list", start)
    return packet | {"packet": "version refusal", "versions": [reader.bytes(4, "version") for _ in range(count)]}


def long_header(kind, dcid, scid, token, number, behind):
    """A header, number included; `behind` is the length of what follows the number."""
    out = bytes([0x80 | LONG.index(kind)]) + VERSION + bytes([len(dcid)]) + dcid + bytes([len(scid)]) + scid
    if kind in ("Initial", "Early"):
        out += counted(token)
    return out + (0x4000 | behind + 4).to_bytes(2, "big") + number.to_bytes(4, "big")


def retry(dcid, scid, token, integrity=b""):
    return bytes([0x82]) + VERSION + bytes([len(dcid)]) + dcid + bytes([len(scid)]) + scid + token + integrity


def version_refusal(dcid, scid, versions):
    return bytes([0x80]) + bytes(4) + bytes([len(dcid)]) + dcid + bytes([len(scid)]) + scid + b"".join(versions)


def parse_body(data):
    """Function headers of a body, each with what belongs to it (P-11 to P-15)."""
    reader, headers = Reader(data), []
    trailers = len(data)
    while True:
        start = reader.at
        words = reader.uint(1, "function header length")
        if words == 0:
            break
        reader.at = start
        head = reader.bytes(4, "function header length")
        key = (head[1], head[2])
        fields = reader.bytes(4 * words - 4, "function header fields")
        if len(headers) == 16:
            raise WireError("too-long", "function header count", start)
        if any((h["function"], h["mechanism"]) == key for h in headers):
            raise WireError("duplicate", "function header", start)
        trailers -= head[3]
        headers.append({"function": key[0], "mechanism": key[1], "fields": fields, "at": start,
                        "trailer": (trailers, head[3])})
    return _contents(reader, headers, trailers)


def _contents(reader, headers, trailers):
    if trailers < reader.at:
        raise WireError("truncated", "function header trailer", reader.at - 1)
    out = []
    for header in headers:
        at, size = header["trailer"]
        trailer = bytes(reader.data[at : at + size])
        name = KNOWN.get((header["function"], header["mechanism"]))
        if name is None:
            out.append({"header": "unknown", "function": header["function"], "mechanism": header["mechanism"],
                        "fields": header["fields"], "trailer": trailer})
            continue
        if size and name != "close":
            raise WireError("trailing", "function header trailer", header["at"])
        out.append(_known(name, header, trailer, reader, trailers))
    padding = bytes(reader.data[reader.at : trailers])
    if any(padding):
        raise WireError("value", "padding", reader.at + next(i for i, b in enumerate(padding) if b))
    return {"headers": out, "padding": len(padding)}


def _known(name, header, trailer, body, trailers):  # P-13
    at = header["at"] + 4
    fields = Reader(header["fields"])

    def number(size, what):
        if fields.left() < size:
            raise WireError("truncated", "function header fields", at + fields.at)
        return fields.uint(size, what)

    out = {"header": name}
    if name == "handshake bytes":
        out["offset"], zero, count = number(4, "offset"), number(2, "zero"), number(2, "count")
        if zero or out["offset"] + count >= 1 << 32:
            raise WireError("value", "crypto", at)
        if count > trailers - body.at:
            raise WireError("truncated", "crypto", body.at)
        out["bytes"] = body.bytes(count, "crypto")
    elif name == "acknowledgement":
        out["ranges"], out["delay"] = _ranges(fields, at)
    elif name == "close":
        out["code"], zero = number(2, "code"), number(2, "zero")
        if zero:
            raise WireError("value", "close", at)
        try:
            out["reason"] = trailer.decode()
        except UnicodeDecodeError:
            raise WireError("not-text", "close reason", at) from None
    if fields.left():
        raise WireError("trailing", "function header fields", at)
    return out


def _ranges(fields, at):  # P-14
    if not 12 <= fields.left() <= 72 or fields.left() % 4:
        raise WireError("truncated", "ack range", at)
    low, delay = fields.uint(4, "largest"), fields.uint(4, "delay")
    ranges, low = [], low + 2
    while fields.left():
        where = at + fields.at
        high = low - fields.uint(2, "gap") - 2
        low = high - fields.uint(2, "length")
        if low < 0:
            raise WireError("value", "ack range", where + 2 if high >= 0 else where)
        ranges.append([low, high])
    return ranges, delay


def body(headers, padding=0):
    """The bytes of a body."""
    chain, data, trailers = b"", b"", b""
    for header in headers:
        name, trailer = header["header"], b""
        if name == "handshake bytes":
            data = header["bytes"]
            fields = header["offset"].to_bytes(4, "big") + bytes(2) + len(data).to_bytes(2, "big")
        elif name == "acknowledgement":
            fields = _write_ranges(header)
        elif name == "close":
            fields, trailer = header["code"].to_bytes(2, "big") + bytes(2), header["reason"].encode()
        else:
            fields, trailer = header.get("fields", b""), header.get("trailer", b"")
        key = NUMBERS.get(name) or (header["function"], header["mechanism"])
        chain += bytes([1 + len(fields) // 4, *key, len(trailer)]) + fields
        trailers = trailer + trailers
    return chain + b"\0" + data + bytes(padding) + trailers


def _write_ranges(header):
    largest = header["ranges"][0][1]
    out, low = largest.to_bytes(4, "big") + header["delay"].to_bytes(4, "big"), largest + 2
    for smaller, high in header["ranges"]:
        out += (low - high - 2).to_bytes(2, "big") + (high - smaller).to_bytes(2, "big")
        low = smaller
    return out


def short_header(epoch, dcid, number, count):  # P-16
    return bytes([epoch % 32 << 2 | count - 1]) + dcid + (number % (1 << 8 * count)).to_bytes(count, "big")


def number_bytes(number, acknowledged, least=1):
    """How many bytes of a packet number are sent (P-5)."""
    distance = number - acknowledged if acknowledged is not None else number + 1
    return max(least, min(4, ((2 * distance + 1).bit_length() + 7) // 8))


def complete(truncated, count, largest):
    """The number nearest to the largest received plus 1 (RFC 9000, appendix A.3)."""
    expected, window = largest + 1, 1 << 8 * count
    number = expected & ~(window - 1) | truncated
    if number <= expected - window // 2 and number < (1 << 62) - window:
        return number + window
    if number > expected + window // 2 and number >= window:
        return number - window
    return number


def parse_short(data, cid_len, mask=bytes(5)):
    """The fields of an adaptive packet, its number as it stands in the header."""
    if not data or data[0] & 0x80:
        raise WireError("value", "first byte", 0)
    first = data[0] ^ mask[0] & 3
    count = (first & 3) + 1
    reader = Reader(data, 1)
    dcid = reader.bytes(cid_len, "destination connection id")
    number = bytes(a ^ b for a, b in zip(reader.bytes(count, "packet number"), mask[1:]))
    return {"packet": "adaptive", "epoch": first >> 2, "dcid": dcid, "number": int.from_bytes(number, "big"),
            "number_bytes": count, "payload": bytes(data[reader.at :])}
