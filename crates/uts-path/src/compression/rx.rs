//! Compression of Rx/UDP/IP headers (The Rx Hex, section 7): 56 bytes become 4 to 6 mostly.
//!
//! A connection is known by addresses, ports, epoch and number. Twelve bits, A to L, say what of
//! the rest is sent and what follows from the packet before. There are no bits for the service, the
//! security index, and the type of service, time to live and fragment fields of IP. If one of them
//! changes, headers are sent whole. The paper leaves these open, and they are as follows here:
//!
//! * 5 is the version of whole headers, 6 that of compressed ones.
//! * A packet is taken for one of Rx if one of its ports is of [`AFS_PORTS`].
//! * A packet without UDP checksum is sent as it is, as nothing would tell wrong headers.
//! * A packet that takes its call no further is sent with whole headers: data that do not follow
//!   the data before, an acknowledgement that knows no more than the last, another packet of the
//!   same type. Its sender has missed an answer. This includes what the paper does when the
//!   sequence number jumps back, and a request, an answer or an acknowledgement that was lost.
//! * The checksum is a sum. What is one too low in one place and one too high in another passes. A
//!   packet asks for an acknowledgement, and the next, which does not, is lost: those behind it
//!   seem to ask, with sequence and serial numbers that are one too low each. The sender therefore
//!   looks at what its peer would restore if it had missed the last few frames. Where the checksum
//!   would not tell, it says flags, type and status although they are the same as before, or all. A
//!   frame whose slot the checksum would not tell says its slot.

use super::delta::{put, take, take_u8, take_u16};
use super::ipv4::{self, IP_BYTES};
use super::slots::{Receiving, Sending};
use super::{Discard, Form, Frame};
use core::ops::RangeInclusive;
use etherparse::checksum::Sum16BitWords;
use std::collections::VecDeque;
use uts_rx::{Body, Flags, Header, Packet, Type};

/// Ports of AFS: file server 7000 to `rxperf` 7009.
pub const AFS_PORTS: RangeInclusive<u16> = 7000..=7009;

const UDP: u8 = 17;
const UDP_BYTES: usize = 8;
/// Bytes of all headers.
const HEADERS_BYTES: usize = IP_BYTES + UDP_BYTES + uts_rx::HEADER_BYTES;

const WHOLE: u8 = 0x50;
const COMPRESSED: u8 = 0x60;

/// Frames in a row whose loss is never taken for something else.
const MISSED_MAX: usize = 8;

/// Bits of the mask, in its two bytes behind the version (figure 15).
const A: u16 = 0x0800;
const B: u16 = 0x0400;
const C: u16 = 0x0200;
const D: u16 = 0x0100;
const E: u16 = 0x0080;
const F: u16 = 0x0040;
const G: u16 = 0x0020;
const H: u16 = 0x0010;
const I: u16 = 0x0008;
const J: u16 = 0x0004;
const K: u16 = 0x0002;
const L: u16 = 0x0001;

/// The sequence number of a packet, beside that of the packet before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sequence {
    /// The same.
    Same,
    /// Zero, where the one before was not.
    Zero,
    /// So much higher; not 0.
    Ahead(u16),
}

/// Compressed headers, as they are on the line: what is not said follows from the packet before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compressed {
    /// The slot, if it is another than that of the packet before (C).
    pub slot: Option<u8>,
    /// The UDP checksum.
    pub checksum: u16,
    /// Difference of the IP identification, if it is not 1 (D).
    pub identification: Option<u16>,
    /// Difference of the call number, if it is not 0 (E, and B if it is 1).
    pub call: Option<u16>,
    /// The sequence number (F, and A or L).
    pub sequence: Sequence,
    /// Difference of the serial number, if it is not 1 (G).
    pub serial: Option<u16>,
    /// The type, if it is another (H).
    pub kind: Option<Type>,
    /// The flags, if they are others (I).
    pub flags: Option<Flags>,
    /// The status, if it is another (J).
    pub status: Option<u8>,
    /// The verifier, if it is not 0 (K).
    pub verifier: Option<u16>,
}

