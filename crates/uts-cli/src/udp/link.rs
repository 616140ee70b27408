//! A connection over UDP, as the program sees it.

use crate::link::{Broken, Carrying, ExchangeStep, Link, LinkEvent, Telemetry};
use crate::ui::lines;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;
use uts::{Connection, ConnectionEvent, Direction, ExchangeEvent, Function, Profile, Stats, Time, TraceKind};
use uts_end::output;

/// Time over which a rate is the mean.
const RATE_WINDOW: Duration = Duration::from_secs(1);
/// Interval at which recorded packets are written.
const TRACE_PERIOD: Duration = Duration::from_millis(50);

/// A connection.
#[derive(Clone)]
pub struct UdpLink {
    connection: Arc<Connection>,
    /// Content moved, at the moments at which somebody asked.
    moved: Arc<Mutex<VecDeque<(Instant, u64)>>>,
    trace: Arc<Mutex<Option<Trace>>>,
}

/// A file that packets are recorded in.
struct Trace {
    file: PathBuf,
    out: BufWriter<File>,
    start: Time,
}

impl UdpLink {
    /// This connection.
    pub fn new(connection: Connection) -> Self {
        UdpLink { connection: Arc::new(connection), moved: Arc::default(), trace: Arc::default() }
    }

    fn rate_bps(&self, bytes: u64) -> f64 {
        let now = Instant::now();
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        moved.push_back((now, bytes));
        while moved.len() > 2 && moved.get(1).is_some_and(|(at, _)| now - *at >= RATE_WINDOW) {
            moved.pop_front();
        }
        let Some((at, before)) = moved.front() else { return 0.0 };
        let seconds = (now - *at).as_secs_f64();
        if seconds > 0.0 { bytes.saturating_sub(*before) as f64 * 8.0 / seconds } else { 0.0 }
    }

    /// Writes what was recorded; false when nothing more will come.
    fn write_trace(&self) -> bool {
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = trace.as_mut() else { return false };
        let written = self.connection.take_trace().iter().try_for_each(|row| {
            let kind = match row.kind {
                TraceKind::Sent => "sent",
                TraceKind::Repeated => "repeat",
                TraceKind::Acknowledged => "acked",
                TraceKind::Lost => "lost",
                // Pictures are of what is sent.
                TraceKind::Received => return Ok(()),
            };
            let t_s = row.at.since(open.start).as_secs_f64();
            let (flow, position) =
                row.data.map_or_else(Default::default, |(flow, at)| (flow.to_string(), at.to_string()));
            writeln!(open.out, "{t_s:.6},{kind},{},{},{flow},{position}", row.number, row.bytes)
        });
        if let Err(error) = written.and_then(|()| open.out.flush()) {
            let why = output::words(&error);
            lines::fail(format_args!("--trace {}: {why}; the copy goes on without it", open.file.display()));
            output::lose();
            *trace = None;
            return false;
        }
        true
    }
}

impl Carrying for UdpLink {
    type Flows = Connection;

    fn flows(&self) -> Arc<Connection> {
        self.connection.clone()
    }

    fn hearing(&self) -> UnboundedReceiver<bool> {
        self.connection.hearing()
    }

    fn broken(&self) -> Option<Broken> {
        self.connection.broken()
    }

    fn is_lost(&self) -> bool {
        self.connection.is_lost()
    }
}

impl Link for UdpLink {
    fn connection(&self) -> Option<Connection> {
        Some((*self.connection).clone())
    }

    fn telemetry(&self) -> Telemetry {
        let stats = self.connection.stats();
        let facts = self.connection.facts();
        let [received, sent] = content(&stats);
        let direction = if received > sent { Direction::In } else { Direction::Out };
        Telemetry {
            rate_bps: self.rate_bps(sent + received),
            rtt_ms: facts.rtt_smoothed.as_secs_f64() * 1e3,
            loss: facts.loss,
            profile: self.connection.profile(direction).map_or_else(String::new, |profile| words(&profile)),
            packets_sent: stats.packets_sent,
            packets_lost: stats.packets_lost,
            packets_repeated: stats.chunks_repeated,
            packets_repaired: stats.packets_repaired + stats.packets_recovered,
            exchanges: stats.exchanges,
        }
    }

    fn undelivered_bytes(&self) -> Option<u64> {
        self.connection.undelivered_bytes()
    }

    fn content_bytes(&self) -> [u64; 2] {
        content(&self.connection.stats())
    }

