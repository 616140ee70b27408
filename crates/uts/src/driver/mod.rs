//! Between the engine and the world: what carries an endpoint, and what it shares with the handles
//! that people hold.
//!
//! Handles change the engine under a lock, and kick whatever carries the endpoint. That receives
//! datagrams, does what is due, sends, and tells handles what has happened. A handle that waits has
//! left a waker under the lock, so that no event is missed.
//!
//! * a turn and its steps: [`turn`], [`schedule`], [`outgoing`], [`dispatch`];
//! * what takes turns: [`task`], or `thread`; which of them: [`host`];
//! * how to wait between turns: [`waiting`], [`timer`];
//! * a port that goes from one process to the next: `succession`;
//! * the UDP socket: [`socket`]; in a simulated network none: `simulated`.

mod dispatch;
mod host;
mod outgoing;
mod per_key;
mod recording;
mod schedule;
#[cfg(any(test, feature = "simulation"))]
mod simulated;
mod socket;
#[cfg(unix)]
pub(crate) mod succession;
mod task;
#[cfg(test)]
mod testing;
#[cfg(all(test, target_os = "linux"))]
mod tests;
#[cfg(unix)]
pub(crate) mod thread;
mod timer;
mod turn;
mod waiting;

use crate::clock::Clock;
use crate::random::random_bytes;
use crate::tls::{OnRefused, Refusals};
use core::task::Waker;
use core::time::Duration;
use dispatch::ConnectionState;
use recording::Recording;
use socket::Socket;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use uts_engine::requirements::Requirements;
use uts_engine::{
    CloseReason, Connection, ConnectionConfig, ConnectionHandle, Endpoint, EndpointConfig, FlowId, Probes,
};
use uts_functions::Time;
use waiting::Dialogue;

pub use dispatch::ConnectionEvent;
pub(crate) use dispatch::{ConnectionNotify, FlowState};
pub(crate) use host::{Host, is_simulated};
pub(crate) use per_key::PerKey;
pub(crate) use socket::{OwnSocket, watch};
use turn::Driver;

/// An endpoint and its socket.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    clock: Clock,
    pub host: Host,
    local_addr: Mutex<SocketAddr>,
    /// The only peer, if it has one.
    peer: Option<SocketAddr>,
    /// Segments that the kernel sends at once.
    pub segments_max: usize,
    /// For how long after anything happens the endpoint looks for what arrives before it sleeps.
    spin: Duration,
    /// A connection may be accepted, or no more ever will. Workers at one port share it.
    pub accept: Arc<Notify>,
    /// Those that this one shares its port with, if any.
    crew: OnceLock<Crew>,
    /// All that had to be sent has been.
    pub flushed: Notify,
    /// Told of the points that packets pass.
    pub probes: Probes,
}

/// The workers at one port.
struct Crew {
    /// Number of this one among them.
    index: usize,
    /// All of them, in the order of their sockets.
    workers: Vec<Weak<Shared>>,
}

/// State that the task and the handles share.
pub(crate) struct Inner {
    pub engine: Endpoint,
    /// Boxed: the nodes of the tree are often half empty.
    pub connections: BTreeMap<ConnectionHandle, Box<ConnectionState>>,
    /// Connections that wait to be accepted.
    pub accepted: VecDeque<ConnectionHandle>,
    pub is_listening: bool,
    /// Connections by their clients' keys.
    pub per_key: PerKey,
    /// Told of clients that are not let in.
    pub on_refused: Option<(OnRefused, Arc<Refusals>)>,
    /// Handles of any kind; without them, and without connections, the task ends.
    pub users: usize,
    /// Settings of the last connection that was begun here: those of the next are mostly the same.
    settings: Option<Settings>,
    /// Connections some task of which waits to open a flow.
    pub openers: Vec<ConnectionHandle>,
    /// The kernel said that nobody listens at the peer's port.
    pub unreachable: u32,
    /// The socket by which the endpoint is to go on.
    moved_to: Option<Box<Socket>>,
    /// The place in a simulated network from which the endpoint is to go on.
    #[cfg(any(test, feature = "simulation"))]
    placed_at: Option<Box<simulated::Place>>,
    /// Why the task has ended.
    pub stopped: Option<String>,
    /// The engine was changed since the task looked for something to send.
    kicked: bool,
    /// Count of what was told of the host when the engine heard last.
    host_seen: u64,
    parked: Option<Waker>,
    /// Changes so far, and those of them whose consequences have been sent.
    changes: u64,
    sent: u64,
    flush_waiters: usize,
    dialogue: Dialogue,
    /// Boxed: hardly an endpoint is logged.
    recording: Option<Box<Recording>>,
    #[cfg(unix)]
    succession: succession::Succession,
}

