//! The places to which clients of a server were led, and from which they were kept: who, where, how
//! often, how much, when first and when last.

use crate::ui::record::Peer;
use crate::ui::utc;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use uts_tunnel::live::Event;

/// Pairs of a client and a place that are remembered. The one that was met longest ago makes room.
const ROWS_MAX: usize = 1024;

/// An account of places, for as long as the server runs.
#[derive(Default)]
pub struct Audit(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    rows: BTreeMap<(String, String), Row>,
    /// Number of what was noted so far.
    noted: u64,
    forgotten: u64,
    /// Streams so far that were opened, and that were refused.
    totals: [u64; 2],
}

/// One client at one place.
#[derive(Default)]
struct Row {
    reached: u64,
    refused: u64,
    /// Bytes that came from the client, and that went to it.
    bytes: [u64; 2],
    first: String,
    last: String,
    noted: u64,
}

impl Audit {
    /// Notes a stream of a client, who is known by its key, or else by its address.
    pub fn note(&self, peer: &Peer, place: &str, event: Event<'_>) {
        let who = peer.key.as_deref().unwrap_or_else(|| peer.host()).to_owned();
        let key = (who, place.to_owned());
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut *kept;
        if kept.rows.len() >= ROWS_MAX && !kept.rows.contains_key(&key) {
            let oldest = kept.rows.iter().min_by_key(|(_, row)| row.noted).map(|(key, _)| key.clone());
            kept.forgotten += u64::from(oldest.and_then(|key| kept.rows.remove(&key)).is_some());
        }
        kept.noted += 1;
        let (now, noted) = (utc(), kept.noted);
        let row = kept.rows.entry(key).or_insert_with(|| Row { first: now.clone(), ..Row::default() });
        (row.last, row.noted) = (now, noted);
        match event {
            Event::Opened => {
                row.reached += 1;
                kept.totals[0] += 1;
            }
            Event::Refused(_) => {
                row.refused += 1;
                kept.totals[1] += 1;
            }
            Event::Closed { bytes: [came, went], .. } => {
                row.bytes = [row.bytes[0].saturating_add(came), row.bytes[1].saturating_add(went)];
            }
        }
    }

    /// Streams so far, by what became of them.
    pub fn totals(&self) -> BTreeMap<&'static str, u64> {
        let [opened, refused] = self.0.lock().unwrap_or_else(PoisonError::into_inner).totals;
        [("opened", opened), ("refused", refused)].into()
    }

    /// All rows, the last that was met first.
    pub fn list(&self) -> Value {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows: Vec<_> = kept.rows.iter().collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.noted));
        let row = |((who, place), row): &(&(String, String), &Row)| {
            json!({
                "client": who, "place": place, "reached": row.reached, "refused": row.refused,
                "bytes_in": row.bytes[0], "bytes_out": row.bytes[1], "first": row.first, "last": row.last,
            })
        };
        json!({"audit": rows.iter().map(row).collect::<Vec<_>>(), "forgotten": kept.forgotten})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn places_are_counted_for_each_client_and_the_oldest_are_forgotten() {
        let audit = Audit::default();
        let closed = Event::Closed { bytes: [3, 4], lasted: Duration::ZERO, why: "" };
        let known = Peer::client("192.0.2.1:5", Some("SHA256:x"), "tunnel");
        let other = Peer::client("192.0.2.2:5", None, "tunnel");
        audit.note(&known, "a:1", Event::Opened);
        audit.note(&known, "a:1", closed);
        audit.note(&Peer { address: "192.0.2.9:7".into(), ..known.clone() }, "a:1", Event::Opened);
        audit.note(&other, "b:2", Event::Refused(""));
        let list = audit.list();
        let row = |n: usize| {
            let row = &list["audit"][n];
            let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
            (text("client"), text("place"), row["reached"].as_u64(), row["refused"].as_u64())
        };
        assert_eq!(row(0), ("192.0.2.2".into(), "b:2".into(), Some(0), Some(1)));
        assert_eq!(row(1), ("SHA256:x".into(), "a:1".into(), Some(2), Some(0)));
        assert_eq!((&list["audit"][1]["bytes_in"], &list["audit"][1]["bytes_out"]), (&json!(3), &json!(4)));
        for port in 0..2 * ROWS_MAX {
            audit.note(&known, &format!("c:{port}"), Event::Refused(""));
            audit.note(&known, "a:1", Event::Opened);
        }
        let list = audit.list();
        let rows = list["audit"].as_array().expect("rows");
        assert_eq!(rows.len(), ROWS_MAX);
        assert_eq!(list["forgotten"], json!(2 * ROWS_MAX + 2 - ROWS_MAX));
        assert!(rows.iter().any(|row| row["place"] == "a:1"), "what is met again is kept");
    }
}
