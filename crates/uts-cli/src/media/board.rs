//! A client of media that runs, as `uts ctl` looks at it and changes it.

use super::format::Format;
use super::numbers::Numbers;
use super::place::Place;
use super::queue::Queue;
use super::wire::Role;
use super::{DELAY, LIFETIME, Way, millis};
use crate::control::{Controlled, Request};
use crate::link::Sentence;
use crate::tunnel::board::of_connection;
use serde_json::{Value, json};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use uts::{Connection, PlayoutFigures, RecvFlow, SendFlow};
use uts_tunnel::is_for_peer;
use uts_tunnel::stream;
use uts_tunnel::wire::put_properties;

/// A sender or a receiver of a stream.
pub struct Board {
    /// The server.
    pub host: String,
    /// Name of the stream.
    pub name: String,
    /// Part in it.
    pub role: Role,
    /// Where media comes from, or goes to.
    pub place: Place,
    /// Datagrams that wait for the connection, at a sender.
    pub queue: Queue,
    /// Properties that were asked while it ran, for the connections to come.
    pub changed: Mutex<Vec<(String, String)>>,
    /// The last exchange.
    pub last: Mutex<Sentence>,
    /// Counts of what was carried.
    pub count: Mutex<Count>,
    latency_us: AtomicU64,
    connection: Mutex<Option<Connection>>,
    requests: tokio::sync::Mutex<Option<(SendFlow, RecvFlow)>>,
}

/// Counts of what was carried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Form of the last datagram.
    pub format: Option<Format>,
    /// Datagrams.
    pub datagrams: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Numbers of those that came.
    pub numbers: Numbers,
    /// Figures of their handing over, by this connection.
    pub playout: PlayoutFigures,
    /// In time and late, by the connections before.
    pub before: (u64, u64),
}

impl Count {
    /// Datagrams that came in time, and too late for that.
    pub fn played(&self) -> (u64, u64) {
        (self.before.0 + self.playout.in_time, self.before.1 + self.playout.late)
    }

    /// Datagrams that never came. Those that came too late are apart.
    pub fn missing(&self) -> u64 {
        self.numbers.missing().saturating_sub(self.played().1)
    }

    /// A datagram was carried.
    pub fn on_datagram(&mut self, datagram: &[u8]) {
        self.datagrams += 1;
        self.bytes += datagram.len() as u64;
        self.format = Some(Format::of(datagram));
    }
}

impl Board {
    /// One that is not connected.
    pub fn new(host: String, name: String, role: Role, place: Place, latency: Duration) -> Self {
        Board {
            host,
            name,
            role,
            place,
            queue: Queue::new(super::WAITING_BYTES),
            changed: Mutex::default(),
            last: Mutex::default(),
            count: Mutex::default(),
            latency_us: AtomicU64::new(latency.as_micros() as u64),
            connection: Mutex::default(),
            requests: tokio::sync::Mutex::default(),
        }
    }

    /// The age after which a datagram is given up here.
    pub fn latency(&self) -> Duration {
        Duration::from_micros(self.latency_us.load(Relaxed))
    }

