//! The report of an experiment: from a directory that `uts lab run` has left, finished or not, one
//! page that opens from disk without a network. docs/lab.md describes the directory.
//!
//! `[[plot]]` in the experiment file chooses what the page shows ([`plot::Plot`] has the keys).
//! Without it, the page shows what there is: a matrix if several workloads meet several paths, each
//! sweep, distributions of latency and slack, and traces of a few runs. A picture is an SVG made
//! here. Series over time can also be zoomed, by the inlined uPlot.

mod cdf;
mod chart;
mod directory;
mod ladder;
mod looks;
mod matrix;
mod matrix_page;
mod methods;
mod page;
mod plot;
mod quantity;
mod recorded;
mod select;
mod stats;
mod sweep;
mod trace;
mod verdict;

use super::PAGE_FILE;
use anyhow::{Context, Result, bail};
use chart::Chart;
use directory::{Directory, Kind as Dimension};
use looks::Looks;
use plot::{Kind, Plot};
use std::fs;
use std::path::{Path, PathBuf};
use uts_record::plan::PLAN_FILE;

/// Traces of a report that nobody chose, and of a plot.
const TRACES_UNASKED: usize = 4;
const TRACES_MAX: usize = 16;
/// Pictures of a plot that makes one for each place.
const PLACES_MAX: usize = 48;
const PLACES_UNASKED: usize = 8;

/// The kinds of `[[plot]]` that a report knows.
pub const PLOT_KINDS: [&str; plot::KINDS.len()] = plot::KINDS;

/// Page that was written, and problems of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The page.
    pub page: PathBuf,
    /// Problems that did not prevent a report, a sentence each. The page shows them too.
    pub problems: Vec<String>,
}

/// True if a directory has an experiment in it.
pub fn is_experiment(dir: &Path) -> bool {
    dir.join(PLAN_FILE).exists()
}

/// Writes `report.html` into the directory of an experiment, which may be unfinished.
///
/// # Errors
/// `plan.json` is missing or wrong; a line of `measures.csv` is wrong (its number and column are
/// named); `measures.csv` is missing although runs have ended; the page cannot be written.
pub fn write(dir: &Path) -> Result<Written> {
    let (html, problems) = render(dir)?;
    let page = dir.join(PAGE_FILE);
    // Whole or not at all. A browser may have the last one open, and the experiment may be
    // interrupted.
    let part = dir.join(format!(".{PAGE_FILE}.part"));
    fs::write(&part, html).with_context(|| format!("cannot write {}", part.display()))?;
    fs::rename(&part, &page).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(Written { page, problems })
}

/// Makes the page, and tells what was wrong with the directory.
///
/// # Errors
/// As [`write()`].
pub fn render(dir: &Path) -> Result<(String, Vec<String>)> {
    let directory = Directory::read(dir)?;
    let looks = Looks::of(&directory);
    let mut parts = Vec::new();
    if directory.plan.plots.is_empty() {
        for plot in usual(&directory) {
            // Nobody asked for it: what is not there is not missed.
            parts.extend(part(&directory, &looks, &plot, true).ok());
        }
    } else {
        for (number, value) in (1..).zip(&directory.plan.plots) {
            let made =
                Plot::read(value).map_err(Into::into).and_then(|plot| part(&directory, &looks, &plot, false));
            match made {
                Ok(made) => parts.push(made),
                Err(e) => directory.tell(format!("[[plot]] {number}: {e:#}")),
            }
        }
    }
    let html = page::page(&directory, &parts)?;
    Ok((html, directory.problems()))
}

/// Checks a `[[plot]]` of an experiment file by itself.
///
/// # Errors
/// What is wrong with it.
pub fn check_plot(plot: &serde_json::Map<String, serde_json::Value>) -> Result<(), String> {
    Plot::read(&serde_json::Value::Object(plot.clone())).map(|_| ()).map_err(|e| e.to_string())
}

/// Part of the page that a plot became.
enum Part {
    Charts(Vec<Chart>),
    Matrices(Vec<matrix::Matrix>),
}

fn part(directory: &Directory, looks: &Looks, plot: &Plot, is_unasked: bool) -> Result<Part> {
    let limit = |unasked, asked| if is_unasked { unasked } else { asked };
    let mut charts = match plot.kind {
        Kind::Matrix => return Ok(Part::Matrices(matrix::matrices(directory, plot)?)),
        Kind::Sweep => sweep::sweeps(directory, looks, plot)?,
        Kind::Bars | Kind::Box | Kind::Fairness => sweep::bars(directory, looks, plot)?,
        Kind::Table => sweep::tables(directory, looks, plot)?,
        Kind::Cdf | Kind::Latency => cdf::cdfs(directory, looks, plot)?,
        Kind::Trace | Kind::Sequence | Kind::Window | Kind::Queue => {
            trace::traces(directory, looks, plot, limit(TRACES_UNASKED, TRACES_MAX), is_unasked)?
        }
        Kind::Ladder => ladder::ladders(directory, plot, limit(TRACES_UNASKED, TRACES_MAX))?,
        Kind::Series | Kind::Goodput => {
            trace::series(directory, looks, plot, limit(TRACES_UNASKED, TRACES_MAX))?
        }
    };
    if charts.is_empty() {
        bail!("no valid run has a figure for it yet");
    }
    let most = limit(PLACES_UNASKED, PLACES_MAX);
    if charts.len() > most && !is_unasked {
        directory.tell(format!(
            "{} more pictures like “{}” could be shown; a [[plot]] with `workload`, `path` or `at` chooses which",
            charts.len() - most,
            charts[0].title
        ));
    }
    charts.truncate(most);
    Ok(Part::Charts(charts))
}

/// Plots of a directory whose file names none, by the dimensions and samples that it has.
fn usual(directory: &Directory) -> Vec<Plot> {
    let mut plots = Vec::new();
    let count = |kind| {
        directory.dimensions[directory.dimension(&kind)].values.iter().filter(|v| !v.is_empty()).count()
    };
    let (workloads, paths) = (count(Dimension::Workload), count(Dimension::Path));
    let varied: Vec<_> = directory.plan.sweeps.iter().filter(|s| s.values.len() > 1).collect();
    if workloads * paths >= 4 && directory.plan.transports.len() > 1 && varied.is_empty() {
        plots.push(Plot::of(Kind::Matrix));
    }
    // A sweep of few values is seen from picture to picture of the others.
    let long: Vec<_> = varied.iter().copied().filter(|s| s.values.len() > 2).collect();
    for sweep in if long.is_empty() { &varied } else { &long } {
        plots.push(Plot { x: Some(sweep.name.clone()), ..Plot::of(Kind::Sweep) });
        let queue = "queue_sojourn_mean";
        if directory.observations.iter().any(|o| o.measure == queue) {
            plots.push(Plot { x: Some(sweep.name.clone()), y: vec![queue.into()], ..Plot::of(Kind::Sweep) });
        }
    }
    if varied.is_empty() {
        plots.push(Plot::of(Kind::Bars));
    }
    if directory.observations.iter().any(|o| o.measure == "fairness") {
        plots.push(Plot { y: vec!["fairness".into()], ..Plot::of(Kind::Bars) });
    }
    for what in ["latency", "slack"] {
        plots.push(Plot { y: vec![what.into()], ..Plot::of(Kind::Cdf) });
    }
    plots.push(Plot::of(Kind::Trace));
    plots
}
