//! A block as far as it has come.

use crate::code::{Code, PARITIES, SOURCES_MAX};
use bytes::Bytes;
use uts_functions::Time;

/// A block's part in requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    /// It was not asked for, or is to be asked for anew.
    Never,
    /// It is asked for at this instant, unless others have it repaired.
    After(Time),
    /// It is not asked for before this instant.
    Not(Time),
}

impl Asking {
    pub(super) fn is_due(self, now: Time) -> bool {
        matches!(self, Asking::After(at) if at <= now)
    }

    pub(super) fn may_begin(self, now: Time) -> bool {
        match self {
            Asking::Never => true,
            Asking::After(_) => false,
            Asking::Not(until) => until <= now,
        }
    }

    pub(super) fn due(self) -> Option<Time> {
        match self {
            Asking::After(at) | Asking::Not(at) if at != Time::NEVER => Some(at),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Block {
    /// The instant at which it was heard of.
    pub(super) since: Time,
    /// Number of its sources, once that is known.
    pub(super) count: Option<usize>,
    /// It was counted as one with losses.
    pub(super) is_counted: bool,
    pub(super) asking: Asking,
    sources: Vec<Option<Bytes>>,
    parities: Vec<(u8, Bytes)>,
    have: usize,
    bytes: usize,
}

impl Block {
    pub(super) fn new(now: Time) -> Self {
        Block {
            since: now,
            count: None,
            is_counted: false,
            asking: Asking::Never,
            sources: Vec::new(),
            parities: Vec::new(),
            have: 0,
            bytes: 0,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sources that are there.
    pub(super) fn have(&self) -> usize {
        self.have
    }

    /// One above the highest place that is filled.
    pub(super) fn reaches(&self) -> usize {
        self.sources.len()
    }

    pub(super) fn source(&self, index: usize) -> Option<&Bytes> {
        self.sources.get(index)?.as_ref()
    }

    pub(super) fn first_from(&self, index: usize) -> Option<&Bytes> {
        self.sources.iter().skip(index).flatten().next()
    }

    /// Symbols that lack; of a block of unknown size as of a full one.
    pub(super) fn needs(&self, full: usize) -> usize {
        self.count.unwrap_or(full).saturating_sub(self.have + self.parities.len())
    }

    /// Sources that lack, as bits.
    pub(super) fn missing(&self, full: usize) -> u64 {
        let lacks = |index: &usize| self.source(*index).is_none();
        (0..self.count.unwrap_or(full).min(64)).filter(lacks).fold(0, |bits, index| bits | 1 << index)
    }

    /// Takes a source. False if it was there, or is none.
    pub(super) fn put(&mut self, index: usize, source: Bytes) -> bool {
        if index >= self.count.unwrap_or(SOURCES_MAX) || self.source(index).is_some() {
            return false;
        }
        if self.sources.len() <= index {
            self.sources.resize(index + 1, None);
        }
        self.have += 1;
        self.bytes += source.len();
        self.sources[index] = Some(source);
        true
    }

    /// Takes a parity. False if it was there.
    pub(super) fn put_parity(&mut self, parity: u8, symbol: Bytes) -> bool {
        let is_known = self.parities.iter().any(|(known, _)| *known == parity);
        if is_known || self.parities.len() == PARITIES {
            return false;
        }
        self.bytes += symbol.len();
        self.parities.push((parity, symbol));
        true
    }

    /// Brings back what is missing, if enough has come. Returns whether it did.
    pub(super) fn repair(&mut self, code: &Code) -> bool {
        let Some(count) = self.count.filter(|count| self.have + self.parities.len() >= *count) else {
            return false;
        };
        // A source beyond the count is none of the block.
        self.sources.resize(count, None);
        self.have = self.sources.iter().flatten().count();
        let parities: Vec<(u8, &[u8])> = self.parities.iter().map(|(index, p)| (*index, &p[..])).collect();
        let repaired = if self.have < count { code.repair(&self.sources, &parities) } else { None };
        if self.have < count && repaired.is_none() && parities.len() >= count - self.have {
            // They contradict each other: others are asked for.
            self.parities.clear();
        }
        let did = repaired.is_some();
        let mut repaired = repaired.into_iter().flatten();
        for source in self.sources.iter_mut().filter(|source| source.is_none()) {
            *source = repaired.next();
        }
        self.have = self.sources.iter().flatten().count();
        if self.have == count {
            self.parities.clear();
        }
        let held = self.sources.iter().flatten().chain(self.parities.iter().map(|(_, symbol)| symbol));
        self.bytes = held.map(Bytes::len).sum();
        did
    }
}
