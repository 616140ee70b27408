//! Clients of a server, and all that is held for them, as `uts ctl` lists them and ends them.

use crate::cmd::meter::Seen;
use crate::control::{self, Controlled, Request};
use crate::host;
use crate::link::Telemetry;
#[cfg(feature = "metrics")]
use crate::metrics::Figures;
use crate::tunnel::audit::Audit;
use crate::tunnel::streams::{self, Told};
use crate::ui::record::Peer;
use crate::ui::{Ui, lines};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "metrics")]
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::Level;
use uts_ledger::Ledger;
use uts_tunnel::live::Live;

/// Clients that are there.
pub struct Clients {
    /// The place that the server listens at.
    address: String,
    ledger: Ledger,
    /// The number that was given last, to a client or to a stream.
    last: Arc<AtomicU64>,
    /// The places to which they were led.
    audit: Arc<Audit>,
    of: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    clients: BTreeMap<u64, Client>,
    /// Clients whose connection was lost, and the streams that are kept for them. They are
    /// forgotten with the last of these.
    lost: Vec<(Peer, Arc<Live>)>,
    counts: Counts,
}

/// Counts of what has happened so far.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Clients that came.
    pub clients: u64,
    /// Clients that were refused, by cause.
    pub refused: BTreeMap<&'static str, u64>,
    /// Exchanges, by their steps.
    pub exchanges: BTreeMap<&'static str, u64>,
    /// Bytes of content that came from clients, and that went to them.
    pub bytes: [u64; 2],
    /// Packets that were sent, lost, repeated and repaired.
    pub packets: [u64; 4],
}

impl Counts {
    fn add(&mut self, now: &Telemetry, bytes: [u64; 2]) {
        let packets = [now.packets_sent, now.packets_lost, now.packets_repeated, now.packets_repaired];
        for (sum, more) in
            self.bytes.iter_mut().chain(&mut self.packets).zip(bytes.into_iter().chain(packets))
        {
            *sum = sum.saturating_add(more);
        }
    }
}

struct Client {
    peer: Peer,
    live: Arc<Live>,
    seen: Arc<dyn Seen>,
    since: Instant,
    end: Arc<Notify>,
}

/// A client's place in the list, for as long as it is there.
pub struct Entered {
    clients: Arc<Clients>,
    id: u64,
    end: Arc<Notify>,
}

impl Entered {
    /// Waits until somebody wants it to end.
    pub async fn ended(&self) {
        self.end.notified().await;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut table = self.clients.table();
        if let Some(client) = table.clients.remove(&self.id) {
            table.counts.add(&client.seen.figures(), client.seen.content_bytes());
            table.lost.retain(|(_, live)| live.count() > 0);
            if client.live.count() > 0 {
                table.lost.push((client.peer, client.live));
            }
        }
    }
}

