//! Virtual time, and a transport within it: two ends in memory with a link each way that has a
//! rate, a delay, a buffer, and the faults that a test asks for.

#![allow(dead_code, reason = "each test file takes a part of it")]

use bytes::Bytes;
use futures_util::future::select;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use uts_traffic::clock::Clock;
use uts_traffic::transport::{
    Local, ReceiveStream, Result, SendStream, Session, Status, Stream, TransportError,
};

/// Time that goes on when nobody has anything to do.
#[derive(Clone, Default)]
pub struct VirtualClock(Rc<Timers>);

#[derive(Default)]
struct Timers {
    now_ns: Cell<u64>,
    waiting: RefCell<BTreeMap<(u64, u64), Waker>>,
    number: Cell<u64>,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl VirtualClock {
    /// Runs to the end of `future`; fails if it waits for nothing that could come.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(flag.clone());
        let mut future = pin!(future);
        loop {
            while flag.0.swap(false, Ordering::Relaxed) {
                if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return value;
                }
            }
            let first = self.0.waiting.borrow_mut().pop_first();
            let ((at_ns, _), waker) = first.expect("everything waits, and for nothing");
            self.0.now_ns.set(at_ns.max(self.0.now_ns.get()));
            waker.wake();
        }
    }
}

impl Clock for VirtualClock {
    fn now_ns(&self) -> u64 {
        self.0.now_ns.get()
    }

    fn sleep_until(&self, at_ns: u64) -> Local<'static, ()> {
        let number = self.0.number.replace(self.0.number.get() + 1);
        let wait = Wait { timers: self.0.clone(), key: (at_ns, number) };
        Box::pin(poll_fn(move |cx| {
            if wait.timers.now_ns.get() >= wait.key.0 {
                return Poll::Ready(());
            }
            wait.timers.waiting.borrow_mut().insert(wait.key, cx.waker().clone());
            Poll::Pending
        }))
    }
}

struct Wait {
    timers: Rc<Timers>,
    key: (u64, u64),
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.timers.waiting.borrow_mut().remove(&self.key);
    }
}

/// One direction.
#[derive(Clone)]
pub struct Link {
    pub bytes_per_s: u64,
    pub delay: Duration,
    /// Bytes that wait before a sender has to.
    pub buffer_bytes: u64,
    /// Loss of the n-th message, and its further delay.
    pub lost: fn(u64) -> bool,
    pub late: fn(u64) -> Duration,
    /// Every message comes twice.
    pub duplicates: bool,
    /// The byte at this position of all that is sent arrives wrong.
    pub wrong_at: Option<u64>,
    /// From then on nothing passes.
    pub stalls_at: Option<Duration>,
    /// From then on everything fails.
    pub fails_at: Option<Duration>,
    /// Most bytes that a read gives.
    pub read_bytes_max: usize,
}

impl Default for Link {
    /// 1 MB/s, 10 ms.
    fn default() -> Self {
        Link {
            bytes_per_s: 1_000_000,
            delay: Duration::from_millis(10),
            buffer_bytes: 100_000,
            lost: |_| false,
            late: |_| Duration::ZERO,
            duplicates: false,
            wrong_at: None,
            stalls_at: None,
            fails_at: None,
            read_bytes_max: usize::MAX,
        }
    }
}

/// A link in use.
struct Wire {
    link: Link,
    clock: VirtualClock,
    busy_until_ns: Cell<u64>,
    carried: Cell<u64>,
    messages: Cell<u64>,
    /// When the last of all arrives.
    last_ns: Cell<u64>,
}

fn ns(span: Duration) -> u64 {
    span.as_nanos() as u64
}

impl Wire {
    fn has_failed(&self) -> bool {
        self.link.fails_at.is_some_and(|at| self.clock.now_ns() >= ns(at))
    }

