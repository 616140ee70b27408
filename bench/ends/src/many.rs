//! What measurements with many connections have in common.

use crate::{Outcome, Task, summary, usage};
use anyhow::Result;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Counts what a server accepts, and what that costs it.
pub struct Counter {
    /// Connections so far.
    pub accepted: Arc<AtomicU64>,
    cpu_before: f64,
}

/// One more.
pub fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Counter {
    /// Begins now.
    pub fn start() -> Result<Self> {
        Ok(Counter { accepted: Arc::default(), cpu_before: usage::cpu_s()? })
    }

    /// What was found.
    pub fn finish(&mut self) -> Result<Outcome> {
        let count = self.accepted.load(Ordering::Relaxed);
        anyhow::ensure!(count > 0, "nothing was accepted");
        Ok(Outcome { count, cpu_s: usage::cpu_s()? - self.cpu_before, ..Outcome::default() })
    }
}

/// Counts what a client connects, and times some of it.
pub struct Shakes {
    started: Instant,
    cpu_before: f64,
    took_ns: Vec<u64>,
    /// Connections so far.
    pub count: u64,
}

impl Shakes {
    /// Begins now.
    pub fn start() -> Result<Self> {
        Ok(Shakes { started: Instant::now(), cpu_before: usage::cpu_s()?, took_ns: Vec::new(), count: 0 })
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// One more, that nothing else was under way with.
    pub fn took(&mut self, time: Duration) {
        self.took_ns.push(time.as_nanos() as u64);
        self.count += 1;
    }

    /// What was found.
    pub fn finish(mut self) -> Result<Outcome> {
        self.took_ns.sort_unstable();
        let us = |share| summary::percentile(&self.took_ns, share).unwrap_or(0) as f64 / 1e3;
        let cpu_s = usage::cpu_s()? - self.cpu_before;
        Ok(Outcome { p50_us: us(0.5), p99_us: us(0.99), count: self.count, cpu_s, ..Outcome::default() })
    }
}

/// For half of the time, connects one after the other, which measures how long it takes. Then keeps
/// `at_once` under way.
pub async fn handshakes<C>(task: &Task, at_once: usize, mut connect: impl FnMut() -> C) -> Result<Outcome>
where
    C: Future<Output = Result<()>> + Send + 'static,
{
    let mut shakes = Shakes::start()?;
    while shakes.elapsed() < task.duration / 2 {
        let before = Instant::now();
        connect().await?;
        shakes.took(before.elapsed());
    }
    let mut running = JoinSet::new();
    while shakes.elapsed() < task.duration {
        while running.len() < at_once {
            running.spawn(connect());
        }
        if let Some(done) = running.join_next().await {
            done??;
            shakes.count += 1;
        }
    }
    while let Some(done) = running.join_next().await {
        done??;
        shakes.count += 1;
    }
    shakes.finish()
}

/// How evenly something is shared: 1 = all have the same, 1/n = one has it all (Jain, 1984).
pub fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 0.0 }
}

/// Memory of this process, in bytes.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// How memory grows with connections, taken over the second half. Both ends of that half contain
/// the connections that were just made, and what the allocator keeps for the next.
pub struct Growth {
    seen: Vec<(usize, u64)>,
}

/// Connections between two looks.
const LOOK_EVERY: usize = 256;

impl Growth {
    /// Before the first of them.
    pub fn start() -> Self {
        Growth { seen: vec![(0, resident_bytes())] }
    }

    /// There are this many now.
    pub fn look(&mut self, count: usize) {
        if count.is_multiple_of(LOOK_EVERY) {
            self.seen.push((count, resident_bytes()));
        }
    }

    /// Bytes for each.
    pub fn bytes_each(&self) -> f64 {
        let (Some(last), Some(half)) = (self.seen.last(), self.seen.get(self.seen.len() / 2)) else {
            return f64::NAN;
        };
        last.1.saturating_sub(half.1) as f64 / (last.0 - half.0) as f64
    }
}

/// Memory that this machine has left, in bytes.
pub fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib: u64 = line
        .and_then(|l| l.split_whitespace().next())
        .and_then(|n| n.parse().ok())
        .unwrap_or(u64::MAX / 1024);
    kib * 1024
}

/// CPU seconds per second that this process takes while nothing happens.
pub async fn idle_cpu(while_idle: Duration) -> Result<f64> {
    let (start, before) = (Instant::now(), usage::cpu_s()?);
    tokio::time::sleep(while_idle).await;
    Ok((usage::cpu_s()? - before) / start.elapsed().as_secs_f64())
}