impl Clients {
    /// Of a server that listens there, and charges this ledger.
    pub fn new(address: String, ledger: Ledger) -> Arc<Self> {
        let (last, audit) = (Arc::default(), Arc::default());
        Arc::new(Clients { address, ledger, last, audit, of: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Streams of a client, of which the log is told, and which are accounted for.
    pub fn streams(&self, ui: &Arc<dyn Ui>, peer: &Peer) -> Arc<Live> {
        let (ui, peer, audit) = (ui.clone(), peer.clone(), Some(self.audit.clone()));
        Live::new(self.last.clone(), Told { ui, peer, level: Level::INFO, audit })
    }

    /// A client has come, whose streams are these.
    pub fn enter(self: &Arc<Self>, peer: &Peer, live: Arc<Live>, seen: Arc<dyn Seen>) -> Entered {
        let end = Arc::new(Notify::new());
        let client = Client { peer: peer.clone(), live, seen, since: Instant::now(), end: end.clone() };
        let id = self.last.fetch_add(1, Relaxed) + 1;
        let mut table = self.table();
        table.counts.clients += 1;
        table.clients.insert(id, client);
        drop(table);
        Entered { clients: self.clone(), id, end }
    }

    /// A client was refused.
    pub fn refused(&self, cause: &'static str) {
        *self.table().counts.refused.entry(cause).or_default() += 1;
    }

    /// A step of an exchange with a client.
    pub fn exchanged(&self, step: &'static str) {
        *self.table().counts.exchanges.entry(step).or_default() += 1;
    }

    fn list(&self) -> Value {
        // What is asked of a connection may wait for its endpoint: the table does not.
        let table = self.table();
        let all: Vec<_> = table
            .clients
            .iter()
            .map(|(id, client)| {
                (*id, client.peer.clone(), client.live.clone(), client.seen.clone(), client.since)
            })
            .collect();
        let lost: Vec<_> = table.lost.iter().filter(|(_, live)| live.count() > 0).cloned().collect();
        drop(table);
        let kept = |(peer, live): &(Peer, Arc<Live>)| json!({"address": peer.address, "key": peer.key, "carried": streams::list(live)});
        let kept: Vec<Value> = lost.iter().map(kept).collect();
        let client = |(id, peer, live, seen, since): &(u64, Peer, Arc<Live>, Arc<dyn Seen>, Instant)| {
            let (now, bytes) = (seen.figures(), seen.content_bytes());
            json!({
                "id": id, "address": peer.address, "key": peer.key, "service": peer.service,
                "seconds": since.elapsed().as_secs(), "bytes_in": bytes[0], "bytes_out": bytes[1],
                "rate_bps": now.rate_bps, "rtt_ms": now.rtt_ms, "loss": now.loss, "profile": now.profile,
                "exchanges": now.exchanges, "last_exchange": seen.sentence().fields(),
                "properties": seen.properties(), "numbers_difference": seen.numbers_difference(),
                "carried": streams::list(live),
            })
        };
        let clients: Vec<Value> = all.iter().map(client).collect();
        let resources = lines::resources(&self.ledger.rows());
        json!({
            "server": self.address, "clients": clients, "kept": kept, "resources": resources,
            "host_facts": host::list(), "bugs": control::bugs(),
        })
    }

    /// Asks a property of what is sent to a client.
    fn set(&self, id: u64, name: &str, value: &str) -> Result<Value, String> {
        let seen = self.table().clients.get(&id).map(|client| client.seen.clone());
        seen.ok_or_else(|| format!("no client {id}"))?.set(name, value)?;
        Ok(json!({"set": name, "client": id}))
    }

    /// Ends a client or a stream. False if there is none of this number.
    fn end(&self, id: u64) -> bool {
        let table = self.table();
        let ended = table.clients.get(&id).inspect(|client| client.end.notify_one()).is_some();
        ended
            || table.clients.values().any(|client| client.live.end(id))
            || table.lost.iter().any(|(_, live)| live.end(id))
    }

    /// Round trips of those who are there.
    #[cfg(feature = "metrics")]
    pub fn round_trips(&self) -> Vec<Duration> {
        let all: Vec<Arc<dyn Seen>> =
            self.table().clients.values().map(|client| client.seen.clone()).collect();
        all.iter().map(|seen| Duration::from_secs_f64(seen.figures().rtt_ms.max(0.0) / 1e3)).collect()
    }

    /// Figures of all. `without_place`: clients that the socket has refused.
    #[cfg(feature = "metrics")]
    pub fn figures(&self, without_place: u64) -> Figures {
        // Those who leave from here on are counted as being there. What is asked of a connection
        // may wait for its endpoint: the table does not.
        let table = self.table();
        let mut counts = table.counts.clone();
        let present: Vec<_> = table
            .clients
            .values()
            .map(|client| (client.peer.service.clone(), client.live.clone(), client.seen.clone()))
            .collect();
        let mut streams = table.lost.iter().map(|(_, live)| live.count() as u64).sum::<u64>();
        drop(table);
        let mut connections: BTreeMap<String, u64> =
            ["files", "pipe", "tunnel", "media", "perf"].map(|service| (service.to_owned(), 0)).into();
        let mut loss = 0.0;
        for (service, live, seen) in &present {
            *connections.entry(service.clone().unwrap_or_default()).or_default() += 1;
            streams += live.count() as u64;
            let now = seen.figures();
            loss += now.loss;
            counts.add(&now, seen.content_bytes());
        }
        let present = present.len().max(1) as f64;
        counts.refused.insert("place", without_place);
        let [sent, lost, repeated, repaired] = counts.packets;
        Figures {
            connections,
            connections_total: counts.clients,
            streams,
            streams_total: self.audit.totals(),
            bytes: counts.bytes,
            packets: [("sent", sent), ("lost", lost), ("repeated", repeated), ("repaired", repaired)],
            loss: loss / present,
            exchanges: counts.exchanges,
            refused: counts.refused,
            ledger: self.ledger.rows(),
            bugs: uts::bugs().0,
        }
    }
}

impl Controlled for Clients {
    async fn carry_out(&self, request: Request) -> Result<Value, String> {
        match request {
            Request::List => Ok(self.list()),
            Request::End { id } if self.end(id) => Ok(json!({"ended": id})),
            Request::End { id } => Err(format!("no client {id}, and no stream of this number")),
            Request::Set { name, value, forward: None, client: Some(id) } => self.set(id, &name, &value),
            Request::Set { forward: Some(_), .. } => {
                Err("a server has no such forwards; a tunnel does".to_owned())
            }
            Request::Set { name, value, .. } if host::is_fact(&name) => host::set(&name, &value),
            Request::Set { .. } => {
                Err("say of which client, by --id NUMBER; `uts ctl FILE` lists them".to_owned())
            }
            Request::Audit => Ok(self.audit.list()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Sentence;
    use crate::ui::log::nowhere;
    use uts_ledger::Budget;

    struct Quiet;

    impl Seen for Quiet {
        fn figures(&self) -> Telemetry {
            Telemetry { packets_sent: 5, rtt_ms: 20.0, ..Telemetry::default() }
        }

        fn content_bytes(&self) -> [u64; 2] {
            [3, 4]
        }

        fn sentence(&self) -> Sentence {
            Sentence::default()
        }

        fn properties(&self) -> Value {
            json!([])
        }

        fn numbers_difference(&self) -> Option<String> {
            None
        }

        fn set(&self, name: &str, _: &str) -> Result<(), String> {
            if name == "connPriority" { Ok(()) } else { Err("not that".into()) }
        }
    }

    #[tokio::test]
    async fn clients_are_listed_while_they_are_there_and_ended_by_their_numbers() {
        let clients = Clients::new("here".into(), Ledger::of_server(&Budget::of_process()));
        let [one, other] = [("192.0.2.1:5", Some("SHA256:x"), ""), ("192.0.2.2:5", None, "pipe")]
            .map(|(a, k, s)| Peer::client(a, k, s));
        let first = clients.enter(&one, clients.streams(&nowhere(), &one), Arc::new(Quiet));
        let streams = clients.streams(&nowhere(), &other);
        let second = clients.enter(&other, streams.clone(), Arc::new(Quiet));
        let stream = streams.enter(["ssh".into(), String::new(), "127.0.0.1:22".into()], None);
        let list = clients.carry_out(Request::List).await.expect("a list");
        assert_eq!(list["clients"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            (&list["clients"][0]["service"], &list["clients"][1]["service"]),
            (&json!("files"), &json!("pipe"))
        );
        let carried = &list["clients"][1]["carried"][0];
        assert_eq!((&carried["id"], &carried["to"]), (&json!(3), &json!("127.0.0.1:22")), "{list}");
        drop(first);
        let none = clients.carry_out(Request::End { id: 1 }).await.expect_err("it is gone");
        assert!(none.starts_with("no client 1"), "{none}");
        assert_eq!(clients.carry_out(Request::End { id: 3 }).await, Ok(json!({"ended": 3})));
        stream.ended().await;
        drop(stream);
        let audit = clients.carry_out(Request::Audit).await.expect("an account");
        assert_eq!(
            (&audit["audit"][0]["client"], &audit["audit"][0]["reached"]),
            (&json!("192.0.2.2"), &json!(1))
        );
        let set =
            |name: &str, client| Request::Set { name: name.into(), value: "1".into(), forward: None, client };
        assert_eq!(
            clients.carry_out(set("connPriority", Some(2))).await,
            Ok(json!({"set": "connPriority", "client": 2}))
        );
        assert!(clients.carry_out(set("host.memory", None)).await.is_ok());
        let list = clients.carry_out(Request::List).await.expect("a list");
        assert_eq!(
            (&list["host_facts"][1]["name"], &list["host_facts"][1]["value"]),
            (&json!("host.memory"), &json!("1"))
        );
        crate::host::set("host.memory", "unknown").expect("taken back");
        for (request, why) in [
            (set("host.fan", None), "there is no such fact of a host"),
            (set("x", Some(2)), "not that"),
            (set("connPriority", Some(9)), "no client 9"),
            (set("connPriority", None), "--id"),
        ] {
            let said = clients.carry_out(request).await.expect_err(why);
            assert!(said.contains(why), "{said}");
        }
        assert_eq!(clients.carry_out(Request::End { id: 2 }).await, Ok(json!({"ended": 2})));
        second.ended().await;
    }

    /// Counts never go back, whoever leaves.
    #[cfg(feature = "metrics")]
    #[test]
    fn counts_go_on_when_clients_leave() {
        let clients = Clients::new("here".into(), Ledger::of_server(&Budget::of_process()));
        let peer = Peer::client("192.0.2.1:5", None, "");
        let enter = || clients.enter(&peer, clients.streams(&nowhere(), &peer), Arc::new(Quiet));
        let (first, second) = (enter(), enter());
        clients.refused("key");
        clients.exchanged("completed");
        let before = clients.figures(7);
        assert_eq!((before.connections["files"], before.connections_total), (2, 2));
        assert_eq!((before.bytes, before.packets[0]), ([6, 8], ("sent", 10)));
        assert_eq!((before.refused["key"], before.refused["place"]), (1, 7));
        drop((first, second));
        let after = clients.figures(7);
        assert_eq!((after.connections["files"], after.connections_total, after.bytes), (0, 2, [6, 8]));
    }
}