    /// Puts bytes on the link once there is room; says when they arrive and what they are then.
    async fn carry(&self, bytes: &[u8]) -> Result<(u64, Bytes)> {
        let room_ns = self.link.buffer_bytes * 1_000_000_000 / self.link.bytes_per_s;
        loop {
            if self.has_failed() {
                return Err(TransportError::Failed("the link is broken".into()));
            }
            if self.link.stalls_at.is_some_and(|at| self.clock.now_ns() >= ns(at)) {
                std::future::pending::<()>().await;
            }
            let free_ns = self.busy_until_ns.get().saturating_sub(room_ns);
            if free_ns <= self.clock.now_ns() {
                break;
            }
            self.clock.sleep_until(free_ns).await;
        }
        let begins_ns = self.busy_until_ns.get().max(self.clock.now_ns());
        let ends_ns = begins_ns + bytes.len() as u64 * 1_000_000_000 / self.link.bytes_per_s;
        self.busy_until_ns.set(ends_ns);
        let mut arrived = bytes.to_vec();
        let first = self.carried.replace(self.carried.get() + bytes.len() as u64);
        if let Some(wrong) =
            self.link.wrong_at.and_then(|at| arrived.get_mut(at.checked_sub(first)? as usize))
        {
            *wrong ^= 0x20;
        }
        Ok((self.arrives_ns(ends_ns), arrived.into()))
    }

    fn arrives_ns(&self, ends_ns: u64) -> u64 {
        let at_ns = ends_ns + ns(self.link.delay);
        self.last_ns.set(self.last_ns.get().max(at_ns));
        at_ns
    }
}

/// Items under way to a reader, each with the time of its arrival.
struct Queue<T> {
    clock: VirtualClock,
    items: RefCell<BTreeMap<(u64, u64), T>>,
    number: Cell<u64>,
    reader: RefCell<Vec<Waker>>,
}

impl<T> Queue<T> {
    fn new(clock: &VirtualClock) -> Rc<Self> {
        let (items, number, reader) = (RefCell::default(), Cell::new(0), RefCell::default());
        Rc::new(Queue { clock: clock.clone(), items, number, reader })
    }

    fn push(&self, at_ns: u64, item: T) {
        let number = self.number.replace(self.number.get() + 1);
        self.items.borrow_mut().insert((at_ns, number), item);
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    /// The next to arrive, once it has.
    async fn next(&self) -> T {
        loop {
            let first = self.items.borrow().first_key_value().map(|((at_ns, _), _)| *at_ns);
            match first {
                Some(at_ns) if at_ns <= self.clock.now_ns() => {
                    let (_, item) = self.items.borrow_mut().pop_first().expect("seen");
                    return item;
                }
                // Something may come that overtakes it.
                Some(at_ns) => {
                    let arrives = self.clock.sleep_until(at_ns);
                    select(arrives, pin!(self.more())).await;
                }
                None => self.more().await,
            }
        }
    }

    /// Waits until more is under way.
    async fn more(&self) {
        let seen = self.number.get();
        poll_fn(|cx| match self.number.get() == seen {
            true => {
                self.reader.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
            false => Poll::Ready(()),
        })
        .await;
    }
}

/// Part of a stream.
enum Part {
    Bytes(Bytes),
    End,
    Reset,
}

type Halves = (Rc<Queue<Part>>, Rc<Queue<Part>>);

/// One end.
pub struct End {
    out: Rc<Wire>,
    incoming: Rc<Wire>,
    opened: Rc<Queue<Option<Halves>>>,
    to_open: Rc<Queue<Option<Halves>>>,
    messages: Rc<Queue<Option<Bytes>>>,
    to_message: Rc<Queue<Option<Bytes>>>,
}

/// Two ends: what the first sends goes over the first link.
pub fn pair(clock: &VirtualClock, there: Link, back: Link) -> (End, End) {
    let wire = |link: Link| {
        let (busy_until_ns, carried, messages, last_ns) = Default::default();
        Rc::new(Wire { link, clock: clock.clone(), busy_until_ns, carried, messages, last_ns })
    };
    let (there, back) = (wire(there), wire(back));
    let opened = [Queue::new(clock), Queue::new(clock)];
    let messages = [Queue::new(clock), Queue::new(clock)];
    let end = |out: &Rc<Wire>, incoming: &Rc<Wire>, own: usize, other: usize| End {
        out: out.clone(),
        incoming: incoming.clone(),
        opened: opened[own].clone(),
        to_open: opened[other].clone(),
        messages: messages[own].clone(),
        to_message: messages[other].clone(),
    };
    (end(&there, &back, 0, 1), end(&back, &there, 1, 0))
}

impl End {
    fn stream(&self, halves: Halves) -> Stream {
        let send = Sender { wire: self.out.clone(), queue: halves.0, is_finished: false };
        let receive =
            Receiver { wire: self.incoming.clone(), queue: halves.1, rest: Bytes::new(), has_ended: false };
        Stream { send: Box::new(send), receive: Box::new(receive) }
    }
}

impl Session for End {
    fn open(&self) -> Local<'_, Result<Stream>> {
        Box::pin(async {
            let (to, from) = (Queue::new(&self.out.clock), Queue::new(&self.out.clock));
            let at_ns = self.out.arrives_ns(self.out.clock.now_ns());
            self.to_open.push(at_ns, Some((from.clone(), to.clone())));
            Ok(self.stream((to, from)))
        })
    }

    fn accept(&self) -> Local<'_, Result<Stream>> {
        Box::pin(async {
            match self.opened.next().await {
                Some(halves) => Ok(self.stream(halves)),
                None => Err(TransportError::Closed),
            }
        })
    }

