//! The processor time of an exchange at each end: of a request that is answered, and of a profile
//! that is used at once.

use super::engine::Pair;
use crate::summary::Summary;
use anyhow::{Context, Result};
use serde::Serialize;

/// A way to come to another profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The peer is asked, and the profile is used once it has agreed.
    Asked,
    /// Packets carry the profile, and the peer opens it on sight.
    AtOnce,
}

impl How {
    fn name(self) -> &'static str {
        match self {
            How::Asked => "explicit: request, answer, confirmation",
            How::AtOnce => "implicit: packets carry the profile",
        }
    }
}

/// Processor time of an exchange.
#[derive(Debug, Serialize)]
pub struct ExchangeCost {
    /// The way of it.
    pub way: &'static str,
    /// Microseconds at the end that exchanges what it sends by.
    pub sender_us: Summary,
    /// Microseconds at the other end.
    pub receiver_us: Summary,
}

/// Measures both ways in this many turns. Each exchange comes with a byte of data. As many bytes
/// without an exchange are sent before, and their time is taken off.
pub fn measure(turns: usize, exchanges: u32, progress: impl Fn(String)) -> Result<Vec<ExchangeCost>> {
    let mut costs = Vec::new();
    for how in [How::Asked, How::AtOnce] {
        let mut pair = Pair::connect(&["uts.adapt=off", "uts.consent=all"])?;
        let mut times = [Vec::new(), Vec::new()];
        for turn in 1..=turns {
            progress(format!("exchange, {}, turn {turn} of {turns}", how.name()));
            let without = pair.exchange(None, exchanges)?;
            let with = pair.exchange(Some(how), exchanges)?;
            for ((times, with), without) in times.iter_mut().zip(with).zip(without) {
                let more_us = (with.as_secs_f64() - without.as_secs_f64()) * 1e6;
                times.push(more_us / f64::from(exchanges));
            }
        }
        let [sender_us, receiver_us] = times.map(|us| Summary::of(us).context("no turns"));
        costs.push(ExchangeCost { way: how.name(), sender_us: sender_us?, receiver_us: receiver_us? });
    }
    Ok(costs)
}
