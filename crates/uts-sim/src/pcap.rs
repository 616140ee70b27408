//! Captures of what hosts send and receive, as tcpdump and Wireshark read them (draft-ietf-opsawg-pcap).

use crate::packet::{Body, Packet};
use etherparse::{IpEcn, IpNumber, Ipv4Header, UdpHeader};
use std::borrow::Cow;
use std::io::{self, Write};
use uts_engine::Ecn;
use uts_functions::Time;

/// Nanosecond resolution; written in big-endian.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
/// Packets begin with the IP header (LINKTYPE_RAW).
const LINK_TYPE: u32 = 101;
const SNAP_BYTES: u32 = 65_535;

const HEADER_BYTES: usize = Ipv4Header::MIN_LEN + UdpHeader::LEN;

/// The longest UDP payload that IPv4 carries.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 65_535 - HEADER_BYTES;

/// A capture that is being written.
pub(crate) struct Capture {
    writer: Box<dyn Write>,
    buffer: Vec<u8>,
    error: Option<io::Error>,
}

impl Capture {
    /// Writes the file's header.
    pub fn new(mut writer: Box<dyn Write>) -> io::Result<Self> {
        let mut header = MAGIC.to_be_bytes().to_vec();
        header.extend(VERSION.iter().flat_map(|part| part.to_be_bytes()));
        // Two reserved fields.
        header.extend([0; 8]);
        header.extend(SNAP_BYTES.to_be_bytes());
        header.extend(LINK_TYPE.to_be_bytes());
        writer.write_all(&header)?;
        Ok(Capture { writer, buffer: Vec::new(), error: None })
    }

    /// Writes a packet. After an error of the writer nothing more is written.
    pub fn record(&mut self, now: Time, packet: &Packet) {
        if self.error.is_some() {
            return;
        }
        let content = content(&packet.body);
        let (ip, udp) = headers(packet);
        let seconds = (now.as_nanos() / 1_000_000_000) as u32;
        let nanos = (now.as_nanos() % 1_000_000_000) as u32;
        let captured = (HEADER_BYTES + content.len()) as u32;
        self.buffer.clear();
        for word in [seconds, nanos, captured, u32::from(ip.total_len)] {
            self.buffer.extend(word.to_be_bytes());
        }
        self.buffer.extend(ip.to_bytes());
        self.buffer.extend(udp.to_bytes());
        self.buffer.extend_from_slice(&content);
        self.error = self.writer.write_all(&self.buffer).err();
    }

    /// Says whether everything was written.
    pub fn finish(mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.writer.flush(),
        }
    }
}

/// The UDP checksum of a packet (RFC 768).
pub(crate) fn udp_checksum(packet: &Packet) -> u16 {
    let (_, udp) = headers(packet);
    let (from, to) = (packet.from.ip().octets(), packet.to.ip().octets());
    // Zeros that are not there would not change the sum; their number is in the header.
    udp.calc_checksum_ipv4_raw(from, to, &content(&packet.body)).unwrap_or(0)
}

/// Whether a packet that was damaged still has the checksum that it was sent with. Of a blank body it is not known what
/// was hit: it counts as found.
pub(crate) fn is_checksum_right(packet: &Packet) -> bool {
    matches!(packet.body, Body::Bytes(_)) && udp_checksum(packet) == packet.checksum
}

/// What there is of a payload: all, or of a blank body its number.
fn content(body: &Body) -> Cow<'_, [u8]> {
    match body {
        Body::Bytes(bytes) => Cow::Borrowed(bytes),
        Body::Blank { len, number } => {
            let number = number.to_be_bytes();
            Cow::Owned(number[..number.len().min(usize::from(*len))].to_vec())
        }
    }
}

fn headers(packet: &Packet) -> (Ipv4Header, UdpHeader) {
    // Network::send takes nothing longer than PAYLOAD_BYTES_MAX.
    let udp_bytes = (UdpHeader::LEN + packet.body.len()) as u16;
    let mut ip = Ipv4Header {
        total_len: Ipv4Header::MIN_LEN as u16 + udp_bytes,
        identification: packet.identification,
        dont_fragment: true,
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
