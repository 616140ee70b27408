//! Streams and datagrams that are carried at present, so that they can be looked at, ended, and
//! told of when they have ended.

use crate::Asking;
use crate::sockets::{Resetting, Tcp};
use crate::stream::{self, Pace};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncRead;
use tokio::sync::Notify;
use tokio::time::Instant;
use uts::printable::words;
use uts::{Connection, FlowId, SendFlow};

/// All streams of one peer that are carried, or of a tunnel.
#[derive(Default)]
pub struct Live {
    next: Arc<AtomicU64>,
    carried: Mutex<BTreeMap<u64, Arc<Carried>>>,
    observer: Option<Box<dyn Observer>>,
}

/// Somebody who hears what becomes of streams.
pub trait Observer: Send + Sync {
    /// Something has become of a stream to a place.
    fn on_stream(&self, place: &str, event: Event<'_>);
}

/// Something that becomes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// It has begun.
    Opened,
    /// It was refused, and why.
    Refused(&'a str),
    /// It has ended.
    Closed {
        /// Bytes that came from the flow, and that went into it.
        bytes: [u64; 2],
        /// Time since it began.
        lasted: Duration,
        /// The reason of its end.
        why: &'a str,
    },
}

/// One of them.
pub struct Carried {
    /// Of which forward or service it is.
    pub forward: String,
    /// Program that has connected, in words.
    pub from: String,
    /// Where to.
    pub to: String,
    /// Bytes that went into the flow.
    pub sent: AtomicU64,
    /// Bytes that came from it.
    pub received: AtomicU64,
    /// Datagrams that the peer could not take, and that were given up.
    pub dropped: AtomicU64,
    /// The flow, if it can be looked at.
    pub flow: Option<(Connection, FlowId)>,
    /// Since when it is carried.
    pub since: Instant,
    ends: Notify,
    /// The reason of its end, once that is known.
    why: Mutex<Option<String>>,
}

/// One of them, listed until it is dropped, which is told.
pub struct Entered {
    live: Mutex<Arc<Live>>,
    id: u64,
    carried: Arc<Carried>,
}

/// Said of a stream that `uts ctl` has ended.
const ENDED: &str = "ended by the operator";

impl Live {
    /// Streams of a peer, numbered by `next`, of which the observer hears.
    pub fn new(next: Arc<AtomicU64>, observer: impl Observer + 'static) -> Arc<Live> {
        Arc::new(Live { next, carried: Mutex::default(), observer: Some(Box::new(observer)) })
    }

    /// Lists a stream. `flow`: what carries it, if that can be looked at.
    pub fn enter(
        self: &Arc<Self>,
        [forward, from, to]: [String; 3],
        flow: Option<(&Connection, FlowId)>,
    ) -> Entered {
        let id = self.next.fetch_add(1, Relaxed) + 1;
        let carried = Arc::new(Carried {
            forward,
            from,
            to,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            flow: flow.map(|(connection, flow)| (connection.clone(), flow)),
            since: Instant::now(),
            ends: Notify::new(),
            why: Mutex::default(),
        });
        self.lock().insert(id, carried.clone());
        self.tell(&carried.to, Event::Opened);
        Entered { live: Mutex::new(self.clone()), id, carried }
    }

    /// A stream to a place was refused.
    pub fn refused(&self, place: &str, why: &str) {
        self.tell(place, Event::Refused(why));
    }

    fn tell(&self, place: &str, event: Event<'_>) {
        if let Some(observer) = &self.observer {
            observer.on_stream(place, event);
        }
    }

    /// All of them, in the order in which they began, with their numbers.
    pub fn all(&self) -> Vec<(u64, Arc<Carried>)> {
        self.lock().iter().map(|(id, carried)| (*id, carried.clone())).collect()
    }

    /// Ends all of them.
    pub fn end_all(&self, why: &str) {
        for carried in self.lock().values() {
            carried.because(why);
            carried.ends.notify_one();
        }
    }

    /// Number of them.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Ends one of them. False if there is none of that number.
    pub fn end(&self, id: u64) -> bool {
        let carried = self.lock().get(&id).cloned();
        let ended = carried.map(|carried| {
            carried.because(ENDED);
            carried.ends.notify_one();
        });
        ended.is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Carried>>> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carried {
    /// Says why it ends, if that was not said before.
    pub fn because(&self, why: &str) {
        let mut said = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        said.get_or_insert_with(|| why.to_owned());
    }
}

impl Entered {
    /// Its figures.
    pub fn carried(&self) -> &Carried {
        &self.carried
    }

    /// Carries it between its socket and its flow, to its end, as [`stream::join`] does. If no
    /// priority was asked, that of the flow follows what goes into it. `ahead` is noted already.
    ///
    /// # Errors
    /// Those of both ends; [`io::ErrorKind::ConnectionAborted`] if somebody wants it to end.
    pub async fn join<T: Tcp, R: AsyncRead + Unpin>(
        &self,
        socket: Resetting<T>,
        send: &mut SendFlow,
        recv: &mut R,
        ahead: &[u8],
        asking: &Asking,
    ) -> io::Result<()> {
        let carried = self.carried();
        let mut pace = asking.is_paced.then(Pace::default);
        if let Some(pace) = &mut pace {
            // Less than a burst: the priority stays.
            let _ = pace.on_passed(carried.sent.load(Relaxed) as usize, Duration::ZERO);
        }
        let on_sent = |send: &SendFlow, bytes, waited| {
            carried.sent.fetch_add(bytes as u64, Relaxed);
            if let Some(priority) = pace.as_mut().and_then(|pace| pace.on_passed(bytes, waited)) {
                // A flow that is over needs none.
                let _ = send.set_priority(priority);
            }
        };
        let on_received = |bytes| {
            carried.received.fetch_add(bytes as u64, Relaxed);
        };
        self.carry(stream::join(socket, (send, recv), stream::AHEAD_BYTES, ahead, on_sent, on_received)).await
    }

    /// Waits until it has been carried to its end, or somebody wants it to end. How it has ended is
    /// noted.
    ///
    /// # Errors
    /// Those of both ends; [`io::ErrorKind::ConnectionAborted`] if somebody wants it to end.
    pub async fn carry(&self, joined: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        let joined = tokio::select! {
            biased;
            joined = joined => joined,
            () = self.ended() => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        match &joined {
            Ok(()) => self.carried.because("both ends are done"),
            Err(error) => self.carried.because(&words(error)),
        }
        joined
    }

    fn live(&self) -> Arc<Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another connection of its client carries it from now on, of whose streams it is one.
    pub fn move_to(&self, live: &Arc<Live>) {
        let before =
            std::mem::replace(&mut *self.live.lock().unwrap_or_else(PoisonError::into_inner), live.clone());
        if !Arc::ptr_eq(&before, live) {
            before.lock().remove(&self.id);
            live.lock().insert(self.id, self.carried.clone());
        }
    }

    /// Waits until somebody wants it to end.
    pub async fn ended(&self) {
        self.carried.ends.notified().await;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let live = self.live();
        live.lock().remove(&self.id);
        let carried = &self.carried;
        // What is given up is so with the connection that carries it.
        carried.because("the connection has ended");
        let why = carried.why.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        let bytes = [carried.received.load(Relaxed), carried.sent.load(Relaxed)];
        live.tell(&carried.to, Event::Closed { bytes, lasted: carried.since.elapsed(), why: &why });
    }
}
