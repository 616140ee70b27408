//! Captures: the UDP datagrams of a pcap or pcapng file, which may be compressed (gzip), in the
//! order in which they stand there.

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use flate2::read::MultiGzDecoder;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Kind of the block that holds secrets of TLS, and of what it holds (draft-ietf-opsawg-pcapng,
/// section 4.7).
const SECRETS_BLOCK: u32 = 10;
const TLS_KEY_LOG: u32 = 0x544c_534b;

/// A UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Since the first packet of the capture, if the capture tells the time.
    pub at: Duration,
    /// The sender's address.
    pub from: SocketAddr,
    /// The receiver's address.
    pub to: SocketAddr,
    /// Its payload.
    pub bytes: Vec<u8>,
    /// True if the capture has not all of it.
    pub is_cut: bool,
}

/// Things that a capture holds, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A datagram.
    Datagram(Datagram),
    /// A key log, which the file brings along.
    KeyLog(String),
}

/// A capture that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// It is no file of packets.
    #[error("expected a capture in the form pcap or pcapng")]
    Form,
    /// A packet of the file cannot be read.
    #[error("packet {packet} of the capture: {why}")]
    Packet {
        /// Packets before it, and 1.
        packet: u64,
        /// Words of the reader.
        why: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A file of packets that is read as it is asked for.
pub struct Capture<R: Read> {
    reader: Reader<R>,
    begin: Option<Duration>,
    packets: u64,
}

enum Reader<R: Read> {
    Pcap(PcapReader<R>),
    /// Boxed: it holds its buffer.
    PcapNg(Box<PcapNgReader<R>>),
}

/// A packet as a file has it.
struct Raw {
    at: Duration,
    link: DataLink,
    data: Vec<u8>,
    is_cut: bool,
}

/// A file whose first bytes have been looked at.
type Begun<R> = io::Chain<io::Cursor<[u8; 4]>, R>;

/// Contents of a file, which may be compressed.
pub enum Contents<R: Read> {
    /// As they stand there.
    Plain(Begun<R>),
    /// By gzip (RFC 1952). Boxed: it holds its buffers.
    Compressed(Box<Begun<MultiGzDecoder<Begun<R>>>>),
}

impl<R: Read> Read for Contents<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Contents::Plain(file) => file.read(buffer),
            Contents::Compressed(file) => file.read(buffer),
        }
    }
}

/// Looks at the first bytes of a file.
fn begin<R: Read>(mut file: R) -> Result<([u8; 4], Begun<R>), CaptureError> {
    let mut magic = [0; 4];
    file.read_exact(&mut magic).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => CaptureError::Form,
        _ => CaptureError::Io(error),
    })?;
    Ok((magic, io::Cursor::new(magic).chain(file)))
}

impl<R: Read> Capture<Contents<R>> {
    /// Opens a capture by its first bytes.
    ///
    /// # Errors
    /// [`CaptureError::Form`] if it is none.
    pub fn open(file: R) -> Result<Self, CaptureError> {
        let (magic, whole) = begin(file)?;
        let (magic, whole) = match magic {
            [0x1f, 0x8b, ..] => {
                let (magic, whole) = begin(MultiGzDecoder::new(whole))?;
                (magic, Contents::Compressed(Box::new(whole)))
            }
            _ => (magic, Contents::Plain(whole)),
        };
        let reader = match magic {
            [0x0a, 0x0d, 0x0d, 0x0a] => PcapNgReader::new(whole).map(|r| Reader::PcapNg(Box::new(r))),
            _ => PcapReader::new(whole).map(Reader::Pcap),
        };
        let reader = reader.map_err(|error| match error {
            PcapError::IoError(error) => CaptureError::Io(error),
            _ => CaptureError::Form,
        })?;
        Ok(Capture { reader, begin: None, packets: 0 })
    }
}

impl<R: Read> Capture<R> {
    /// The next datagram or key log; `None` at the end. Packets of other protocols are passed over.
    ///
    /// # Errors
    /// [`CaptureError::Packet`] at the first packet that cannot be read; nothing follows it.
    pub fn next_item(&mut self) -> Result<Option<Item>, CaptureError> {
        loop {
            let next = match &mut self.reader {
                Reader::Pcap(reader) => next_of_pcap(reader),
                Reader::PcapNg(reader) => next_of_pcapng(reader),
            };
            let found = next.map_err(|error| CaptureError::Packet {
                packet: self.packets + 1,
                why: match error {
                    PcapError::IncompleteBuffer => "the file ends within it".to_owned(),
                    error => error.to_string(),
                },
            })?;
            match found {
                None => return Ok(None),
                Some(Found::Nothing) => {}
                Some(Found::KeyLog(text)) => return Ok(Some(Item::KeyLog(text))),
                Some(Found::Packet(raw)) => {
                    self.packets += 1;
                    let begin = *self.begin.get_or_insert(raw.at);
                    let at = raw.at.saturating_sub(begin);
                    if let Some(datagram) = datagram(&raw, at) {
                        return Ok(Some(Item::Datagram(datagram)));
                    }
                }
            }
        }
    }
}

