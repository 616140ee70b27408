//! Captures of what hosts send and receive, as tcpdump and Wireshark read them
//! (draft-ietf-opsawg-pcap).

use crate::packet::{Body, Packet};
use etherparse::{IpEcn, IpNumber, Ipv4Header, UdpHeader};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use std::borrow::Cow;
use std::io::{self, Write};
use std::net::SocketAddrV4;
use uts_engine::Ecn;
use uts_functions::Time;

/// IPv4 and UDP.
pub(crate) const HEADER_BYTES: usize = Ipv4Header::MIN_LEN + UdpHeader::LEN;

/// The longest UDP payload that IPv4 carries.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 65_535 - HEADER_BYTES;

/// A capture that is being written.
pub(crate) struct Capture {
    writer: PcapWriter<Box<dyn Write>>,
    buffer: Vec<u8>,
    error: Option<io::Error>,
}

impl Capture {
    /// Writes the file's header.
    pub fn new(writer: Box<dyn Write>) -> io::Result<Self> {
        let header = PcapHeader {
            ts_resolution: TsResolution::NanoSecond,
            // Packets begin with the IP header.
            datalink: DataLink::RAW,
            // The same file on every machine.
            endianness: Endianness::Big,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(writer, header).map_err(failed)?;
        Ok(Capture { writer, buffer: Vec::new(), error: None })
    }

    /// Writes a packet. After an error of the writer nothing more is written.
    pub fn record(&mut self, now: Time, packet: &Packet) {
        if self.error.is_some() {
            return;
        }
        let (ip, udp) = headers(packet);
        self.buffer.clear();
        self.buffer.extend(ip.to_bytes());
        self.buffer.extend(udp.to_bytes());
        self.buffer.extend_from_slice(&content(&packet.body));
        let record = PcapPacket::new(now.since(Time::ZERO), ip.total_len.into(), &self.buffer);
        self.error = self.writer.write_packet(&record).err().map(failed);
    }

    /// Says whether everything was written.
    pub fn finish(mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.writer.into_writer().flush(),
        }
    }
}

fn failed(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

/// The UDP checksum of a packet (RFC 768).
pub(crate) fn udp_checksum(packet: &Packet) -> u16 {
    let (_, udp) = headers(packet);
    let (from, to) = (packet.from.ip().octets(), packet.to.ip().octets());
    // Zeros that are not there would not change the sum; their number is in the header.
    udp.calc_checksum_ipv4_raw(from, to, &content(&packet.body)).unwrap_or(0)
}

/// An IP packet that is no fragment, as it is on a line: with its UDP checksum, and with the zeros
/// of a blank body.
pub(crate) fn laid_out(packet: &Packet) -> Vec<u8> {
    let (ip, mut udp) = headers(packet);
    if udp.checksum == 0 {
        udp.checksum = udp_checksum(packet);
    }
    let mut bytes = Vec::with_capacity(usize::from(ip.total_len));
    bytes.extend(ip.to_bytes());
    bytes.extend(udp.to_bytes());
    bytes.extend_from_slice(&content(&packet.body));
    bytes.resize(ip.total_len.into(), 0);
    bytes
}

/// A UDP datagram that was laid out.
pub(crate) struct Restored<'a> {
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub hops_left: u8,
    pub identification: u16,
    pub checksum: u16,
    pub payload: &'a [u8],
}

/// Reads an IP packet that is no fragment; `None` if it is none, or not of UDP.
pub(crate) fn read(bytes: &[u8]) -> Option<Restored<'_>> {
    let (ip, datagram) = Ipv4Header::from_slice(bytes).ok()?;
    let (udp, payload) = UdpHeader::from_slice(datagram).ok()?;
    if ip.protocol != IpNumber::UDP || ip.is_fragmenting_payload() {
        return None;
    }
    Some(Restored {
        from: SocketAddrV4::new(ip.source.into(), udp.source_port),
        to: SocketAddrV4::new(ip.destination.into(), udp.destination_port),
        hops_left: ip.time_to_live,
        identification: ip.identification,
        checksum: udp.checksum,
        payload,
    })
}

/// True if a damaged packet still has the checksum that it was sent with. Of a blank body it is not
/// known what was hit: it counts as found.
pub(crate) fn is_checksum_right(packet: &Packet) -> bool {
    matches!(packet.body, Body::Bytes(_)) && udp_checksum(packet) == packet.checksum
}

/// Bytes of a payload that there are: all, or of a blank body its number.
fn content(body: &Body) -> Cow<'_, [u8]> {
    match body {
        Body::Bytes(bytes) => Cow::Borrowed(bytes),
        Body::Blank { len, number } => {
            let number = number.to_be_bytes();
            Cow::Owned(number[..number.len().min(usize::from(*len))].to_vec())
        }
        // Captures see packets whole.
        Body::Fragment(_) => Cow::Borrowed(&[]),
    }
}

fn headers(packet: &Packet) -> (Ipv4Header, UdpHeader) {
    // Network::send takes nothing longer than PAYLOAD_BYTES_MAX.
    let udp_bytes = (UdpHeader::LEN + packet.body.len()) as u16;
    let mut ip = Ipv4Header {
        total_len: Ipv4Header::MIN_LEN as u16 + udp_bytes,
        identification: packet.identification,
        dont_fragment: !packet.may_fragment,
        time_to_live: packet.hops_left,
        protocol: IpNumber::UDP,
        source: packet.from.ip().octets(),
        destination: packet.to.ip().octets(),
        ecn: match packet.ecn {
            None => IpEcn::ZERO,
            Some(Ecn::Ect1) => IpEcn::ONE,
            Some(Ecn::Ect0) => IpEcn::TWO,
            Some(Ecn::Ce) => IpEcn::THREE,
        },
        ..Ipv4Header::default()
    };
    ip.header_checksum = ip.calc_header_checksum();
    let udp = UdpHeader {
        source_port: packet.from.port(),
        destination_port: packet.to.port(),
        length: udp_bytes,
        checksum: packet.checksum,
    };
    (ip, udp)
}
