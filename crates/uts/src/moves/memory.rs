//! Memory that is named for a peer, and what of it is being moved. Memory is one allocation from
//! begin to end. A move has its stretch of it for itself, which is split off and put back without a
//! copy, so that moves need no lock for their bytes.

use super::wire::{Header, Operation};
use super::{MoveRefusal, Tag};
use crate::connection::Connection;
use bytes::{Bytes, BytesMut};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{oneshot, watch};
use uts_engine::{CloseReason, FindMemory, FlowId, Memory};

/// Memory that this end names for the peer of a connection. Clones name for the same.
#[derive(Clone, Debug)]
pub struct Moves {
    pub(super) connection: Connection,
    pub(super) table: Arc<Table>,
}

/// Memory that is named, and tags for more.
#[derive(Debug, Default)]
pub(super) struct Table {
    next: AtomicU64,
    named: Mutex<Named>,
}

#[derive(Debug, Default)]
struct Named {
    regions: HashMap<u64, Arc<watch::Sender<Parts>>>,
    lent: HashMap<u64, Bytes>,
    /// Flows that were given memory as they began, until somebody serves them.
    begun: HashMap<FlowId, Begun>,
}

/// A move into memory that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    /// Bytes of its header.
    pub head_bytes: usize,
    /// Gives the stretch, once no more bytes come for it.
    pub stretch: oneshot::Receiver<Stretch>,
    pub region: watch::Receiver<Parts>,
}

/// Memory while bytes are placed in it.
#[derive(Debug, Default)]
pub(super) struct Filling {
    pub memory: BytesMut,
    /// Bytes that were placed.
    pub placed: u64,
    /// Bytes of these that were copied twice.
    pub held: u64,
}

impl Filling {
    /// Memory in which nothing is placed yet.
    pub fn new(memory: BytesMut) -> Self {
        Filling { memory, placed: 0, held: 0 }
    }

    /// See [`Memory::place`].
    pub fn place(&mut self, at: usize, bytes: &[u8], was_held: bool) {
        if let Some(place) = self.memory.get_mut(at..at.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
            self.placed += bytes.len() as u64;
            self.held += if was_held { bytes.len() as u64 } else { 0 };
        }
    }

    /// True if all of it is placed.
    pub fn is_whole(&self) -> bool {
        self.placed == self.memory.len() as u64
    }
}

impl Begun {
    /// Ends the move, for which no more bytes come: it is kept if all of it has come.
    pub fn settle(mut self) -> Result<(), MoveRefusal> {
        let whole = self.stretch.try_recv().ok().filter(|stretch| stretch.filling.is_whole());
        whole.map(Stretch::keep).ok_or(MoveRefusal::Incomplete)
    }
}

/// The parts of a region: together they are all of it, but for what is being moved.
#[derive(Debug)]
pub(super) struct Parts {
    bytes: u64,
    free: BTreeMap<u64, BytesMut>,
    moved: BTreeMap<u64, BytesMut>,
    moved_bytes: u64,
    held_bytes: u64,
    pub is_withdrawn: bool,
}

impl Parts {
    /// Memory of which nothing is moved yet.
    fn new(memory: BytesMut) -> Self {
        let bytes = memory.len() as u64;
        let free = if bytes > 0 { BTreeMap::from([(0, memory)]) } else { BTreeMap::new() };
        let moved = BTreeMap::new();
        Parts { bytes, free, moved, moved_bytes: 0, held_bytes: 0, is_withdrawn: false }
    }

    /// Takes all that was moved, as one piece of memory if that is all of the region.
    fn take_moved(&mut self) -> BytesMut {
        let mut pieces = core::mem::take(&mut self.moved).into_values();
        let mut memory = pieces.next().unwrap_or_default();
        pieces.for_each(|piece| memory.unsplit(piece));
        memory
    }

