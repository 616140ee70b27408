//! One direction of a call.

use crate::{Ack, Flags, Header, Limits, Reason};
use core::time::Duration;
use std::collections::BTreeMap;

/// Bytes of data in a packet: what fits an Ethernet, as OpenAFS has it.
pub const DATA_BYTES: usize = 1412;
/// Packets that may be outstanding, and that are held out of their turn.
pub const WINDOW_PACKETS: u32 = 15;
/// Every so many packets one asks for an acknowledgement.
const ASKS_EVERY: u32 = 4;
/// The time-out before anything was measured, the shortest and the longest.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
const TIMEOUT_MIN: Duration = Duration::from_millis(200);
const TIMEOUT_MAX: Duration = Duration::from_secs(2);

/// A packet of data that was sent and is not acknowledged.
#[derive(Debug)]
struct Sent {
    at: Duration,
    serial: u32,
}

/// The sending half: all bytes are there.
#[derive(Debug)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// Packets before this were sent once, from 1.
    next: u32,
    outstanding: BTreeMap<u32, Sent>,
    /// Packets that are to be sent again.
    lost: Vec<u32>,
    /// Packets that the peer takes at once.
    window: u32,
    timeout: Duration,
}

impl Outgoing {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Outgoing {
            bytes,
            next: 1,
            outstanding: BTreeMap::new(),
            lost: Vec::new(),
            window: WINDOW_PACKETS,
            timeout: FIRST_TIMEOUT,
        }
    }

    /// Number of its last packet; an empty half has one, too.
    fn last(&self) -> u32 {
        u32::try_from(self.bytes.len().div_ceil(DATA_BYTES)).unwrap_or(u32::MAX).max(1)
    }

    pub(super) fn is_done(&self) -> bool {
        self.next > self.last() && self.outstanding.is_empty() && self.lost.is_empty()
    }

    /// The peer has all.
    pub(super) fn finish(&mut self) {
        self.next = self.last() + 1;
        self.outstanding.clear();
        self.lost.clear();
    }

    /// Takes an acknowledgement; returns whether something new was acknowledged.
    pub(super) fn on_ack(&mut self, now: Duration, ack: &Ack<'_>) -> bool {
        let before = self.outstanding.len();
        let arrived = |sequence: u32| {
            let beyond = sequence.checked_sub(ack.first).and_then(|place| ack.beyond.get(place as usize));
            sequence < ack.first || beyond.is_some_and(|state| state & 1 == 1)
        };
        let measured = self.outstanding.values().find(|sent| sent.serial == ack.serial).map(|sent| sent.at);
        self.outstanding.retain(|sequence, _| !arrived(*sequence));
        self.lost.retain(|sequence| !arrived(*sequence));
        if let Some(window) = ack.limits().window_packets {
            self.window = window.clamp(1, WINDOW_PACKETS);
        }
        // The acknowledgement names the transmission (The Rx Hex, section 5).
        if let Some(at) = measured {
            self.timeout = (now.saturating_sub(at) * 3).clamp(TIMEOUT_MIN, TIMEOUT_MAX);
        }
        self.outstanding.len() < before
    }

    pub(super) fn handle_timeout(&mut self, now: Duration) {
        let timeout = self.timeout;
        let expired = self.outstanding.extract_if(.., |_, sent| sent.at + timeout <= now);
        let before = self.lost.len();
        self.lost.extend(expired.map(|(sequence, _)| sequence));
        if self.lost.len() > before {
            self.timeout = (self.timeout * 2).min(TIMEOUT_MAX);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.outstanding.values().map(|sent| sent.at + self.timeout).min()
    }

    /// The next packet of data: its header behind one of the call, and its bytes.
    pub(super) fn poll(&mut self, now: Duration, call: Header, serial: u32) -> Option<(Header, &[u8])> {
        let first = self.outstanding.keys().next().copied();
        let end = first.unwrap_or(self.next).saturating_add(self.window);
        let sequence = match self.lost.first() {
            Some(_) => self.lost.remove(0),
            None if self.next <= self.last() && self.next < end => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        self.outstanding.insert(sequence, Sent { at: now, serial });
        let is_last = sequence == self.last();
        let fills = sequence + 1 >= end || !self.lost.is_empty();
        let asks = is_last || fills || sequence.is_multiple_of(ASKS_EVERY);
        let set = [(is_last, Flags::LAST), (asks, Flags::REQUEST_ACK)];
        let flags =
            set.iter().filter(|(is_set, _)| *is_set).fold(call.flags, |flags, (_, flag)| flags.with(*flag));
        let from = (sequence as usize - 1) * DATA_BYTES;
        let bytes = &self.bytes[from..self.bytes.len().min(from + DATA_BYTES)];
        Some((Header { sequence, serial, flags, ..call }, bytes))
    }
}

/// The receiving half.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    /// Packets before this have arrived, counted from 0.
    arrived: u32,
    held: BTreeMap<u32, Vec<u8>>,
    /// Number of the last packet, once it is known.
    last: Option<u32>,
    /// Most bytes that it takes.
    bytes_max: usize,
    /// Serial number to answer, and why.
    answers: Option<(u32, Reason)>,
}

