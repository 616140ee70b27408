//! `uts completions` and `uts manual`: what shells and `man` know of the program.

use super::Failure;
use crate::args::{Args, CompletionsArgs, ManualArgs};
use clap::CommandFactory;
use std::io::{self, Write};
use uts_end::output::Output;

/// Prints what a shell needs to complete command lines.
///
/// # Errors
/// [`Failure::Told`] if it cannot be written, which the exit status says.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "uts", &mut text);
    // What is lost shows in the exit status.
    let _ = Output::Out.write_all(&text);
    Ok(())
}

/// Writes a page of the manual for each command into a directory.
///
/// # Errors
/// [`Failure::Failed`] if it cannot be written.
pub fn pages(args: &ManualArgs) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        std::fs::create_dir_all(&args.dir)?;
        clap_mangen::generate_to(Args::command(), &args.dir)
    };
    write().map_err(|error| Failure::Failed(format!("{}: {error}", args.dir.display())))
}
