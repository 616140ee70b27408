//! Three layers of a sender on this machine, as one thread and as three: OPEN-Link's figures 1 to 4
//! today. It prints packets a second and their ratios, medians of rounds in turn.
//!
//! The layers are a checksum over the data (TCP), a header (IP), and a datagram into a UDP socket
//! of the loopback (the interface). Between threads packets go through a queue in memory or through
//! a socket of the kernel, as between processes.
//!
//! `cargo run --release -p uts-papers --example layers [ROUNDS]`

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures this machine")]

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

const SIZES: [usize; 5] = [64, 256, 512, 1024, 1472];
const PACKETS: usize = 20_000;
/// Packets that a queue holds.
const ROOM: usize = 32;
const ROUNDS: usize = 9;
const HEADER_BYTES: usize = 20;

/// A way to put the layers together.
#[derive(Clone, Copy)]
enum Way {
    /// The interface alone.
    Interface,
    /// Calls.
    One,
    /// Three threads with queues of so many packets; with none each waits for the next.
    Queues(usize),
    /// Three threads with sockets of the kernel.
    Sockets,
}

const WAYS: [(&str, Way); 5] = [
    ("interface alone", Way::Interface),
    ("one thread", Way::One),
    ("three, queues of 32", Way::Queues(ROOM)),
    ("three, one at a time", Way::Queues(0)),
    ("three, sockets", Way::Sockets),
];

/// The sum of RFC 1071.
fn sum(data: &[u8]) -> u16 {
    let words = data.chunks_exact(2);
    let rest = words.remainder().first().map_or(0, |last| u64::from(*last) << 8);
    let mut sum = rest + words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// TCP's part: room for both headers, the data, and its sum.
fn transport(data: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(2 * HEADER_BYTES + data.len());
    packet.resize(2 * HEADER_BYTES, 0);
    packet.extend_from_slice(data);
    let sum = sum(&packet[HEADER_BYTES..]);
    packet[HEADER_BYTES + 16..HEADER_BYTES + 18].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// IP's part: its header.
fn internet(packet: &mut [u8]) {
    let len = packet.len() as u16;
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    let sum = sum(&packet[..HEADER_BYTES]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The interface: what nobody reads is lost behind it.
struct Interface {
    socket: UdpSocket,
    _reader: UdpSocket,
}

impl Interface {
    fn new() -> io::Result<Self> {
        let [socket, reader] =
            [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?];
        socket.connect(reader.local_addr()?)?;
        Ok(Interface { socket, _reader: reader })
    }

    fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.socket.send(packet).map(|_| ())
    }
}

/// One end of a passage from a thread to the next.
trait Passage: Send {
    fn put(&self, packet: Vec<u8>) -> io::Result<()>;
}

trait Mouth: Send {
    /// The next packet; `None` behind the last.
    fn take(&self) -> io::Result<Option<Vec<u8>>>;
}

impl Passage for SyncSender<Vec<u8>> {
    fn put(&self, packet: Vec<u8>) -> io::Result<()> {
        self.send(packet).map_err(io::Error::other)
    }
}

impl Mouth for Receiver<Vec<u8>> {
    fn take(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.recv().ok())
    }
}

impl Passage for UnixDatagram {
    fn put(&self, packet: Vec<u8>) -> io::Result<()> {
        self.send(&packet).map(|_| ())
    }
}

impl Mouth for UnixDatagram {
    fn take(&self) -> io::Result<Option<Vec<u8>>> {
        let mut packet = vec![0; 2048];
        let bytes = self.recv(&mut packet)?;
        packet.truncate(bytes);
        Ok((bytes > 0).then_some(packet))
    }
}

fn passage(way: Way) -> io::Result<(Box<dyn Passage>, Box<dyn Mouth>)> {
    if let Way::Queues(room) = way {
        let (from, to) = sync_channel(room);
        return Ok((Box::new(from), Box::new(to)));
    }
    let (from, to) = UnixDatagram::pair()?;
    Ok((Box::new(from), Box::new(to)))
}

/// Time for all packets of a size to leave.
fn run(way: Way, bytes: usize) -> io::Result<Duration> {
    let interface = Interface::new()?;
    let data = vec![0x5a; bytes];
    let begun = Instant::now();
    match way {
        Way::Interface => {
            let packet = vec![0x5a; bytes + 2 * HEADER_BYTES];
            for _ in 0..PACKETS {
                interface.send(&packet)?;
            }
        }
        Way::One => {
            for _ in 0..PACKETS {
                let mut packet = transport(&data);
                internet(&mut packet);
                interface.send(&packet)?;
            }
        }
        Way::Queues(_) | Way::Sockets => three(way, interface, &data)?,
    }
    Ok(begun.elapsed())
}

fn three(way: Way, interface: Interface, data: &[u8]) -> io::Result<()> {
    let (first, from_first) = passage(way)?;
    let (second, from_second) = passage(way)?;
    let middle = thread::spawn(move || -> io::Result<()> {
        while let Some(mut packet) = from_first.take()? {
            internet(&mut packet);
            second.put(packet)?;
        }
        end(way, &*second)
    });
    let last = thread::spawn(move || -> io::Result<()> {
        while let Some(packet) = from_second.take()? {
            interface.send(&packet)?;
        }
        Ok(())
    });
    for _ in 0..PACKETS {
        first.put(transport(data))?;
    }
    end(way, &*first)?;
    drop(first);
    for thread in [middle, last] {
        thread.join().map_err(|_| io::Error::other("a thread has panicked"))??;
    }
    Ok(())
}

/// A socket's end is an empty packet; a queue ends with its sender.
fn end(way: Way, passage: &dyn Passage) -> io::Result<()> {
    if matches!(way, Way::Sockets) { passage.put(Vec::new()) } else { Ok(()) }
}

fn main() -> io::Result<()> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(ROUNDS).max(1);
    println!("packets a second (over one thread), median of {rounds} rounds of {PACKETS} packets");
    print!("{:>6}", "bytes");
    WAYS.iter().for_each(|(name, _)| print!("{name:>24}"));
    println!();
    for bytes in SIZES {
        let mut rates = [const { Vec::new() }; WAYS.len()];
        for _ in 0..rounds {
            for ((_, way), rates) in WAYS.iter().zip(&mut rates) {
                rates.push(PACKETS as f64 / run(*way, bytes)?.as_secs_f64());
            }
        }
        let medians = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        });
        print!("{bytes:>6}");
        medians.iter().for_each(|median| print!("{:>16.0} ({:.2})", median, median / medians[1]));
        println!();
    }
    Ok(())
}
