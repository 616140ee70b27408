//! Endpoints in virtual time: a network for tests, which carries what listeners and connections of
//! a thread send, without sockets. All else is as it is elsewhere. It wants a runtime of tokio
//! whose time is paused (`start_paused`), so that the clock goes from one event to the next.

use super::outgoing::Outgoing;
use super::{Host, Inner, Shared};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, Sleep, sleep};
use uts_engine::{Ecn, EndpointConfig};

thread_local! {
    static CURRENT: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// Paths between all endpoints, all alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// The shortest time from end to end.
    pub delay: Duration,
    /// More time that a packet may take, each its own: they overtake each other.
    pub jitter: Duration,
    /// Share of packets that are lost.
    pub loss: f64,
    /// Share of packets that arrive twice.
    pub duplication: f64,
}

impl Weather {
    /// A path that is 10 ms long, and loses nothing.
    pub const FAIR: Weather =
        Weather { delay: Duration::from_millis(10), jitter: Duration::ZERO, loss: 0.0, duplication: 0.0 };
}

/// A network of this thread.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<State>>);

struct State {
    weather: Weather,
    rng: ChaCha8Rng,
    next_port: u16,
    ends: BTreeMap<SocketAddr, UnboundedSender<Datagram>>,
    /// Packets that each address has sent.
    sent: BTreeMap<SocketAddr, u64>,
}

struct Datagram {
    from: SocketAddr,
    ecn: Option<Ecn>,
    contents: Vec<u8>,
}

/// The network is there until this is dropped.
pub(crate) struct Running(Network);

impl core::ops::Deref for Running {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

impl Network {
    /// From now on endpoints of this thread are in a network.
    pub fn begin(weather: Weather, seed: u64) -> Running {
        let (rng, ends) = (ChaCha8Rng::seed_from_u64(seed), BTreeMap::new());
        let state = State { weather, rng, next_port: 20_000, ends, sent: BTreeMap::new() };
        let network = Network(Arc::new(Mutex::new(state)));
        CURRENT.set(Some(network.clone()));
        Running(network)
    }

    /// The network of this thread.
    pub fn current() -> Option<Network> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Packets that an address has sent.
    pub fn sent(&self, at: SocketAddr) -> u64 {
        self.lock().sent.get(&at).copied().unwrap_or(0)
    }

    /// Ends the endpoint at an address as the death of its process does: nobody is told.
    pub fn kill(&self, at: SocketAddr) {
        self.lock().ends.remove(&at);
    }

    /// Makes an endpoint, and starts its turns.
    pub fn start(
        &self,
        host: Host,
        addr: SocketAddr,
        peer: Option<SocketAddr>,
        config: EndpointConfig,
    ) -> io::Result<Arc<Shared>> {
        let at = {
            let mut state = self.lock();
            let port = if addr.port() == 0 { state.next_port } else { addr.port() };
            state.next_port = state.next_port.wrapping_add(1).max(20_000);
            let ip = if addr.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { addr.ip() };
            SocketAddr::new(ip, port)
        };
        let shared = Shared::assemble(host, at, 1, peer, Arc::default(), config, Duration::ZERO)?;
        let (end, arrivals) = unbounded_channel();
        if self.lock().ends.insert(at, end).is_some() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        tokio::spawn(Carrier {
            network: self.clone(),
            at,
            shared: shared.clone(),
            arrivals,
            outgoing: Outgoing::default(),
            woken: Vec::new(),
            timer: Box::pin(sleep(Duration::ZERO)),
        });
        Ok(shared)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A packet sets out: it is lost, or arrives once or twice.
    fn carry(&self, to: SocketAddr, from: SocketAddr, ecn: Option<Ecn>, contents: &[u8]) {
        let mut state = self.lock();
        *state.sent.entry(from).or_default() += 1;
        let Weather { delay, jitter, loss, duplication } = state.weather;
        if state.rng.random_bool(loss) {
            return;
        }
        let copies = if state.rng.random_bool(duplication) { 2 } else { 1 };
        for _ in 0..copies {
            let takes = delay + jitter.mul_f64(state.rng.random_range(0.0..1.0));
            let (network, datagram) = (self.clone(), Datagram { from, ecn, contents: contents.to_vec() });
            tokio::spawn(async move {
                sleep(takes).await;
                // Nobody may be there, or somebody else than when it set out.
                let end = network.lock().ends.get(&to).cloned();
                if let Some(end) = end {
                    let _ = end.send(datagram);
                }
            });
        }
    }
}

/// Carries an endpoint as [`super::task`] does, but without a socket.
struct Carrier {
    network: Network,
    at: SocketAddr,
    shared: Arc<Shared>,
    arrivals: UnboundedReceiver<Datagram>,
    outgoing: Outgoing,
    woken: Vec<Waker>,
    timer: Pin<Box<Sleep>>,
}

impl Carrier {
    /// Takes in what has arrived; false = the endpoint was killed.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            match self.arrivals.poll_recv(cx) {
                Poll::Pending => return true,
                Poll::Ready(None) => return false,
                Poll::Ready(Some(Datagram { from, ecn, mut contents })) => {
                    let mut inner = self.shared.lock();
                    let (now, stride) = (self.shared.clock.now(), contents.len());
                    inner.engine.take_in(now, from, None, ecn, stride, &mut contents);
                    inner.engine.taken_in(now);
                    inner.retry_openers();
                }
            }
        }
    }

    fn send(&mut self, inner: &mut Inner) {
        let now = self.shared.clock.now();
        inner.kicked = false;
        inner.engine.handle_timeout(now);
        loop {
            self.outgoing.fetch(now, &mut inner.engine);
            if self.outgoing.is_empty() {
                return;
            }
            while let Some(batch) = self.outgoing.front() {
                for datagram in batch.contents.chunks(batch.segment_bytes) {
                    self.network.carry(batch.remote, self.at, batch.ecn, datagram);
                }
                let bytes = batch.contents.len();
                self.outgoing.on_sent(bytes);
            }
        }
    }
}

impl Future for Carrier {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let shared = this.shared.clone();
            if !this.receive(cx) {
                shared.lock().stop(&shared, "it was killed");
                return Poll::Ready(());
            }
            let until = {
                let mut inner = shared.lock();
                this.send(&mut inner);
                inner.on_sent_all(&shared);
                inner.dispatch(&shared, &mut this.woken);
                if inner.is_over() {
                    this.network.kill(this.at);
                    return Poll::Ready(());
                }
                if inner.kicked {
                    continue;
                }
                inner.parked = Some(cx.waker().clone());
                inner.engine.poll_timeout()
            };
            this.woken.drain(..).for_each(Waker::wake);
            let Some(until) = until else { return Poll::Pending };
            let now = shared.clock.now();
            if until > now {
                this.timer.as_mut().reset(Instant::now() + until.since(now));
                if this.timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        }
    }
}
