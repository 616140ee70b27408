//! Small programs to run on hosts: what tests and measurements send, and what they see. They print one JSON object
//! at their end; those that wait for others print `ready` first.

use super::frame::{VnetHeader, complete_checksum, fold, sum_of};
use super::host::{ip, wait_until_up};
use super::split::split;
use super::sys::{PacketSocket, ReceiveBatch, VNET_HEADER_BYTES};
use super::RouterError;
use clap::Subcommand;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_tcp_congestion};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long a probe waits for others.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes in front of a datagram: its number.
const NUMBER_BYTES: usize = 8;

/// What a probe is to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Probe {
    /// Take one TCP connection, read it to its end, and answer with the sum of what came
    TcpServe {
        /// Where
        at: SocketAddr,
    },
    /// Send over TCP, and compare the answer
    TcpSend {
        /// Where to
        to: SocketAddr,
        /// How many bytes; without, as many as there is time for
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
        /// How many
        #[arg(long)]
        count: u64,
        /// How big
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
        /// How many
        #[arg(long, default_value_t = 3)]
        count: u16,
    },
    /// Compare segmentation with the kernel's
    GsoCheck {
        /// How many super-packets
        #[arg(long, default_value_t = 1000)]
        cases: u32,
        /// Seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

/// What `tcp-serve` has read, and what `tcp-send` has got through.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// Bytes.
    pub bytes: u64,
    /// Of their contents.
    pub sum: u64,
    /// From the first byte to the last.
    pub seconds: f64,
}

/// What `udp-receive` has seen.
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

/// What `ping` has seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Echoes {
    /// Requests.
    pub sent: u16,
    /// Answers with the same contents.
    pub answered: u16,
    /// Shortest round trip.
    pub least_s: f64,
}

/// What `gso-check` has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segmented {
    /// Super-packets.
    pub cases: u32,
    /// Packets that they were split into, each the same bit by bit.
    pub segments: u64,
}

/// Is a probe.
///
/// # Errors
/// The system does not do what it is asked, nobody answers, or something came that was not sent.
pub fn probe(probe: Probe) -> Result<(), RouterError> {
    let failed = |e| RouterError::system("measure", e);
    let line = match probe {
        Probe::TcpServe { at } => json(&tcp_serve(at).map_err(failed)?),
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
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush())
}

/// What stands at a position of a transfer: a block that repeats, of a length that no segment divides.
fn pattern() -> Vec<u8> {
    let mut bytes = vec![0; 65_521];
    ChaCha8Rng::seed_from_u64(7).fill_bytes(&mut bytes);
    bytes
}

/// A sum that depends on the order.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, &byte| sum.rotate_left(5) ^ u64::from(byte).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn tcp_serve(at: SocketAddr) -> io::Result<Transfer> {
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
                // A long transfer is a measurement: adding up the first part of it costs nothing there.
                if bytes <= SUMMED_BYTES_MAX {
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

/// Of longer transfers, contents are not looked at.
const SUMMED_BYTES_MAX: u64 = 64 << 20;

fn tcp_send(to: SocketAddr, bytes: Option<u64>, seconds: f64, congestion: &str) -> io::Result<Transfer> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    set_tcp_congestion(&stream, congestion)?;
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
    if arrived.bytes != sent || (bytes.is_some() && sent <= SUMMED_BYTES_MAX && arrived.sum != sum) {
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

/// Sends super-packets over an interface of its own that does not take them, so that the kernel segments them, and
/// compares with what [`split`] makes of them. Checksums are completed on both sides: whether the kernel leaves them
/// partial depends on the interface.
fn gso_check(cases: u32, seed: u64) -> Result<Segmented, RouterError> {
    let failed = |what: &'static str| move |e| RouterError::system(what, e);
    ip(&["link", "add", "gso-a", "type", "veth", "peer", "name", "gso-b"], Stdio::null())?;
    // Whatever is bigger than this, the kernel segments before the interface gets it.
    ip(&["link", "set", "gso-a", "addrgenmode", "none", "gso_max_size", "1000", "up"], Stdio::null())?;
    ip(&["link", "set", "gso-b", "addrgenmode", "none", "up"], Stdio::null())?;
    wait_until_up("gso-a")?;
    wait_until_up("gso-b")?;
    let open = |name: &str| {
        let any = std::os::unix::net::UnixDatagram::unbound()?;
        PacketSocket::open(rustix::net::netdevice::name_to_index(&any, name)?)
    };
    let out = open("gso-a").map_err(failed("open a packet socket"))?;
    let into = open("gso-b").map_err(failed("open a packet socket"))?;
    let mut batch = ReceiveBatch::new();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut segments = 0;
    for case in 0..cases {
        let whole = super_packet(&mut rng);
        let mut wanted = Vec::new();
        split(&whole, |mut segment| {
            complete_checksum(&mut segment);
            wanted.push(segment);
        })
        .map_err(|e| RouterError::system("split a super-packet", io::Error::other(e)))?;
        let sent = out.send(std::iter::once(whole.as_slice()));
        sent.map_err(failed("send a super-packet"))?;
        let got = collect(&mut batch, &into, wanted.len()).map_err(failed("read segments"))?;
        if got != wanted {
            let at = got.iter().zip(&wanted).position(|(g, w)| g != w).unwrap_or(got.len().min(wanted.len()));
            let text = format!(
                "case {case} of seed {seed}: {} segments, the kernel made {}; the first that differs is {at}: ours {:02x?}, the kernel's {:02x?}",
                wanted.len(),
                got.len(),
                wanted.get(at).and_then(|s| s.get(..100)),
                got.get(at).and_then(|s| s.get(..100)),
            );
            return Err(RouterError::system("segment as the kernel does", io::Error::other(text)));
        }
        segments += wanted.len() as u64;
    }
    Ok(Segmented { cases, segments })
}

/// Reads `count` frames, and what else is there by then.
fn collect(batch: &mut ReceiveBatch, socket: &PacketSocket, count: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    while frames.len() < count {
        let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
        if poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout))? == 0 {
            break;
        }
        batch.receive(socket)?;
        frames.extend(batch.iter().map(|received| {
            let mut frame = received.bytes.to_vec();
            complete_checksum(&mut frame);
            // What else the header says, as that a checksum was verified, is about the interface.
            frame.iter_mut().take(VNET_HEADER_BYTES).for_each(|byte| *byte = 0);
            frame
        }));
    }
    Ok(frames)
}

