"""Frames of adaptive packets (packets.md P-20 to P-38, P-55 to P-58).

A frame is a dict: its name of the table, and its fields by their names. Ranges are [lowest, highest], the highest first.
"""

from .codec import Reader, WireError, counted, varint
from .profile import read_choice, read_profile, write_choice, write_profile

ID = 1 << 32
TOP = 1 << 62
FLAGS = {"END": 32, "BEGIN": 16, "MESSAGE": 8, "FIN": 4, "OFFSET": 2, "LEN": 1}

#: Frames of fixed fields: type, name, and what the fields are.
PLAIN = {
    0x01: ("Ping", ()),
    0x05: ("Credit", (("flow", ID), ("limit", TOP))),
    0x06: ("FlowLimit", (("bound", ID),)),
    0x08: ("ResetFlow", (("flow", ID), ("code", TOP), ("final_position", TOP))),
    0x09: ("StopFlow", (("flow", ID), ("code", TOP))),
    0x0e: ("Poll", ()),
    0x1a: ("RetireId", (("number", ID),)),
    0x1c: ("ExpeditedAck", (("flow", ID), ("number", TOP))),
    0x1d: ("ConnectionCredit", (("limit", TOP),)),
    0x1e: ("ResetFlow with what was sent", (("flow", ID), ("code", TOP), ("final_position", TOP), ("sent_position", TOP))),
}
#: Frames whose first field is a direction (P-25).
DIRECTED = {0x0b: ("ACK-PF", ("epoch",)), 0x0d: ("Confirm-PF", ("epoch",)), 0x16: ("Stale-PF", ("epoch", "highest_epoch"))}
TYPES = {name: kind for table in (PLAIN, DIRECTED) for kind, (name, _) in table.items()}


def decode(payload):
    """The frames of a payload; raises WireError."""
    reader, frames = Reader(payload), []
    if not payload:  # P-20
        raise WireError("truncated", "frame type", 0)
    while reader.left():
        start = reader.at
        kind = reader.uint(1, "frame type")
        if kind == 0:  # P-21
            while reader.left() and payload[reader.at] == 0:
                reader.at += 1
            frames.append({"frame": "Padding", "count": reader.at - start})
        elif 0x40 <= kind < 0xC0:
            frames.append(_read_data(reader, kind, start))
        elif kind in PLAIN:
            name, fields = PLAIN[kind]
            frame = {"frame": name}
            for field, below in fields:
                what = "connection credit" if name == "ConnectionCredit" else field.replace("_", " ")
                frame[field] = reader.varint(what, below)
            frames.append(frame)
        elif kind in DIRECTED:
            name, fields = DIRECTED[kind]
            frame = {"frame": name, "direction": _direction(reader)}
            frame.update((field, reader.varint(field, ID)) for field in fields)
            frames.append(frame)
        elif kind in READERS:
            frames.append(READERS[kind](reader, kind))
        else:
            raise WireError("unknown", "frame type", start)
    return frames


def _direction(reader):
    start = reader.at
    value = reader.uint(1, "direction")
    if value > 1:
        raise WireError("value", "direction", start)
    return value


def _read_data(reader, kind, start):  # P-30 to P-32
    frame = {"frame": "Data, presented" if kind & 0x80 else "Data"}
    frame.update((name, bool(kind & bit)) for name, bit in FLAGS.items() if name != "OFFSET")
    if (frame["BEGIN"] or frame["END"]) and not frame["MESSAGE"]:
        raise WireError("value", "data flags", start)
    frame["flow"] = reader.varint("flow", ID)
    where = reader.at
    frame["offset"] = reader.varint("data offset") if kind & FLAGS["OFFSET"] else None
    count = reader.varint("data length") if frame["LEN"] else reader.left()
    frame["bytes"] = reader.bytes(count, "data")
    if span(frame)[1] > TOP - 1:  # P-24
        raise WireError("value", "data offset", where)
    return frame


def span(frame):
    """The positions that a frame Data takes: first, and one behind the last (segmentation.md R-1)."""
    first = frame["offset"] or 0
    return first, first + len(frame["bytes"]) + frame["END"] + frame["FIN"]


