//! The cost of choosing mechanisms while the program runs. Compares the functions of a packet with
//! mechanisms that the compiler knows to the same functions by way of slots, and says how much of a
//! packet of the whole engine the difference is.

use super::engine::{PROFILES, Pair, Profile};
use crate::summary::Summary;
use crate::usage::thread_time;
use anyhow::{Context, Result};
use serde::Serialize;

/// The code that `scripts/instructions` counts.
#[path = "../../../crates/uts-functions/examples/adaptivity/stack.rs"]
mod stack;

/// What adaptivity costs with a profile.
#[derive(Debug, Serialize)]
pub struct Adaptivity {
    /// The profile.
    pub profile: &'static str,
    /// Nanoseconds for the functions of a packet at both ends, mechanisms named in the source.
    pub named_ns: Summary,
    /// The same by way of slots.
    pub synthesised_ns: Summary,
    /// One packet of two engines in memory with synthesised stacks, then one of engines without, in
    /// turn.
    pub ratio: Summary,
}

/// Measures each of both profiles in this many turns.
pub fn measure(turns: usize, packets: u64, progress: impl Fn(String)) -> Result<Vec<Adaptivity>> {
    PROFILES.iter().map(|profile| compare(profile, turns, packets, &progress)).collect()
}

fn compare(
    &Profile { name, property, protects }: &Profile,
    turns: usize,
    packets: u64,
    progress: impl Fn(String),
) -> Result<Adaptivity> {
    let mut named = stack::named(protects);
    let mut synthesised = stack::synthesised(protects).context("the library lacks a mechanism")?;
    let mut engines = Pair::connect(&[property])?;
    let (mut named_ns, mut synthesised_ns, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let time = |carry: &mut stack::Carrier| {
        let since = thread_time();
        std::hint::black_box(carry(packets));
        (thread_time() - since).as_nanos() as f64 / packets as f64
    };
    for turn in 1..=turns {
        progress(format!("adaptivity, {name}, turn {turn} of {turns}"));
        let before = time(&mut named);
        let slots = time(&mut synthesised);
        // What becomes slower or faster meanwhile meets both alike.
        let fixed = f64::midpoint(before, time(&mut named));
        let [sender, receiver] = engines.carry(packets)?;
        let whole = (sender + receiver).as_nanos() as f64 / packets as f64;
        ratios.push(whole / (whole - (slots - fixed)));
        named_ns.push(fixed);
        synthesised_ns.push(slots);
    }
    let summary = |values| Summary::of(values).context("no turns");
    Ok(Adaptivity {
        profile: name,
        named_ns: summary(named_ns)?,
        synthesised_ns: summary(synthesised_ns)?,
        ratio: summary(ratios)?,
    })
}
