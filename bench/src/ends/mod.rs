//! The two ends of a measurement, each in a process of its own: the server takes and echoes, the client sends and times.
//!
//! A server prints a line with [`Ready`], and when its client is done, one with [`Outcome`]; a client prints its
//! [`Outcome`]. Bulk data goes from the client to the server.

mod quic;
mod raw;
mod tcp;
mod universal;

pub use universal::PROPERTIES;

use crate::{summary, usage};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// UDP payload of a full packet: what Ethernet's 1500 bytes leave. The same for all, also over loopback.
pub const PACKET_BYTES: usize = 1472;

/// What applications hand over at a time.
const WRITE_BYTES: usize = 64 << 10;

/// What UDP sockets ask for.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Round trips that are not counted.
const PINGS_BEFORE: usize = 50;

/// What carries the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// UDP with segmentation offload, a window and acknowledgements: the floor.
    Raw,
    /// Kernel TCP from blocking sockets.
    Tcp,
    /// Kernel TCP, by iperf3.
    Iperf,
    /// QUIC by quinn.
    Quinn,
    /// UTS as it comes: TLS 1.3, AES-128-GCM.
    Uts,
    /// UTS where both ends ask for no protection.
    UtsUnprotected,
}

impl Transport {
    /// All of them, in the order of reports.
    pub const ALL: [Transport; 6] = [
        Transport::Raw,
        Transport::Tcp,
        Transport::Iperf,
        Transport::Quinn,
        Transport::Uts,
        Transport::UtsUnprotected,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Raw => "raw-udp",
            Transport::Tcp => "tcp-cubic",
            Transport::Iperf => "iperf3-cubic",
            Transport::Quinn => "quinn",
            Transport::Uts => "uts",
            Transport::UtsUnprotected => "uts-unprotected",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Result<Self> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|t| t.name() == name)
            .with_context(|| format!("no transport `{name}`; there are: {}", known()))
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// As much as goes through.
    Bulk,
    /// One byte there and back, again and again.
    Ping,
}

impl Work {
    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Bulk => "bulk",
            Work::Ping => "ping",
        }
    }
}

/// A server waits for its client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Where.
    pub addr: SocketAddr,
    /// What clients know it by: a fingerprint, a certificate in hexadecimal digits, or nothing.
    pub key: String,
}

/// What one end has found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Bytes that this end has sent or received.
    pub bytes: u64,
    /// Of a receiver: bytes that arrived after the warm-up.
    pub counted_bytes: u64,
    /// Of a receiver: how long that took.
    pub counted_s: f64,
    /// CPU seconds of this process from the first byte to the last.
    pub cpu_s: f64,
    /// Of a pinging client: half of the round trips took at most this.
    pub p50_us: f64,
    /// Of a pinging client: 99 of 100 round trips took at most this.
    pub p99_us: f64,
    /// Of a pinging client.
    pub round_trips: u64,
    /// Packets lost or repeated, as far as known.
    pub lost_packets: u64,
    /// What else is worth knowing.
    pub note: String,
}

/// What an end has to do.
#[derive(Clone, Debug)]
pub struct Task {
    /// With what.
    pub transport: Transport,
    /// Which measurement.
    pub work: Work,
    /// How long the client goes on.
    pub duration: Duration,
    /// How long after the first byte counting begins.
    pub warm_up: Duration,
}

/// Runs one end: `end server|client TRANSPORT WORK MILLIS CORE IP|ADDR KEY`.
pub fn run(args: &[String]) -> Result<()> {
    let [role, transport, work, millis, core, place, key] = args else {
        bail!("usage: end server|client TRANSPORT WORK MILLIS CORE PLACE KEY");
    };
    let transport = Transport::from_name(transport)?;
    let work = if work == Work::Bulk.name() { Work::Bulk } else { Work::Ping };
    let duration = Duration::from_millis(millis.parse().context("milliseconds")?);
    usage::pin(core.parse().context("core")?)?;
    let task = Task { transport, work, duration, warm_up: duration / 5 };
    let outcome = if role == "server" {
        serve(&task, place.parse().context("IP address")?)
    } else {
        call(&task, place.parse().context("address")?, key)
    }?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    match task.transport {
        Transport::Raw => raw::serve(task, ip),
        Transport::Tcp => tcp::serve(task, ip),
        Transport::Quinn => quic::serve(task, ip),
        Transport::Uts | Transport::UtsUnprotected => universal::serve(task, ip),
        Transport::Iperf => bail!("iperf3 is a program of its own"),
    }
}

