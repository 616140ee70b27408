//! Comparison of a transport with the best of a cell, and of UTS with the others. Only if another
//! transport has a figure too, can anything be won or lost.

use super::matrix::Entry;
use super::quantity::{Better, Quantity, three_digits};
use super::stats::welch;

/// Means that are so close are called equal: factors, and percentage points.
const PAR_FACTOR: f64 = 1.02;
const PAR_POINTS: f64 = 1.0;
/// So improbable a difference must be by chance before it counts.
const SIGNIFICANT: f64 = 0.05;

/// Standing of a figure beside the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is the best, or so close that it makes no difference.
    Par,
    /// The difference may be chance: more repetitions would tell.
    Unsure,
    /// It is behind.
    Behind,
}

/// Distance of two figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Distance {
    /// As the factor by which the better one is better, 1 or more.
    Factor(f64),
    /// In percentage points.
    Points(f64),
}

impl Distance {
    pub(super) fn words(self) -> String {
        match self {
            Distance::Factor(f) if f.is_infinite() => "∞\u{a0}×".into(),
            Distance::Factor(f) => {
                format!("{}\u{a0}×", if f < 10.0 { format!("{f:.2}") } else { three_digits(f) })
            }
            Distance::Points(p) => format!("{p:.1}\u{a0}points"),
        }
    }

    /// 0 for equal, up to 3 for far behind.
    pub(super) fn grade(self) -> u8 {
        let (small, large, value) = match self {
            Distance::Factor(f) => (1.1, 2.0, f),
            Distance::Points(p) => (3.0, 10.0, p),
        };
        1 + u8::from(value >= small) + u8::from(value >= large)
    }

    fn is_par(self) -> bool {
        match self {
            Distance::Factor(f) => f < PAR_FACTOR,
            Distance::Points(p) => p < PAR_POINTS,
        }
    }
}

/// Verdict on UTS in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Better than every other, and so by the test.
    Best,
    /// As good as the best.
    Par,
    /// Ahead or behind, but perhaps by chance.
    Unsure,
    /// Behind the best.
    Behind(Option<Distance>),
    /// It has no figure, others have.
    Absent,
    /// Only UTS has a figure, in one variant or several: neither won nor lost.
    Alone,
    /// Nobody has one yet.
    Empty,
}

/// In how many cells UTS stands how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub best: usize,
    pub par: usize,
    pub unsure: usize,
    pub behind: usize,
    pub absent: usize,
    pub alone: usize,
    pub empty: usize,
}

impl Tally {
    pub(super) fn of(verdicts: impl Iterator<Item = Verdict>) -> Self {
        let mut tally = Tally::default();
        for verdict in verdicts {
            *match verdict {
                Verdict::Best => &mut tally.best,
                Verdict::Par => &mut tally.par,
                Verdict::Unsure => &mut tally.unsure,
                Verdict::Behind(_) => &mut tally.behind,
                Verdict::Absent => &mut tally.absent,
                Verdict::Alone => &mut tally.alone,
                Verdict::Empty => &mut tally.empty,
            } += 1;
        }
        tally
    }

    /// Cells in which another transport has a figure: those that can be won and lost.
    pub(super) fn contested(&self) -> usize {
        self.best + self.par + self.unsure + self.behind + self.absent
    }

    pub(super) fn cells(&self) -> usize {
        self.contested() + self.alone + self.empty
    }
}

/// Says of each entry how it stands beside the best, which is the first.
pub(super) fn compare(entries: &mut [Entry], quantity: &Quantity, better: Better) {
    let Some(best) = entries.first().cloned().filter(|e| e.mean.is_some()) else { return };
    for entry in entries {
        entry.behind = distance(&best, entry, quantity, better);
        entry.standing = standing(&best, entry, entry.behind);
    }
}

fn distance(best: &Entry, other: &Entry, quantity: &Quantity, better: Better) -> Option<Distance> {
    let (best, other) = (best.mean?, other.mean?);
    let (more, less) = match better {
        Better::Higher => (best.mean, other.mean),
        Better::Lower => (other.mean, best.mean),
    };
    Some(match quantity.unit {
        "%" => Distance::Points((more - less) * quantity.factor),
        _ if more == less => Distance::Factor(1.0),
        _ => Distance::Factor(more / less),
    })
}

fn standing(best: &Entry, other: &Entry, distance: Option<Distance>) -> Option<Standing> {
    let (a, b, distance) = (best.mean?, other.mean?, distance?);
    let is_as_complete = best.complete * other.tried == other.complete * best.tried;
    Some(match is_as_complete {
        true if other.who == best.who || distance.is_par() => Standing::Par,
        true if welch(&a, &b).is_some_and(|p| p > SIGNIFICANT) => Standing::Unsure,
        _ => Standing::Behind,
    })
}

/// Verdict on UTS among entries that have been compared.
pub(super) fn verdict(entries: &[Entry], quantity: &Quantity, better: Better, uts: Option<usize>) -> Verdict {
    let Some(best) = entries.first().filter(|e| e.mean.is_some()) else { return Verdict::Empty };
    if !entries.iter().any(|e| e.mean.is_some() && !e.is_uts) {
        return Verdict::Alone;
    }
    let Some(own) = entries.iter().find(|e| Some(e.who) == uts && e.mean.is_some()) else {
        return Verdict::Absent;
    };
    // First by its mean alone is not yet better.
    let beside = match own.who == best.who {
        true => entries.get(1).and_then(|next| standing(best, next, distance(best, next, quantity, better))),
        false => own.standing,
    };
    match beside {
        Some(Standing::Par) => Verdict::Par,
        Some(Standing::Unsure) => Verdict::Unsure,
        _ if own.who == best.who => Verdict::Best,
        _ => Verdict::Behind(own.behind),
    }
}
