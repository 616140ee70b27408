//! What the parts of UTS cost for a packet, each by itself in one thread.
//!
//! A part is a plain loop. All parts run in turns, and the median of the turns counts. Other work
//! on the machine then affects all of them alike. Inputs are in cache: the figures are the cost of
//! the work, not of fetching data. Only `passes` says both.

mod adaptivity;
mod engine;
mod exchange;
mod functions;
mod packet;
mod passes;

pub use adaptivity::Adaptivity;
pub use exchange::ExchangeCost;
pub use passes::Passes;

use crate::summary::Summary;
use crate::usage::{Pinned, cores, thread_time};
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

/// Bytes of data in a packet.
pub const DATA_BYTES: usize = 1400;

/// Runs a part for this many packets; says how long that took, preparations left out.
type Run = Box<dyn FnMut(u64) -> Result<Duration>>;

/// One part.
pub struct Part {
    function: &'static str,
    name: String,
    /// Bytes of data in each packet; 0 where the cost does not depend on them.
    bytes: usize,
    run: Run,
}

/// What a part costs.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// The function that it belongs to.
    pub function: &'static str,
    /// The part.
    pub part: String,
    /// Bytes of data in each packet; 0 where the cost does not depend on them.
    pub bytes: usize,
    /// Nanoseconds per packet.
    pub ns: Summary,
}

/// What a packet costs where functions are left out.
#[derive(Debug, Serialize)]
pub struct Factor {
    /// Which.
    pub left_out: String,
    /// Bytes of data in each packet.
    pub bytes: usize,
    /// Nanoseconds per packet at the sender.
    pub sender_ns: Summary,
    /// Nanoseconds per packet at the receiver.
    pub receiver_ns: Summary,
}

impl Part {
    fn new(function: &'static str, name: impl Into<String>, bytes: usize, run: Run) -> Self {
        Part { function, name: name.into(), bytes, run }
    }

    /// A part that needs no preparation: `step` is one packet.
    fn plain(
        function: &'static str,
        name: impl Into<String>,
        bytes: usize,
        mut step: impl FnMut() + 'static,
    ) -> Self {
        let run = move |packets| {
            let start = thread_time();
            for _ in 0..packets {
                step();
            }
            Ok(thread_time() - start)
        };
        Part::new(function, name, bytes, Box::new(run))
    }
}

/// Measures the engine with functions left out.
pub fn factors(is_quick: bool, progress: impl Fn(String)) -> Result<Vec<Factor>> {
    let _pinned = pinned()?;
    let (turns, packets) = if is_quick { (3, 5_000) } else { (9, 20_000) };
    engine::factors(turns, packets, progress)
}

/// Keeps this thread to one core while it is held.
fn pinned() -> Result<Option<Pinned>> {
    cores().last().map(|core| Pinned::to(*core)).transpose()
}

/// Measures what it costs that mechanisms are chosen while the program runs.
pub fn adaptivity(is_quick: bool, progress: impl Fn(String)) -> Result<Vec<Adaptivity>> {
    let _pinned = pinned()?;
    let (turns, packets) = if is_quick { (9, 20_000) } else { (31, 50_000) };
    adaptivity::measure(turns, packets, progress)
}

/// Measures the processor time of an exchange at each end.
pub fn exchanges(is_quick: bool, progress: impl Fn(String)) -> Result<Vec<ExchangeCost>> {
    let _pinned = pinned()?;
    let (turns, exchanges) = if is_quick { (5, 500) } else { (15, 2_000) };
    exchange::measure(turns, exchanges, progress)
}

/// Measures one pass over a packet's data against passes in turn.
pub fn passes(is_quick: bool, progress: impl Fn(String)) -> Result<Vec<Passes>> {
    let _pinned = pinned()?;
    passes::measure(if is_quick { 5 } else { 15 }, progress)
}

/// Measures all parts.
pub fn measure(is_quick: bool, progress: impl Fn(String)) -> Result<Vec<Cost>> {
    let _pinned = pinned()?;
    let (turns, turn) =
        if is_quick { (5, Duration::from_millis(15)) } else { (15, Duration::from_millis(30)) };
    let mut parts = packet::parts()?;
    parts.extend(functions::parts()?);
    parts.extend(engine::parts()?);
    let mut sizes = Vec::new();
    for part in &mut parts {
        progress(format!("{}: {}", part.function, part.name));
        sizes.push(size(part, turn)?);
    }
    let mut turns_ns: Vec<Vec<f64>> = vec![Vec::new(); parts.len()];
    for number in 1..=turns {
        progress(format!("parts, turn {number} of {turns}"));
        for ((part, packets), times) in parts.iter_mut().zip(&sizes).zip(&mut turns_ns) {
            times.push((part.run)(*packets)?.as_nanos() as f64 / *packets as f64);
        }
    }
    let costs = parts.into_iter().zip(turns_ns).filter_map(|(part, times)| {
        Some(Cost { function: part.function, part: part.name, bytes: part.bytes, ns: Summary::of(times)? })
    });
    Ok(costs.collect())
}

/// How many packets take about as long as a turn.
fn size(part: &mut Part, turn: Duration) -> Result<u64> {
    let mut packets = 512;
    loop {
        let took = (part.run)(packets)?;
        if took >= turn / 4 || packets >= 1 << 24 {
            let wanted = packets as f64 * turn.as_secs_f64() / took.as_secs_f64().max(1e-9);
            return Ok((wanted as u64).clamp(512, 1 << 24));
        }
        packets *= 4;
    }
}
