//! The receiver's half: arrivals and sums, and the equations that are left of them.
//!
//! A repair less the sources that are there is an equation over those that are missing. Equations
//! are kept reduced: each has a source of its own, its pivot, that no other has. One that is left
//! with its pivot alone says what that source is.

use super::{Shape, coefficients};
use crate::fec::arrived::{Arrived, BYTES_MAX, HISTORY, payload_of};
use crate::fec::{
    Counters, DATA_MAX, Decode, PAYLOAD_BYTES_MAX, Recovered, Repair, RepairId, SYMBOL_PREFIX_BYTES, gf256,
    prefix,
};
use crate::range::RangeSet;
use smallvec::SmallVec;

/// Keeps what lately arrived in one epoch, and the equations that repairs have left.
#[derive(Clone, Debug)]
pub struct Decoder {
    shape: Shape,
    /// Numbers, not below `floor`, that arrived or were recovered.
    known: RangeSet,
    floor: u64,
    arrived: Arrived,
    equations: Vec<Equation>,
    equation_bytes: usize,
    counters: Counters,
}

/// A sum over sources that are missing.
#[derive(Clone, Debug)]
struct Equation {
    /// Number and coefficient of each, ascending; none is zero. The first is the pivot, whose
    /// coefficient is one.
    terms: SmallVec<[(u64, u8); 8]>,
    symbol: Vec<u8>,
}

impl Decoder {
    /// Before any arrival.
    pub fn new(shape: Shape) -> Self {
        Decoder {
            shape,
            known: RangeSet::new(),
            floor: 0,
            arrived: Arrived::default(),
            equations: Vec::new(),
            equation_bytes: 0,
            counters: Counters::default(),
        }
    }

    /// The equation that a repair leaves (fec.md R-20). `Err` says what it is counted as.
    fn equation(&mut self, repair: &Repair) -> Result<Equation, fn(&mut Counters)> {
        let RepairId::Window { key } = repair.id else { return Err(|c| c.refused += 1) };
        let offsets =
            repair.proper_offsets(self.shape.sources).ok_or::<fn(&mut Counters)>(|c| c.refused += 1)?;
        if repair.first < self.floor {
            return Err(|c| c.late += 1);
        }
        let numbers = offsets.iter().map(|offset| repair.first + u64::from(*offset));
        if numbers.clone().all(|number| self.known.contains(number)) {
            return Err(|c| c.unneeded += 1);
        }
        let mut rows = [repair.symbol.to_vec()];
        let mut terms = SmallVec::new();
        for (number, coefficient) in numbers.zip(coefficients(key)) {
            match self.arrived.get(number) {
                None if self.known.contains(number) => return Err(|c| c.abandoned += 1),
                None => terms.push((number, coefficient)),
                Some(payload) if SYMBOL_PREFIX_BYTES + payload.len() > rows[0].len() => {
                    return Err(|c| c.refused += 1);
                }
                Some(payload) => add_source(coefficient, payload, &mut rows),
            }
        }
        let [symbol] = rows;
        Ok(Equation { terms, symbol })
    }

    /// Brings in an equation: reduces it by the others, and the others by it.
    fn enter(&mut self, mut new: Equation) {
        for old in &self.equations {
            if let Some(pivot) = old.pivot() {
                new.subtract(old, pivot);
            }
        }
        let Some(pivot) = new.normalise() else {
            // fec.md R-20: it says nothing new, or what cannot be.
            match new.symbol.iter().all(|byte| *byte == 0) {
                true => self.counters.unneeded += 1,
                false => self.counters.refused += 1,
            }
            return;
        };
        for old in &mut self.equations {
            old.subtract(&new, pivot);
        }
        self.equations.push(new);
        self.count_bytes();
    }

    /// A source is known: it is no unknown any more.
    fn resolve(&mut self, number: u64, payload: &[u8]) {
        let mut changed = Vec::new();
        let mut at = 0;
        while let Some(equation) = self.equations.get_mut(at) {
            let was_pivot = equation.pivot() == Some(number);
            match equation.take(number) {
                Some(_) if SYMBOL_PREFIX_BYTES + payload.len() > equation.symbol.len() => {
                    self.counters.refused += 1;
                    self.equations.swap_remove(at);
                    continue;
                }
                Some(coefficient) => {
                    add_source(coefficient, payload, core::slice::from_mut(&mut equation.symbol));
                }
                None => {}
            }
            if was_pivot {
                changed.push(self.equations.swap_remove(at));
                continue;
            }
            at += 1;
        }
        changed.into_iter().for_each(|equation| self.enter(equation));
        self.count_bytes();
    }

    /// Takes out what the equations say by now.
    fn recover(&mut self) -> Vec<Recovered> {
        let mut recovered = Vec::new();
        while let Some(at) = self.equations.iter().position(|e| e.terms.len() == 1) {
            let Equation { terms, symbol } = self.equations.swap_remove(at);
            let Some((number, _)) = terms.first().copied() else { continue };
            let Some(payload) = payload_of(symbol) else {
                self.counters.refused += 1;
                continue;
            };
            if !self.known.insert_one(number) {
                continue;
            }
            self.arrived.insert(number, &payload);
            self.counters.recovered += 1;
            recovered.push(Recovered { number, payload });
        }
        self.count_bytes();
        recovered
    }