impl Compressed {
    /// Appends them (figures 15 and 16).
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (sequence, ahead) = match self.sequence {
            Sequence::Same => (0, None),
            Sequence::Zero => (F | L, None),
            Sequence::Ahead(1) => (F | A, None),
            Sequence::Ahead(delta) => (F, Some(delta)),
        };
        let call = match self.call {
            None => 0,
            Some(1) => E | B,
            Some(_) => E,
        };
        let given = [
            (self.slot.is_some(), C),
            (self.identification.is_some(), D),
            (self.serial.is_some(), G),
            (self.kind.is_some(), H),
            (self.flags.is_some(), I),
            (self.status.is_some(), J),
            (self.verifier.is_some(), K),
        ];
        let bits = given.iter().filter(|(is_given, _)| *is_given).map(|(_, bit)| bit);
        let mask = bits.fold(sequence | call, |mask, bit| mask | bit);
        out.extend((u16::from(COMPRESSED) << 8 | mask).to_be_bytes());
        out.extend(self.slot);
        out.extend(self.checksum.to_be_bytes());
        let call = self.call.filter(|delta| *delta != 1);
        for delta in [self.identification, call, ahead, self.serial].into_iter().flatten() {
            put(out, delta);
        }
        out.extend(self.kind.map(|kind| kind as u8));
        out.extend(self.flags.map(|flags| flags.0));
        out.extend(self.status);
        out.extend(self.verifier.iter().flat_map(|verifier| verifier.to_be_bytes()));
    }

    /// Reads them off the front of a frame. There is one way to write them; another is refused.
    ///
    /// # Errors
    /// They are cut off, or no compressor writes them so.
    pub fn parse(frame: &mut &[u8]) -> Result<Self, Discard> {
        Compressed::take(frame).ok_or(Discard("compressed headers of Rx that nobody writes"))
    }

    fn take(frame: &mut &[u8]) -> Option<Self> {
        let mask = take_u16(frame)?;
        let has = |bit: u16| mask & bit != 0;
        let is_sane = (mask >> 8) as u8 & 0xf0 == COMPRESSED
            && (!has(B) || has(E))
            && (!has(A | L) || has(F))
            && !(has(A) && has(L));
        if !is_sane {
            return None;
        }
        let slot = if has(C) { Some(take_u8(frame)?) } else { None };
        let checksum = take_u16(frame)?;
        let identification = if has(D) { Some(unless(take(frame)?, &[1])?) } else { None };
        let call = match (has(E), has(B)) {
            (false, _) => None,
            (true, true) => Some(1),
            (true, false) => Some(unless(take(frame)?, &[0, 1])?),
        };
        let sequence = match (has(F), has(A), has(L)) {
            (false, ..) => Sequence::Same,
            (true, true, _) => Sequence::Ahead(1),
            (true, _, true) => Sequence::Zero,
            (true, false, false) => Sequence::Ahead(unless(take(frame)?, &[0, 1])?),
        };
        let serial = if has(G) { Some(unless(take(frame)?, &[1])?) } else { None };
        let kind = if has(H) { Some(Type::from_number(take_u8(frame)?)?) } else { None };
        let flags = if has(I) { Some(Flags(take_u8(frame)?)) } else { None };
        let status = if has(J) { Some(take_u8(frame)?) } else { None };
        let verifier = if has(K) { Some(unless(take_u16(frame)?, &[0])?) } else { None };
        Some(Compressed {
            slot,
            checksum,
            identification,
            call,
            sequence,
            serial,
            kind,
            flags,
            status,
            verifier,
        })
    }
}

fn unless(value: u16, excluded: &[u16]) -> Option<u16> {
    (!excluded.contains(&value)).then_some(value)
}

