//! `uts-rival`: one end of a measured run over a transport other than UTS.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "One end of a measured run over a transport other than UTS", version)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run one end of a measured run
    End(Box<uts_end::Arguments>),
    /// Print a line of JSON for each rival: its version and settings, or why it is missing and how to have it
    List,
}

fn main() -> ExitCode {
    let result = match Program::parse().command {
        Command::End(arguments) => uts_end::run(&uts_rival::provide, &arguments).map(drop),
        Command::List => list(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list() -> anyhow::Result<()> {
    for rival in uts_rival::list() {
        println!("{}", serde_json::to_string(&rival)?);
    }
    Ok(())
}
