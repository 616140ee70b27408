//! The thesis of 1995, as far as it is done again: it passes, and the same bytes come out each
//! time, but for times of the machine that does it.

use crate::done;
use uts_papers::expression::Expression;
use uts_papers::judge::Ours;
use uts_papers::paper::{Paper, Unit};
use uts_papers::reference::{Item, Reference};
use uts_papers::thesis::paper;

#[test]
fn the_paper_is_borne_out_and_repeats_to_the_byte() {
    done::is_borne_out_and_repeats_to_the_byte(&done::without_times(paper()), 15);
}

#[test]
fn what_is_planted_is_caught() {
    done::what_is_planted_is_caught(&done::without_times(paper()));
}

/// A unit that no item names would never be looked at.
#[test]
fn each_unit_is_needed() {
    assert!(paper().units.iter().all(|unit| !unit.places.is_empty()));
}

/// True if an item takes figures from a unit.
fn takes(item: &Item, unit: &Unit) -> bool {
    let mut from = item.from.iter().chain(item.check.iter().filter_map(|check| check.from.as_ref()));
    from.any(|text| {
        let expression = Expression::parse(text).expect("an expression");
        expression.sources().iter().any(|source| source.is_of(&unit.name))
    })
}

/// An item of times is held to its bounds alone: no other may be, and no time to what it was.
#[test]
fn an_item_is_timed_if_a_unit_of_it_is() {
    let (paper, mut timed) = (paper(), 0);
    for item in Reference::parse(paper.reference).expect("a good file").item {
        let is_timed = paper.units.iter().any(|unit| unit.is_timed && takes(&item, unit));
        assert_eq!(item.timed, is_timed, "{}", item.id);
        timed += usize::from(is_timed);
    }
    assert!(timed > 0);
}

/// Whatever the machine, each figure of each item of times is a number. It is not judged here.
#[test]
fn all_that_is_timed_is_measured() {
    let paper = paper();
    let reference = Reference::parse(paper.reference).expect("a good file");
    let timed = || reference.item.iter().filter(|item| item.timed);
    let units = paper.units.into_iter().filter(|unit| timed().any(|item| takes(item, unit))).collect();
    let paper = Paper { units, ..paper };
    let dir = tempfile::tempdir().expect("a directory");
    let results = done::run(&paper, dir.path(), 1, &[], usize::MAX).0.expect("all of it");
    let findings = paper.conclude(&results).expect("a conclusion").findings;
    for item in timed() {
        let finding = findings.iter().find(|finding| finding.id == item.id).expect("it was found");
        let Ours::Figures(figures) = &finding.ours else { panic!("{} is a value", item.id) };
        assert_eq!(figures.len(), item.check.len(), "{}", item.id);
        assert!(figures.iter().all(|(_, value)| value.is_finite()), "{figures:?}");
    }
}
