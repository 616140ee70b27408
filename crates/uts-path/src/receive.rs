//! A router's receive buffers: packets that have come in, and that it takes up one by one.

use crate::error::SpecError;
use crate::parse::{format_duration, parse_duration_ns, parse_whole};
use crate::passage::Passage;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// Most receive buffers: more hold nothing that matters, and what is held is bounded.
const MAX_BUFFERS: u32 = 65_536;

/// Buffers of the interface at which packets come in. A packet has one until the router has put it
/// into its transmit queue; one that finds none free is dropped.
///
/// Text form: `8p,100us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    /// Buffers, 1 to 65,536; each holds a packet of whatever size.
    pub buffers: u32,
    /// Time that the router takes for a packet, one after the other; nanoseconds, at most an hour.
    pub time_ns: u64,
}

impl Receive {
    pub(crate) fn check(self) -> Result<(), SpecError> {
        crate::config::between("receive", "number of buffers", self.buffers.into(), 1, MAX_BUFFERS.into())?;
        crate::config::check_delay("receive", self.time_ns)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "must be BUFFERS,TIME as in 8p,100us, or off";
        let (buffers, time) = text.split_once(',').ok_or(FORM)?;
        let buffers = buffers.strip_suffix('p').ok_or(FORM)?;
        Ok(Receive { buffers: parse_whole(buffers, "number of buffers")?, time_ns: parse_duration_ns(time)? })
    }
}

impl fmt::Display for Receive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}p,{}", self.buffers, format_duration(self.time_ns))
    }
}

/// A packet in a receive buffer.
#[derive(Debug)]
pub(crate) struct Received<T> {
    pub payload: T,
    pub passage: Passage,
    /// Bytes that it takes in the transmit queue.
    pub cost_bytes: u64,
    /// When the router has put it there.
    pub done_ns: u64,
}

/// Packets in receive buffers, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    packets: VecDeque<Received<T>>,
    bytes: u64,
    /// When the router is done with the last.
    done_ns: u64,
}

impl<T> Receiver<T> {
    pub(crate) const fn new() -> Self {
        Receiver { packets: VecDeque::new(), bytes: 0, done_ns: 0 }
    }

    pub(crate) fn packets(&self) -> u64 {
        self.packets.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The instant at which the next packet leaves its buffer.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.packets.front().map(|packet| packet.done_ns)
    }

    /// Takes a packet, on which the router works for so long behind those before it.
    pub(crate) fn push(&mut self, now_ns: u64, time_ns: u64, payload: T, passage: Passage, cost_bytes: u64) {
        self.done_ns = self.done_ns.max(now_ns).saturating_add(time_ns);
        self.bytes += passage.len as u64;
        self.packets.push_back(Received { payload, passage, cost_bytes, done_ns: self.done_ns });
    }

    /// The next packet that has left its buffer by `now_ns`.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<Received<T>> {
        let packet = self.packets.pop_front_if(|packet| packet.done_ns <= now_ns)?;
        self.bytes -= packet.passage.len as u64;
        Some(packet)
    }
}
