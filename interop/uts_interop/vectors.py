"""The vectors of spec/vectors, read by this implementation."""

import json

from . import frames, hello, packets, profile
from .codec import Reader, WireError, varint

#: Vectors that are not of one parser: what they are for is done in other modules.
ELSEWHERE = {"breaches.json"}


def plain(value):
    """A value as JSON has it: bytes as hexadecimal digits, names of items as text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def masked(data, number_at, count, mask):
    out = bytearray(data)
    for i in range(count):
        out[number_at + i] ^= mask[1 + i]
    return bytes(out)


def _packet(data, vector):
    value = packets.parse_long(data)
    number_at = value.pop("number_at", None)
    end = value.pop("end")
    value.pop("start")
    if number_at is None:
        return value, _again(value)
    mask = bytes.fromhex(vector.get("mask", "00" * 5))
    clear = masked(data, number_at, 4, mask)
    value["number"] = int.from_bytes(clear[number_at : number_at + 4], "big")
    value["body"] = data[number_at + 4 : end]
    head = packets.long_header(value["packet"], value["dcid"], value["scid"], value["token"], value["number"],
                               len(value["body"]))
    return value, masked(head, len(head) - 4, 4, mask) + value["body"]


def _again(value):
    if value["packet"] == "Retry":
        return packets.retry(value["dcid"], value["scid"], value["token"], value["integrity"])
    if value["packet"] == "version refusal":
        return packets.version_refusal(value["dcid"], value["scid"], value["versions"])
    return None


def _adaptive(data, vector):
    mask = bytes.fromhex(vector.get("mask", "00" * 5))
    value = packets.parse_short(data, vector["cid_len"], mask)
    head = packets.short_header(value["epoch"], value["dcid"], value["number"], value["number_bytes"])
    head = bytes([head[0] ^ mask[0] & 3]) + head[1:]
    return value, masked(head, 1 + vector["cid_len"], value["number_bytes"], mask) + value["payload"]


def _reset(data, _):
    if len(data) < 21:
        raise WireError("truncated", "stateless reset", 0)
    return {"random": data[:-16], "token": data[-16:]}, data


def _body(data, _):
    value = packets.parse_body(data)
    return value, packets.body(value["headers"], value["padding"])


def _hello(data, vector):
    value = hello.decode(data, vector["from"])
    return value, hello.encode(value)


def _frames(data, _):
    value = frames.decode(data)
    return value, b"".join(map(frames.encode, value))


def _profile(data, _):
    value = profile.read_profile(Reader(data))
    return value, profile.write_profile(value)


def _number(data, _):
    value = Reader(data).varint("number")
    return value, varint(value)


PARSERS = {"packet": _packet, "adaptive": _adaptive, "reset": _reset, "body": _body, "hello": _hello, "frames": _frames,
           "profile": _profile, "varint": _number}


def check(vector):
    """None if the vector holds, or a sentence that says what differs."""
    data, parser = bytes.fromhex(vector["hex"]), PARSERS[vector["parser"]]
    try:
        value, again = parser(data, vector)
    except WireError as error:
        found = {"kind": error.kind, "what": error.what, "at": error.at}
        return None if found == vector.get("error") else f"error {found}, expected {vector.get('error', 'none')}"
    if "error" in vector:
        return f"is taken as {plain(value)}, expected {vector['error']}"
    if plain(value) != vector["value"]:
        return f"is read as {plain(value)}, expected {vector['value']}"
    expected = vector.get("emits", vector["hex"])
    if again is not None and again.hex() != expected:
        return f"is written as {again.hex()}, expected {expected}"
    return None


def main():
    """Checks all vectors; returns how many there are and sentences about those that fail."""
    count, wrong = 0, []
    for path in sorted((profile.spec() / "vectors").glob("*.json")):
        for vector in json.loads(path.read_text())["vectors"]:
            if path.name in ELSEWHERE:
                continue
            count += 1
            if vector["parser"] not in PARSERS:
                wrong.append(f"{path.name} {vector['name']}: no parser {vector['parser']}")
                continue
            said = check(vector)
            if said:
                wrong.append(f"{path.name} {vector['name']}: {said}")
    return count, wrong
