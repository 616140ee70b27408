//! Carrier of an endpoint in a simulated network: as [`super::task`], but without a socket.

use super::outgoing::Outgoing;
use super::{Host, Inner, Shared, said};
use crate::simulation::{Datagram, Network};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Sleep, sleep};
use uts_engine::{EndpointConfig, Point};

/// Makes an endpoint, and starts its turns.
///
/// # Errors
/// The address is taken, or calls that wait were to carry it.
pub(super) fn start(
    network: Network,
    host: Host,
    addr: SocketAddr,
    peer: Option<SocketAddr>,
    config: EndpointConfig,
) -> io::Result<Arc<Shared>> {
    if host != Host::Runtime {
        let text = "a simulated network has no endpoints of calls that wait (uts::blocking)";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let (at, arrivals) = network.place(addr)?;
    let shared = Shared::assemble(host, at, 1, peer, Arc::default(), config, Duration::ZERO)?;
    tokio::spawn(Carrier {
        network,
        at,
        shared: shared.clone(),
        arrivals,
        outgoing: Outgoing::default(),
        woken: Vec::new(),
        timer: Box::pin(sleep(Duration::ZERO)),
    });
    Ok(shared)
}

/// Place of an endpoint: its address, and what arrives there.
pub(super) type Place = (SocketAddr, UnboundedReceiver<Datagram>);

/// Has an endpoint go on from another address, and tells it so. What is sent to the one before is
/// lost.
///
/// # Errors
/// The address is taken.
pub(super) fn migrate(shared: &Shared, network: &Network, addr: SocketAddr) -> io::Result<()> {
    let place = network.place(addr)?;
    *shared.local_addr.lock().unwrap_or_else(PoisonError::into_inner) = place.0;
    shared.act(|inner, _| {
        if let Some(never_taken) = inner.placed_at.replace(Box::new(place)) {
            network.kill(never_taken.0);
        }
        inner.changed();
    });
    Ok(())
}

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
                Poll::Ready(Some(Datagram { from, ecn, mut contents, .. })) => {
                    let stride = contents.len();
                    for point in [Point::Woken, Point::Receiving, Point::Received] {
                        self.shared.probes.pass(point, stride);
                    }
                    let mut inner = self.shared.lock();
                    let now = self.shared.clock.now();
                    self.shared.probes.pass(Point::Handed, stride);
                    inner.engine.take_in(now, from, None, ecn, stride, &mut contents);
                    inner.engine.taken_in(now);
                    inner.retry_openers();
                }
            }
        }
    }

    /// Moves to where the endpoint is to go on from, if it is to.
    fn follow(&mut self) {
        let mut inner = self.shared.lock();
        if let Some(place) = inner.placed_at.take() {
            self.network.kill(self.at);
            (self.at, self.arrivals) = *place;
            inner.engine.on_moved(self.shared.clock.now(), said(self.at));
        }
    }

    fn send(&mut self, inner: &mut Inner) {
        let now = self.shared.clock.now();
        inner.kicked = false;
        inner.engine.handle_timeout(now);
        loop {
            self.outgoing.fetch(now, &mut inner.engine, &self.shared.probes);
            if self.outgoing.is_empty() {
                return;
            }
            while let Some(batch) = self.outgoing.front() {
                self.shared.probes.pass(Point::Sending, batch.contents.len());
                for datagram in batch.contents.chunks(batch.segment_bytes) {
                    let (from, to, ecn) = (self.at, batch.remote, batch.ecn);
                    self.network.carry(Datagram { from, to, ecn, contents: datagram.to_vec() });
                }
                let bytes = batch.contents.len();
                self.shared.probes.pass(Point::Sent, bytes);
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
            this.follow();
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