    /// Bounds what is kept, and moves on what is too old to matter.
    fn bound(&mut self) {
        while self.equations.len() > EQUATIONS_MAX || self.equation_bytes > BYTES_MAX {
            self.abandon(|e, oldest| e.pivot() == Some(oldest));
        }
        let Some(highest) = self.known.last().map(|r| r.end - 1) else { return };
        let floor = highest.saturating_sub(HISTORY);
        if floor > self.floor {
            self.floor = floor;
            self.known.remove_below(floor);
            self.arrived.remove_below(floor);
            self.abandon(|e, _| e.pivot().is_some_and(|pivot| pivot < floor));
        }
    }

    /// Gives equations up; the oldest pivot is handed to `which`.
    fn abandon(&mut self, which: impl Fn(&Equation, u64) -> bool) {
        let oldest = self.equations.iter().filter_map(Equation::pivot).min().unwrap_or(0);
        let before = self.equations.len();
        self.equations.retain(|e| !which(e, oldest));
        self.counters.abandoned += (before - self.equations.len()) as u64;
        self.count_bytes();
    }

    fn count_bytes(&mut self) {
        self.equation_bytes = self.equations.iter().map(|e| e.symbol.len()).sum();
    }
}

impl Decode for Decoder {
    fn on_source(&mut self, number: u64, payload: &[u8]) -> Vec<Recovered> {
        if number < self.floor || payload.len() > PAYLOAD_BYTES_MAX || !self.known.insert_one(number) {
            return Vec::new();
        }
        self.arrived.insert(number, payload);
        let is_awaited = self.equations.iter().any(|e| e.terms.iter().any(|(n, _)| *n == number));
        let recovered = if is_awaited {
            self.resolve(number, payload);
            self.recover()
        } else {
            Vec::new()
        };
        self.bound();
        recovered
    }

    fn on_repair(&mut self, repair: &Repair) -> Vec<Recovered> {
        self.counters.repairs += 1;
        match self.equation(repair) {
            Ok(equation) => self.enter(equation),
            Err(count) => {
                count(&mut self.counters);
                return Vec::new();
            }
        }
        let recovered = self.recover();
        self.bound();
        recovered
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn held_bytes(&self) -> usize {
        self.arrived.bytes + self.equation_bytes
    }

    fn memory_bytes(&self) -> usize {
        self.arrived.memory_bytes() + self.equations.iter().map(Equation::memory_bytes).sum::<usize>()
    }

    fn forget(&mut self) {
        self.counters.abandoned += self.equations.len() as u64;
        (self.arrived, self.equations, self.equation_bytes) = (Arrived::default(), Vec::new(), 0);
    }
}

impl Equation {
    fn memory_bytes(&self) -> usize {
        let spilled = if self.terms.spilled() { self.terms.capacity() * size_of::<(u64, u8)>() } else { 0 };
        size_of::<Equation>() + self.symbol.capacity() + spilled
    }

    fn pivot(&self) -> Option<u64> {
        self.terms.first().map(|(number, _)| *number)
    }

    /// Takes a source out; says its coefficient.
    fn take(&mut self, number: u64) -> Option<u8> {
        let at = self.terms.iter().position(|(n, _)| *n == number)?;
        Some(self.terms.remove(at).1)
    }

    /// Takes as many times `other` off as makes its source `pivot`, whose coefficient there is one,
    /// vanish here.
    fn subtract(&mut self, other: &Equation, pivot: u64) {
        let Some(factor) = self.terms.iter().find(|(n, _)| *n == pivot).map(|(_, c)| *c) else { return };
        for (number, coefficient) in &other.terms {
            let product = gf256::multiply(factor, *coefficient);
            match self.terms.binary_search_by_key(number, |(n, _)| *n) {
                Ok(at) if self.terms[at].1 == product => drop(self.terms.remove(at)),
                Ok(at) => self.terms[at].1 ^= product,
                Err(at) => self.terms.insert(at, (*number, product)),
            }
        }
        if self.symbol.len() < other.symbol.len() {
            self.symbol.resize(other.symbol.len(), 0);
        }
        gf256::accumulate(&[factor], 0, &other.symbol, core::slice::from_mut(&mut self.symbol));
    }

    /// Makes the pivot's coefficient one; says which source that is.
    fn normalise(&mut self) -> Option<u64> {
        let (pivot, coefficient) = *self.terms.first()?;
        let scale = gf256::inverse(coefficient);
        self.terms.iter_mut().for_each(|(_, c)| *c = gf256::multiply(*c, scale));
        self.symbol.iter_mut().for_each(|byte| *byte = gf256::multiply(*byte, scale));
        Some(pivot)
    }
}

/// Adds a multiple of a source's symbol to the only row. Subtraction is the same in this field.
fn add_source(coefficient: u8, payload: &[u8], rows: &mut [Vec<u8>]) {
    gf256::accumulate(&[coefficient], 0, &prefix(payload), rows);
    gf256::accumulate(&[coefficient], SYMBOL_PREFIX_BYTES, payload, rows);
}

/// Equations that may wait for more: each stands for a source that is missing, and no repair names
/// more (fec.md R-20).
const EQUATIONS_MAX: usize = DATA_MAX;
