//! The paper of 1985 as a whole: it passes, the same bytes come out each time, what was interrupted
//! goes on, and a published value that is wrong is caught.

use crate::done::{self, run};
use uts_papers::blast::paper;

#[test]
fn the_paper_is_borne_out_and_repeats_to_the_byte() {
    done::is_borne_out_and_repeats_to_the_byte(&paper(), 9);
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

/// A kept file that is damaged, or of another version, is done again.
#[test]
fn what_cannot_be_read_is_done_again() {
    let paper = paper();
    let dir = tempfile::tempdir().expect("a directory");
    let whole = run(&paper, dir.path(), 1, &["3"], usize::MAX).0.expect("all of it");
    let file = dir.path().join("lines.json");
    let text = std::fs::read_to_string(&file).expect("it was kept");
    for damaged in [&text[..text.len() / 2], &text.replace("uts-papers", "another"), ""] {
        std::fs::write(&file, damaged).expect("written");
        let (again, done) = run(&paper, dir.path(), 1, &["3"], usize::MAX);
        assert_eq!((again.as_ref(), done), (Some(&whole), 1));
    }
    assert_eq!(run(&paper, dir.path(), 1, &["3"], usize::MAX).1, 0, "and kept");
}
