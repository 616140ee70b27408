//! The `uts-lab` program: the tools of the laboratory as subcommands.

#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use uts_end::output;
use uts_lab::program::{self, Command};

/// Compare transports on emulated paths.
#[derive(Debug, Parser)]
#[command(name = "uts-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    output::name("uts-lab");
    match output::parse::<Arguments>() {
        Ok(arguments) => program::run(arguments.command),
        Err(status) => status,
    }
}
