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

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failure::Failed(format!("cannot start: {error}"))),
    };
    let transport = udp::Udp;
    let result = runtime.block_on(async {
        match &args.command {
            Command::Serve(serve) => cmd::serve::run(&transport, serve).await,
            Command::Cp(cp) => cmd::cp::run(&transport, cp).await,
            Command::Explain(explain) => cmd::explain::run(&transport, explain),
            Command::Keygen(keygen) => cmd::keygen::keygen(&transport, keygen),
            Command::Fingerprint(fingerprint) => cmd::keygen::fingerprint(&transport, fingerprint),
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

fn report(failure: &Failure) -> ExitCode {
    if let Some(line) = failure.line() {
        eprintln!("uts: {line}");
    }
    ExitCode::from(failure.status())
}
