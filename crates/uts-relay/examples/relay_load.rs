//! Loads a relay in both directions with a tenth more than it lets through, and prints how exactly
//! it keeps the rate, how late it is, and what it costs.
//!
//! `cargo run --release -p uts-lab --example relay_load -- [MBIT] [SECONDS] [SPIN_US] [BYTES]`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the laboratory faces the world: real sockets, real time"
)]

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uts_path::PathConfig;
use uts_relay::{IP_UDP_OVERHEAD_BYTES, Relay, RelayConfig, default_link};

/// Packets of a burst: what a sender with segmentation offload hands over at once.
const BURST: u64 = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<Vec<u64>, _>>()?;
    let argument = |position: usize, default| arguments.get(position).copied().unwrap_or(default);
    let (mbit, seconds, spin_us, bytes) =
        (argument(0, 100), argument(1, 5), argument(2, 0), argument(3, 1400));

    let server = UdpSocket::bind("127.0.0.1:0")?;
    let client = UdpSocket::bind("127.0.0.1:0")?;
    let change = format!("rate={mbit}mbit delay=10ms buffer=256kB").parse()?;
    let relay = Relay::start(RelayConfig {
        path: PathConfig::both(default_link().with(&change)?),
        spin: Duration::from_micros(spin_us),
        ..RelayConfig::new(server.local_addr()?)
    })?;
    client.connect(relay.local_addr())?;
    client.send(&[0])?;
    let (_, upstream) = server.recv_from(&mut [0; 16])?;
    server.connect(upstream)?;

    let stop = Arc::new(AtomicBool::new(false));
    let mut received = Vec::new();
    let mut threads = Vec::new();
    for socket in [client, server] {
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let count = Arc::new(AtomicU64::new(0));
        received.push(Arc::clone(&count));
        let (other, stopped) = (socket.try_clone()?, Arc::clone(&stop));
        threads.push(std::thread::spawn(move || sink(&other, &count, &stopped)));
        let stopped = Arc::clone(&stop);
        let gap =
            Duration::from_nanos(BURST * (bytes + u64::from(IP_UDP_OVERHEAD_BYTES)) * 8_000 / mbit * 10 / 11);
        threads.push(std::thread::spawn(move || blast(&socket, bytes, gap, &stopped)));
    }
    std::thread::sleep(Duration::from_secs(1));
    let counts = || received.iter().map(|c| c.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let (before, cpu_before, start) = (counts(), relay_cpu_s(), Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, elapsed_s) = (counts(), start.elapsed().as_secs_f64());
    let cpu_share = (relay_cpu_s() - cpu_before) / elapsed_s;
    let stats = relay.stats()?;
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a thread failed")?;
    }
    let share = bytes as f64 / (bytes + u64::from(IP_UDP_OVERHEAD_BYTES)) as f64;
    for (name, (after, before)) in ["backward", "forward"].iter().zip(after.iter().zip(&before)) {
        let got_mbit = (after - before) as f64 * 8e-6 / elapsed_s / share;
        println!("{name}: {got_mbit:.3} Mbit/s, error {:+.3} %", (got_mbit / mbit as f64 - 1.0) * 100.0);
    }
    println!("{:?}, relay thread {:.1} % of a core", stats.lateness, cpu_share * 100.0);
    println!("kernel dropped {:?}, send failures {}", stats.kernel_dropped, stats.send_failures);
    Ok(())
}

fn sink(socket: &UdpSocket, count: &AtomicU64, stop: &AtomicBool) {
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        if let Ok(len) = socket.recv(&mut buffer) {
            count.fetch_add(len as u64, Ordering::Relaxed);
        }
    }
}

fn blast(socket: &UdpSocket, bytes: u64, gap: Duration, stop: &AtomicBool) {
    let datagram = vec![0x5a; usize::try_from(bytes).unwrap_or(1400)];
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            // What the kernel has no room for is lost, as on any network.
            let _ = socket.send(&datagram);
        }
        next += gap;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// CPU seconds of the relay's thread, from /proc, in which a tick is 10 ms.
fn relay_cpu_s() -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0.0 };
    let stats = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let relay = stats.filter(|s| s.contains("(uts-relay)"));
    let ticks = relay.filter_map(|s| {
        let fields: Vec<&str> = s.rsplit_once(')')?.1.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    });
    ticks.sum::<u64>() as f64 / 100.0
}