fn call(task: &Task, to: SocketAddr, key: &str) -> Result<Outcome> {
    match task.transport {
        Transport::Raw => raw::call(task, to),
        Transport::Tcp => tcp::call(task, to),
        Transport::Quinn => quic::call(task, to, key),
        Transport::Uts | Transport::UtsUnprotected => universal::call(task, to, key),
        Transport::Iperf => bail!("iperf3 is a program of its own"),
    }
}

fn announce(addr: SocketAddr, key: String) -> Result<()> {
    println!("{}", serde_json::to_string(&Ready { addr, key })?);
    Ok(())
}

/// A runtime whose tasks all run in this thread, and so on this core.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")
}

/// Counts what a receiver gets.
struct Meter {
    warm_up: Duration,
    started: Option<(Instant, f64)>,
    counted_from: Option<(Instant, u64)>,
    bytes: u64,
    calls: u64,
}

impl Meter {
    fn new(task: &Task) -> Self {
        Meter { warm_up: task.warm_up, started: None, counted_from: None, bytes: 0, calls: 0 }
    }

    fn add(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes as u64;
        self.calls += 1;
        let Some((started, _)) = self.started else {
            self.started = Some((Instant::now(), usage::cpu_s()?));
            return Ok(());
        };
        // The clock is read seldom, so that it does not weigh on those who deliver packet by packet.
        if self.counted_from.is_none() && self.calls.is_multiple_of(16) {
            let now = Instant::now();
            if now - started >= self.warm_up {
                self.counted_from = Some((now, self.bytes));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Outcome> {
        let ended = Instant::now();
        let (Some((_, cpu_before)), Some((from, bytes_before))) = (self.started, self.counted_from) else {
            bail!("too little arrived to measure: {} bytes", self.bytes);
        };
        Ok(Outcome {
            bytes: self.bytes,
            counted_bytes: self.bytes - bytes_before,
            counted_s: (ended - from).as_secs_f64(),
            cpu_s: usage::cpu_s()? - cpu_before,
            ..Outcome::default()
        })
    }
}

/// Measures what a sender spends.
struct Expense {
    deadline: Instant,
    cpu_before: f64,
    bytes: u64,
}

impl Expense {
    fn start(task: &Task) -> Result<Self> {
        Ok(Expense { deadline: Instant::now() + task.duration, cpu_before: usage::cpu_s()?, bytes: 0 })
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.deadline
    }

    fn finish(self) -> Result<Outcome> {
        Ok(Outcome { bytes: self.bytes, cpu_s: usage::cpu_s()? - self.cpu_before, ..Outcome::default() })
    }
}

/// Times round trips.
struct Stopwatch {
    deadline: Instant,
    left: Instant,
    round_trips_ns: Vec<u64>,
}

impl Stopwatch {
    fn start(task: &Task) -> Self {
        let now = Instant::now();
        Stopwatch { deadline: now + task.duration, left: now, round_trips_ns: Vec::with_capacity(1 << 16) }
    }

    /// Whether another byte is to be sent; it leaves now.
    fn again(&mut self) -> bool {
        self.left = Instant::now();
        self.left < self.deadline || self.round_trips_ns.len() <= PINGS_BEFORE
    }

    /// It is back.
    fn back(&mut self) {
        self.round_trips_ns.push(self.left.elapsed().as_nanos() as u64);
    }

    fn finish(self) -> Outcome {
        let mut counted = self.round_trips_ns.get(PINGS_BEFORE..).unwrap_or_default().to_vec();
        counted.sort_unstable();
        let us = |share| summary::percentile(&counted, share) as f64 / 1e3;
        Outcome { p50_us: us(0.5), p99_us: us(0.99), round_trips: counted.len() as u64, ..Outcome::default() }
    }
}