    /// Takes a stretch out of what is free.
    fn take(&mut self, offset: u64, bytes: u64) -> Result<BytesMut, MoveRefusal> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes);
        let end = end.ok_or(MoveRefusal::OutOfRange)?;
        if bytes == 0 {
            return Ok(BytesMut::new());
        }
        let around = self.free.range(..=offset).next_back();
        let around = around.filter(|(start, piece)| end <= **start + piece.len() as u64);
        let start = *around.ok_or(MoveRefusal::Taken)?.0;
        let mut piece = self.free.remove(&start).unwrap_or_default();
        let front = piece.split_to((offset - start) as usize);
        let rest = piece.split_off(bytes as usize);
        for (at, part) in [(start, front), (end, rest)] {
            if !part.is_empty() {
                self.free.insert(at, part);
            }
        }
        Ok(piece)
    }

    /// Takes a stretch back in which nothing was moved, or not all.
    fn give_back(&mut self, offset: u64, mut piece: BytesMut) {
        if let Some(behind) = self.free.remove(&(offset + piece.len() as u64)) {
            piece.unsplit(behind);
        }
        let before = self.free.range_mut(..offset).next_back();
        match before.filter(|(start, before)| **start + before.len() as u64 == offset) {
            Some((_, before)) => before.unsplit(piece),
            None => drop(self.free.insert(offset, piece)),
        }
    }
}

/// A stretch of a region, which nobody else has. It goes back, to be moved again, unless it is
/// [kept](Stretch::keep).
#[derive(Debug)]
pub(super) struct Stretch {
    region: Arc<watch::Sender<Parts>>,
    offset: u64,
    filling: Filling,
}

impl Stretch {
    /// The move is in order: what it has brought stays as it is.
    fn keep(mut self) {
        let (piece, offset) = (core::mem::take(&mut self.filling.memory), self.offset);
        if !piece.is_empty() {
            self.region.send_modify(|parts| {
                parts.moved_bytes += piece.len() as u64;
                parts.moved.insert(offset, piece);
            });
        }
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        let Filling { memory: piece, held, .. } = core::mem::take(&mut self.filling);
        self.region.send_modify(|parts| {
            parts.held_bytes += held;
            if !piece.is_empty() {
                parts.give_back(self.offset, piece);
            }
        });
    }
}

/// A stretch into which bytes are moved. It goes to who serves the move once no more come.
#[derive(Debug)]
pub(super) struct Claim {
    stretch: Option<Stretch>,
    done: Option<oneshot::Sender<Stretch>>,
}

impl Memory for Claim {
    fn bytes(&self) -> usize {
        self.stretch.as_ref().map_or(0, |stretch| stretch.filling.memory.len())
    }

