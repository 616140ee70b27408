//! Keys of messages: what a message waits for, so that those of one key keep their order
//! (sequencing.md ). The sender keeps this; it outlives every mechanism.

use core::ops::Range;
use std::collections::BTreeMap;

/// Keys that are remembered at once.
const KEYS_MAX: usize = 1024;

/// The last message of each key.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    last: BTreeMap<u32, Range<u64>>,
    /// Where the last message ends whose key was not remembered.
    forgotten_to: u64,
}

impl Keys {
    /// A message with this key has these positions. Says what has to be handed over before it.
    /// `settled_to` = everything below this position has arrived, or the receiver knows that it was
    /// given up.
    pub fn follow(&mut self, key: u32, message: Range<u64>, settled_to: u64) -> Range<u64> {
        if let Some(last) = self.last.get_mut(&key) {
            return core::mem::replace(last, message);
        }
        if self.last.len() >= KEYS_MAX {
            // What is settled is handed over in its place, before what is not.
            self.last.retain(|_, last| last.end > settled_to);
        }
        let before = if self.forgotten_to > settled_to { 0..self.forgotten_to } else { 0..0 };
        if self.last.len() < KEYS_MAX {
            self.last.insert(key, message);
        } else {
            self.forgotten_to = message.end;
        }
        before
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.last.len() * 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_waits_for_the_one_before_it_of_its_key() {
        let mut keys = Keys::default();
        assert_eq!(keys.follow(7, 0..10, 0), 0..0);
        assert_eq!(keys.follow(8, 10..20, 0), 0..0);
        assert_eq!(keys.follow(7, 20..30, 0), 0..10);
        assert_eq!(keys.follow(7, 30..40, 0), 20..30);
        assert_eq!(keys.follow(8, 40..50, 0), 10..20);
    }

    /// Where more keys are in use than are remembered, a message waits for more, never for less.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut keys = Keys::default();
        let most = KEYS_MAX as u32;
        let at = |number: u32| u64::from(number) * 10;
        for number in 0..most {
            assert_eq!(keys.follow(number, at(number)..at(number) + 10, 0), 0..0);
        }
        let place = |number: u32| at(number)..at(number) + 10;
        assert_eq!(keys.follow(most, place(most), 0), 0..0, "none of its key came before");
        // The key was not remembered: another of it waits for all up to there.
        assert_eq!(keys.follow(most, place(most + 1), 0), 0..at(most + 1));
        assert_eq!(keys.follow(3, place(most + 2), 0), place(3));
        assert!(keys.heap_bytes() <= KEYS_MAX * 32);
        // When all has arrived there is room again, and nothing to wait for.
        let settled = at(most + 3);
        assert_eq!(keys.follow(most, place(most + 3), settled), 0..0);
        assert_eq!(keys.follow(most, place(most + 4), settled), place(most + 3));
        assert_eq!(keys.last.len(), 1);
    }
}
