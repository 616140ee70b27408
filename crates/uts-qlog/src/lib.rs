//! Logs of what connections do, in qlog's streamed form: JSON text sequences (RFC 7464) by the
//! schemas of draft-ietf-quic-qlog-main-schema and draft-ietf-quic-qlog-quic-events.
//!
//! Packets, losses and path figures are QUIC's events, which its tools read. What QUIC does not
//! have, above all the exchange of mechanisms, stands under `uts:`. Connections of one host share a
//! log and are told apart by `group_id`. Times are milliseconds since time zero of
//! the network, or since the endpoint was made.
//!
//! Handshake packets are told of with their numbers. The packets that follow are told of when they
//! are sent, acknowledged or lost.
//!
//! The `qlog` crate is not used: its writer takes the time of day for its origin, which virtual
//! time does not have.
#![forbid(unsafe_code)]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use uts_engine::{
    ConnectionHandle, Direction, Endpoint, Event, ExchangeEvent, HandshakeLevel, HandshakeRow, TraceKind,
    TraceRow,
};
use uts_functions::Time;
use uts_units::printable;

/// Names the events that are UTS's own.
const UTS_SCHEMA: &str = "urn:uts:qlog:events";

/// The record separator of RFC 7464.
const SEPARATOR: u8 = 0x1e;

/// Whose log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vantage {
    /// A host that opens connections.
    Client,
    /// A host that accepts them.
    Server,
}

/// Figures that are known of the path of a connection; 0 is unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// The congestion window.
    pub window_bytes: u64,
    /// The window at which slow start ends.
    pub threshold_bytes: u64,
    /// Bytes that were sent and are not acknowledged.
    pub in_flight_bytes: u64,
    /// The smoothed round trip.
    pub rtt_smoothed: core::time::Duration,
    /// The least.
    pub rtt_min: core::time::Duration,
}

/// The log of a host, as it is written.
pub struct Qlog<W: Write = Box<dyn Write>> {
    writer: W,
    error: Option<io::Error>,
    /// The last figures of the path of each connection: window, threshold, bytes in flight,
    /// smoothed and least round trip in nanoseconds.
    told: BTreeMap<ConnectionHandle, [u64; 5]>,
}

