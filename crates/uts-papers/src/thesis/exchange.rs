//! Exchanges of profiles while messages flow: the time from the decision to the first packet of the
//! new profile, how many there can be in a second, and what becomes of data.

use super::ends::{CLIENT, Ends, SERVER};
use crate::engine::ask;
use crate::paper::{Series, push};
use anyhow::{Context, Result, anyhow, ensure};
use core::time::Duration;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use uts_engine::{
    ConnectionConfig, Direction, EndpointConfig, Event, ExchangeError, ExchangeEvent, FlowId, MessageOptions,
    Read, TraceKind,
};
use uts_functions::mechanism::Promise;
use uts_functions::{Function, Mechanism, Profile, Time, library};
use uts_sim::WorldConfig;

/// Bytes of a message.
const MESSAGE_BYTES: usize = 200;
/// A message is sent this often.
const EVERY: Duration = Duration::from_micros(200);
/// Exchanges follow each other for this long.
const SPAN: Duration = Duration::from_millis(500);
/// Round trips, in microseconds: of a local network to that by a geostationary satellite.
const ROUND_TRIPS_US: [u64; 8] = [100, 1000, 10_000, 30_000, 100_000, 200_000, 400_000, 600_000];
/// Round trips at which exchanges are counted.
const RATES_US: [u64; 4] = [100, 1000, 10_000, 100_000];
/// Exchanges of the long run, and the longest time between two.
const EXCHANGES: usize = 4000;
const BETWEEN_MS: u64 = 5000;

/// Ways in which a profile comes into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By the three-way exchange.
    Asked,
    /// At once: packets carry the request.
    AtOnce,
    /// The same, where the peer no longer has the mechanism.
    Refused,
}

/// A connection over which messages flow.
struct Run {
    ends: Ends,
    sent: u32,
    /// Messages that have arrived, each as the next.
    received: u32,
    /// Messages that arrived other than as the next, or damaged.
    wrong: u32,
    outcomes: u32,
}

fn message(number: u32) -> Vec<u8> {
    let mut data = vec![number as u8; MESSAGE_BYTES];
    data[..4].copy_from_slice(&number.to_be_bytes());
    data
}

impl Run {
    fn new(path: &str, seed: u64, is_traced: bool) -> Result<Self> {
        let mut config = ConnectionConfig { idle_timeout: Duration::ZERO, ..ConnectionConfig::default() };
        let asked = ["preserveMsgBoundaries=require", "uts.adapt=off", "uts.consent=all"];
        ask(&mut config.requirements, asked)?;
        let endpoint = || EndpointConfig { accept: config.clone(), ..EndpointConfig::default() };
        let world = WorldConfig { server: endpoint(), client: endpoint(), seed, ..WorldConfig::default() };
        let ends = Ends::connected(world, config, path, is_traced)?;
        Ok(Run { ends, sent: 0, received: 0, wrong: 0, outcomes: 0 })
    }

    fn profile(&mut self) -> Result<Profile> {
        self.ends.connection(CLIENT)?.profile(Direction::Out).context("no profile is in use")
    }

    fn send(&mut self) -> Result<()> {
        let (now, flow, data) = (self.ends.world.now(), self.ends.flow, message(self.sent));
        self.ends.connection(CLIENT)?.send_message(now, flow, data.into(), MessageOptions::default())?;
        self.sent += 1;
        Ok(())
    }

    /// Lets time pass, or until an exchange has come to an end.
    fn pass(&mut self, duration: Duration) -> Result<bool> {
        let (until, before) = (self.ends.world.now() + duration, self.outcomes);
        while self.outcomes == before
            && let Some((node, event)) = self.ends.next(until)?
        {
            match event {
                Event::Readable(flow) if node == SERVER => self.read(flow)?,
                Event::Exchange(step) => match *step {
                    ExchangeEvent::Completed { .. }
                    | ExchangeEvent::Refused { .. }
                    | ExchangeEvent::Failed { .. } => self.outcomes += 1,
                    _ => {}
                },
                _ => {}
            }
        }
        Ok(self.outcomes > before)
    }

