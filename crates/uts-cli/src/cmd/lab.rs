//! `uts lab`: the laboratory, which is a program of its own, so that `uts` need not carry it.

use super::Failure;
use crate::args::LabArgs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use uts_end::output::words;

/// Name of the program.
const PROGRAM: &str = "uts-lab";

/// Becomes the program `uts-lab`, with the same words: the one beside this program, or else the one
/// in the path.
///
/// # Errors
/// There is none, or it cannot be run. Where a process cannot become another, its exit status.
pub fn run(args: &LabArgs) -> Result<(), Failure> {
    let program = beside().unwrap_or_else(|| PathBuf::from(PROGRAM));
    let mut command = Command::new(&program);
    command.args(&args.words);
    let error = replace(&mut command)?;
    Err(Failure::Failed(match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{PROGRAM} is a program of its own, and is neither beside this one nor in the path: `cargo build \
             --release --bin {PROGRAM}` makes it from the sources"
        ),
        _ => format!("{}: {}", program.display(), words(&error)),
    }))
}

/// The program that was installed, or built, together with this one.
fn beside() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let program = own.with_file_name(format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX));
    program.is_file().then_some(program)
}

/// Returns only with the reason why it could not.
#[cfg(unix)]
fn replace(command: &mut Command) -> Result<io::Error, Failure> {
    Ok(std::os::unix::process::CommandExt::exec(command))
}

#[cfg(not(unix))]
fn replace(command: &mut Command) -> Result<io::Error, Failure> {
    match command.status() {
        Err(error) => Ok(error),
        Ok(status) => {
            Err(Failure::Ended(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
        }
    }
}
