//! The `uts-lab` program: the tools of the laboratory as subcommands.

#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use uts_lab::program::{self, Called, Command};

/// Paths to try a transport on, and what measures it there.
#[derive(Debug, Parser)]
#[command(name = "uts-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let called = Called { name: "uts-lab", prefix: &[] };
    program::run(Arguments::parse().command, called).unwrap_or_else(|e| {
        program::tell(&format!("uts-lab: {e:#}"));
        ExitCode::FAILURE
    })
}
