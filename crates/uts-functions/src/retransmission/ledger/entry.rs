//! Entries of the ledger: packets in a row that differ in nothing but what follows from their
//! places.

use super::{Sent, Tokens};
use crate::congestion::Snapshot;
use core::ops::Range;
use smallvec::smallvec;

/// Packets of an entry, at most: what a batch of segments holds fits.
const PLACES_MAX: u64 = u64::BITS as u64;

/// Content that a packet may carry.
pub trait Carried: Clone {
    /// Content of the packet `places` further on, in a row of packets that are alike.
    #[must_use]
    fn ahead(&self, places: u64) -> Self;
}

/// Packets in a row, alike but for their places.
#[derive(Clone, Debug)]
pub struct Run<T> {
    /// Their numbers.
    pub numbers: Range<u64>,
    /// The first of them.
    pub sent: Sent<T>,
}

impl<T: Carried> Sent<T> {
    /// The packet `places` further on, in a row of packets that are alike and were sent at once.
    pub(super) fn ahead(&self, places: u64) -> Self {
        let tokens = match self.tokens.as_slice() {
            [token] => smallvec![token.ahead(places)],
            tokens => tokens.iter().cloned().collect(),
        };
        Sent { tokens, snapshot: self.snapshot_ahead(places), ..*self }
    }
}

impl<T: Carried> Run<T> {
    /// Each of them, with its number.
    pub fn split(self) -> impl Iterator<Item = (u64, Sent<T>)> {
        let Run { numbers, sent } = self;
        numbers.clone().map(move |number| (number, sent.ahead(number - numbers.start)))
    }
}

impl<T> Sent<T> {
    fn snapshot_ahead(&self, places: u64) -> Snapshot {
        Snapshot { in_flight: self.snapshot.in_flight + places * self.bytes, ..self.snapshot }
    }
}

impl<T> Run<T> {
    /// Number of packets in the run.
    pub fn packets(&self) -> u64 {
        self.numbers.end - self.numbers.start
    }

    /// Their bytes of UDP payload.
    pub fn bytes(&self) -> u64 {
        self.packets() * self.sent.bytes
    }

    /// The snapshot of the last of them.
    pub fn last_snapshot(&self) -> Snapshot {
        self.sent.snapshot_ahead(self.packets() - 1)
    }
}

/// Packets in a row as the ledger keeps them; bit n of each word stands for the one at place n.
#[derive(Clone, Debug)]
pub(super) struct Entry<T> {
    /// The number of the one at place 0.
    pub first: u64,
    /// Those that are neither acknowledged nor lost.
    pub open: u64,
    /// Those that need no repetition: the peer has what they carried.
    bare: u64,
    /// The one at place 0.
    pub sent: Sent<T>,
}

impl<T: Carried> Entry<T> {
    /// As many of so many packets, at least one, as an entry holds.
    pub fn new(first: u64, sent: Sent<T>, packets: u64) -> Self {
        Entry { first, open: u64::MAX >> (PLACES_MAX - packets.clamp(1, PLACES_MAX)), bare: 0, sent }
    }

    /// The places of these numbers.
    pub fn places(&self, numbers: &Range<u64>) -> u64 {
        let below = |number: u64| match number.saturating_sub(self.first) {
            places if places < PLACES_MAX => (1 << places) - 1,
            _ => u64::MAX,
        };
        below(numbers.end) & !below(numbers.start)
    }

    /// The packet at a place.
    pub fn at(&self, place: u32) -> Sent<T> {
        let mut sent = self.sent.ahead(u64::from(place));
        if self.bare >> place & 1 == 1 {
            sent.tokens.clear();
        }
        sent
    }

    /// Closes the packets at these places, and adds those that were open to `out`, in order.
    pub fn close(&mut self, places: u64, out: &mut Vec<Run<T>>) {
        let closed = self.open & places;
        self.open &= !closed;
        let packets = u64::from(closed.trailing_ones());
        if self.open == 0 && self.bare == 0 && closed == u64::MAX >> (PLACES_MAX - packets.max(1)) {
            // All at once, as nearly always: nobody asks for it any more.
            let tokens = core::mem::take(&mut self.sent.tokens);
            out.push(Run { numbers: self.first..self.first + packets, sent: Sent { tokens, ..self.sent } });
        } else {
            out.extend(self.rows(closed));
        }
    }

    /// Takes what the open packets at these places carried.
    pub fn take_tokens(&mut self, places: u64) -> impl Iterator<Item = Tokens<T>> {
        let laden = self.open & places & !self.bare;
        let tokens: Vec<_> = self.rows(laden).flat_map(Run::split).map(|(_, sent)| sent.tokens).collect();
        self.bare |= laden;
        tokens.into_iter().filter(|tokens| !tokens.is_empty())
    }

    /// These packets, in rows that are alike.
    fn rows(&self, mut places: u64) -> impl Iterator<Item = Run<T>> {
        core::iter::from_fn(move || {
            let place = places.trailing_zeros();
            let rest = places.checked_shr(place)?;
            let bare = self.bare >> place;
            let alike = if bare & 1 == 1 { bare } else { !bare };
            let packets = (rest & alike).trailing_ones();
            places &= !(u64::MAX >> (u64::BITS - packets) << place);
            let start = self.first + u64::from(place);
            Some(Run { numbers: start..start + u64::from(packets), sent: self.at(place) })
        })
    }
}
