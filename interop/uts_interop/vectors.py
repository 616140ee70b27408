"""The vectors of spec/vectors, read by this implementation."""

import json

from . import detection, frames, hello, keys, packets, profile
from .codec import Reader, WireError, varint

#: Vectors that need a peer: the suite says them.
ELSEWHERE = {"breaches.json"}
CIPHERS = {1: "aes-128-gcm", 2: "chacha20-poly1305"}
TRAILERS = {0: "none", 1: "internet-16", 2: "crc-32c"}
LABELS = {"client": "uts c2s", "server": "uts s2c"}


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


def protected(vector):
    """A packet of protected.json, sealed and opened."""
    raw = {k: bytes.fromhex(v) for k, v in vector.items()
           if k in ("hex", "first_dcid", "dcid", "scid", "token", "body", "secret", "E", "frames", "payload", "suite")}
    kind = vector["packet"]
    if kind == "Retry":
        return raw["hex"][-16:] == keys.retry_integrity(raw["first_dcid"], raw["hex"][:-16])
    if kind in ("Initial", "Handshake"):
        if kind == "Initial":
            made = keys.initial(raw["first_dcid"])[vector["from"] == "server"]
        else:
            made = keys.handshake(int.from_bytes(raw["suite"], "big"), raw["secret"])
        head = packets.long_header(kind, raw["dcid"], raw["scid"], raw["token"], vector["number"],
                                   len(raw["body"]) + keys.TAG)
        sealed = keys.seal_long(made, head, raw["body"])
        opened = keys.open_long(made, raw["hex"], packets.parse_long(raw["hex"]))
        return sealed == raw["hex"] and opened == (vector["number"], raw["body"])
    ratchet = keys.Ratchet(raw["E"], LABELS[vector["from"]])
    made = ratchet.keys(vector["epoch"], CIPHERS[vector["protection"]]) if vector["protection"] else None
    head = packets.short_header(vector["epoch"], raw["dcid"], vector["number"], vector["number_bytes"])
    trailer = detection.trailer(TRAILERS[vector["detection"]], head, vector["number"], raw["frames"])
    sealed = keys.seal_short(made, head, len(raw["dcid"]), vector["number"], raw["frames"] + trailer)
    return raw["frames"] + trailer == raw["payload"] and sealed == raw["hex"]


def connection(content):
    """Whether all datagrams of handshake.json are opened by its secrets; the name of the first that is not."""
    secrets = {k: bytes.fromhex(v) for k, v in content["secrets"].items()}
    made = {("Handshake", end): keys.handshake(0x1301, secrets[f"{end.upper()}_HANDSHAKE_TRAFFIC_SECRET"])
            for end in LABELS}
    exported = bytes.fromhex(content["E"])
    first, lengths = None, {}
    for index, vector in enumerate(content["vectors"]):
        data, end, at = bytes.fromhex(vector["hex"]), vector["from"], 0
        for said in vector["packets"]:
            if said["packet"] == "adaptive":
                opened = _open_adaptive(data[at:], said, exported, end, lengths)
                if opened != bytes.fromhex(said["payload"]):
                    return f"datagram {index}"
                continue
            packet = packets.parse_long(data, at)
            lengths[end] = len(packet["scid"])
            at = packet["end"]
            if said["packet"] == "Retry":
                if packet["integrity"] != keys.retry_integrity(first, data[:-16]):
                    return f"datagram {index}"
                first = packet["scid"]
            if said["packet"] == "Initial" and end == "client":
                first = packet["dcid"] if first is None else first
            if "body" in said:
                key = made[said["packet"], end] if said["packet"] == "Handshake" \
                    else keys.initial(first)[end == "server"]
                if keys.open_long(key, data, packet) != (said["number"], bytes.fromhex(said["body"])):
                    return f"datagram {index}"
    return None


def _open_adaptive(data, said, exported, end, lengths):
    size = lengths["server" if end == "client" else "client"]
    key = keys.Ratchet(exported, LABELS[end]).keys(said["epoch"], CIPHERS[said["protection"]])
    mask = key.mask(data[1 + size + 4 : 1 + size + 20])
    head = packets.parse_short(data, size, mask)
    return key.open(said["number"], head["payload"], keys.associated(head["dcid"]))


def main():
    """Checks all vectors; returns how many there are and sentences about those that fail."""
    count, wrong = 0, []
    for path in sorted((profile.spec() / "vectors").glob("*.json")):
        content = json.loads(path.read_text())
        if path.name == "handshake.json":
            count += 1
            said = connection(content)
            wrong += [f"{path.name}: {said} is not opened"] if said else []
            continue
        for vector in content["vectors"] if path.name not in ELSEWHERE else []:
            count += 1
            if path.name == "protected.json":
                said = None if protected(vector) else "differs"
            elif vector["parser"] not in PARSERS:
                said = f"no parser {vector['parser']}"
            else:
                said = check(vector)
            if said:
                wrong.append(f"{path.name} {vector['name']}: {said}")
    return count, wrong
