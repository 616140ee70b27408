//! Workloads by paths: who is best in each cell, by how much, and where UTS stands. Nothing here is
//! weighted or left out. A transport that did not finish every run ranks behind all that did.

use super::chart::{Data, Datum};
use super::directory::{Directory, Kind, Place, Run, RunStatus};
use super::looks::is_uts;
use super::plot::Plot;
use super::quantity::{Better, Quantity, quantity};
use super::select::{Selection, dimension, place_in_words, unknown};
use super::stats::Mean;
use super::sweep::main_measure;
use super::verdict::{Distance, Standing, Tally, Verdict, compare, verdict};
use anyhow::{Result, bail};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Matrices of a plot, if sweeps make several.
const SHEETS_MAX: usize = 6;

/// Figures of a transport in a cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub who: usize,
    /// It is UTS, in whatever variant.
    pub is_uts: bool,
    /// Of the runs that have a figure.
    pub mean: Option<Mean>,
    /// Runs that did all of the workload, of those that count.
    pub complete: usize,
    pub tried: usize,
    /// Why there is no figure, or not of all runs.
    pub remark: String,
    /// Its distance from the best, if both have a figure.
    pub behind: Option<Distance>,
    /// Standing beside the best; nothing if it has no figure.
    pub standing: Option<Standing>,
}

/// A workload on a path, or what else rows and columns are.
pub(super) struct Cell {
    pub row: String,
    pub column: String,
    pub measure: String,
    pub quantity: Quantity,
    /// From best to worst, then those without a figure.
    pub entries: Vec<Entry>,
    pub verdict: Verdict,
}

/// One page: all workloads by all paths, for one value of each sweep.
pub(super) struct Matrix {
    /// Settings that all cells share, in words; empty if they need not be said.
    pub setting: String,
    /// Names of the dimensions of rows and columns: usually workloads and paths.
    pub axes: [String; 2],
    pub rows: Vec<String>,
    pub columns: Vec<String>,
    pub cells: Vec<Cell>,
    /// The transport that stands for UTS.
    pub uts: Option<usize>,
}

/// Makes the matrices of a plot.
///
/// # Errors
/// The plot names something that is not there, or there is nothing to compare.
pub(super) fn matrices(directory: &Directory, plot: &Plot) -> Result<Vec<Matrix>> {
    let selection = Selection::of(directory, plot)?;
    let uts = stand_in(directory, plot)?;
    let axes = axes(directory, plot)?;
    let mixture = directory.dimension(&Kind::Mixture);
    let mut sheets: BTreeMap<Place, Vec<&Run>> = BTreeMap::new();
    for run in &directory.runs {
        // A mixture's flows share the path: they are no rivals for the whole of it.
        if directory.value(&run.place, mixture).is_empty() && selection.admits(directory, &run.place, run.who)
        {
            let mut setting = run.place.clone();
            axes.iter().for_each(|at| setting[*at] = 0);
            sheets.entry(setting).or_default().push(run);
        }
    }
    if sheets.is_empty() {
        bail!("no run of a single flow is planned that a matrix could show");
    }
    if sheets.len() > SHEETS_MAX {
        directory.tell(format!(
            "sweeps make {} matrices, and the first {SHEETS_MAX} are shown; `at` in the [[plot]] chooses others",
            sheets.len()
        ));
    }
    let usual = [directory.dimension(&Kind::Workload), directory.dimension(&Kind::Path)];
    let is_plain = sheets.len() == 1 && axes == usual;
    let figures = Figures::of(directory);
    let sheets = sheets.into_iter().take(SHEETS_MAX);
    let sheet = |(setting, runs): (Place, Vec<&Run>)| {
        let mut matrix = sheet(directory, plot, &figures, axes, &runs, uts)?;
        if !is_plain {
            matrix.setting = place_in_words(directory, &setting, &axes);
        }
        Ok(matrix)
    };
    sheets.map(sheet).collect()
}

