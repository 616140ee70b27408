//! The `uts-regret` program: carries scenarios in virtual time, and writes the table of how far
//! what adapts is from the best fixed profile. `make regret` runs it.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use uts_end::output;
use uts_regret::contender::Contender;
use uts_regret::scenario::{self, Scenario};
use uts_regret::{page, run};

/// Distance of the adaptive profile from the best fixed profile, over scenarios in virtual time.
#[derive(Debug, Parser)]
#[command(name = "uts-regret", version)]
struct Arguments {
    /// Where the page and the figures go: index.html and regret.json
    #[arg(long, value_name = "DIR", default_value = "regret-out")]
    out: PathBuf,
    /// Only scenarios whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Number of scenarios that are drawn beside those that have names
    #[arg(long, value_name = "N", default_value_t = 30)]
    drawn: u64,
    /// Leave out the scenarios that have names
    #[arg(long)]
    only_drawn: bool,
    /// Compare with the first profile alone: tells harm, and no regret, in a sixth of the time
    #[arg(long)]
    first_only: bool,
    /// Number of runs of each, with as many seeds
    #[arg(long, value_name = "N", default_value_t = 2)]
    seeds: u64,
    /// Threads; one for each processor unless it is said
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    output::name("uts-regret");
    match output::parse::<Arguments>().map(|arguments| regret(&arguments)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            output::fail(format!("{error:#}"));
            ExitCode::FAILURE
        }
        Err(status) => status,
    }
}

#[allow(clippy::disallowed_methods, reason = "it says how long it takes")]
fn regret(arguments: &Arguments) -> Result<()> {
    let scenarios = chosen(arguments)?;
    let seeds: Vec<u64> = (1..=arguments.seeds.max(1)).collect();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.unwrap_or(processors);
    fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot make the directory {}", arguments.out.display()))?;
    let (start, count) = (Instant::now(), scenarios.len());
    let tell = |outcome: &run::Outcome, done: usize| {
        let left = start.elapsed().as_secs_f64() / done as f64 * (count - done) as f64;
        output::tell_line(format!("{done:>3} of {count}, {left:>4.0} s left  {}", page::line(outcome)));
    };
    let contenders = Contender::all().filter(|contender| {
        !arguments.first_only || matches!(contender, Contender::Adaptive | Contender::First)
    });
    let contenders: Vec<Contender> = contenders.collect();
    let outcomes = run::all(&scenarios, &contenders, &seeds, threads, &tell).map_err(anyhow::Error::msg)?;
    let byline = format!(
        "{count} scenarios, {} each, in {:.0} s",
        if seeds.len() == 1 { "one run".into() } else { format!("{} runs", seeds.len()) },
        start.elapsed().as_secs_f64()
    );
    let write = |name: &str, text: &str| {
        let file = arguments.out.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    write("regret.json", &serde_json::to_string_pretty(&outcomes)?)?;
    write("index.html", &page::page(&outcomes, &byline))?;
    for line in page::summary_lines(&outcomes) {
        output::print_line(&line)?;
    }
    output::print_line(&format!("{}", arguments.out.join("index.html").display()))?;
    Ok(())
}

fn chosen(arguments: &Arguments) -> Result<Vec<Scenario>> {
    let named =
        if arguments.only_drawn { Vec::new() } else { scenario::named().map_err(anyhow::Error::msg)? };
    let drawn: Result<Vec<Scenario>, String> = (1..=arguments.drawn).map(scenario::drawn).collect();
    let all = named.into_iter().chain(drawn.map_err(anyhow::Error::msg)?);
    let chosen: Vec<Scenario> = all.filter(|scenario| scenario.name.contains(&arguments.only)).collect();
    if chosen.is_empty() {
        bail!("no scenario has `{}` in its name", arguments.only);
    }
    Ok(chosen)
}