    fn send_message(&self, message: Bytes, _: Option<Duration>) -> Local<'_, Result<()>> {
        Box::pin(async move {
            let (at_ns, bytes) = self.out.carry(&message).await?;
            let n = self.out.messages.replace(self.out.messages.get() + 1);
            if !(self.out.link.lost)(n) {
                let at_ns = at_ns + ns((self.out.link.late)(n));
                self.to_message.push(at_ns, Some(bytes.clone()));
                if self.out.link.duplicates {
                    self.to_message.push(at_ns + 1000, Some(bytes));
                }
            }
            Ok(())
        })
    }

    fn receive_message(&self) -> Local<'_, Result<Bytes>> {
        Box::pin(async { self.messages.next().await.ok_or(TransportError::Closed) })
    }

    fn status(&self) -> Option<Status> {
        None
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async {
            let at_ns = self.out.last_ns.get().max(self.out.clock.now_ns() + ns(self.out.link.delay));
            self.to_open.push(at_ns + 1, None);
            self.to_message.push(at_ns + 1, None);
            self.out.clock.sleep_until(at_ns).await;
        })
    }
}

struct Sender {
    wire: Rc<Wire>,
    queue: Rc<Queue<Part>>,
    is_finished: bool,
}

impl SendStream for Sender {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Local<'a, Result<()>> {
        Box::pin(async move {
            // As packets, so that a large write does not arrive all at once.
            for packet in bytes.chunks(1000) {
                let (at_ns, arrived) = self.wire.carry(packet).await?;
                self.queue.push(at_ns, Part::Bytes(arrived));
            }
            Ok(())
        })
    }

    fn finish(&mut self) -> Local<'_, Result<()>> {
        Box::pin(async {
            self.is_finished = true;
            let (at_ns, _) = self.wire.carry(&[]).await?;
            self.queue.push(at_ns, Part::End);
            Ok(())
        })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.is_finished {
            self.queue.push(self.wire.arrives_ns(self.wire.clock.now_ns()), Part::Reset);
        }
    }
}

struct Receiver {
    wire: Rc<Wire>,
    queue: Rc<Queue<Part>>,
    rest: Bytes,
    has_ended: bool,
}

impl ReceiveStream for Receiver {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Local<'a, Result<usize>> {
        Box::pin(async move {
            while self.rest.is_empty() && !self.has_ended {
                match self.queue.next().await {
                    _ if self.wire.has_failed() => {
                        return Err(TransportError::Failed("the link is broken".into()));
                    }
                    Part::Bytes(bytes) => self.rest = bytes,
                    Part::End => self.has_ended = true,
                    Part::Reset => return Err(TransportError::Failed("reset by the peer".into())),
                }
            }
            let n = self.rest.len().min(buffer.len()).min(self.wire.link.read_bytes_max);
            buffer[..n].copy_from_slice(&self.rest.split_to(n));
            Ok(n)
        })
    }
}

/// Pair of streams through first-in-first-out lists of bytes; used where a stream is wanted without
/// a session.
pub fn stream_pair(clock: &VirtualClock, link: Link) -> (Stream, Stream) {
    let (a, b) = pair(clock, link.clone(), link);
    clock.run(async {
        let opened = a.open().await.expect("opens");
        (opened, b.accept().await.expect("accepts"))
    })
}