impl<W: Write> Qlog<W> {
    /// Begins a log; `name` says which host it is, `title` where.
    ///
    /// # Errors
    /// The writer's. Later ones are returned by [`Qlog::finish`].
    pub fn new(writer: W, title: &str, name: &str, vantage: Vantage) -> io::Result<Self> {
        let kind = match vantage {
            Vantage::Client => "client",
            Vantage::Server => "server",
        };
        let mut qlog = Qlog { writer, error: None, told: BTreeMap::new() };
        qlog.write(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": title,
            "trace": {
                "vantage_point": { "name": name, "type": kind },
                "event_schemas": ["urn:ietf:params:qlog:events:quic", UTS_SCHEMA],
                "common_fields": {
                    "time_format": "relative_to_epoch",
                    "reference_time": { "clock_type": "monotonic", "epoch": "unknown" },
                },
            },
        }));
        match qlog.error.take() {
            Some(error) => Err(error),
            None => Ok(qlog),
        }
    }

    /// Logs what a connection tells its application.
    pub fn on_event(&mut self, now: Time, endpoint: &Endpoint, handle: ConnectionHandle, event: &Event) {
        let profile = endpoint.peek(handle).and_then(|c| c.profile(Direction::Out));
        let (name, data) = match event {
            Event::Connected => {
                let remote = endpoint.peek(handle).map(|c| printable::address(c.remote()).to_string());
                let profile = profile.map(|p| p.to_string());
                ("uts:connected", json!({ "remote": remote, "profile": profile }))
            }
            Event::Closed(reason) => ("uts:closed", json!({ "reason": reason.to_string() })),
            Event::PacketSize(bytes) => ("quic:mtu_updated", json!({ "new": bytes })),
            Event::Silent(long) => ("uts:silent", json!({ "for_ms": long.as_millis() })),
            Event::Heard(after) => ("uts:heard", json!({ "after_ms": after.as_millis() })),
            Event::Moved { remote, is_peer } => {
                let who = if *is_peer { "peer" } else { "this end" };
                ("uts:moved", json!({ "remote": printable::address(*remote).to_string(), "who": who }))
            }
            Event::EarlyAnswer(answer) => {
                ("uts:early_answer", json!({ "length": answer.as_ref().map(|answer| answer.len()) }))
            }
            Event::Ticket(ticket) => ("uts:ticket", json!({ "lifetime_s": ticket.lifetime_s })),
            Event::NoEffect(property) => ("uts:no_effect", json!({ "property": property })),
            Event::MaySend(rate) => ("uts:may_send", json!({ "bits_per_s": rate.bits_per_sec() })),
            Event::Exchange(exchange) => describe(exchange),
            Event::FlowOpened(flow) => ("uts:flow_opened", json!({ "flow": flow.0 })),
            Event::Expedited(flow) => ("uts:expedited", json!({ "flow": flow.0 })),
            Event::Finished(flow) => ("uts:flow_finished", json!({ "flow": flow.0 })),
            Event::Stopped(flow, code) => ("uts:flow_stopped", json!({ "flow": flow.0, "code": code })),
            Event::Refused(flow, why) => ("uts:flow_refused", json!({ "flow": flow.0, "why": why })),
            // Said of every piece of data, and of no packet.
            Event::Readable(_) | Event::Writable(_) => return,
        };
        self.event(now, handle, name, data);
    }

    /// Logs what packets of a connection have done, those of its handshake and others, both in the
    /// order of time, and what became of its path's figures.
    pub fn on_packets(
        &mut self,
        endpoint: &Endpoint,
        handle: ConnectionHandle,
        handshake: &[HandshakeRow],
        rows: &[TraceRow],
    ) {
        let mut rest = rows;
        for packet in handshake {
            let (before, after) = rest.split_at(rest.partition_point(|row| row.at < packet.at));
            self.packets(handle, before);
            self.handshake_packet(handle, packet);
            rest = after;
        }
        self.packets(handle, rest);
        if let (Some(last), Some(connection)) = (rows.last(), endpoint.peek(handle)) {
            let facts = connection.facts();
            let figures = Figures {
                window_bytes: connection.congestion().map_or(0, |(_, window)| window),
                threshold_bytes: connection.slow_start_threshold().unwrap_or(0),
                in_flight_bytes: connection.in_flight_bytes(),
                rtt_smoothed: facts.rtt_smoothed,
                rtt_min: facts.rtt_min,
            };
            self.figures(last.at, handle, figures);
        }
    }

    /// Logs what packets of a connection have done.
    pub fn packets(&mut self, handle: ConnectionHandle, rows: &[TraceRow]) {
        let mut acknowledged: Vec<u64> = Vec::new();
        for (place, row) in rows.iter().enumerate() {
            if row.kind != TraceKind::Acknowledged {
                self.packet(handle, row);
                continue;
            }
            acknowledged.push(row.number);
            let next = rows.get(place + 1).map(|next| (next.kind, next.at));
            if next != Some((row.kind, row.at)) {
                let numbers = json!({ "packet_numbers": core::mem::take(&mut acknowledged) });
                self.event(row.at, handle, "quic:packets_acked", numbers);
            }
        }
    }

    fn handshake_packet(&mut self, handle: ConnectionHandle, row: &HandshakeRow) {
        let name = if row.is_sent { "quic:packet_sent" } else { "quic:packet_received" };
        let level = match row.level {
            HandshakeLevel::Initial => "initial",
            HandshakeLevel::Handshake => "handshake",
            HandshakeLevel::Early => "0RTT",
        };
        let header = json!({ "packet_type": level, "packet_number": row.number });
        self.event(row.at, handle, name, json!({ "header": header, "raw": { "length": row.bytes } }));
    }

    fn packet(&mut self, handle: ConnectionHandle, row: &TraceRow) {
        let header = json!({ "packet_type": "1RTT", "packet_number": row.number });
        let (name, data) = match row.kind {
            TraceKind::Lost => ("quic:packet_lost", json!({ "header": header })),
            TraceKind::Received => {
                let (raw, uts) = (json!({ "payload_length": row.bytes }), json!({ "epoch": row.epoch }));
                ("quic:packet_received", json!({ "header": header, "raw": raw, "uts": uts }))
            }
            _ => {
                let uts = json!({
                    "epoch": row.epoch,
                    "repeats": row.kind == TraceKind::Repeated,
                    "flow": row.data.map(|(flow, _)| flow),
                    "position": row.data.map(|(_, position)| position),
                });
                ("quic:packet_sent", json!({ "header": header, "raw": { "length": row.bytes }, "uts": uts }))
            }
        };
        self.event(row.at, handle, name, data);
    }

    /// Says what has changed of window, flight and round trip.
    pub fn figures(&mut self, at: Time, handle: ConnectionHandle, figures: Figures) {
        let nanos = |duration: core::time::Duration| duration.as_nanos() as u64;
        let figures = [
            figures.window_bytes,
            figures.threshold_bytes,
            figures.in_flight_bytes,
            nanos(figures.rtt_smoothed),
            nanos(figures.rtt_min),
        ];
        let told = self.told.insert(handle, figures).unwrap_or_default();
        let mut changed = serde_json::Map::new();
        // The names of draft-ietf-quic-qlog-quic-events, bytes before times.
        let names = ["congestion_window", "ssthresh", "bytes_in_flight", "smoothed_rtt", "min_rtt"];
        for (n, name) in names.iter().enumerate() {
            if figures[n] != told[n] {
                let value = if n < 3 { json!(figures[n]) } else { json!(figures[n] as f64 / 1e6) };
                changed.insert((*name).to_owned(), value);
            }
        }
        if !changed.is_empty() {
            self.event(at, handle, "quic:recovery_metrics_updated", Value::Object(changed));
        }
    }

    /// Logs an event of any name.
    pub fn event(&mut self, at: Time, handle: ConnectionHandle, name: &str, data: Value) {
        let time = at.as_nanos() as f64 / 1e6;
        self.write(&json!({ "time": time, "name": name, "group_id": handle.0.to_string(), "data": data }));
    }

    /// Writes a record. After an error of the writer nothing more is written.
    fn write(&mut self, record: &Value) {
        if self.error.is_none() {
            self.error = self.try_write(record).err();
        }
    }

    fn try_write(&mut self, record: &Value) -> io::Result<()> {
        self.writer.write_all(&[SEPARATOR])?;
        serde_json::to_writer(&mut self.writer, record)?;
        self.writer.write_all(b"\n")
    }

    /// Hands on what was written.
    ///
    /// # Errors
    /// The first of the writer's.
    pub fn flush(&mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.writer.flush(),
        }
    }

    /// Says whether everything was written.
    ///
    /// # Errors
    /// The first of the writer's.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()
    }
}

