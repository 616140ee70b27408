//! Streams of a server, which live through the ends of what carries them.

use super::session::{Lost, News, Offer, Offers, Session, Stand, Taker, offers};
use super::wire::How;
use super::{Carrier, Hello};
use crate::sockets::{Resetting, Tcp};
use crate::stream::{self, Refused, answer};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use uts_ledger::Charge;

/// Said to a client whose stream is not here.
const UNKNOWN: &str =
    "the stream is not known here any more: the server was started again, or has given it up";

/// The owner of a stream: the client, and the hash of the ticket.
type Key = (String, [u8; 32]);

/// All streams of a server. `W` is what it calls the ways of carriers by.
pub struct Sessions<W = &'static str> {
    all: Mutex<HashMap<Key, Entry<W>>>,
    most: usize,
}

/// A stream of a server, as carriers come to it.
struct Entry<W> {
    taker: Taker<W>,
    state: Arc<State>,
}

/// State of a stream that others ask for.
struct State {
    /// Its bound is shared by all streams of this owner.
    owner: String,
    /// Since when nothing has carried it; `None` while something does.
    alone: Mutex<Option<Instant>>,
    /// It is to make room for another.
    goes: Notify,
}

/// A stream that begins. Until it is dropped, its client can come back to it.
pub struct Begun<W = &'static str> {
    sessions: Arc<Sessions<W>>,
    key: Key,
    state: Arc<State>,
    /// Given back before it is known that the stream has ended.
    held: Vec<Charge>,
    offers: Offers<W>,
}

impl<W> Sessions<W> {
    /// None, and room for so many of each owner.
    pub fn new(most: usize) -> Arc<Sessions<W>> {
        Arc::new(Sessions { all: Mutex::default(), most })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Entry<W>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a carrier for the stream that a client names, which goes on there. Returns the stream
    /// if it begins; it counts among those of its owner. Where they are too many, the one that
    /// nothing has carried for longest makes room. A client that is refused was told why.
    pub async fn take(
        self: &Arc<Self>,
        (client, owner): (&str, &str),
        hello: &Hello,
        mut carrier: Carrier,
        way: W,
    ) -> Option<Begun<W>> {
        let key = (client.to_owned(), hello.ticket.hash());
        let refused = loop {
            let (taker, begun) = match self.find(&key, owner, hello) {
                Ok(Some(found)) => found,
                Ok(None) if self.make_room(owner, false).await => continue,
                Ok(None) => {
                    let why = format!("{} streams are kept, which is the most", self.most);
                    break Refused { kind: stream::Kind::NotKept, why };
                }
                Err(refused) => break refused,
            };
            let stand = Stand::Asked { received: hello.received, window: hello.window };
            let offer = Offer { carrier, number: hello.number, way, stand };
            match taker.try_send(Ok(offer)) {
                Ok(()) => return begun,
                Err(mpsc::error::TrySendError::Full(offer) | mpsc::error::TrySendError::Closed(offer)) => {
                    let Ok(offer) = offer else { return None };
                    carrier = offer.carrier;
                    break Refused::absent("the stream is ending, or has too many carriers");
                }
            }
        };
        refuse(carrier, &refused).await;
        None
    }

    /// The way to a stream, which begins if it is new; `None` if there is no room.
    #[expect(clippy::type_complexity, reason = "both halves are named, and it is used once")]
    fn find(
        self: &Arc<Self>,
        key: &Key,
        owner: &str,
        hello: &Hello,
    ) -> Result<Option<(Taker<W>, Option<Begun<W>>)>, Refused> {
        let mut all = self.all();
        if let Some(entry) = all.get(key) {
            return Ok(Some((entry.taker.clone(), None)));
        }
        // T-4
        if !hello.is_new {
            return Err(Refused::absent(UNKNOWN));
        }
        if all.values().filter(|entry| entry.state.owner == owner).count() >= self.most {
            return Ok(None);
        }
        let (taker, offers) = offers();
        let state = Arc::new(State { owner: owner.to_owned(), alone: Mutex::default(), goes: Notify::new() });
        all.insert(key.clone(), Entry { taker: taker.clone(), state: state.clone() });
        let begun = Begun { sessions: self.clone(), key: key.clone(), state, held: Vec::new(), offers };
        Ok(Some((taker, Some(begun))))
    }

    /// Streams of an owner that are carried.
    #[cfg(test)]
    pub fn carried(&self, owner: &str) -> usize {
        let all = self.all();
        all.values().filter(|entry| entry.state.owner == owner && entry.state.alone().is_none()).count()
    }

    /// Ends the stream of an owner that nothing has carried for longest, and waits until it holds
    /// nothing any more. With `of_others`, an owner that has one stream alone may have it for one
    /// of another's. False if all are carried.
    pub async fn make_room(&self, owner: &str, of_others: bool) -> bool {
        let gone = {
            let all = self.all();
            let is_own = |entry: &&Entry<W>| entry.state.owner == owner;
            let has_more = all.values().filter(is_own).count() > 1;
            let may_go = |entry: &&Entry<W>| is_own(entry) || (of_others && !has_more);
            let alone = all.values().filter(may_go);
            let oldest = alone.filter_map(|entry| Some(((*entry.state.alone())?, entry)));
            // Its own come first.
            let oldest = oldest.min_by_key(|(since, entry)| (!is_own(entry), *since));
            oldest.map(|(_, entry)| {
                entry.state.goes.notify_one();
                entry.taker.clone()
            })
        };
        let Some(taker) = gone else { return false };
        taker.closed().await;
        true
    }
}

impl State {
    fn alone(&self) -> MutexGuard<'_, Option<Instant>> {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W> Begun<W> {
    /// Keeps this as long as the stream lives.
    pub fn hold(&mut self, charge: Charge) {
        self.held.push(charge);
    }