/// The dimensions of rows and columns.
fn axes(directory: &Directory, plot: &Plot) -> Result<[usize; 2]> {
    let named = |name: &Option<String>, usual| dimension(directory, name.as_deref().unwrap_or(usual));
    let axes = [named(&plot.rows, "workload")?, named(&plot.columns, "path")?];
    if axes.contains(&directory.transports()) {
        bail!("transports are what the cells of a matrix compare; rows and columns must be something else");
    }
    if axes[0] == axes[1] {
        bail!("rows and columns of a matrix are both {}", directory.title(axes[0]));
    }
    Ok(axes)
}

/// The transport that stands for UTS: the one asked for, otherwise the one of that name, otherwise
/// the first of its kind.
fn stand_in(directory: &Directory, plot: &Plot) -> Result<Option<usize>> {
    if let Some(name) = &plot.uts {
        let Some(at) = directory.names.iter().position(|n| n == name) else {
            bail!("{}", unknown("transport", name, &directory.plan.transports));
        };
        return Ok(Some(at));
    }
    let named = directory.names.iter().position(|n| n == "uts");
    Ok(named.or_else(|| directory.plan.transports.iter().position(|t| is_uts(directory, t))))
}

/// Figures by run and measure.
struct Figures<'a> {
    by_run: BTreeMap<&'a str, Vec<(&'a str, f64, &'a str)>>,
}

impl<'a> Figures<'a> {
    fn of(directory: &'a Directory) -> Self {
        let mut by_run: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for o in directory.observations.iter().filter(|o| o.valid) {
            by_run.entry(&o.run).or_default().push((o.measure.as_str(), o.value, o.unit.as_str()));
        }
        Figures { by_run }
    }

    fn get(&self, run: &str, measure: &str) -> Option<(f64, &'a str)> {
        let figures = self.by_run.get(run)?;
        figures.iter().find(|(name, ..)| *name == measure).map(|(_, value, unit)| (*value, *unit))
    }

    /// True if a run did all that its workload asks.
    fn is_complete(&self, run: &str, kind: &str, measure: &str) -> bool {
        self.get(run, measure).is_some()
            && match kind {
                "files" | "requests" => self.get(run, "completion").is_some(),
                "keystrokes" => self.get(run, "missing").is_none_or(|(missing, _)| missing == 0.0),
                _ => true,
            }
    }
}

fn sheet(
    directory: &Directory,
    plot: &Plot,
    figures: &Figures<'_>,
    axes: [usize; 2],
    runs: &[&Run],
    uts: Option<usize>,
) -> Result<Matrix> {
    let mut cases: BTreeMap<[usize; 2], BTreeMap<usize, Vec<&Run>>> = BTreeMap::new();
    for run in runs {
        let cell = cases.entry(axes.map(|axis| run.place[axis])).or_default();
        cell.entry(run.who).or_default().push(run);
    }
    let names = |axis: usize| {
        let used: BTreeSet<usize> = cases.keys().map(|place| place[axis]).collect();
        used.into_iter().map(|i| directory.values(axes[axis])[i].clone()).collect::<Vec<_>>()
    };
    let (rows, columns) = (names(0), names(1));
    let mut cells = Vec::new();
    for (place, by_who) in &cases {
        let Some(first) = by_who.values().flatten().next() else { continue };
        let workload = directory.value(&first.place, directory.dimension(&Kind::Workload));
        let measure = plot.measures.get(workload).cloned().or_else(|| main_measure(directory, workload));
        let measure = measure.unwrap_or_else(|| "goodput".into());
        let [row, column] = [0, 1].map(|axis| directory.values(axes[axis])[place[axis]].clone());
        let judged = Judged { kind: directory.workload_kind(workload), measure: &measure };
        let (quantity, entries, verdict) = cell(directory, figures, judged, by_who, uts)?;
        cells.push(Cell { row, column, measure, quantity, entries, verdict });
    }
    let axes = axes.map(|axis| directory.title(axis).to_owned());
    Ok(Matrix { setting: String::new(), axes, rows, columns, cells, uts })
}

/// A kind of workload, and by which measure it is judged.
#[derive(Clone, Copy)]
struct Judged<'a> {
    kind: &'a str,
    measure: &'a str,
}

