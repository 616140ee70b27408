//! Compression of TCP/IP headers (V. Jacobson, RFC 1144): 40 bytes become 3 to 16.
//!
//! A packet with IP options is sent as it is, which the RFC leaves to the sender. So are packets
//! whose TCP flags a compressed header cannot say.

use super::delta::{put, take, take_u8, take_u16};
use super::ipv4::{self, IP_BYTES};
use super::slots::{Receiving, Sending};
use super::{Discard, Form, Frame};

const TCP: u8 = 6;
const TCP_BYTES: usize = 20;

const WHOLE: u8 = 0x70;
const COMPRESSED: u8 = 0x80;

/// Bits of the change mask (RFC 1144, section 3.2.2).
const SLOT: u8 = 0x40;
const IDENTIFICATION: u8 = 0x20;
const PUSH: u8 = 0x10;
const SEQUENCE: u8 = 0x08;
const ACK: u8 = 0x04;
const WINDOW: u8 = 0x02;
const URGENT: u8 = 0x01;
/// Combinations of real changes that do not occur, and stand for frequent ones: data in both
/// directions that is echoed, and data in one.
const ALL_FOUR: u8 = SEQUENCE | ACK | WINDOW | URGENT;
const ECHOED: u8 = SEQUENCE | WINDOW | URGENT;
const ONE_WAY: u8 = ALL_FOUR;

/// Flags of TCP, and where they stand.
const FLAGS: usize = 13;
const FIN_SYN_RST: u8 = 0x07;
const PSH: u8 = 0x08;
const ACK_FLAG: u8 = 0x10;
const URG: u8 = 0x20;

/// Compressed headers, as they are on the line: what is not said follows from the packet before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compressed {
    /// The slot, if it is another than that of the packet before.
    pub slot: Option<u8>,
    /// The TCP checksum.
    pub checksum: u16,
    /// PSH is set.
    pub pushes: bool,
    /// Changes of the numbers.
    pub changes: Changes,
    /// Difference of the IP identification, if it is not 1.
    pub identification: Option<u16>,
}

/// Changes of TCP's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Sequence number and acknowledgement go on by the length of the packet before.
    Echoed,
    /// The sequence number goes on by the length of the packet before.
    OneWay,
    /// These, each by so much.
    Listed {
        /// The urgent pointer, with URG set.
        urgent: Option<u16>,
        /// The window, modulo 2^16.
        window: Option<u16>,
        /// The acknowledgement.
        ack: Option<u16>,
        /// The sequence number.
        sequence: Option<u16>,
    },
}

impl Compressed {
    /// Appends them (RFC 1144, figure 3).
    pub fn emit(&self, out: &mut Vec<u8>) {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let (bits, deltas) = match self.changes {
            Changes::Echoed => (ECHOED, [None; 4]),
            Changes::OneWay => (ONE_WAY, [None; 4]),
            Changes::Listed { urgent, window, ack, sequence } => (
                bit(urgent.is_some(), URGENT)
                    | bit(window.is_some(), WINDOW)
                    | bit(ack.is_some(), ACK)
                    | bit(sequence.is_some(), SEQUENCE),
                [urgent, window, ack, sequence],
            ),
        };
        let beside = bit(self.slot.is_some(), SLOT)
            | bit(self.identification.is_some(), IDENTIFICATION)
            | bit(self.pushes, PUSH);
        out.push(COMPRESSED | bits | beside);
        out.extend(self.slot);
        out.extend(self.checksum.to_be_bytes());
        deltas.into_iter().chain([self.identification]).flatten().for_each(|delta| put(out, delta));
    }

    /// Reads them off the front of a frame.
    ///
    /// # Errors
    /// They are cut off, or no compressor writes them so.
    pub fn parse(frame: &mut &[u8]) -> Result<Self, Discard> {
        Compressed::take(frame).ok_or(Discard("compressed headers of TCP that nobody writes"))
    }

    fn take(frame: &mut &[u8]) -> Option<Self> {
        let mask = take_u8(frame)?;
        if mask & COMPRESSED == 0 {
            return None;
        }
        let slot = if mask & SLOT == 0 { None } else { Some(take_u8(frame)?) };
        let checksum = take_u16(frame)?;
        // A difference that is said is not 0, but that of the urgent pointer, which is its value.
        let mut delta = |bit: u8| match mask & bit {
            0 => Some(None),
            _ => take(frame).filter(|delta| *delta != 0 || bit == URGENT).map(Some),
        };
        let changes = match mask & ALL_FOUR {
            ECHOED => Changes::Echoed,
            ONE_WAY => Changes::OneWay,
            _ => Changes::Listed {
                urgent: delta(URGENT)?,
                window: delta(WINDOW)?,
                ack: delta(ACK)?,
                sequence: delta(SEQUENCE)?,
            },
        };
        let identification = if mask & IDENTIFICATION == 0 { None } else { Some(take(frame)?) };
        if identification == Some(1) {
            return None;
        }
        Some(Compressed { slot, checksum, pushes: mask & PUSH != 0, changes, identification })
    }
}

