//! The same line under the engine: transfers by named profiles, Rx's and one of today.

use super::sender::State;
use super::world::{Line, TRANSFER_BYTES};
use anyhow::{Result, anyhow, ensure};
use core::time::Duration;
use uts_engine::{ConnectionConfig, TraceKind};
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::transfer::{Progress, Transfers, checksum};
use uts_sim::{World, WorldConfig};

/// Headers of IP and UDP.
const HEADER_BYTES: u32 = 28;
/// SLIP's END before and after each packet.
const END_BYTES: u32 = 2;
/// Header, frame and seal of the engine take so much more of a full packet than Rx's header does.
const BEYOND_RX_BYTES: u32 = 8;

/// One transfer or two, from hosts behind one gateway.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// What the transfers ask for, as `property=value`.
    pub properties: &'a [&'a str],
    /// When another begins, if one does.
    pub second: Option<Duration>,
    /// Whether the line charges packets by what they carry: one with 520 bytes of the transfer has
    /// 576, as in the paper. Nothing of the transfer is sent before the profile is in force then.
    pub as_rx: bool,
}

/// What came of a transfer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When its connection began.
    pub begins: Time,
    /// Packets of data: when they left, which byte of the transfer was the first in them, and
    /// whether they repeat.
    pub sent: Vec<(Time, u64, bool)>,
    /// How it stands at the end.
    pub state: State,
}

impl Setup<'_> {
    /// Bytes that the line takes for headers and SLIP, beside the engine's packets.
    fn overhead(&self) -> u32 {
        let less = if self.as_rx { BEYOND_RX_BYTES } else { 0 };
        HEADER_BYTES + END_BYTES - less
    }

    /// A line whose bytes take as long as SLIP's. It does not look at them: what is encrypted would
    /// need other escapes in each run.
    fn path(&self, line: &Line) -> Result<PathConfig> {
        let (rate_bps, overhead) = (line.rate_bps * 8 / 10, self.overhead());
        let (mtu_bytes, queue) = (line.mtu_bytes + END_BYTES, line.queue_packets);
        let text = format!("rate={rate_bps}bit overhead={overhead} mtu={mtu_bytes} buffer={queue}p");
        Ok(PathConfig::both(text.parse()?))
    }

    /// Carries it out, until all have ended or until `end`.
    ///
    /// # Errors
    /// There is no such property; what arrives is not what was sent.
    pub fn over_line(&self, line: &Line, end: Duration) -> Result<Vec<Outcome>> {
        let clients: &[usize] = if self.second.is_some() { &[1, 2] } else { &[1] };
        let path = self.path(line)?;
        let mut config = WorldConfig { path, clients: clients.len(), seed: 1, ..WorldConfig::default() };
        // Where a round trip takes half a minute, silence says nothing.
        config.server.accept.idle_timeout = Duration::ZERO;
        let mut world = World::new(config, Identities::new()?)?;
        let mut transfer = ConnectionConfig {
            packet_bytes_initial: (line.mtu_bytes + END_BYTES - self.overhead()) as usize,
            idle_timeout: Duration::ZERO,
            ..ConnectionConfig::default()
        };
        for property in self.properties {
            transfer.requirements.assign(property).map_err(|error| anyhow!("{property}: {error}"))?;
        }
        clients.iter().for_each(|client| world.keep_packets(*client));
        let mut all = Transfers::start(&mut world, &[(1, transfer.clone())], TRANSFER_BYTES.into());
        all.awaits_exchange = self.as_rx;
        if let Some(second) = self.second {
            // The first may be done before.
            while let Some(happening) = world.next(Time::ZERO + second) {
                all.handle(&mut world, &happening);
            }
            let late = Transfers::start(&mut world, &[(2, transfer)], TRANSFER_BYTES.into());
            all.progress.extend(late.progress);
        }
        all.run(&mut world, Time::ZERO + end);
        let begins = [Time::ZERO, Time::ZERO + self.second.unwrap_or_default()];
        let pairs = clients.iter().zip(begins);
        pairs.map(|(client, begins)| outcome(&mut world, *client, begins, &all.progress[client])).collect()
    }
}

fn outcome(world: &mut World, client: usize, begins: Time, progress: &Progress) -> Result<Outcome> {
    let state = match (progress.done_at, &progress.closed) {
        (Some(at), _) => State::Done(at),
        (None, Some(_)) => State::GivenUp(world.now()),
        (None, None) => State::Open,
    };
    let is_right = progress.done_at.is_none() || progress.checksum == checksum(TRANSFER_BYTES.into());
    ensure!(is_right, "host {client}: not what was sent has arrived");
    let rows = world.take_packets(client);
    let sent = rows.iter().filter_map(|(_, row)| {
        let is_repeat = match row.kind {
            TraceKind::Sent => false,
            TraceKind::Repeated => true,
            TraceKind::Acknowledged | TraceKind::Lost => return None,
        };
        Some((row.at, row.data?.1, is_repeat))
    });
    Ok(Outcome { begins, sent: sent.collect(), state })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine sends what Rx would: the same packets, in a window of fifteen.
    #[test]
    fn a_packet_carries_as_much_as_one_of_rx() {
        let properties = ["uts.profile=rx-3.1", "uts.profile.timing=fixed(timeout=12000)", "uts.consent=all"];
        let setup = Setup { properties: &properties, second: None, as_rx: true };
        let outcomes = setup.over_line(&Line::SLIP, Duration::from_secs(300)).expect("it runs");
        let sent = &outcomes[0].sent;
        assert_eq!((outcomes.len(), sent.len()), (1, 193));
        let carried: Vec<u64> = sent.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        assert!(carried.iter().filter(|bytes| (518..=521).contains(*bytes)).count() >= 190, "{carried:?}");
        let window = sent.iter().filter(|(at, ..)| *at < sent[0].0 + Duration::from_millis(100)).count();
        assert_eq!(window, 15);
    }

    #[test]
    fn what_is_asked_for_in_vain_is_named() {
        let setup = Setup { properties: &["uts.profile=rx-9"], second: None, as_rx: false };
        let error = setup.over_line(&Line::SLIP, Duration::from_secs(1)).expect_err("refused").to_string();
        assert!(error.starts_with("uts.profile=rx-9: "), "{error}");
    }
}
