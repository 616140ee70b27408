//! Agenda of what is due: one instant for each of a fixed set of things, the earliest first.

use uts_functions::Time;

/// An indexed binary heap. Every entry (a path, an application) has at most one instant, which is
/// changed in place. The heap is as large as the network, not as what is under way in it. Entries
/// that are due at once come in the order of their numbers: the instants alone decide what happens.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// A binary heap of instants and entries.
    heap: Vec<(Time, u32)>,
    /// Where in the heap each entry is; [`ABSENT`] if nothing is due.
    places: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl Agenda {
    /// Another entry, with nothing due.
    pub fn add(&mut self) -> u32 {
        self.places.push(ABSENT);
        self.places.len() as u32 - 1
    }

    /// The entry that is due first, and when.
    pub fn first(&self) -> Option<(Time, u32)> {
        self.heap.first().copied()
    }

    /// Says when an entry is due, if at all.
    pub fn set(&mut self, entry: u32, at: Option<Time>) {
        let place = self.places[entry as usize];
        match (at, place) {
            (None, ABSENT) => {}
            (Some(at), ABSENT) => {
                self.places[entry as usize] = self.heap.len() as u32;
                self.heap.push((at, entry));
                self.rise(self.heap.len() - 1);
            }
            (Some(at), place) => {
                let place = place as usize;
                if self.heap[place].0 == at {
                    return;
                }
                self.heap[place].0 = at;
                let place = self.rise(place);
                self.sink(place);
            }
            (None, place) => {
                let place = place as usize;
                self.heap.swap_remove(place);
                self.places[entry as usize] = ABSENT;
                if place < self.heap.len() {
                    self.places[self.heap[place].1 as usize] = place as u32;
                    let place = self.rise(place);
                    self.sink(place);
                }
            }
        }
    }

    /// Moves an entry up to where it belongs; says where that is.
    fn rise(&mut self, mut place: usize) -> usize {
        let moving = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent] <= moving {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, moving);
        place
    }

    /// Moves an entry down to where it belongs.
    fn sink(&mut self, mut place: usize) {
        let moving = self.heap[place];
        loop {
            let left = 2 * place + 1;
            let Some(&first) = self.heap.get(left) else { break };
            let (child, least) = match self.heap.get(left + 1) {
                Some(&second) if second < first => (left + 1, second),
                _ => (left, first),
            };
            if moving <= least {
                break;
            }
            self.put(place, least);
            place = child;
        }
        self.put(place, moving);
    }

    fn put(&mut self, place: usize, entry: (Time, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn the_earliest_comes_first_whatever_was_changed() {
        for seed in 0..50 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut agenda = Agenda::default();
            let mut model: Vec<Option<Time>> = (0..rng.random_range(1..40)).map(|_| None).collect();
            for entry in 0..model.len() {
                assert_eq!(agenda.add() as usize, entry);
            }
            for _ in 0..2000 {
                let entry = rng.random_range(0..model.len());
                let at = rng.random_bool(0.7).then(|| Time::from_nanos(rng.random_range(0..50)));
                agenda.set(entry as u32, at);
                model[entry] = at;
                let expected = model.iter().enumerate().filter_map(|(n, at)| Some(((*at)?, n as u32))).min();
                assert_eq!(agenda.first(), expected, "seed {seed}");
            }
        }
    }
}