impl Inner {
    /// The engine was changed: the task has to look.
    pub fn changed(&mut self) {
        self.kicked = true;
        self.changes += 1;
    }

    /// A writer waits. If it waits for memory, the connection looks for that at an instant of which
    /// the task does not know yet.
    pub fn on_blocked(&mut self, handle: ConnectionHandle) {
        if self.connection(handle).is_some_and(|connection| connection.waits_for_memory()) {
            self.changed();
        }
    }

    /// An application has written something.
    pub fn on_written(&mut self) {
        self.dialogue.on_written();
        self.changed();
    }

    /// A connection as the engine knows it.
    pub fn connection(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        self.engine.connection(handle)
    }

    /// The settings of `config`, shared with the last connection if they are the same.
    pub fn share_settings(&mut self, config: ConnectionConfig) -> Settings {
        if let Some(last) = self.settings.as_ref().filter(|last| *last.config == config) {
            return last.clone();
        }
        let requirements = Arc::new(config.requirements.clone());
        self.settings.insert(Settings { config: Arc::new(config), requirements }).clone()
    }

    /// Why a connection has ended, if it has.
    pub fn ended(&self, handle: ConnectionHandle) -> Option<CloseReason> {
        let state = self.connections.get(&handle);
        match state {
            Some(state) => state.closed.as_deref().cloned(),
            None => Some(gone()),
        }
    }

    /// Where a half of a flow leaves its waker.
    pub fn flow(&mut self, handle: ConnectionHandle, flow: FlowId) -> Option<&mut FlowState> {
        self.connections.get_mut(&handle)?.flows.get_mut(&flow)
    }

    /// The next connection that waits to be accepted, for which a handle is made.
    pub fn next_accepted(&mut self) -> Option<ConnectionHandle> {
        while let Some(handle) = self.accepted.pop_front() {
            if self.connections.contains_key(&handle) {
                // So that it cannot end and be forgotten before its handle is made.
                self.adopt(handle);
                return Some(handle);
            }
        }
        None
    }

    /// Accepts no more connections, and closes those that wait for it.
    pub fn stop_listening(&mut self, now: Time) {
        self.is_listening = false;
        self.engine.refuse_new();
        while let Some(handle) = self.accepted.pop_front() {
            self.turn_away(now, handle);
        }
        self.changed();
    }

    /// Closes a connection that nobody will accept.
    fn turn_away(&mut self, now: Time, handle: ConnectionHandle) {
        self.engine.release(handle);
        if let Some(connection) = self.engine.connection(handle) {
            connection.close(now, 0, "the server is closing");
        }
        if self.connections.get(&handle).is_some_and(|state| state.closed.is_some()) {
            self.connections.remove(&handle);
        }
        self.changed();
    }

    /// A handle of a connection is made.
    pub fn adopt(&mut self, handle: ConnectionHandle) {
        self.connections.entry(handle).or_default().users += 1;
        self.users += 1;
    }

    /// A handle of a connection is dropped; with the last one, the connection is closed.
    pub fn disown(&mut self, now: Time, handle: ConnectionHandle) {
        self.users = self.users.saturating_sub(1);
        let Some(state) = self.connections.get_mut(&handle) else { return };
        state.users = state.users.saturating_sub(1);
        if state.users > 0 {
            return;
        }
        self.engine.release(handle);
        if state.closed.is_some() {
            self.connections.remove(&handle);
        } else if let Some(connection) = self.engine.connection(handle) {
            connection.close(now, 0, "");
        }
        self.changed();
    }
}

/// Settings that connections share: each would else hold a copy.
#[derive(Clone)]
pub(crate) struct Settings {
    pub config: Arc<ConnectionConfig>,
    /// The engine's part and that of handles.
    pub requirements: Arc<Requirements>,
}

/// The address that a socket has, if it is bound to one.
fn said(local_addr: SocketAddr) -> Option<IpAddr> {
    Some(local_addr.ip()).filter(|ip| !ip.is_unspecified())
}

/// Said of a connection that the endpoint no longer knows.
pub(crate) fn gone() -> CloseReason {
    CloseReason::Local { code: 0, reason: "the endpoint is gone".to_owned() }
}

impl Shared {
    /// Binds a socket and starts its task. `peer` = the only one that the socket will talk to;
    /// `spin` = how long to look for what arrives before sleeping.
    pub fn start(
        host: Host,
        addr: SocketAddr,
        peer: Option<SocketAddr>,
        config: EndpointConfig,
        spin: Duration,
    ) -> io::Result<Arc<Self>> {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(network) = crate::simulation::Network::current() {
            return simulated::start(network, host, addr, peer, config);
        }
        let (shared, driver) = Self::bind(host, addr, peer, config, spin)?;
        host.start(driver)?;
        Ok(shared)
    }

