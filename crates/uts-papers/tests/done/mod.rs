//! A paper that is carried out for a test.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uts_papers::judge::{Judged, Verdict, judge};
use uts_papers::page::{self, Report};
use uts_papers::paper::{Paper, Results};
use uts_papers::reference::{Reference, is_meant};
use uts_papers::run::Config;

/// Does what is missing; stops once `most` units are done.
pub fn run(paper: &Paper, dir: &Path, jobs: usize, places: &[&str], most: usize) -> (Option<Results>, usize) {
    let (stop, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
    let places: Vec<String> = places.iter().map(|place| (*place).to_owned()).collect();
    let tell = |_: usize, _: usize| {
        let done = begun.fetch_add(1, Ordering::Relaxed) + 1;
        stop.fetch_or(done >= most, Ordering::Relaxed);
    };
    let config = Config { dir, jobs, again: false, places: &places, stop: &stop, tell: &tell };
    let results = paper.run(&config).expect("it runs");
    (results, begun.into_inner())
}

pub fn judged(paper: &Paper, results: &Results, reference: &Reference, places: &[&str]) -> Vec<Judged> {
    let conclusion = (paper.conclude)(results).expect("a conclusion");
    let wanted = |place: &str| places.is_empty() || places.iter().any(|by| is_meant(place, by));
    judge(reference, &conclusion.findings, |item| wanted(&item.place)).expect("they belong together")
}

/// The paper passes, what is known to differ does, and the same bytes come out in another order
/// and after an interruption; `pictures` are drawn.
pub fn is_borne_out_and_repeats_to_the_byte(paper: &Paper, pictures: usize) {
    let [one, two] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let reference = Reference::parse(paper.reference).expect("a good file");
    let results = run(paper, one.path(), 2, &[], usize::MAX).0.expect("all of it");
    let report = || Report {
        name: paper.name.into(),
        paper: reference.paper.clone(),
        command: format!("uts lab reproduce {}", paper.name),
        judged: judged(paper, &results, &reference, &[]),
        figures: (paper.conclude)(&results).expect("a conclusion").figures,
    };
    page::lines(&report()).iter().for_each(|(line, _)| println!("{line}"));
    assert!(report().passes());
    let judged = report().judged;
    let known = judged.iter().filter(|judged| judged.verdict == Verdict::KnownToDiffer);
    // A difference that has gone is to leave the list, too.
    let listed = reference.item.iter().filter(|item| item.differs.is_some()).map(|item| item.id.as_str());
    assert_eq!(known.map(|judged| judged.item.id.as_str()).collect::<Vec<_>>(), listed.collect::<Vec<_>>());
    assert!(run(paper, two.path(), 1, &[], 3).0.is_none(), "it was stopped");
    let (again, done) = run(paper, two.path(), 2, &[], usize::MAX);
    assert!(done < paper.units.len(), "what was done is not done again: {done}");
    assert_eq!(again.expect("all of it"), results);
    for unit in &paper.units {
        let file = |dir: &Path| std::fs::read(dir.join(format!("{}.json", unit.name))).expect("it was kept");
        assert!(file(one.path()) == file(two.path()), "{}", unit.name);
    }
    let pages = [(); 2].map(|()| page::page(&[report()]));
    assert!(pages[0] == pages[1] && pages[0].contains("differs, as known"));
    assert_eq!(pages[0].matches("<svg xmlns").count(), pictures);
}

/// A published value that is a quarter higher is caught, and nothing else.
pub fn a_wrong_value_is_caught(paper: &Paper, place: &str, id: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let results = run(paper, dir.path(), 2, &[place], usize::MAX).0.expect("all of it");
    let mut reference = Reference::parse(paper.reference).expect("a good file");
    assert!(judged(paper, &results, &reference, &[place]).iter().all(|judged| judged.verdict.passes()));
    let planted = reference.item.iter_mut().find(|item| item.id == id).expect("it is there");
    planted.published = planted.published.map(|value| value * 1.25);
    let caught = judged(paper, &results, &reference, &[place]);
    let wrong = caught.iter().filter(|judged| !judged.verdict.passes());
    assert_eq!(wrong.map(|judged| judged.item.id.as_str()).collect::<Vec<_>>(), [id]);
}
