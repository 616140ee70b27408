//! The demonstration: a file carried between two processes of `uts` over a path that changes. A
//! second one is in [`call`]: a call of three in virtual time.
//!
//! [`run`] makes a file, starts the relay in this process, `uts serve` and `uts cp` as two others,
//! follows what both say, and compares the file at both ends itself. Then as many bytes go by what
//! people use, over the same path ([`Beside`]), or the same copy is made with the first profile
//! fixed. All of it ends with this process's interest in it: children are killed by
//! their handles, temporary files removed, whatever the reason for the end.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the demonstration faces the world: real processes, real time"
)]

mod beside;
pub mod call;
mod child;
mod display;
mod event;
mod follow;
mod plan;
mod samples;
mod source;
mod transfer;

pub use beside::{Beside, Carried, Job};
pub use plan::{FILE_BYTES, QUICK_FILE_BYTES};

use anyhow::{Context, Result, bail};
use display::Display;
use plan::Plan;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use transfer::Transfer;
use uts_end::machine;
use uts_record::demo::{FORMAT, Machine, Record, Run, Setting};
use uts_report::summary;

/// Settings of a demonstration.
#[derive(Debug)]
pub struct DemoConfig {
    /// The file to carry; `None` makes one from the seed.
    pub file: Option<PathBuf>,
    /// Length of the file to make, in bytes.
    pub size_bytes: u64,
    /// Where the report goes.
    pub out: PathBuf,
    /// The `uts` program.
    pub uts: PathBuf,
    /// Seed of the file and of the path's random decisions.
    pub seed: u64,
    /// The other side of the comparison.
    pub against: Against,
    /// A slower, shorter path, so that a small file meets the same changes.
    pub quick: bool,
    /// Give up when nothing moves for this long.
    pub patience: Duration,
    /// Command by which this was asked for, for the report.
    pub command: String,
}

/// The other side of a comparison.
#[derive(Debug)]
pub enum Against {
    /// Nothing.
    Nothing,
    /// The same copy, with the first profile fixed.
    Fixed,
    /// Another transport.
    Other(Box<dyn Beside>),
}

/// The other transport is cut short when it has taken this many times as long.
const PATIENCE_TIMES: u32 = 3;

/// Runs the demonstration. `stop` ends it early.
///
/// # Errors
/// It could not be carried through; the file differs at the two ends; or a change of the path was
/// not answered by an exchange. In the last two cases the report is written nevertheless.
pub fn run(config: &DemoConfig, stop: &AtomicBool) -> Result<()> {
    let uts_version = version_of(&config.uts)?;
    let work = tempfile::Builder::new()
        .prefix("uts-demo-")
        .tempdir()
        .context("cannot make a temporary directory")?;
    let (path, file) = match &config.file {
        Some(path) => (path.clone(), source::examine(path, stop)?),
        None => source::make(work.path(), config.size_bytes, config.seed, stop)?,
    };
    let plan = Plan::new(file.bytes, config.quick)?;
    let display = Display::new(file.bytes);
    display.introduce(&file, &plan, config.seed);
    let setting = Setting {
        unix_s: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        lab_version: concat!("uts-lab ", env!("CARGO_PKG_VERSION")).into(),
        uts_version,
        machine: machine(),
        seed: config.seed,
        command: config.command.clone(),
        path: plan.settings.to_string(),
        schedule: plan.schedule.entries.iter().map(ToString::to_string).collect(),
        base_rtt_ms: plan.base_rtt_ms(),
        buffer_packets: plan.buffer_packets(),
        file,
    };
    let mut record = Record { format: FORMAT, setting, runs: Vec::new() };
    let adapts = if matches!(config.against, Against::Fixed) { &[true, false][..] } else { &[true] };
    for adapt in adapts {
        let transfer = Transfer {
            uts: &config.uts,
            source: &path,
            file: &record.setting.file,
            plan: &plan,
            work: work.path(),
            seed: config.seed,
            adapt: *adapt,
            patience: config.patience,
            stop,
            display: &display,
        };
        let run = transfer.run()?;
        let intact = run.summary.sha256 == record.setting.file.sha256;
        record.runs.push(run);
        if !intact {
            break;
        }
    }
    if let (Against::Other(other), Some(first)) = (&config.against, record.runs.first())
        && first.summary.sha256 == record.setting.file.sha256
    {
        let limit = Duration::from_secs_f64(first.summary.duration_s.ceil()) * PATIENCE_TIMES;
        let settings = beside::whole_packets(&plan.settings)?;
        let (bytes, schedule) = (record.setting.file.bytes, &plan.schedule);
        let job = Job { bytes, settings: &settings, schedule, seed: config.seed, limit, stop };
        record.runs.push(carry_beside(other.as_ref(), &job, &plan, &display)?);
    }
    let page = uts_report::write(&config.out, &record)?;
    display.line(&format!("\n{}\nReport: {}", summary::text(&record), page.display()));
    if let Some(change) = record.runs.first().and_then(Run::anticipated_change) {
        let (what, at) = (&change.change, change.t_s);
        display.line(&format!(
            "The change `{what}` at {at:.1} s needed no exchange: one before it had prepared for it."
        ));
    }
    judge(&record)
}

