//! Hand-offs between radio cells (section 1.4): nothing passes for 150 ms, and no byte reaches the
//! application for longer than that.

use crate::engine::ask;
use crate::paper::{Series, push};
use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use core::time::Duration;
use uts_engine::{ConnectionConfig, Event, FlowOptions, MessageOptions, Read};
use uts_functions::Time;
use uts_path::{PathConfig, Target};
use uts_sim::identity::Identities;
use uts_sim::transfer::{Transfers, checksum};
use uts_sim::{World, WorldConfig};

/// A radio cell.
const PATH: &str = "rate=2mbit delay=20ms buffer=40p";
/// Length of a hand-off (section 1.4).
const HAND_OFF: Duration = Duration::from_millis(150);
/// The first hand-off that is tried begins then. The others are each a step later, so that they
/// come at other moments of the sender's.
const FIRST: Time = Time::from_millis(3000);
const STEP: Duration = Duration::from_millis(37);
const TRIED: u32 = 20;
const BYTES: u64 = 1_500_000;
/// A transfer takes less.
const END: Time = Time::from_millis(60_000);
const CLIENT: usize = 1;
/// Bytes of a message that needs no order, and for how long behind a hand-off they are looked at.
const MESSAGE_BYTES: usize = 1200;
const MESSAGES_GO_ON: Duration = Duration::from_millis(1500);
/// Milliseconds of a picture, since a hand-off began.
const SHOWN_MS: core::ops::Range<f64> = -200.0..2000.0;

/// A transfer with a hand-off.
struct Passed {
    /// Each time that the application got something: when, and how much it had then.
    delivered: Vec<(Time, u64)>,
    /// When the hand-off began.
    began: Time,
}

impl Passed {
    /// The longest wait for data since the hand-off began, or shortly before.
    fn pause(&self) -> Duration {
        let pairs = self.delivered.iter().zip(&self.delivered[1..]);
        let behind = pairs.filter(|(_, (at, _))| *at >= self.began);
        behind.map(|((before, _), (at, _))| at.since(*before)).max().unwrap_or_default()
    }
}

/// A transfer under a profile, or as the policy chooses, with a hand-off.
fn transfer(profile: Option<&str>, began: Time, seed: u64) -> Result<Passed> {
    let mut client = ConnectionConfig::default();
    if let Some(name) = profile {
        ask(&mut client.requirements, [&*format!("uts.profile={name}"), "uts.consent=all"])?;
    }
    let path = PathConfig::both(PATH.parse().map_err(|error| anyhow!("{PATH}: {error}"))?);
    let mut config = WorldConfig { path, seed, ..WorldConfig::default() };
    config.server.accept.requirements.consents = client.requirements.consents.clone();
    let mut world = World::new(config, Identities::new()?)?;
    let mut transfers = Transfers::start(&mut world, &[(CLIENT, client)], BYTES);
    transfers.awaits_exchange = profile.is_some();
    let mut delivered = vec![(Time::ZERO, 0)];
    let changes = [(began, "loss=1"), (began + HAND_OFF, "loss=0")];
    for (until, change) in changes.into_iter().map(|(at, change)| (at, Some(change))).chain([(END, None)]) {
        while !transfers.is_done()
            && let Some(happening) = world.next(until)
        {
            transfers.handle(&mut world, &happening);
            let received = transfers.progress[&CLIENT].received;
            if delivered.last().is_none_or(|(_, before)| *before < received) {
                delivered.push((world.now(), received));
            }
        }
        if let Some(change) = change {
            world.set_path(Target::Both, change).map_err(|error| anyhow!("{change}: {error}"))?;
        }
    }
    let progress = &transfers.progress[&CLIENT];
    ensure!(
        progress.checksum == checksum(BYTES),
        "{} of {BYTES} bytes: {:?}",
        progress.received,
        progress.closed
    );
    Ok(Passed { delivered, began })
}

/// Messages that need no order, as fast as they are taken, with a hand-off: each is handed over as
/// it arrives.
fn messages(began: Time, seed: u64) -> Result<Passed> {
    let mut client = ConnectionConfig::default();
    ask(&mut client.requirements, ["preserveMsgBoundaries=require", "preserveOrder=prohibit"])?;
    let path = PathConfig::both(PATH.parse().map_err(|error| anyhow!("{PATH}: {error}"))?);
    let config = WorldConfig { path, seed, ..WorldConfig::default() };
    let mut world = World::new(config, Identities::new()?)?;
    let handle = world.connect(CLIENT, client)?;
    let (mut flow, mut received) = (None, 0);
    let mut delivered = vec![(Time::ZERO, 0)];
    let changes = [(began, "loss=1"), (began + HAND_OFF, "loss=0"), (began + MESSAGES_GO_ON, "loss=0")];
    for (until, change) in changes {
        while let Some(happening) = world.next(until) {
            let now = world.now();
            let connection = world.connection(happening.node, happening.connection);
            let connection = connection.context("the connection is gone")?;
            match happening.event {
                Event::Closed(reason) => return Err(anyhow!("{reason}")),
                Event::Connected if happening.node == CLIENT => {
                    flow = Some(connection.open_flow(FlowOptions::default())?);
                }
                Event::Readable(flow) => {
                    while let Ok(Read::Message(data)) = connection.read(now, flow, 1 << 16) {
                        received += data.len() as u64;
                        delivered.push((now, received));
                    }
                }
                _ => {}
            }
            if let Some(flow) = flow {
                let sender = world.connection(CLIENT, handle).context("the connection is gone")?;
                let message = || Bytes::from_static(&[7; MESSAGE_BYTES]);
                while sender.send_message(now, flow, message(), MessageOptions::default()).is_ok() {}
            }
        }
        world.set_path(Target::Both, change).map_err(|error| anyhow!("{change}: {error}"))?;
    }
    Ok(Passed { delivered, began })
}

/// Pauses in twenty runs of messages that need no order, with a hand-off in each.
///
/// # Errors
/// The connection ends.
pub fn pauses_of_messages() -> Result<Series> {
    let pauses =
        (0..TRIED).map(|n| Ok(messages(FIRST + STEP * n, u64::from(n) + 1)?.pause().as_secs_f64() * 1e3));
    Ok(Series::from([("pause".into(), pauses.collect::<Result<_>>()?)]))
}

/// Pauses in twenty transfers, with a hand-off in each, and what one of them delivers around it.
///
/// # Errors
/// There is no such profile; a transfer fails.
pub fn pauses(profile: Option<&str>) -> Result<Series> {
    let mut series = Series::new();
    for n in 0..TRIED {
        let passed = transfer(profile, FIRST + STEP * n, u64::from(n) + 1)?;
        push(&mut series, [("pause", passed.pause().as_secs_f64() * 1e3)]);
        if n > 0 {
            continue;
        }
        let (_, before) =
            *passed.delivered.iter().rfind(|(at, _)| *at < FIRST).context("nothing before it")?;
        for (at, bytes) in &passed.delivered {
            let at_ms = (at.since(Time::ZERO).as_secs_f64() - FIRST.since(Time::ZERO).as_secs_f64()) * 1e3;
            if SHOWN_MS.contains(&at_ms) {
                push(&mut series, [("at", at_ms), ("kilobytes", (*bytes as f64 - before as f64) / 1e3)]);
            }
        }
    }
    Ok(series)
}
