//! Streams of a server by their names: who sends each, and who receives it. What one client cannot
//! take is dropped for that client, and holds up nobody.
//!
//! A client has one place, as a sender or as a receiver, so that there are no more names than
//! clients.

use super::queue::{Queue, Waiting};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// All streams of a server.
#[derive(Debug)]
pub struct Hub {
    streams: Mutex<Streams>,
    /// The instant zero of media times, which all senders of a stream go on by.
    zero: Instant,
}

impl Default for Hub {
    fn default() -> Self {
        Hub { streams: Mutex::default(), zero: Instant::now() }
    }
}

#[derive(Debug, Default)]
struct Streams {
    all: BTreeMap<String, Stream>,
    last: u64,
}

#[derive(Debug, Default)]
struct Stream {
    sender: Option<Sending>,
    receivers: BTreeMap<u64, Arc<Queue>>,
}

#[derive(Debug)]
struct Sending {
    id: u64,
    owner: String,
    replaced: Arc<Notify>,
}

impl Stream {
    fn is_empty(&self) -> bool {
        self.sender.is_none() && self.receivers.is_empty()
    }
}

/// The sender of a stream, for as long as it is held.
#[derive(Debug)]
pub struct Publisher {
    hub: Arc<Hub>,
    name: String,
    id: u64,
    replaced: Arc<Notify>,
}

/// A receiver of a stream, for as long as it is held.
#[derive(Debug)]
pub struct Subscriber {
    hub: Arc<Hub>,
    name: String,
    id: u64,
    /// Datagrams that wait for it.
    pub queue: Arc<Queue>,
}

impl Hub {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Becomes the sender of a stream. One of the same owner makes room: it is one that has come
    /// again before its last connection was given up.
    ///
    /// # Errors
    /// Somebody else sends it.
    pub fn send(self: &Arc<Self>, name: &str, owner: &str) -> Result<Publisher, String> {
        let mut streams = self.streams();
        streams.last += 1;
        let id = streams.last;
        let replaced = Arc::new(Notify::new());
        let next = Sending { id, owner: owner.to_owned(), replaced: replaced.clone() };
        let stream = streams.all.entry(name.to_owned()).or_default();
        match &stream.sender {
            Some(before) if before.owner != owner => {
                return Err(format!("another client sends `{name}`"));
            }
            Some(before) => before.replaced.notify_one(),
            None => {}
        }
        stream.sender = Some(next);
        drop(streams);
        Ok(Publisher { hub: self.clone(), name: name.to_owned(), id, replaced })
    }

    /// Becomes a receiver of a stream, for which so many bytes may wait. Nobody needs to send it
    /// yet.
    pub fn receive(self: &Arc<Self>, name: &str, bytes_max: usize) -> Subscriber {
        let queue = Arc::new(Queue::new(bytes_max));
        let mut streams = self.streams();
        streams.last += 1;
        let id = streams.last;
        streams.all.entry(name.to_owned()).or_default().receivers.insert(id, queue.clone());
        drop(streams);
        Subscriber { hub: self.clone(), name: name.to_owned(), id, queue }
    }

    /// True if somebody sends a stream.
    pub fn is_sent(&self, name: &str) -> bool {
        self.streams().all.get(name).is_some_and(|stream| stream.sender.is_some())
    }

    fn leave(&self, name: &str, leave: impl FnOnce(&mut Stream)) {
        let mut streams = self.streams();
        if let Some(stream) = streams.all.get_mut(name) {
            leave(stream);
            if stream.is_empty() {
                streams.all.remove(name);
            }
        }
    }
}

impl Publisher {
    /// Gives a datagram to all receivers. Returns their number.
    pub fn publish(&self, waiting: &Waiting) -> usize {
        let streams = self.hub.streams();
        let stream = streams.all.get(&self.name);
        let is_own = |stream: &&Stream| stream.sender.as_ref().is_some_and(|sender| sender.id == self.id);
        let Some(stream) = stream.filter(is_own) else { return 0 };
        stream.receivers.values().for_each(|queue| queue.push(waiting.clone()));
        stream.receivers.len()
    }

    /// The instant zero of the media times of its datagrams.
    pub fn zero(&self) -> Instant {
        self.hub.zero
    }

    /// Waits until another sender has taken its place.
    pub async fn replaced(&self) {
        self.replaced.notified().await;
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.hub.leave(&self.name, |stream| {
            stream.sender.take_if(|sender| sender.id == self.id);
        });
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.hub.leave(&self.name, |stream| {
            stream.receivers.remove(&self.id);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn waiting(byte: u8) -> Waiting {
        let media = uts::MediaTime::from_micros(0);
        Waiting { message: vec![byte; 100].into(), made: Instant::now(), media }
    }

    async fn next(of: &Subscriber) -> u8 {
        of.queue.next(|| Duration::from_secs(9)).await.expect("one").message[0]
    }

    #[tokio::test]
    async fn all_receivers_of_a_name_get_what_is_sent_from_when_they_came_on() {
        let hub = Arc::new(Hub::default());
        let [one, other] = [1 << 20, 1 << 20].map(|bytes| hub.receive("a", bytes));
        let apart = hub.receive("b", 1 << 20);
        assert!(!hub.is_sent("a"));
        let sender = hub.send("a", "x").expect("nobody sends it");
        assert_eq!(sender.publish(&waiting(1)), 2);
        let late = hub.receive("a", 1 << 20);
        drop(other);
        assert_eq!(sender.publish(&waiting(2)), 2);
        assert_eq!((next(&one).await, next(&one).await, next(&late).await), (1, 2, 2));
        assert_eq!(apart.queue.dropped(), 0);
        drop((one, late, apart, sender));
        assert!(hub.streams().all.is_empty());
    }

    #[tokio::test]
    async fn a_slow_receiver_harms_nobody_else() {
        let hub = Arc::new(Hub::default());
        let (slow, quick) = (hub.receive("a", 1000), hub.receive("a", 1 << 20));
        let sender = hub.send("a", "x").expect("nobody sends it");
        for byte in 0..100 {
            sender.publish(&waiting(byte));
            assert_eq!(next(&quick).await, byte);
        }
        assert_eq!((slow.queue.dropped() > 90, quick.queue.dropped()), (true, 0));
        assert!(next(&slow).await > 90);
    }

    #[tokio::test]
    async fn a_name_has_one_sender_who_may_come_again() {
        let hub = Arc::new(Hub::default());
        let first = hub.send("a", "x").expect("nobody sends it");
        let why = hub.send("a", "y").expect_err("x sends it");
        assert_eq!(why, "another client sends `a`");
        let receiver = hub.receive("a", 1000);
        let again = hub.send("a", "x").expect("it is the same");
        first.replaced().await;
        assert_eq!((first.publish(&waiting(1)), again.publish(&waiting(2))), (0, 1));
        // The end of the first is not that of the second.
        drop(first);
        assert!(hub.is_sent("a"));
        assert_eq!(next(&receiver).await, 2);
        drop(again);
        assert!(hub.send("a", "y").is_ok());
    }
}
