//! The screen: who is connected and how fast, and of the one that is marked what its connection
//! saw, changed, expects and has brought.

use crate::cmd::ctl::sentence;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState, Wrap};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use uts::printable;
use uts_units::show;

/// Lines below the list, for the one that is marked.
const DETAIL_LINES: u16 = 8;

/// The longest text in a column, in characters.
const TEXT_CHARS_MAX: usize = 200;

/// The content of the screen.
#[derive(Debug, Default)]
pub struct View {
    list: Value,
    rows: Vec<Entry>,
    marked: usize,
    /// Bytes both ways when it was asked before, by number.
    before: BTreeMap<u64, [u64; 2]>,
}

/// A client, or a stream of a tunnel.
#[derive(Clone, Debug, Default)]
struct Entry {
    id: u64,
    who: String,
    what: String,
    seconds: u64,
    bytes: [u64; 2],
    rates_bps: [f64; 2],
    rtt_ms: Option<f64>,
    loss: Option<f64>,
    profile: String,
    sentence: Option<String>,
    detail: Vec<String>,
}

/// A text of another program, as it may be shown.
fn text(value: &Value) -> String {
    printable::line(value.as_str().unwrap_or_default(), TEXT_CHARS_MAX)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn all(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl View {
    /// Takes what a server or a tunnel has said, so long after it was asked before.
    pub fn take(&mut self, list: Value, since: Duration) {
        let mut rows: Vec<Entry> = if list.get("session").is_some() {
            vec![session(&list)]
        } else if list.get("media").is_some() {
            vec![media(&list)]
        } else if list.get("server").is_some() {
            all(&list["clients"]).map(client).collect()
        } else {
            all(&list["carried"]).map(|carried| stream(carried, &list["connection"])).collect()
        };
        for row in &mut rows {
            let before = self.before.get(&row.id).copied().unwrap_or(row.bytes);
            let seconds = since.as_secs_f64();
            if seconds > 0.0 {
                row.rates_bps =
                    [0, 1].map(|way| row.bytes[way].saturating_sub(before[way]) as f64 * 8.0 / seconds);
            }
        }
        self.before = rows.iter().map(|row| (row.id, row.bytes)).collect();
        // The mark stays at whom it was, wherever that is now.
        let marked = self.rows.get(self.marked).map(|row| row.id);
        self.marked = rows.iter().position(|row| Some(row.id) == marked).unwrap_or(self.marked);
        self.marked = self.marked.min(rows.len().saturating_sub(1));
        (self.rows, self.list) = (rows, list);
    }

    /// Moves the mark.
    pub fn select(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.marked = self.marked.saturating_add_signed(by).min(last);
    }

    /// Draws all of it.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let parts = [Constraint::Length(1), Constraint::Min(3), Constraint::Length(DETAIL_LINES)];
        let [head, list, detail] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(Line::styled(self.head(), Style::new().add_modifier(Modifier::BOLD)), head);
        let widths = [
            Constraint::Length(4),
            Constraint::Fill(3),
            Constraint::Fill(1),
            Constraint::Length(5),
            Constraint::Length(12),
            Constraint::Length(12),
            Constraint::Length(8),
            Constraint::Length(6),
        ];
        let names = ["ID", "WHO", "WHAT", "SINCE", "IN", "OUT", "RTT", "LOSS"];
        let rows = self.rows.iter().map(|row| {
            let since = show::span(Duration::from_secs(row.seconds));
            let rates = row.rates_bps.map(show::bits_per_second);
            let rtt = row.rtt_ms.map_or_else(String::new, |ms| format!("{ms:.1} ms"));
            let loss = row.loss.map_or_else(String::new, |loss| format!("{:.1} %", loss * 100.0));
            let [came, went] = rates;
            let cells = [row.id.to_string(), row.who.clone(), row.what.clone(), since, came, went, rtt, loss];
            Row::new(cells.map(Cell::from))
        });
        let header = Row::new(names).style(Style::new().add_modifier(Modifier::REVERSED));
        let table = Table::new(rows, widths).header(header).column_spacing(1);
        let table =
            table.row_highlight_style(Style::new().add_modifier(Modifier::BOLD)).highlight_symbol(">");
        let marked = (!self.rows.is_empty()).then_some(self.marked);
        let mut state = TableState::default().with_selected(marked);
        frame.render_stateful_widget(table, list, &mut state);
        let block = Block::new().borders(Borders::TOP).title(" q ends, arrows mark ");
        let lines: Vec<Line<'_>> = self.detail().into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }).block(block), detail);
    }

    /// The server or tunnel, the number of who is there, and the sum of their rates.
    fn head(&self) -> String {
        let sum = |way: usize| show::bits_per_second(self.rows.iter().map(|row| row.rates_bps[way]).sum());
        let (came, went) = (sum(0), sum(1));
        if let Some(session) = self.list.get("session") {
            return format!("session {}: {came} in, {went} out", text(session));
        }
        let host = text(&self.list["host"]);
        let is_up = if self.list["connection"].is_null() { " (not connected)" } else { "" };
        if let Some(media) = self.list.get("media") {
            return format!("media {} by {host}{is_up}: {came} in, {went} out", text(&media["name"]));
        }
        match self.list.get("server") {
            Some(server) => {
                let memory = all(&self.list["resources"]).find(|row| row["resource"] == "memory");
                let held = memory.map_or_else(String::new, |row| {
                    format!(
                        ", {} of {} held",
                        show::bytes(number(&row["held"])),
                        show::bytes(number(&row["total"]))
                    )
                });
                let clients = match self.rows.len() {
                    1 => "1 client".to_owned(),
                    clients => format!("{clients} clients"),
                };
                format!("{}: {clients}, {came} in, {went} out{held}", text(server))
            }
            None => format!("tunnel by {host}{is_up}: {} carried, {came} in, {went} out", self.rows.len()),
        }
    }

    /// Lines about the one that is marked.
    fn detail(&self) -> Vec<String> {
        let Some(row) = self.rows.get(self.marked) else { return vec!["nobody is there".to_owned()] };
        let [came, went] = row.bytes.map(show::bytes);
        let mut lines = vec![format!("{} {}: {came} in, {went} out; {}", row.id, row.who, row.profile)];
        lines.push(row.sentence.clone().unwrap_or_else(|| "no exchange so far".to_owned()));
        lines.extend(row.detail.iter().cloned());
        lines
    }
}

/// The sentence about an exchange, if there was one.
fn exchange(last: &Value) -> Option<String> {
    sentence(last).map(|line| printable::line(&line, 4 * TEXT_CHARS_MAX))
}

/// A client of a server.
fn client(client: &Value) -> Entry {
    let streams = all(&client["carried"]).count();
    let service = text(&client["service"]);
    let what = if streams > 0 { format!("{service} ({streams})") } else { service };
    let key = client["key"].as_str().map_or_else(|| "no key".to_owned(), |key| format!("key {key}"));
    let carried = all(&client["carried"]).map(|carried| {
        let [came, went] = ["bytes_received", "bytes_sent"].map(|name| show::bytes(number(&carried[name])));
        format!("{} {}: {came} in, {went} out", number(&carried["id"]), text(&carried["to"]))
    });
    Entry {
        id: number(&client["id"]),
        who: text(&client["address"]),
        what,
        seconds: number(&client["seconds"]),
        bytes: [number(&client["bytes_in"]), number(&client["bytes_out"])],
        rtt_ms: client["rtt_ms"].as_f64(),
        loss: client["loss"].as_f64(),
        profile: text(&client["profile"]),
        sentence: exchange(&client["last_exchange"]),
        detail: std::iter::once(printable::line(&key, TEXT_CHARS_MAX)).chain(carried).collect(),
        ..Entry::default()
    }
}

/// A session of ssh.
fn session(session: &Value) -> Entry {
    let keys = session["keys_p99_ms"].as_f64();
    let keys = keys.map_or_else(|| "no keys so far".to_owned(), |ms| format!("keys p99 {ms:.0} ms"));
    Entry {
        who: text(&session["other"]),
        what: "ssh".to_owned(),
        seconds: number(&session["seconds"]),
        bytes: [number(&session["bytes_in"]), number(&session["bytes_out"])],
        rtt_ms: session["rtt_ms"].as_f64(),
        loss: session["loss"].as_f64(),
        profile: text(&session["profile"]),
        sentence: Some(text(&session["way"])),
        detail: vec![keys],
        ..Entry::default()
    }
}

/// A sender or a receiver of media.
fn media(list: &Value) -> Entry {
    let (media, connection) = (&list["media"], &list["connection"]);
    let bytes = number(&media["bytes"]);
    let is_sender = media["way"] == "send";
    Entry {
        who: text(&media["place"]),
        what: text(&media["format"]),
        bytes: if is_sender { [0, bytes] } else { [bytes, 0] },
        rtt_ms: connection["rtt_ms"].as_f64(),
        loss: connection["loss"].as_f64(),
        profile: text(&connection[if is_sender { "profile_out" } else { "profile_in" }]),
        sentence: exchange(&connection["last_exchange"]),
        detail: vec![crate::media::board::words(media)],
        ..Entry::default()
    }
}

/// A stream of a tunnel, whose path is that of the tunnel.
fn stream(carried: &Value, connection: &Value) -> Entry {
    Entry {
        id: number(&carried["id"]),
        who: text(&carried["from"]),
        what: text(&carried["to"]),
        seconds: number(&carried["seconds"]),
        bytes: [number(&carried["bytes_received"]), number(&carried["bytes_sent"])],
        rtt_ms: connection["rtt_ms"].as_f64(),
        loss: connection["loss"].as_f64(),
        profile: text(&carried["profile_out"]),
        sentence: exchange(&connection["last_exchange"]),
        detail: vec![format!("of {}", text(&carried["forward"]))],
        ..Entry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    /// Lines of a screen of this size.
    fn shown(view: &View, columns: u16, lines: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line =
            |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..lines).map(line).collect()
    }

    fn server(bytes: u64) -> Value {
        let client = |id: u64, address: &str, service: &str| {
            json!({
                "id": id, "address": address, "key": "SHA256:abc", "service": service, "seconds": 75, "bytes_in": bytes,
                "bytes_out": 2 * bytes, "rate_bps": 1e6, "rtt_ms": 40.25, "loss": 0.0125, "profile": "cubic, fec xor",
                "exchanges": 1, "properties": [], "carried": [
                    {"id": 9, "to": "10.0.0.1:80", "bytes_received": 5, "bytes_sent": 6},
                ],
                "last_exchange": {
                    "saw": "5 % loss", "changed": "fec: none -> xor", "expects": "90 % of the rate", "brought": "91 %",
                },
            })
        };
        let clients = [client(1, "192.0.2.1:50000", "files"), client(2, "[2001:db8::17]:50000", "tunnel")];
        let resources = [json!({"resource": "memory", "held": 3_000_000, "total": 64_000_000})];
        json!({"server": "[::]:4433", "clients": clients, "resources": resources, "bugs": {"count": 0}})
    }

    #[test]
    fn a_screen_of_80_columns_has_rates_and_the_last_exchange_of_the_marked() {
        let mut view = View::default();
        view.take(server(1_000_000), Duration::ZERO);
        view.take(server(2_000_000), Duration::from_secs(2));
        let lines = shown(&view, 80, 24);
        assert_eq!(lines[0], "[::]:4433: 2 clients, 8.0 Mbit/s in, 16.0 Mbit/s out, 3.0 MB of 64.0 MB held");
        for part in ["ID", "WHO", "WHAT", "SINCE", "IN", "OUT", "RTT", "LOSS"] {
            assert!(lines[1].contains(part), "{part}: {lines:#?}");
        }
        for part in [">1", "192.0.2.1:50000", "files", "4.0 Mbit/s", "8.0 Mbit/s", "40.2 ms", "1.2 %"] {
            assert!(lines[2].contains(part), "{part}: {lines:#?}");
        }
        let detail = lines[16..].join(" ");
        let said = "saw 5 % loss; changed fec: none -> xor; expects 90 % of the rate; brought 91 %";
        for part in [
            said,
            "1 192.0.2.1:50000: 2.0 MB in, 4.0 MB out; cubic, fec xor",
            "key SHA256:abc",
            "9 10.0.0.1:80",
        ] {
            assert!(detail.contains(part), "{part}: {lines:#?}");
        }
        // The mark moves, no further than there is somebody, and stays at whom it was.
        view.select(5);
        assert!(shown(&view, 80, 24)[16..].join(" ").contains("2 [2001:db8::17]:50000:"));
        let mut without = server(3_000_000);
        without["clients"].as_array_mut().unwrap().remove(0);
        view.take(without, Duration::from_secs(1));
        let lines = shown(&view, 80, 24);
        assert!(
            lines[2].starts_with(">2") && lines[16..].join(" ").contains("2 [2001:db8::17]:50000:"),
            "{lines:#?}"
        );
        view.take(json!({"server": "x", "clients": []}), Duration::from_secs(1));
        assert!(shown(&view, 80, 24).join(" ").contains("nobody is there"));
    }

    #[test]
    fn a_tunnel_has_its_streams() {
        let mut view = View::default();
        let list = json!({
            "host": "example.org:4433", "connection": {"rtt_ms": 12.0, "loss": 0.0}, "forwards": [],
            "carried": [{"id": 4, "from": "127.0.0.1:5", "to": "web:80", "forward": "127.0.0.1:8080", "seconds": 3,
                         "bytes_sent": 10, "bytes_received": 20, "profile_out": "cubic"}],
        });
        view.take(list, Duration::ZERO);
        let lines = shown(&view, 80, 16);
        assert!(lines[0].starts_with("tunnel by example.org:4433: 1 carried, "), "{lines:#?}");
        assert!(lines[2].starts_with(">4") && lines[2].contains("web:80"), "{lines:#?}");
    }

    #[test]
    fn a_session_of_ssh_is_one_line_with_its_way_and_keys() {
        let mut view = View::default();
        let list = json!({
            "session": "abc", "other": "host", "seconds": 65, "way": "UDP for 3 s, TCP before", "silent_s": 0,
            "bytes_in": 2000, "bytes_out": 1000, "rtt_ms": 12.0, "loss": 0.04, "profile": "cubic, fec xor",
            "keys_p99_ms": 80.4,
        });
        view.take(list, Duration::ZERO);
        let lines = shown(&view, 80, 16);
        assert!(lines[0].starts_with("session abc: "), "{lines:#?}");
        assert!(lines[2].contains("host") && lines[2].contains("12.0 ms"), "{lines:#?}");
        let detail = lines[8..].join(" ");
        for part in ["UDP for 3 s, TCP before", "keys p99 80 ms", "cubic, fec xor"] {
            assert!(detail.contains(part), "{part}: {lines:#?}");
        }
    }

    #[test]
    fn a_stream_of_media_is_one_line_with_what_is_missing() {
        let list = |bytes: u64| {
            json!({
                "media": {
                    "way": "recv", "name": "film", "place": "udp://:5000", "format": "MPEG-TS",
                    "datagrams": 9, "bytes": bytes, "in_time": 7, "late": 2, "missing": 3, "delay_ms": 120.0,
                    "jitter_ms": 4.0,
                },
                "host": "host", "connection": {"rtt_ms": 12.0, "loss": 0.04, "profile_in": "playout fixed"},
            })
        };
        let mut view = View::default();
        view.take(list(1000), Duration::ZERO);
        view.take(list(126_000), Duration::from_secs(1));
        let lines = shown(&view, 80, 16);
        assert!(lines[0].starts_with("media film by host: 1.0 Mbit/s in, 0 bit/s out"), "{lines:#?}");
        assert!(lines[2].contains("udp://:5000") && lines[2].contains("12.0 ms"), "{lines:#?}");
        let detail = lines[8..].join(" ");
        for part in ["7 in time, 2 late, 3 missing", "playout fixed"] {
            assert!(detail.contains(part), "{part}: {lines:#?}");
        }
        view.take(json!({"media": {"name": "film"}, "host": "host", "connection": null}), Duration::ZERO);
        assert!(shown(&view, 80, 16)[0].contains("film by host (not connected)"));
    }

    /// Whatever the size, and whatever was said: nothing panics, and nothing steers the terminal.
    #[test]
    fn any_size_and_any_text_is_drawn() {
        let mut odd = server(7);
        odd["clients"][0]["service"] = json!("\u{1b}[2J\n\u{202e}evil");
        odd["clients"][0]["last_exchange"]["saw"] = json!("x\u{9b}".repeat(5000));
        for list in [
            odd,
            json!({}),
            json!([]),
            json!({"server": 3, "clients": [1, null, "x"]}),
            json!("x"),
            json!({"session": [2]}),
            json!({"media": [2]}),
        ] {
            let mut view = View::default();
            view.take(list, Duration::from_secs(1));
            for (columns, lines) in [(1, 1), (10, 3), (40, 10), (80, 24), (300, 100)] {
                let shown = shown(&view, columns, lines).join("\n");
                assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
            }
        }
    }
}