def read_ranges(reader, what="ack"):  # P-23
    largest = reader.varint(f"largest {what}")
    start = reader.at
    count = reader.varint(f"{what} range count")
    if count > 63:
        raise WireError("too-long", f"{what} range count", start)
    start = reader.at
    low = largest - reader.varint(f"first {what} range")
    if low < 0:
        raise WireError("value", f"first {what} range", start)
    ranges = [[low, largest]]
    for _ in range(count):
        start = reader.at
        high = low - reader.varint(f"{what} gap") - 2
        if high < 0:
            raise WireError("value", f"{what} gap", start)
        start = reader.at
        low = high - reader.varint(f"{what} range")
        if low < 0:
            raise WireError("value", f"{what} range", start)
        ranges.append([low, high])
    return ranges


def write_ranges(ranges):
    low, largest = ranges[0]
    out = varint(largest) + varint(len(ranges) - 1) + varint(largest - low)
    for smaller, high in ranges[1:]:
        out += varint(low - high - 2) + varint(high - smaller)
        low = smaller
    return out


def _read_ack(reader, kind):
    frame = {"frame": "Ack", "delay": reader.varint("ack delay"), "ranges": read_ranges(reader)}
    if kind == 3:
        frame["frame"] = "Ack with ECN"
        frame.update((name, reader.varint("ECN count")) for name in ("ect0", "ect1", "ce"))
    return frame


def _read_repaired(reader, _):
    return {"frame": "Repaired", "ranges": read_ranges(reader)}


def _read_skip(reader, _):
    flow, start = reader.varint("flow", ID), reader.varint("skip start")
    where = reader.at
    length = reader.varint("skip length")
    if start + length >= TOP:
        raise WireError("value", "skip length", where)
    return {"frame": "Skip", "flow": flow, "start": start, "length": length}


def _read_group(reader):
    where = reader.at
    group = reader.uint(1, "group")
    if group > 7:
        raise WireError("value", "group", where)
    return group, reader.varint("epoch", ID)


def _read_using(reader):
    mask = reader.uint(1, "epochs in use")
    return [reader.varint("epoch in use", ID) if mask >> bit & 1 else None for bit in range(8)]


def _read_request(reader, _):
    direction, (group, epoch) = _direction(reader), _read_group(reader)
    return {"frame": "Request-PF", "direction": direction, "group": group, "epoch": epoch,
            "using": _read_using(reader), "profile": read_profile(reader)}


def _read_use(reader, _):  # P-63
    group, epoch = _read_group(reader)
    frame = {"frame": "Use-PF", "group": group, "epoch": epoch, "first": reader.varint("first number")}
    frame["using"], frame["profile"] = _read_using(reader), read_profile(reader)
    frame["packet"] = reader.bytes(reader.left(), "packet")
    return frame


def _read_nak(reader, _):  # P-26
    frame = {"frame": "NAK-PF", "direction": _direction(reader), "epoch": reader.varint("epoch", ID)}
    frame["function"], frame["reason"] = reader.uint(1, "function"), reader.uint(1, "reason")
    where = reader.at
    count = reader.uint(1, "alternative count")
    if count > 1:
        raise WireError("value", "alternative count", where)
    frame["choice"] = read_choice(reader) if count else None
    return frame


def _read_close(reader, _):
    return {"frame": "Close", "code": reader.varint("close code"), "reason": reader.text("close reason", 256)}


def _read_path(reader, kind):
    return {"frame": ("PathChallenge", "PathResponse")[kind - 0x11], "number": reader.bytes(8, "path number")}


def _read_repair(reader, kind):  # P-29
    frame = {"frame": ("Repair", "Repair of a window")[kind - 0x13], "first": reader.varint("first packet")}
    where = reader.at
    mask = reader.counted("repair mask", 32)
    if not any(mask):
        raise WireError("missing", "repair mask", where)
    frame["mask"], where = mask, reader.at
    if kind == 0x13:
        frame["index"], frame["count"] = reader.uint(1, "repair index"), reader.uint(1, "repair count")
        if frame["index"] >= frame["count"]:
            raise WireError("value", "repair index", where)
    else:
        frame["key"] = reader.uint(2, "repair key")
    frame["symbol"] = reader.counted("repair symbol", 65535)
    return frame


