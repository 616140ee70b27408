//! Shells that are held at their host: each has a process that keeps its terminal ([`holder`]), as
//! tmux does, so that whoever logs in may attach to it again ([`attached`]), whatever became of the
//! session of ssh by which it was attached before, and of the machine at that end.

pub mod attached;
mod board;
pub mod holder;
mod screen;
mod wire;

use crate::control::{Control, Request, ask};
use std::path::Path;

/// The ending of the sockets of shells: their names are small numbers.
pub const SHELL: &str = "shell";

/// Shells of one user that are held at once. Chosen, as for sessions.
pub const SHELLS_MAX: usize = 64;

/// The socket of a new shell, at the first number that is free, and its name.
///
/// # Errors
/// There are as many as may be, or it cannot be made, in words.
fn bind(dir: &Path) -> Result<(Control, String), String> {
    let mut last = String::new();
    for name in (1..=SHELLS_MAX).map(|number| number.to_string()) {
        match Control::bind(&dir.join(format!("{name}.{SHELL}"))) {
            Ok(control) => return Ok((control, name)),
            Err(why) => last = why,
        }
    }
    Err(format!(
        "{SHELLS_MAX} shells of this user are held here, which is the most (uts ssh --list and --end): {last}"
    ))
}

/// A shell to which somebody may attach without taking it from anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Free {
    name: String,
    /// Attachments so far.
    count: u64,
    /// Seconds since nobody is attached, or since the last was attached.
    seconds: u64,
}

/// Shells that are free, of this command if it is given: the one that was left last comes first.
async fn free(dir: &Path, command: Option<&str>) -> Vec<Free> {
    let all = super::places::controls(dir, SHELL).unwrap_or_default();
    let mut asked = tokio::task::JoinSet::new();
    for file in all {
        let (dir, command) = (dir.to_owned(), command.map(ToOwned::to_owned));
        asked.spawn(async move {
            let said = ask(&file, &Request::List).await.ok()?;
            if command.is_some() && said["command"].as_str() != command.as_deref() {
                return None;
            }
            // One whose client sleeps, or is no more, has nobody who types.
            let is_free = match said["by"].as_str() {
                _ if said["attached"] == false => true,
                None => false,
                Some(session) => !is_heard(&dir, session).await,
            };
            let name = said["session"].as_str()?.to_owned();
            let (count, seconds) = (said["count"].as_u64()?, said["changed_s"].as_u64()?);
            is_free.then_some(Free { name, count, seconds })
        });
    }
    let mut found: Vec<Free> = asked.join_all().await.into_iter().flatten().collect();
    found.sort_by_key(|free| free.seconds);
    found
}

/// True if the other end of a session of `uts ssh` answers.
async fn is_heard(dir: &Path, session: &str) -> bool {
    let file = dir.join(format!("{session}.{}", super::places::CONTROL_THERE));
    ask(&file, &Request::List).await.is_ok_and(|said| said["silent_s"] == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn shells_have_the_first_number_that_is_free() {
        let dir = tempfile::tempdir().expect("a folder");
        let named = || bind(dir.path()).map(|(control, name)| (name, control));
        let mut all: Vec<_> = (0..SHELLS_MAX).map(|_| named().expect("room")).collect();
        assert_eq!([&all[0].0, &all[63].0], ["1", "64"]);
        assert!(named().err().expect("full").contains("which is the most"));
        drop(all.remove(4));
        assert_eq!(named().expect("room").0, "5");
        assert_eq!(free(dir.path(), None).await, []);
    }
}
