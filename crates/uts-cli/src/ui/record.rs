//! Records of servers and tunnels: each in one shape, whatever it is about, and written in one of
//! three: a line of text, an object of JSON, fields of the journal.

use super::lines;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tracing::Level;
use uts_units::show;

/// The other end that a record is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its address and port, or the name of a server as it was given.
    pub address: String,
    /// The fingerprint of the key that it has shown.
    pub key: Option<String>,
    /// The service that it has asked for, once that is known.
    pub service: Option<String>,
}

impl Peer {
    /// A client, by its address, its key and the service that it asks for (empty = files).
    pub fn client(address: &str, key: Option<&str>, service: &str) -> Peer {
        let service = if service.is_empty() { "files" } else { service };
        Peer { address: address.to_owned(), key: key.map(str::to_owned), service: Some(service.to_owned()) }
    }

    /// Its address without the port.
    pub fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or(&self.address, |(host, _)| host)
    }
}

/// Something that has happened.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Weight of it: from [`Level::ERROR`] to [`Level::TRACE`].
    pub level: Level,
    /// Kind of event: `connection`, `stream`, `request`, `notice` …
    pub event: &'static str,
    /// Step of it: `connected`, `refused`, `closed` …
    pub step: &'a str,
    /// The other end, if it is about one.
    pub peer: Option<&'a Peer>,
    /// The place, the service or the file that it is about; empty = none.
    pub place: &'a str,
    /// Bytes of content that came in, and that went out.
    pub bytes: Option<[u64; 2]>,
    /// Time that it has taken.
    pub lasted: Option<Duration>,
    /// The reason, or what else there is to say; empty = nothing.
    pub line: &'a str,
}

impl Default for Record<'_> {
    fn default() -> Self {
        Record {
            level: Level::INFO,
            event: "notice",
            step: "",
            peer: None,
            place: "",
            bytes: None,
            lasted: None,
            line: "",
        }
    }
}

/// Events whose steps are for programs: people read them in the line.
const STEPS_UNSAID: [&str; 3] = ["notice", "exchange", "progress"];

impl Record<'_> {
    /// The record as a line for people, without the time.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut word = |word: &str| {
            if !word.is_empty() {
                out.push_str(if out.is_empty() { "" } else { " " });
                out.push_str(word);
            }
        };
        if let Some(peer) = self.peer {
            word(&peer.address);
            word(peer.key.as_deref().unwrap_or_default());
            word(peer.service.as_deref().unwrap_or_default());
        }
        word(self.place);
        if !STEPS_UNSAID.contains(&self.event) {
            word(self.step);
        }
        // That a client with this key has come is said.
        let is_said = self.peer.is_some_and(|peer| peer.key.as_deref() == Some(self.line));
        if !self.line.is_empty() && !is_said {
            out.push_str(if out.is_empty() { "" } else { ": " });
            out.push_str(self.line);
        }
        if let Some([came, went]) = self.bytes {
            out.push_str(&format!("; {} in, {} out", show::bytes(came), show::bytes(went)));
        }
        if let Some(lasted) = self.lasted {
            out.push_str(&format!(", {}", show::seconds(lasted.as_secs_f64())));
        }
        out
    }

    /// The record as names and values, for programs.
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("event".into(), self.event.into());
        if let Some(peer) = self.peer {
            fields.extend(peer_fields(peer));
        }
        fields.insert("step".into(), self.step.into());
        if !self.place.is_empty() {
            fields.insert("place".into(), lines::line(self.place).into());
        }
        if let Some([came, went]) = self.bytes {
            fields.insert("bytes_in".into(), came.into());
            fields.insert("bytes_out".into(), went.into());
        }
        if let Some(lasted) = self.lasted {
            fields.insert("seconds".into(), json!(super::json::round(lasted.as_secs_f64(), 3)));
        }
        fields.insert("line".into(), lines::line(self.line).into());
        fields
    }
}

/// The other end as names and values.
pub fn peer_fields(peer: &Peer) -> impl Iterator<Item = (String, Value)> {
    let all = [("peer", Some(&peer.address)), ("key", peer.key.as_ref()), ("service", peer.service.as_ref())];
    let all = all.map(|(name, text)| text.map(|text| (name.to_owned(), lines::line(text.as_str()).into())));
    all.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_who_what_where_how_much_how_long_and_why() {
        let peer = Peer::client("192.0.2.1:5", Some("SHA256:x"), "");
        let record = Record {
            event: "stream",
            step: "closed",
            peer: Some(&peer),
            place: "10.0.0.1:80",
            bytes: Some([1500, 3_000_000]),
            lasted: Some(Duration::from_millis(12_300)),
            line: "reset by the service",
            ..Record::default()
        };
        let text = "192.0.2.1:5 SHA256:x files 10.0.0.1:80 closed: reset by the service; 1.5 kB in, 3.0 MB out, 12.30 s";
        assert_eq!(record.text(), text);
        let fields = serde_json::to_value(record.fields()).expect("JSON");
        let expected = json!({
            "event": "stream", "peer": "192.0.2.1:5", "key": "SHA256:x", "service": "files", "step": "closed",
            "place": "10.0.0.1:80", "bytes_in": 1500, "bytes_out": 3_000_000, "seconds": 12.3, "line": "reset by the service",
        });
        assert_eq!(fields, expected);
        let notice = Record { step: "silent", peer: Some(&peer), line: "no answer", ..Record::default() };
        assert_eq!(notice.text(), "192.0.2.1:5 SHA256:x files: no answer");
        assert_eq!(Record { line: "a line", ..Record::default() }.text(), "a line");
    }
}
