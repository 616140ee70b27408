//! The thesis of 1995, as far as it is done again: it passes, and the same bytes come out each
//! time.

use crate::done;
use uts_papers::thesis::paper;

#[test]
fn the_paper_is_borne_out_and_repeats_to_the_byte() {
    done::is_borne_out_and_repeats_to_the_byte(&paper(), 15);
}

#[test]
fn what_is_planted_is_caught() {
    done::what_is_planted_is_caught(&paper());
}

/// A unit that no item names would never be looked at.
#[test]
fn each_unit_is_needed() {
    assert!(paper().units.iter().all(|unit| !unit.places.is_empty()));
}