/// A super-packet as a host may send it: TCP or UDP, over IPv4 or IPv6, of any size and with any flags.
fn super_packet(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut below = |bound: u32| rng.next_u32() % bound;
    let (tcp, ipv4) = (below(2) == 0, below(2) == 0);
    let ip_bytes = if ipv4 { 20 } else { 40 };
    let options_bytes = if tcp { below(11) as usize * 4 } else { 0 };
    let transport_bytes = if tcp { 20 + options_bytes } else { 8 };
    // With the longest headers, within an MTU of 1500.
    let segment_bytes = 200 + below(1200) as usize;
    // The kernel sends at most 128 segments of a UDP super-packet, and bytes that fit into one IP packet.
    let most = (65_000 / segment_bytes).min(if tcp { 300 } else { 120 });
    let count = 6 + below(most as u32 - 6) as usize;
    let payload_bytes = segment_bytes * (count - 1) + 1 + below(segment_bytes as u32) as usize;
    let (flags, id, sequence) = ((below(256) as u8 | 0x10) & !0x06, below(65_536) as u16, below(u32::MAX));
    let mut payload = vec![0; payload_bytes + 32];
    rng.fill_bytes(&mut payload);
    let transport_len = transport_bytes + payload_bytes;
    let mut ip = Vec::new();
    let addresses;
    if ipv4 {
        let [high, low] = ((ip_bytes + transport_len) as u16).to_be_bytes();
        let [id_high, id_low] = id.to_be_bytes();
        let (tos, fragment) = (payload[0] & 0xfc, 0x40);
        ip.extend_from_slice(&[0x45, tos, high, low, id_high, id_low, fragment, 0, 64]);
        ip.extend_from_slice(&[if tcp { 6 } else { 17 }, 0, 0, 10, 77, 9, 1, 10, 77, 9, payload[1]]);
        let sum = !fold(sum_of(&ip));
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        addresses = sum_of(&ip[12..20]);
    } else {
        let [high, low] = (transport_len as u16).to_be_bytes();
        ip.extend_from_slice(&[0x60, 0, payload[0], payload[1], high, low, if tcp { 6 } else { 17 }, 64]);
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, payload[1]]);
        addresses = sum_of(&ip[8..40]);
    }
    let mut transport = vec![payload[2], payload[3], payload[4], payload[5]];
    let protocol;
    if tcp {
        protocol = 6;
        transport.extend_from_slice(&sequence.to_be_bytes());
        transport.extend_from_slice(&payload[6..10]);
        transport.extend_from_slice(&[(transport_bytes as u8 / 4) << 4, flags, payload[10], payload[11], 0, 0, 0, 0]);
        transport.resize(transport_bytes, 1);
    } else {
        protocol = 17;
        transport.extend_from_slice(&(transport_len as u16).to_be_bytes());
        transport.extend_from_slice(&[0, 0]);
    }
    let partial = fold(addresses + protocol + transport_len as u32);
    let checksum_at = if tcp { 16 } else { 6 };
    transport[checksum_at..checksum_at + 2].copy_from_slice(&partial.to_be_bytes());
    let cwr = if tcp && flags & 0x80 != 0 { 0x80 } else { 0 };
    let header = VnetHeader {
        flags: 1,
        gso_type: cwr | if !tcp { 5 } else if ipv4 { 1 } else { 4 },
        header_bytes: (14 + ip_bytes + transport_bytes) as u16,
        gso_bytes: segment_bytes as u16,
        checksum_start: (14 + ip_bytes) as u16,
        checksum_offset: checksum_at as u16,
    };
    let ethertype: [u8; 2] = if ipv4 { [8, 0] } else { [0x86, 0xdd] };
    let ethernet = [2, 0, 0, 0, 9, 2, 2, 0, 0, 0, 9, 1, ethertype[0], ethertype[1]];
    payload.truncate(payload_bytes);
    [header.emit().as_slice(), &ethernet, &ip, &transport, &payload].concat()
}
