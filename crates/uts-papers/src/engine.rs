//! The engine as the sender of a paper's transfers, under named profiles.

use anyhow::{Result, anyhow, ensure};
use core::time::Duration;
use uts_engine::requirements::Requirements;
use uts_engine::{ConnectionConfig, ConnectionHandle, FlowId, TraceKind};
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::pair::Pair;
use uts_sim::transfer::{Progress, Transfers, checksum};
use uts_sim::{World, WorldConfig};

/// Asks for properties, each as `property=value`.
///
/// # Errors
/// There is no such property, or it has no such value.
pub fn ask(
    requirements: &mut Requirements,
    properties: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<()> {
    for property in properties {
        let property = property.as_ref();
        requirements.assign(property).map_err(|error| anyhow!("{property}: {error}"))?;
    }
    Ok(())
}

/// Two ends with a connection that has carried so many bytes in a flow, which is still open.
///
/// # Errors
/// The connection does not come to be, or ends.
pub fn carried(
    config: ConnectionConfig,
    delay: Duration,
    bytes: u64,
) -> Result<(Pair, ConnectionHandle, FlowId)> {
    let mut pair = Pair::new(config.clone(), delay)?;
    let handle = pair.connect(config)?;
    let flow = pair.open_flow(handle)?;
    pair.carry(handle, flow, bytes)?;
    Ok((pair, handle, flow))
}

/// One transfer or two, from hosts at one end of a path.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The path. Its overhead stands for all headers below the engine's own.
    pub path: PathConfig,
    /// Bytes of a full packet of the engine.
    pub packet_bytes: usize,
    /// Properties that the transfers ask for, as `property=value`.
    pub properties: &'a [&'a str],
    /// Bytes of a transfer.
    pub bytes: u64,
    /// Nothing of a transfer is sent before the profile is in force.
    pub awaits_exchange: bool,
    /// When another begins, if one does.
    pub second: Option<Duration>,
    /// Seed of the losses.
    pub seed: u64,
}

/// Result of a transfer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When its connection began.
    pub begins: Time,
    /// Packets of data: when they left, which byte of the transfer was the first in them, and
    /// whether they repeat.
    pub sent: Vec<(Time, u64, bool)>,
    /// When the receiver had all of it, if it had.
    pub done_at: Option<Time>,
    /// Why the connection ended, if it did.
    pub closed: Option<String>,
}

impl Outcome {
    /// From the first packet of data until the receiver had all; `None` if it had not.
    pub fn took(&self) -> Option<Duration> {
        Some(self.done_at?.since(self.sent.first()?.0))
    }
}

impl Setup<'_> {
    /// Carries it out, until all have ended or until `end`.
    ///
    /// # Errors
    /// There is no such property; the path is refused; what arrives is not what was sent.
    pub fn run(&self, end: Duration) -> Result<Vec<Outcome>> {
        let clients: &[usize] = if self.second.is_some() { &[1, 2] } else { &[1] };
        let path = self.path.clone();
        let mut config =
            WorldConfig { path, clients: clients.len(), seed: self.seed, ..WorldConfig::default() };
        // Where a round trip takes half a minute, silence says nothing.
        config.server.accept.idle_timeout = Duration::ZERO;
        // These protocols keep the size of their packets, whatever is lost.
        config.server.accept.packet_bytes_min = self.packet_bytes;
        let mut transfer = ConnectionConfig {
            packet_bytes_initial: self.packet_bytes,
            packet_bytes_min: self.packet_bytes,
            idle_timeout: Duration::ZERO,
            ..ConnectionConfig::default()
        };
        ask(&mut transfer.requirements, self.properties)?;
        // Some mechanisms need the consent of the end that receives.
        config.server.accept.requirements.consents = transfer.requirements.consents.clone();
        let mut world = World::new(config, Identities::new()?)?;
        clients.iter().for_each(|client| world.keep_packets(*client));
        let mut all = Transfers::start(&mut world, &[(1, transfer.clone())], self.bytes);
        all.awaits_exchange = self.awaits_exchange;
        if let Some(second) = self.second {
            // The first may be done before.
            while let Some(happening) = world.next(Time::ZERO + second) {
                all.handle(&mut world, &happening);
            }
            let late = Transfers::start(&mut world, &[(2, transfer)], self.bytes);
            all.progress.extend(late.progress);
        }
        all.run(&mut world, Time::ZERO + end);
        let begins = [Time::ZERO, Time::ZERO + self.second.unwrap_or_default()];
        let pairs = clients.iter().zip(begins);
        pairs
            .map(|(client, begins)| self.outcome(&mut world, *client, begins, &all.progress[client]))
            .collect()
    }

    fn outcome(
        &self,
        world: &mut World,
        client: usize,
        begins: Time,
        progress: &Progress,
    ) -> Result<Outcome> {
        let is_right = progress.done_at.is_none() || progress.checksum == checksum(self.bytes);
        ensure!(is_right, "host {client}: not what was sent has arrived");
        let rows = world.take_packets(client);
        let sent = rows.iter().filter_map(|(_, row)| {
            let is_repeat = match row.kind {
                TraceKind::Sent => false,
                TraceKind::Repeated => true,
                TraceKind::Acknowledged | TraceKind::Lost | TraceKind::Received => return None,
            };
            Some((row.at, row.data?.1, is_repeat))
        });
        Ok(Outcome {
            begins,
            sent: sent.collect(),
            done_at: progress.done_at,
            closed: progress.closed.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_in_vain_is_named() {
        let setup = Setup {
            path: PathConfig::default(),
            packet_bytes: 1200,
            properties: &["uts.profile=rx-9"],
            bytes: 1000,
            awaits_exchange: false,
            second: None,
            seed: 1,
        };
        let error = setup.run(Duration::from_secs(1)).expect_err("refused").to_string();
        assert!(error.starts_with("uts.profile=rx-9: "), "{error}");
    }
}
