"""A datagram of the stream: seven packets of a transport stream, of which the first has a number and a time."""

import struct

FEED_PORT, PLAY_PORT = 5000, 6000
PACKET_BYTES, PACKETS = 188, 7
DATAGRAM_BYTES = PACKET_BYTES * PACKETS
# The header of a packet: its sync byte, program 256, and a payload (ISO 13818-1 section 2.4.3.2).
HEADER = b"\x47\x01\x00\x10"
# They stand behind the header of the first packet.
HEAD = struct.Struct(">IQ")


def stamp(datagram: bytearray, number: int, time_ns: int) -> None:
    HEAD.pack_into(datagram, len(HEADER), number, time_ns)


def read(datagram: bytes) -> tuple[int, int] | None:
    """Its number and time; nothing of what is no such datagram."""
    return HEAD.unpack_from(datagram, len(HEADER)) if len(datagram) == DATAGRAM_BYTES else None
