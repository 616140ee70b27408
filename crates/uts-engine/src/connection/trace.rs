//! What packets did, for pictures: sequence number against time.

use std::collections::VecDeque;
use uts_functions::Time;

/// Rows that wait to be taken; beyond, the oldest are dropped.
const ROWS_MAX: usize = 1 << 20;

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// It was sent, with nothing that had been sent before.
    Sent,
    /// It was sent, and repeats data of a lost one.
    Repeated,
    /// It was acknowledged.
    Acknowledged,
    /// It was declared lost.
    Lost,
}

/// One event of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// When.
    pub at: Time,
    /// What.
    pub kind: TraceKind,
    /// The packet's number.
    pub number: u64,
    /// Bytes of UDP payload (when sent; otherwise 0).
    pub bytes: u64,
    /// The epoch under which it was built (when sent; otherwise 0).
    pub epoch: u32,
    /// The flow and position of the first data in it (when sent, if it carried data).
    pub data: Option<(u32, u64)>,
}

/// A record of packets; off unless asked for.
#[derive(Debug, Default)]
pub struct Trace {
    on: bool,
    rows: VecDeque<TraceRow>,
}

impl Trace {
    /// Begins to record.
    pub fn start(&mut self) {
        self.on = true;
    }

    /// Takes what was recorded since the last call.
    pub fn take(&mut self) -> impl Iterator<Item = TraceRow> + '_ {
        self.rows.drain(..)
    }

    fn push(&mut self, row: TraceRow) {
        if !self.on {
            return;
        }
        if self.rows.len() == ROWS_MAX {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
    }

    /// Whether it is on: spares the caller work.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn on_packet_sent(&mut self, row: TraceRow) {
        self.push(row);
    }

    pub(super) fn on_packet_acknowledged(&mut self, at: Time, number: u64) {
        self.push(TraceRow { at, kind: TraceKind::Acknowledged, number, bytes: 0, epoch: 0, data: None });
    }

    pub(super) fn on_packet_lost(&mut self, at: Time, number: u64) {
        self.push(TraceRow { at, kind: TraceKind::Lost, number, bytes: 0, epoch: 0, data: None });
    }
}
