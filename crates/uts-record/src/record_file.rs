//! Files that hold one record as JSON, with the version of its form.

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::Path;

/// Writes a record into a file of `dir`, which is made if missing.
///
/// # Errors
/// The file or the directory cannot be written.
pub(crate) fn write(dir: &Path, file: &str, record: &impl Serialize) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
    let path = dir.join(file);
    let json = serde_json::to_vec(record).context("cannot put the record into JSON")?;
    fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads the record in a file of `dir`; `what` it is, as `the record of a call`.
///
/// # Errors
/// It is missing, is something else, or is of another version than `known`.
pub(crate) fn load<R: DeserializeOwned>(dir: &Path, file: &str, known: u32, what: &str) -> Result<R> {
    let path = dir.join(file);
    let json = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let value: serde_json::Value =
        serde_json::from_slice(&json).with_context(|| format!("{} is not JSON", path.display()))?;
    // A record of another version may lack what this one has: its version is said all the same.
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(format) if format == u64::from(known) => {}
        Some(format) => {
            bail!("{} has format {format}, and this program reads format {known}", path.display())
        }
        None => bail!("{} is not {what}", path.display()),
    }
    serde_json::from_value(value).with_context(|| format!("{} is not {what}", path.display()))
}
