//! Measures UTS beside its rivals, and its parts by themselves. See `docs/performance.md`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads the clock and opens sockets"
)]

mod child;
mod ends;
mod host;
mod iperf;
mod parts;
mod paths;
mod report;
mod summary;
mod usage;
mod world;

use anyhow::{Context, Result, bail};
use ends::Transport;
use paths::Plan;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use world::World;

const USAGE: &str = "usage: uts-bench [OPTIONS]
  --quick              less of everything, for a first look
  --repetitions N      how often everything is done (default 5, quick 3)
  --only paths|parts   transports over paths, or parts of UTS by themselves
  --transports A,B     some of: raw-udp, tcp-cubic, iperf3-cubic, quinn, uts, uts-unprotected
  --property NAME=VALUE  ask this of UTS beside its defaults; may be repeated
  --out FILE           where the figures go as JSON (default out/bench.json)";

struct Options {
    is_quick: bool,
    repetitions: Option<usize>,
    wants_paths: bool,
    wants_parts: bool,
    transports: Vec<Transport>,
    properties: Vec<String>,
    out: PathBuf,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("end") => ends::run(&arguments[1..]).map(|()| 0),
        Some("hold") => world::hold().map(|()| 0),
        Some("--help" | "-h") => {
            println!("{USAGE}");
            Ok(0)
        }
        _ => parse(&arguments).and_then(|options| measure(&options)),
    };
    match result {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("uts-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        is_quick: false,
        repetitions: None,
        wants_paths: true,
        wants_parts: true,
        transports: Transport::ALL.to_vec(),
        properties: Vec::new(),
        out: PathBuf::from("out/bench.json"),
    };
    let mut arguments = arguments.iter();
    while let Some(option) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{option} needs a value\n{USAGE}"));
        match option.as_str() {
            "--quick" => options.is_quick = true,
            "--repetitions" => {
                let count = value()?.parse().ok().filter(|count| *count > 0);
                options.repetitions = Some(count.context("--repetitions needs a number above zero")?);
            }
            "--only" => match value()?.as_str() {
                "paths" => options.wants_parts = false,
                "parts" => options.wants_paths = false,
                other => bail!("--only paths or --only parts, not `{other}`"),
            },
            "--transports" => {
                options.transports = value()?.split(',').map(Transport::from_name).collect::<Result<_>>()?;
            }
            "--property" => options.properties.push(value()?.clone()),
            "--out" => options.out = value()?.into(),
            other => bail!("no option `{other}`\n{USAGE}"),
        }
    }
    Ok(options)
}

fn measure(options: &Options) -> Result<i32> {
    let mut skipped = Vec::new();
    let mut world = World::loopback_only();
    if options.wants_paths {
        match world::reenter() {
            Ok(Some(code)) => return Ok(code),
            Ok(None) => world = World::make()?,
            Err(why) => skipped.push(format!("veth: {why:#}")),
        }
    }
    let mut transports = options.transports.clone();
    if options.wants_paths && transports.contains(&Transport::Iperf) && !iperf::is_here() {
        transports.retain(|t| *t != Transport::Iperf);
        skipped
            .push("iperf3-cubic: the program is not installed; tcp-cubic measures kernel TCP too".to_owned());
    }
    let properties = options.properties.clone();
    let mut plan = if options.is_quick {
        Plan { repetitions: 3, bulk_s: 0.4, ping_s: 0.1, properties }
    } else {
        Plan { repetitions: 5, bulk_s: 1.2, ping_s: 0.4, properties }
    };
    plan.repetitions = options.repetitions.unwrap_or(plan.repetitions);
    let load_before = host::load();
    let parts = if options.wants_parts {
        parts::measure(options.is_quick, |what| eprintln!("{what}"))?
    } else {
        Vec::new()
    };
    let paths = if options.wants_paths {
        paths::measure(&world, &transports, &plan, |what| eprintln!("{what}"))
    } else {
        Vec::new()
    };
    let load = [load_before, host::load()];
    let report = Report { host: host::Host::here(), load, plan, skipped, paths, parts };
    print!("{}", report.text());
    report.save(&options.out)?;
    println!("\nJSON: {}", options.out.display());
    let failed = report.paths.iter().any(|row| !row.failures.is_empty());
    Ok(i32::from(failed))
}