/// Headers of a packet of TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Headers {
    ip: ipv4::Header,
    tcp: [u8; TCP_BYTES],
    options: Vec<u8>,
    /// Bytes of data behind them.
    data_bytes: usize,
}

impl Headers {
    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.tcp[at], self.tcp[at + 1], self.tcp[at + 2], self.tcp[at + 3]])
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.tcp[at], self.tcp[at + 1]])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.tcp[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn sequence(&self) -> u32 {
        self.word(4)
    }

    fn ack(&self) -> u32 {
        self.word(8)
    }

    fn window(&self) -> u16 {
        self.half(14)
    }

    fn checksum(&self) -> u16 {
        self.half(16)
    }

    fn urgent(&self) -> u16 {
        self.half(18)
    }

    /// True if both are of one connection.
    fn is_of(&self, other: &Headers) -> bool {
        self.ip[12..] == other.ip[12..] && self.tcp[..4] == other.tcp[..4]
    }

    /// True if compressed headers can say all in which these differ from those before.
    fn can_follow(&self, before: &Headers) -> bool {
        let fixed = |flags: u8| flags & !(PSH | URG);
        let is_urgent = self.tcp[FLAGS] & URG != 0;
        ipv4::is_alike(&self.ip, &before.ip)
            && self.options == before.options
            && self.tcp[FLAGS - 1] == before.tcp[FLAGS - 1]
            && fixed(self.tcp[FLAGS]) == fixed(before.tcp[FLAGS])
            && (is_urgent || self.urgent() == before.urgent())
    }

    /// Differences to the headers before; `None` if whole headers are to be sent (RFC 1144, section
    /// 3.2.3 and appendix A.2).
    fn after(&self, before: &Headers) -> Option<Compressed> {
        if !self.can_follow(before) {
            return None;
        }
        let ahead = |new: u32, old: u32| {
            Some(u16::try_from(new.wrapping_sub(old)).ok()?).map(|delta| Some(delta).filter(|d| *d != 0))
        };
        let urgent = (self.tcp[FLAGS] & URG != 0).then(|| self.urgent());
        let window = Some(self.window().wrapping_sub(before.window())).filter(|delta| *delta != 0);
        let (ack, sequence) = (ahead(self.ack(), before.ack())?, ahead(self.sequence(), before.sequence())?);
        let length = u16::try_from(before.data_bytes).ok().filter(|length| *length != 0);
        let changes = match (urgent, window, ack, sequence) {
            // Only data behind an acknowledgement may say nothing new. Anything else is sent again,
            // since the peer has missed it.
            (None, None, None, None) if before.data_bytes > 0 || self.data_bytes == 0 => return None,
            (None, None, Some(a), Some(s)) if Some(s) == length && a == s => Changes::Echoed,
            (None, None, None, Some(s)) if Some(s) == length => Changes::OneWay,
            (Some(_), Some(_), _, Some(_)) => return None,
            _ => Changes::Listed { urgent, window, ack, sequence },
        };
        let identification = ipv4::number(&self.ip, 4).wrapping_sub(ipv4::number(&before.ip, 4));
        Some(Compressed {
            slot: None,
            checksum: self.checksum(),
            pushes: self.tcp[FLAGS] & PSH != 0,
            changes,
            identification: Some(identification).filter(|delta| *delta != 1),
        })
    }

    /// Applies differences.
    fn advance(&mut self, compressed: &Compressed) {
        let length = self.data_bytes as u32;
        let (urgent, window, ack, sequence) = match compressed.changes {
            Changes::Echoed => (None, 0, length, length),
            Changes::OneWay => (None, 0, 0, length),
            Changes::Listed { urgent, window, ack, sequence } => {
                let delta = |delta: Option<u16>| u32::from(delta.unwrap_or(0));
                (urgent, window.unwrap_or(0), delta(ack), delta(sequence))
            }
        };
        self.put(4, &self.sequence().wrapping_add(sequence).to_be_bytes());
        self.put(8, &self.ack().wrapping_add(ack).to_be_bytes());
        self.put(14, &self.window().wrapping_add(window).to_be_bytes());
        self.put(16, &compressed.checksum.to_be_bytes());
        let flags = self.tcp[FLAGS] & !(PSH | URG);
        let pushes = if compressed.pushes { PSH } else { 0 };
        self.tcp[FLAGS] = flags | pushes | urgent.map_or(0, |_| URG);
        if let Some(urgent) = urgent {
            self.put(18, &urgent.to_be_bytes());
        }
        let identification = ipv4::number(&self.ip, 4).wrapping_add(compressed.identification.unwrap_or(1));
        ipv4::put(&mut self.ip, 4, identification);
    }

    /// A packet of these headers; `None` if none is so long.
    fn packet(&self, data: &[u8]) -> Option<Vec<u8>> {
        let mut ip = self.ip;
        let bytes = TCP_BYTES + self.options.len() + data.len();
        ipv4::complete(&mut ip, bytes)?;
        let mut packet = Vec::with_capacity(IP_BYTES + bytes);
        packet.extend(ip);
        packet.extend(self.tcp);
        packet.extend_from_slice(&self.options);
        packet.extend_from_slice(data);
        Some(packet)
    }
}

