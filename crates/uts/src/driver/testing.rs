//! A task that tests poll by hand.

use super::Shared;
use super::looking::Looking;
use super::socket::{Batch, Socket};
use super::task::Driver;
use crate::host::Host;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

/// A task, and a peer that sends it datagrams of no connection, each of which it counts.
pub(super) struct Strayed {
    pub shared: Arc<Shared>,
    pub task: Driver,
    peer: Socket,
}

impl Strayed {
    /// `spin` = how long it looks for what arrives after something has; `looking` = what became of its looks before.
    pub fn new(spin: Duration, looking: Looking) -> Self {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let config = uts_engine::EndpointConfig::default();
        let (shared, mut task) = Shared::bind(Host::Runtime, any, None, config, spin).expect("bound");
        task.looking = looking;
        Strayed { shared, task, peer: Socket::bind(any, None, Host::Runtime).expect("bound") }
    }

    /// The peer sends one.
    pub fn send(&mut self, cx: &mut Context<'_>) {
        let contents = b"of no connection";
        let remote = self.shared.local_addr;
        let stray = Batch { remote, local: None, ecn: None, segment_bytes: contents.len(), contents };
        assert!(matches!(self.peer.poll_send(cx, &stray), Poll::Ready(Ok(_))));
    }

    /// How many the task has taken in.
    pub fn arrived(&self) -> u64 {
        self.shared.lock().engine.strangers
    }

    /// Has the task do what there is to do. Says whether it sleeps then, for which it leaves a waker; else it has looked, and comes
    /// again behind other tasks.
    pub fn sleeps(&mut self, cx: &mut Context<'_>) -> bool {
        self.shared.lock().parked = None;
        assert!(Pin::new(&mut self.task).poll(cx).is_pending());
        self.shared.lock().parked.is_some()
    }
}