fn cell(
    directory: &Directory,
    figures: &Figures<'_>,
    Judged { kind, measure }: Judged<'_>,
    by_who: &BTreeMap<usize, Vec<&Run>>,
    uts: Option<usize>,
) -> Result<(Quantity, Vec<Entry>, Verdict)> {
    let (mut unit, mut most) = ("", 0.0f64);
    let mut entries = Vec::new();
    for (who, runs) in by_who {
        let counted = runs
            .iter()
            .filter(|run| status(run).is_some_and(|s| matches!(s, RunStatus::Ok | RunStatus::Failed)));
        let counted: Vec<&&Run> = counted.collect();
        let complete = counted.iter().filter(|run| figures.is_complete(&run.id, kind, measure)).count();
        let values: Vec<f64> = counted
            .iter()
            .filter_map(|run| {
                let (value, of) = figures.get(&run.id, measure)?;
                (unit, most) = (of, most.max(value.abs()));
                Some(value)
            })
            .collect();
        let (mean, tried) = (Mean::of(&values), counted.len());
        entries.push(Entry {
            who: *who,
            is_uts: is_uts(directory, &directory.names[*who]),
            mean,
            complete,
            tried,
            remark: remark(runs, complete),
            behind: None,
            standing: None,
        });
    }
    let quantity = quantity(measure, unit, most);
    let Some(better) = quantity.better.or((most == 0.0).then_some(Better::Higher)) else {
        bail!("of the measure `{measure}` it is not known which way is better; a matrix cannot rank by it");
    };
    entries.sort_by(|a, b| rank(a, b, better));
    compare(&mut entries, &quantity, better);
    let verdict = verdict(&entries, &quantity, better, uts);
    Ok((quantity, entries, verdict))
}

fn status(run: &Run) -> Option<RunStatus> {
    run.record.as_ref().map(|record| record.status)
}

/// Why runs of a transport have no figure, in one line.
fn remark(runs: &[&Run], complete: usize) -> String {
    let count = |wanted: Option<RunStatus>| runs.iter().filter(|run| status(run) == wanted).count();
    let why = |wanted| {
        let of = runs
            .iter()
            .find(|run| status(run) == Some(wanted))
            .and_then(|run| run.record.as_ref()?.why.clone());
        of.map(|why| format!(" ({why})")).unwrap_or_default()
    };
    let all = runs.len();
    let mut parts = Vec::new();
    let (skipped, failed, invalid) =
        (count(Some(RunStatus::Skipped)), count(Some(RunStatus::Failed)), count(Some(RunStatus::Invalid)));
    if skipped > 0 {
        parts.push(format!("{skipped} of {all} skipped{}", why(RunStatus::Skipped)));
    }
    if failed > 0 {
        parts.push(format!("{failed} of {all} failed{}", why(RunStatus::Failed)));
    }
    if invalid > 0 {
        parts.push(format!("{invalid} of {all} invalid{}", why(RunStatus::Invalid)));
    }
    let unfinished = count(Some(RunStatus::Ok)).saturating_sub(complete);
    if unfinished > 0 {
        parts.push(format!("{unfinished} of {all} not finished"));
    }
    if count(None) > 0 {
        parts.push(format!("{} of {all} not run yet", count(None)));
    }
    parts.join("; ")
}

