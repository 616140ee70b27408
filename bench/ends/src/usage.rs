//! What a process has used, and the core that it keeps to.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::time::Duration;

/// CPU seconds of this process, user and system.
pub fn cpu_s() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("getrusage")?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
}

/// CPU time of this thread: unlike the time of day it does not go on while others run on the core.
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Keeps this process, and threads that it starts from now on, to one core.
pub fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core).with_context(|| format!("core {core}"))?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot keep to core {core}"))
}

/// Keeps this thread to one core until it is dropped.
pub struct Pinned(CpuSet);

impl Pinned {
    /// To this one.
    pub fn to(core: usize) -> Result<Self> {
        let before = nix::sched::sched_getaffinity(Pid::from_raw(0)).context("affinity")?;
        pin(core)?;
        Ok(Pinned(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(Pid::from_raw(0), &self.0);
    }
}

/// Cores that this process may use, in ascending order.
pub fn cores() -> Vec<usize> {
    let Ok(set) = nix::sched::sched_getaffinity(Pid::from_raw(0)) else { return vec![0] };
    (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect()
}
