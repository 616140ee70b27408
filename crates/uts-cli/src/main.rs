//! The `uts` program.
#![forbid(unsafe_code)]

mod args;
mod cmd;
mod link;
mod target;
#[cfg(test)]
mod testing;
mod udp;
mod ui;
mod units;

use args::{Args, Command};
use clap::Parser;
use cmd::Failure;
use std::process::ExitCode;
use std::time::Duration;
use ui::lines;
use uts_lab::program::{self, Called};

/// How long the end of the program waits for what still writes to a disk.
const BLOCKED_MAX: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let args = Args::parse();
    // The laboratory makes its own threads, and a testbed must leave for its namespaces before there are any.
    let called = Called { name: "uts lab", prefix: &["lab"] };
    let command = match args.command {
        Command::Lab { command } => return lab(*command, called),
        Command::Router(arguments) => return lab(program::Command::Router(arguments), called),
        command => command,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failure::Failed(format!("cannot start: {error}"))),
    };
    let transport = udp::Udp;
    let result = runtime.block_on(async {
        match &command {
            Command::Serve(serve) => cmd::serve::run(&transport, serve).await,
            Command::Cp(cp) => cmd::cp::run(&transport, cp).await,
            Command::Explain(explain) => cmd::explain::run(&transport, explain),
            Command::Keygen(keygen) => cmd::keygen::keygen(&transport, keygen),
            Command::Fingerprint(fingerprint) => cmd::keygen::fingerprint(&transport, fingerprint),
            Command::Lab { .. } | Command::Router(_) => Ok(()),
        }
    });
    // Not for ever: what blocks a thread, as a disk that does not answer, keeps nobody from ending.
    runtime.shutdown_timeout(BLOCKED_MAX);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

fn lab(command: program::Command, called: Called) -> ExitCode {
    program::run(command, called).unwrap_or_else(|error| {
        // The laboratory's errors quote files and programs, on lines of their own.
        lines::tell_lines(&format!("uts: {error:#}"));
        ExitCode::FAILURE
    })
}

fn report(failure: &Failure) -> ExitCode {
    if let Some(line) = failure.line() {
        lines::tell(format_args!("uts: {line}"));
    }
    ExitCode::from(failure.status())
}
