//! Trace of packets, for pictures: sequence number against time.

use crate::probe::{Point, Probes};
use std::collections::VecDeque;
use uts_functions::Time;
use uts_wire::frame::FrameIter;

pub use uts_wire::packet::establishment::Level as HandshakeLevel;

/// Rows that wait to be taken; beyond, the oldest are dropped.
const ROWS_MAX: usize = 1 << 20;

/// Packets of a handshake that wait to be taken; beyond, none is recorded. A handshake has few.
const HANDSHAKE_ROWS_MAX: usize = 256;

/// Kind of an event of a packet.
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
    /// One of the peer's arrived, and was authentic.
    Received,
}

/// One event of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// When.
    pub at: Time,
    /// Kind of the event.
    pub kind: TraceKind,
    /// The packet's number.
    pub number: u64,
    /// Bytes of UDP payload when sent, of frames when received; otherwise 0.
    pub bytes: u64,
    /// The epoch under which it was built (when sent or received; otherwise 0).
    pub epoch: u32,
    /// The flow and position of the first data in it (when sent, if it carried data).
    pub data: Option<(u32, u64)>,
    /// Types of the frames that it carried (when sent).
    pub frames: FrameKinds,
}

/// A packet of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeRow {
    /// When it was sent, or received.
    pub at: Time,
    /// It was sent; else it was received, and was authentic.
    pub is_sent: bool,
    /// Under which keys.
    pub level: HandshakeLevel,
    /// Its number.
    pub number: u32,
    /// Its bytes; several may share a datagram.
    pub bytes: u64,
}

/// A set of frame types ([`uts_wire::frame::kind`]); all types of data count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameKinds(u64);

impl FrameKinds {
    /// The types of the frames in a payload.
    fn of(payload: &[u8]) -> Self {
        let bits = FrameIter::new(payload).flatten().map(|frame| Self::bit(frame.kind()));
        FrameKinds(bits.fold(0, |set, bit| set | bit))
    }

    /// True if a frame of that type is among them.
    pub fn contains(self, kind: u8) -> bool {
        self.0 & Self::bit(kind) != 0
    }

    /// No other type uses the highest bit (spec P-20).
    fn bit(kind: u8) -> u64 {
        1 << kind.min(63)
    }
}

impl TraceRow {
    /// A row about a packet that was sent before.
    fn of(at: Time, kind: TraceKind, number: u64) -> Self {
        TraceRow { at, kind, number, bytes: 0, epoch: 0, data: None, frames: FrameKinds::default() }
    }
}

/// A record of packets; off unless asked for.
#[derive(Debug, Default)]
pub struct Trace {
    /// `None` while neither rows nor points are of interest. Boxed: hardly a connection is traced,
    /// and all make room for it.
    watch: Option<Box<Watch>>,
}

#[derive(Debug, Default)]
struct Watch {
    /// `None` while no rows are kept.
    rows: Option<Rows>,
    probes: Probes,
}

#[derive(Debug, Default)]
struct Rows {
    packets: VecDeque<TraceRow>,
    handshake: Vec<HandshakeRow>,
}

impl Trace {
    /// Begins to record.
    pub fn start(&mut self) {
        self.watch.get_or_insert_default().rows.get_or_insert_default();
    }

    /// Tells these of the points that packets pass.
    pub(crate) fn probe(&mut self, probes: Probes) {
        self.watch.get_or_insert_default().probes = probes;
    }

    fn rows(&mut self) -> Option<&mut Rows> {
        self.watch.as_mut()?.rows.as_mut()
    }

    /// Takes what was recorded since the last call.
    pub fn take(&mut self) -> impl Iterator<Item = TraceRow> + '_ {
        self.rows().into_iter().flat_map(|rows| rows.packets.drain(..))
    }

    /// Takes what was recorded of the handshake since the last call.
    pub fn take_handshake(&mut self) -> Vec<HandshakeRow> {
        self.rows().map(|rows| core::mem::take(&mut rows.handshake)).unwrap_or_default()
    }

    pub(in crate::connection) fn on_handshake_packet(&mut self, row: HandshakeRow) {
        if let Some(rows) = self.rows()
            && rows.handshake.len() < HANDSHAKE_ROWS_MAX
        {
            rows.handshake.push(row);
        }
    }

    fn push(&mut self, row: TraceRow) {
        let Some(rows) = self.rows() else { return };
        if rows.packets.len() == ROWS_MAX {
            rows.packets.pop_front();
        }
        rows.packets.push_back(row);
    }

    /// True if rows are kept: spares the caller work.
    pub(in crate::connection) fn is_on(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.rows.is_some())
    }

    /// The instant by the host's clock; `None` where nobody is told of points.
    #[inline]
    pub(in crate::connection) fn instant(&self) -> Option<Time> {
        self.watch.as_ref()?.probes.now()
    }

    /// A packet of so many bytes passes a point.
    #[inline]
    pub(in crate::connection) fn pass(&self, point: Point, bytes: usize) {
        if let Some(watch) = &self.watch {
            watch.probes.pass(point, bytes);
        }
    }

    /// A packet of so many bytes has passed a point at an instant that [`Trace::instant`] gave.
    #[inline]
    pub(in crate::connection) fn passed(&self, at: Option<Time>, point: Point, bytes: usize) {
        if let (Some(watch), Some(at)) = (&self.watch, at) {
            watch.probes.passed(at, point, bytes);
        }
    }

    /// The types of the frames in a payload; none while it is off.
    pub(in crate::connection) fn kinds_of(&self, payload: &[u8]) -> FrameKinds {
        if self.is_on() { FrameKinds::of(payload) } else { FrameKinds::default() }
    }

    pub(in crate::connection) fn on_packet_sent(&mut self, row: TraceRow) {
        self.push(row);
    }

    pub(in crate::connection) fn on_packet_acknowledged(&mut self, at: Time, number: u64) {
        self.push(TraceRow::of(at, TraceKind::Acknowledged, number));
    }

    pub(in crate::connection) fn on_packet_received(
        &mut self,
        at: Time,
        number: u64,
        epoch: u32,
        bytes: u64,
    ) {
        self.push(TraceRow { epoch, bytes, ..TraceRow::of(at, TraceKind::Received, number) });
    }

    pub(in crate::connection) fn on_packet_lost(&mut self, at: Time, number: u64) {
        self.push(TraceRow::of(at, TraceKind::Lost, number));
    }
}
