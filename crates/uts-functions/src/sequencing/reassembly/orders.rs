//! Messages that need not wait for all that was sent before them (sequencing.md ).

use super::{Delivery, Reassembly};
use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};

/// Messages of which it is remembered what they wait for, at the most. Others wait for everything.
/// What waits is looked through whenever something is read.
const ORDERS_MAX: usize = 1024;

/// Orders of messages that are not handed over: the positions that each waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    /// Where each begins, and what has to be handed over before it.
    after: BTreeMap<u64, Range<u64>>,
    /// Those that are whole, by the first position that they wait for.
    waiting: BTreeMap<u64, Vec<u64>>,
    /// Those that are whole and wait for nothing.
    free: VecDeque<u64>,
}

impl Orders {
    /// A message is whole.
    pub fn on_whole(&mut self, start: u64) {
        // Whether it waits is seen when something is read.
        if self.after.contains_key(&start) {
            self.free.push_back(start);
        }
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Orders>() + self.after.len() * 32 + self.waiting.len() * 48 + self.free.capacity() * 8
    }
}

impl Reassembly {
    /// The message that begins at `start` waits for the positions `after`, and for nothing else. If
    /// that is never said, it waits for everything before it.
    pub fn note_order(&mut self, start: u64, after: Range<u64>) {
        let consumed = self.consumed();
        if start < consumed || after.end > start || self.delivered.contains(start) {
            return;
        }
        let orders = self.orders.get_or_insert_default();
        while orders.after.first_key_value().is_some_and(|(first, _)| *first < consumed) {
            orders.after.pop_first();
        }
        if orders.after.len() >= ORDERS_MAX || orders.after.contains_key(&start) {
            return;
        }
        orders.after.insert(start, after);
        if self.whole_message_around(start).is_some_and(|whole| whole.start == start)
            && let Some(orders) = &mut self.orders
        {
            orders.on_whole(start);
        }
    }

    /// A whole message that waits for nothing any more, though something before it is missing.
    pub fn pop_free(&mut self) -> Option<Delivery> {
        let (orders, delivered) = (self.orders.as_mut()?, &self.delivered);
        // What the first position of a message's wait was is handed over: it may wait for another.
        let freed = orders.waiting.extract_if(.., |at, _| delivered.contains(*at));
        orders.free.extend(freed.flat_map(|(_, starts)| starts));
        loop {
            let orders = self.orders.as_mut()?;
            let start = orders.free.pop_front()?;
            let Some(after) = orders.after.get(&start) else { continue };
            if let Some(gap) = self.delivered.gaps(after.clone()).next() {
                orders.waiting.entry(gap.start).or_default().push(start);
                continue;
            }
            orders.after.remove(&start);
            // It may have been handed over in its place meanwhile.
            if self.pieces.get(&start).is_some_and(|piece| piece.message)
                && let Some(message) = self.pop_message(start)
            {
                return Some(message);
            }
        }
    }
}
