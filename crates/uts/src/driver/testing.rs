//! Parts that tests of this folder share: a task that they poll by hand, the log of endpoints, and
//! the arrivals at a socket.

use super::Shared;
#[cfg(target_os = "linux")]
use super::socket::Received;
use super::socket::{Batch, Socket};
use super::task::Task;
use crate::driver::Host;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
#[cfg(target_os = "linux")]
use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span;
#[cfg(target_os = "linux")]
use uts_engine::Ecn;

/// A task, and a peer that sends it datagrams of no connection, each of which the task counts.
pub(super) struct Strayed {
    pub shared: Arc<Shared>,
    pub task: Task,
    peer: Socket,
}

impl Strayed {
    /// `spin` = for how long the task spins after something has arrived; `in_vain` = all its spins
    /// so far were.
    pub fn new(spin: Duration, in_vain: bool) -> Self {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let config = uts_engine::EndpointConfig::default();
        let (shared, mut driver) = Shared::bind(Host::Runtime, any, None, config, spin).expect("bound");
        driver.waiting.set_spins(in_vain, false);
        let peer = Socket::bind(any, None, Host::Runtime).expect("bound");
        Strayed { shared, task: Task::new(driver), peer }
    }

    /// The peer sends one.
    pub fn send(&mut self, cx: &mut Context<'_>) {
        send_stray(cx, &mut self.peer, self.shared.local_addr());
    }

    /// Number of datagrams that the task has taken in.
    pub fn arrived(&self) -> u64 {
        self.shared.lock().engine.strangers
    }

    /// True if arrivals wake the task.
    pub fn is_watched(&self) -> bool {
        self.task.driver.socket.is_watched()
    }

    /// An application was told of data, and has written some, or not.
    pub fn set_dialogue(&mut self, has_heard: bool, has_said: bool) {
        let dialogue = &mut self.shared.lock().dialogue;
        if has_heard {
            dialogue.on_told();
        }
        if has_said {
            dialogue.on_written();
        }
    }

    /// Has the task do what there is to do. Says whether it sleeps then, for which it leaves a
    /// waker; else it has looked, and comes again behind other tasks.
    pub fn sleeps(&mut self, cx: &mut Context<'_>) -> bool {
        self.shared.lock().parked = None;
        assert!(Pin::new(&mut self.task).poll(cx).is_pending());
        self.shared.lock().parked.is_some()
    }
}

/// Sends a datagram of no connection.
pub(super) fn send_stray(cx: &mut Context<'_>, from: &mut Socket, remote: SocketAddr) {
    let contents = b"of no connection";
    let stray = Batch { remote, local: None, ecn: None, segment_bytes: contents.len(), contents };
    assert!(matches!(from.poll_send(cx, &stray), Poll::Ready(Ok(_))));
}

/// Log of the turns and waits of endpoints that this thread carries.
pub(super) struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
    _guard: tracing::subscriber::DefaultGuard,
}

/// A line of the log.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub what: String,
    pub fields: Vec<(&'static str, String)>,
}

impl Line {
    /// True if any field begins with this.
    pub fn says(&self, value: &str) -> bool {
        self.fields.iter().any(|(_, said)| said.starts_with(value))
    }

    /// True if a field of this name has this value.
    pub fn has(&self, name: &str, value: &str) -> bool {
        self.fields.iter().any(|(field, said)| *field == name && said == value)
    }
}

impl Log {
    /// Begins to listen.
    pub fn begin() -> Self {
        let lines = Arc::default();
        let listener = Listener(Arc::clone(&lines));
        Log { lines, _guard: tracing::subscriber::set_default(listener) }
    }

    /// Number of such lines.
    pub fn count(&self, is_counted: impl Fn(&Line) -> bool) -> usize {
        self.lines.lock().expect("unharmed").iter().filter(|line| is_counted(line)).count()
    }
}

struct Listener(Arc<Mutex<Vec<Line>>>);

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("uts::driver")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().expect("unharmed").push(line);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        if field.name() == "message" { self.what = value } else { self.fields.push((field.name(), value)) }
    }
}

/// Datagrams that have arrived, as the socket reports them.
#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq)]
pub(super) struct Arrived {
    pub remote: SocketAddr,
    pub local: Option<IpAddr>,
    pub ecn: Option<Ecn>,
    pub stride: usize,
    pub contents: Vec<u8>,
}

/// Receives what there is, by one call; `alone` = by a call that fills one buffer.
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
