"""Trailers that find damage (functions/detection.md)."""

import zlib

from .keys import Unauthentic


def internet(data):
    data += b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")


def _table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = _table()


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 255] ^ value >> 8
    return (value ^ 0xFFFFFFFF).to_bytes(4, "little")


def parity(data):
    value = 0
    data += b"\0" * (len(data) % 2)
    for at in range(0, len(data), 2):
        value ^= int.from_bytes(data[at : at + 2], "big")
    return value.to_bytes(2, "big")


def crc32(data):
    return zlib.crc32(data).to_bytes(4, "little")


#: Bytes of each mechanism's trailer, and what computes it.
TRAILERS = {"none": (0, lambda data: b""), "internet-16": (2, internet), "crc-32c": (4, crc32c), "parity": (2, parity),
            "crc-32": (4, crc32)}


def trailer(name, head, number, payload):
    """The trailer of a packet whose header, before masking, is `head`; `number` is its number, whole."""
    size, compute = TRAILERS[name]
    if not size:
        return b""
    value = compute(head + payload)
    hidden = (number >> 8 * ((head[0] & 3) + 1)).to_bytes(8, "big")
    for at in range(0, 8, size):
        value = bytes(a ^ b for a, b in zip(value, hidden[at : at + size]))
    return value


def check(name, head, number, payload):
    """The payload without its trailer; raises Unauthentic."""
    size = TRAILERS[name][0]
    if len(payload) < size:
        raise Unauthentic
    inner, found = payload[: len(payload) - size], payload[len(payload) - size :]
    if trailer(name, head, number, inner) != found:
        raise Unauthentic
    return inner
