//! Clients of a server, and all that is held for them, as `uts ctl` lists them and ends them.

use crate::control::{self, Controlled, Request};
use crate::ui::lines;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;
use uts::ledger::Ledger;

/// Clients that are there.
pub struct Clients {
    /// The place that the server listens at.
    address: String,
    ledger: Ledger,
    of: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last: u64,
    clients: BTreeMap<u64, Client>,
}

struct Client {
    address: String,
    /// Fingerprint of its key, if it has shown one.
    key: Option<String>,
    /// Name of the service; empty = files.
    service: String,
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
        self.clients.table().clients.remove(&self.id);
    }
}

impl Clients {
    /// Of a server that listens there, and charges this ledger.
    pub fn new(address: String, ledger: Ledger) -> Arc<Self> {
        Arc::new(Clients { address, ledger, of: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has come.
    pub fn enter(self: &Arc<Self>, address: &str, key: Option<&str>, service: &str) -> Entered {
        let end = Arc::new(Notify::new());
        let client = Client {
            address: address.to_owned(),
            key: key.map(str::to_owned),
            service: service.to_owned(),
            since: Instant::now(),
            end: end.clone(),
        };
        let mut table = self.table();
        table.last += 1;
        let id = table.last;
        table.clients.insert(id, client);
        drop(table);
        Entered { clients: self.clone(), id, end }
    }

    fn list(&self) -> Value {
        let client = |(id, client): (&u64, &Client)| {
            json!({
                "id": id, "address": client.address, "key": client.key, "seconds": client.since.elapsed().as_secs(),
                "service": if client.service.is_empty() { "files" } else { &client.service },
            })
        };
        let clients: Vec<Value> = self.table().clients.iter().map(client).collect();
        let resources = lines::resources(&self.ledger.rows());
        json!({"server": self.address, "clients": clients, "resources": resources, "bugs": control::bugs()})
    }

    /// Ends a client. False if there is none of this number.
    fn end(&self, id: u64) -> bool {
        let table = self.table();
        table.clients.get(&id).inspect(|client| client.end.notify_one()).is_some()
    }
}

impl Controlled for Clients {
    async fn carry_out(&self, request: Request) -> Result<Value, String> {
        match request {
            Request::List => Ok(self.list()),
            Request::End { id } if self.end(id) => Ok(json!({"ended": id})),
            Request::End { id } => Err(format!("no client {id}")),
            Request::Set { .. } => Err("a server's properties are set when it starts".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts::ledger::Budget;

    #[tokio::test]
    async fn clients_are_listed_while_they_are_there_and_ended_by_their_numbers() {
        let clients = Clients::new("here".into(), Ledger::of_server(&Budget::of_process()));
        let first = clients.enter("192.0.2.1:5", Some("SHA256:x"), "");
        let second = clients.enter("192.0.2.2:5", None, "pipe");
        let list = clients.carry_out(Request::List).await.expect("a list");
        assert_eq!(list["clients"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            (&list["clients"][0]["service"], &list["clients"][1]["service"]),
            (&json!("files"), &json!("pipe"))
        );
        drop(first);
        assert_eq!(clients.carry_out(Request::End { id: 1 }).await, Err("no client 1".into()));
        assert_eq!(clients.carry_out(Request::End { id: 2 }).await, Ok(json!({"ended": 2})));
        second.ended().await;
        let set = Request::Set { name: "a".into(), value: "b".into(), forward: None };
        assert!(clients.carry_out(set).await.is_err());
    }
}
