//! Networks in virtual time: endpoints, connections and flows as programs use them, without
//! sockets, over paths that delay, lose, reorder and queue, in a fraction of the time that passes.
//!
//! A [`Network`] holds for the thread that begins it. All endpoints that the thread makes then are
//! in it. The runtime has one thread, and its time is paused: so the clock goes from one event to
//! the next, and a day of silence takes no longer than a round trip. In a runtime whose time goes
//! on, the network is an emulator in real time.
//!
//! Paths have the words of `uts lab` and `uts relay`: see [`Setting`](uts_path::Setting). A packet
//! counts with 28 bytes of IP and UDP. The seed decides what becomes of the packets, and all that
//! endpoints draw: two runs of one seed have the same packets at the same instants. Keys of TLS are
//! drawn by chance as ever, so that the bytes differ. Instants are those of tokio, which are whole
//! milliseconds: a shorter path is one of a millisecond.
//!
//! ```
//! use core::time::Duration;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use uts::simulation::Network;
//! use uts::{ConnectOptions, FlowOptions, Identity, Listener, ServerOptions, connect};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A satellite, and rain.
//! let network = Network::begin("rate=20mbit delay=300ms loss=2%", 7)?;
//! network.name("server.example", "10.0.0.2".parse()?);
//!
//! let options = ServerOptions::new(Identity::generate()?);
//! let listener = Listener::bind("10.0.0.2:4433".parse()?, options)?;
//! let trusted = ConnectOptions::pinned(listener.fingerprint());
//! tokio::spawn(async move {
//!     let connection = listener.accept().await?;
//!     let (mut send, mut recv) = connection.accept_flow().await?.split();
//!     tokio::io::copy(&mut recv, &mut send).await.ok()?;
//!     send.finished().await.ok()
//! });
//!
//! let begun = tokio::time::Instant::now();
//! let connection = connect("server.example:4433", trusted).await?;
//! let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).await?.split();
//! send.write_all(b"is anybody there?").await?;
//! send.shutdown().await?;
//! let mut answer = String::new();
//! recv.read_to_string(&mut answer).await?;
//! assert_eq!(answer, "is anybody there?");
//! assert!(begun.elapsed() > Duration::from_millis(1200), "two round trips of it");
//! # Ok(())
//! # }
//! ```

mod line;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use uts_path::{Direction, SpecError, Stats, Target};

use core::cell::RefCell;
use line::Line;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use uts_engine::Ecn;
use uts_path::{Change, IP_UDP_OVERHEAD_BYTES, LinkConfig, PathConfig};

/// The first port that an endpoint gets that names none.
const FIRST_PORT: u16 = 20_000;

