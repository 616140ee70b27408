//! The paper of 1993 as a whole: it passes, the same bytes come out each time, what was interrupted
//! goes on, and what is wrong is caught.

mod done;

use done::{judged, run};
use uts_papers::reference::Reference;
use uts_papers::rx_hex::paper;

#[test]
fn the_paper_is_borne_out_and_repeats_to_the_byte() {
    done::is_borne_out_and_repeats_to_the_byte(&paper(), 21);
}

#[test]
fn what_is_planted_is_caught() {
    done::what_is_planted_is_caught(&paper());
}

/// Each place can be judged without the others.
#[test]
fn a_place_needs_no_other() {
    let paper = paper();
    let reference = Reference::parse(paper.reference).expect("a good file");
    for place in paper.places() {
        let dir = tempfile::tempdir().expect("a directory");
        let results = run(&paper, dir.path(), 2, &[place], usize::MAX).0.expect("all of it");
        let judged = judged(&paper, &results, &reference, &[place]);
        assert!(!judged.is_empty(), "{place}");
        for judged in judged {
            assert!(judged.verdict.passes(), "{place}: {} {:?}", judged.item.id, judged.ours);
        }
    }
}
