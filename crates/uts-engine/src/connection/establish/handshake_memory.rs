//! Memory of handshakes for peers that nobody knows yet: each byte of a level once, so much for
//! each handshake, and so much for all of an endpoint together.

use super::early::{EARLY_BYTES_MAX, LENGTH_BYTES};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use uts_functions::RangeSet;
use uts_wire::packet::establishment::Level;

/// Bytes that a handshake takes before it has stored anything: its keys, and the state of the TLS
/// library.
const HANDSHAKE_BYTES: usize = 24 * 1024;

/// Separate pieces of a level that may wait for what is between them: a flight has fewer packets.
const PIECES_MAX: usize = 32;

/// Position up to which the handshake bytes of a level may reach, and so the most of them that are
/// held, here and by the TLS library. (establishment.md R-5)
const fn reach_max(level: Level) -> u32 {
    match level {
        // The address of who sends these is not proved. A ClientHello with a key of ML-KEM has 2
        // KiB.
        Level::Initial => 16 * 1024,
        // A chain of certificates.
        Level::Handshake => 32 * 1024,
        Level::Early => (EARLY_BYTES_MAX + LENGTH_BYTES) as u32,
    }
}

/// Memory that all handshakes of an endpoint hold together, in bytes, and its bound.
#[derive(Clone, Debug)]
pub(crate) struct HandshakeMemory {
    held: Arc<AtomicUsize>,
    most: usize,
}

impl HandshakeMemory {
    /// Memory of so many bytes.
    pub fn new(most: usize) -> Self {
        HandshakeMemory { held: Arc::default(), most }
    }

    /// Room for a handshake that the peer begins, if there is any.
    pub fn ration(&self) -> Option<Ration> {
        let mut ration = self.own_ration();
        ration.take(HANDSHAKE_BYTES).then_some(ration)
    }

    /// Room for a handshake that this end begins: only what its peer makes it store counts.
    pub fn own_ration(&self) -> Ration {
        Ration { of: self.clone(), bytes: 0 }
    }
}

/// Part of an endpoint's [`HandshakeMemory`] that one handshake holds. It goes back with the
/// handshake.
#[derive(Debug)]
pub(crate) struct Ration {
    of: HandshakeMemory,
    bytes: usize,
}

