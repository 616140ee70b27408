//! The same moves today: by the engine, under the profiles `v-blast-1` to `v-blast-4`, over an
//! Ethernet of 1 Gbit/s between hosts whose work costs nothing.

use crate::engine::Setup;
use anyhow::{Context, Result};
use core::time::Duration;
use uts_path::PathConfig;

/// Bytes of a UDP payload that fills an Ethernet frame.
const PACKET_BYTES: usize = 1472;

/// Time that an end of the profiles waits before it repeats by itself.
pub const TIMEOUT: Duration = Duration::from_millis(200);

/// Result of a move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// From its first packet until the receiver has all.
    pub took: Duration,
    /// Packets of data.
    pub packets: usize,
    /// Of these, repeats.
    pub repeats: usize,
}

/// Moves so many bytes by strategy 1 to 4. Packets on the way there are lost with probability
/// `loss`.
///
/// # Errors
/// It does not end.
pub fn run(strategy: usize, bytes: u64, loss: f64, seed: u64) -> Result<Moved> {
    let line = "rate=1gbit delay=10us framing=ethernet overhead=28 mtu=1500";
    let forward = format!("{line} loss={loss}").parse()?;
    let profile = format!("uts.profile=v-blast-{strategy}");
    let setup = Setup {
        path: PathConfig { forward, ..PathConfig::both(line.parse()?) },
        packet_bytes: PACKET_BYTES,
        properties: &[&profile, "uts.consent=all"],
        bytes,
        awaits_exchange: true,
        second: None,
        seed,
    };
    let outcome = setup.run(Duration::from_secs(3600))?.pop().context("one move was begun")?;
    let why = || format!("{profile}, seed {seed}: the move has not ended; closed: {:?}", outcome.closed);
    let took = outcome.took().with_context(why)?;
    let repeats = outcome.sent.iter().filter(|(.., repeats)| *repeats).count();
    Ok(Moved { took, packets: outcome.sent.len(), repeats })
}
