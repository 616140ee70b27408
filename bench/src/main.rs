//! Measures UTS beside its rivals, and its parts by themselves. See `docs/performance.md`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads the clock and opens sockets"
)]

mod bars;
mod child;
mod distance;
mod ends;
mod host;
mod iperf;
mod offload;
mod parts;
mod picture;
mod report;
mod rival;
mod works;
mod world;

use anyhow::{Context, Result, anyhow, bail};
use ends::{Transport, Work};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use uts_bench_ends::{summary, usage};
use works::Plan;
use world::{Place, World};

const USAGE: &str = "usage: uts-bench [OPTIONS]
       uts-bench picture JSON SVG    draws a run that was made before
  --quick              less of everything, for a first look
  --repetitions N      how often everything is done (default 5, quick 2)
  --only A,B           some of: bulk, ping, spin, messages, single-messages, handshakes, idle, shared (works of
                       transports), parts (of UTS by themselves), adaptivity (mechanisms in slots against those that
                       the compiler knows), exchange (processor time of an exchange), factors (functions left out),
                       passes (one pass over a packet's data against passes in turn)
  --transports A,B     some of: raw-udp, tcp-cubic, iperf3-cubic, iperf3-cubic-w1m, quinn, s2n-quic, quiche, tquic, srt,
                       enet, uts, uts-blocking, uts-crc-32c, uts-crc-32c-blocking, uts-bare
  --paths A,B          some of: loopback, veth, veth-1500, veth-1500-gro
  --seconds S          how long bulk data and messages flow (default 0.8, quick 0.4)
  --property NAME=VALUE  ask this of UTS beside its defaults; may be repeated
  --out FILE           where the figures go as JSON (default out/bench.json), and beside it as a picture (.svg)";

/// What can be measured without transports.
const OTHERS: [&str; 5] = ["parts", "adaptivity", "exchange", "factors", "passes"];

struct Options {
    is_quick: bool,
    repetitions: Option<usize>,
    seconds: Option<f64>,
    works: Vec<Work>,
    others: Vec<&'static str>,
    transports: Vec<Transport>,
    places: Vec<Place>,
    properties: Vec<String>,
    out: PathBuf,
}

impl Options {
    /// Measures one of [`OTHERS`], if it is asked for.
    fn other<T>(&self, name: &str, measure: impl FnOnce() -> Result<Vec<T>>) -> Result<Vec<T>> {
        if self.others.contains(&name) { measure() } else { Ok(Vec::new()) }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("end") => ends::run(&arguments[1..]).map(|()| 0),
        Some("hold") => world::hold().map(|()| 0),
        Some("picture") => match &arguments[1..] {
            [json, svg] => picture::redraw(json.as_ref(), svg.as_ref()).map(|()| 0),
            _ => Err(anyhow!("picture needs the file of a run and that of its picture\n{USAGE}")),
        },
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
        seconds: None,
        works: Work::ALL.to_vec(),
        others: OTHERS.to_vec(),
        transports: Transport::ALL.to_vec(),
        places: Place::ALL.to_vec(),
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
            "--seconds" => {
                let seconds = value()?.parse().ok().filter(|s: &f64| *s > 0.0);
                options.seconds = Some(seconds.context("--seconds needs a number above zero")?);
            }
            "--only" => {
                let names: Vec<&str> = value()?.split(',').collect();
                options.works = named("work", &names, &Work::ALL, Work::name, &OTHERS)?;
                options.others.retain(|other| names.contains(other));
            }
            "--paths" => {
                let names: Vec<&str> = value()?.split(',').collect();
                options.places = named("path", &names, &Place::ALL, Place::name, &[])?;
            }
            "--transports" => {
                options.transports = value()?.split(',').map(Transport::from_name).collect::<Result<_>>()?;
            }
            "--property" => options.properties.push(value()?.clone()),
            "--out" => {
                options.out = value()?.into();
                if options.out.extension().is_some_and(|is| is == "svg") {
                    bail!(
                        "--out is for the figures as JSON; the picture goes beside it, with .svg for its ending"
                    );
                }
            }
            other => bail!("no option `{other}`\n{USAGE}"),
        }
    }
    Ok(options)
}