    fn events(&self) -> UnboundedReceiver<LinkEvent> {
        let (sender, receiver) = unbounded_channel();
        let mut events = self.connection.events();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let event = match event {
                    ConnectionEvent::Exchange(event) => LinkEvent::Exchange(step(*event)),
                    ConnectionEvent::Closed(reason) => LinkEvent::Closed(reason.to_string()),
                    ConnectionEvent::Silent(silent) => LinkEvent::Silent(silent),
                    ConnectionEvent::Heard(silent) => LinkEvent::Heard(silent),
                    ConnectionEvent::Moved { remote, is_peer: true } => {
                        LinkEvent::Moved(format!("goes on at {remote}"))
                    }
                    ConnectionEvent::Moved { .. } => LinkEvent::Moved("goes on from another address".into()),
                    ConnectionEvent::PacketSize(_) => continue,
                    ConnectionEvent::NoEffect(what) => LinkEvent::NoEffect(format!(
                        "{what} has no effect: the profile in use cannot do that"
                    )),
                    // There is nothing to say of what is not known here.
                    _ => continue,
                };
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        receiver
    }

    fn service(&self) -> String {
        self.connection.service()
    }

    fn peer(&self) -> (String, Option<String>) {
        let address =
            self.connection.remote_addr().map_or_else(|| "a peer that is gone".into(), |a| a.to_string());
        (address, self.connection.peer_fingerprint().map(|key| key.to_string()))
    }

    fn trace(&self, file: &Path) -> Result<(), String> {
        let create = || -> io::Result<BufWriter<File>> {
            let mut out = BufWriter::new(File::create(file)?);
            writeln!(out, "t_s,kind,number,bytes,flow,position")?;
            Ok(out)
        };
        let out = create().map_err(|error| output::words(&error))?;
        let start = self.connection.start_trace();
        *self.trace.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Trace { file: file.to_owned(), out, start });
        let link = self.clone();
        tokio::spawn(async move {
            while link.write_trace() {
                tokio::time::sleep(TRACE_PERIOD).await;
            }
        });
        Ok(())
    }

    async fn close(&self, code: u64, reason: &str) {
        self.write_trace();
        self.trace.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.connection.close(code, reason).await;
    }
}

/// Bytes of content that came in, and that went out, each counted once.
fn content(stats: &Stats) -> [u64; 2] {
    let received = stats.data_bytes_received.saturating_sub(stats.data_bytes_repeated);
    [received, stats.data_bytes_sent.saturating_sub(stats.bytes_repeated)]
}

/// A profile in the few words that change: `cubic, no fec`.
fn words(profile: &Profile) -> String {
    let named = |function: Function| match profile.describe(function).as_str() {
        "none" => format!("no {}", function.name()),
        mechanism => mechanism.to_owned(),
    };
    format!("{}, {}", named(Function::Congestion), named(Function::Fec))
}

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Out => "out",
        Direction::In => "in",
    }
}

fn step(event: ExchangeEvent) -> ExchangeStep {
    let none = ExchangeStep::default();
    match event {
        ExchangeEvent::Requested { direction: d, group, epoch, seen, path, changes, expects } => {
            ExchangeStep {
                step: "requested",
                direction: direction(d),
                group,
                epoch,
                seen,
                path,
                changes,
                expects,
                ..none
            }
        }
        ExchangeEvent::Granted { direction: d, group, epoch, changes, profile } => ExchangeStep {
            step: "granted",
            direction: direction(d),
            group,
            epoch,
            changes,
            profile: words(&profile),
            ..none
        },
        ExchangeEvent::Completed { direction: d, group, epoch, profile, took } => ExchangeStep {
            step: "completed",
            direction: direction(d),
            group,
            epoch,
            profile: words(&profile),
            took_ms: Some(took.as_secs_f64() * 1e3),
            ..none
        },
        ExchangeEvent::Refused { direction: d, group, epoch, function, why } => {
            let line = format!("{}: {why}", function.name());
            ExchangeStep { step: "refused", direction: direction(d), group, epoch, line, ..none }
        }
        ExchangeEvent::Failed { direction: d, group, epoch } => {
            ExchangeStep { step: "failed", direction: direction(d), group, epoch, ..none }
        }
        ExchangeEvent::Brought { epoch, line } => ExchangeStep { step: "brought", epoch, line, ..none },
        other => ExchangeStep { step: "other", line: format!("{other:?}"), ..none },
    }
}
