//! Output of `uts perf`: lines with the columns of iperf3, or JSON.

use crate::args::PerfArgs;
use crate::link::{ExchangeStep, Link};
use crate::ui::json::{Json, round};
use crate::ui::plain::Plain;
use crate::ui::{self, Start, Ui};
use serde_json::{Map, Value, json};
use std::time::Duration;
use uts::{Connection, Direction};
use uts_end::output::Output;
use uts_perf::{Ended, Half, Interval, Request, Seen, Way};
use uts_traffic::workload::Workload;
use uts_units::show;

const HEADER: &str = "[Dir] Interval            Transfer      Bitrate           Retr  Cwnd         RTT";
const RULE: &str = "- - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - -";

/// Audience of the output.
pub enum Told {
    /// People; whether they want the results only.
    People(Plain<Output, Output>, bool),
    /// Programs.
    Programs(Json<Output>),
}

/// Facts of a measurement that begins.
pub struct Begun {
    start: Start,
    workload: Workload,
    flows: u32,
    way: Way,
    profiles: [Option<String>; 2],
    wrong_by: Duration,
}

impl Begun {
    /// Of a connection.
    pub fn new<L: Link>(link: &L, connection: &Connection, request: &Request, wrong_by: Duration) -> Self {
        let (address, fingerprint) = link.peer();
        let start = Start {
            command: "perf",
            address,
            fingerprint: fingerprint.unwrap_or_default(),
            subject: String::new(),
            served: None,
        };
        let profile = |direction| connection.profile(direction).map(|profile| profile.to_string());
        Begun {
            start,
            workload: request.workload.clone(),
            flows: request.flows,
            way: request.way,
            profiles: [profile(Direction::Out), profile(Direction::In)],
            wrong_by,
        }
    }
}

/// Lines for people about one direction of a measurement that has ended.
fn lines(seen: &Seen<'_>, ended: &Ended) -> Vec<String> {
    match &ended.measured.request.workload {
        Workload::Requests { count, .. } => requests(seen, *count, ended),
        Workload::Messages { .. } => messages(seen, ended.wrong_by),
        _ => bulk(seen, ended),
    }
}

fn bulk(seen: &Seen<'_>, ended: &Ended) -> Vec<String> {
    let span = (Duration::ZERO, ended.lasted(seen));
    let row = |bytes: f64, repeated: Option<u64>, whose: &str| {
        let columns = repeated.map(|repeated| format!("  {repeated:>6}  ")).unwrap_or_default();
        let columns = if columns.is_empty() { " ".repeat(10) } else { columns };
        format!("{}{columns}{whose}", row(seen.direction, span, bytes as u64))
    };
    let mut lines = Vec::new();
    if seen.served.flows.len() > 1 {
        for (n, flow) in (1..).zip(&seen.served.flows) {
            lines.push(row(flow.value("delivered").unwrap_or(0.0), None, &format!("receiver, flow {n}")));
        }
    }
    let repeated = Some(seen.driver.packets_repeated);
    lines.push(row(seen.driven.sum("sent").unwrap_or(0.0), repeated, "sender"));
    lines.push(row(seen.served.sum("delivered").unwrap_or(0.0), None, "receiver"));
    lines
}

fn requests(seen: &Seen<'_>, count: u32, ended: &Ended) -> Vec<String> {
    let direction = seen.direction;
    let figure = |name| seen.driven.sum(name).unwrap_or(0.0);
    vec![
        format!(
            "[{direction:<3}] {:.0} of {count} requests answered in {}, {:.1} a second",
            figure("answered"),
            show::seconds(ended.lasted(seen).as_secs_f64()),
            figure("requests_per_s")
        ),
        spread(seen.driven, direction, "request"),
    ]
}

fn messages(seen: &Seen<'_>, wrong_by: Duration) -> Vec<String> {
    let direction = seen.direction;
    let figure = |name| seen.served.sum(name).unwrap_or(0.0);
    let mut lines = vec![
        format!(
            "[{direction:<3}] {:.0} messages due: {:.2} % in time, {:.0} late, {:.0} missing; {} of use",
            figure("due"),
            figure("in_time") * 100.0,
            figure("late"),
            figure("missing"),
            show::bits_per_second(figure("goodput"))
        ),
        spread(seen.served, direction, "latency"),
    ];
    if seen.served.sum("latency_p50").is_some() {
        let ms = wrong_by.as_secs_f64() * 1e3;
        lines.push(format!("[{direction:<3}] the clocks of the ends agree within {ms:.2} ms"));
    }
    lines
}

