//! The paper of 1993 as a whole: it passes, the same bytes come out each time, what was interrupted
//! goes on, and what is wrong is caught.

use crate::done;
use uts_papers::rx_hex::paper;

#[test]
fn the_paper_is_borne_out_and_repeats_to_the_byte() {
    done::is_borne_out_and_repeats_to_the_byte(&paper(), 22);
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

/// Each place can be judged without the others.
#[test]
fn a_place_needs_no_other() {
    let paper = paper();
    done::places_need_no_others(&paper, &paper.places());
}
