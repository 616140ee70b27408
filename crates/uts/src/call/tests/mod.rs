//! Calls in virtual time: the endpoints, connections and flows are those that programs use, in a
//! network without sockets.

mod early;
mod ends;
mod hostile;
mod once;
mod packets;
mod streams;

use super::{CallOptions, Caller, Methods};
use crate::simulation::Network;
use crate::{ConnectOptions, Connection, Identity, Listener, ServerOptions, connect};
use std::net::SocketAddr;
use tokio::task::{JoinHandle, JoinSet};

/// The place of the server.
const PLACE: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);

/// A process that serves methods.
struct Server {
    identity: Identity,
    serving: JoinHandle<()>,
}

impl Server {
    fn start(identity: Identity, methods: Methods) -> Self {
        let options = ServerOptions::new(identity.clone());
        let listener = Listener::bind(SocketAddr::from(PLACE), options).expect("bound");
        let serving = tokio::spawn(async move {
            let mut served = JoinSet::new();
            while let Some(connection) = listener.accept().await {
                served.spawn(methods.clone().serve(connection));
                while served.try_join_next().is_some() {}
            }
        });
        Server { identity, serving }
    }

    fn new(methods: Methods) -> Self {
        Server::start(Identity::generate().expect("a key"), methods)
    }

    fn options(&self) -> ConnectOptions {
        ConnectOptions::pinned(self.identity.fingerprint())
    }

    fn caller(&self) -> Caller {
        Caller::to(SocketAddr::from(PLACE).to_string(), self.options())
    }

    async fn connect(&self) -> Connection {
        connect(&SocketAddr::from(PLACE).to_string(), self.options()).await.expect("connected")
    }

    /// The process dies.
    fn kill(self, network: &Network) -> Identity {
        network.kill(SocketAddr::from(PLACE));
        self.serving.abort();
        self.identity
    }
}

fn any() -> CallOptions {
    CallOptions::default()
}
