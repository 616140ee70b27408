//! Transports over paths: which pairs of ends run, in which order, and what comes of them.

use crate::child::Lines;
use crate::ends::{Outcome, PROPERTIES, Ready, Transport, Work};
use crate::iperf;
use crate::summary::Summary;
use crate::world::{Place, World};
use anyhow::{Context, Result};
use serde::Serialize;
use std::process::Command;
use std::time::Duration;

/// How two ends run.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// How long the client goes on.
    pub duration: Duration,
    /// The client's core.
    pub client_core: usize,
    /// The server's.
    pub server_core: usize,
}

/// How much is measured.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// How often everything is done.
    pub repetitions: usize,
    /// How long bulk data flows each time, in seconds; the first fifth is not counted.
    pub bulk_s: f64,
    /// How long bytes go to and fro each time, in seconds.
    pub ping_s: f64,
    /// What is asked of UTS beside its defaults, as `name=value`.
    pub properties: Vec<String>,
}

/// Everything that repetitions found of one transport on one path.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The path.
    pub path: &'static str,
    /// The transport.
    pub transport: &'static str,
    /// What arrived per second, in Gbit/s.
    pub goodput_gbps: Option<Summary>,
    /// CPU seconds that the sender takes for 10^9 bytes.
    pub sender_cpu_s_per_gb: Option<Summary>,
    /// The same of the receiver.
    pub receiver_cpu_s_per_gb: Option<Summary>,
    /// Half of the round trips of one byte took at most this, in microseconds.
    pub round_trip_p50_us: Option<Summary>,
    /// 99 of 100 did.
    pub round_trip_p99_us: Option<Summary>,
    /// Packets lost (or taken for lost) in each repetition.
    pub lost_packets: Option<Summary>,
    /// What else the ends had to say.
    pub note: String,
    /// What went wrong.
    pub failures: Vec<String>,
}

struct Collected {
    place: Place,
    transport: Transport,
    bulk: Vec<(Outcome, Outcome)>,
    ping: Vec<Outcome>,
    failures: Vec<String>,
}

/// Runs all of them in turns, so that what else happens on the machine meets all alike.
pub fn measure(world: &World, transports: &[Transport], plan: &Plan, progress: impl Fn(String)) -> Vec<Row> {
    let cores = crate::usage::cores();
    let (client_core, server_core) = (cores[0], cores[cores.len() - 1]);
    let pair = |seconds| Pair { duration: Duration::from_secs_f64(seconds), client_core, server_core };
    let mut all: Vec<Collected> = Vec::new();
    for place in world.places() {
        for &transport in transports {
            let (bulk, ping, failures) = (Vec::new(), Vec::new(), Vec::new());
            all.push(Collected { place, transport, bulk, ping, failures });
        }
    }
    for repetition in 1..=plan.repetitions {
        for one in &mut all {
            let (place, transport) = (one.place, one.transport);
            progress(format!("{repetition}/{} {} {}", plan.repetitions, place.name(), transport.name()));
            match run(world, place, transport, Work::Bulk, &pair(plan.bulk_s), plan) {
                Ok(ends) => one.bulk.push(ends),
                Err(error) => one.failures.push(format!("bulk: {error:#}")),
            }
            if transport == Transport::Iperf {
                continue;
            }
            match run(world, place, transport, Work::Ping, &pair(plan.ping_s), plan) {
                Ok((client, _)) => one.ping.push(client),
                Err(error) => one.failures.push(format!("ping: {error:#}")),
            }
        }
    }
    all.into_iter().map(Collected::summarise).collect()
}

impl Collected {
    fn summarise(self) -> Row {
        let (bulk, ping) = (&self.bulk, &self.ping);
        let per_gb = |end: &Outcome| end.cpu_s / (end.bytes as f64 / 1e9);
        Row {
            path: self.place.name(),
            transport: self.transport.name(),
            goodput_gbps: Summary::of(
                bulk.iter().map(|(_, r)| r.counted_bytes as f64 * 8.0 / r.counted_s / 1e9),
            ),
            sender_cpu_s_per_gb: Summary::of(bulk.iter().map(|(s, _)| per_gb(s))),
            receiver_cpu_s_per_gb: Summary::of(bulk.iter().map(|(_, r)| per_gb(r))),
            round_trip_p50_us: Summary::of(ping.iter().map(|p| p.p50_us)),
            round_trip_p99_us: Summary::of(ping.iter().map(|p| p.p99_us)),
            lost_packets: Summary::of(bulk.iter().map(|(s, r)| s.lost_packets.max(r.lost_packets) as f64)),
            note: bulk.last().map(|(s, _)| s.note.clone()).unwrap_or_default(),
            failures: self.failures,
        }
    }
}

/// Both ends' outcomes: the client's, then the server's.
fn run(
    world: &World,
    place: Place,
    transport: Transport,
    work: Work,
    pair: &Pair,
    plan: &Plan,
) -> Result<(Outcome, Outcome)> {
    if transport == Transport::Iperf {
        return iperf::bulk(world, place, pair);
    }
    let program = std::env::current_exe()?;
    let program = program.to_str().context("the program's path is not UTF-8")?;
    let patience = pair.duration + Duration::from_secs(8);
    let arguments = |command: &mut Command, role: &str, core: usize, place: &str, key: &str| {
        let millis = pair.duration.as_millis().to_string();
        command.env(PROPERTIES, plan.properties.join("\n"));
        command.args(["end", role, transport.name(), work.name(), &millis, &core.to_string(), place, key]);
    };
    let mut command = world.at_server(place, program);
    arguments(&mut command, "server", pair.server_core, &world.server_ip(place).to_string(), "");
    let mut server = Lines::start("server", &mut command, patience)?;
    let ready: Ready = serde_json::from_str(&server.line()?)?;
    let mut command = Command::new(program);
    arguments(&mut command, "client", pair.client_core, &ready.addr.to_string(), &ready.key);
    let client = Lines::start("client", &mut command, patience)?.line()?;
    let (sender, receiver): (Outcome, Outcome) =
        (serde_json::from_str(&client)?, serde_json::from_str(&server.line()?)?);
    // Raw UDP alone may lose data.
    let is_whole = transport == Transport::Raw || sender.bytes == receiver.bytes;
    anyhow::ensure!(is_whole, "{} bytes were sent, {} arrived", sender.bytes, receiver.bytes);
    Ok((sender, receiver))
}