/// Headers of a packet of Rx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Headers {
    ip: ipv4::Header,
    /// Source and destination.
    ports: [u8; 4],
    rx: Header,
}

impl Headers {
    /// True if both are of one connection.
    fn is_of(&self, other: &Headers) -> bool {
        let signature = |h: &Headers| (h.ports, h.rx.epoch, h.rx.connection);
        self.ip[12..] == other.ip[12..] && signature(self) == signature(other)
    }

    /// True if there are bits for all in which these differ from those before.
    fn can_follow(&self, before: &Headers) -> bool {
        let fixed = |rx: &Header| (rx.security, rx.service);
        ipv4::is_alike(&self.ip, &before.ip) && fixed(&self.rx) == fixed(&before.rx)
    }

    /// Differences to the headers before; `None` if there are no bits for them, or if they are
    /// below zero or too large.
    fn after(&self, before: &Headers, checksum: u16) -> Option<Compressed> {
        if !self.can_follow(before) {
            return None;
        }
        let ahead = |new: u32, old: u32| u16::try_from(new.checked_sub(old)?).ok();
        let (rx, old) = (&self.rx, &before.rx);
        let identification = ipv4::number(&self.ip, 4).wrapping_sub(ipv4::number(&before.ip, 4));
        let sequence = match ahead(rx.sequence, old.sequence) {
            Some(0) => Sequence::Same,
            Some(delta) => Sequence::Ahead(delta),
            None if rx.sequence == 0 => Sequence::Zero,
            None => return None,
        };
        Some(Compressed {
            slot: None,
            checksum,
            identification: Some(identification).filter(|delta| *delta != 1),
            call: Some(ahead(rx.call, old.call)?).filter(|delta| *delta != 0),
            sequence,
            serial: Some(ahead(rx.serial, old.serial)?).filter(|delta| *delta != 1),
            kind: Some(rx.kind).filter(|kind| *kind != old.kind),
            flags: Some(rx.flags).filter(|flags| *flags != old.flags),
            status: Some(rx.status).filter(|status| *status != old.status),
            verifier: Some(rx.verifier).filter(|verifier| *verifier != 0),
        })
    }

    /// Applies differences; `None` if a number would run over.
    fn advance(&mut self, compressed: &Compressed) -> Option<()> {
        self.rx = next(&self.rx, compressed)?;
        let identification = ipv4::number(&self.ip, 4).wrapping_add(compressed.identification.unwrap_or(1));
        ipv4::put(&mut self.ip, 4, identification);
        Some(())
    }

    /// The part of the UDP checksum that is of these headers.
    fn sum(&self) -> u16 {
        let sum = sum_of(&self.rx).add_slice(&self.ip[12..]).add_slice(&self.ports);
        sum.ones_complement()
    }

    /// A packet of these headers; `None` if none is so long.
    fn packet(&self, checksum: u16, content: &[u8]) -> Option<Vec<u8>> {
        let mut ip = self.ip;
        let udp_bytes = HEADERS_BYTES - IP_BYTES + content.len();
        ipv4::complete(&mut ip, udp_bytes)?;
        let mut packet = Vec::with_capacity(IP_BYTES + udp_bytes);
        packet.extend(ip);
        packet.extend(self.ports);
        packet.extend((udp_bytes as u16).to_be_bytes());
        packet.extend(checksum.to_be_bytes());
        packet.extend(self.rx.to_bytes());
        packet.extend_from_slice(content);
        Some(packet)
    }
}

/// The header behind another; `None` if a number would run over.
fn next(before: &Header, compressed: &Compressed) -> Option<Header> {
    let mut rx = *before;
    rx.call = rx.call.checked_add(compressed.call.unwrap_or(0).into())?;
    rx.sequence = match compressed.sequence {
        Sequence::Same => rx.sequence,
        Sequence::Zero => 0,
        Sequence::Ahead(delta) => rx.sequence.checked_add(delta.into())?,
    };
    rx.serial = rx.serial.checked_add(compressed.serial.unwrap_or(1).into())?;
    rx.kind = compressed.kind.unwrap_or(rx.kind);
    rx.flags = compressed.flags.unwrap_or(rx.flags);
    rx.status = compressed.status.unwrap_or(rx.status);
    rx.verifier = compressed.verifier.unwrap_or(0);
    Some(rx)
}

