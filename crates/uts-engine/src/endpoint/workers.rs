//! Endpoints that share a port, so that a server has as many processors as they are: each is a
//! worker, with a socket and connections of its own. An id says whose it is, so whoever receives a
//! datagram finds its worker by one byte, without any state: the kernel, a sibling, a balancer.
//! (P-65)

use super::crowd::Crowd;
use crate::connection::SharedTickets;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uts_wire::packet::is_long;

/// Most endpoints that share a port: then each worker has four values of the byte that tells whose
/// an id is.
pub const WORKERS_MAX: usize = 64;

/// Where an adaptive packet and a packet of the handshake have the byte that tells their worker.
/// (P-10, P-16, P-65)
pub const STEERING_BYTES: [usize; 2] = [1, 6];

/// Number of the worker that a datagram is for, below `workers`. One that is too short is for the
/// first. (P-65)
pub fn worker_of(datagram: &[u8], workers: usize) -> usize {
    let is_long = datagram.first().is_some_and(|first| is_long(*first));
    let byte = datagram.get(STEERING_BYTES[usize::from(is_long)]);
    byte.map_or(0, |byte| usize::from(*byte) % workers.max(1))
}

/// Place of an endpoint among those that share its port.
#[derive(Clone)]
pub struct Worker {
    index: usize,
    of: usize,
    counts: Arc<Mutex<Counts>>,
}

impl core::fmt::Debug for Worker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Worker({} of {})", self.index, self.of)
    }
}

impl Worker {
    /// All places at a port that `count` endpoints share, 1 to [`WORKERS_MAX`]. What clients hold
    /// is counted for all of them together.
    pub fn crew(count: usize) -> Vec<Worker> {
        let of = count.clamp(1, WORKERS_MAX);
        let counts = Arc::new(Mutex::new(Counts::default()));
        (0..of).map(|index| Worker { index, of, counts: counts.clone() }).collect()
    }

    /// The only endpoint at its port.
    pub(super) fn alone() -> Self {
        Worker { index: 0, of: 1, counts: Arc::default() }
    }

    /// Number of this worker, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Number of workers.
    pub fn of(&self) -> usize {
        self.of
    }

    /// Counts that all workers share.
    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an id one of this worker's, whose first byte is random. (P-65)
    pub(super) fn mark(&self, id: &mut [u8]) {
        let Some(first) = id.first_mut().filter(|_| self.of > 1) else { return };
        // The last, incomplete group of values is left out, so that no worker has more than others.
        let groups = 256 / self.of;
        *first = ((usize::from(*first) % groups) * self.of + self.index) as u8;
    }
}

/// Counts of connections that clients hold at a port, and of those that were begun from it.
#[derive(Default)]
pub(super) struct Counts {
    /// Counts of what is held from each address.
    pub crowd: Crowd,
    /// Connections that others have begun and whose handshake is done.
    pub places: usize,
    /// Number of these that have shown keys.
    pub places_of_keys: usize,
    /// Connections that this end has begun.
    pub own: usize,
    /// Tickets for early requests, if such are taken.
    pub tickets: Option<SharedTickets>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_and_its_packets_are_its_workers_whatever_was_drawn() {
        for of in 1..=WORKERS_MAX {
            for worker in Worker::crew(of) {
                for drawn in 0..=255 {
                    let mut id = [drawn, 1, 2, 3, 4, 5, 6, 7];
                    worker.mark(&mut id);
                    let short = [[0x40].as_slice(), &id].concat();
                    let long = [[0x80, 0, 0, 0, 2, 8].as_slice(), &id].concat();
                    for datagram in [short, long] {
                        assert_eq!(worker_of(&datagram, of), worker.index(), "{drawn} of {of}");
                    }
                }
            }
        }
    }

    #[test]
    fn workers_have_equally_many_values() {
        for of in 1..=WORKERS_MAX {
            for worker in Worker::crew(of) {
                let values: std::collections::BTreeSet<u8> = (0..=255)
                    .map(|drawn| {
                        let mut id = [drawn];
                        worker.mark(&mut id);
                        id[0]
                    })
                    .collect();
                assert_eq!(values.len(), 256 / of, "{of}");
            }
        }
    }

    #[test]
    fn a_datagram_without_the_byte_has_a_worker() {
        for datagram in [&[][..], &[0x40], &[0x80, 0, 0, 0, 2, 8]] {
            assert_eq!(worker_of(datagram, 7), 0);
        }
    }
}