    fn read(&mut self, flow: FlowId) -> Result<()> {
        let now = self.ends.world.now();
        while let Ok(Read::Message(data)) = self.ends.connection(SERVER)?.read(now, flow, 1 << 16) {
            let is_next = data == message(self.received);
            self.wrong += u32::from(!is_next);
            self.received += 1;
        }
        Ok(())
    }

    fn ask(&mut self, how: How, profile: Profile) -> Result<Result<u32, ExchangeError>> {
        let now = self.ends.world.now();
        let connection = self.ends.connection(CLIENT)?;
        Ok(match how {
            How::Asked => connection.request_profile(now, Direction::Out, profile),
            How::AtOnce | How::Refused => connection.use_profile(now, profile),
        })
    }

    /// Waits until all has arrived, or nothing more does.
    fn finish(&mut self) -> Result<()> {
        for _ in 0..120 {
            if self.received >= self.sent {
                break;
            }
            self.pass(Duration::from_secs(1))?;
        }
        Ok(())
    }

    fn bytes_lost(&self) -> f64 {
        f64::from(self.sent.saturating_sub(self.received)) * MESSAGE_BYTES as f64
    }
}

/// The next of two mechanisms of a function.
fn other_of(profile: &Profile, function: Function, names: [&str; 2]) -> Result<Profile> {
    let next = if profile.name(function) == names[0] { names[1] } else { names[0] };
    profile.with_named(function, next).map_err(|error| anyhow!("{error}"))
}

/// From the decision to the first packet of the new profile, at each round trip, while messages
/// flow; what is lost, and what was discarded.
///
/// # Errors
/// The connection ends, or the first packet never leaves.
pub fn over_round_trips(how: How) -> Result<Series> {
    let mut series = Series::new();
    for rtt_us in ROUND_TRIPS_US {
        let mut run = Run::new(&format!("rate=1gbit buffer=4000p delay={}us", rtt_us / 2), rtt_us, true)?;
        let wanted = other_of(&run.profile()?, Function::Congestion, ["new-reno", "cubic"])?;
        if how == How::Refused {
            let number = wanted.get(Function::Congestion).number;
            run.ends.connection(SERVER)?.withdraw(Function::Congestion, number);
        }
        let span = Duration::from_micros(rtt_us) * 4 + Duration::from_millis(20);
        let steps = u32::try_from(span.as_micros() / EVERY.as_micros())?;
        let mut decided = None;
        for step in 0..steps {
            run.send()?;
            if step == steps / 3 {
                let epoch = run.ask(how, wanted)??;
                decided = Some((run.ends.world.now(), epoch));
            }
            run.pass_all(EVERY)?;
        }
        run.finish()?;
        let (at, epoch) = decided.context("nothing was decided")?;
        let is_first = |kind: TraceKind| matches!(kind, TraceKind::Sent | TraceKind::Repeated);
        let rows = run.ends.world.take_packets(CLIENT);
        let first = rows.iter().map(|(_, row)| row).find(|row| row.epoch == epoch && is_first(row.kind));
        let first = first.with_context(|| format!("no packet of epoch {epoch} left"))?.at.since(at);
        ensure!(run.wrong == 0, "{} messages came otherwise than they were sent", run.wrong);
        let discarded = run.ends.connection(SERVER)?.stats().dropped_unknown_epoch;
        let values = [
            ("rtt", rtt_us as f64 / 1000.0),
            ("first", first.as_secs_f64() * 1000.0),
            ("rounds", first.as_secs_f64() * 1e6 / rtt_us as f64),
            ("lost", run.bytes_lost()),
            ("discarded", discarded as f64),
        ];
        push(&mut series, values);
    }
    Ok(series)
}

impl Run {
    /// Lets all of a time pass, whatever comes to an end meanwhile.
    fn pass_all(&mut self, duration: Duration) -> Result<()> {
        let until = self.ends.world.now() + duration;
        while self.ends.world.now() < until && self.pass(until.since(self.ends.world.now()))? {}
        Ok(())
    }

