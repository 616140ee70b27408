//! Streams of other programs over UTS. Ports lead through a connection. Services of a server are
//! asked for by name ([`pipe`]). Streams outlive what carries them ([`resumed`]).
//!
//! Ports lead so: what connects to a port at one end is connected to a place by the other end, TCP
//! and UDP, both ways.
//!
//! A client asks for the service `tunnel` in the handshake. Each connection that is carried has a
//! flow of its own. What it begins with is in [`wire`]. The end at which a connection arrives is
//! its entry ([`entry`]), the end that connects it further its exit ([`exit`]). A server connects
//! and listens only where its permits say ([`permit`]), a client only where its own forwards lead.
//! (V-6)
//!
//! All that a peer or a local program can have kept in memory is bounded: connections of a
//! connection by [`CONNECTIONS_MAX`], what each of them holds by [`FLOW_BYTES`], listeners by
//! [`LISTENERS_MAX`].
//!
//! TCP sockets of programs are those of the system, or others in their place ([`sockets`]).

#[macro_use]
mod through;

pub mod addressed;
pub mod associate;
pub mod datagrams;
pub mod dial;
pub mod dictionary;
pub mod entry;
pub mod exit;
pub mod far;
pub mod forward;
pub mod held;
pub mod link;
pub mod live;
pub mod near;
pub mod permit;
pub mod pipe;
pub mod resumed;
pub mod sockets;
pub mod socks;
pub mod stream;
pub mod waits;
pub mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use uts::{Connection, FlowOptions, MessageOptions, Requirements};

use forward::Protocol;
use stream::URGENT;

/// Service that a client asks for in the handshake.
pub const SERVICE: &str = "tunnel";

/// Connections that a tunnel carries at once, in each direction: each holds a socket.
pub const CONNECTIONS_MAX: usize = 1024;

/// Flows that a peer may have open at once: connections, and what listens.
pub const FLOWS_MAX: u32 = CONNECTIONS_MAX as u32 + 64;

/// Places at which a client may have a server listen.
pub const LISTENERS_MAX: usize = 16;

/// Bytes that a flow holds at each end before anybody reads, and the most that it holds on a path
/// that needs it.
pub const FLOW_BYTES: (usize, usize) = (256 << 10, 4 << 20);

/// A datagram that has not arrived by then is given up, unless `msgLifetime` says otherwise.
const LIFETIME: Duration = Duration::from_secs(1);

/// Lets this process have as many sockets as the system allows it.
pub fn make_room_for_sockets() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it there is room for fewer.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The connection now; `None` while there is none.
pub type Connections = watch::Receiver<Option<Connection>>;

/// Properties that are asked of the flows of a forward. They may change, for flows that are opened
/// later.
#[derive(Debug, Default)]
pub struct Wants(Mutex<Vec<(String, String)>>);

impl Wants {
    /// These properties, beyond those of the connection.
    pub fn new(properties: Vec<(String, String)>) -> Self {
        Wants(Mutex::new(properties))
    }

    /// Asks a property of the flows that are opened from now on.
    ///
    /// # Errors
    /// Why it cannot be asked.
    pub fn set(&self, name: &str, value: &str) -> Result<(), String> {
        forward::checked(name, value)?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(before, _)| before != name);
        all.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// All of them now.
    pub fn all(&self) -> Vec<(String, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Properties that the other end is asked for what it sends. Which mechanisms it uses is its
    /// own matter.
    pub fn of_peer(&self) -> Vec<(String, String)> {
        self.all().into_iter().filter(|(name, _)| is_for_peer(name)).collect()
    }

    /// Options for opening a flow of the connection.
    ///
    /// # Errors
    /// A property cannot be had; the line names it.
    pub fn options(&self, connection: &Connection, protocol: Protocol) -> Result<Asking, String> {
        let properties = self.all();
        let is_priority = |name: &str| name == "connPriority";
        let mut priority = Requirements::default();
        for (_, value) in properties.iter().filter(|(name, _)| is_priority(name)) {
            priority.set("connPriority", value).map_err(|error| error.to_string())?;
        }
        let is_paced = !properties.iter().any(|(name, _)| is_priority(name));
        let urgency = if is_paced { URGENT } else { priority.conn_priority.min(255) as u8 };
        let mut own = connection.requirements();
        if protocol == Protocol::Udp {
            own.set("preserveMsgBoundaries", "require").map_err(|error| error.to_string())?;
            for (name, value) in [("preserveOrder", "avoid"), ("reliability", "prefer")] {
                own.set(name, value).map_err(|error| error.to_string())?;
            }
            own.msg_lifetime.get_or_insert(LIFETIME);
        }
        let mut differs = protocol == Protocol::Udp;
        for (name, value) in properties.iter().filter(|(name, _)| !is_priority(name)) {
            own.set(name, value).map_err(|error| error.to_string())?;
            differs = true;
        }
        dictionary::complete(&mut own);
        let lifetime = own.msg_lifetime;
        let requirements = differs.then_some(own);
        Ok(Asking { flow: FlowOptions { priority: urgency, requirements }, is_paced, lifetime })
    }
}

/// Options for opening a flow, and for sending in it.
#[derive(Clone, Debug)]
pub struct Asking {
    /// Its priority and requirements.
    pub flow: FlowOptions,
    /// Its priority follows what goes into it: see [`crate::stream::Pace`].
    pub is_paced: bool,
    /// After which a datagram is given up.
    pub lifetime: Option<Duration>,
}

impl Asking {
    /// Options for sending a datagram.
    pub fn message(&self) -> MessageOptions {
        MessageOptions { lifetime: self.lifetime, ..MessageOptions::default() }
    }

    /// Asks the same of the half of a flow that the peer has opened.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub fn apply(&self, send: &uts::SendFlow) -> Result<(), String> {
        let asked = match &self.flow.requirements {
            Some(requirements) => send.set_requirements(requirements),
            None => Ok(()),
        };
        asked.and_then(|()| send.set_priority(self.flow.priority)).map_err(|error| error.to_string())
    }
}

/// True if the other end can be asked this property.
pub fn is_for_peer(name: &str) -> bool {
    uts::requirements::is_for_peers(name)
}

/// Tells people what goes wrong with connections, each thing once as long as nothing else goes
/// wrong with the same forward.
pub struct Teller {
    say: Box<dyn Fn(&str) + Send + Sync>,
    told: Mutex<BTreeMap<String, String>>,
}

impl Teller {
    /// Lines go to `say`, which bounds them.
    pub fn new(say: impl Fn(&str) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Teller { say: Box::new(say), told: Mutex::default() })
    }

    /// Something has gone wrong with a forward.
    pub fn tell(&self, about: &str, line: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(about).is_some_and(|before| before == line) {
            return;
        }
        told.insert(about.to_owned(), line.to_owned());
        (self.say)(&format!("{about}: {line}"));
    }

    /// A connection of the forward was made: what goes wrong next is news.
    pub fn well(&self, about: &str) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(about);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_wrong_is_told_once() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let told = lines.clone();
        let teller = Teller::new(move |line| told.lock().unwrap().push(line.to_owned()));
        for _ in 0..3 {
            teller.tell("a", "refused");
        }
        teller.tell("a", "gone");
        teller.tell("a", "gone");
        teller.well("a");
        for n in 0..4 {
            teller.tell("a", &format!("gone {}", n / 2));
        }
        let said = lines.lock().unwrap().clone();
        assert_eq!(said, ["a: refused", "a: gone", "a: gone 0", "a: gone 1"]);
    }
}
