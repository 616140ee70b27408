//! A session: all the connections of SRT that it has made, and their counts.

use super::stream::Both;
use super::{Door, How, MESSAGE_BYTES_MAX, connect, failed, patiently};
use crate::native::srt::{Mode, Socket};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::{self, Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uts_traffic::transport::{self, Local, Session, Status, Stream, TransportError};

pub(super) struct SrtSession {
    how: Rc<How>,
    id: String,
    pub side: Side,
    /// Lives as long as the session. In live mode all messages go over it. In file mode it is the
    /// first stream's, and its end is the session's.
    pub first: Arc<Socket>,
    /// All connections that were made; those of streams that have ended are closed one by one.
    sockets: RefCell<Vec<sync::Weak<Socket>>>,
    pub ending: RefCell<JoinSet<()>>,
    /// Of connections that are no more.
    pub past: Arc<Mutex<Past>>,
    closed: Cell<bool>,
    me: Weak<SrtSession>,
}

pub(super) enum Side {
    Client {
        to: SocketAddr,
        /// The first connection, until a stream is opened.
        unused: RefCell<Option<Arc<Socket>>>,
    },
    Server(Rc<Door>),
}

/// Counts that outlive the connection that they are of.
#[derive(Clone, Copy, Default)]
pub(super) struct Past {
    sent_packets: u64,
    repeated_packets: u64,
    delivered_bytes: u64,
}

impl SrtSession {
    pub(super) fn start(how: Rc<How>, id: String, side: Side, first: Arc<Socket>) -> Rc<dyn Session> {
        let sockets = RefCell::new(vec![Arc::downgrade(&first)]);
        let (ending, past, closed) = Default::default();
        Rc::new_cyclic(|me| SrtSession {
            how,
            id,
            side,
            first,
            sockets,
            ending,
            past,
            closed,
            me: me.clone(),
        })
    }

    fn live(&self) -> transport::Result<&Socket> {
        match self.how.mode {
            _ if self.closed.get() => Err(TransportError::Closed),
            Mode::Live => Ok(&self.first),
            Mode::File => Err(TransportError::Unsupported("messages in SRT's file mode")),
        }
    }

    fn file(&self) -> transport::Result<()> {
        match self.how.mode {
            _ if self.closed.get() => Err(TransportError::Closed),
            Mode::File => Ok(()),
            Mode::Live => Err(TransportError::Unsupported("streams in SRT's live mode")),
        }
    }

    /// Waits until everything that was sent has been acknowledged, or the peer is gone.
    async fn settle(&self) {
        let all: Vec<_> = self.sockets.borrow().iter().filter_map(sync::Weak::upgrade).collect();
        while all.iter().any(|socket| socket.waiting() > 0) {
            sleep(SETTLE_POLL).await;
        }
    }
}

impl Past {
    fn of(status: &crate::native::srt::Status) -> Past {
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        Past {
            sent_packets: count(status.sent_packets),
            repeated_packets: count(status.repeated_packets),
            delivered_bytes: count(status.accepted_bytes - status.waiting_bytes),
        }
    }

    /// Closes a connection and keeps its counts.
    pub(super) fn close(past: &Mutex<Past>, socket: &Socket) {
        if let Some(status) = socket.close() {
            past.lock().unwrap_or_else(PoisonError::into_inner).add(Past::of(&status));
        }
    }

    fn add(&mut self, other: Past) {
        self.sent_packets += other.sent_packets;
        self.repeated_packets += other.repeated_packets;
        self.delivered_bytes += other.delivered_bytes;
    }
}

impl SrtSession {
    fn stream(&self, socket: Arc<Socket>) -> transport::Result<Stream> {
        let session = self.me.upgrade().ok_or(TransportError::Closed)?;
        session.sockets.borrow_mut().retain(|socket| socket.strong_count() > 0);
        while session.ending.borrow_mut().try_join_next().is_some() {}
        session.sockets.borrow_mut().push(Arc::downgrade(&socket));
        Ok(Both::begin(socket, session))
    }
}

impl Session for SrtSession {
    fn open(&self) -> Local<'_, transport::Result<Stream>> {
        Box::pin(async move {
            self.file()?;
            let Side::Client { to, unused } = &self.side else {
                return Err(TransportError::Unsupported("streams that the server of SRT opens"));
            };
            let socket = unused.borrow_mut().take();
            let socket = match socket {
                Some(socket) => socket,
                None => {
                    let port = self.first.local_addr().map_err(failed)?.port();
                    connect(&self.how, *to, port, &self.id).await?
                }
            };
            self.stream(socket)
        })
    }

    fn accept(&self) -> Local<'_, transport::Result<Stream>> {
        Box::pin(async move {
            self.file()?;
            let Side::Server(door) = &self.side else {
                return Err(TransportError::Unsupported("streams that the server of SRT opens"));
            };
            let next = door.find(|door| {
                match door.sessions.borrow_mut().get_mut(&self.id).and_then(VecDeque::pop_front) {
                    Some(socket) => Some(Some(socket)),
                    None if self.first.is_connected() == Some(true) => None,
                    None => Some(None),
                }
            });
            match next.await {
                Some(socket) => self.stream(socket),
                None => Err(TransportError::Closed),
            }
        })
    }

    fn send_message(&self, message: Bytes, lifetime: Option<Duration>) -> Local<'_, transport::Result<()>> {
        Box::pin(async move {
            let socket = self.live()?;
            if message.len() > MESSAGE_BYTES_MAX {
                let why = format!("a message of {} bytes is larger than {MESSAGE_BYTES_MAX}", message.len());
                return Err(TransportError::Failed(why));
            }
            let lifetime_ms = lifetime.map(|span| i32::try_from(span.as_millis().max(1)).unwrap_or(i32::MAX));
            patiently(socket, || socket.send(&message, lifetime_ms)).await.map(|_| ())
        })
    }

    fn receive_message(&self) -> Local<'_, transport::Result<Bytes>> {
        Box::pin(async move {
            let socket = self.live()?;
            let mut buffer = vec![0; 1500];
            match patiently(socket, || socket.receive(&mut buffer)).await? {
                0 => Err(TransportError::Closed),
                n => Ok(Bytes::copy_from_slice(&buffer[..n])),
            }
        })
    }

    fn status(&self) -> Option<Status> {
        let mut counts = *self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = Status::default();
        let all = self.sockets.borrow();
        for (socket, raw) in
            all.iter().filter_map(sync::Weak::upgrade).filter_map(|s| s.status().map(|raw| (s, raw)))
        {
            counts.add(Past::of(&raw));
            if socket.is_connected() != Some(true) {
                continue;
            }
            let bytes = |packets: i64| u64::try_from(packets * raw.packet_bytes).unwrap_or(0);
            let add = |sum: &mut Option<u64>, n: u64| *sum = Some(sum.unwrap_or(0) + n);
            add(&mut status.in_flight_bytes, bytes(raw.in_flight_packets));
            if self.how.mode == Mode::File {
                // Live mode has a rate and no window.
                add(&mut status.window_bytes, bytes(raw.window_packets));
            }
            status.rtt = Some(Duration::try_from_secs_f64(raw.rtt_ms / 1e3).unwrap_or_default());
        }
        status.sent_packets = Some(counts.sent_packets);
        status.repeated_packets = Some(counts.repeated_packets);
        status.delivered_bytes = Some(counts.delivered_bytes);
        Some(status)
    }

    fn close(&self) -> Local<'_, ()> {
        Box::pin(async move {
            let mut ending = self.ending.take();
            let _ = timeout(ENDING_MAX, async { while ending.join_next().await.is_some() {} }).await;
            self.settle().await;
            if self.how.mode == Mode::Live && self.first.is_connected() == Some(true) {
                // What has arrived is held for the latency, and dropped if the connection goes
                // before.
                sleep(self.how.latency + CLOSE_MARGIN).await;
            }
            self.closed.set(true);
            for socket in self.sockets.borrow().iter().filter_map(sync::Weak::upgrade) {
                Past::close(&self.past, &socket);
            }
        })
    }
}

impl Drop for SrtSession {
    fn drop(&mut self) {
        if let Side::Server(door) = &self.side {
            door.sessions.borrow_mut().remove(&self.id);
        }
    }
}

/// How long a session that is closed waits for the server to have seen all its streams.
const ENDING_MAX: Duration = Duration::from_secs(5);

/// How often it is looked whether everything has been acknowledged.
const SETTLE_POLL: Duration = Duration::from_millis(5);

/// What the peer's clock and threads may be late.
const CLOSE_MARGIN: Duration = Duration::from_millis(100);
