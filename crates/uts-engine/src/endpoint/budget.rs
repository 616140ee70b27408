//! Memory that all connections of an endpoint share for what their peers make them hold: what was
//! received and not read, what was written and not acknowledged, and what it takes to keep track of
//! both.
//!
//! Each connection has its least, whatever others hold. Beyond that it may have as much as it
//! leaves free (A. Choudhury and E. Hahne, "Dynamic Queue Length Thresholds for Shared-Memory
//! Packet Switches", IEEE/ACM Transactions on Networking 6, 1998): a connection that comes when
//! others hold much finds memory all the same, and the connection that holds most is the first that
//! gets no more.

use crate::config::{ConnectionConfig, LEAST_RECEIVED_BYTES, LEAST_SENT_BYTES};
use crate::connection::but_for_flows;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use uts_functions::sequencing::reassembly::Spares;

/// Bytes that are drawn and given back at once: fewer are not worth counting.
const GRAIN_BYTES: usize = 8 * 1024;

/// A connection that begins is promised at most one such part of what is free: most connections
/// that come at once may be of one peer, which never uses them.
const BEGINNERS: usize = 64;

/// Memory of its endpoint that a connection has from its beginning on.
#[derive(Debug)]
pub(crate) struct Stores {
    /// Large buffers, which all share.
    pub spares: Spares,
    /// For what it receives.
    pub received: Share,
    /// For what it sends.
    pub sent: Share,
    /// Credit that its peer is told of first (flow.md R-34).
    pub first_credit: u64,
}

impl Stores {
    /// Stores of a connection with such settings.
    pub fn new(budget: &Budget, spares: Spares, config: &ConnectionConfig) -> Self {
        let of_flow = config.memory_of_flow();
        budget.provide(of_flow.saturating_mul(2));
        let most = config.memory_bytes_max.max(of_flow);
        let wanted = usize::try_from(config.connection_credit_bytes_initial).unwrap_or(usize::MAX);
        let wanted = wanted.saturating_add(wanted / 4).min(but_for_flows(most));
        let promise = budget.promise(wanted, but_for_flows(LEAST_RECEIVED_BYTES));
        let first_credit = (promise as u64 / 5 * 4).min(config.connection_credit_bytes_initial);
        let mut received = budget.share(LEAST_RECEIVED_BYTES, most);
        received.hold(promise);
        Stores { spares, received, sent: budget.share(LEAST_SENT_BYTES, most), first_credit }
    }
}

impl Stores {
    /// Takes over what it has.
    pub fn hand_over(&mut self) -> Self {
        Stores {
            spares: self.spares.clone(),
            received: self.received.hand_over(),
            sent: self.sent.hand_over(),
            first_credit: self.first_credit,
        }
    }
}

impl Default for Stores {
    fn default() -> Self {
        Stores::new(&Budget::default(), Spares::default(), &ConnectionConfig::default())
    }
}

/// Memory that connections share.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: AtomicUsize,
    drawn: AtomicUsize,
}

impl Budget {
    /// So many bytes, beyond the least that each connection has.
    pub fn new(most: usize) -> Self {
        Budget(Arc::new(Inner { most: AtomicUsize::new(most), drawn: AtomicUsize::new(0) }))
    }

    /// Raises it to so many bytes, if it is less.
    pub fn provide(&self, most: usize) {
        self.0.most.fetch_max(most, Ordering::Relaxed);
    }

    /// A connection's part of it: `least` bytes that are its own, and at most `most` in all.
    pub fn share(&self, least: usize, most: usize) -> Share {
        Share { of: self.clone(), least, most: most.max(least), drawn: 0 }
    }

    /// Bytes that a connection is promised at its beginning, if it would have `wanted`.
    pub fn promise(&self, wanted: usize, least: usize) -> usize {
        wanted.min((self.free() / BEGINNERS).max(least))
    }

    fn free(&self) -> usize {
        self.0.most.load(Ordering::Relaxed).saturating_sub(self.drawn())
    }

    /// Bytes that connections hold beyond their least.
    pub fn drawn(&self) -> usize {
        self.0.drawn.load(Ordering::Relaxed)
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(crate::config::MEMORY_BYTES)
    }
}

/// Part of a [`Budget`] that one connection has in one direction. It goes back with the connection.
#[derive(Debug)]
pub(crate) struct Share {
    of: Budget,
    least: usize,
    most: usize,
    drawn: usize,
}

impl Share {
    /// Takes over what it has drawn.
    fn hand_over(&mut self) -> Self {
        let drawn = core::mem::take(&mut self.drawn);
        Share { of: self.of.clone(), least: self.least, most: self.most, drawn }
    }

    /// Bytes that the connection may hold at present.
    #[inline]
    pub fn room(&self) -> usize {
        let free = self.of.free().saturating_add(self.drawn);
        self.least.saturating_add(free / 2).min(self.most)
    }

    /// Bytes that the connection holds, its least included.
    pub fn held(&self) -> usize {
        self.least.saturating_add(self.drawn)
    }

    /// Bytes that are the connection's own.
    pub fn least(&self) -> usize {
        self.least
    }

    /// The connection holds so many bytes.
    #[inline]
    pub fn hold(&mut self, bytes: usize) {
        let drawn = bytes.saturating_sub(self.least).next_multiple_of(GRAIN_BYTES);
        if drawn != self.drawn {
            self.draw(drawn);
        }
    }

    fn draw(&mut self, drawn: usize) {
        let of = &self.of.0.drawn;
        if drawn > self.drawn {
            of.fetch_add(drawn - self.drawn, Ordering::Relaxed);
        } else {
            of.fetch_sub(self.drawn - drawn, Ordering::Relaxed);
        }
        self.drawn = drawn;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.draw(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// A connection that comes takes all that it may: the others, and connections that come then,
    /// have enough.
    #[test]
    fn who_takes_all_he_may_leaves_as_much_free() {
        for greedy in [1, 2, 10, 100] {
            let budget = Budget::new(64 * MIB);
            let mut shares: Vec<Share> = (0..greedy).map(|_| budget.share(32 << 10, usize::MAX)).collect();
            for _ in 0..30 * greedy {
                for share in &mut shares {
                    // What was drawn is given back as it is consumed.
                    share.hold(share.room() / GRAIN_BYTES * GRAIN_BYTES);
                    assert!(budget.drawn() <= 64 * MIB);
                }
            }
            let fair = 64 * MIB / (greedy + 1);
            let late = budget.share(32 << 10, usize::MAX);
            assert!(late.room() >= (32 << 10) + fair / 3, "{greedy}: {} of {fair}", late.room());
            let largest = shares.iter().map(|share| share.drawn).max().unwrap_or(0);
            assert!(largest <= 2 * fair + GRAIN_BYTES, "{greedy}: {largest} of {fair}");
            drop(shares);
            assert_eq!(budget.drawn(), 0, "it goes back");
        }
    }

    #[test]
    fn those_that_come_at_once_are_promised_less_and_less_but_their_least() {
        let budget = Budget::new(64 * MIB);
        let least = 32 << 10;
        let mut shares = Vec::new();
        for n in 0..5000 {
            let promise = budget.promise(MIB, least);
            assert!(n > 0 || promise == MIB);
            assert!((least..=MIB).contains(&promise));
            let mut share = budget.share(least, usize::MAX);
            share.hold(promise);
            shares.push(share);
            assert!(budget.drawn() <= 64 * MIB, "{n}");
        }
        assert_eq!(budget.promise(MIB, least), least);
    }
}
