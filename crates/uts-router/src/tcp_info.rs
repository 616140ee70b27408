//! `TCP_INFO` of all TCP sockets of a host, sampled by the kernel's interface for it
//! (sock_diag(7)), as `ss -ti` shows it. Each host has a thread in its namespace that asks.

use super::error::RouterError;
use super::forward::now_ns;
use super::host::Host;
use super::record::Sheet;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The first line of `tcp.csv`.
pub(super) const COLUMNS: &str = "t_s,host,local,remote,state,congestion,cwnd,ssthresh,mss,rtt_s,rtt_var_s,rtt_min_s,rto_s,\
     unacked,lost,retransmitted,pacing_bps,delivery_bps,bytes_acked,bytes_received,rcv_ssthresh";

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
/// All but those that listen or wait for late packets: they have nothing to tell.
const STATES: u32 = 0xfff & !(1 << 10 | 1 << 6 | 1 << 7);
const NETLINK_HEADER_BYTES: usize = 16;
/// `struct inet_diag_msg`.
const SOCKET_BYTES: usize = 72;

/// The threads that ask.
#[derive(Debug)]
pub(super) struct Sampler {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(), RouterError>>>,
    sheet: Arc<Mutex<Sheet>>,
}

impl Sampler {
    /// Samples all hosts every `interval`; times count from `origin_ns`.
    pub(super) fn start(
        hosts: &[Host],
        sheet: Sheet,
        interval: Duration,
        origin_ns: u64,
    ) -> Result<Self, RouterError> {
        let mut sampler =
            Sampler { is_over: Arc::default(), threads: Vec::new(), sheet: Arc::new(Mutex::new(sheet)) };
        for (number, host) in hosts.iter().enumerate() {
            let (sheet, is_over) = (Arc::clone(&sampler.sheet), Arc::clone(&sampler.is_over));
            let sample = move || sample(number, &sheet, &is_over, interval, origin_ns);
            // A thread is in the namespace of the thread that makes it.
            let started = host.run(|| std::thread::Builder::new().name("tcp info".into()).spawn(sample));
            let thread = started.and_then(|t| t).map_err(|e| RouterError::system("start a thread", e))?;
            sampler.threads.push(thread);
        }
        Ok(sampler)
    }

    /// Stops, and closes the file.
    pub(super) fn finish(self) -> Result<(), RouterError> {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap_or(Ok(()))?;
        }
        self.sheet.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

fn sample(
    host: usize,
    sheet: &Mutex<Sheet>,
    is_over: &AtomicBool,
    interval: Duration,
    origin_ns: u64,
) -> Result<(), RouterError> {
    let failed = |e| RouterError::system("ask for TCP_INFO", e);
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG));
    let socket = socket.map_err(|e| failed(e.into()))?;
    let begun = Instant::now();
    let mut turn = 0;
    while !is_over.load(Ordering::Relaxed) {
        let t_s = now_ns().saturating_sub(origin_ns) as f64 / 1e9;
        for family in [AF_INET, AF_INET6] {
            for state in ask(&socket, family).map_err(failed)? {
                let mut sheet = sheet.lock().unwrap_or_else(PoisonError::into_inner);
                sheet.line(format_args!("{t_s:.9},{host},{state}"))?;
            }
        }
        turn += 1;
        std::thread::sleep((interval * turn).saturating_sub(begun.elapsed()));
    }
    Ok(())
}

