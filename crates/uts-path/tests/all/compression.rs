//! Header compression: vectors of our own, round trips over any sequence of packets, and what comes
//! of lost and damaged frames.

mod damage;
mod layout;
mod links;
mod round_trips;

use etherparse::{Ipv4HeaderSlice, PacketBuilder, TcpHeaderSlice, UdpHeader, UdpHeaderSlice};
use uts_path::compression::{Compressor, Decompressor};
use uts_rx::{Body, Flags, Header, Packet, Type};

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];

const RX: Header = Header {
    epoch: 0x2cb4_1c40,
    connection: 0x8000_0104,
    call: 1,
    sequence: 1,
    serial: 1,
    kind: Type::Data,
    flags: Flags(0),
    status: 0,
    security: 0,
    verifier: 0,
    service: 1,
};

/// Sets the identification, which a builder does not, and the checksum with it.
fn identified(mut packet: Vec<u8>, identification: u16) -> Vec<u8> {
    let mut ip = Ipv4HeaderSlice::from_slice(&packet).expect("IPv4").to_header();
    (ip.identification, ip.dont_fragment) = (identification, false);
    ip.header_checksum = ip.calc_header_checksum();
    packet[..20].copy_from_slice(&ip.to_bytes());
    packet
}

/// An IP packet from the server to a port of the client.
fn udp(port: u16, identification: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(SERVER, CLIENT, 64).udp(7000, port).write(&mut packet, payload).expect("short");
    identified(packet, identification)
}

/// A packet of data, or an error whose code has the bytes of `data`.
fn rx_packet(identification: u16, header: Header, data: &[u8]) -> Vec<u8> {
    let body = match header.kind {
        Type::Abort => Body::Abort(i32::from_be_bytes(data.try_into().expect("four bytes"))),
        _ => Body::Data(data),
    };
    udp(7001, identification, &Packet::new(header, body).to_bytes())
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    sequence: u32,
    ack: u32,
    window: u16,
    psh: bool,
    urgent: Option<u16>,
    syn: bool,
}

const SEGMENT: Segment =
    Segment { sequence: 1000, ack: 500, window: 4096, psh: false, urgent: None, syn: false };

fn tcp_packet(port: u16, identification: u16, segment: &Segment, data: &[u8]) -> Vec<u8> {
    let mut builder = PacketBuilder::ipv4(SERVER, CLIENT, 64)
        .tcp(20, port, segment.sequence, segment.window)
        .ack(segment.ack);
    if segment.psh {
        builder = builder.psh();
    }
    if let Some(urgent) = segment.urgent {
        builder = builder.urg(urgent);
    }
    if segment.syn {
        builder = builder.syn();
    }
    let mut packet = Vec::new();
    builder.write(&mut packet, data).expect("short");
    identified(packet, identification)
}

fn ends(text: &str) -> (Compressor, Decompressor) {
    let compression = text.parse().expect("a compression");
    (Compressor::new(compression).expect("on"), Decompressor::new(compression).expect("on"))
}

/// True if the checksum of UDP or TCP says that the packet is right.
fn is_valid(packet: &[u8]) -> bool {
    let Ok(ip) = Ipv4HeaderSlice::from_slice(packet) else { return false };
    let header = ip.to_header();
    let rest = &packet[20..];
    if usize::from(header.total_len) != packet.len()
        || header.calc_header_checksum() != header.header_checksum
    {
        return false;
    }
    match header.protocol.0 {
        17 => UdpHeaderSlice::from_slice(rest).is_ok_and(|udp| {
            let udp: UdpHeader = udp.to_header();
            udp.calc_checksum_ipv4(&header, &rest[8..]) == Ok(udp.checksum)
        }),
        6 => TcpHeaderSlice::from_slice(rest).is_ok_and(|tcp| {
            let data = rest.get(4 * usize::from(tcp.data_offset())..).unwrap_or_default();
            tcp.calc_checksum_ipv4(&ip, data) == Ok(tcp.checksum())
        }),
        _ => false,
    }
}

/// True if packets differ in what the checksum of UDP is over: in more than the identification.
fn is_other(one: &[u8], other: &[u8]) -> bool {
    let checked = |packet: &[u8]| [&packet[..4], &packet[6..10], &packet[12..]].concat();
    checked(one) != checked(other)
}