def _read_feedback(reader, _):  # P-35
    frame = {"frame": "Feedback", "function": reader.uint(1, "function"), "mechanism": reader.uint(1, "mechanism"),
             "flow": reader.varint("flow", ID)}
    frame["words"] = reader.counted("feedback length", 255, 1, "value")
    return frame


def _read_order(reader, _):  # P-36
    frame = {"frame": "Order", "flow": reader.varint("flow", ID), "start": reader.varint("order start")}
    where = reader.at
    frame["distance"] = reader.varint("order distance")
    if frame["distance"] > frame["start"]:
        raise WireError("value", "order distance", where)
    where = reader.at
    frame["length"] = reader.varint("order length")
    if frame["length"] > frame["start"] - frame["distance"]:
        raise WireError("value", "order length", where)
    return frame


def _read_media_time(reader, _):  # P-64
    return {"frame": "MediaTime", "flow": reader.varint("flow", ID), "start": reader.varint("media start"),
            "time": reader.uint(4, "media time")}


def _read_new_id(reader, kind):  # P-37
    frame = {"frame": "NewId", "number": reader.varint("number", ID)}
    where = reader.at
    frame["retire_below"] = reader.varint("retired below", ID)
    if frame["retire_below"] > frame["number"]:
        raise WireError("value", "retired below", where)
    where = reader.at
    count = reader.uint(1, "new connection id")
    if not 1 <= count <= 20:
        raise WireError("value", "new connection id", where)
    frame["id"] = reader.bytes(count, "new connection id")
    if kind == 0x19:
        frame["frame"], frame["token"] = "NewId with a reset token", reader.bytes(16, "stateless reset token")
    return frame


def _read_expedited(reader, _):  # P-55
    return {"frame": "Expedited", "flow": reader.varint("flow", ID), "number": reader.varint("number"),
            "message": reader.counted("expedited message", 16)}


def _read_messages(reader, kind):  # P-34
    frame = {"frame": "Messages", "flow": reader.varint("flow", ID)}
    at = reader.at
    frame["offset"] = reader.varint("data offset") if kind == 0xC2 else None
    where = reader.at
    frame["count"] = reader.varint("message count")
    if not 1 <= frame["count"] < ID:
        raise WireError("value", "message count", where)
    where = reader.at
    frame["length"] = reader.varint("message length")
    if not frame["length"]:
        raise WireError("value", "message length", where)
    frame["bytes"] = reader.bytes(frame["count"] * frame["length"], "messages")
    if (frame["offset"] or 0) + frame["count"] * (frame["length"] + 1) >= TOP:
        raise WireError("value", "data offset", at)
    return frame


READERS = {
    0x02: _read_ack, 0x03: _read_ack, 0x04: _read_repaired, 0x07: _read_skip, 0x0A: _read_request, 0x0C: _read_nak,
    0x0F: _read_close, 0x11: _read_path, 0x12: _read_path, 0x13: _read_repair, 0x14: _read_repair, 0x15: _read_feedback,
    0x17: _read_order, 0x18: _read_new_id, 0x19: _read_new_id, 0x1B: _read_expedited, 0x1F: _read_use, 0x20: _read_media_time,
    0xC0: _read_messages,
    0xC2: _read_messages,
}


def encode(frame):
    """The bytes of a frame."""
    name = frame["frame"]
    if name in ("Data", "Data, presented"):
        return _write_data(frame)
    if name in TYPES:
        kind = TYPES[name]
        if kind in DIRECTED:
            numbers = b"".join(varint(frame[field]) for field in DIRECTED[kind][1])
            return bytes([kind, frame["direction"]]) + numbers
        return bytes([kind]) + b"".join(varint(frame[field]) for field, _ in PLAIN[kind][1])
    return WRITERS[name](frame)