    /// Exchanges one behind the other while messages flow. Says how many came to an end.
    fn exchange_for(&mut self, how: How, until: Time) -> Result<u32> {
        let turns = [
            (Function::Congestion, ["new-reno", "cubic"]),
            (Function::Timing, ["jacobson", "fixed"]),
            (Function::Acknowledgement, ["delayed", "per-packet"]),
        ];
        let (before, mut turn, mut is_idle) = (self.outcomes, 0, true);
        let mut sends_at = self.ends.world.now();
        while self.ends.world.now() < until {
            if is_idle {
                let (function, names) = turns[turn % turns.len()];
                let wanted = other_of(&self.profile()?, function, names)?;
                is_idle = match self.ask(how, wanted)? {
                    Ok(_) => false,
                    Err(ExchangeError::Busy(_)) => true,
                    Err(error) => return Err(error.into()),
                };
                turn += usize::from(!is_idle);
            }
            if self.ends.world.now() >= sends_at {
                self.send()?;
                sends_at += EVERY;
            }
            is_idle |= self.pass(sends_at.since(self.ends.world.now()))?;
        }
        Ok(self.outcomes - before)
    }
}

/// Rates of exchanges in a second, one behind the other, at some round trips, while a
/// message is sent every 0.2 ms.
///
/// # Errors
/// The connection ends.
pub fn rates(how: How) -> Result<Series> {
    let mut series = Series::new();
    for rtt_us in RATES_US {
        let mut run = Run::new(&format!("rate=1gbit buffer=4000p delay={}us", rtt_us / 2), rtt_us, false)?;
        let until = run.ends.world.now() + SPAN;
        let exchanges = run.exchange_for(how, until)?;
        run.finish()?;
        ensure!(run.wrong == 0, "{} messages came otherwise than they were sent", run.wrong);
        let values = [
            ("rtt", rtt_us as f64 / 1000.0),
            ("rate", f64::from(exchanges) / SPAN.as_secs_f64()),
            ("lost", run.bytes_lost()),
        ];
        push(&mut series, values);
    }
    Ok(series)
}

/// Thousands of exchanges, explicit and implicit in turns by chance, by either end, of any
/// mechanisms that keep all data and its order, over a path that loses, repeats and reorders.
///
/// # Errors
/// The connection ends.
pub fn at_random() -> Result<Series> {
    let path = "rate=5mbit buffer=200p delay=30ms loss=0.02 jitter=10ms,reorder duplicate=0.02";
    let (mut run, mut rng) = (Run::new(path, 7, false)?, ChaCha8Rng::seed_from_u64(7));
    let begins = run.ends.world.now();
    let base = run.profile()?;
    let keeps = |m: &Mechanism| !m.facts.passes_over && m.number < 128;
    let choices: Vec<Profile> = Function::ALL
        .iter()
        .filter(|function| {
            use Function::{Presentation, Protection, Segmentation, Sequencing};
            !matches!(function, Presentation | Protection | Segmentation | Sequencing)
        })
        .flat_map(|&function| library::of(function).into_iter().map(move |m| (function, m)))
        .filter(|(function, m)| {
            keeps(m) && (*function != Function::Retransmission || m.promises(Promise::Reliability))
        })
        .filter_map(|(function, m)| base.with_named(function, m.name).ok())
        .filter(|profile| profile.check().is_ok())
        .collect();
    let (mut asked, mut at_once) = (0, 0);
    while asked < EXCHANGES {
        let wanted = choices[rng.random_range(0..choices.len())];
        let kind = rng.random_range(0..3);
        let now = run.ends.world.now();
        let outcome = match kind {
            0 => run.ask(How::Asked, wanted)?,
            1 => run.ask(How::AtOnce, wanted)?,
            _ => run.ends.connection(SERVER)?.request_profile(now, Direction::In, wanted),
        };
        asked += usize::from(outcome.is_ok());
        at_once += usize::from(outcome.is_ok() && kind == 1);
        for _ in 0..rng.random_range(1..4) {
            run.send()?;
        }
        run.pass_all(Duration::from_millis(rng.random_range(0..BETWEEN_MS)))?;
    }
    run.finish()?;
    let hours = run.ends.world.now().since(begins).as_secs_f64() / 3600.0;
    let values = [
        ("asked", asked as f64),
        ("at-once", at_once as f64),
        ("ended", f64::from(run.outcomes)),
        ("hours", hours),
        ("messages", f64::from(run.sent)),
        ("lost", run.bytes_lost()),
        ("wrong", f64::from(run.wrong)),
    ];
    Ok(values.into_iter().map(|(name, value)| (name.to_owned(), vec![value])).collect())
}
