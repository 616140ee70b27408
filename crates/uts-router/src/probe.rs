//! Small programs to run on hosts: what tests and measurements send, and what they see. They print
//! one JSON object at their end. Those that wait for others print `ready` first.

use super::error::RouterError;
pub use super::gso_check::Segmented;
use super::gso_check::gso_check;
use clap::Subcommand;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_tcp_congestion};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use uts_end::output::Output;

/// Time that a probe waits for others.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes in front of a datagram: its number.
const NUMBER_BYTES: usize = 8;

/// Task of a probe.
#[derive(Debug, Clone, Subcommand)]
pub enum Probe {
    /// Take one TCP connection, read it to its end, and answer with the sum of what came
    TcpServe {
        /// Where
        at: SocketAddr,
        /// Do not look at what comes: only measure
        #[arg(long)]
        unseen: bool,
    },
    /// Send over TCP, and compare the answer
    TcpSend {
        /// Where to
        to: SocketAddr,
        /// Number of bytes; without, as many as there is time for
        #[arg(long)]
        bytes: Option<u64>,
        /// For how long
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Congestion control
        #[arg(long, default_value = "cubic")]
        congestion: String,
    },
    /// Count datagrams until none has come for a while
    UdpReceive {
        /// Where
        at: SocketAddr,
        /// A multicast group to join, on the interface with this address
        #[arg(long, num_args = 2)]
        join: Option<Vec<Ipv4Addr>>,
        /// For how long none, in milliseconds
        #[arg(long, default_value_t = 1000)]
        idle_ms: u64,
    },
    /// Send datagrams
    UdpSend {
        /// Where to
        to: SocketAddr,
        /// Number of datagrams
        #[arg(long)]
        count: u64,
        /// Size of a datagram, in bytes
        #[arg(long, default_value_t = 1000)]
        bytes: usize,
        /// Time between them, in microseconds
        #[arg(long, default_value_t = 0)]
        gap_us: u64,
        /// Type of service; 2 is ECT(0)
        #[arg(long, default_value_t = 0)]
        tos: u8,
    },
    /// Send echo requests, and count the answers
    Ping {
        /// Where to
        to: IpAddr,
        /// Number of requests
        #[arg(long, default_value_t = 3)]
        count: u16,
    },
    /// Compare segmentation with the kernel's
    GsoCheck {
        /// Number of super-packets
        #[arg(long, default_value_t = 1000)]
        cases: u32,
        /// Seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

/// Bytes that `tcp-serve` has read, or that `tcp-send` has got through.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// Bytes.
    pub bytes: u64,
    /// Of their contents.
    pub sum: u64,
    /// From the first byte to the last.
    pub seconds: f64,
}

/// Counts of `udp-receive`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Datagrams {
    /// Datagrams, copies included.
    pub received: u64,
    /// Different ones.
    pub different: u64,
    /// Ones that came after one of a higher number (RFC 4737), copies not counted.
    pub reordered: u64,
    /// Ones whose contents were not those that were sent, although the checksum was right.
    pub damaged: u64,
    /// Runs of missing numbers between the first and the last.
    pub gaps: u64,
    /// From the first to the last.
    pub seconds: f64,
}

/// Counts of `ping`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Echoes {
    /// Requests.
    pub sent: u16,
    /// Answers with the same contents.
    pub answered: u16,
    /// Shortest round trip.
    pub least_s: f64,
}

/// Is a probe.
///
/// # Errors
/// The system does not do what it is asked, nobody answers, or something came that was not sent.
pub fn probe(probe: Probe) -> Result<(), RouterError> {
    let failed = |e| RouterError::system("measure", e);
    let line = match probe {
        Probe::TcpServe { at, unseen } => json(&tcp_serve(at, unseen).map_err(failed)?),
        Probe::TcpSend { to, bytes, seconds, congestion } => {
            json(&tcp_send(to, bytes, seconds, &congestion).map_err(failed)?)
        }
        Probe::UdpReceive { at, join, idle_ms } => json(&udp_receive(at, join, idle_ms).map_err(failed)?),
        Probe::UdpSend { to, count, bytes, gap_us, tos } => {
            json(&udp_send(to, count, bytes, gap_us, tos).map_err(failed)?)
        }
        Probe::Ping { to, count } => json(&ping(to, count).map_err(failed)?),
        Probe::GsoCheck { cases, seed } => json(&gso_check(cases, seed)?),
    };
    say(&line.map_err(failed)?).map_err(failed)
}

fn json(value: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(value)?)
}

/// Writes a line at once, so that a reader at the other end of a pipe sees it.
fn say(line: &str) -> io::Result<()> {
    Output::Out.line(line).map_err(io::Error::other)
}

/// The content at a position of a transfer: a block that repeats, of a length that no segment
/// divides.
fn pattern() -> Vec<u8> {
    let mut bytes = vec![0; 65_521];
    ChaCha8Rng::seed_from_u64(7).fill_bytes(&mut bytes);
    bytes
}

/// A sum that depends on the order.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(sum, |sum, &byte| sum.rotate_left(5) ^ u64::from(byte).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn tcp_serve(at: SocketAddr, unseen: bool) -> io::Result<Transfer> {
    let listener = TcpListener::bind(at)?;
    say("ready")?;
    let (mut stream, _) = listener.accept()?;
    let begun = Instant::now();
    let (mut bytes, mut sum) = (0, 0);
    let mut buffer = vec![0; 1 << 18];
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            got => {
                bytes += got as u64;
                if !unseen {
                    sum = add(sum, buffer.get(..got).unwrap_or_default());
                }
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let transfer = Transfer { bytes, sum, seconds };
    stream.write_all(json(&transfer)?.as_bytes())?;
    Ok(transfer)
}

