//! `uts-lab reproduce`.

use super::{PROGRAM, print_line, tell_line};
use crate::names::unknown;
use crate::progress::Milestones;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use uts_end::output::Output;
use uts_end::signals::{self, INTERRUPTED};
use uts_end::terminal;
use uts_papers::beside;
use uts_papers::judge::judge;
use uts_papers::page::{self, Report};
use uts_papers::paper::Paper;
use uts_papers::reference::{Reference, is_meant};
use uts_papers::run::Config;

/// Word that stands for all papers.
const ALL: &str = "all";

const BAR: &str = "{prefix} {bar:30} {pos}/{len}, {eta} left";

/// Do the experiments of published papers again, and judge them
///
/// Each table and figure of a paper is run in virtual time, drawn, and judged against the published
/// values. The exit status is 1 if an item differs and its file gives no reason. What has been done
/// is kept in the directory. The same command continues an interrupted reproduction.
/// docs/papers.md describes the papers.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Papers, or all; --list names them
    #[arg(value_name = "NAME", required_unless_present = "list")]
    names: Vec<String>,
    /// Only these places of the papers, separated by commas: 5 or figure5, table1
    #[arg(long, value_name = "PLACES", value_delimiter = ',')]
    figure: Vec<String>,
    /// List the papers and their places, and run nothing
    #[arg(long)]
    list: bool,
    /// Directory of the results
    #[arg(long, value_name = "DIR", default_value = "lab-out/reproduce")]
    out: PathBuf,
    /// Published values to judge by, instead of those of this program; for one paper
    #[arg(long, value_name = "FILE.toml")]
    reference: Option<PathBuf>,
    /// Results of an experiment, as of experiments/then-and-now.toml, to draw beside a paper's
    #[arg(long, value_name = "DIR")]
    beside: Option<PathBuf>,
    /// Do again what is kept in the directory
    #[arg(long)]
    again: bool,
    /// Cores to use [default: all]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print only what differs
    #[arg(long, short)]
    quiet: bool,
}

/// Runs and judges papers; gives the exit status.
///
/// # Errors
/// There is no such paper or place; the directory cannot be written; the published values cannot be
/// read.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let papers = uts_papers::papers();
    if arguments.list {
        return list(&papers).map(|()| 0);
    }
    let chosen = chosen(arguments, &papers)?;
    let stop = signals::end_flag().context("cannot catch signals")?;
    let mut reports = Vec::new();
    for paper in chosen {
        let Some(report) = reproduce(paper, arguments, &stop)? else {
            if !arguments.quiet {
                tell_line(format_args!("{}: interrupted; the same command continues", PROGRAM));
            }
            return Ok(INTERRUPTED);
        };
        for (line, judged) in page::lines(&report) {
            let is_wanted = !arguments.quiet || judged.is_some_and(|verdict| !verdict.passes());
            if is_wanted {
                print_line(&line)?;
            }
        }
        reports.push(report);
    }
    let index = arguments.out.join("index.html");
    fs::write(&index, page::page(&reports)).with_context(|| format!("cannot write {}", index.display()))?;
    if !arguments.quiet {
        print_line(&format!("report: {}", index.display()))?;
    }
    Ok(u8::from(!reports.iter().all(Report::passes)))
}

fn list(papers: &[Paper]) -> Result<()> {
    for paper in papers {
        let reference = Reference::parse(paper.reference)?;
        print_line(&format!("{:<12} {}", paper.name, reference.paper))?;
        print_line(&format!("{:<12} {}", "", paper.places().join(", ")))?;
    }
    Ok(())
}

/// The papers that are meant; the places that are must be of one of them.
fn chosen<'p>(arguments: &Arguments, papers: &'p [Paper]) -> Result<Vec<&'p Paper>> {
    let known = || papers.iter().map(|paper| paper.name);
    for name in &arguments.names {
        if name != ALL && !known().any(|known| known == name) {
            bail!(unknown("paper", name, known().chain([ALL])));
        }
    }
    let is_meant_by = |paper: &&Paper| arguments.names.iter().any(|name| name == ALL || name == paper.name);
    let chosen: Vec<&Paper> = papers.iter().filter(is_meant_by).collect();
    for by in &arguments.figure {
        let places = || chosen.iter().flat_map(|paper| paper.places());
        if !places().any(|place| is_meant(place, by)) {
            bail!("--figure {by}: no such place; there are {}", places().collect::<Vec<_>>().join(", "));
        }
    }
    if arguments.reference.is_some() && chosen.len() != 1 {
        bail!("--reference: is for one paper, not for {}", chosen.len());
    }
    Ok(chosen)
}

/// One paper; `None` if it was interrupted.
fn reproduce(paper: &Paper, arguments: &Arguments, stop: &AtomicBool) -> Result<Option<Report>> {
    let reference = match &arguments.reference {
        None => Reference::parse(paper.reference)?,
        Some(file) => {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            Reference::parse(&text).map_err(|error| anyhow!("{}: {error:#}", file.display()))?
        }
    };
    let dir = arguments.out.join(paper.name);
    let bar = bar(paper.name, arguments.quiet);
    let milestones = Milestones::new(format!("units of {}", paper.name));
    let is_logged = !arguments.quiet && !Output::Err.is_terminal();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let config = Config {
        dir: &dir,
        jobs: arguments.jobs.map_or(cores, usize::from),
        again: arguments.again,
        places: &arguments.figure,
        stop,
        tell: &|done, of| {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
            if is_logged {
                milestones.on_done(done, of);
            }
        },
    };
    let Some(mut results) = paper.run(&config)? else { return Ok(None) };
    bar.finish_and_clear();
    if let Some(dir) = &arguments.beside {
        let beside = beside::read(dir).with_context(|| format!("--beside {}", dir.display()))?;
        results.0.extend(beside.0);
    }
    let conclusion = paper.conclude(&results)?;
    let is_wanted =
        |place: &str| arguments.figure.is_empty() || arguments.figure.iter().any(|by| is_meant(place, by));
    // A unit may be for more places than were asked for.
    let figures: Vec<_> = conclusion.figures.into_iter().filter(|figure| is_wanted(&figure.place)).collect();
    for figure in &figures {
        write_picture(&dir, &format!("{}{}", figure.place, figure.part), &figure.picture.svg())?;
    }
    let judged = judge(&reference, &conclusion.findings, |item| is_wanted(&item.place))?;
    let mut command = format!("{} reproduce {}", PROGRAM, paper.name);
    if !arguments.figure.is_empty() {
        command.push_str(&format!(" --figure {}", arguments.figure.join(",")));
    }
    if let Some(dir) = &arguments.beside {
        command.push_str(&format!(" --beside {}", dir.display()));
    }
    Ok(Some(Report { name: paper.name.into(), paper: reference.paper, command, judged, figures }))
}

fn write_picture(dir: &Path, place: &str, svg: &str) -> Result<()> {
    let file = dir.join(format!("{}.svg", place.replace(' ', "-")));
    fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))
}

/// Units that are done, with the time left, on a terminal.
fn bar(name: &'static str, is_quiet: bool) -> ProgressBar {
    if is_quiet || !Output::Err.is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, terminal::drawn()).with_prefix(name);
    match ProgressStyle::with_template(BAR) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template(BAR).is_ok());
    }
}
