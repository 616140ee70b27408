//! Benchmark of RouterPC on this machine: its exactness and its speed, in a table for people to
//! read. Nothing is asserted. Other work on the machine shows in it.

use super::config::TestbedConfig;
use super::error::RouterError;
use super::fidelity::Bounds;
use super::probe::{Datagrams, Transfer};
use super::testbed::{Ending, Io, Testbed};
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;
use uts_path::{Change, LinkConfig, PathConfig, Target};

const PORT: u16 = 7777;
/// Datagrams that make packets of 1500 bytes.
const DATAGRAM_BYTES: usize = 1472;

/// Measures for this many seconds each, and returns the table.
///
/// # Errors
/// There can be no testbed, or a probe has failed.
pub fn run(seconds: u32) -> Result<String, RouterError> {
    let mut table = String::new();
    // Writing to a String does not fail.
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let _ = writeln!(table, "load before: {}; {seconds} s each", load.trim());
    let _ = writeln!(table, "\nrate error, UDP from a full queue");
    for rate in ["1mbit", "10mbit", "100mbit", "500mbit", "1gbit"] {
        let _ = writeln!(table, "{}", rate_error(rate, seconds)?);
    }
    let _ = writeln!(table, "\nlateness, TCP cubic, 10 ms each way, and recorded");
    for (rate, buffer) in [("10mbit", "100p"), ("100mbit", "200p"), ("1gbit", "1700p")] {
        for record in [false, true] {
            let _ = writeln!(table, "{}", lateness(rate, buffer, seconds, record)?);
        }
    }
    let _ = writeln!(table, "\nTCP cubic, no limit, each packet by itself");
    for offload in [true, false] {
        let _ = writeln!(table, "{}", throughput(seconds, offload)?);
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let _ = write!(table, "\nload after: {}", load.trim());
    Ok(table)
}

fn config(link: &str) -> Result<TestbedConfig, RouterError> {
    let bounds = Bounds { lost_in_sockets: None, ..Bounds::default() };
    let sysctls = ["rmem", "wmem"].map(|m| (format!("net.ipv4.tcp_{m}"), "4096 131072 67108864".to_owned()));
    let path = PathConfig::both(link.parse()?);
    Ok(TestbedConfig { bounds, sysctls: sysctls.into(), ..TestbedConfig::point_to_point(path) })
}

/// A queue is filled while next to nothing leaves it, and then drained at the rate. It never lacks
/// a packet, however slow the sender.
fn rate_error(rate: &str, seconds: u32) -> Result<String, RouterError> {
    let config = config("rate=1bit")?;
    let change: Change = format!("rate={rate}").parse()?;
    let rate_bps = LinkConfig::default().with(&change)?.rate_bps.unwrap_or(1) as f64;
    let bed = Testbed::start(config)?;
    let packet_bits = (DATAGRAM_BYTES as f64 + 28.0) * 8.0;
    let count = (f64::from(seconds) * rate_bps / packet_bits).min(200_000.0) as u64;
    let to = format!("{}:{PORT}", bed.address(1));
    let (count, bytes) = (count.to_string(), DATAGRAM_BYTES.to_string());
    let args = ["udp-send", &to, "--count", &count, "--bytes", &bytes];
    let (seen, ending) = measure::<Datagrams>(bed, &["udp-receive", &to], &args, Some(&change))?;
    let arrived = seen.received + ending.fidelity.lost_outside.in_sockets;
    let got_bps = (arrived as f64 - 1.0) * packet_bits / seen.seconds;
    let error = got_bps / rate_bps - 1.0;
    Ok(format!(
        "{rate:>8}: {:>10.4} % ({arrived} packets in {:.3} s){}",
        error * 100.0,
        seen.seconds,
        notes(&ending)
    ))
}

fn lateness(rate: &str, buffer: &str, seconds: u32, record: bool) -> Result<String, RouterError> {
    let mut config = config(&format!("rate={rate} delay=10ms buffer={buffer}"))?;
    let dir = tempfile::tempdir().map_err(|e| RouterError::system("make a directory", e))?;
    config.record = record.then(|| super::RecordConfig {
        dir: dir.path().to_owned(),
        pcap: true,
        ..super::RecordConfig::default()
    });
    let (got, ending) = tcp(config, seconds)?;
    let late = ending.fidelity.lateness;
    Ok(format!(
        "{rate:>8}{}: p50 {:>7.1} us, p90 {:>7.1} us, p99 {:>7.1} us, max {:>8.0} us; {:>7.1} Mbit/s, processor {:>3.0} %{}",
        if record { ", recorded" } else { "" },
        late.p50_us,
        late.p90_us,
        late.p99_us,
        late.max_us,
        got.bytes as f64 * 8.0 / got.seconds / 1e6,
        ending.fidelity.cpu_s / ending.fidelity.elapsed_s * 100.0,
        notes(&ending)
    ))
}

fn throughput(seconds: u32, offload: bool) -> Result<String, RouterError> {
    let config = TestbedConfig { offload, ..config("rate=inf")? };
    let (got, ending) = tcp(config, seconds)?;
    let fidelity = &ending.fidelity;
    Ok(format!(
        "{}: {:>6.2} Gbit/s, {:>4.0} thousand packets/s, processor {:>3.0} %, late p99 {:.0} us{}",
        if offload { "offload" } else { "without" },
        got.bytes as f64 * 8.0 / got.seconds / 1e9,
        ending.paths[0].forward.packets_in as f64 / got.seconds / 1e3,
        fidelity.cpu_s / fidelity.elapsed_s * 100.0,
        fidelity.lateness.p99_us,
        notes(&ending)
    ))
}

fn tcp(config: TestbedConfig, seconds: u32) -> Result<(Transfer, Ending), RouterError> {
    let bed = Testbed::start(config)?;
    let to = format!("{}:{PORT}", bed.address(1));
    let seconds = seconds.to_string();
    measure(bed, &["tcp-serve", &to, "--unseen"], &["tcp-send", &to, "--seconds", &seconds], None)
}

/// Runs a probe on host 1. When it is ready, runs one on host 0, and then makes a change, if there
/// is one. The result is the first probe's.
fn measure<T: DeserializeOwned>(
    bed: Testbed,
    serve: &[&str],
    send: &[&str],
    change: Option<&Change>,
) -> Result<(T, Ending), RouterError> {
    let failed = |e| RouterError::system("run a probe", e);
    let program = std::env::current_exe().map_err(failed)?.to_string_lossy().into_owned();
    let probe = |host, args: &[&str]| {
        bed.command(host, &program)
            .args(["router", "probe"])
            .args(args.iter().copied())
            .stdout(Io::Pipe)
            .spawn()
    };
    let mut server = probe(1, serve)?;
    let Some(output) = server.stdout.take() else {
        return Err(failed(std::io::Error::other("it has no output")));
    };
    let mut lines = BufReader::new(output);
    let mut text = String::new();
    lines.read_line(&mut text).map_err(failed)?;
    bed.begin()?;
    let mut sender = probe(0, send)?;
    if let Some(change) = change {
        sender.wait()?;
        bed.set(0, Target::Both, change)?;
    }
    text.clear();
    lines.read_to_string(&mut text).map_err(failed)?;
    server.wait()?;
    if sender.wait_timeout(Duration::from_secs(10))?.is_none() {
        sender.kill()?;
    }
    let result = serde_json::from_str(&text).map_err(|e| failed(e.into()))?;
    Ok((result, bed.finish()?))
}

fn notes(ending: &Ending) -> String {
    if ending.fidelity.is_valid {
        String::new()
    } else {
        format!("; not valid: {}", ending.fidelity.why.join("; "))
    }
}