    /// Binds a socket for each of several workers at one address, each as `configs` has it, and
    /// starts their tasks.
    ///
    /// # Errors
    /// The address cannot be used, or the system cannot steer datagrams between sockets.
    pub fn start_workers(
        host: Host,
        addr: SocketAddr,
        configs: Vec<EndpointConfig>,
        spin: Duration,
    ) -> io::Result<Vec<Arc<Self>>> {
        // A simulated network is of one thread: one worker does it all.
        if configs.len() == 1 || is_simulated() {
            return configs
                .into_iter()
                .take(1)
                .map(|config| Self::start(host, addr, None, config, spin))
                .collect();
        }
        Self::start_crew(host, Socket::bind_workers(addr, configs.len(), host)?, configs, spin, |_| {})
    }

    /// Starts the tasks of workers whose sockets are bound already, in the order of these. `before`
    /// is given the workers before any of them receives.
    pub fn start_on(
        host: Host,
        sockets: Vec<OwnSocket>,
        configs: Vec<EndpointConfig>,
        spin: Duration,
        before: impl FnOnce(&[Arc<Self>]),
    ) -> io::Result<Vec<Arc<Self>>> {
        let sockets = sockets.into_iter().map(|socket| Socket::adopt(socket.into(), None, host));
        Self::start_crew(host, sockets.collect::<io::Result<_>>()?, configs, spin, before)
    }

    fn start_crew(
        host: Host,
        sockets: Vec<Socket>,
        configs: Vec<EndpointConfig>,
        spin: Duration,
        before: impl FnOnce(&[Arc<Self>]),
    ) -> io::Result<Vec<Arc<Self>>> {
        let accept = Arc::<Notify>::default();
        let (mut workers, mut drivers) = (Vec::new(), Vec::new());
        for (socket, config) in sockets.into_iter().zip(configs) {
            let (shared, driver) = Self::over(host, socket, None, accept.clone(), config, spin)?;
            workers.push(shared);
            drivers.push(driver);
        }
        let all: Vec<_> = workers.iter().map(Arc::downgrade).collect();
        for (index, worker) in workers.iter().enumerate().filter(|_| all.len() > 1) {
            let _ = worker.crew.set(Crew { index, workers: all.clone() });
        }
        before(&workers);
        drivers.into_iter().try_for_each(|driver| host.start(driver))?;
        Ok(workers)
    }

    /// Binds a socket, and makes its task.
    fn bind(
        host: Host,
        addr: SocketAddr,
        peer: Option<SocketAddr>,
        config: EndpointConfig,
        spin: Duration,
    ) -> io::Result<(Arc<Self>, Driver)> {
        Self::over(host, Socket::bind(addr, peer, host)?, peer, Arc::default(), config, spin)
    }

    /// Makes the task of a socket.
    fn over(
        host: Host,
        socket: Socket,
        peer: Option<SocketAddr>,
        accept: Arc<Notify>,
        config: EndpointConfig,
        spin: Duration,
    ) -> io::Result<(Arc<Self>, Driver)> {
        let (local_addr, segments_max) = (socket.local_addr()?, socket.segments_max());
        let shared = Self::assemble(host, local_addr, segments_max, peer, accept, config, spin)?;
        let driver = Driver::new(shared.clone(), socket);
        Ok((shared, driver))
    }

    /// Makes an endpoint at an address.
    fn assemble(
        host: Host,
        local_addr: SocketAddr,
        segments_max: usize,
        peer: Option<SocketAddr>,
        accept: Arc<Notify>,
        mut config: EndpointConfig,
        spin: Duration,
    ) -> io::Result<Arc<Self>> {
        config.secret = crate::instance::secret(&config.secret, local_addr);
        let (is_listening, probes) = (config.server.is_some(), config.probes.clone());
        let mut engine = Endpoint::new(config, random_bytes()?);
        if let Some(address) = said(local_addr) {
            engine.is_at(address);
        }
        Ok(Arc::new(Shared {
            local_addr: Mutex::new(local_addr),
            peer,
            segments_max,
            clock: host.clock(),
            host,
            spin,
            accept,
            crew: OnceLock::new(),
            flushed: Notify::new(),
            probes,
            inner: Mutex::new(Inner {
                is_listening,
                per_key: PerKey::default(),
                on_refused: None,
                engine,
                connections: BTreeMap::new(),
                accepted: VecDeque::new(),
                users: 1,
                settings: None,
                openers: Vec::new(),
                unreachable: 0,
                moved_to: None,
                #[cfg(any(test, feature = "simulation"))]
                placed_at: None,
                stopped: None,
                kicked: true,
                host_seen: 0,
                parked: None,
                changes: 0,
                sent: 0,
                flush_waiters: 0,
                dialogue: Dialogue::default(),
                recording: None,
                #[cfg(unix)]
                succession: succession::Succession::default(),
            }),
        }))
    }

