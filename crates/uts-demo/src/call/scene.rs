//! The course of the call.
//!
//! Anna and Ben talk. Clara, who shares Anna's line to the world, joins: the line is too narrow for
//! two large pictures, and levels fall. In mid-call she leaves the house, and her computer goes on
//! by a mobile network, from another address. Levels return. She hangs up, and the call ends.

use super::log::Log;
use super::person::{LEVELS, listen, requirements, speak};
use crate::call::log::Kind;
use anyhow::{Context, Result};
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use uts::simulation::{Network, Target};
use uts::{ConnectOptions, Connection, Fingerprint, Identity, Listener, ServerOptions, connect};
use uts_record::call::{FORMAT, Happening, Level, Person, Record};

/// Participants, by their places in the record.
pub const ANNA: usize = 0;
/// See [`ANNA`].
pub const BEN: usize = 1;
/// See [`ANNA`].
pub const CLARA: usize = 2;

const NAMES: [&str; 3] = ["Anna", "Ben", "Clara"];

/// When Clara joins, goes over to another network, and leaves; and the end, in seconds.
pub const JOINS_S: f64 = 25.0;
/// See [`JOINS_S`].
pub const HAND_OVER_S: f64 = 60.0;
/// See [`JOINS_S`].
pub const LEAVES_S: f64 = 130.0;
/// See [`JOINS_S`].
const END_S: f64 = 140.0;

/// The house of Anna and Clara, whose line they share; Ben's; and Clara under way.
const HOUSE: [u8; 4] = [10, 0, 0, 1];
const BENS: [u8; 4] = [10, 0, 0, 2];
const UNDER_WAY: [u8; 4] = [10, 7, 0, 3];

const PORT: u16 = 4433;

/// The line of the house, the network within it, and the mobile network.
const LINE: &str = "rate=3400kbit delay=20ms buffer=64p";
const WITHIN: &str = "rate=100mbit delay=1ms";
const MOBILE: &str = "rate=8mbit delay=45ms jitter=4ms loss=1%";

/// Plays it.
///
/// # Errors
/// A connection cannot be made, or a setting is wrong.
pub(super) async fn play(seed: u64, command: &str) -> Result<Record> {
    let network = Network::begin(MOBILE, seed)?;
    network.change_between([HOUSE.into(), BENS.into()], Target::Both, LINE)?;
    network.change_between([HOUSE.into(), HOUSE.into()], Target::Both, WITHIN)?;
    let begun = Instant::now();
    let mut cast = Cast { begun, logs: Vec::new(), tasks: JoinSet::new() };
    let (of_anna, anna) = open(HOUSE)?;
    let (of_ben, ben) = open(BENS)?;

    network.set_host(HOUSE.into());
    let anna_to_ben = cast.call([ANNA, BEN], (&of_ben, ben)).await?;
    until(begun, JOINS_S).await;
    let of_clara =
        [cast.call([CLARA, BEN], (&of_ben, ben)).await?, cast.call([CLARA, ANNA], (&of_anna, anna)).await?];
    until(begun, HAND_OVER_S).await;
    for connection in &of_clara {
        let at = connection.local_addr();
        network.rebind(at, SocketAddr::new(UNDER_WAY.into(), at.port())).context("Clara cannot move")?;
    }
    until(begun, LEAVES_S).await;
    for connection in &of_clara {
        connection.close(0, "goodbye").await;
    }
    until(begun, END_S).await;
    anna_to_ben.close(0, "goodbye").await;
    // All tasks end with their connections.
    while let Some(ended) = cast.tasks.join_next().await {
        ended.context("a participant has failed")??;
    }
    Ok(record(seed, command, &cast.logs))
}

/// The participants' programs, and what they log.
struct Cast {
    begun: Instant,
    logs: Vec<Log>,
    tasks: JoinSet<Result<()>>,
}

impl Cast {
    /// One calls another, who listens: both speak and listen until the connection ends.
    async fn call(
        &mut self,
        [caller, called]: [usize; 2],
        (listener, fingerprint): (&Listener, Fingerprint),
    ) -> Result<Connection> {
        let mut options = ConnectOptions::pinned(fingerprint);
        options.connection.requirements = requirements(Kind::Picture)?;
        let at = listener.local_addr().to_string();
        let (connected, accepted) = tokio::join!(connect(&at, options), listener.accept());
        let connected = connected.context("a call is not answered")?;
        let accepted = accepted.context("nobody listens any more")?;
        for (connection, from, to) in [(connected.clone(), caller, called), (accepted, called, caller)] {
            let (says, hears) = (self.log(from, to), self.log(to, from));
            self.tasks.spawn(speak(connection.clone(), says, from == ANNA));
            self.tasks.spawn(async move {
                listen(connection, hears).await;
                Ok(())
            });
        }
        Ok(connected)
    }

    /// The log of a stream, which both its ends write.
    fn log(&mut self, from: usize, to: usize) -> Log {
        if let Some(log) = self.logs.iter().find(|log| log.is_of(from, to)) {
            return log.clone();
        }
        let log = Log::new(self.begun, from, to);
        self.logs.push(log.clone());
        log
    }
}

/// Somebody who can be called at a host.
fn open(host: [u8; 4]) -> Result<(Listener, Fingerprint)> {
    let identity = Identity::generate().context("no key can be made")?;
    let fingerprint = identity.fingerprint();
    let mut options = ServerOptions::new(identity);
    options.connection.requirements = requirements(Kind::Picture)?;
    let listener = Listener::bind(SocketAddr::new(IpAddr::from(host), PORT), options)?;
    Ok((listener, fingerprint))
}

async fn until(begun: Instant, second: f64) {
    sleep_until(begun + Duration::from_secs_f64(second)).await;
}

fn record(seed: u64, command: &str, logs: &[Log]) -> Record {
    let stays = [(0.0, END_S), (0.0, END_S), (JOINS_S, LEAVES_S)];
    let people = NAMES.iter().zip(stays);
    let happening = |t_s, short: &str, text: &str| Happening { t_s, short: short.into(), text: text.into() };
    Record {
        format: FORMAT,
        version: format!("uts-lab {}", env!("CARGO_PKG_VERSION")),
        command: command.to_owned(),
        seed,
        end_s: END_S,
        paths: vec![
            format!("The line of the house of Anna and Clara, each way: {LINE}."),
            format!("Within the house: {WITHIN}."),
            format!("The mobile network, between Clara and each of the others: {MOBILE}."),
        ],
        levels: LEVELS
            .iter()
            .map(|(name, kbit_s, _)| Level { name: (*name).into(), kbit_s: *kbit_s })
            .collect(),
        people: people.map(|(name, (from_s, to_s))| Person { name: (*name).into(), from_s, to_s }).collect(),
        happenings: vec![
            happening(JOINS_S, "Clara joins", "Clara joins, by the line that Anna uses."),
            happening(
                HAND_OVER_S,
                "Clara moves",
                "Clara leaves the house: her computer goes on by a mobile network, from another address.",
            ),
            happening(LEAVES_S, "Clara leaves", "Clara hangs up."),
        ],
        streams: logs.iter().map(Log::finish).collect(),
    }
}