/// Headers of a packet of TCP that can be restored, and its data; `None` if it is no such packet.
fn split(packet: &[u8]) -> Option<(Headers, &[u8])> {
    let (ip, segment) = ipv4::split(packet)?;
    let (tcp, rest) = segment.split_first_chunk::<TCP_BYTES>()?;
    let options_bytes = (4 * usize::from(tcp[FLAGS - 1] >> 4)).checked_sub(TCP_BYTES)?;
    let (options, data) = rest.split_at_checked(options_bytes)?;
    let can_be = tcp[FLAGS] & (FIN_SYN_RST | ACK_FLAG) == ACK_FLAG;
    let headers = Headers { ip: *ip, tcp: *tcp, options: options.to_vec(), data_bytes: data.len() };
    (ip[9] == TCP && can_be).then_some((headers, data))
}

/// The sending end.
#[derive(Debug)]
pub struct Compressor {
    slots: Sending<Headers>,
}

impl Compressor {
    /// An end with so many slots that has sent nothing.
    pub fn new(slots: u16) -> Self {
        Compressor { slots: Sending::new(slots) }
    }

    /// The frame of a packet of TCP; `None` if it is none, or one that is sent as it is.
    pub fn compress(&mut self, packet: &[u8]) -> Option<Frame> {
        let (headers, data) = split(packet)?;
        let mut differences = None;
        let number = match self.slots.find(|slot| slot.is_of(&headers)) {
            Some((number, slot)) => {
                differences = headers.after(slot);
                *slot = headers;
                number
            }
            None => self.slots.add(headers),
        };
        let slot = self.slots.on_sent(number);
        let Some(compressed) = differences else { return Some(Frame::whole(WHOLE, packet, number)) };
        let mut bytes = Vec::with_capacity(packet.len());
        Compressed { slot, ..compressed }.emit(&mut bytes);
        bytes.extend_from_slice(data);
        Some(Frame { form: Form::Compressed, bytes })
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct Decompressor {
    slots: Receiving<Headers>,
}

impl Decompressor {
    /// An end with so many slots that has received nothing.
    pub fn new(slots: u16) -> Self {
        Decompressor { slots: Receiving::new(slots) }
    }

    /// The packet of a frame of TCP.
    ///
    /// # Errors
    /// No compressor sends such a frame, or its slot is not known.
    pub fn expand(&mut self, frame: &[u8]) -> Result<Vec<u8>, Discard> {
        match frame.first() {
            Some(first) if first & 0xf0 == WHOLE => self.fill(frame),
            Some(first) if first & COMPRESSED != 0 => {
                let mut data = frame;
                let compressed = Compressed::parse(&mut data)?;
                let headers = self.slots.of_frame(compressed.slot)?;
                headers.advance(&compressed);
                headers.data_bytes = data.len();
                headers.packet(data).ok_or(Discard("the packet would be too long"))
            }
            _ => Err(Discard("the frame is not of TCP")),
        }
    }

    fn fill(&mut self, frame: &[u8]) -> Result<Vec<u8>, Discard> {
        let wrong = Discard("whole headers of TCP that are damaged");
        let mut packet = frame.to_vec();
        let slot = core::mem::replace(packet.get_mut(9).ok_or(wrong)?, TCP);
        packet[0] = 0x40 | packet[0] & 0xf;
        let (headers, _) = split(&packet).ok_or(wrong)?;
        self.slots.fill(slot, headers)?;
        Ok(packet)
    }

    /// The next frame has to say its slot.
    pub fn on_error(&mut self) {
        self.slots.forget_last();
    }
}