impl Ration {
    /// Takes so many bytes more; says whether they were to be had.
    pub fn take(&mut self, bytes: usize) -> bool {
        let before = self.of.held.fetch_add(bytes, Ordering::Relaxed);
        let is_there = before.saturating_add(bytes) <= self.of.most;
        if is_there {
            self.bytes += bytes;
        } else {
            self.of.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_there
    }
}

impl Drop for Ration {
    fn drop(&mut self) {
        self.of.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The handshake bytes of a level, put in order.
#[derive(Debug)]
pub(in crate::connection) struct CryptoStream {
    reach_max: u32,
    /// Where the furthest byte so far ends: so many are paid for.
    reach: u32,
    read_to: u32,
    /// Positions of the bytes that have come and were not read, and the bytes; bytes that have not
    /// come are zero.
    have: RangeSet,
    waiting: Vec<u8>,
}

impl CryptoStream {
    pub fn new(level: Level) -> Self {
        CryptoStream {
            reach_max: reach_max(level),
            reach: 0,
            read_to: 0,
            have: RangeSet::new(),
            waiting: Vec::new(),
        }
    }

    /// Takes in a piece. One that there is no room for is dropped, as if it had been lost: its
    /// sender repeats it.
    pub fn insert(&mut self, offset: u32, piece: &[u8], ration: &mut Ration) {
        let Some(end) = u32::try_from(piece.len()).ok().and_then(|len| offset.checked_add(len)) else {
            return;
        };
        if end > self.reach_max || end <= self.read_to {
            return;
        }
        let known = self.read_to.saturating_sub(offset) as usize;
        let start = offset.max(self.read_to);
        // The next one is always taken: otherwise pieces behind it could keep it out.
        let is_one_more = start > self.read_to && !self.touches(start, end);
        if is_one_more && self.have.len() >= PIECES_MAX {
            return;
        }
        let more = end.saturating_sub(self.reach);
        if !ration.take(more as usize) {
            return;
        }
        self.reach += more;
        let (from, to) = ((start - self.read_to) as usize, (end - self.read_to) as usize);
        if self.waiting.len() < to {
            self.waiting.reserve_exact(to - self.waiting.len());
            self.waiting.resize(to, 0);
        }
        if let (Some(place), Some(new)) = (self.waiting.get_mut(from..to), piece.get(known..)) {
            place.copy_from_slice(new);
            self.have.insert(u64::from(start)..u64::from(end));
        }
    }

    /// True if a piece overlaps with a piece that is there, or lies beside it.
    fn touches(&self, start: u32, end: u32) -> bool {
        self.have.intersects(&(u64::from(start).saturating_sub(1)..u64::from(end) + 1))
    }

    /// Takes out the bytes that follow on what was read.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        let range = self.have.first().filter(|range| range.start == u64::from(self.read_to))?;
        let len = (range.end - range.start) as usize;
        let behind = self.waiting.split_off(len.min(self.waiting.len()));
        let data = core::mem::replace(&mut self.waiting, behind);
        self.have.pop_first();
        self.read_to = u32::try_from(range.end).unwrap_or(u32::MAX);
        Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ration(bytes: usize) -> Ration {
        HandshakeMemory::new(bytes).own_ration()
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_are_read_in_theirs(
            pieces in proptest::collection::vec((0..2000_u32, 0..300_usize), 0..200),
        ) {
            let all: Vec<u8> = (0..3000_u32).map(|n| (n % 251) as u8).collect();
            let (mut stream, mut ration) = (CryptoStream::new(Level::Initial), ration(1 << 20));
            let mut read = Vec::new();
            for (start, len) in pieces {
                let end = (start as usize + len).min(all.len());
                stream.insert(start, &all[start as usize..end], &mut ration);
                while let Some(data) = stream.read() {
                    prop_assert!(!data.is_empty());
                    read.extend_from_slice(&data);
                }
                prop_assert!(stream.have.len() <= PIECES_MAX + 1);
                prop_assert!(stream.waiting.capacity() + read.len() <= stream.reach as usize + 300);
                prop_assert_eq!(ration.bytes, stream.reach as usize);
            }
            prop_assert_eq!(&read[..], &all[..read.len()]);
            // The rest comes in order.
            for start in (0..all.len()).step_by(100) {
                stream.insert(start as u32, &all[start..start + 100], &mut ration);
            }
            while let Some(data) = stream.read() {
                read.extend_from_slice(&data);
            }
            prop_assert_eq!(read, all);
        }
    }

    #[test]
    fn no_level_reaches_further_than_it_may() {
        for level in [Level::Initial, Level::Handshake] {
            let (mut stream, mut ration) = (CryptoStream::new(level), ration(1 << 20));
            for start in (0..100_000).rev().chain([u32::MAX - 1]) {
                stream.insert(start, &[1, 2, 3], &mut ration);
            }
            assert!(
                stream.reach <= reach_max(level) && stream.waiting.capacity() <= 2 * stream.reach as usize
            );
            assert_eq!(stream.read().map(|data| data.len()), Some(stream.reach as usize));
        }
    }

    #[test]
    fn handshakes_share_what_there_is_and_give_it_back() {
        let memory = HandshakeMemory::new(3 * HANDSHAKE_BYTES);
        let rations: Vec<Ration> = core::iter::from_fn(|| memory.ration()).collect();
        assert_eq!(rations.len(), 3);
        let mut stream = CryptoStream::new(Level::Initial);
        let mut other = memory.own_ration();
        stream.insert(0, &[1], &mut other);
        assert_eq!(stream.read(), None, "there is no room");
        drop(rations);
        stream.insert(0, &[1], &mut other);
        assert_eq!(stream.read(), Some(vec![1]));
        drop(other);
        assert_eq!(memory.held.load(Ordering::Relaxed), 0);
    }
}
