//! What the two ends of a measurement have in common, whatever carries the data. Rivals that link
//! libraries of their own, of which a program can have but one, are programs with this library.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads the clock and opens sockets"
)]

pub mod many;
pub mod summary;
pub mod usage;
pub mod wire;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// UDP payload of a full packet: what Ethernet's 1500 bytes leave. It is the same for all
/// transports, also over loopback.
pub const PACKET_BYTES: usize = 1472;

/// What applications hand over at a time.
pub const WRITE_BYTES: usize = 64 << 10;

/// What UDP sockets ask for.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Name that a server's certificate is for.
pub const SERVER_NAME: &str = "server.test";

/// Bytes of a small message.
pub const MESSAGE_BYTES: usize = 100;

/// Connections that are begun at once.
pub const HANDSHAKES_AT_ONCE: usize = 64;

/// Round trips that are not counted.
const PINGS_BEFORE: usize = 50;

/// What carries the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// UDP with segmentation offload, a window and acknowledgements: the floor.
    RawUdp,
    /// Kernel TCP from blocking sockets.
    TcpCubic,
    /// TLS 1.3 by rustls over kernel TCP, on tokio.
    TcpRustls,
    /// Kernel TCP, by iperf3.
    Iperf3Cubic,
    /// The same with a window of 1 MiB.
    Iperf3CubicW1m,
    /// QUIC by quinn.
    Quinn,
    /// QUIC by s2n-quic.
    S2nQuic,
    /// QUIC by quiche.
    Quiche,
    /// QUIC by TQUIC.
    Tquic,
    /// SRT in its file mode, not encrypted.
    Srt,
    /// ENet, which cannot be encrypted.
    Enet,
    /// UTS as it comes: TLS 1.3, AES-128-GCM.
    Uts,
    /// The same without a runtime, in the threads that use it.
    UtsBlocking,
    /// UTS where both ends ask for no protection, and for CRC-32C.
    #[serde(rename = "uts-crc-32c")]
    UtsCrc32c,
    /// The same without a runtime.
    #[serde(rename = "uts-crc-32c-blocking")]
    UtsCrc32cBlocking,
    /// UTS where both ends ask for no protection, no detection of errors and no retransmission.
    UtsBare,
}

impl Transport {
    /// All of them, in the order of reports.
    pub const ALL: [Transport; 16] = [
        Transport::RawUdp,
        Transport::TcpCubic,
        Transport::TcpRustls,
        Transport::Iperf3Cubic,
        Transport::Iperf3CubicW1m,
        Transport::Quinn,
        Transport::S2nQuic,
        Transport::Quiche,
        Transport::Tquic,
        Transport::Srt,
        Transport::Enet,
        Transport::Uts,
        Transport::UtsBlocking,
        Transport::UtsCrc32c,
        Transport::UtsCrc32cBlocking,
        Transport::UtsBare,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::RawUdp => "raw-udp",
            Transport::TcpCubic => "tcp-cubic",
            Transport::TcpRustls => "tcp-rustls",
            Transport::Iperf3Cubic => "iperf3-cubic",
            Transport::Iperf3CubicW1m => "iperf3-cubic-w1m",
            Transport::Quinn => "quinn",
            Transport::S2nQuic => "s2n-quic",
            Transport::Quiche => "quiche",
            Transport::Tquic => "tquic",
            Transport::Srt => "srt",
            Transport::Enet => "enet",
            Transport::Uts => "uts",
            Transport::UtsBlocking => "uts-blocking",
            Transport::UtsCrc32c => "uts-crc-32c",
            Transport::UtsCrc32cBlocking => "uts-crc-32c-blocking",
            Transport::UtsBare => "uts-bare",
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

    /// Whether iperf3 measures it.
    pub fn is_iperf(self) -> bool {
        matches!(self, Transport::Iperf3Cubic | Transport::Iperf3CubicW1m)
    }

    /// Whether the ends of experiments measure it.
    pub fn is_rival(self) -> bool {
        matches!(self, Transport::Srt | Transport::Enet)
    }

    /// The program that has its ends, if they are not those of `uts-bench` itself.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Transport::Quiche => Some("uts-bench-quiche"),
            Transport::Tquic => Some("uts-bench-tquic"),
            _ => None,
        }
    }

    /// Whether all that was sent must arrive.
    fn is_reliable(self) -> bool {
        !matches!(self, Transport::RawUdp | Transport::UtsBare)
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// As much as goes through.
    Bulk,
    /// One byte there and back, again and again.
    Ping,
    /// The same, but a waiting end looks again and again instead of sleeping.
    Spin,
    /// Messages of 100 bytes, as many as go through.
    Messages,
    /// The same, each in a packet of its own.
    SingleMessages,
    /// Connections, one after the other and then many at once.
    Handshakes,
    /// Many connections that do nothing.
    Idle,
    /// Connections that share an endpoint and send all they can.
    Shared,
}