/// The sum of a header's words.
fn sum_of(rx: &Header) -> Sum16BitWords {
    Sum16BitWords::new().add_slice(&rx.to_bytes())
}

/// Headers of a packet of Rx that can be restored, its UDP checksum, and its UDP payload; `None` if
/// it is no such packet.
fn split(packet: &[u8]) -> Option<(Headers, u16, &[u8])> {
    let (ip, datagram) = ipv4::split(packet)?;
    let ([s0, s1, d0, d1, l0, l1, c0, c1], payload) = datagram.split_first_chunk::<UDP_BYTES>()?;
    let is_afs = |high: u8, low: u8| AFS_PORTS.contains(&u16::from_be_bytes([high, low]));
    let is_whole = usize::from(u16::from_be_bytes([*l0, *l1])) == datagram.len();
    if ip[9] != UDP || !is_whole || !(is_afs(*s0, *s1) || is_afs(*d0, *d1)) {
        return None;
    }
    let rx = Header::parse(payload).ok()?;
    let headers = Headers { ip: *ip, ports: [*s0, *s1, *d0, *d1], rx };
    Some((headers, u16::from_be_bytes([*c0, *c1]), payload))
}

/// The last headers of a connection, and how far its packets of data and its acknowledgements have
/// come in the call.
#[derive(Debug, Clone)]
struct Slot {
    headers: Headers,
    /// Headers of Rx before these, the latest last: what the peer may have of them.
    earlier: VecDeque<Header>,
    /// Number of the last packet of data.
    data: u32,
    /// The packet of data up to which the last acknowledgement knew what has arrived.
    known: u32,
}

impl Slot {
    /// Notes what a packet says; returns whether that is news.
    fn on_packet(&mut self, headers: &Headers, payload: &[u8]) -> bool {
        let (rx, old) = (&headers.rx, self.headers.rx);
        let is_next_call = rx.call > old.call;
        if is_next_call {
            (self.data, self.known) = (0, 0);
        }
        let goes_on = |last: &mut u32, value: u32| core::mem::replace(last, value) < value;
        let is_news = match rx.kind {
            Type::Data => goes_on(&mut self.data, rx.sequence),
            Type::Ack => goes_on(&mut self.known, known(payload)),
            other => other != old.kind,
        };
        self.earlier.push_back(old);
        if self.earlier.len() > MISSED_MAX {
            self.earlier.pop_front();
        }
        self.headers = *headers;
        is_news || is_next_call
    }

    /// Compressed headers that the checksum tells from what a peer restores of them that has missed
    /// frames: these, or with more said than there is need for.
    fn unmistakable(&self, compressed: Compressed) -> Option<Compressed> {
        let Header { kind, flags, status, .. } = self.headers.rx;
        let with_flags = Compressed { flags: Some(flags), ..compressed };
        let with_all = Compressed { kind: Some(kind), status: Some(status), ..with_flags };
        [compressed, with_flags, with_all].into_iter().find(|form| !self.may_mislead(form))
    }

    /// True if a peer that has missed the last frames would restore other headers than these, and
    /// the checksum would not tell.
    fn may_mislead(&self, compressed: &Compressed) -> bool {
        let right = &self.headers.rx;
        let sum = sum_of(right).ones_complement();
        let mut restored = self.earlier.iter().filter_map(|earlier| next(earlier, compressed));
        restored.any(|rx| rx != *right && sum_of(&rx).ones_complement() == sum)
    }
}

