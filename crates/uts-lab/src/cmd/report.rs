//! `uts-lab report`.

use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use uts_lab::report;

/// Makes report.html anew from the run.json of a demonstration
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where run.json is, and report.html will be
    #[arg(value_name = "DIR", default_value = "demo-out")]
    dir: PathBuf,
}

/// Makes the report.
///
/// # Errors
/// The record is missing or not one; the page cannot be written.
pub fn run(arguments: Arguments) -> Result<()> {
    let record = report::load(&arguments.dir)?;
    let page = report::write_page(&arguments.dir, &record)?;
    println!("Report: {}", page.display());
    Ok(())
}