impl Work {
    /// All of them, in the order of reports.
    pub const ALL: [Work; 8] = [
        Work::Bulk,
        Work::Ping,
        Work::Spin,
        Work::Messages,
        Work::SingleMessages,
        Work::Handshakes,
        Work::Idle,
        Work::Shared,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Bulk => "bulk",
            Work::Ping => "ping",
            Work::Spin => "spin",
            Work::Messages => "messages",
            Work::SingleMessages => "single-messages",
            Work::Handshakes => "handshakes",
            Work::Idle => "idle",
            Work::Shared => "shared",
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
    /// Of a client that times something: half of it took at most this.
    pub p50_us: f64,
    /// Of a client that times something: 99 of 100 took at most this.
    pub p99_us: f64,
    /// Round trips, messages or connections.
    pub count: u64,
    /// Packets lost or repeated, as far as known.
    pub lost_packets: u64,
    /// Jain's index of what each connection got.
    pub jain: f64,
    /// Memory that each connection takes, in bytes.
    pub bytes_each: f64,
    /// CPU seconds per second while nothing happens.
    pub idle_cpu: f64,
    /// What else is worth knowing.
    pub note: String,
}

/// What an end has to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// With what.
    pub transport: Transport,
    /// Which measurement.
    pub work: Work,
    /// How long the client goes on.
    pub duration: Duration,
    /// Connections, where there are many.
    pub connections: usize,
    /// What is asked of UTS beside its defaults, as `name=value`.
    pub properties: Vec<String>,
}

impl Task {
    /// How long after the first byte counting begins.
    pub fn warm_up(&self) -> Duration {
        self.duration / 5
    }

    /// Whether what was sent and what arrived must be the same.
    pub fn is_whole(&self) -> bool {
        self.work == Work::Bulk && self.transport.is_reliable()
    }
}

/// Runs one end: `server|client TASK CORE IP|ADDR KEY`.
///
/// # Errors
/// If the arguments are none of those, or what `serve` or `call` say.
pub fn run(
    args: &[String],
    serve: impl FnOnce(&Task, IpAddr) -> Result<Outcome>,
    call: impl FnOnce(&Task, SocketAddr, &str) -> Result<Outcome>,
) -> Result<()> {
    let [role, task, core, place, key] = args else {
        bail!("usage: end server|client TASK CORE PLACE KEY");
    };
    let task: Task = serde_json::from_str(task).context("task")?;
    usage::pin(core.parse().context("core")?)?;
    let outcome = if role == "server" {
        serve(&task, place.parse().context("IP address")?)
    } else {
        call(&task, place.parse().context("address")?, key)
    }?;
    println!("{}", serde_json::to_string(&outcome)?);
    // What is left of connections and runtimes is of no interest, and may take long to tidy.
    std::process::exit(0)
}

/// A transport that has no such work.
pub fn lacks(task: &Task) -> anyhow::Error {
    anyhow::anyhow!("{} has no {}", task.transport.name(), task.work.name())
}

/// Prints where this server waits for its client.
pub fn announce(addr: SocketAddr, key: String) -> Result<()> {
    println!("{}", serde_json::to_string(&Ready { addr, key })?);
    Ok(())
}

