//! Trace of an end of UTS, as qlog: the same form as in virtual time.

use crate::experiment::case::{Case, Flow};
use anyhow::{Context, Result};
use serde_json::json;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use uts_end::Role;
use uts_end::line::Line;
use uts_engine::{ConnectionHandle, FrameKinds, TraceKind, TraceRow};
use uts_functions::Time;
use uts_qlog::{Figures, Qlog, Vantage};
use uts_traffic::measure::{PacketEvent, Sample};

/// The one connection of an end.
const CONNECTION: ConnectionHandle = ConnectionHandle(0);

/// Writes `FLOW.ROLE.sqlog` into a directory; time zero is when the run began.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(
    case: &Case,
    flow: &Flow,
    role: Role,
    lines: &[Line],
    origin_ns: u64,
    dir: &Path,
) -> Result<()> {
    let name = format!("{}.{}", flow.name, role.name());
    let path = dir.join(format!("{name}.sqlog"));
    let vantage = match role {
        Role::Client => Vantage::Client,
        Role::Server => Vantage::Server,
    };
    let written = || {
        let file = Box::new(BufWriter::new(File::create(&path)?));
        let mut qlog =
            Qlog::new(file, &format!("{name} in the world {}", case.world.name()), &name, vantage)?;
        let mut rows = Vec::new();
        for line in lines {
            let Line::Sample(sample) = line else { continue };
            match sample {
                Sample::Packet { at_ns, what, number, bytes, epoch, data } => rows.push(TraceRow {
                    at: since(*at_ns, origin_ns),
                    kind: match what {
                        PacketEvent::Sent => TraceKind::Sent,
                        PacketEvent::Repeated => TraceKind::Repeated,
                        PacketEvent::Acked => TraceKind::Acknowledged,
                        PacketEvent::Lost => TraceKind::Lost,
                        PacketEvent::Received => TraceKind::Received,
                    },
                    number: *number,
                    bytes: *bytes,
                    epoch: *epoch,
                    data: *data,
                    frames: FrameKinds::default(),
                }),
                Sample::Status { at_ns, window_bytes, threshold_bytes, in_flight_bytes, rtt } => {
                    qlog.packets(CONNECTION, &core::mem::take(&mut rows));
                    let figures = Figures {
                        window_bytes: window_bytes.unwrap_or(0),
                        threshold_bytes: threshold_bytes.unwrap_or(0),
                        in_flight_bytes: in_flight_bytes.unwrap_or(0),
                        rtt_smoothed: rtt.unwrap_or_default(),
                        rtt_min: Default::default(),
                    };
                    qlog.figures(since(*at_ns, origin_ns), CONNECTION, figures);
                }
                Sample::Exchange { at_ns, line } => {
                    qlog.event(since(*at_ns, origin_ns), CONNECTION, "uts:exchange", json!({ "line": line }));
                }
                Sample::Delivered { .. } | Sample::Latency { .. } => {}
            }
        }
        qlog.packets(CONNECTION, &rows);
        qlog.finish()
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

/// Time since the run began. An event from before has the time 0.
fn since(at_ns: u64, origin_ns: u64) -> Time {
    Time::from_nanos(at_ns.saturating_sub(origin_ns))
}
