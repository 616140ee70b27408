//! The same line under the engine: two transfers by a named profile of today.

use super::sender::State;
use super::world::{Line, TRANSFER_BYTES};
use anyhow::{Result, anyhow, ensure};
use core::time::Duration;
use std::collections::BTreeMap;
use uts_engine::{ConnectionConfig, TraceKind};
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::transfer::{Transfers, checksum};
use uts_sim::{World, WorldConfig};

/// Headers of IP and UDP.
const HEADER_BYTES: u32 = 28;
/// SLIP's END before and after each packet.
const END_BYTES: u32 = 2;

/// What came of a transfer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When it began, with its handshake.
    pub begins: Time,
    /// Packets of data: when they left, which byte of the transfer was the first in them, and
    /// whether they repeat.
    pub sent: Vec<(Time, u64, bool)>,
    /// How it stands at the end.
    pub state: State,
}

/// A line whose bytes take as long as SLIP's. It does not look at them: what is encrypted would
/// need other escapes in each run.
fn path(line: &Line) -> Result<PathConfig> {
    let Line { rate_bps, mtu_bytes, queue_packets, .. } = line;
    let (rate_bps, overhead) = (rate_bps * 8 / 10, HEADER_BYTES + END_BYTES);
    let mtu_bytes = mtu_bytes + END_BYTES;
    let text = format!("rate={rate_bps}bit overhead={overhead} mtu={mtu_bytes} buffer={queue_packets}p");
    Ok(PathConfig::both(text.parse()?))
}

/// A transfer from time zero on and another from `second` on, from two hosts through one gateway,
/// until both have ended or until `end`.
///
/// # Errors
/// There is no such profile; what arrives is not what was sent.
pub fn over_line(line: &Line, profile: &str, second: Duration, end: Duration) -> Result<[Outcome; 2]> {
    let config = WorldConfig { path: path(line)?, clients: 2, seed: 1, ..WorldConfig::default() };
    let mut world = World::new(config, Identities::new()?)?;
    let mut transfer = ConnectionConfig {
        packet_bytes_initial: (line.mtu_bytes - HEADER_BYTES) as usize,
        ..ConnectionConfig::default()
    };
    let assigned = transfer.requirements.assign(&format!("uts.profile={profile}"));
    assigned.map_err(|error| anyhow!("uts.profile={profile}: {error}"))?;
    let begins = [Time::ZERO, Time::ZERO + second];
    for client in [1, 2] {
        world.keep_packets(client);
    }
    let mut all = Transfers::start(&mut world, &[(1, transfer.clone())], TRANSFER_BYTES.into());
    // The first may be done before the second begins.
    while let Some(happening) = world.next(begins[1]) {
        all.handle(&mut world, &happening);
    }
    let late = Transfers::start(&mut world, &[(2, transfer)], TRANSFER_BYTES.into());
    all.progress.extend(late.progress);
    all.run(&mut world, Time::ZERO + end);
    let mut outcomes = BTreeMap::new();
    for client in [1, 2] {
        let progress = &all.progress[&client];
        let state = match (progress.done_at, &progress.closed) {
            (Some(at), _) => State::Done(at),
            (None, Some(_)) => State::GivenUp(world.now()),
            (None, None) => State::Open,
        };
        let is_right = progress.checksum == checksum(TRANSFER_BYTES.into());
        ensure!(is_right || progress.done_at.is_none(), "{profile}: not what was sent has arrived");
        let rows = world.take_packets(client);
        let sent = rows.iter().filter_map(|(_, row)| {
            let is_repeat = match row.kind {
                TraceKind::Sent => false,
                TraceKind::Repeated => true,
                TraceKind::Acknowledged | TraceKind::Lost => return None,
            };
            Some((row.at, row.data?.1, is_repeat))
        });
        outcomes.insert(client, Outcome { begins: begins[client - 1], sent: sent.collect(), state });
    }
    let mut next =
        || outcomes.pop_first().map(|(_, outcome)| outcome).ok_or_else(|| anyhow!("two were begun"));
    Ok([next()?, next()?])
}
