//! `uts-lab set`.

use super::print_line;
use crate::control::{Request, ask};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use uts_path::{Change, Direction, Target};

/// Change the path of a running experiment
///
/// Finds the testbed of `run` on this machine, in the world relay or router, and changes its path
/// at once. Without settings, says what runs. A run whose path was changed differs from its file.
/// It is kept, marked invalid, with each change and its time.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  uts lab set rate=2mbit loss=ge:0.05,4
  uts lab set --direction fwd down
  uts lab set --path bottleneck delay=300ms")]
pub struct Arguments {
    /// Settings of a path, as rate=2mbit loss=0.01 delay=20ms buffer=20p down
    #[arg(value_name = "SETTING")]
    settings: Vec<String>,
    /// Name of the path, if there are several
    #[arg(long, value_name = "NAME")]
    path: Option<String>,
    /// Direction to change
    #[arg(long, value_enum, default_value_t = Which::Both)]
    direction: Which,
    /// Process that runs the experiment, if there are several
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    /// From the client to the server
    Fwd,
    /// Back
    Bwd,
    Both,
}

/// Changes the path.
///
/// # Errors
/// The settings are wrong; no testbed runs, or several; what the testbed says.
pub fn run(arguments: &Arguments) -> Result<()> {
    let request = if arguments.settings.is_empty() {
        Request::Describe
    } else {
        let text = arguments.settings.join(" ");
        let change: Change = text.parse().context("the settings")?;
        let target = match arguments.direction {
            Which::Fwd => Target::One(Direction::Forward),
            Which::Bwd => Target::One(Direction::Backward),
            Which::Both => Target::Both,
        };
        Request::Set { path: arguments.path.clone(), target, change }
    };
    Ok(print_line(&ask(arguments.process, &request)?)?)
}
