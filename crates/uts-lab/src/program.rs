//! The laboratory as commands of the program `uts-lab`.

use crate::cmd;
use anyhow::Result;
use clap::Subcommand;
use std::process::ExitCode;
use uts_end::output::{self, Lost};

/// A command of the laboratory.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[allow(missing_docs, reason = "their texts are those of their arguments")]
    Run(cmd::run::Arguments),
    #[allow(missing_docs, reason = "as above")]
    List(cmd::list::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Merge(cmd::merge::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Parquet(cmd::parquet::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Report(cmd::report::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Reproduce(cmd::reproduce::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Set(cmd::set::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Doctor(cmd::doctor::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Probes(cmd::probes::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Relay(cmd::relay::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Router(cmd::router::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Demo(cmd::demo::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Live(cmd::live::Arguments),
    /// One end of a run; experiments start these
    #[command(hide = true)]
    End(uts_end::Arguments),
    /// One end of the live demonstration, which starts these
    #[command(hide = true)]
    LiveEnd(uts_live::end::EndArguments),
}

/// Runs a command, tells what went wrong, and gives the exit status.
pub fn run(command: Command) -> ExitCode {
    match carry_out(command) {
        Ok(status) => output::status(status),
        // It has been noted, and told if that is of use.
        Err(error) if error.is::<Lost>() => output::status(0),
        Err(error) => {
            // Files and programs are quoted on lines of their own.
            let text = output::unnumbered(&format!("{}: {error:#}", output::program()));
            output::tell_line(text.trim_end());
            output::status(FAILED)
        }
    }
}

/// The exit status of what failed.
const FAILED: u8 = 1;

/// The exit status.
fn carry_out(command: Command) -> Result<u8> {
    let done = match command {
        Command::Run(arguments) => return cmd::run::run(&arguments),
        Command::Reproduce(arguments) => return cmd::reproduce::run(&arguments),
        Command::Merge(arguments) => return cmd::merge::run(&arguments),
        Command::Parquet(arguments) => return cmd::parquet::run(&arguments),
        Command::Doctor(arguments) => return cmd::doctor::run(&arguments).map(status),
        Command::Router(arguments) => return cmd::router::run(arguments),
        Command::List(arguments) => cmd::list::run(&arguments),
        Command::Report(arguments) => cmd::report::run(arguments),
        Command::Probes(arguments) => cmd::probes::run(&arguments),
        Command::Set(arguments) => cmd::set::run(&arguments),
        Command::Relay(arguments) => cmd::relay::run(arguments),
        Command::Demo(arguments) => cmd::demo::run(arguments),
        Command::Live(arguments) => cmd::live::run(&arguments),
        Command::End(arguments) => cmd::end::run(arguments),
        Command::LiveEnd(arguments) => cmd::live::end(&arguments),
    };
    done.map(|()| 0)
}

/// Exit status of a command that looks for something.
fn status(found: bool) -> u8 {
    if found { 0 } else { FAILED }
}