/// More bytes than are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

impl Incoming {
    pub(super) fn new(bytes_max: usize) -> Self {
        Incoming { bytes_max, ..Incoming::default() }
    }

    /// Takes a packet of data.
    pub(super) fn on_data(&mut self, header: &Header, bytes: &[u8]) -> Result<(), TooLong> {
        let next = self.arrived + 1;
        let is_beyond = self.last.is_some_and(|last| header.sequence > last);
        let reason = if header.sequence < next || self.held.contains_key(&header.sequence) {
            Some(Reason::Duplicate)
        } else if header.sequence >= next.saturating_add(WINDOW_PACKETS) || is_beyond {
            Some(Reason::ExceedsWindow)
        } else {
            if header.flags.has(Flags::LAST) {
                self.last = Some(header.sequence);
            }
            self.held.insert(header.sequence, bytes.to_vec());
            (header.sequence > next).then_some(Reason::OutOfSequence)
        };
        while let Some(bytes) = self.held.remove(&(self.arrived + 1)) {
            if self.bytes.len() + bytes.len() > self.bytes_max {
                return Err(TooLong);
            }
            self.bytes.extend(bytes);
            self.arrived += 1;
        }
        let reason = reason.or(header.flags.has(Flags::REQUEST_ACK).then_some(Reason::Requested));
        if let Some(reason) = reason {
            self.answers = Some((header.serial, reason));
        }
        Ok(())
    }

    /// The peer asks whether this end is there.
    pub(super) fn on_ping(&mut self, serial: u32) {
        self.answers = Some((serial, Reason::PingResponse));
    }

    /// True if all of it is there.
    pub(super) fn is_done(&self) -> bool {
        self.last.is_some_and(|last| last <= self.arrived)
    }

    /// All of it, taken.
    pub(super) fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.bytes)
    }

    /// An acknowledgement, if one is wanted.
    pub(super) fn poll_ack(&mut self) -> Option<OwnedAck> {
        let (serial, reason) = self.answers.take()?;
        Some(self.ack(serial, reason))
    }

    /// An acknowledgement that asks the peer if it is there.
    pub(super) fn ping(&self) -> OwnedAck {
        self.ack(0, Reason::Ping)
    }

    fn ack(&self, serial: u32, reason: Reason) -> OwnedAck {
        let first = self.arrived + 1;
        let end = self.held.keys().next_back().map_or(first, |last| last + 1);
        let beyond = (first..end).map(|sequence| u8::from(self.held.contains_key(&sequence))).collect();
        OwnedAck { first, serial, reason, beyond, trailer: limits().to_bytes() }
    }
}

fn limits() -> Limits {
    let packet_bytes = (crate::HEADER_BYTES + DATA_BYTES) as u32;
    Limits {
        receive_bytes_max: Some(packet_bytes),
        interface_bytes_max: Some(packet_bytes),
        window_packets: Some(WINDOW_PACKETS),
        jumbo_packets: Some(1),
    }
}

/// An acknowledgement that is to be sent.
#[derive(Debug)]
pub(super) struct OwnedAck {
    first: u32,
    serial: u32,
    reason: Reason,
    beyond: Vec<u8>,
    trailer: Vec<u8>,
}

impl OwnedAck {
    pub(super) fn view(&self) -> Ack<'_> {
        Ack {
            buffer_packets: WINDOW_PACKETS as u16,
            skew: 0,
            first: self.first,
            previous: self.first.saturating_sub(1),
            serial: self.serial,
            reason: self.reason,
            beyond: &self.beyond,
            trailer: &self.trailer,
        }
    }
}
