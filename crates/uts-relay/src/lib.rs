//! A UDP relay that emulates a path.
//!
//! Clients send to the relay's address; the relay sends on to one server, from a socket of its own
//! for each client, and back. All clients share one [`Path`](uts_path::Path): its bottleneck, its
//! queue, its losses. Datagrams are never fragmented, and their ECN bits pass, marked by the path.
//!
//! One thread does it all. It sleeps in `ppoll` until a datagram comes or the next one is due, so
//! deliveries are late by the time that the system takes to wake a thread; as the path computes
//! departures in virtual time, this lateness is jitter and does not add up, nor change the rate.
//! The thread takes a real-time priority where the process may, so that the ends and others do not
//! keep it waiting.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the relay faces the world: real sockets, real time"
)]

mod clients;
mod record;
mod run;
mod socket;
mod stats;
pub mod traces;

pub use stats::RelayStats;

use run::{Command, Relaying};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;
use uts_path::{Change, LinkConfig, PathConfig, SpecError, Target};

pub use uts_path::IP_UDP_OVERHEAD_BYTES;

/// Settings of a relay.
#[derive(Debug, Clone)]
pub struct RelayConfig {
    /// Where clients send to; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Where their datagrams go.
    pub to: SocketAddr,
    /// The path between; forward is from clients. Times of its schedule count from the start.
    pub path: PathConfig,
    /// Seed of the path's random decisions.
    pub seed: u64,
    /// File for samples of both queues, in CSV; the changes go to a file beside it.
    pub record: Option<PathBuf>,
    /// Samples are of each datagram, as it has left the queue, instead of every 10 ms.
    pub each: bool,
    /// Most clients at a time; datagrams of others are refused and counted.
    pub max_clients: usize,
    /// A client that has neither sent nor got anything for this long is forgotten.
    pub idle_timeout: Duration,
    /// When the next datagram is due within this time, wait for it without sleeping. Delivers more
    /// punctually and takes a core under load, where the two ends may need it more; 0 never does.
    pub spin: Duration,
}

impl RelayConfig {
    /// A relay on a free loopback port over a path that is perfect but counts
    /// [`IP_UDP_OVERHEAD_BYTES`].
    pub fn new(to: SocketAddr) -> Self {
        let host = if to.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
        RelayConfig {
            listen: SocketAddr::new(host, 0),
            to,
            path: PathConfig::both(default_link()),
            seed: 1,
            record: None,
            each: false,
            max_clients: 64,
            idle_timeout: Duration::from_secs(60),
            spin: Duration::ZERO,
        }
    }
}

/// The link that settings start from: perfect, but headers count.
pub fn default_link() -> LinkConfig {
    LinkConfig { overhead_bytes: IP_UDP_OVERHEAD_BYTES, ..LinkConfig::default() }
}

/// Why a relay could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The address cannot be listened on: in use, not of this host, or not permitted.
    #[error("cannot listen on {addr}: {cause}")]
    Listen {
        /// The address asked for.
        addr: SocketAddr,
        /// Error of the system.
        cause: io::Error,
    },
    /// The path is not valid.
    #[error(transparent)]
    Path(#[from] SpecError),
    /// The record cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// Waiting for datagrams failed, or the thread could not be made.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The relay has ended.
    #[error("the relay has ended")]
    Ended,
}

/// Event of a relay, told while it runs. Times are seconds since its start.
#[derive(Debug, Clone, PartialEq)]
pub enum RelayEvent {
    /// The path was changed.
    Changed {
        /// When.
        t_s: f64,
        /// Which links.
        target: Target,
        /// New settings of the links.
        change: Change,
    },
    /// A client has sent its first datagram.
    Joined {
        /// When.
        t_s: f64,
        /// Its address.
        client: SocketAddr,
    },
    /// A client was idle for too long and is forgotten.
    Left {
        /// When.
        t_s: f64,
        /// Its address.
        client: SocketAddr,
    },
}

/// Starts relays.
#[derive(Debug)]
pub struct Relay;

impl Relay {
    /// Starts a relay in a thread of its own.
    ///
    /// # Errors
    /// The address cannot be listened on, the path is not valid, a trace cannot be read, or the
    /// record cannot be made.
    pub fn start(config: RelayConfig) -> Result<RelayHandle, RelayError> {
        let wake =
            Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(io::Error::from)?);
        let (command_sender, command_receiver) = mpsc::channel();
        let (event_sender, event_receiver) = mpsc::channel();
        let relaying = Relaying::new(config, command_receiver, event_sender, Arc::clone(&wake))?;
        let local_addr = relaying.local_addr();
        let thread = std::thread::Builder::new().name("uts-relay".into()).spawn(move || relaying.run())?;
        Ok(RelayHandle {
            local_addr,
            commands: command_sender,
            events: event_receiver,
            wake,
            thread: Some(thread),
        })
    }
}

/// A running relay. It ends when this is dropped.
#[derive(Debug)]
pub struct RelayHandle {
    local_addr: SocketAddr,
    commands: Sender<Command>,
    events: Receiver<RelayEvent>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<Result<RelayStats, RelayError>>>,
}

impl RelayHandle {
    /// Where clients send to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Changes the path now.
    ///
    /// # Errors
    /// The change leads out of range, a trace cannot be read, or the relay has ended.
    pub fn set(&self, target: Target, mut change: Change) -> Result<(), RelayError> {
        change.resolve(|name| traces::read(name))?;
        Ok(self.ask(|reply| Command::Set { target, change, reply })??)
    }

    /// Counters of the relay so far.
    ///
    /// # Errors
    /// The relay has ended.
    pub fn stats(&self) -> Result<RelayStats, RelayError> {
        self.ask(Command::Stats)
    }

    /// Events since the start; they queue until read. The channel closes when the relay ends.
    pub fn events(&self) -> &Receiver<RelayEvent> {
        &self.events
    }

    /// Asks the relay to end; [`events`](Self::events) closes behind the last one once it has.
    pub fn request_stop(&self) {
        // A relay that has ended already need not be asked.
        let _ = self.commands.send(Command::Stop);
        self.wake();
    }

    /// Ends the relay; what is under way is lost, as are events not read by now.
    ///
    /// # Errors
    /// Why it had ended before, or could not write its record.
    pub fn stop(mut self) -> Result<RelayStats, RelayError> {
        self.end().unwrap_or(Err(RelayError::Ended))
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T, RelayError> {
        let (sender, receiver) = mpsc::channel();
        self.commands.send(command(sender)).map_err(|_| RelayError::Ended)?;
        self.wake();
        receiver.recv().map_err(|_| RelayError::Ended)
    }

    fn wake(&self) {
        // It fails only when a wake-up is pending already.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    fn end(&mut self) -> Option<Result<RelayStats, RelayError>> {
        let thread = self.thread.take()?;
        self.request_stop();
        Some(thread.join().unwrap_or(Err(RelayError::Ended)))
    }
}

impl Drop for RelayHandle {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