/// Transports that finished all runs come first, then those with the better mean.
fn rank(a: &Entry, b: &Entry, better: Better) -> Ordering {
    let share = |e: &Entry| if e.tried == 0 { 0.0 } else { e.complete as f64 / e.tried as f64 };
    let by_mean = |a: &Mean, b: &Mean| match better {
        Better::Higher => b.mean.total_cmp(&a.mean),
        Better::Lower => a.mean.total_cmp(&b.mean),
    };
    match (&a.mean, &b.mean) {
        (Some(x), Some(y)) => share(b).total_cmp(&share(a)).then_with(|| by_mean(x, y)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
    .then(a.who.cmp(&b.who))
}

impl Cell {
    /// The best that has a figure.
    pub(super) fn best(&self) -> Option<&Entry> {
        self.entries.first().filter(|e| e.mean.is_some())
    }

    pub(super) fn of(&self, who: Option<usize>) -> Option<&Entry> {
        self.entries.iter().find(|e| Some(e.who) == who)
    }

    /// True if an entry can win or lose: another has a figure too. For UTS, another that is not
    /// UTS.
    pub(super) fn is_contested(&self, entry: &Entry) -> bool {
        self.entries.iter().any(|e| e.mean.is_some() && e.who != entry.who && !(e.is_uts && entry.is_uts))
    }

    /// True if an entry is the best, and not only the first of several that are equal or not told
    /// apart.
    pub(super) fn is_won_by(&self, entry: &Entry) -> bool {
        let next = self.entries.get(1).filter(|e| e.mean.is_some());
        self.best().is_some_and(|best| best.who == entry.who)
            && next.is_none_or(|next| next.standing == Some(Standing::Behind))
    }

    /// An entry's mean with its interval.
    pub(super) fn figure(&self, entry: &Entry) -> String {
        entry.mean.map_or_else(|| "–".into(), |mean| self.quantity.mean(mean.mean, mean.half_width()))
    }

    /// An entry's mean alone.
    pub(super) fn short_figure(&self, entry: &Entry) -> String {
        entry.mean.map_or_else(|| "–".into(), |mean| self.quantity.show(mean.mean))
    }
}

impl Matrix {
    /// The cell of a row and a column.
    pub(super) fn cell(&self, row: &str, column: &str) -> Option<&Cell> {
        self.cells.iter().find(|c| c.row == row && c.column == column)
    }

    /// Tally of UTS over all cells.
    pub(super) fn tally(&self) -> Tally {
        Tally::of(self.cells.iter().map(|cell| cell.verdict))
    }

    /// Every transport in every cell.
    pub(super) fn data(&self, directory: &Directory) -> Data {
        let columns = [
            "",
            "",
            "transport",
            "rank",
            "measure",
            "mean",
            "± 95 %",
            "unit",
            "n",
            "behind the best",
            "",
            "remark",
        ];
        let mut data = Data::new(columns);
        data.columns[10] = "in".into();
        data.columns[..2].clone_from_slice(&self.axes);
        for cell in &self.cells {
            for (rank, entry) in (1..).zip(&cell.entries) {
                let factor = cell.quantity.factor;
                let (behind, kind): (Datum, &str) = match entry.behind {
                    Some(Distance::Factor(f)) => (f.into(), "×"),
                    Some(Distance::Points(p)) => (p.into(), "points"),
                    None => (Datum::Missing, ""),
                };
                let half = entry.mean.and_then(|m| m.half_width()).map(|half| half * factor);
                data.rows.push(vec![
                    cell.row.as_str().into(),
                    cell.column.as_str().into(),
                    directory.names[entry.who].as_str().into(),
                    entry.mean.map(|_| f64::from(rank)).into(),
                    cell.measure.as_str().into(),
                    entry.mean.map(|m| m.mean * factor).into(),
                    half.into(),
                    cell.quantity.unit.into(),
                    (entry.mean.map_or(0, |m| m.n) as f64).into(),
                    behind,
                    kind.into(),
                    entry.remark.as_str().into(),
                ]);
            }
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(who: usize, values: &[f64], complete: usize) -> Entry {
        let tried = values.len().max(complete);
        Entry {
            who,
            is_uts: matches!(who, 0 | 9),
            mean: Mean::of(values),
            complete,
            tried,
            remark: String::new(),
            behind: None,
            standing: None,
        }
    }

    fn ranked(mut entries: Vec<Entry>, measure: &str, unit: &str) -> (Vec<Entry>, Verdict) {
        let quantity = quantity(measure, unit, 1.0);
        let better = quantity.better.unwrap();
        entries.sort_by(|a, b| rank(a, b, better));
        compare(&mut entries, &quantity, better);
        let verdict = verdict(&entries, &quantity, better, Some(0));
        (entries, verdict)
    }

    #[test]
    fn the_better_mean_wins_either_way() {
        let (entries, verdict) =
            ranked(vec![entry(0, &[10.0, 10.1], 2), entry(1, &[20.0, 20.1], 2)], "goodput", "bit/s");
        assert_eq!(entries[0].who, 1);
        let Verdict::Behind(Some(Distance::Factor(factor))) = verdict else { panic!("{verdict:?}") };
        assert!((factor - 20.05 / 10.05).abs() < 1e-12);
        let (entries, verdict) =
            ranked(vec![entry(0, &[10.0, 10.1], 2), entry(1, &[20.0, 20.1], 2)], "completion", "s");
        assert_eq!((entries[0].who, verdict), (0, Verdict::Best));
    }

    #[test]
    fn who_did_not_finish_ranks_behind_who_did() {
        let (entries, verdict) = ranked(
            vec![entry(0, &[5.0, 5.0, 5.0], 2), entry(1, &[50.0, 50.0, 50.0], 3)],
            "request_p99",
            "ms",
        );
        assert_eq!(entries[0].who, 1);
        assert!(matches!(verdict, Verdict::Behind(_)));
        assert_eq!(entries[1].standing, Some(Standing::Behind));
    }

    #[test]
    fn two_percent_are_a_tie_and_noise_leaves_it_open() {
        let noisy = vec![entry(0, &[8.0, 12.0, 10.0], 3), entry(1, &[9.0, 14.0, 11.0], 3)];
        assert_eq!(ranked(noisy, "goodput", "bit/s").1, Verdict::Unsure);
        let close = vec![entry(0, &[100.0], 1), entry(1, &[101.0], 1)];
        assert_eq!(ranked(close, "goodput", "bit/s").1, Verdict::Par);
        let apart = vec![entry(0, &[100.0], 1), entry(1, &[103.0], 1)];
        assert!(matches!(ranked(apart, "goodput", "bit/s").1, Verdict::Behind(_)));
        // First by a hair is no victory.
        let ahead = vec![entry(0, &[101.0], 1), entry(1, &[100.0], 1)];
        assert_eq!(ranked(ahead, "goodput", "bit/s").1, Verdict::Par);
    }

    #[test]
    fn shares_are_compared_in_points() {
        let (entries, verdict) =
            ranked(vec![entry(0, &[0.90, 0.901], 2), entry(1, &[0.99, 0.991], 2)], "in_time", "1");
        let Some(Distance::Points(points)) = entries[1].behind else { panic!("{entries:?}") };
        assert!((points - 9.0).abs() < 1e-9);
        assert!(matches!(verdict, Verdict::Behind(Some(d)) if d.grade() == 2));
    }

    #[test]
    fn a_cell_without_uts_or_without_anyone_says_so() {
        assert_eq!(
            ranked(vec![entry(0, &[], 0), entry(1, &[5.0], 1)], "goodput", "bit/s").1,
            Verdict::Absent
        );
        assert_eq!(ranked(vec![entry(0, &[], 0)], "goodput", "bit/s").1, Verdict::Empty);
    }

    #[test]
    fn without_a_rival_nothing_is_won() {
        assert_eq!(ranked(vec![entry(0, &[1.0], 1)], "goodput", "bit/s").1, Verdict::Alone);
        // A rival that ran and has no valid figure is none.
        let failed = vec![entry(0, &[1.0], 1), entry(1, &[], 3)];
        assert_eq!(ranked(failed, "goodput", "bit/s").1, Verdict::Alone);
        // Nor is another variant of UTS, ahead or behind.
        let variants = vec![entry(0, &[1.0], 1), entry(9, &[2.0], 1)];
        assert_eq!(ranked(variants, "goodput", "bit/s").1, Verdict::Alone);
        let rival = vec![entry(0, &[2.0], 1), entry(9, &[1.0], 1), entry(1, &[1.0], 1)];
        assert_eq!(ranked(rival, "goodput", "bit/s").1, Verdict::Best);
        let verdicts =
            [Verdict::Best, Verdict::Alone, Verdict::Behind(None), Verdict::Absent, Verdict::Empty];
        let tally = Tally::of(verdicts.into_iter());
        assert_eq!((tally.cells(), tally.contested(), tally.best, tally.alone), (5, 3, 1, 1));
    }
}
