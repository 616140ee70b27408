//! What tests of this folder share: a task that they poll by hand, and what has arrived at a socket.

use super::Shared;
use super::looking::Looking;
#[cfg(target_os = "linux")]
use super::socket::Received;
use super::socket::{Batch, Socket};
use super::task::Driver;
use crate::driver::Host;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
#[cfg(target_os = "linux")]
use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use uts_engine::Ecn;

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

/// What is said of what has arrived.
#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq)]
pub(super) struct Arrived {
    pub remote: SocketAddr,
    pub local: Option<IpAddr>,
    pub ecn: Option<Ecn>,
    pub stride: usize,
    pub contents: Vec<u8>,
}

/// What there is, by one call; `alone` = by the one that brings one.
#[cfg(target_os = "linux")]
pub(super) fn receive(socket: &mut Socket, alone: bool) -> Vec<Arrived> {
    let mut arrived = Vec::new();
    for _ in 0..10_000_000 {
        if alone {
            socket.expect_one();
        }
        let received = socket.try_receive(|received| {
            let Received { remote, local, ecn, stride, contents } = received;
            arrived.push(Arrived { remote, local, ecn, stride, contents: contents.to_vec() });
        });
        match received {
            Poll::Pending => std::thread::yield_now(),
            Poll::Ready(received) => {
                received.expect("received");
                break;
            }
        }
    }
    arrived
}
