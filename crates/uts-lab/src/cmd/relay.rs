//! `uts-lab relay`.

use super::path_options::{PathOptions, table};
use super::print_line;
use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use uts_end::{output, signals};
use uts_path::{SpecError, Target};
use uts_relay::{Relay, RelayConfig, RelayEvent, RelayStats, default_link};

/// Time after which a signal or the end of the input is noticed.
const NOTICE: Duration = Duration::from_millis(50);

/// Relay UDP datagrams over an emulated path
///
/// SETTINGS are any of: rate=50mbit|trace:FILE|cellular:MAX,SEED delay=20ms buffer=64p|256kB
/// receive=8p,100us queue=droptail|row:N|random|red:MIN,MAX,MAX_P|codel|fq_codel|pie|
/// police:RATE,BURST jitter=2ms[,bell][,reorder] loss=0.01|ge:MEAN,BURST duplicate=0.001
/// reorder=0.01,3ms corrupt=0.001[,BITS] mtu=1400 overhead=28 framing=ethernet|slip|aal5|ppp
/// compress=vj|rx[:SLOTS][,typed] (of IP headers: not here, but in other worlds)
/// ecn=20p|30kB up|down. A property of the path that is
/// not set is perfect. Each packet costs 28 bytes of overhead (IPv4 and UDP headers) unless set
/// otherwise.
#[derive(Debug, Args)]
#[allow(rustdoc::broken_intra_doc_links, reason = "brackets are around what may be left out")]
pub struct Arguments {
    /// Address that clients send to; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = address)]
    listen: SocketAddr,
    /// Address to which their datagrams are relayed
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    to: SocketAddr,
    #[command(flatten)]
    path: PathOptions,
    /// Write samples of both queues to FILE every 10 ms, and changes to FILE.changes.csv
    #[arg(long, value_name = "FILE.csv")]
    record: Option<PathBuf>,
    /// Most clients at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    max_clients: u16,
    /// Forget clients that are idle for this long
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    idle: u32,
    /// Stay awake if the next datagram is due within this many microseconds; more punctual, but
    /// takes a core under load
    #[arg(long, value_name = "US", default_value_t = 0)]
    spin_us: u32,
    /// Print a JSON object per line
    #[arg(long)]
    json: bool,
    /// End when standard input ends
    #[arg(long)]
    until_stdin_closes: bool,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|e| format!("no such host: {}", output::words(&e)))?;
    found.next().ok_or_else(|| "the host has no address".into())
}

impl Arguments {
    fn relay_config(&self) -> Result<RelayConfig, SpecError> {
        Ok(RelayConfig {
            listen: self.listen,
            path: self.path.path(&default_link())?,
            seed: self.path.seed,
            record: self.record.clone(),
            max_clients: self.max_clients.into(),
            idle_timeout: Duration::from_secs(self.idle.into()),
            spin: Duration::from_micros(self.spin_us.into()),
            ..RelayConfig::new(self.to)
        })
    }
}

/// Relays until a signal, or the end of the input.
///
/// # Errors
/// The relay could not start, or failed; output could not be written.
pub fn run(arguments: Arguments) -> Result<()> {
    let stop = signals::end_flag().context("cannot catch signals")?;
    let relay = Relay::start(arguments.relay_config()?)?;
    print_listening(relay.local_addr(), arguments.json);
    if arguments.until_stdin_closes {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            // An input that cannot be read has ended, too.
            while let Ok(1..) = output::read_input(&mut [0; 4096]) {}
            stop.store(true, Ordering::Relaxed);
        });
    }
    while !stop.load(Ordering::Relaxed) {
        match relay.events().recv_timeout(NOTICE) {
            Ok(event) => print_event(&event, arguments.json),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    relay.request_stop();
    for event in relay.events() {
        print_event(&event, arguments.json);
    }
    let stats = relay.stop()?;
    print_stats(&stats, arguments.json)
}

/// Prints a line. If it is lost, the relay goes on for the sake of its clients.
fn say(line: &str) {
    let _ = print_line(line);
}

fn print_listening(addr: SocketAddr, as_json: bool) {
    if as_json {
        return say(&json!({"event": "listening", "address": addr}).to_string());
    }
    say(&format!("relay listening on {addr}"));
}

fn print_event(event: &RelayEvent, as_json: bool) {
    if as_json {
        let line = match event {
            RelayEvent::Changed { t_s, target, change } => {
                json!({"event": "change", "t_s": t_s, "dir": target.keyword(), "change": change})
            }
            RelayEvent::Joined { t_s, client } => json!({"event": "joined", "t_s": t_s, "client": client}),
            RelayEvent::Left { t_s, client } => json!({"event": "left", "t_s": t_s, "client": client}),
        };
        return say(&line.to_string());
    }
    say(&match event {
        RelayEvent::Changed { t_s, target, change } => format!("{t_s:.1} s  {}: {change}", place(*target)),
        RelayEvent::Joined { t_s, client } => format!("{t_s:.1} s  client {client} joined"),
        RelayEvent::Left { t_s, client } => format!("{t_s:.1} s  client {client} left, idle"),
    });
}

fn place(target: Target) -> String {
    match target {
        Target::One(direction) => direction.to_string(),
        Target::Both => "both".into(),
    }
}

fn print_stats(stats: &RelayStats, as_json: bool) -> Result<()> {
    if as_json {
        let mut line = serde_json::to_value(stats)?;
        if let Some(fields) = line.as_object_mut() {
            fields.insert("event".into(), "statistics".into());
        }
        return Ok(print_line(&line.to_string())?);
    }
    print_line(&table(&stats.forward, &stats.backward))?;
    let late = stats.lateness;
    print_line(&format!(
        "{:.1} s, {} clients; lateness p50 {:.0} us, p99 {:.0} us, max {:.0} us",
        stats.elapsed_s, stats.clients_total, late.p50_us, late.p99_us, late.max_us
    ))?;
    let trouble = [
        (stats.refused, "datagrams refused: too many clients"),
        (stats.send_failures, "datagrams that the system would not send"),
        (stats.kernel_dropped.unwrap_or(0), "datagrams lost before the relay could read them"),
    ];
    for (count, what) in trouble.iter().filter(|(count, _)| *count > 0) {
        print_line(&format!("{count} {what}"))?;
    }
    Ok(())
}
