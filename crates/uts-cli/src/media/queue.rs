//! Datagrams that wait for a flow. They are bounded, and the oldest makes room: of media that is
//! late already, the newest is worth most. (V-11)

use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use uts::{Made, MediaTime, MessageOptions};

/// Memory that a datagram takes beside its bytes, about.
const ENTRY_BYTES: usize = 96;

/// A datagram that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// It, and its number before it.
    pub message: Bytes,
    /// When it was made, as far as that can be told here.
    pub made: Instant,
    /// Its media time: when it was made by the clock of its sender.
    pub media: MediaTime,
}

impl Waiting {
    /// Options under which it is sent to somebody for whom it is worth something up to an age at
    /// which it arrives.
    pub fn options(&self, lifetime: Duration) -> MessageOptions {
        let lifetime = Some(lifetime.saturating_sub(self.made.elapsed()));
        MessageOptions { lifetime, made: Made::At(self.media), ..MessageOptions::default() }
    }

    fn bytes(&self) -> usize {
        self.message.len() + ENTRY_BYTES
    }
}

/// Datagrams that wait for one flow.
#[derive(Debug)]
pub struct Queue {
    held: Mutex<Held>,
    bytes_max: usize,
    /// Something has come, or nothing comes any more.
    came: Notify,
    /// Something has left.
    left: Notify,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Held {
    all: VecDeque<Waiting>,
    bytes: usize,
    has_ended: bool,
}

impl Held {
    fn take(&mut self) -> Option<Waiting> {
        let first = self.all.pop_front()?;
        self.bytes -= first.bytes();
        Some(first)
    }
}

impl Queue {
    /// One that holds at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Queue {
            held: Mutex::default(),
            bytes_max,
            came: Notify::new(),
            left: Notify::new(),
            dropped: AtomicU64::new(0),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a datagram in. The oldest make room for it.
    pub fn push(&self, waiting: Waiting) {
        let mut held = self.held();
        let bytes = waiting.bytes();
        let mut dropped = 0;
        while held.bytes + bytes > self.bytes_max && held.take().is_some() {
            dropped += 1;
        }
        if bytes <= self.bytes_max {
            held.bytes += bytes;
            held.all.push_back(waiting);
        } else {
            dropped += 1;
        }
        drop(held);
        self.dropped.fetch_add(dropped, Relaxed);
        self.came.notify_one();
    }

    /// Waits until a datagram finds room without another that has to go: for a source that can
    /// wait. One task at a time.
    pub async fn has_room(&self, bytes: usize) {
        while self.held().bytes + bytes + ENTRY_BYTES > self.bytes_max.max(bytes + ENTRY_BYTES) {
            self.left.notified().await;
        }
    }

    /// Waits for the next datagram. Those that are as old as `latency` says are dropped. `None`
    /// after the end. One task at a time. Nothing is lost if the wait is given up.
    pub async fn next(&self, mut latency: impl FnMut() -> Duration) -> Option<Waiting> {
        loop {
            let (next, has_ended) = {
                let mut held = self.held();
                (held.take(), held.has_ended)
            };
            match next {
                Some(next) => {
                    self.left.notify_one();
                    if next.made.elapsed() < latency() {
                        return Some(next);
                    }
                    self.dropped.fetch_add(1, Relaxed);
                }
                None if has_ended => return None,
                None => self.came.notified().await,
            }
        }
    }

    /// Nothing comes any more.
    pub fn end(&self) {
        self.held().has_ended = true;
        self.came.notify_one();
    }

    /// Datagrams that were given up so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn waiting(byte: u8, bytes: usize) -> Waiting {
        let media = MediaTime::from_micros(0);
        Waiting { message: vec![byte; bytes].into(), made: Instant::now(), media }
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_makes_room_and_is_counted() {
        let queue = Queue::new(10 * (1000 + ENTRY_BYTES));
        for byte in 0..25 {
            queue.push(waiting(byte, 1000));
        }
        assert_eq!(queue.dropped(), 15);
        queue.end();
        let mut left = Vec::new();
        while let Some(next) = queue.next(|| LONG).await {
            left.push(next.message[0]);
        }
        assert_eq!(left, (15..25).collect::<Vec<_>>());
        assert_eq!(queue.held().bytes, 0);
        // One that is larger than all of it takes nobody's place for nothing.
        queue.push(waiting(1, 20_000));
        assert_eq!((queue.dropped(), queue.held().bytes), (16, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_old_is_given_up() {
        let queue = Queue::new(1 << 20);
        queue.push(waiting(1, 10));
        tokio::time::sleep(Duration::from_millis(100)).await;
        queue.push(waiting(2, 10));
        let next = queue.next(|| Duration::from_millis(50)).await.expect("the second");
        assert_eq!((next.message[0], queue.dropped()), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_can_wait_loses_nothing() {
        let queue = std::sync::Arc::new(Queue::new(3 * (100 + ENTRY_BYTES)));
        let filled = queue.clone();
        let source = tokio::spawn(async move {
            for byte in 0..50 {
                filled.has_room(100).await;
                filled.push(waiting(byte, 100));
            }
            filled.end();
        });
        let mut got = Vec::new();
        while let Some(next) = queue.next(|| LONG).await {
            got.push(next.message[0]);
            tokio::task::yield_now().await;
        }
        source.await.expect("ran");
        assert_eq!((got, queue.dropped()), ((0..50).collect(), 0));
    }
}
