//! What a tunnel carries at the moment, to be looked at while it runs.

use super::Asking;
use crate::stream::{self, Pace};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncRead;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use uts::{Connection, Direction, FlowId, SendFlow};

/// All connections that are carried.
#[derive(Default)]
pub struct Live {
    next: AtomicU64,
    carried: Mutex<BTreeMap<u64, Arc<Carried>>>,
}

/// One of them.
pub struct Carried {
    /// Of which forward it is.
    pub forward: String,
    /// Who has connected.
    pub from: String,
    /// Where to.
    pub to: String,
    /// Bytes that went into the flow.
    pub sent: AtomicU64,
    /// Bytes that came from it.
    pub received: AtomicU64,
    flow: FlowId,
    connection: Connection,
    since: Instant,
    ends: Notify,
}

/// One of them, listed until it is dropped.
pub struct Entered {
    live: Arc<Live>,
    id: u64,
    carried: Arc<Carried>,
}

impl Live {
    /// Lists a connection.
    pub fn enter(
        self: &Arc<Self>,
        [forward, from, to]: [String; 3],
        connection: &Connection,
        flow: FlowId,
    ) -> Entered {
        let id = self.next.fetch_add(1, Relaxed) + 1;
        let carried = Arc::new(Carried {
            forward,
            from,
            to,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            flow,
            connection: connection.clone(),
            since: Instant::now(),
            ends: Notify::new(),
        });
        self.lock().insert(id, carried.clone());
        Entered { live: self.clone(), id, carried }
    }

    /// All of them, in the order in which they began.
    pub fn list(&self) -> Vec<Value> {
        let all: Vec<(u64, Arc<Carried>)> = self.lock().iter().map(|(id, c)| (*id, c.clone())).collect();
        all.iter().map(|(id, carried)| carried.describe(*id)).collect()
    }

    /// Ends one of them. False if there is none of that number.
    pub fn end(&self, id: u64) -> bool {
        let carried = self.lock().get(&id).cloned();
        carried.map(|carried| carried.ends.notify_one()).is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Carried>>> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carried {
    fn describe(&self, id: u64) -> Value {
        let profile = |direction| {
            let found = self.connection.inspect(|c| c.flow_profile(direction, self.flow)).flatten();
            found.map_or(Value::Null, |profile| profile.to_string().into())
        };
        let priority = self.connection.inspect(|c| c.flow_priority(self.flow)).flatten();
        json!({
            "id": id, "priority": priority, "forward": self.forward, "from": self.from, "to": self.to, "flow": self.flow.0,
            "seconds": self.since.elapsed().as_secs(),
            "bytes_sent": self.sent.load(Relaxed), "bytes_received": self.received.load(Relaxed),
            "profile_out": profile(Direction::Out), "profile_in": profile(Direction::In),
        })
    }
}

impl Entered {
    /// Its figures.
    pub fn carried(&self) -> &Carried {
        &self.carried
    }

    /// Carries it between its socket and its flow, to its end, as [`stream::join`] does. If no
    /// priority was asked, that of the flow follows what goes into it. `ahead` is noted already.
    ///
    /// # Errors
    /// Those of both ends; [`io::ErrorKind::ConnectionAborted`] if somebody wants it to end.
    pub async fn join<R: AsyncRead + Unpin>(
        &self,
        socket: TcpStream,
        send: &mut SendFlow,
        recv: &mut R,
        ahead: &[u8],
        asking: &Asking,
    ) -> io::Result<()> {
        let carried = self.carried();
        let mut pace = asking.is_paced.then(Pace::default);
        if let Some(pace) = &mut pace {
            // Less than a burst: the priority stays.
            let _ = pace.on_passed(carried.sent.load(Relaxed) as usize, Duration::ZERO);
        }
        let on_sent = |send: &SendFlow, bytes, waited| {
            carried.sent.fetch_add(bytes as u64, Relaxed);
            if let Some(priority) = pace.as_mut().and_then(|pace| pace.on_passed(bytes, waited)) {
                // A flow that is over needs none.
                let _ = send.set_priority(priority);
            }
        };
        let on_received = |bytes| {
            carried.received.fetch_add(bytes as u64, Relaxed);
        };
        tokio::select! {
            joined = stream::join(socket, (send, recv), stream::AHEAD_BYTES, ahead, on_sent, on_received) => joined,
            () = self.ended() => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Waits until somebody wants it to end.
    pub async fn ended(&self) {
        self.carried.ends.notified().await;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.live.lock().remove(&self.id);
    }
}
