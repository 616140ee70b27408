//! Connections, as an end of a stream needs them.

use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use uts::{CloseReason, Connection, ConnectionEvent};
use uts_files::Flows;

/// With this code a server that is being stopped closes its connections.
pub const STOPPING: u64 = 1;

/// Why there is no connection, or none any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The cause, for people.
    pub why: String,
    /// Another try may succeed: the path was in the way, or the server was away.
    pub is_worth_retrying: bool,
}

impl Broken {
    /// Failure that no other try mends.
    pub fn for_good(why: impl Into<String>) -> Broken {
        Broken { why: why.into(), is_worth_retrying: false }
    }
}

/// A connection that can carry streams. Clones are the same connection.
pub trait Carrying: Clone + Send + Sync + 'static {
    /// Its flows.
    type Flows: Flows;

    /// Its flows.
    fn flows(&self) -> Arc<Self::Flows>;

    /// News from now on whether the peer is heard: false while something is expected of it and
    /// nothing comes. They end when the connection has ended.
    fn hearing(&self) -> UnboundedReceiver<bool>;

    /// Why it ended, if it has.
    fn broken(&self) -> Option<Broken>;

    /// True if no end has wanted it to end: the streams that it carries live on. (T-16)
    fn is_lost(&self) -> bool;
}

impl Carrying for Connection {
    type Flows = Connection;

    fn flows(&self) -> Arc<Connection> {
        Arc::new(self.clone())
    }

    fn hearing(&self) -> UnboundedReceiver<bool> {
        let (sender, receiver) = unbounded_channel();
        let mut events = self.events();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let is_heard = match event {
                    ConnectionEvent::Silent(_) => false,
                    ConnectionEvent::Heard(_) => true,
                    ConnectionEvent::Closed(_) => return,
                    _ => continue,
                };
                if sender.send(is_heard).is_err() {
                    return;
                }
            }
        });
        receiver
    }

    fn broken(&self) -> Option<Broken> {
        let reason = self.close_reason()?;
        // A server that is stopped may be started again.
        let is_stopping = matches!(reason, CloseReason::Peer { code: STOPPING, .. });
        let is_worth_retrying = is_stopping || reason.is_worth_retrying();
        Some(Broken { why: reason.to_string(), is_worth_retrying })
    }

    fn is_lost(&self) -> bool {
        self.close_reason().is_none_or(|reason| reason.is_worth_retrying())
    }
}
