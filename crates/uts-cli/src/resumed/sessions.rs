//! Streams of a server, which live through the ends of what carries them.

use super::session::{Lost, News, Offer, Offers, Session, Stand, offers};
use super::wire::How;
use super::{Carrier, Hello};
use crate::stream::{self, Refused, answer};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, Sender};

/// The owner of a stream: the client, and the hash of the ticket.
type Key = (String, [u8; 32]);

/// The way by which carriers come to a stream.
type Taker = Sender<Result<Offer, Lost>>;

/// All streams of a server.
pub struct Sessions {
    all: Mutex<HashMap<Key, Taker>>,
    most: usize,
}

/// A stream that begins. Until it is dropped, its client can come back to it.
pub struct Begun {
    sessions: Arc<Sessions>,
    key: Key,
    offers: Offers,
}

impl Sessions {
    /// None, and room for so many.
    pub fn new(most: usize) -> Arc<Sessions> {
        Arc::new(Sessions { all: Mutex::default(), most })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Taker>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a carrier for the stream that a client names, which goes on there. Returns the stream
    /// if it begins. A client that is refused was told why.
    pub async fn take(
        self: &Arc<Self>,
        client: &str,
        hello: Hello,
        mut carrier: Carrier,
        name: &'static str,
    ) -> Option<Begun> {
        let key = (client.to_owned(), hello.ticket.hash());
        let taken = self.find(&key, &hello);
        let refused = match taken {
            Ok((offers, begun)) => {
                let stand = Stand::Asked { received: hello.received, window: hello.window };
                let offer = Offer { carrier, number: hello.number, name, stand };
                match offers.try_send(Ok(offer)) {
                    Ok(()) => return begun,
                    Err(
                        mpsc::error::TrySendError::Full(offer) | mpsc::error::TrySendError::Closed(offer),
                    ) => {
                        let Ok(offer) = offer else { return None };
                        carrier = offer.carrier;
                        Refused::absent("the stream is ending, or has too many carriers")
                    }
                }
            }
            Err(refused) => refused,
        };
        refuse(carrier, &refused).await;
        None
    }

    fn find(self: &Arc<Self>, key: &Key, hello: &Hello) -> Result<(Taker, Option<Begun>), Refused> {
        let mut all = self.all();
        if let Some(offers) = all.get(key) {
            return Ok((offers.clone(), None));
        }
        // T-4
        if !hello.is_new {
            return Err(Refused::absent("the stream is not known here any more"));
        }
        if all.len() >= self.most {
            let why = format!("{} streams are kept, which is the most", self.most);
            return Err(Refused { kind: stream::Kind::NoRoom, why });
        }
        let (sender, offers) = offers();
        all.insert(key.clone(), sender.clone());
        Ok((sender, Some(Begun { sessions: self.clone(), key: key.clone(), offers })))
    }
}

impl Begun {
    /// Tells the client that there is no such service.
    pub async fn refuse(mut self, refused: &Refused) {
        self.offers.close();
        while let Some(Ok(offer)) = self.offers.recv().await {
            refuse(offer.carrier, refused).await;
        }
    }

    /// Carries the stream between a service and the client, until both directions have ended. The
    /// service is reset if they have not in order.
    ///
    /// # Errors
    /// See [`Session::run`].
    pub async fn run(
        mut self,
        service: TcpStream,
        session: &Session,
        silence: Duration,
        told: impl FnMut(News),
    ) -> Result<How, Lost> {
        // Keystrokes are not to wait for each other. Without it they only come later.
        let _ = service.set_nodelay(true);
        let mut service = service;
        let (from, to) = service.split();
        let ended = session.run(from, to, &mut self.offers, silence, told).await;
        if ended != Ok(How::Orderly) {
            stream::reset(service);
        }
        ended
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.sessions.all().remove(&self.key);
    }
}

async fn refuse(mut carrier: Carrier, refused: &Refused) {
    // Who has gone needs no answer.
    let _ = answer(&mut carrier.send, Err(refused)).await;
    let _ = carrier.send.shutdown().await;
}