/// Those of `all` that are named; `others` are names of something else.
fn named<T: Copy>(
    what: &str,
    names: &[&str],
    all: &[T],
    name: impl Fn(T) -> &'static str,
    others: &[&str],
) -> Result<Vec<T>> {
    let known =
        || all.iter().map(|one| name(*one)).chain(others.iter().copied()).collect::<Vec<_>>().join(", ");
    if let Some(unknown) =
        names.iter().find(|n| !others.contains(n) && !all.iter().any(|one| name(*one) == **n))
    {
        bail!("no {what} `{unknown}`; there are: {}", known());
    }
    Ok(all.iter().copied().filter(|one| names.contains(&name(*one))).collect())
}

fn measure(options: &Options) -> Result<i32> {
    let mut skipped = Vec::new();
    let mut world = World::loopback_only();
    if !options.works.is_empty() {
        match world::reenter() {
            Ok(Some(code)) => return Ok(code),
            Ok(None) => world = World::make()?,
            Err(why) => skipped.push(format!("veth: {why:#}")),
        }
    }
    skipped.append(&mut world.skipped);
    world.keep(&options.places);
    let mut transports = options.transports.clone();
    if !options.works.is_empty() {
        skipped.extend(transports.iter().filter_map(|t| works::missing(*t)));
        transports.retain(|t| works::missing(*t).is_none());
    }
    if transports.iter().any(|t| t.is_iperf()) && options.works.contains(&Work::Bulk) && !iperf::is_here() {
        transports.retain(|t| !t.is_iperf());
        skipped.push("iperf3: the program is not installed; tcp-cubic measures kernel TCP too".to_owned());
    }
    if options.works.contains(&Work::Bulk) {
        transports.retain(|t| match t.is_rival().then(|| rival::missing(*t)).flatten() {
            Some(why) => {
                skipped.push(why);
                false
            }
            None => true,
        });
    }
    let properties = options.properties.clone();
    let mut plan = if options.is_quick {
        Plan {
            repetitions: 2,
            bulk_s: 0.4,
            ping_s: 0.1,
            idle_connections: 3_000,
            shared_connections: 200,
            properties,
        }
    } else {
        Plan {
            repetitions: 5,
            bulk_s: 0.8,
            ping_s: 0.3,
            idle_connections: 100_000,
            shared_connections: 1_000,
            properties,
        }
    };
    plan.repetitions = options.repetitions.unwrap_or(plan.repetitions);
    plan.bulk_s = options.seconds.unwrap_or(plan.bulk_s);
    let load_before = host::load();
    let progress = |what: String| eprintln!("{what}");
    let is_quick = options.is_quick;
    let parts = options.other("parts", || parts::measure(is_quick, progress))?;
    let adaptivity = options.other("adaptivity", || parts::adaptivity(is_quick, progress))?;
    let exchanges = options.other("exchange", || parts::exchanges(is_quick, progress))?;
    let factors = options.other("factors", || parts::factors(is_quick, progress))?;
    let passes = options.other("passes", || parts::passes(is_quick, progress))?;
    let cases = works::cases(&options.works, &world, &transports, &plan);
    let rows = works::measure(&world, &cases, &plan, progress);
    let load = [load_before, host::load()];
    let (bars, leads) = (bars::judge(&rows, &adaptivity), bars::leads(&rows));
    let host = host::Host::here();
    let report = Report {
        host,
        load,
        plan,
        skipped,
        rows,
        parts,
        adaptivity,
        exchanges,
        factors,
        passes,
        bars,
        leads,
    };
    print!("{}", report.text());
    let json = report.save(&options.out)?;
    println!("\nJSON: {}", options.out.display());
    if !report.rows.is_empty() {
        let svg = options.out.with_extension("svg");
        picture::save(&picture::draw(&json)?, &svg)?;
        println!("picture: {}", svg.display());
    }
    let failed = report.rows.iter().any(|row| !row.failures.is_empty());
    Ok(i32::from(failed))
}
