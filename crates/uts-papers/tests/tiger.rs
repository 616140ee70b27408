//! The paper of 1999 as a whole: it passes, the same bytes come out each time, what was interrupted
//! goes on, and what is wrong is caught.

mod done;

use done::{judged, run};
use uts_papers::reference::Reference;
use uts_papers::tiger::paper;

#[test]
fn the_paper_is_borne_out_and_repeats_to_the_byte() {
    done::is_borne_out_and_repeats_to_the_byte(&paper(), 15);
}

#[test]
fn what_is_planted_is_caught() {
    done::what_is_planted_is_caught(&paper());
}

/// What a place needs is said by its items, so that it can be judged without the others.
#[test]
fn each_unit_is_needed_and_a_place_needs_no_other() {
    let paper = paper();
    assert!(paper.units.iter().all(|unit| !unit.places.is_empty()), "each has a place");
    let reference = Reference::parse(paper.reference).expect("a good file");
    for place in ["figure 4.3", "figure 4.4", "section 5.2"] {
        let dir = tempfile::tempdir().expect("a directory");
        let results = run(&paper, dir.path(), 2, &[place], usize::MAX).0.expect("all of it");
        for judged in judged(&paper, &results, &reference, &[place]) {
            assert!(judged.verdict.passes(), "{place}: {} {:?}", judged.item.id, judged.ours);
        }
    }
}