    fn place(&mut self, at: usize, bytes: &[u8], was_held: bool) {
        if let Some(stretch) = &mut self.stretch {
            stretch.filling.place(at, bytes, was_held);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let (Some(done), Some(stretch)) = (self.done.take(), self.stretch.take()) {
            // Where nobody serves the move any more, it goes back.
            drop(done.send(stretch));
        }
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Named> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the stretch of memory that a move into it is for. (B-3)
    pub fn claim(&self, header: &Header) -> Result<(Claim, Begun), MoveRefusal> {
        let region = self.lock().regions.get(&header.tag.0).cloned();
        let region = region.ok_or(MoveRefusal::NoSuchMemory)?;
        let mut taken = Err(MoveRefusal::NoSuchMemory);
        region.send_modify(|parts| taken = parts.take(header.offset, header.bytes));
        let (piece, offset) = (taken?, header.offset);
        let (done, stretch) = oneshot::channel();
        let begun = Begun { head_bytes: 0, stretch, region: region.subscribe() };
        let stretch = Some(Stretch { region, offset, filling: Filling::new(piece) });
        Ok((Claim { stretch, done: Some(done) }, begun))
    }

    /// The move that a flow began with, if it was given memory then.
    pub fn begun(&self, id: FlowId) -> Option<Begun> {
        self.lock().begun.remove(&id)
    }

    /// The bytes that a move out of memory is for. (B-3)
    pub fn lent(&self, header: &Header) -> Result<Bytes, MoveRefusal> {
        let lent = self.lock().lent.get(&header.tag.0).cloned().ok_or(MoveRefusal::NoSuchMemory)?;
        let end = header.offset.checked_add(header.bytes).filter(|end| *end <= lent.len() as u64);
        let end = end.ok_or(MoveRefusal::OutOfRange)?;
        Ok(lent.slice(header.offset as usize..end as usize))
    }
}

/// Looks at what flows begin with.
#[derive(Debug)]
struct Finder(Weak<Table>);

impl FindMemory for Finder {
    fn find(&mut self, id: FlowId, begin: &[u8]) -> Option<(u64, Box<dyn Memory>)> {
        let (header, len) = Header::parse(begin).ok().flatten()?;
        let table = self.0.upgrade().filter(|_| header.operation == Operation::To)?;
        // Why there is none, who serves the flow finds out.
        let (claim, mut begun) = table.claim(&header).ok()?;
        begun.head_bytes = len;
        table.lock().begun.insert(id, begun);
        Some((len as u64, Box::new(claim)))
    }
}

impl Moves {
    /// Names memory for the peer of a connection. A connection has one of these: a second takes the
    /// place of the first. Moves need [`Moves::serve`], or [`Moves::serve_flow`].
    pub fn new(connection: &Connection) -> Self {
        let table = Arc::<Table>::default();
        let finder = Box::new(Finder(Arc::downgrade(&table)));
        connection.find_memory_by(finder);
        Moves { connection: connection.clone(), table }
    }

    fn next(&self) -> Tag {
        Tag(self.table.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Names memory that the peer may move bytes into: all of its length, each byte once.
    pub fn name(&self, memory: BytesMut) -> Region {
        let (tag, parts) = (self.next(), Arc::new(watch::Sender::new(Parts::new(memory))));
        self.table.lock().regions.insert(tag.0, parts.clone());
        Region { tag, parts, moves: self.clone() }
    }

    /// Names bytes that the peer may move from here, as often as it likes.
    pub fn lend(&self, bytes: Bytes) -> Lent {
        let tag = self.next();
        self.table.lock().lent.insert(tag.0, bytes);
        Lent { tag, table: self.table.clone() }
    }
}

/// Memory that is named for moves into it. If this is dropped, the name is withdrawn, and moves
/// that are under way are refused.
#[derive(Debug)]
pub struct Region {
    tag: Tag,
    parts: Arc<watch::Sender<Parts>>,
    moves: Moves,
}

impl Region {
    /// Its name, for the peer.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.borrow().bytes
    }

    /// Bytes of it that moves have brought whole.
    pub fn moved_bytes(&self) -> u64 {
        self.parts.borrow().moved_bytes
    }

    /// Bytes that were copied twice: into memory of the connection, as they came before it was
    /// known what they are, and from there into this.
    pub fn held_bytes(&self) -> u64 {
        self.parts.borrow().held_bytes
    }

    /// Waits until moves have brought all of it, and gives it back. The name is withdrawn.
    ///
    /// # Errors
    /// The connection has ended before.
    pub async fn whole(self) -> Result<BytesMut, CloseReason> {
        let mut parts = self.parts.subscribe();
        tokio::select! {
            biased;
            _ = parts.wait_for(|parts| parts.moved_bytes == parts.bytes) => {}
            reason = self.moves.connection.closed() => return Err(reason),
        }
        let mut memory = BytesMut::new();
        self.parts.send_modify(|parts| memory = parts.take_moved());
        Ok(memory)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.moves.table.lock().regions.remove(&self.tag.0);
        self.parts.send_modify(|parts| parts.is_withdrawn = true);
    }
}

/// Bytes that are named for moves out of them. If this is dropped, the name is withdrawn. Moves
/// that are under way go on.
#[derive(Debug)]
pub struct Lent {
    tag: Tag,
    table: Arc<Table>,
}

impl Lent {
    /// Its name, for the peer.
    pub fn tag(&self) -> Tag {
        self.tag
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.table.lock().lent.remove(&self.tag.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(offset: u64, bytes: u64) -> Header {
        let repeats = super::super::Repeats::AsConnection;
        Header { operation: Operation::To, tag: Tag(0), offset, bytes, repeats }
    }

    fn table(bytes: usize) -> (Table, Arc<watch::Sender<Parts>>) {
        let table = Table::default();
        let parts = Arc::new(watch::Sender::new(Parts::new(BytesMut::zeroed(bytes))));
        table.lock().regions.insert(0, parts.clone());
        (table, parts)
    }

    /// Nothing is given to two at once, nothing is lost, and the memory stays where it was, in
    /// whatever order stretches are claimed, filled and given back.
    #[test]
    fn stretches_are_given_to_one_and_come_back_without_a_copy() {
        use rand::{RngExt, SeedableRng};
        for seed in 0..200 {
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
            let (table, parts) = table(1000);
            let begin = parts.borrow().free[&0].as_ptr();
            let (mut claims, mut taken) = (Vec::<(Claim, Begun)>::new(), vec![false; 1000]);
            for step in 0..2000 {
                if rng.random_bool(0.5) || claims.is_empty() {
                    let offset = rng.random_range(0..1000_u64);
                    let bytes = rng.random_range(1..=200_u64);
                    let range = offset as usize..(offset + bytes).min(1000) as usize;
                    let expected = match (offset + bytes <= 1000, taken[range.clone()].contains(&true)) {
                        (false, _) => Some(MoveRefusal::OutOfRange),
                        (true, true) => Some(MoveRefusal::Taken),
                        (true, false) => None,
                    };
                    let claimed = table.claim(&header(offset, bytes));
                    let refusal = claimed.as_ref().err().copied();
                    assert_eq!(refusal, expected, "seed {seed}, step {step}");
                    if let Ok(claim) = claimed {
                        taken[range].fill(true);
                        claims.push(claim);
                    }
                } else {
                    let (mut claim, mut begun) = claims.swap_remove(rng.random_range(0..claims.len()));
                    let bytes = claim.bytes();
                    // Now and then all of it comes.
                    let filled = if rng.random_bool(0.2) { bytes } else { rng.random_range(0..bytes) };
                    claim.place(0, &vec![1; filled], false);
                    drop(claim);
                    let stretch = begun.stretch.try_recv().expect("nobody else has it");
                    let (offset, is_kept) = (stretch.offset as usize, stretch.filling.is_whole());
                    assert_eq!(is_kept, filled == bytes, "seed {seed}, step {step}");
                    if is_kept {
                        stretch.keep();
                    }
                    taken[offset..offset + bytes].fill(is_kept);
                }
            }
            drop(claims.drain(..));
            for offset in 0..1000 {
                if let Ok((mut claim, mut begun)) = table.claim(&header(offset, 1)) {
                    claim.place(0, &[1], false);
                    drop(claim);
                    begun.stretch.try_recv().expect("nobody else has it").keep();
                }
            }
            let moved = parts.borrow().moved.clone();
            assert_eq!(parts.borrow().moved_bytes, 1000, "seed {seed}");
            assert_eq!(moved.values().flatten().filter(|byte| **byte == 1).count(), 1000, "seed {seed}");
            let mut memory = BytesMut::new();
            parts.send_modify(|parts| memory = parts.take_moved());
            assert_eq!((memory.as_ptr(), memory.len()), (begin, 1000), "seed {seed}");
        }
    }

    #[test]
    fn nothing_is_placed_beyond_a_stretch() {
        let (table, parts) = table(10);
        let (mut claim, mut begun) = table.claim(&header(2, 4)).expect("free");
        claim.place(2, &[1; 3], false);
        claim.place(usize::MAX, &[1], false);
        drop(claim);
        assert!(!begun.stretch.try_recv().expect("it is back").filling.is_whole());
        assert_eq!(parts.borrow().free[&0][..], [0; 10]);
        let far = table.claim(&header(u64::MAX, 2)).map(drop);
        assert_eq!(far, Err(MoveRefusal::OutOfRange));
    }
}