fn ask(socket: &OwnedFd, family: u8) -> io::Result<Vec<TcpState>> {
    let mut request = vec![0; SOCKET_BYTES];
    request[..4].copy_from_slice(&(SOCKET_BYTES as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    // `struct inet_diag_req_v2`: family, protocol, extensions as bits, padding, states.
    let extensions = 1u8 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
    request[16..20].copy_from_slice(&[family, IPPROTO_TCP, extensions, 0]);
    request[20..24].copy_from_slice(&STATES.to_ne_bytes());
    sendto(socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut states = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (got, _) = recv(socket, &mut buffer, RecvFlags::empty())?;
        if read_answer(buffer.get(..got).unwrap_or_default(), &mut states)? {
            return Ok(states);
        }
    }
}

/// Reads one datagram of answers; true if it is the last.
fn read_answer(mut bytes: &[u8], states: &mut Vec<TcpState>) -> io::Result<bool> {
    while let Some(len) = u32_at(bytes, 0) {
        let len = len as usize;
        let (Some(kind), Some(message)) = (u16_at(bytes, 4), bytes.get(NETLINK_HEADER_BYTES..len)) else {
            break;
        };
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let number = u32_at(message, 0).unwrap_or(0).cast_signed();
                return Err(io::Error::from_raw_os_error(-number));
            }
            _ => states.extend(TcpState::parse(message)),
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    // More is to come, up to a message that says it is done.
    Ok(false)
}

/// One socket.
#[derive(Debug)]
struct TcpState {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
    congestion: String,
    /// `struct tcp_info`, as much as the kernel knows of it.
    info: Vec<u8>,
}

impl TcpState {
    fn parse(message: &[u8]) -> Option<Self> {
        let (family, state) = (*message.first()?, *message.get(1)?);
        let port = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = message.get(at..at + 16)?.try_into().ok()?;
            Some(if family == AF_INET {
                Ipv4Addr::from(*octets.first_chunk::<4>()?).into()
            } else {
                Ipv6Addr::from(octets).into()
            })
        };
        let mut socket = TcpState {
            local: SocketAddr::new(address(8)?, port(4)?),
            remote: SocketAddr::new(address(24)?, port(6)?),
            state,
            congestion: String::new(),
            info: Vec::new(),
        };
        let mut attributes = message.get(SOCKET_BYTES..)?;
        while let (Some(len), Some(kind)) = (u16_at(attributes, 0), u16_at(attributes, 2)) {
            let Some(value) = attributes.get(4..usize::from(len)) else { break };
            match kind {
                INET_DIAG_INFO => socket.info = value.to_vec(),
                INET_DIAG_CONG => {
                    socket.congestion = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
                }
                _ => {}
            }
            attributes = attributes.get(usize::from(len).next_multiple_of(4)..).unwrap_or_default();
        }
        (!socket.info.is_empty()).then_some(socket)
    }
}

impl fmt::Display for TcpState {
    /// Offsets are those of `struct tcp_info` (linux/tcp.h), which only ever grows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STATES: [&str; 12] = [
            "unknown",
            "established",
            "syn-sent",
            "syn-received",
            "fin-wait-1",
            "fin-wait-2",
            "time-wait",
            "closed",
            "close-wait",
            "last-ack",
            "listen",
            "closing",
        ];
        let word = |at: usize| u32_at(&self.info, at).unwrap_or(0);
        let long = |at: usize| {
            let bytes = self.info.get(at..at + 8).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        let seconds = |at: usize| f64::from(word(at)) / 1e6;
        let rate_bps = |at: usize| match long(at) {
            u64::MAX => String::new(),
            bytes_per_s => bytes_per_s.saturating_mul(8).to_string(),
        };
        let state = STATES.get(usize::from(self.state)).copied().unwrap_or("unknown");
        // A threshold that was never reached is all ones, half of that is "infinite" to the kernel.
        let ssthresh = if word(76) >= 0x7fff_ffff { String::new() } else { word(76).to_string() };
        let rtt_min = if word(148) == u32::MAX { String::new() } else { format!("{:.6}", seconds(148)) };
        write!(
            f,
            "{},{},{state},{},{},{ssthresh},{},",
            self.local,
            self.remote,
            self.congestion,
            word(80),
            word(16)
        )?;
        write!(f, "{:.6},{:.6},{rtt_min},{:.6},", seconds(68), seconds(72), seconds(8))?;
        write!(f, "{},{},{},{},{},", word(24), word(32), word(100), rate_bps(104), rate_bps(160))?;
        write!(f, "{},{},{}", long(120), long(128), word(64))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
