//! Bytes in order, in one buffer that is used again once what was read of it has been dropped.

use super::room::Room;
use super::spares::Spares;
use bytes::{Bytes, BytesMut};

/// So much may be free of a buffer, in bytes, before it is worth copying what it holds.
const COMPACT_BYTES: usize = 1024;

/// Bytes that came one behind the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    start: u64,
    room: Room,
    /// Where a large buffer goes that was read, and comes from. Without, it is kept.
    spares: Option<Spares>,
}

impl Run {
    /// One that shares large buffers with others.
    pub fn sharing(spares: Spares) -> Self {
        Run { spares: Some(spares), ..Self::default() }
    }

    /// True if there is nothing in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.room.bytes.is_empty()
    }

    /// Position of the first byte, if there is one.
    #[inline]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// True if so many bytes fit into the buffer.
    pub fn has_room(&self, len: usize) -> bool {
        self.room.bytes.capacity() - self.room.bytes.len() >= len
    }

    /// Begins at the front of the buffer again, if all of it was read and dropped: what comes next
    /// then needs no other.
    pub fn rewind(&mut self) {
        if self.is_empty() {
            self.room.reclaim();
        }
    }

    /// Finds a buffer for at least `len` bytes: where large ones are in use, one that others have
    /// left. The run is empty.
    pub fn make_room(&mut self, len: usize) {
        let spares = self.spares.as_ref().filter(|_| self.room.is_large());
        match spares.and_then(|spares| spares.find(len)) {
            Some(spare) => self.room.bytes = spare,
            None => self.room.grow(len),
        }
    }

    /// Adds bytes behind the others; `start` is the position of the first, which matters if the run
    /// is empty.
    pub fn push(&mut self, start: u64, bytes: &[u8]) {
        if self.room.bytes.is_empty() {
            self.start = start;
        }
        self.room.bytes.extend_from_slice(bytes);
    }

    /// Takes out at most so many bytes, with their position; `None` if there are none.
    pub fn take(&mut self, bytes_max: usize) -> Option<(u64, Bytes)> {
        let len = self.room.bytes.len().min(bytes_max);
        if len == 0 {
            return None;
        }
        let start = self.start;
        self.start += len as u64;
        Some((start, self.room.bytes.split_to(len).freeze()))
    }

    /// The same for a reader. What he holds keeps the buffer from being used again for no longer
    /// than he holds it.
    pub fn read(&mut self, bytes_max: usize) -> Option<(u64, Bytes)> {
        let taken = self.take(bytes_max);
        let is_read = taken.is_some() && self.is_empty();
        if let Some(spares) = self.spares.as_ref().filter(|_| is_read && self.room.is_large()) {
            spares.leave(core::mem::take(&mut self.room.bytes));
        }
        taken
    }

    /// Gives the buffer back if nothing is in it, and those that were left.
    pub fn shrink(&mut self) {
        if self.room.bytes.is_empty() {
            self.room = Room::default();
            self.spares.iter().for_each(Spares::clear);
        }
    }

    /// Copies what is in a large buffer that is nearly empty into one of its size.
    pub fn compact(&mut self) {
        let len = self.room.bytes.len();
        if self.spare_bytes() > len.max(COMPACT_BYTES) {
            self.room = Room { bytes: BytesMut::from(&self.room.bytes[..]), buffer_bytes: len };
        }
    }

    /// Bytes of memory that hold nothing.
    pub fn spare_bytes(&self) -> usize {
        self.room.bytes.capacity() - self.room.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::room::BUFFER_BYTES_MAX;
    use super::super::spares::{SPARES_MAX, WORN_BYTES};
    use super::*;

    /// Runs that have seen much and hold nothing, which share their buffers.
    fn large(count: usize) -> (Spares, Vec<Run>) {
        let spares = Spares::default();
        let mut runs = vec![Run::sharing(spares.clone()); count];
        for run in &mut runs {
            while !run.room.is_large() {
                run.make_room(1);
            }
            run.push(0, &[1]);
            assert!(run.read(usize::MAX).is_some());
        }
        (spares, runs)
    }

    /// As before something is pushed.
    fn prepare(run: &mut Run, len: usize) {
        run.rewind();
        if !run.has_room(len) {
            run.make_room(len);
        }
    }

    fn fill(run: &mut Run, value: u8) {
        prepare(run, 1440 * 45);
        (0..45).for_each(|_| run.push(0, &[value; 1440]));
    }

    /// Of many flows that are read one after the other, all find the same memory, and none keeps
    /// any.
    #[test]
    fn flows_that_are_read_share_their_buffers() {
        let (spares, mut runs) = large(40);
        let mut places = std::collections::BTreeSet::new();
        for round in 0..3 {
            for run in &mut runs {
                fill(run, round);
                let (_, read) = run.read(usize::MAX).expect("something to read");
                assert!(read.len() == 1440 * 45 && read.iter().all(|byte| *byte == round));
                places.insert(read.as_ptr());
                assert_eq!(run.spare_bytes(), 0);
            }
        }
        assert_eq!(places.len(), 1);
        assert!(spares.len() <= SPARES_MAX, "{}", spares.len());
        // Who rests gives back what is left.
        runs[0].shrink();
        assert_eq!(spares.len(), 0);
    }

    /// A reader that holds a little of what it reads does not keep the rest of a buffer from being
    /// used.
    #[test]
    fn what_is_held_takes_little_more_than_its_own_memory() {
        const CHUNKS: usize = 1000;
        let (_, mut runs) = large(2);
        let mut held: Vec<Bytes> = Vec::new();
        for n in 0..CHUNKS {
            let run = &mut runs[n % 2];
            prepare(run, 1000);
            run.push(0, &[n as u8; 1000]);
            held.push(run.read(usize::MAX).expect("something to read").1);
        }
        assert!((0..).zip(&held).all(|(n, chunk)| chunk.iter().all(|byte| *byte == n as u8)));
        // A chunk that does not follow on the one before begins a buffer.
        let begins = held.windows(2).filter(|two| two[0].as_ptr().wrapping_add(1000) != two[1].as_ptr());
        let most = CHUNKS * 1000 / WORN_BYTES + 1;
        assert!(begins.clone().count() <= most, "{} buffers, at most {most}", begins.count());
    }

    /// Bytes of a shared buffer that a reader holds, or has yet to read, are never overwritten.
    #[test]
    fn what_is_held_of_a_shared_buffer_stays() {
        let (_, mut runs) = large(4);
        let mut held = Vec::new();
        for round in 0..8 {
            for (n, run) in (0..).zip(&mut runs) {
                fill(run, 4 * round + n);
                let (_, first) = run.read(1000).expect("something to read");
                held.push((4 * round + n, first));
            }
            for run in &mut runs {
                // Half of the rounds hold everything, the others the first bytes of each buffer.
                let (_, rest) = run.read(usize::MAX).expect("something to read");
                held.extend((round < 4).then_some((rest[0], rest)));
            }
        }
        for (value, bytes) in &held {
            assert!(bytes.iter().all(|byte| byte == value), "{value}");
        }
    }

    /// A reader that keeps pace finds everything in the same memory.
    #[test]
    fn a_buffer_that_was_read_is_used_again() {
        let mut run = Run::default();
        while run.room.buffer_bytes < BUFFER_BYTES_MAX {
            run.make_room(1);
        }
        let mut places = std::collections::BTreeSet::new();
        for n in 0..100 {
            run.rewind();
            assert!(run.has_room(1440 * 45), "round {n}");
            for _ in 0..45 {
                run.push(n, &[7; 1440]);
            }
            let (_, read) = run.take(usize::MAX).expect("something to read");
            places.insert(read.as_ptr());
        }
        assert_eq!(places.len(), 1);
        // What is still held is left alone.
        run.push(0, &[1; 40_000]);
        let (_, held) = run.take(usize::MAX).expect("something to read");
        run.rewind();
        run.push(0, &[2; 100]);
        assert!(held.iter().all(|byte| *byte == 1));
    }
}
