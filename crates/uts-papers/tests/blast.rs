//! The paper of 1985 as a whole: it passes, the same bytes come out each time, what was interrupted
//! goes on, and a published value that is wrong is caught.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uts_papers::blast;
use uts_papers::judge::{Judged, Verdict, judge};
use uts_papers::page::{self, Report};
use uts_papers::paper::Results;
use uts_papers::reference::{Reference, is_meant};
use uts_papers::run::Config;

/// Does what is missing; stops once `most` units are done.
fn run(dir: &Path, jobs: usize, places: &[&str], most: usize) -> (Option<Results>, usize) {
    let (stop, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
    let places: Vec<String> = places.iter().map(|place| (*place).to_owned()).collect();
    let tell = |_: usize, _: usize| {
        let done = begun.fetch_add(1, Ordering::Relaxed) + 1;
        stop.fetch_or(done >= most, Ordering::Relaxed);
    };
    let config = Config { dir, jobs, again: false, places: &places, stop: &stop, tell: &tell };
    let results = blast::paper().run(&config).expect("it runs");
    (results, begun.into_inner())
}

fn judged(results: &Results, reference: &Reference, places: &[&str]) -> Vec<Judged> {
    let conclusion = (blast::paper().conclude)(results).expect("a conclusion");
    let wanted = |place: &str| places.is_empty() || places.iter().any(|by| is_meant(place, by));
    judge(reference, &conclusion.findings, |item| wanted(&item.place)).expect("they belong together")
}

#[test]
fn the_paper_is_borne_out_and_repeats_to_the_byte() {
    let [one, two] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let paper = blast::paper();
    let reference = Reference::parse(paper.reference).expect("a good file");
    let results = run(one.path(), 2, &[], usize::MAX).0.expect("all of it");
    let judged = judged(&results, &reference, &[]);
    let conclusion = (paper.conclude)(&results).expect("a conclusion");
    let report = Report {
        name: paper.name.into(),
        paper: reference.paper.clone(),
        command: "uts lab reproduce blast".into(),
        judged,
        figures: conclusion.figures,
    };
    page::lines(&report).iter().for_each(|(line, _)| println!("{line}"));
    assert!(report.passes());
    let known: Vec<&str> = report
        .judged
        .iter()
        .filter(|judged| judged.verdict == Verdict::KnownToDiffer)
        .map(|judged| judged.item.id.as_str())
        .collect();
    // A difference that has gone is to leave the list, too.
    let listed = reference.item.iter().filter(|item| item.differs.is_some()).map(|item| item.id.as_str());
    assert_eq!(known, listed.collect::<Vec<_>>());
    // In another order, and after an interruption.
    assert!(run(two.path(), 1, &[], 3).0.is_none(), "it was stopped");
    let (again, done) = run(two.path(), 2, &[], usize::MAX);
    assert!(done < paper.units.len(), "what was done is not done again: {done}");
    assert_eq!(again.expect("all of it"), results);
    for unit in &paper.units {
        let file = |dir: &Path| std::fs::read(dir.join(format!("{}.json", unit.name))).expect("it was kept");
        assert!(file(one.path()) == file(two.path()), "{}", unit.name);
    }
    let pages = [(); 2].map(|()| {
        page::page(&[Report { figures: (paper.conclude)(&results).expect("one").figures, ..clone(&report) }])
    });
    assert!(pages[0] == pages[1] && pages[0].contains("differs, as known"));
    assert_eq!(pages[0].matches("<svg xmlns").count(), 8);
}

fn clone(report: &Report) -> Report {
    Report {
        name: report.name.clone(),
        paper: report.paper.clone(),
        command: report.command.clone(),
        judged: report.judged.clone(),
        figures: Vec::new(),
    }
}

#[test]
fn a_wrong_value_and_a_wrong_statement_are_caught() {
    let dir = tempfile::tempdir().expect("a directory");
    let results = run(dir.path(), 2, &["table2"], usize::MAX).0.expect("all of it");
    let mut reference = Reference::parse(blast::paper().reference).expect("a good file");
    assert!(judged(&results, &reference, &["table2"]).iter().all(|judged| judged.verdict.passes()));
    let planted = reference.item.iter_mut().find(|item| item.id == "table2.copy-in").expect("it is there");
    planted.published = planted.published.map(|value| value * 1.1);
    let caught = judged(&results, &reference, &["table2"]);
    let wrong: Vec<&str> = caught
        .iter()
        .filter(|judged| !judged.verdict.passes())
        .map(|judged| judged.item.id.as_str())
        .collect();
    assert_eq!(wrong, ["table2.copy-in"]);
}

/// A kept file that is damaged, or of another version, is done again.
#[test]
fn what_cannot_be_read_is_done_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let whole = run(dir.path(), 1, &["3"], usize::MAX).0.expect("all of it");
    let file = dir.path().join("lines.json");
    let text = std::fs::read_to_string(&file).expect("it was kept");
    for damaged in [&text[..text.len() / 2], &text.replace("uts-papers", "another"), ""] {
        std::fs::write(&file, damaged).expect("written");
        let (again, done) = run(dir.path(), 1, &["3"], usize::MAX);
        assert_eq!((again.as_ref(), done), (Some(&whole), 1));
    }
    assert_eq!(run(dir.path(), 1, &["3"], usize::MAX).1, 0, "and kept");
}
