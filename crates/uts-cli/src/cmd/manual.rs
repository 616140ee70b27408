//! `uts completions` and `uts manual`: what shells and `man` know of the program.

use super::Failure;
use crate::args::{Args, CompletionsArgs, ManualArgs};
use clap::{Command, CommandFactory};
use std::io::{self, Write};
use uts_end::output::Output;

/// Prints what a shell needs to complete command lines.
///
/// # Errors
/// [`Failure::Told`] if it cannot be written, which the exit status says.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut shown(&Args::command()), "uts", &mut text);
    // What is lost shows in the exit status.
    let _ = Output::Out.write_all(&text);
    Ok(())
}

/// The command as far as people see it: what is hidden is completed for nobody.
fn shown(command: &Command) -> Command {
    let rest = command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(shown);
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    // Names of commands live as long as the program.
    let name: &'static str = command.get_name().to_owned().leak();
    let shown = Command::new(name).args(arguments).subcommands(rest);
    match command.get_about() {
        Some(about) => shown.about(about.clone()),
        None => shown,
    }
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
