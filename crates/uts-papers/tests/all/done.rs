//! A paper that is carried out for a test.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uts_papers::judge::{Finding, Judged, Ours, Verdict, judge};
use uts_papers::page::{self, Report};
use uts_papers::paper::{Paper, Results};
use uts_papers::reference::{Item, Reference, is_meant};
use uts_papers::run::Config;

/// The paper without the times of the machine that does it, which differ from run to run.
pub fn without_times(mut paper: Paper) -> Paper {
    paper.units.retain(|unit| !unit.is_timed);
    paper
}

/// The items of a paper that [`without_times`] has.
fn reference_of(paper: &Paper) -> Reference {
    let mut reference = Reference::parse(paper.reference).expect("a good file");
    reference.item.retain(|item| !item.timed);
    reference
}

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
    let conclusion = paper.conclude(results).expect("a conclusion");
    let wanted = |place: &str| places.is_empty() || places.iter().any(|by| is_meant(place, by));
    judge(reference, &conclusion.findings, |item| wanted(&item.place)).expect("they belong together")
}

/// Each of these places passes where no other is run.
pub fn places_need_no_others(paper: &Paper, places: &[&str]) {
    let reference = reference_of(paper);
    for place in places {
        let dir = tempfile::tempdir().expect("a directory");
        let results = run(paper, dir.path(), 2, &[place], usize::MAX).0.expect("all of it");
        let judged = judged(paper, &results, &reference, &[place]);
        assert!(!judged.is_empty(), "{place}");
        for judged in judged {
            assert!(judged.verdict.passes(), "{place}: {} {:?}", judged.item.id, judged.ours);
        }
    }
}