/// One direction of a measurement that has ended, for programs.
fn result(seen: &Seen<'_>, ended: &Ended) -> Value {
    let half = |half: &Half| {
        let flows = half.flows.iter().map(|flow| {
            let named = flow.measures.iter().map(|m| (m.name.clone(), json!(round(m.value, 6))));
            let mut fields: Map<String, Value> = named.collect();
            if let Some(why) = &flow.cut_short {
                fields.insert("cut_short".into(), json!(why));
            }
            Value::Object(fields)
        });
        flows.collect::<Vec<_>>()
    };
    json!({
        "direction": seen.direction, "workload": ended.measured.request.workload.kind(),
        "seconds": round(ended.lasted(seen).as_secs_f64(), 6),
        "packets_sent": seen.driver.packets_sent, "packets_repeated": seen.driver.packets_repeated,
        "sender": half(seen.driven), "receiver": half(seen.served),
    })
}

/// The percentiles of a figure, as a line.
fn spread(half: &Half, direction: &str, name: &str) -> String {
    let figures = ["p50", "p90", "p99", "max", "mean"].map(|which| {
        let ms = half.sum(&format!("{name}_{which}"));
        ms.map_or_else(|| format!("{which} -"), |ms| format!("{which} {ms:.2} ms"))
    });
    format!("[{direction:<3}] {name}: {}", figures.join(", "))
}

/// The first columns of a row.
fn row(direction: &str, (from, to): (Duration, Duration), bytes: u64) -> String {
    let (from_s, to_s) = (from.as_secs_f64(), to.as_secs_f64());
    let rate_bps = if to > from { bytes as f64 * 8.0 / (to_s - from_s) } else { 0.0 };
    let span = format!("{from_s:.2}-{to_s:.2} s");
    let (bytes, rate) = (show::bytes(bytes), show::bits_per_second(rate_bps));
    format!("[{direction:<3}] {span:<18}  {bytes:>9}  {rate:>15}")
}

impl Told {
    /// Whom the options name.
    pub fn new(args: &PerfArgs) -> Self {
        if args.json {
            Told::Programs(Json::new(Output::Out))
        } else {
            Told::People(Plain::new(Output::Out, Output::Out, args.quiet), args.quiet)
        }
    }

    fn line(&self, line: impl Into<String>, is_result: bool) {
        if let Told::People(_, is_quiet) = self
            && (is_result || !is_quiet)
        {
            ui::lines::write_line(&mut Output::Out, line.into());
        }
    }

    /// It begins.
    pub fn begun(&self, begun: &Begun) {
        let Begun { start, workload, flows, way, profiles: [out, back], wrong_by } = begun;
        match self {
            Told::Programs(json) => json.event(
                "start",
                json!({
                    "command": start.command, "address": start.address, "fingerprint": start.fingerprint,
                    "workload": workload, "flows": flows, "way": way, "profile_out": out, "profile_in": back,
                    "clocks_within_ms": round(wrong_by.as_secs_f64() * 1e3, 3),
                }),
            ),
            Told::People(plain, _) => {
                plain.start(start);
                for (direction, profile) in [("out", out), ("in", back)] {
                    let profile = profile.as_deref().unwrap_or("-");
                    self.line(format!("[{direction:<3}] profile {profile}"), false);
                }
                self.line(HEADER, false);
            }
        }
    }

    /// An interval is over.
    pub fn interval(&self, interval: &Interval, way: Way) {
        for (direction, bytes) in interval.directions(way) {
            let (from, to) = interval.span();
            let repeated = interval.packets_repeated();
            let rtt_ms = interval.rtt.as_secs_f64() * 1e3;
            let is_out = direction == "out";
            if let Told::Programs(json) = self {
                let seconds = (to - from).as_secs_f64();
                let rate_bps = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
                let mut fields = json!({
                    "direction": direction, "from_s": round(from.as_secs_f64(), 6),
                    "to_s": round(to.as_secs_f64(), 6), "bytes": bytes, "rate_bps": round(rate_bps, 0),
                    "rtt_ms": round(rtt_ms, 3),
                });
                if let (Value::Object(fields), true) = (&mut fields, is_out) {
                    fields.insert("packets_repeated".into(), json!(repeated));
                    fields.insert("window_bytes".into(), json!(interval.window_bytes));
                }
                json.event("interval", fields);
            } else {
                let columns = if is_out {
                    let window = interval.window_bytes.map_or_else(|| "-".to_owned(), show::bytes);
                    format!("  {repeated:>6}  {window:>9}")
                } else {
                    " ".repeat(19)
                };
                let line = format!("{}{columns}  {rtt_ms:>8.2} ms", row(direction, (from, to), bytes));
                self.line(line, false);
            }
        }
    }

    /// A step of an exchange.
    pub fn exchange(&self, step: &ExchangeStep) {
        match self {
            Told::People(plain, _) => plain.exchange(None, step),
            Told::Programs(json) => json.exchange(None, step),
        }
    }

    /// Something about the connection.
    pub fn notice(&self, step: &str, line: &str) {
        match self {
            Told::People(plain, _) => plain.notice(None, step, line),
            Told::Programs(json) => json.notice(None, step, line),
        }
    }