enum Found {
    Packet(Raw),
    KeyLog(String),
    Nothing,
}

fn next_of_pcap<R: Read>(reader: &mut PcapReader<R>) -> Result<Option<Found>, PcapError> {
    let link = reader.header().datalink;
    let Some(packet) = reader.next_packet() else { return Ok(None) };
    let packet = packet?;
    let is_cut = (packet.orig_len as usize) > packet.data.len();
    Ok(Some(Found::Packet(Raw { at: packet.timestamp, link, data: packet.data.into_owned(), is_cut })))
}

fn next_of_pcapng<R: Read>(reader: &mut PcapNgReader<R>) -> Result<Option<Found>, PcapError> {
    let Some(block) = reader.next_block() else { return Ok(None) };
    let (interface, ticks, original, data) = match block?.into_owned() {
        Block::EnhancedPacket(packet) => {
            // The reader takes ticks of all clocks for nanoseconds.
            let ticks = packet.timestamp.as_nanos() as u64;
            (packet.interface_id, Some(ticks), packet.original_len, packet.data.into_owned())
        }
        Block::SimplePacket(packet) => (0, None, packet.original_len, packet.data.into_owned()),
        Block::Unknown(block) if block.type_ == SECRETS_BLOCK => {
            let key_log = tls_key_log(&block.value, reader.section().endianness);
            return Ok(Some(key_log.map_or(Found::Nothing, Found::KeyLog)));
        }
        _ => return Ok(Some(Found::Nothing)),
    };
    let described = reader.interfaces().get(interface as usize);
    let described = described.ok_or(PcapError::InvalidInterfaceId(interface))?;
    let resolution = described.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    let at = ticks.map_or(Duration::ZERO, |ticks| span_of(ticks, resolution.unwrap_or(6)));
    let is_cut = (original as usize) > data.len();
    Ok(Some(Found::Packet(Raw { at, link: described.linktype, data, is_cut })))
}

/// A span of so many ticks: of powers of ten of a second, or of two if the highest bit is set.
fn span_of(ticks: u64, resolution: u8) -> Duration {
    let exponent = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 != 0 { 2 } else { 10 };
    let nanos = base.checked_pow(exponent).map_or(0, |rate| u128::from(ticks) * 1_000_000_000 / rate);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The text of a block of secrets, if they are those of TLS.
fn tls_key_log(value: &[u8], endianness: pcap_file::Endianness) -> Option<String> {
    let (kind, rest) = value.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let number = |bytes: [u8; 4]| match endianness {
        pcap_file::Endianness::Big => u32::from_be_bytes(bytes),
        pcap_file::Endianness::Little => u32::from_le_bytes(bytes),
    };
    let text = rest.get(..number(*length) as usize)?;
    (number(*kind) == TLS_KEY_LOG).then(|| String::from_utf8_lossy(text).into_owned())
}

/// The UDP datagram in a packet, if there is one, whole or cut.
fn datagram(raw: &Raw, at: Duration) -> Option<Datagram> {
    let packet = match raw.link {
        DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(&raw.data).ok()?,
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => LaxSlicedPacket::from_ip(&raw.data).ok()?,
        // The family of the address, then the packet.
        DataLink::NULL | DataLink::LOOP => LaxSlicedPacket::from_ip(raw.data.get(4..)?).ok()?,
        DataLink::LINUX_SLL => LaxSlicedPacket::from_ip(raw.data.get(16..)?).ok()?,
        DataLink::LINUX_SLL2 => LaxSlicedPacket::from_ip(raw.data.get(20..)?).ok()?,
        // Of old, and of BSD, a number of its own for IP without a link.
        DataLink::Unknown(12 | 14) => LaxSlicedPacket::from_ip(&raw.data).ok()?,
        _ => return None,
    };
    let (from, to): (IpAddr, IpAddr) = match packet.net? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into())
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into())
        }
        _ => return None,
    };
    let Some(TransportSlice::Udp(udp)) = packet.transport else { return None };
    let is_cut = raw.is_cut || packet.stop_err.is_some();
    Some(Datagram {
        at,
        from: SocketAddr::new(from, udp.source_port()),
        to: SocketAddr::new(to, udp.destination_port()),
        bytes: udp.payload().to_vec(),
        is_cut,
    })
}
