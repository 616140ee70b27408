//! Check of [`split`] against the kernel: random super-packets go through both.

use super::error::RouterError;
use super::frame::{VnetHeader, complete_checksum, fold, sum_of};
use super::host::{ip, wait_until_up};
use super::split::split;
use super::sys::{PacketSocket, ReceiveBatch, VNET_HEADER_BYTES};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::io;
use std::process::Stdio;

/// Counts of `gso-check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segmented {
    /// Super-packets.
    pub cases: u32,
    /// Packets that they were split into, each the same bit by bit.
    pub segments: u64,
}

/// Sends super-packets over an interface of its own that does not take them. The kernel then
/// segments them. Compares the result with that of [`split`]. Checksums are completed on both
/// sides, because it depends on the interface whether the kernel leaves them partial.
pub(super) fn gso_check(cases: u32, seed: u64) -> Result<Segmented, RouterError> {
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

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// Properties of a random super-packet.
#[derive(Debug)]
struct Kind {
    tcp: bool,
    ipv4: bool,
    transport_bytes: usize,
    payload: Vec<u8>,
}

/// A super-packet as a host may send it: TCP or UDP, over IPv4 or IPv6, of any size and with any
/// flags.
fn super_packet(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut below = |bound: usize| (rng.next_u32() as usize) % bound;
    let (tcp, ipv4) = (below(2) == 0, below(2) == 0);
    let transport_bytes = if tcp { 20 + below(11) * 4 } else { 8 };
    // With the longest headers, within an MTU of 1500.
    let segment_bytes = 200 + below(1200);
    // The kernel takes at most 128 segments of UDP, and what fits into one IP packet.
    let most = (65_000 / segment_bytes).min(if tcp { 300 } else { 120 });
    let count = 6 + below(most - 6);
    let mut payload = vec![0; segment_bytes * (count - 1) + 1 + below(segment_bytes)];
    rng.fill_bytes(&mut payload);
    let kind = Kind { tcp, ipv4, transport_bytes, payload };

    let (ip, addresses) = kind.ip(rng);
    let mut transport = kind.transport(rng);
    let protocol = if tcp { PROTOCOL_TCP } else { PROTOCOL_UDP };
    let partial = fold(addresses + u32::from(protocol) + (transport_bytes + kind.payload.len()) as u32);
    let checksum_at = if tcp { 16 } else { 6 };
    transport[checksum_at..checksum_at + 2].copy_from_slice(&partial.to_be_bytes());
    let has_cwr = tcp && transport[13] & 0x80 != 0;
    let gso_type = match (tcp, ipv4) {
        (false, _) => 5,
        (true, true) => 1,
        (true, false) => 4,
    };
    let header = VnetHeader {
        flags: 1,
        gso_type: gso_type | if has_cwr { 0x80 } else { 0 },
        header_bytes: (14 + ip.len() + transport_bytes) as u16,
        gso_bytes: segment_bytes as u16,
        checksum_start: (14 + ip.len()) as u16,
        checksum_offset: checksum_at as u16,
    };
    let ethertype: [u8; 2] = if ipv4 { [8, 0] } else { [0x86, 0xdd] };
    let ethernet = [[2, 0, 0, 0, 9, 2, 2, 0, 0, 0, 9, 1].as_slice(), &ethertype].concat();
    [header.emit().as_slice(), &ethernet, &ip, &transport, &kind.payload].concat()
}

impl Kind {
    /// The IP header, and the sum of its addresses.
    fn ip(&self, rng: &mut ChaCha8Rng) -> (Vec<u8>, u32) {
        let protocol = if self.tcp { PROTOCOL_TCP } else { PROTOCOL_UDP };
        let len = self.transport_bytes + self.payload.len();
        let [a, b, c, d] = rng.next_u32().to_be_bytes();
        if self.ipv4 {
            let [high, low] = ((20 + len) as u16).to_be_bytes();
            let mut ip = vec![0x45, a & 0xfc, high, low, b, c, 0x40, 0, 64, protocol, 0, 0];
            ip.extend_from_slice(&[10, 77, 9, 1, 10, 77, 9, d]);
            let sum = !fold(sum_of(&ip));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            let addresses = sum_of(&ip[12..]);
            (ip, addresses)
        } else {
            let [high, low] = (len as u16).to_be_bytes();
            let mut ip = vec![0x60, 0, a, b, high, low, protocol, 64];
            for last in [c, d] {
                ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
            }
            let addresses = sum_of(&ip[8..]);
            (ip, addresses)
        }
    }

    /// The header of TCP or UDP, its checksum still 0.
    fn transport(&self, rng: &mut ChaCha8Rng) -> Vec<u8> {
        let mut bytes = vec![0; self.transport_bytes];
        rng.fill_bytes(&mut bytes);
        if self.tcp {
            bytes[12] = ((self.transport_bytes / 4) << 4) as u8;
            // An acknowledgement, that neither opens nor breaks off.
            bytes[13] = (bytes[13] | 0x10) & !0x06;
            bytes[16..20].fill(0);
            // No options but padding.
            bytes[20..].fill(1);
        } else {
            let len = (self.transport_bytes + self.payload.len()) as u16;
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
            bytes[6..8].fill(0);
        }
        bytes
    }
}