    /// Tells the client that there is no such service.
    pub async fn refuse(mut self, refused: &Refused) {
        self.offers.close();
        while let Some(Ok(offer)) = self.offers.recv().await {
            refuse(offer.carrier, refused).await;
        }
    }

    /// Carries the stream between a service and the client, until both directions have ended. The
    /// service is reset if they have not in order, and if this is given up. `told` hears what
    /// carries the stream, `moved` how many bytes the service has said, and how many it was told.
    ///
    /// # Errors
    /// See [`Session::run`]. [`Lost`] as well if it has made room for another.
    pub async fn run(
        mut self,
        service: impl Tcp,
        session: &Session,
        silence: Duration,
        mut told: impl FnMut(News<W>),
        moved: impl Fn([usize; 2]),
    ) -> Result<How, Lost> {
        // Keystrokes are not to wait for each other.
        service.send_at_once();
        let mut service = Resetting::new(service);
        let (state, moved) = (self.state.clone(), &moved);
        let applied = async move {
            let (from, to) = service.socket().split();
            let (from, to) =
                (Counted(from, |bytes| moved([bytes, 0])), Counted(to, |bytes| moved([0, bytes])));
            let how = session.apply(from, to).await;
            // The client's word that it knows may be long on its way.
            match how {
                How::Orderly => service.end(),
                // What the client has said before, its service has.
                How::Reset => service.reset().await,
            }
        };
        let told = |news| {
            match &news {
                News::Carried(_) => *state.alone() = None,
                News::Ended => *state.alone() = Some(Instant::now()),
                News::Stalled | News::Goes => {}
            }
            told(news);
        };
        let ended = tokio::select! {
            biased;
            ended = session.run_beside(applied, &mut self.offers, silence, told) => ended,
            () = self.state.goes.notified() => {
                Err(Lost("it has made room for another of its client".into()))
            }
        };
        // Nobody waits for it to make room: it ends.
        *self.state.alone() = None;
        ended
    }
}

impl<W> Drop for Begun<W> {
    fn drop(&mut self) {
        self.held.clear();
        self.sessions.all().remove(&self.key);
    }
}

async fn refuse(mut carrier: Carrier, refused: &Refused) {
    // Who has gone needs no answer.
    let _ = answer(&mut carrier.send, Err(refused)).await;
    let _ = carrier.send.shutdown().await;
}

/// A stream of bytes that are counted.
struct Counted<S, C>(S, C);

impl<S: AsyncRead + Unpin, C: Fn(usize) + Unpin> AsyncRead for Counted<S, C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.0).poll_read(cx, buf);
        self.1(buf.filled().len() - before);
        polled
    }
}

impl<S: AsyncWrite + Unpin, C: Fn(usize) + Unpin> AsyncWrite for Counted<S, C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.0).poll_write(cx, data);
        if let Poll::Ready(Ok(bytes)) = polled {
            self.1(bytes);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