thread_local! {
    static CURRENT: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// Reason why there is no such network, or path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// A path is not said rightly, or a value of it is out of range.
    #[error(transparent)]
    Path(#[from] SpecError),
    /// The thread has a network already.
    #[error("this thread has a network already: it ends when what `Network::begin` gave is dropped")]
    Begun,
    /// Other threads would open real sockets.
    #[error("a simulated network needs a tokio runtime of one thread (flavor = \"current_thread\")")]
    Runtime,
}

/// A network of this thread. Copies of it are one network.
#[derive(Clone, Debug)]
pub struct Network(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Its clock was at zero.
    begun: Instant,
    seed: u64,
    /// Numbers that endpoints draw.
    drawn: ChaCha8Rng,
    /// Settings of paths that begin from now on.
    usual: PathConfig,
    /// Paths by their hosts, the lower address first.
    lines: BTreeMap<(IpAddr, IpAddr), Line>,
    /// Host of endpoints that name no address.
    host: IpAddr,
    next_port: u16,
    names: BTreeMap<String, Vec<IpAddr>>,
    /// Endpoints, by the addresses under which others reach them.
    ends: BTreeMap<SocketAddr, UnboundedSender<Datagram>>,
    /// Addresses under which others know endpoints that were made at another one.
    outer: BTreeMap<SocketAddr, SocketAddr>,
    /// Packets that each endpoint has sent, by the address that it was made at.
    sent: BTreeMap<SocketAddr, u64>,
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub ecn: Option<Ecn>,
    pub contents: Vec<u8>,
}

/// The network of a thread is there until this is dropped.
#[derive(Debug)]
#[must_use = "the network ends when this is dropped"]
pub struct Running {
    network: Network,
    /// It ends in the thread that it began in.
    _thread: core::marker::PhantomData<*const ()>,
}

impl core::ops::Deref for Running {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.network
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

impl Network {
    /// Begins a network: endpoints that this thread makes from now on are in it. Between each two
    /// hosts is a path like this one, which all their connections share.
    ///
    /// # Errors
    /// [`SimulationError`].
    pub fn begin(path: &str, seed: u64) -> Result<Running, SimulationError> {
        let one_thread = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
        if !Handle::try_current().is_ok_and(one_thread) {
            return Err(SimulationError::Runtime);
        }
        if Network::current().is_some() {
            return Err(SimulationError::Begun);
        }
        let plain = LinkConfig { overhead_bytes: IP_UDP_OVERHEAD_BYTES, ..LinkConfig::default() };
        let usual = PathConfig::both(plain.with(&path.parse()?)?);
        // A trace that has to be read from a file is an error now rather than at the first packet.
        uts_path::Path::<Datagram>::new(usual.clone(), seed, 0)?;
        let network = Network(Arc::new(Mutex::new(State {
            begun: Instant::now(),
            seed,
            drawn: ChaCha8Rng::seed_from_u64(seed),
            usual,
            lines: BTreeMap::new(),
            host: Ipv4Addr::LOCALHOST.into(),
            next_port: FIRST_PORT,
            names: BTreeMap::new(),
            ends: BTreeMap::new(),
            outer: BTreeMap::new(),
            sent: BTreeMap::new(),
        })));
        CURRENT.set(Some(network.clone()));
        Ok(Running { network, _thread: core::marker::PhantomData })
    }

    /// The network of this thread, if it has one.
    pub fn current() -> Option<Network> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Gives a host a name, beside those that it has: [`connect`](crate::connect) finds it by that.
    /// No other name is known, and no system is asked.
    pub fn name(&self, name: &str, host: IpAddr) {
        self.lock().names.entry(name.to_owned()).or_default().push(host);
    }

    /// Says at which host endpoints are that are made from now on without an address of their own,
    /// as those of clients are. 127.0.0.1 at first.
    pub fn set_host(&self, host: IpAddr) {
        self.lock().host = host;
    }

    /// Changes settings of all paths, those that are there and those that begin later: `loss=5%`,
    /// `down`. Forward is from the host that has sent first.
    ///
    /// # Errors
    /// [`SpecError`]: nothing has changed then.
    pub fn change(&self, target: Target, change: &str) -> Result<(), SpecError> {
        let change: Change = change.parse()?;
        let mut state = self.lock();
        let mut usual = state.usual.clone();
        for direction in target.directions() {
            let link = match direction {
                Direction::Forward => &mut usual.forward,
                Direction::Backward => &mut usual.backward,
            };
            *link = link.clone().with(&change)?;
        }
        uts_path::Path::<Datagram>::new(usual.clone(), 0, 0)?;
        state.usual = usual;
        let now = state.now();
        state.lines.values_mut().try_for_each(|line| line.set(now, target, &change))
    }

    /// Changes settings of the path between two hosts alone. Forward is from the first to the
    /// second.
    ///
    /// # Errors
    /// [`SpecError`]: nothing has changed then.
    pub fn change_between(&self, hosts: [IpAddr; 2], target: Target, change: &str) -> Result<(), SpecError> {
        let change: Change = change.parse()?;
        let now = self.lock().now();
        self.with_line(hosts, |line| {
            let target = if line.first == hosts[0] { target } else { opposite(target) };
            line.set(now, target, &change)
        })?
    }

    /// Counters of the path from one host to another: packets, bytes, losses by their causes.
    pub fn stats(&self, from: IpAddr, to: IpAddr) -> Stats {
        self.with_line([from, to], |line| line.stats(from)).unwrap_or_default()
    }

    /// Packets that the endpoint has sent that was made at an address.
    pub fn sent(&self, at: SocketAddr) -> u64 {
        self.lock().sent.get(&at).copied().unwrap_or(0)
    }

    /// Ends the endpoint at an address as the death of its process does: nobody is told. False =
    /// there is none.
    pub fn kill(&self, at: SocketAddr) -> bool {
        let mut state = self.lock();
        let outer = state.outer.remove(&at).unwrap_or(at);
        state.ends.remove(&outer).is_some()
    }

    /// Has the packets of the endpoint that was made at `at` come from another address, as behind a
    /// NAT that has forgotten it. What is sent to the address before is lost. The endpoint is told
    /// nothing.
    ///
    /// # Errors
    /// Nobody is there, or somebody is at the new address.
    pub fn rebind(&self, at: SocketAddr, to: SocketAddr) -> io::Result<()> {
        let mut state = self.lock();
        if state.ends.contains_key(&to) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("an endpoint is at {to}")));
        }
        let outer = state.outer.get(&at).copied().unwrap_or(at);
        let none = || io::Error::new(io::ErrorKind::NotFound, format!("no endpoint is at {at}"));
        let end = state.ends.remove(&outer).ok_or_else(none)?;
        state.ends.insert(to, end);
        state.outer.insert(at, to);
        Ok(())
    }

    /// Draws for an endpoint.
    pub(crate) fn draw(&self, bytes: &mut [u8]) {
        self.lock().drawn.fill_bytes(bytes);
    }

    /// Resolves a host name.
    pub(crate) fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let hosts = match host.trim_matches(['[', ']']).parse() {
            Ok(ip) => vec![ip],
            Err(_) => self.lock().names.get(host).cloned().ok_or_else(|| {
                let text = format!("the simulated network has no host of the name {host:?}");
                io::Error::new(io::ErrorKind::NotFound, text)
            })?,
        };
        Ok(hosts.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }

    /// Finds an endpoint its place: the address, with what it leaves open, and the arrivals there.
    pub(crate) fn place(&self, addr: SocketAddr) -> io::Result<(SocketAddr, UnboundedReceiver<Datagram>)> {
        let mut state = self.lock();
        let ip = match addr.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V6(_) if state.host == IpAddr::V4(Ipv4Addr::LOCALHOST) => Ipv6Addr::LOCALHOST.into(),
            _ => state.host,
        };
        let mut at = SocketAddr::new(ip, addr.port());
        if at.port() == 0 {
            for _ in 0..=u16::MAX {
                at.set_port(state.next_port);
                state.next_port = state.next_port.checked_add(1).unwrap_or(FIRST_PORT);
                if !state.ends.contains_key(&at) {
                    break;
                }
            }
        }
        if state.ends.contains_key(&at) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("an endpoint is at {at}")));
        }
        let (end, arrivals) = unbounded_channel();
        state.ends.insert(at, end);
        Ok((at, arrivals))
    }

    /// A packet sets out.
    pub(crate) fn carry(&self, mut datagram: Datagram) {
        let now = {
            let mut state = self.lock();
            *state.sent.entry(datagram.from).or_default() += 1;
            datagram.from = state.outer.get(&datagram.from).copied().unwrap_or(datagram.from);
            state.now()
        };
        // The settings of the path were tried when they were said.
        let _ = self.with_line([datagram.from.ip(), datagram.to.ip()], |line| line.send(now, datagram));
    }

    /// Does something with the path between two hosts, which is made if it has to be.
    fn with_line<T>(&self, [a, b]: [IpAddr; 2], act: impl FnOnce(&mut Line) -> T) -> Result<T, SpecError> {
        let (mut state, key) = (self.lock(), (a.min(b), a.max(b)));
        if !state.lines.contains_key(&key) {
            // Each path has chances of its own.
            let seed = state.seed.wrapping_add((state.lines.len() as u64) << 32);
            let line = Line::begin(self, a, key, state.usual.clone(), seed)?;
            state.lines.insert(key, line);
        }
        let line = state.lines.get_mut(&key);
        line.map(act).ok_or_else(|| SpecError { at: "path".to_owned(), reason: "is not there".to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Time since the begin, in nanoseconds.
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

fn opposite(target: Target) -> Target {
    match target {
        Target::One(Direction::Forward) => Target::One(Direction::Backward),
        Target::One(Direction::Backward) => Target::One(Direction::Forward),
        Target::Both => Target::Both,
    }
}
