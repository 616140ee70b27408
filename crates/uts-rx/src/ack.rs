//! The body of an acknowledgement.

use uts_wire::{Problem, Reader, WireError};

/// Bytes between what has arrived and the limits.
const PADDING_BYTES: usize = 3;
/// Bytes of all limits, with the padding before them.
const LIMITS_BYTES: usize = PADDING_BYTES + 16;

/// Reason of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// A packet has asked.
    Requested = 1,
    /// A packet has come that was there.
    Duplicate = 2,
    /// A packet has come out of its turn.
    OutOfSequence = 3,
    /// A packet has come from beyond the window.
    ExceedsWindow = 4,
    /// There was no room for a packet.
    NoSpace = 5,
    /// The peer is asked if it is there.
    Ping = 6,
    /// The answer to that.
    PingResponse = 7,
    /// Some time has passed since a packet came.
    Delay = 8,
    /// The same, after a longer time.
    Idle = 9,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 9] = [
        Reason::Requested,
        Reason::Duplicate,
        Reason::OutOfSequence,
        Reason::ExceedsWindow,
        Reason::NoSpace,
        Reason::Ping,
        Reason::PingResponse,
        Reason::Delay,
        Reason::Idle,
    ];
}

/// Limits of the receiver, which newer implementations append. Older ones say the first few, or
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Limits {
    /// The longest packet that it takes, Rx header included, in bytes.
    pub receive_bytes_max: Option<u32>,
    /// The longest packet that its interface carries whole, in bytes.
    pub interface_bytes_max: Option<u32>,
    /// Packets that it takes beyond the first that it lacks.
    pub window_packets: Option<u32>,
    /// Packets that it takes in one datagram.
    pub jumbo_packets: Option<u32>,
}

impl Limits {
    /// Bytes that follow the packets that have arrived. Behind the first limit that is not said
    /// none can be.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words =
            [self.receive_bytes_max, self.interface_bytes_max, self.window_packets, self.jumbo_packets];
        let mut bytes = Vec::with_capacity(LIMITS_BYTES);
        bytes.resize(PADDING_BYTES, 0);
        bytes.extend(words.into_iter().map_while(|word| word).flat_map(u32::to_be_bytes));
        bytes
    }

    fn of(trailer: &[u8]) -> Self {
        let words = trailer.get(PADDING_BYTES..).unwrap_or_default();
        let word = |n: usize| Some(u32::from_be_bytes(*words.get(4 * n..)?.first_chunk()?));
        Limits {
            receive_bytes_max: word(0),
            interface_bytes_max: word(1),
            window_packets: word(2),
            jumbo_packets: word(3),
        }
    }
}

/// Body of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Packets that the receiver has room for.
    pub buffer_packets: u16,
    /// The highest difference of serial numbers between a packet and one that came before it.
    pub skew: u16,
    /// All packets of data before this one have arrived, and will not be asked for again.
    pub first: u32,
    /// The packet of data that came last.
    pub previous: u32,
    /// Serial number of the transmission that is answered; 0 if none is.
    pub serial: u32,
    /// Reason for which it is sent.
    pub reason: Reason,
    /// Packets from `first` on, 255 at most, a byte for each: the lowest bit is set if the packet
    /// has arrived.
    pub beyond: &'a [u8],
    /// Bytes behind that, as they came: padding and [`Limits`], whose number differs among
    /// implementations.
    pub trailer: &'a [u8],
}

impl<'a> Ack<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let buffer_packets = reader.u16("buffers")?;
        let skew = reader.u16("skew")?;
        let first = reader.u32("first packet")?;
        let previous = reader.u32("previous packet")?;
        let serial = reader.u32("serial number that is answered")?;
        let at = reader.offset();
        let number = reader.u8("reason")?;
        let reason = Reason::ALL.into_iter().find(|reason| *reason as u8 == number).ok_or(WireError {
            what: "reason",
            at,
            problem: Problem::Unknown { found: number.into() },
        })?;
        let count = reader.u8("count of packets")?;
        let beyond = reader.bytes(count.into(), "packets that have arrived")?;
        let trailer = reader.rest();
        Ok(Ack { buffer_packets, skew, first, previous, serial, reason, beyond, trailer })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.buffer_packets.to_be_bytes());
        out.extend(self.skew.to_be_bytes());
        for word in [self.first, self.previous, self.serial] {
            out.extend(word.to_be_bytes());
        }
        // What a count cannot say is not said.
        let beyond = &self.beyond[..self.beyond.len().min(u8::MAX.into())];
        out.extend([self.reason as u8, beyond.len() as u8]);
        out.extend_from_slice(beyond);
        out.extend_from_slice(self.trailer);
    }

    /// Limits of the receiver, as far as it says any.
    pub fn limits(&self) -> Limits {
        Limits::of(self.trailer)
    }

    /// Packets of data that have arrived, of those from `first` on.
    pub fn arrived(&self) -> impl Iterator<Item = u32> + 'a {
        let first = self.first;
        let has = self.beyond.iter().enumerate().filter(|(_, state)| **state & 1 == 1);
        has.map(move |(place, _)| first.wrapping_add(place as u32))
    }
}