fn tcp_send(to: SocketAddr, bytes: Option<u64>, seconds: f64, congestion: &str) -> io::Result<Transfer> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    set_tcp_congestion(&socket, congestion)?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    let mut stream = TcpStream::from(socket);
    let pattern = pattern();
    let begun = Instant::now();
    let (mut sent, mut sum) = (0u64, 0);
    let wanted = bytes.unwrap_or(u64::MAX);
    while sent < wanted && (bytes.is_some() || begun.elapsed().as_secs_f64() < seconds) {
        let at = (sent % pattern.len() as u64) as usize;
        let rest = pattern.get(at..).unwrap_or_default();
        let count = stream.write(rest.get(..rest.len().min((wanted - sent) as usize)).unwrap_or_default())?;
        sent += count as u64;
        if bytes.is_some() {
            sum = add(sum, rest.get(..count).unwrap_or_default());
        }
    }
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let arrived: Transfer = serde_json::from_str(&answer)?;
    if arrived.bytes != sent || (bytes.is_some() && arrived.sum != sum) {
        return Err(io::Error::other("what arrived is not what was sent"));
    }
    Ok(Transfer { bytes: sent, sum, seconds: begun.elapsed().as_secs_f64() })
}

fn udp_receive(at: SocketAddr, join: Option<Vec<Ipv4Addr>>, idle_ms: u64) -> io::Result<Datagrams> {
    let socket = UdpSocket::bind(at)?;
    // As much as the system grants: what is lost here would spoil a test.
    let _ = set_socket_recv_buffer_size(&socket, 8 << 20);
    if let Some([group, interface]) = join.as_deref() {
        socket.join_multicast_v4(group, interface)?;
    }
    say("ready")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; 65_536];
    let pattern = pattern();
    let mut seen = BTreeSet::new();
    let mut datagrams = Datagrams::default();
    let (mut first, mut last) = (None, Instant::now());
    loop {
        let got = match socket.recv(&mut buffer) {
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) => return Err(e),
        };
        last = Instant::now();
        if first.is_none() {
            first = Some(last);
            socket.set_read_timeout(Some(Duration::from_millis(idle_ms.max(1))))?;
        }
        datagrams.received += 1;
        let Some((head, rest)) = buffer.get(..got).and_then(|d| d.split_first_chunk::<NUMBER_BYTES>()) else {
            datagrams.damaged += 1;
            continue;
        };
        if pattern.get(..rest.len()) != Some(rest) {
            datagrams.damaged += 1;
            continue;
        }
        let number = u64::from_be_bytes(*head);
        let highest = seen.last().copied();
        if seen.insert(number) {
            datagrams.reordered += u64::from(highest > Some(number));
        }
    }
    datagrams.different = seen.len() as u64;
    datagrams.gaps = seen.iter().zip(seen.iter().skip(1)).filter(|(a, b)| **a + 1 != **b).count() as u64;
    datagrams.seconds = first.map_or(0.0, |first| last.duration_since(first).as_secs_f64());
    Ok(datagrams)
}

fn udp_send(to: SocketAddr, count: u64, bytes: usize, gap_us: u64, tos: u8) -> io::Result<Datagrams> {
    let socket = UdpSocket::bind((if to.is_ipv4() { "0.0.0.0" } else { "::" }, 0))?;
    rustix::net::sockopt::set_ip_tos(&socket, tos)?;
    let mut datagram = vec![0; NUMBER_BYTES];
    datagram.extend_from_slice(pattern().get(..bytes.saturating_sub(NUMBER_BYTES)).unwrap_or_default());
    let begun = Instant::now();
    for number in 0..count {
        let due = Duration::from_micros(number * gap_us);
        if let Some(wait) = due.checked_sub(begun.elapsed()) {
            std::thread::sleep(wait);
        }
        datagram.get_mut(..NUMBER_BYTES).unwrap_or_default().copy_from_slice(&number.to_be_bytes());
        socket.send_to(&datagram, to)?;
    }
    Ok(Datagrams { different: count, seconds: begun.elapsed().as_secs_f64(), ..Datagrams::default() })
}

fn ping(to: IpAddr, count: u16) -> io::Result<Echoes> {
    let (domain, protocol, request) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128),
    };
    // The kernel fills in the identifier and the checksum.
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    socket.connect(&SocketAddr::new(to, 0).into())?;
    let mut echoes = Echoes { sent: 0, answered: 0, least_s: f64::INFINITY };
    for number in 0..count {
        let mut message = vec![request, 0, 0, 0, 0, 0];
        message.extend_from_slice(&number.to_be_bytes());
        message.extend_from_slice(pattern().get(..56).unwrap_or_default());
        let begun = Instant::now();
        socket.send(&message)?;
        echoes.sent += 1;
        let mut answer = [0; 256];
        let got = match (&socket).read(&mut answer) {
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return Err(e),
        };
        // Type, code, checksum, identifier; then what was sent.
        if answer.get(6..got) != message.get(6..) {
            return Err(io::Error::other("an answer with other contents"));
        }
        echoes.answered += 1;
        echoes.least_s = echoes.least_s.min(begun.elapsed().as_secs_f64());
    }
    Ok(echoes)
}
