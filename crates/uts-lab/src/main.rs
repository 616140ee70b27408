//! The `uts-lab` program: the tools of the laboratory as subcommands.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the laboratory faces the world: real sockets, real time"
)]

mod cmd;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Paths to try a transport on, and what measures it there.
#[derive(Debug, Parser)]
#[command(name = "uts-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(cmd::demo::Arguments),
    #[command(hide = true)]
    End(uts_end::Arguments),
    Relay(cmd::relay::Arguments),
    Report(cmd::report::Arguments),
    Router(cmd::router::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Demo(arguments) => cmd::demo::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::End(arguments) => cmd::end::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Relay(arguments) => cmd::relay::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Report(arguments) => cmd::report::run(arguments).map(|()| ExitCode::SUCCESS),
        // The program that ran on a host has a say, too.
        Command::Router(arguments) => cmd::router::run(arguments),
    };
    match result {
        Ok(code) => code,
        Err(e) => {
            eprintln!("uts-lab: {e:#}");
            ExitCode::FAILURE
        }
    }
}