fn describe(exchange: &ExchangeEvent) -> (&'static str, Value) {
    let way = |direction: &Direction| match direction {
        Direction::Out => "out",
        Direction::In => "in",
    };
    match exchange {
        ExchangeEvent::Requested { direction, group, epoch, seen, path, changes, expects } => (
            "uts:exchange_requested",
            json!({ "direction": way(direction), "group": group, "epoch": epoch, "seen": seen, "path": path,
                    "changes": changes, "expects": expects }),
        ),
        ExchangeEvent::Granted { direction, group, epoch, changes, profile } => (
            "uts:exchange_granted",
            json!({ "direction": way(direction), "group": group, "epoch": epoch, "changes": changes,
                    "profile": profile.to_string() }),
        ),
        ExchangeEvent::Completed { direction, group, epoch, profile, took } => (
            "uts:exchange_completed",
            json!({ "direction": way(direction), "group": group, "epoch": epoch, "profile": profile.to_string(),
                    "took": took.as_nanos() as f64 / 1e6 }),
        ),
        ExchangeEvent::Refused { direction, group, epoch, function, why } => (
            "uts:exchange_refused",
            json!({ "direction": way(direction), "group": group, "epoch": epoch, "function": format!("{function:?}"),
                    "why": why }),
        ),
        ExchangeEvent::Failed { direction, group, epoch } => {
            ("uts:exchange_failed", json!({ "direction": way(direction), "group": group, "epoch": epoch }))
        }
        ExchangeEvent::Brought { epoch, line } => {
            ("uts:exchange_brought", json!({ "epoch": epoch, "line": line }))
        }
        // One of a newer engine.
        other => ("uts:exchange", json!({ "event": format!("{other:?}") })),
    }
}
