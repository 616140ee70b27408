//! `uts-lab report`.

use super::print_line;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;
use uts_end::output;
use uts_record::demo;
use uts_report::experiment;

/// Make report.html from the results of an experiment (finished or not) or of a demonstration
#[derive(Debug, Args)]
pub struct Arguments {
    /// Directory with plan.json of an experiment or run.json of a demonstration; report.html goes
    /// there too
    #[arg(value_name = "DIR", default_value = "demo-out")]
    dir: PathBuf,
}

/// Makes the report.
///
/// # Errors
/// The directory is neither; what is in it is wrong; the page cannot be written.
pub fn run(arguments: Arguments) -> Result<()> {
    let dir = &arguments.dir;
    let page = if experiment::is_experiment(dir) {
        let written = experiment::write(dir)?;
        for problem in &written.problems {
            output::fail(problem);
        }
        written.page
    } else if dir.join(demo::DATA_FILE).exists() {
        uts_report::write_page(dir, &demo::load(dir)?)?
    } else {
        bail!(
            "{} has neither plan.json, which an experiment leaves, nor {}, which a demonstration leaves",
            dir.display(),
            demo::DATA_FILE
        );
    };
    Ok(print_line(&format!("Report: {}", page.display()))?)
}
