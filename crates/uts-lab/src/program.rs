//! The laboratory as commands, for the programs `uts-lab` and `uts lab`.

use crate::cmd;
pub use crate::cmd::router::Arguments as RouterArguments;
use anyhow::Result;
use clap::Subcommand;
use std::io;
use std::process::ExitCode;

/// A command of the laboratory.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[allow(missing_docs, reason = "their texts are those of their arguments")]
    Run(cmd::run::Arguments),
    #[allow(missing_docs, reason = "as above")]
    List(cmd::list::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Report(cmd::report::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Set(cmd::set::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Doctor(cmd::doctor::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Relay(cmd::relay::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Router(cmd::router::Arguments),
    #[allow(missing_docs, reason = "as above")]
    Demo(cmd::demo::Arguments),
    /// One end of a run; experiments start these
    #[command(hide = true)]
    End(uts_end::Arguments),
}

/// How the laboratory was called.
#[derive(Clone, Copy, Debug)]
pub struct Called {
    /// As people write it: `uts lab`, or `uts-lab`.
    pub name: &'static str,
    /// What stands between the program and its command: `lab`, or nothing.
    pub prefix: &'static [&'static str],
}

/// Writes text for people, of several lines perhaps, to standard error.
pub fn tell(text: &str) {
    crate::lines::tell_line(text);
}

/// Runs a command.
///
/// # Errors
/// It failed, in words for people.
pub fn run(command: Command, called: Called) -> Result<ExitCode> {
    match carry_out(command, called) {
        // Whoever read what is printed has seen enough: `uts lab list | head`.
        Err(error) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn carry_out(command: Command, called: Called) -> Result<ExitCode> {
    match command {
        Command::Run(arguments) => cmd::run::run(&arguments, called),
        Command::List(arguments) => cmd::list::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Report(arguments) => cmd::report::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Set(arguments) => cmd::set::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Doctor(arguments) => cmd::doctor::run(&arguments, called),
        Command::Relay(arguments) => cmd::relay::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Router(arguments) => cmd::router::run(arguments),
        Command::Demo(arguments) => cmd::demo::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::End(arguments) => cmd::end::run(arguments).map(|()| ExitCode::SUCCESS),
    }
}
