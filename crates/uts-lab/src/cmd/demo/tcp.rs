//! The kernel's TCP on the demonstration's path: between two hosts of network namespaces.

use crate::control::Controls;
use crate::experiment::file::Experiment;
use crate::experiment::outcome::{Outcome, RunError};
use crate::experiment::plan::Plan;
use crate::worlds::ends::Programs;
use crate::worlds::router::RouterWorld;
use crate::worlds::{self, Room, World};
use anyhow::{Context, Result, bail};
use std::path::Path;
use uts_demo::{Beside, Carried, Job};
use uts_path::{Direction, Target};
use uts_record::demo::Queue;

/// The link that carries the data, as the samples of a run name it.
const FORWARD: &str = "path forward";

/// Kernel TCP, with CUBIC (RFC 9438) as most systems have it.
#[derive(Debug)]
pub struct KernelTcp(RouterWorld);

impl KernelTcp {
    /// TCP of this machine's kernel.
    ///
    /// # Errors
    /// The machine permits no namespaces, and the command that would permit them.
    pub fn new() -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        Ok(KernelTcp(RouterWorld::new(Programs::new(program, &["end"]))?))
    }
}

impl Beside for KernelTcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn heading(&self) -> &'static str {
        "the kernel's TCP with CUBIC, between network namespaces"
    }

    fn carry(&self, job: &Job<'_>) -> Result<Carried> {
        let text = experiment(job);
        let plan = Plan::new(&Experiment::parse(Path::new("the demonstration"), &text)?, &[])?;
        let case = plan.cases.first().context("an experiment without a case")?;
        if let Some(why) = self.0.refuses(case) {
            bail!(why);
        }
        let dir = tempfile::Builder::new().prefix("uts-demo-").tempdir()?;
        let samples = dir.path().join("samples");
        std::fs::create_dir(&samples)?;
        let room = Room { dir: dir.path(), stop: job.stop, controls: &Controls::default() };
        let outcome = self.0.run(case, &room).map_err(|error| match error {
            RunError::Interrupted => anyhow::anyhow!("interrupted"),
            RunError::Failed(why) => anyhow::anyhow!(why),
        })?;
        carried(text, &samples, &outcome)
    }
}

fn experiment(job: &Job<'_>) -> String {
    let Job { bytes, settings, schedule, seed, limit, .. } = job;
    let schedule: Vec<String> = schedule.entries.iter().map(ToString::to_string).collect();
    format!(
        "title = \"The path of the demonstration\"\nquestion = \"What does TCP do?\"\nworld = \"router\"\n\
         seed = {seed}\ntimeout = \"{}s\"\n[path.path]\nforward = \"{settings}\"\nschedule = \"{}\"\n\
         [workload.file]\nkind = \"bulk\"\nbytes = {bytes}\n[transport.tcp]\nkind = \"tcp\"\n\
         congestion = \"cubic\"\n[record]\nqueue = true\n",
        limit.as_secs(),
        schedule.join("; "),
    )
}

/// Reads what a run has left, as the demonstration has it.
fn carried(command: String, samples: &Path, outcome: &Outcome) -> Result<Carried> {
    let mut carried = Carried { command, ..Carried::default() };
    worlds::read_rows(&samples.join("goodput.csv"), |(t_s, _, bytes): (f64, String, u64)| {
        carried.arrived.push((t_s, bytes));
    })?;
    let mut changes = Vec::new();
    let changed = samples.join("changes.csv");
    // There is no file where the path has not changed.
    if changed.exists() {
        worlds::read_rows(&changed, |row: (f64, String, String)| changes.push(row))?;
    }
    for (t_s, link, change) in changes {
        let target = match link.strip_prefix("path ") {
            Some("forward") => Target::One(Direction::Forward),
            Some("backward") => Target::One(Direction::Backward),
            Some("both") => Target::Both,
            _ => bail!("a change of {link}"),
        };
        let change = change.parse().with_context(|| format!("a change of the path: {change}"))?;
        carried.changes.push((t_s, target, change));
    }
    carried.queue = queue(&samples.join("queue.csv"))?;
    let count = |name: &str| outcome.measures.iter().find(|m| m.name == name).map(|m| m.value as u64);
    carried.packets_sent = count("packets_sent");
    carried.packets_repeated = count("packets_repeated");
    if let Some(link) = outcome.links.iter().find(|link| link.link == FORWARD) {
        carried.lost_on_wire = link.stats.dropped_loss;
        carried.dropped_by_queue = link.stats.dropped_queue;
    }
    Ok(carried)
}

fn queue(file: &Path) -> Result<Queue> {
    let mut queue = Queue::default();
    worlds::read_rows(file, |(t_s, link, packets, ..): (f64, String, u64, u64, Option<f64>)| {
        if link == FORWARD {
            queue.t_s.push(t_s);
            queue.packets.push(packets);
        }
    })?;
    Ok(queue)
}