/// The paper passes, what is known to differ does, and the same bytes come out in another order
/// and after an interruption; `pictures` are drawn.
pub fn is_borne_out_and_repeats_to_the_byte(paper: &Paper, pictures: usize) {
    let [one, two] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let reference = reference_of(paper);
    let results = run(paper, one.path(), 2, &[], usize::MAX).0.expect("all of it");
    let report = || Report {
        name: paper.name.into(),
        paper: reference.paper.clone(),
        command: format!("uts lab reproduce {}", paper.name),
        judged: judged(paper, &results, &reference, &[]),
        figures: paper.conclude(&results).expect("a conclusion").figures,
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
    let differs = reference.item.iter().any(|item| item.differs.is_some());
    assert!(pages[0] == pages[1] && pages[0].contains("differs, as known") == differs);
    assert_eq!(pages[0].matches("<svg xmlns").count(), pictures);
}

/// A wrong value is planted in each item, one by one, on either side: in ours, in what was
/// published, in the bounds and words of statements, in what the file says that ours was. Each must
/// be caught, by the file's own check or by the judge. The share that is caught is printed.
pub fn what_is_planted_is_caught(paper: &Paper) {
    let dir = tempfile::tempdir().expect("a directory");
    let results = run(paper, dir.path(), 2, &[], usize::MAX).0.expect("all of it");
    let findings = paper.conclude(&results).expect("a conclusion").findings;
    let reference = reference_of(paper);
    let is_caught = |reference: &Reference, findings: &[Finding], id: &str| {
        // By the judge alone: the file's own check is another matter.
        judge(reference, findings, |item| item.id == id)
            .map_or(true, |judged| judged.iter().any(|judged| !judged.verdict.passes()))
    };
    let (mut planted, mut missed) = (0, Vec::new());
    for (n, item) in reference.item.iter().enumerate() {
        assert!(!is_caught(&reference, &findings, &item.id), "{} passes before", item.id);
        let mut plant = |what: String, is_caught: bool| {
            planted += 1;
            if !is_caught {
                missed.push(format!("{}: {what}", item.id));
            }
        };
        for (what, wrong) in wrong_items(item) {
            let mut reference = reference.clone();
            reference.item[n] = wrong;
            plant(what, is_caught(&reference, &findings, &item.id));
        }
        let place = findings.iter().position(|finding| finding.id == item.id).expect("it was found");
        for (what, wrong) in wrong_findings(item, &findings[place]) {
            let mut findings = findings.clone();
            findings[place] = wrong;
            plant(what, is_caught(&reference, &findings, &item.id));
        }
        let without: Vec<Finding> = findings.iter().filter(|f| f.id != item.id).cloned().collect();
        plant("nothing found".into(), is_caught(&reference, &without, &item.id));
    }
    let caught = planted - missed.len();
    println!("{}: {caught} of {planted} wrong values caught, {:.1} %", paper.name, share(caught, planted));
    assert!(planted > 10 * reference.item.len() && missed.is_empty(), "not caught: {missed:#?}");
}

fn share(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}

/// Further from a value than an engine's result may move.
fn wrongs(value: f64) -> [f64; 5] {
    let step = if value.abs() < 1e-9 { 1.0 } else { value.abs() };
    [value + 0.35 * step, value - 0.35 * step, value + 1e6 * step, -value - step, f64::NAN]
}

/// An item with one thing wrong in it.
fn wrong_items(item: &Item) -> Vec<(String, Item)> {
    let mut all = Vec::new();
    let mut with = |what: String, change: &dyn Fn(&mut Item)| {
        let mut wrong = item.clone();
        change(&mut wrong);
        all.push((what, wrong));
    };
    for (n, wrong) in item.published.into_iter().flat_map(wrongs).enumerate() {
        with(format!("published, {n}"), &|item| item.published = Some(wrong));
    }
    // A twentieth too, where the engine's moves do not hide it.
    if item.held < 0.01 {
        for by in [1.05, 0.95, 1.01] {
            with(format!("published times {by}"), &|item| item.published = item.published.map(|v| v * by));
            with(format!("ours times {by}"), &|item| item.ours = item.ours.map(|v| v * by));
        }
    }
    for (n, wrong) in item.ours.into_iter().flat_map(wrongs).enumerate() {
        with(format!("what ours was, {n}"), &|item| item.ours = Some(wrong));
        with(format!("how far off it was, {n}"), &|item| item.off = item.off.map(|off| off + 50.0));
    }
    match item.differs {
        Some(_) => with("no reason".into(), &|item| item.differs = None),
        None => with("a reason for no difference".into(), &|item| item.differs = Some("why".into())),
    }
    for (n, check) in item.check.iter().enumerate() {
        with(format!("other words for {}", check.of), &|item| item.check[n].of = "doubles the speed".into());
        for wrong in wrongs(check.ours) {
            with(format!("what {} was: {wrong}", check.of), &|item| item.check[n].ours = wrong);
        }
        // A bound that ours is outside of, or, where it is known to be outside, no longer is.
        let beyond = if check.ours == 0.0 { 1.0 } else { check.ours.abs() };
        if item.differs.is_none() {
            with(format!("{}: too low a bound", check.of), &|item| {
                (item.check[n].min, item.check[n].max) = (None, Some(check.ours - 0.2 * beyond));
            });
            with(format!("{}: too high a bound", check.of), &|item| {
                (item.check[n].min, item.check[n].max) = (Some(check.ours + 0.2 * beyond), None);
            });
        }
    }
    if item.differs.is_some() && !item.check.is_empty() {
        with("bounds that hold".into(), &|item| {
            for check in &mut item.check {
                let slack = 0.01 * check.ours.abs();
                (check.min, check.max) = (Some(check.ours - slack), Some(check.ours + slack));
            }
        });
    }
    // What a value or a statement has not, nothing was changed in.
    all.retain(|(_, wrong)| wrong != item);
    all
}

/// A finding with one figure wrong.
fn wrong_findings(item: &Item, finding: &Finding) -> Vec<(String, Finding)> {
    let with = |ours: Ours| Finding { id: finding.id.clone(), ours };
    let mut all = Vec::new();
    match &finding.ours {
        Ours::Value(value) => {
            let twentieth = (item.held < 0.01).then_some([value * 1.05, value * 0.95]);
            for wrong in wrongs(*value).into_iter().chain(twentieth.into_iter().flatten()) {
                all.push((format!("ours: {wrong}"), with(Ours::Value(wrong))));
            }
        }
        Ours::Figures(figures) => {
            for (n, (of, value)) in figures.iter().enumerate() {
                let bounds = [
                    item.check[n].min.map(|min| min - 0.2 * min.abs().max(1.0)),
                    item.check[n].max.map(|max| max + 0.2 * max.abs().max(1.0)),
                ];
                // Where it is known to be outside, over a bound may be where it is.
                let bounds = bounds.into_iter().flatten().filter(|_| item.differs.is_none());
                for wrong in wrongs(*value).into_iter().chain(bounds) {
                    let mut figures = figures.clone();
                    figures[n].1 = wrong;
                    all.push((format!("{of}: {wrong}"), with(Ours::Figures(figures))));
                }
                let mut renamed = figures.clone();
                renamed[n].0 = "another figure".into();
                all.push((format!("{of} under another name"), with(Ours::Figures(renamed))));
            }
        }
    }
    all
}