    /// Counts more.
    pub fn count<R>(&self, count: impl FnOnce(&mut Count) -> R) -> R {
        count(&mut self.count.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Properties that the server is asked for what it sends here.
    pub fn of_server(&self) -> Vec<(String, String)> {
        let mut properties = match self.role {
            Role::Send => Vec::new(),
            Role::Receive => self.pair(&millis(self.latency())),
        };
        for (name, value) in self.changed.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            properties.retain(|(before, _)| before != name);
            properties.push((name.clone(), value.clone()));
        }
        properties.retain(|(name, _)| is_for_peer(name));
        properties
    }

    /// The two properties that make a latency at a receiver.
    fn pair(&self, value: &str) -> Vec<(String, String)> {
        [DELAY, LIFETIME].map(|name| (name.to_owned(), value.to_owned())).into()
    }

    /// It is connected, and the server takes requests.
    pub async fn connected(&self, connection: &Connection, requests: (SendFlow, RecvFlow)) {
        *self.requests.lock().await = Some(requests);
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
    }

    /// It is connected no more.
    pub async fn disconnected(&self) {
        *self.requests.lock().await = None;
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.count(|count| {
            count.before = count.played();
            count.playout = PlayoutFigures { in_time: 0, late: 0, ..count.playout };
        });
    }

    fn connection(&self) -> Option<Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn list(&self) -> Value {
        let count = self.count(|count| *count);
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (in_time, late) = count.played();
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let mut media = json!({
            "way": match self.role { Role::Send => "send", Role::Receive => "recv" },
            "name": self.name, "place": self.place.to_string(),
            "format": count.format.map(|format| format.to_string()),
            "datagrams": count.datagrams, "bytes": count.bytes,
        });
        let more = match self.role {
            Role::Send => {
                json!({"dropped": self.queue.dropped(), "lifetime_ms": millis(self.latency())})
            }
            Role::Receive => json!({
                "in_time": in_time, "late": late, "missing": count.missing(),
                "delay_ms": millis(count.playout.delay), "jitter_ms": millis(count.playout.jitter),
            }),
        };
        if let (Some(media), Value::Object(more)) = (media.as_object_mut(), more) {
            media.extend(more);
        }
        json!({
            "media": media, "host": self.host,
            "connection": self.connection().map(|connection| of_connection(&connection, &last)),
            "bugs": crate::control::bugs(),
        })
    }

    /// Counts in words.
    pub fn words(&self) -> String {
        words(&self.list()["media"])
    }

    async fn set(&self, name: &str, value: &str) -> Result<Value, String> {
        let connection =
            self.connection().ok_or("there is no connection to the server at present".to_owned())?;
        let is_latency = [DELAY, LIFETIME].contains(&name);
        if self.role == Role::Receive {
            if !is_for_peer(name) {
                return Err(format!(
                    "{name} is for each end to choose for what it sends, and this end receives"
                ));
            }
            // A message that may still come in time is not given up before.
            let asked =
                if name == DELAY { self.pair(value) } else { vec![(name.to_owned(), value.to_owned())] };
            self.ask(&asked).await?;
            self.note(asked, name == DELAY);
            return Ok(json!({"set": name, "at": "the server"}));
        }
        if name == DELAY {
            return Err(format!("{DELAY} is what a receiver asks for; a sender has {LIFETIME}"));
        }
        connection.set_property(name, value).map_err(|error| error.to_string())?;
        self.note(vec![(name.to_owned(), value.to_owned())], is_latency);
        if is_latency {
            // Its value is a latency here, which counts from the quickest way.
            let lifetime = Way::of(&connection).lifetime(self.latency());
            connection.set_property(name, &millis(lifetime)).map_err(|error| error.to_string())?;
        }
        Ok(json!({"set": name, "at": "this end"}))
    }

    /// Keeps what was asked for the connections to come.
    fn note(&self, asked: Vec<(String, String)>, is_latency: bool) {
        let latency = asked.first().filter(|_| is_latency).and_then(|(name, value)| {
            let mut requirements = uts::Requirements::bulk();
            requirements.set(name, value).ok()?;
            requirements.playout_delay.or(requirements.msg_lifetime)
        });
        if let Some(latency) = latency {
            self.latency_us.store(latency.as_micros() as u64, Relaxed);
        }
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, value) in asked {
            changed.retain(|(before, _)| *before != name);
            changed.push((name, value));
        }
    }

    /// Asks the server for properties of what it sends here.
    async fn ask(&self, properties: &[(String, String)]) -> Result<(), String> {
        let mut requests = self.requests.lock().await;
        let (send, recv) = requests.as_mut().ok_or("there is no connection to the server at present")?;
        let asked = async {
            let mut request = Vec::new();
            put_properties(&mut request, properties);
            send.write_all(&request).await?;
            send.flush().await?;
            stream::read_answer(recv).await
        };
        let asked: io::Result<_> = asked.await;
        let answer = asked.map_err(|error| format!("the server does not answer: {error}"))?;
        answer.map(drop).map_err(|refused| format!("the server refuses it: {refused}"))
    }
}

/// Counts of a list in words, for people.
pub fn words(media: &Value) -> String {
    let number = |name: &str| media[name].as_u64().unwrap_or_default();
    let format = media["format"].as_str().map_or_else(String::new, |format| format!(" ({format})"));
    let carried =
        format!("{} datagrams{format}, {}", number("datagrams"), uts_units::show::bytes(number("bytes")));
    let ms = |name: &str| media[name].as_f64().unwrap_or_default();
    match media["way"].as_str() {
        Some("send") => format!("{carried} sent, {} dropped", number("dropped")),
        _ => format!(
            "{carried} received, {} in time, {} late, {} missing; delay {:.0} ms, jitter {:.1} ms",
            number("in_time"),
            number("late"),
            number("missing"),
            ms("delay_ms"),
            ms("jitter_ms"),
        ),
    }
}

impl Controlled for Board {
    async fn carry_out(&self, request: Request) -> Result<Value, String> {
        match request {
            Request::List => Ok(self.list()),
            Request::Set { name, value, forward: None, client: None } => self.set(&name, &value).await,
            Request::Set { .. } => Err("a stream of media has neither forwards nor clients".to_owned()),
            Request::Audit => Err("this end keeps no account of places; its server does".to_owned()),
            Request::End { .. } => Err("this end carries one stream; end it by Ctrl-C".to_owned()),
        }
    }
}
