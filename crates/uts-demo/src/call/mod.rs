//! The demonstration of a call: three people hear and see each other, in virtual time, over lines
//! that become too narrow and change.
//!
//! The programs of the participants use the library as any program would ([`uts::simulation`] is
//! below it). Each sends a voice, a picture in levels and, one of them, a pointer. `scene` is what
//! happens, `person` what each sends and shows, `log` what was seen of it.

mod log;
mod person;
mod scene;

pub use scene::{ANNA, BEN, CLARA, HAND_OVER_S, JOINS_S, LEAVES_S};

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use uts_record::call::{self, Record};

/// Has the call take place; the seed says what becomes of the packets.
///
/// # Errors
/// A connection ends that should not, or cannot be made.
pub fn run(seed: u64, command: &str) -> Result<Record> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.context("cannot start a runtime")?;
    runtime.block_on(scene::play(seed, command))
}

/// Writes the record and its page into `dir`, and returns the page's path.
///
/// # Errors
/// A file or the directory cannot be written.
pub fn write(dir: &Path, record: &Record) -> Result<PathBuf> {
    call::write(dir, record)?;
    uts_report::call::write_page(dir, record)
}