    /// It has ended.
    pub fn ended(&self, ended: &Ended) {
        self.line(RULE, false);
        for seen in ended.measured.seen() {
            match self {
                Told::Programs(json) => json.event("result", result(&seen, ended)),
                Told::People(..) => lines(&seen, ended).into_iter().for_each(|line| self.line(line, true)),
            }
        }
        if let Told::Programs(json) = self {
            json.event("done", json!({"seconds": round(ended.took.as_secs_f64(), 6)}));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_perf::{FlowReport, Measured, Report};
    use uts_traffic::measure::Measure;

    fn flow(measures: &[(&str, f64)]) -> FlowReport {
        let measures = measures.iter().map(|(name, value)| Measure::new(*name, *value, "1")).collect();
        FlowReport { measures, cut_short: None }
    }

    fn report(driven: Vec<FlowReport>, served: Vec<FlowReport>) -> Report {
        let half = |flows: Vec<FlowReport>| (!flows.is_empty()).then_some(Half { flows });
        Report { driven: half(driven), served: half(served), packets_sent: 100, packets_repeated: 3 }
    }

    fn request(workload: Workload, way: Way) -> Request {
        Request { version: 1, workload, flows: 1, way, seed: 1 }
    }

    fn ended(request: Request, client: Report, server: Report) -> Ended {
        let measured = Measured { request, client, server };
        Ended { measured, took: Duration::from_secs(2), wrong_by: Duration::from_micros(30) }
    }

    fn all_lines(ended: &Ended) -> Vec<String> {
        ended.measured.seen().flat_map(|seen| lines(&seen, ended)).collect()
    }

    #[test]
    fn rows_stand_beneath_their_headings() {
        let row = row("in", (Duration::from_secs(1), Duration::from_millis(1500)), 62_500_000);
        assert_eq!(row, "[in ] 1.00-1.50 s           62.5 MB       1.0 Gbit/s");
        assert_eq!(HEADER.find("Transfer"), Some(26));
        assert_eq!(row.find("62.5 MB"), Some(28));
        assert!(super::row("out", (Duration::ZERO, Duration::ZERO), 5).ends_with("0 bit/s"));
    }

    #[test]
    fn bulk_shows_both_ends_and_each_flow() {
        let second = Some(Duration::from_secs(1));
        let request = request(Workload::Bulk { bytes: None, duration: second }, Way::Forward);
        let own = report(vec![flow(&[("sent", 3e6)]), flow(&[("sent", 2e6)])], Vec::new());
        let theirs = report(Vec::new(), vec![flow(&[("delivered", 2e6)]), flow(&[("delivered", 2e6)])]);
        let mut ended = ended(request, own, theirs);
        assert_eq!(ended.measured.cut_short(), None);
        let lines = all_lines(&ended);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines[0].ends_with("16.0 Mbit/s          receiver, flow 1"), "{}", lines[0]);
        assert!(lines[2].ends_with("40.0 Mbit/s       3  sender"), "{}", lines[2]);
        assert!(lines[3].ends_with("32.0 Mbit/s          receiver"), "{}", lines[3]);
        ended.measured.server = Report::default();
        assert_eq!(ended.measured.cut_short().as_deref(), Some("the server does not say what it has seen"));
    }

    #[test]
    fn requests_and_messages_show_their_percentiles() {
        let asked = Workload::Requests { count: 9, request_bytes: 1, answer_bytes: 1, concurrency: 1 };
        let spread = |name: &str| ["p50", "p90", "p99", "max", "mean"].map(|q| format!("{name}_{q}"));
        let figures = spread("request");
        let mut measures: Vec<(&str, f64)> = figures.iter().map(|name| (name.as_str(), 1.5)).collect();
        measures.extend([("answered", 9.0), ("completion", 0.5), ("requests_per_s", 18.0)]);
        let asked = request(asked, Way::Reverse);
        let theirs = report(vec![flow(&measures)], Vec::new());
        let own = report(Vec::new(), vec![flow(&[("served", 9.0)])]);
        assert_eq!(
            all_lines(&ended(asked, own, theirs)),
            [
                "[in ] 9 of 9 requests answered in 0.50 s, 18.0 a second",
                "[in ] request: p50 1.50 ms, p90 1.50 ms, p99 1.50 ms, max 1.50 ms, mean 1.50 ms",
            ]
        );
        let (every, second) = (Duration::from_millis(20), Duration::from_secs(1));
        let timed = Workload::Messages { every, bytes: 160, duration: second, deadline: second };
        let timed = request(timed, Way::Forward);
        let own = report(vec![flow(&[("sent", 8000.0), ("skipped", 0.0)])], Vec::new());
        let arrived = [("due", 50.0), ("in_time", 0.98), ("missing", 1.0), ("goodput", 62_720.0)];
        let theirs = report(Vec::new(), vec![flow(&arrived)]);
        assert_eq!(
            all_lines(&ended(timed, own, theirs)),
            [
                "[out] 50 messages due: 98.00 % in time, 0 late, 1 missing; 62.7 kbit/s of use",
                "[out] latency: p50 -, p90 -, p99 -, max -, mean -",
            ]
        );
    }
}
