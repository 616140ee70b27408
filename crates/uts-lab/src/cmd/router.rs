//! `uts-lab router`.

use super::path_options::{PathOptions, table};
use super::{print_line, tell_line};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use uts_end::output;
use uts_path::{LinkConfig, SpecError};
use uts_router::probe::{self, Probe};
use uts_router::{
    Check, Ending, Io, RecordConfig, Stage, Testbed, TestbedConfig, Topology, bench, doctor, supervise,
};

/// Run programs on hosts behind an emulated network
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<RunArguments>),
    /// Say what this machine permits, and what would permit the rest
    Doctor {
        /// Print a JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Measure how exact and how fast RouterPC is on this machine
    #[command(hide = true)]
    Bench {
        /// Seconds for each measurement
        #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
        seconds: u32,
    },
    /// Be a testbed's supervisor
    #[command(hide = true)]
    Supervise {
        #[arg(long)]
        inner: bool,
    },
    /// Be a program on a host, for measurements
    #[command(hide = true)]
    Probe {
        #[command(subcommand)]
        probe: Probe,
    },
}

/// Run a program on host 0, and others on other hosts; end when it ends
///
/// Host N has the address 10.77.0.(N+1). SETTINGS are as for `uts-lab relay`, and
/// framing=ethernet|slip|aal5|ppp, compress=vj or rx, as in rx:64,typed.
#[derive(Debug, Args)]
struct RunArguments {
    #[command(flatten)]
    path: PathOptions,
    /// Hosts on each side of the path
    #[arg(long, value_name = "N", default_value_t = 1)]
    pairs: usize,
    /// Shell command on a host, as `1:iperf3 -s`; it is ended when the program ends; may be
    /// repeated
    #[arg(long, value_name = "HOST:COMMAND")]
    on: Vec<String>,
    /// Write pcap files of all hosts, and CSV files of the queue and of TCP, to this directory
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Let hosts send each packet by itself (no TSO, no GSO)
    #[arg(long)]
    no_offload: bool,
    /// Give hosts IPv6 addresses, fd77::(N+1), too
    #[arg(long)]
    ipv6: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// Runs the subcommand; gives the exit status.
///
/// # Errors
/// There can be no testbed, or a program could not be started.
pub fn run(arguments: Arguments) -> Result<u8> {
    match arguments.command {
        Command::Run(arguments) => run_program(*arguments),
        Command::Doctor { json } => print_checks(&doctor(), json),
        Command::Bench { seconds } => {
            print_line(&bench::run(seconds)?.to_string())?;
            Ok(0)
        }
        Command::Supervise { inner } => {
            Ok(u8::from(!supervise(if inner { Stage::Inner } else { Stage::Outer })))
        }
        Command::Probe { probe: what } => probe::probe(what).map(|()| 0).map_err(Into::into),
    }
}

impl RunArguments {
    fn config(&self) -> Result<TestbedConfig, SpecError> {
        let mut path = self.path.path(&LinkConfig::default())?;
        path.resolve(|name: &str| uts_relay::traces::read(name))?;
        Ok(TestbedConfig {
            topology: Topology::Dumbbell { pairs: self.pairs },
            seed: self.path.seed,
            record: self.record.clone().map(|dir| RecordConfig {
                dir,
                pcap: true,
                tcp_info_ms: Some(10),
                ..RecordConfig::default()
            }),
            offload: !self.no_offload,
            ipv6: self.ipv6,
            foreground: true,
            ..TestbedConfig::point_to_point(path)
        })
    }
}

fn run_program(arguments: RunArguments) -> Result<u8> {
    let bed = Testbed::start(arguments.config()?)?;
    for text in &arguments.on {
        let (host, command) =
            text.split_once(':').with_context(|| format!("--on {text}: must be HOST:COMMAND"))?;
        let host = host.parse().with_context(|| format!("--on {text}: `{host}` must be a host's number"))?;
        bed.command(host, "sh").args(["-c", command]).spawn()?;
    }
    let Some((program, rest)) = arguments.program.split_first() else { bail!("no program") };
    bed.begin()?;
    let command = bed.command(0, program).args(rest.iter().cloned()).stdin(Io::Inherit);
    let exit = command.spawn()?.wait()?;
    print_ending(&bed.finish()?, arguments.json)?;
    Ok(match exit.status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => code,
        None => {
            output::fail(format_args!("{program}: {}", exit.status));
            1
        }
    })
}

/// Prints counters and fidelity to standard error: the output is the program's.
fn print_ending(ending: &Ending, as_json: bool) -> Result<()> {
    if as_json {
        tell_line(serde_json::to_string(ending)?);
        return Ok(());
    }
    for path in &ending.paths {
        tell_line(table(&path.forward, &path.backward));
    }
    let fidelity = &ending.fidelity;
    let late = fidelity.lateness;
    tell_line(format_args!(
        "{:.1} s, {} packets; late p50 {:.1} us, p90 {:.1} us, p99 {:.1} us, max {:.0} us; processor {:.2} s",
        fidelity.elapsed_s,
        fidelity.packets,
        late.p50_us,
        late.p90_us,
        late.p99_us,
        late.max_us,
        fidelity.cpu_s,
    ));
    fidelity.why.iter().for_each(|why| tell_line(format_args!("not valid: {why}")));
    Ok(())
}

fn print_checks(checks: &[Check], as_json: bool) -> Result<u8> {
    for check in checks {
        if as_json {
            print_line(&serde_json::to_string(check)?)?;
            continue;
        }
        let mark = match (check.ok, check.required) {
            (true, _) => "ok",
            (false, true) => "MISSING",
            (false, false) => "without",
        };
        print_line(&format!("{mark:<8}{:<22}{}", check.name, check.why))?;
        if !check.remedy.is_empty() {
            print_line(&format!("{:<30}{}", "", check.remedy))?;
        }
    }
    let fit = checks.iter().all(|check| check.ok || !check.required);
    Ok(u8::from(!fit))
}
