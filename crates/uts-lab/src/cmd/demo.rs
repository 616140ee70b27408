//! `uts-lab demo`.

mod call;
mod tcp;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use uts_demo::{Against, DemoConfig, FILE_BYTES, QUICK_FILE_BYTES};
use uts_end::signals;

/// Carry a file over a path that changes, and show how the connection adapts
///
/// Starts `uts serve` and `uts cp` as two processes with an emulated path between them: 50 Mbit/s,
/// 40 ms round trip, a queue of 64 packets. After a third of the file, 5 % of packets are lost in
/// bursts. After two thirds, the loss ends and the rate falls to 20 Mbit/s. Then the kernel's TCP
/// carries as many bytes over the same path, for at most three times as long. That needs network
/// namespaces; without them a second copy keeps its first profile instead. Leaves a report. Fails
/// if the file differs at the two ends, or if no exchange of mechanisms followed a change of the
/// path.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,
    /// File to carry, instead of a pseudo-random one
    #[arg(long, value_name = "FILE", conflicts_with = "size")]
    file: Option<PathBuf>,
    /// Length of the pseudo-random file, as 64MB; bytes if there is no unit [default: 64MB, with
    /// --quick 8MB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Directory for report.html and run.json
    #[arg(long, value_name = "DIR", default_value = "demo-out")]
    out: PathBuf,
    /// The `uts` program [default: the one beside this program]
    #[arg(long, value_name = "PROGRAM")]
    uts: Option<PathBuf>,
    /// Seed of the file and of the path's random decisions
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Compare with the kernel's TCP, or with a copy that keeps its first profile [default: tcp
    /// where this machine permits network namespaces, otherwise fixed]
    #[arg(long, value_name = "WHAT")]
    against: Option<Compared>,
    /// Compare with nothing
    #[arg(long, conflicts_with = "against")]
    no_comparison: bool,
    /// Short, for tests: 20 Mbit/s and 20 ms round trip at first, 8 Mbit/s at last
    #[arg(long)]
    quick: bool,
    /// Give up if nothing moves for this long
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    patience: u32,
}

/// Another demonstration.
#[derive(Debug, Subcommand)]
enum Other {
    Call(call::Arguments),
}

/// The other side of a comparison.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Compared {
    /// The kernel's TCP
    Tcp,
    /// A copy that keeps its first profile
    Fixed,
}

/// Demonstrates, until done or a signal.
///
/// # Errors
/// See [`uts_demo::run`].
pub fn run(arguments: Arguments) -> Result<()> {
    if let Some(Other::Call(arguments)) = arguments.other {
        return call::run(&arguments);
    }
    let stop = signals::end_flag().context("cannot catch signals")?;
    let uts = match arguments.uts {
        Some(uts) => uts,
        None => std::env::current_exe().context("cannot find this program")?.with_file_name("uts"),
    };
    let default_bytes = if arguments.quick { QUICK_FILE_BYTES } else { FILE_BYTES };
    let config = DemoConfig {
        file: arguments.file,
        size_bytes: arguments.size.unwrap_or(default_bytes),
        out: arguments.out,
        uts,
        seed: arguments.seed,
        against: against(arguments.against, arguments.no_comparison)?,
        quick: arguments.quick,
        patience: Duration::from_secs(arguments.patience.into()),
        command: command_line(),
    };
    uts_demo::run(&config, &stop)
}

/// # Errors
/// TCP is asked for, and cannot be.
fn against(asked: Option<Compared>, nothing: bool) -> Result<Against> {
    if nothing {
        return Ok(Against::Nothing);
    }
    let tcp = match asked {
        Some(Compared::Fixed) => return Ok(Against::Fixed),
        Some(Compared::Tcp) | None => tcp::KernelTcp::new(),
    };
    match tcp {
        Ok(tcp) => Ok(Against::Other(Box::new(tcp))),
        Err(why) if asked.is_some() => anyhow::bail!("TCP cannot be compared with here: {why}"),
        Err(why) => {
            super::tell_line(format_args!("compared with a fixed profile, and not with TCP: {why}"));
            Ok(Against::Fixed)
        }
    }
}

fn size(text: &str) -> Result<u64, String> {
    text.parse::<u64>().or_else(|_| uts_units::text::parse_bytes(text))
}

/// Command line of this program, without the folder that the program is in.
fn command_line() -> String {
    let arguments = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned());
    std::iter::once("uts-lab".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
