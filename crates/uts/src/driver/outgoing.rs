//! Datagrams that an endpoint is about to send, as the engine has given them: batches that leave in
//! one call each.

use super::socket::Batch;
use std::collections::VecDeque;
use uts_engine::{Endpoint, Point, Probes, Transmit};
use uts_functions::Time;

/// Bounds of what is fetched from the engine at once: with more bytes than this, or so many parts,
/// nothing is added.
const FETCH_BYTES: usize = 32 << 10;
const FETCH_PARTS: usize = 16;

/// Datagrams on their way out, of which the first `sent` bytes have left.
#[derive(Default)]
pub(super) struct Outgoing {
    contents: Vec<u8>,
    parts: VecDeque<Part>,
    sent: usize,
    /// The engine had no more when these were fetched.
    is_all: bool,
}

/// Datagrams of one size for one peer, up to `end` of the contents.
struct Part {
    transmit: Transmit,
    end: usize,
}

impl Outgoing {
    /// True if all that was fetched has left.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// True if the engine had no more when this was fetched.
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// Fetches what is to be sent next, where all that was fetched before has left.
    pub fn fetch(&mut self, now: Time, engine: &mut Endpoint, probes: &Probes) {
        self.sent = 0;
        self.contents.clear();
        self.is_all = false;
        while self.contents.len() < FETCH_BYTES && self.parts.len() < FETCH_PARTS {
            let before = self.contents.len();
            let Some(transmit) = engine.poll_transmit_more(now, &mut self.contents) else {
                self.is_all = true;
                break;
            };
            probes.pass(Point::Fetched, self.contents.len() - before);
            self.add(transmit);
        }
    }

    /// Batch that is to leave next.
    pub fn front(&self) -> Option<Batch<'_>> {
        let Part { transmit, end } = self.parts.front()?;
        Some(Batch {
            remote: transmit.remote,
            local: transmit.local,
            ecn: transmit.ecn,
            segment_bytes: transmit.segment_bytes.max(1),
            contents: self.contents.get(self.sent..*end).unwrap_or_default(),
        })
    }

    /// So many bytes of what is in front have left, or are given up.
    pub fn on_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if let Some(end) = self.parts.front().map(|part| part.end).filter(|end| self.sent >= *end) {
            self.sent = end;
            self.parts.pop_front();
        }
    }

    /// Takes note of what the engine has put behind the rest, so that what can leave in one call
    /// does: single packets of one size for the same peer make a batch.
    fn add(&mut self, transmit: Transmit) {
        let end = self.contents.len();
        let before = self.parts.len().checked_sub(2).and_then(|i| self.parts.get(i)).map_or(0, |p| p.end);
        if let Some(Part { transmit: last, end: last_end }) = self.parts.back_mut() {
            let segment_bytes = last.segment_bytes.max(1);
            // The last datagram of a batch may be shorter.
            let fits = transmit.segment_bytes == segment_bytes
                || (transmit.segment_bytes < segment_bytes && end - *last_end == transmit.segment_bytes);
            let is_whole = (*last_end - before).is_multiple_of(segment_bytes);
            if fits && is_whole && (Transmit { segment_bytes, ..transmit }) == *last {
                *last_end = end;
                return;
            }
        }
        self.parts.push_back(Part { transmit, end });
    }
}
