//! The tunnel that runs, as `uts ctl` looks at it and changes it.

use super::streams;
use crate::control::{Controlled, Request};
use crate::host;
use crate::link::Sentence;
use crate::mapping;
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::AsyncWriteExt;
use uts::{Connection, Direction};
use uts_tunnel::live::Live;
use uts_tunnel::stream;
use uts_tunnel::wire::{Asked, Opening};
use uts_tunnel::{Connections, Wants, is_for_peer};

/// A tunnel, as it can be looked at and changed.
pub struct Board {
    /// The server.
    pub host: String,
    /// The forwards: what they are called, where they lead, and what is asked of their flows.
    pub forwards: Vec<(String, String, Arc<Wants>)>,
    /// Streams that are carried.
    pub live: Arc<Live>,
    /// The connection.
    pub connections: Connections,
    /// Properties that were asked of the connection while it ran, for its successors.
    pub changed: Mutex<Vec<(String, String)>>,
    /// The last exchange.
    pub last: Mutex<Sentence>,
}

impl Controlled for Board {
    async fn carry_out(&self, request: Request) -> Result<Value, String> {
        match request {
            Request::List => Ok(self.list()),
            Request::Audit => Err("a tunnel keeps no account of places; its server does".to_owned()),
            Request::Set { client: Some(_), .. } => {
                Err("a tunnel has no clients; its server does".to_owned())
            }
            Request::Set { name, value, forward: Some(forward), .. } => {
                let found = self.forwards.iter().find(|(name, ..)| *name == forward);
                let (_, _, wants) = found.ok_or_else(|| {
                    let names: Vec<&str> = self.forwards.iter().map(|(name, ..)| name.as_str()).collect();
                    format!("no forward `{forward}`; there are {}", names.join(", "))
                })?;
                wants.set(&name, &value)?;
                Ok(json!({"set": name, "forward": forward}))
            }
            Request::Set { name, value, forward: None, .. } if host::is_fact(&name) => {
                host::set(&name, &value)
            }
            Request::Set { name, value, forward: None, .. } => self.set(name, value).await,
            Request::End { id } if self.live.end(id) => Ok(json!({"ended": id})),
            Request::End { id } => Err(format!("no connection {id}")),
        }
    }
}

/// A connection to a server, and its last exchange, for a list.
pub fn of_connection(connection: &Connection, last: &Sentence) -> Value {
    let (facts, stats) = (connection.facts(), connection.stats());
    let profile = |direction| connection.profile(direction).map(|profile| profile.to_string());
    json!({
        "address": connection.remote_addr().map(|address| address.to_string()),
        "rtt_ms": facts.rtt_smoothed.as_secs_f64() * 1e3, "loss": facts.loss,
        "exchanges": stats.exchanges, "last_exchange": last.fields(),
        "properties": connection.requirements().settings(), "numbers_difference": mapping::difference(connection),
        "profile_out": profile(Direction::Out), "profile_in": profile(Direction::In),
    })
}

impl Board {
    fn list(&self) -> Value {
        let connection = self.connections.borrow().clone();
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let connection = connection.map(|connection| of_connection(&connection, &last));
        let forwards: Vec<Value> = self
            .forwards
            .iter()
            .map(|(name, to, wants)| json!({"name": name, "to": to, "properties": wants.all()}))
            .collect();
        json!({
            "host": self.host, "connection": connection, "forwards": forwards, "carried": streams::list(&self.live),
            "host_facts": host::list(), "bugs": crate::control::bugs(),
        })
    }

    /// Asks a property of what is sent here, and of what the server sends.
    async fn set(&self, name: String, value: String) -> Result<Value, String> {
        let Some(connection) = self.connections.borrow().clone() else {
            return Err("there is no connection to the server at present".to_owned());
        };
        connection.set_property(&name, &value).map_err(|error| error.to_string())?;
        {
            let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
            changed.retain(|(before, _)| *before != name);
            changed.push((name.clone(), value.clone()));
        }
        if !is_for_peer(&name) {
            return Ok(json!({"set": name, "at": "this end"}));
        }
        let asked = async {
            let flow = connection.open_flow(uts::FlowOptions::default()).await;
            let (mut send, mut recv) = flow.map_err(io::Error::other)?.split();
            let opening = Opening { asked: Asked::Properties, properties: vec![(name.clone(), value)] };
            send.write_all(&opening.emit()).await?;
            send.shutdown().await?;
            stream::read_answer(&mut recv).await
        };
        match asked.await {
            Ok(Ok(_)) => Ok(json!({"set": name, "at": "both ends"})),
            Ok(Err(refused)) => Err(format!("set at this end; the server refuses it: {refused}")),
            Err(error) => Err(format!("set at this end; the server was not told: {error}")),
        }
    }
}