/// As many bytes by another transport.
fn carry_beside(other: &dyn Beside, job: &Job<'_>, plan: &Plan, display: &Display) -> Result<Run> {
    let limit_s = job.limit.as_secs();
    display.begin(&format!("For comparison, {}: at most {limit_s} s", other.heading()));
    let ended = display.while_waiting(job.limit, || other.carry(job));
    check_stop(job.stop)?;
    let run = ended.with_context(|| other.heading())?.into_run(other.name(), job, plan);
    let (summary, megabytes) = (&run.summary, run.summary.payload_bytes as f64 / 1e6);
    let outcome = if summary.is_cut_short { "not done" } else { "done" };
    let rate = summary.goodput_bps / 1e6;
    display.end(&format!("{:6.1} s  {outcome}: {megabytes:.1} MB, {rate:.1} Mbit/s", summary.duration_s));
    Ok(run)
}

/// Checks what must hold of a demonstration.
fn judge(record: &Record) -> Result<()> {
    let wanted = &record.setting.file.sha256;
    for Run { name, summary, .. } in record.runs.iter().filter(|run| !run.is_of_another()) {
        if summary.sha256 != *wanted {
            bail!(
                "the file differs at the two ends of the {name} run: SHA-256 {wanted} was sent, {} arrived",
                summary.sha256
            );
        }
    }
    let Some(adaptive) = record.runs.first() else { return Ok(()) };
    let expected = record.setting.schedule.len();
    if adaptive.changes.len() < expected {
        bail!("the path changed {} times, and should have {expected} times", adaptive.changes.len());
    }
    let unanswered: Vec<String> =
        adaptive.unanswered_changes().iter().map(|c| format!("`{}` at {:.1} s", c.change, c.t_s)).collect();
    if !unanswered.is_empty() && adaptive.anticipated_change().is_none() {
        bail!(
            "no exchange answered the change of the path {} (of {} exchanges, {} came into force)",
            unanswered.join(", nor "),
            adaptive.exchanges.len(),
            adaptive.agreed().count()
        );
    }
    Ok(())
}

/// The error of an end that was asked for.
fn check_stop(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

/// Version line of the program; at the same time a test if it can be run at all.
fn version_of(uts: &Path) -> Result<String> {
    let output = Command::new(uts)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {} (--uts names another program)", uts.display()))?;
    if !output.status.success() {
        bail!("`{} --version` failed with {}", uts.display(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
}

/// Machine that this runs on, as far as the system tells.
fn machine() -> Machine {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let system = [read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")];
    Machine {
        processor: machine::processor().unwrap_or_else(|| std::env::consts::ARCH.into()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mib: machine::memory_bytes().map(|bytes| bytes >> 20),
        system: match system.map(|s| s.trim().to_owned()) {
            [os, _] if os.is_empty() => std::env::consts::OS.into(),
            [os, release] => format!("{os} {release}"),
        },
    }
}