/// Hexadecimal digits of bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes of hexadecimal digits.
pub fn from_hex(digits: &str) -> Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or(""));
    let bytes: Result<Vec<u8>, _> = pairs.map(|pair| u8::from_str_radix(pair, 16)).collect();
    bytes.context("hexadecimal digits")
}

/// Counts what a receiver gets.
pub struct Meter {
    warm_up: Duration,
    started: Option<(Instant, f64)>,
    counted_from: Option<(Instant, u64)>,
    /// What has arrived.
    pub bytes: u64,
    calls: u64,
}

impl Meter {
    /// One that begins with the first bytes.
    pub fn new(task: &Task) -> Self {
        Meter { warm_up: task.warm_up(), started: None, counted_from: None, bytes: 0, calls: 0 }
    }

    /// Counts bytes that have arrived. Mostly no more than two additions, so that what is measured
    /// is not the measuring.
    #[inline]
    pub fn add(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes as u64;
        self.calls += 1;
        if self.counted_from.is_some() { Ok(()) } else { self.begin() }
    }

    #[cold]
    fn begin(&mut self) -> Result<()> {
        let Some((started, _)) = self.started else {
            self.started = Some((Instant::now(), usage::cpu_s()?));
            return Ok(());
        };
        // The clock is read seldom, to cost little when packets are delivered one by one.
        if self.calls.is_multiple_of(16) {
            let now = Instant::now();
            if now - started >= self.warm_up {
                self.counted_from = Some((now, self.bytes));
            }
        }
        Ok(())
    }

    /// What was found, once the last bytes have arrived.
    pub fn finish(self) -> Result<Outcome> {
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
pub struct Expense {
    deadline: Instant,
    cpu_before: f64,
    /// What it has sent.
    pub bytes: u64,
}

impl Expense {
    /// Begins now, for as long as the task says.
    pub fn start(task: &Task) -> Result<Self> {
        Ok(Expense { deadline: Instant::now() + task.duration, cpu_before: usage::cpu_s()?, bytes: 0 })
    }

    /// Whether time is not up.
    pub fn goes_on(&self) -> bool {
        Instant::now() < self.deadline
    }

    /// What was spent.
    pub fn finish(self) -> Result<Outcome> {
        Ok(Outcome { bytes: self.bytes, cpu_s: usage::cpu_s()? - self.cpu_before, ..Outcome::default() })
    }
}

/// Times round trips.
pub struct Stopwatch {
    deadline: Instant,
    cpu_before: f64,
    left: Instant,
    round_trips_ns: Vec<u64>,
}

impl Stopwatch {
    /// Begins now, for as long as the task says.
    pub fn start(task: &Task) -> Result<Self> {
        let (now, cpu_before) = (Instant::now(), usage::cpu_s()?);
        let round_trips_ns = Vec::with_capacity(1 << 16);
        Ok(Stopwatch { deadline: now + task.duration, cpu_before, left: now, round_trips_ns })
    }

    /// Whether another byte is to be sent; it leaves now.
    pub fn again(&mut self) -> bool {
        self.left = Instant::now();
        self.left < self.deadline || self.round_trips_ns.len() <= PINGS_BEFORE
    }

    /// It is back.
    pub fn back(&mut self) {
        self.round_trips_ns.push(self.left.elapsed().as_nanos() as u64);
    }

    /// What was found.
    pub fn finish(self) -> Result<Outcome> {
        // Of all of them: what a round trip takes of the processor is the mean.
        let cpu_s = (usage::cpu_s()? - self.cpu_before) / self.round_trips_ns.len() as f64;
        let mut counted = self.round_trips_ns.get(PINGS_BEFORE..).unwrap_or_default().to_vec();
        counted.sort_unstable();
        let us = |share| summary::percentile(&counted, share).unwrap_or(0) as f64 / 1e3;
        let (p50_us, p99_us, count) = (us(0.5), us(0.99), counted.len() as u64);
        Ok(Outcome { p50_us, p99_us, count, cpu_s: cpu_s * count as f64, ..Outcome::default() })
    }
}
