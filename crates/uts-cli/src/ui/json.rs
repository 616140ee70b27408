//! One JSON object a line, for programs. The schema is in docs/uts.md.

use super::record::{Peer, Record, peer_fields};
use super::{Clock, Done, Sample, Start, Ui, hex, lines, outcome_name, utc};
use crate::link::{ExchangeStep, Telemetry};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use uts_files::FileOutcome;
use uts_ledger::Row;

const PERIOD: Duration = Duration::from_millis(100);

/// Writes events as JSON.
pub struct Json<W>(Mutex<W>, Clock);

impl<W: Write + Send + 'static> Json<W> {
    /// Times count from now.
    pub fn new(out: W) -> Self {
        Json(Mutex::new(out), Clock::start())
    }

    /// An event of a command's own.
    pub fn event(&self, event: &str, fields: Value) {
        self.emit(event, None, fields);
    }

    /// Says whether it was written.
    fn emit(&self, event: &str, peer: Option<&Peer>, fields: Value) -> bool {
        let mut object = Map::new();
        object.insert("event".into(), event.into());
        object.insert("t".into(), json!(round(self.1.seconds(), 6)));
        object.insert("time".into(), utc().into());
        object.extend(peer.into_iter().flat_map(peer_fields));
        if let Value::Object(fields) = fields {
            object.extend(fields);
        }
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines::write_json(&mut *out, Value::Object(object))
    }
}

/// Rounded to so many digits behind the point.
pub fn round(x: f64, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (x * factor).round() / factor
}

fn with_telemetry(mut fields: Value, telemetry: &Telemetry) -> Value {
    if let Value::Object(object) = &mut fields {
        object.insert("rate_bps".into(), json!(round(telemetry.rate_bps, 0)));
        object.insert("rtt_ms".into(), json!(round(telemetry.rtt_ms, 3)));
        object.insert("loss".into(), json!(round(telemetry.loss, 6)));
        object.insert("profile".into(), json!(telemetry.profile));
        object.insert("packets_sent".into(), json!(telemetry.packets_sent));
        object.insert("packets_repeated".into(), json!(telemetry.packets_repeated));
        object.insert("packets_repaired".into(), json!(telemetry.packets_repaired));
        object.insert("exchanges".into(), json!(telemetry.exchanges));
    }
    fields
}

impl<W: Write + Send + 'static> Ui for Json<W> {
    fn start(&self, start: &Start) {
        let Start { command, address, fingerprint, subject, served } = start;
        let mut fields =
            json!({"command": command, "address": address, "fingerprint": fingerprint, "subject": subject});
        if let (Value::Object(object), Some(served)) = (&mut fields, served) {
            object.insert("access".into(), json!(served.access()));
            object.insert("clients".into(), json!(served.clients));
            object.insert("reach".into(), json!(served.reach));
            object.insert("files_served".into(), json!(served.files));
            object.insert("more_files".into(), json!(served.has_more));
            object.insert("hidden_left_out".into(), json!(served.leaves_hidden));
            object.insert("confined".into(), json!(served.confined));
            if served.has_media {
                object.insert("media".into(), json!(true));
            }
            if served.has_perf {
                object.insert("perf".into(), json!(true));
            }
            if !served.pipes.is_empty() {
                object.insert("pipes".into(), json!(served.pipes));
            }
            if !served.forwards.is_empty() {
                object.insert("forwards".into(), json!(served.forwards));
            }
        }
        self.emit("start", None, fields);
    }

    fn record(&self, record: &Record<'_>) {
        self.emit(record.event, None, Value::Object(record.fields()));
    }

    fn notice(&self, peer: Option<&Peer>, step: &str, line: &str) {
        self.record(&Record { step, peer, line, ..Record::default() });
    }

    fn sample(&self, peer: Option<&Peer>, sample: &Sample) {
        let Sample { bytes, total, files, files_total, failures, name, telemetry } = sample;
        let fields = json!({
            "bytes": bytes, "total": total, "files": files, "files_total": files_total, "failures": failures, "name": name,
        });
        self.emit("progress", peer, with_telemetry(fields, telemetry));
    }

    fn exchange(&self, peer: Option<&Peer>, x: &ExchangeStep) {
        let line = if x.line.is_empty() { x.describe() } else { x.line.clone() };
        let mut fields = json!({
            "step": x.step, "direction": x.direction, "group": x.group, "epoch": x.epoch,
            "seen": x.seen, "path": x.path, "changes": x.changes, "expects": x.expects,
            "line": lines::line(line),
        });
        if let Value::Object(object) = &mut fields {
            if let Some(ms) = x.took_ms {
                object.insert("took_ms".into(), json!(round(ms, 3)));
            }
            if !x.profile.is_empty() {
                object.insert("profile".into(), json!(x.profile));
            }
        }
        self.emit("exchange", peer, fields);
    }

    fn file(
        &self,
        peer: Option<&Peer>,
        name: &str,
        bytes: u64,
        outcome: &FileOutcome,
        telemetry: &Telemetry,
    ) {
        let mut fields = json!({"name": name, "bytes": bytes, "outcome": outcome_name(outcome)});
        if let Value::Object(object) = &mut fields {
            match outcome {
                FileOutcome::Copied(hash) | FileOutcome::AlreadyThere(hash) => {
                    object.insert("hash".into(), json!(hex(hash)));
                }
                FileOutcome::Wanted | FileOutcome::Kept | FileOutcome::Deleted | FileOutcome::Superfluous => {
                }
                FileOutcome::Failed(error) => {
                    object.insert("error".into(), json!(lines::line(error.to_string())));
                }
            }
        }
        self.emit("file", peer, with_telemetry(fields, telemetry));
    }

    fn warning(&self, line: &str) {
        if !self.emit("warning", None, json!({"message": lines::line(line)})) {
            lines::fail(format_args!("warning: {line}"));
        }
    }

    fn error(&self, line: &str) {
        if !self.emit("error", None, json!({"message": lines::line(line)})) {
            // If nobody reads the events any more, somebody may still read this.
            lines::fail(line);
        }
    }

    fn failed(&self, line: &str) {
        self.emit("error", None, json!({"message": lines::line(line)}));
    }

    fn ledger(&self, rows: &[Row]) {
        self.emit("ledger", None, json!({"resources": lines::resources(rows)}));
    }

    fn done(&self, done: &Done) {
        let fields = json!({
            "bytes": done.bytes, "bytes_carried": done.bytes_carried, "bytes_literal": done.bytes_literal,
            "bytes_matched": done.bytes_matched, "directories": done.directories, "links": done.links,
            "deleted": if done.wanted.is_some() { 0 } else { done.deleted }, "seconds": round(done.seconds, 6),
            "goodput_bps": round(done.goodput_bps(), 0), "files": done.files,
            "files_total": done.files_total, "files_already_there": done.files_already_there, "failures": done.failures, "hash": done.hash,
        });
        let mut fields = with_telemetry(fields, &done.telemetry);
        if let (Value::Object(object), Some((files, bytes))) = (&mut fields, done.wanted) {
            object.insert("files_wanted".into(), json!(files));
            object.insert("bytes_wanted".into(), json!(bytes));
            object.insert("deleted_wanted".into(), json!(done.deleted));
        }
        self.emit("done", None, fields);
    }

    fn period(&self) -> Option<Duration> {
        Some(PERIOD)
    }
}
