//! The paper of 1999 as a whole: it passes, the same bytes come out each time, what was interrupted
//! goes on, and what is wrong is caught.

use crate::done;
use uts_papers::tiger::paper;

#[test]
fn the_paper_is_borne_out_and_repeats_to_the_byte() {
    done::is_borne_out_and_repeats_to_the_byte(&paper(), 15);
}

#[test]
fn what_is_planted_is_caught() {
    done::what_is_planted_is_caught(&paper());
}

/// The items of a place say which units it needs, so that it can be judged without the others.
#[test]
fn each_unit_is_needed_and_a_place_needs_no_other() {
    let paper = paper();
    assert!(paper.units.iter().all(|unit| !unit.places.is_empty()), "each has a place");
    done::places_need_no_others(&paper, &["figure 4.3", "figure 4.4", "section 5.2"]);
}