    /// Logs connections that begin from now on as qlog, each to a file in a directory.
    ///
    /// # Errors
    /// If there can be no such directory.
    pub fn record(&self, dir: &Path) -> io::Result<()> {
        let recording = Recording::new(dir.to_owned())?;
        self.act(|inner, _| {
            inner.engine.trace_all();
            inner.recording.get_or_insert_with(|| Box::new(recording));
        });
        Ok(())
    }

    /// Where the endpoint is.
    pub fn local_addr(&self) -> SocketAddr {
        *self.local_addr.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if anybody holds the endpoint, and it works.
    pub fn is_held(&self) -> bool {
        let inner = self.lock();
        inner.users > 0 && inner.stopped.is_none()
    }

    /// The endpoint goes on by another socket, at `addr`.
    ///
    /// # Errors
    /// If the address cannot be used, or its family is another than that of the peers; then nothing
    /// has changed.
    pub fn migrate(&self, addr: SocketAddr) -> io::Result<()> {
        self.check_family(addr)?;
        #[cfg(any(test, feature = "simulation"))]
        if let Some(network) = crate::simulation::Network::current() {
            return simulated::migrate(self, &network, addr);
        }
        self.move_to(Socket::bind(addr, self.peer, self.host)?)
    }

    /// The endpoint goes on by this socket.
    ///
    /// # Errors
    /// As [`Shared::migrate`].
    pub fn rebind(&self, socket: OwnSocket) -> io::Result<()> {
        self.check_family(socket.local_addr()?)?;
        self.move_to(Socket::adopt(socket.into(), self.peer, self.host)?)
    }

    fn check_family(&self, addr: SocketAddr) -> io::Result<()> {
        let here = self.local_addr();
        if addr.is_ipv4() == here.is_ipv4() {
            return Ok(());
        }
        let name = |addr: SocketAddr| if addr.is_ipv4() { "IPv4" } else { "IPv6" };
        let why = format!("{addr} is {}, and the endpoint's peers are reached by {}", name(addr), name(here));
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }

    fn move_to(&self, socket: Socket) -> io::Result<()> {
        *self.local_addr.lock().unwrap_or_else(PoisonError::into_inner) = socket.local_addr()?;
        self.act(|inner, _| {
            inner.moved_to = Some(Box::new(socket));
            inner.changed();
        });
        Ok(())
    }

    /// Looks at, or changes, what is shared. If [`Inner::changed`] was called the task is woken.
    pub fn act<R>(&self, f: impl FnOnce(&mut Inner, Time) -> R) -> R {
        self.act_by(|inner, clock| f(inner, clock.now()))
    }

    /// The same where the time may be of no interest.
    pub fn act_by<R>(&self, f: impl FnOnce(&mut Inner, Clock) -> R) -> R {
        let mut inner = self.lock();
        let result = f(&mut inner, self.clock);
        let parked = if inner.kicked { inner.parked.take() } else { None };
        drop(inner);
        if let Some(waker) = parked {
            waker.wake();
        }
        result
    }

    /// Waits until all that earlier changes made due has been sent.
    pub async fn flush(&self) {
        let target = self.act(|inner, _| {
            inner.flush_waiters += 1;
            inner.changed();
            inner.changes
        });
        let _count = FlushWaiter(self);
        loop {
            let flushed = self.flushed.notified();
            tokio::pin!(flushed);
            flushed.as_mut().enable();
            if self.act(|inner, _| inner.sent >= target || inner.stopped.is_some()) {
                return;
            }
            flushed.await;
        }
    }

    /// Somebody holds the endpoint.
    pub fn retain(&self) {
        self.act(|inner, _| inner.users += 1);
    }

    /// Somebody no longer holds the endpoint.
    pub fn release(&self) {
        self.act(|inner, _| {
            inner.users = inner.users.saturating_sub(1);
            inner.changed();
        });
    }

    /// Events of a connection, from now on and those before anybody asked.
    pub fn subscribe(&self, handle: ConnectionHandle) -> UnboundedReceiver<ConnectionEvent> {
        self.act(|inner, _| inner.connections.entry(handle).or_default().subscribe())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // If an engine has failed, its task is gone, and says so to all who wait.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct FlushWaiter<'a>(&'a Shared);

impl Drop for FlushWaiter<'_> {
    fn drop(&mut self) {
        self.0.act(|inner, _| inner.flush_waiters = inner.flush_waiters.saturating_sub(1));
    }
}
