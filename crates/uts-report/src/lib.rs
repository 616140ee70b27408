//! Reports: one self-contained page from what a demonstration or an [`experiment`] recorded.
//!
//! For a demonstration, [`write()`] leaves `run.json`, which holds everything, `report.html`, which
//! opens from disk and loads nothing, and a [`picture()`] for those who read neither. Tables of the
//! page are plain HTML. The inlined uPlot draws its charts from series that were thinned to what a
//! screen can show.

#![forbid(unsafe_code)]

pub mod call;
mod charts;
pub mod experiment;
mod page;
mod picture;
pub mod summary;

pub use page::render;
pub use picture::picture;

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use uts_record::demo::{self, Record};

/// The picture.
const PICTURE_FILE: &str = "demo.svg";

/// The page.
pub const PAGE_FILE: &str = "report.html";

/// Writes the record, its page and its picture into `dir`, which is made if missing. Returns the
/// page's path.
///
/// # Errors
/// A file or the directory cannot be written.
pub fn write(dir: &Path, record: &Record) -> Result<PathBuf> {
    demo::write(dir, record)?;
    write_page(dir, record)
}

/// Writes only the page and the picture.
///
/// # Errors
/// They cannot be written.
pub fn write_page(dir: &Path, record: &Record) -> Result<PathBuf> {
    if let Some(picture) = picture(record) {
        let file = dir.join(PICTURE_FILE);
        fs::write(&file, picture).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let page = dir.join(PAGE_FILE);
    fs::write(&page, render(record)?).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(page)
}
