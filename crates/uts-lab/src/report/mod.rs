//! Reports: one self-contained page from what a demonstration or an [`experiment`] recorded.
//!
//! For a demonstration, [`write()`] leaves `run.json`, which holds everything, and `report.html`, which opens from disk:
//! it loads nothing. Its tables are plain HTML; its charts are drawn by the inlined uPlot from
//! series that were thinned to what a screen can show.

mod charts;
pub mod experiment;
mod html;
pub mod model;
mod page;
pub mod summary;
mod svg;
mod thin;

pub use page::render;

use anyhow::{Context, Result, bail};
use model::{FORMAT, Record};
use std::fs;
use std::path::{Path, PathBuf};

/// The file with all data.
pub const DATA_FILE: &str = "run.json";
/// The page.
pub const PAGE_FILE: &str = "report.html";

/// Writes the record and its page into `dir`, which is made if missing. Returns the page's path.
///
/// # Errors
/// A file or the directory cannot be written.
pub fn write(dir: &Path, record: &Record) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
    let data = dir.join(DATA_FILE);
    let json = serde_json::to_vec(record).context("cannot put the record into JSON")?;
    fs::write(&data, json).with_context(|| format!("cannot write {}", data.display()))?;
    write_page(dir, record)
}

/// Writes only the page.
///
/// # Errors
/// It cannot be written.
pub fn write_page(dir: &Path, record: &Record) -> Result<PathBuf> {
    let page = dir.join(PAGE_FILE);
    fs::write(&page, render(record)?).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(page)
}

/// Reads the record of `dir`.
///
/// # Errors
/// It is missing, is not a record, or is one of another version.
pub fn load(dir: &Path) -> Result<Record> {
    let path = dir.join(DATA_FILE);
    let json = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let value: serde_json::Value =
        serde_json::from_slice(&json).with_context(|| format!("{} is not JSON", path.display()))?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(format) if format == u64::from(FORMAT) => {}
        Some(format) => {
            bail!("{} has format {format}, and this program reads format {FORMAT}", path.display())
        }
        None => bail!("{} is not the record of a demonstration", path.display()),
    }
    serde_json::from_value(value)
        .with_context(|| format!("{} is not the record of a demonstration", path.display()))
}