def _write_data(frame):
    kind = 0x80 if frame["frame"] == "Data, presented" else 0x40
    for flag, bit in FLAGS.items():
        if flag == "OFFSET":
            kind |= bit * (frame["offset"] is not None)
        else:
            kind |= bit * frame[flag]
    out = bytes([kind]) + varint(frame["flow"])
    if frame["offset"] is not None:
        out += varint(frame["offset"])
    return out + (counted(frame["bytes"]) if frame["LEN"] else frame["bytes"])


def _write_ack(frame):
    out = bytes([3 if "ce" in frame else 2]) + varint(frame["delay"]) + write_ranges(frame["ranges"])
    return out + b"".join(varint(frame[n]) for n in ("ect0", "ect1", "ce") if n in frame)


def _write_using(using):
    mask = sum(1 << bit for bit, epoch in enumerate(using) if epoch is not None)
    return bytes([mask]) + b"".join(varint(epoch) for epoch in using if epoch is not None)


def _write_request(frame):
    head = bytes([0x0A, frame["direction"], frame["group"]]) + varint(frame["epoch"])
    return head + _write_using(frame["using"]) + write_profile(frame["profile"])


def _write_use(frame):
    head = bytes([0x1F, frame["group"]]) + varint(frame["epoch"]) + varint(frame["first"])
    return head + _write_using(frame["using"]) + write_profile(frame["profile"]) + frame["packet"]


def _write_nak(frame):
    head = bytes([0x0C, frame["direction"]]) + varint(frame["epoch"])
    tail = b"\0" if frame["choice"] is None else b"\1" + write_choice(frame["choice"])
    return head + bytes([frame["function"], frame["reason"]]) + tail


def _write_messages(frame):
    offset = b"\xc0" + varint(frame["flow"])
    if frame["offset"] is not None:
        offset = b"\xc2" + varint(frame["flow"]) + varint(frame["offset"])
    return offset + varint(frame["count"]) + varint(frame["length"]) + frame["bytes"]


def _write_new_id(frame):
    token = frame.get("token", b"")
    head = bytes([0x19 if token else 0x18]) + varint(frame["number"]) + varint(frame["retire_below"])
    return head + bytes([len(frame["id"])]) + frame["id"] + token


WRITERS = {
    "Padding": lambda f: bytes(f["count"]),
    "Ack": _write_ack,
    "Ack with ECN": _write_ack,
    "Repaired": lambda f: b"\x04" + write_ranges(f["ranges"]),
    "Skip": lambda f: b"\x07" + varint(f["flow"]) + varint(f["start"]) + varint(f["length"]),
    "Request-PF": _write_request,
    "Use-PF": _write_use,
    "NAK-PF": _write_nak,
    "Close": lambda f: b"\x0f" + varint(f["code"]) + counted(f["reason"].encode()),
    "PathChallenge": lambda f: b"\x11" + f["number"],
    "PathResponse": lambda f: b"\x12" + f["number"],
    "Repair": lambda f: b"\x13" + varint(f["first"]) + counted(f["mask"]) + bytes([f["index"], f["count"]])
    + counted(f["symbol"]),
    "Repair of a window": lambda f: b"\x14" + varint(f["first"]) + counted(f["mask"]) + f["key"].to_bytes(2, "big")
    + counted(f["symbol"]),
    "Feedback": lambda f: bytes([0x15, f["function"], f["mechanism"]]) + varint(f["flow"]) + counted(f["words"]),
    "Order": lambda f: b"\x17" + varint(f["flow"]) + varint(f["start"]) + varint(f["distance"]) + varint(f["length"]),
    "MediaTime": lambda f: b"\x20" + varint(f["flow"]) + varint(f["start"]) + f["time"].to_bytes(4, "big"),
    "NewId": _write_new_id,
    "NewId with a reset token": _write_new_id,
    "Expedited": lambda f: b"\x1b" + varint(f["flow"]) + varint(f["number"]) + counted(f["message"]),
    "Messages": _write_messages,
}