/// The packet of data behind the last that an acknowledgement says anything of.
fn known(payload: &[u8]) -> u32 {
    match Packet::parse(payload).map(|packet| *packet.body()) {
        Ok(Body::Ack(ack)) => ack.first.saturating_add(ack.beyond.len() as u32),
        _ => 0,
    }
}

/// The sending end.
#[derive(Debug)]
pub struct Compressor {
    slots: Sending<Slot>,
}

impl Compressor {
    /// An end with so many slots that has sent nothing.
    pub fn new(slots: u16) -> Self {
        Compressor { slots: Sending::new(slots) }
    }

    /// The frame of a packet of Rx; `None` if it is none, or one whose headers cannot be restored.
    pub fn compress(&mut self, packet: &[u8]) -> Option<Frame> {
        let (headers, checksum, payload) = split(packet)?;
        if checksum == 0 {
            return None;
        }
        let mut differences = None;
        let number = match self.slots.find(|slot| slot.headers.is_of(&headers)) {
            Some((number, slot)) => {
                let before = slot.headers;
                if slot.on_packet(&headers, payload) {
                    differences = headers.after(&before, checksum);
                    differences = differences.and_then(|compressed| slot.unmistakable(compressed));
                }
                number
            }
            None => {
                let mut slot = Slot { headers, earlier: VecDeque::new(), data: 0, known: 0 };
                slot.on_packet(&headers, payload);
                self.slots.add(slot)
            }
        };
        let slot = self.slots.on_sent(number);
        let Some(compressed) = differences else { return Some(Frame::whole(WHOLE, packet, number)) };
        let slot = slot.or_else(|| self.slots_mislead(&headers, &compressed).then_some(number));
        let mut bytes = Vec::with_capacity(packet.len());
        Compressed { slot, ..compressed }.emit(&mut bytes);
        bytes.extend_from_slice(&payload[uts_rx::HEADER_BYTES..]);
        Some(Frame { form: Form::Compressed, bytes })
    }

    /// True if a peer that has missed a change of the slot would restore another packet in the slot
    /// before, and the checksum would not tell.
    fn slots_mislead(&self, right: &Headers, compressed: &Compressed) -> bool {
        let sum = right.sum();
        self.slots.iter().any(|slot| {
            let mut other = slot.headers;
            !other.is_of(right) && other.advance(compressed).is_some() && other.sum() == sum
        })
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

    /// The packet of a frame of Rx.
    ///
    /// # Errors
    /// No compressor sends such a frame, or its slot is not known.
    pub fn expand(&mut self, frame: &[u8]) -> Result<Vec<u8>, Discard> {
        match frame.first().map(|first| first & 0xf0) {
            Some(WHOLE) => self.fill(frame),
            Some(COMPRESSED) => {
                let mut content = frame;
                let compressed = Compressed::parse(&mut content)?;
                let slot = self.slots.of_frame(compressed.slot)?;
                let mut headers = *slot;
                headers.advance(&compressed).ok_or(Discard("a number of Rx runs over"))?;
                let packet = headers.packet(compressed.checksum, content);
                *slot = headers;
                packet.ok_or(Discard("the packet would be too long"))
            }
            _ => Err(Discard("the frame is not of Rx")),
        }
    }

    fn fill(&mut self, frame: &[u8]) -> Result<Vec<u8>, Discard> {
        let wrong = Discard("whole headers of Rx that are damaged");
        let mut packet = frame.to_vec();
        let slot = core::mem::replace(packet.get_mut(9).ok_or(wrong)?, UDP);
        packet[0] = 0x40 | packet[0] & 0xf;
        let (headers, checksum, _) = split(&packet).ok_or(wrong)?;
        if checksum == 0 {
            return Err(wrong);
        }
        self.slots.fill(slot, headers)?;
        Ok(packet)
    }

    /// The next frame has to say its slot.
    pub fn on_error(&mut self) {
        self.slots.forget_last();
    }
}
