//! The end at which connections arrive: each is given a flow, and the other end connects it
//! further.

use crate::addressed::Addressed;
use crate::dial::Budget;
use crate::forward::Protocol;
use crate::link::STOPPING;
use crate::live::{Entered, Live};
use crate::sockets::{self, Listener, Resetting, Sockets, System, Tcp};
use crate::socks::{self, Request, Waiting};
use crate::stream::{self, Kind, Refused};
use crate::wire::{Asked, Opening};
use crate::{Asking, Connections, Teller, Wants, associate, datagrams};
use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};
use uts::printable::{self, words};
use uts::{CloseReason, Connection, RecvFlow, SendFlow};
use uts_ledger::{Payer, Resource};

/// Time that a program that has connected waits while there is no connection to the other end, and
/// then for the answer of the other end.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// After a connection could not be accepted, mostly for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Programs that may have connected to one place and not yet said where to (SOCKS5).
const HALF_MADE_MAX: usize = 256;

/// A place at which connections arrive.
pub struct Entry {
    /// Name of the entry.
    pub name: String,
    /// Request to the other end; `None` = each connection says its own (SOCKS5).
    pub asked: Option<Asked>,
    /// Where it leads, in words.
    pub to: String,
    /// Properties that are asked of its flows.
    pub wants: Arc<Wants>,
    /// Its share of the connections that are carried.
    pub room: Payer,
    /// Resources of this process that it may take.
    pub budget: Budget,
    /// Streams that are carried.
    pub live: Arc<Live>,
    /// Whom to tell what goes wrong.
    pub teller: Arc<Teller>,
}

/// Socket that is listened at.
pub enum Socket<S: Sockets = System> {
    /// Connections arrive.
    Tcp(S::Listener),
    /// Datagrams arrive.
    Udp(Addressed),
}

impl<S: Sockets> Socket<S> {
    /// Listens at the first of these addresses that can be had.
    ///
    /// # Errors
    /// Why none can be had, in one line.
    pub async fn bind(
        sockets: &S,
        protocol: Protocol,
        addresses: &[SocketAddr],
    ) -> Result<Socket<S>, String> {
        let mut why = "there is no address to listen at".to_owned();
        for address in addresses {
            let bound = match protocol {
                Protocol::Tcp => sockets.listen(*address).await.map(Socket::Tcp),
                Protocol::Udp => Addressed::bind(*address).await.map(Socket::Udp),
            };
            match bound {
                Ok(socket) => return Ok(socket),
                // The error itself says nothing of where.
                Err(error) => {
                    why = format!("cannot listen at {}{address}: {}", protocol.prefix(), words(&error));
                }
            }
        }
        Err(why)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Socket::Tcp(listener) => listener.local_addr(),
            Socket::Udp(socket) => socket.local_addr(),
        }
    }

    /// Carries what arrives, until it is given up.
    pub async fn serve(self, entry: Arc<Entry>, connections: Connections) {
        drop(self.serve_until(entry, connections, pending()).await);
    }

    /// Carries what arrives until then. Nothing is listened at any more, and streams that have
    /// arrived are given back: they go on.
    pub async fn serve_until(
        self,
        entry: Arc<Entry>,
        connections: Connections,
        until: impl Future<Output = ()>,
    ) -> JoinSet<()> {
        match self {
            Socket::Tcp(listener) => accept(listener, entry, connections, until).await,
            Socket::Udp(socket) => {
                tokio::select! {
                    biased;
                    () = until => {}
                    () = datagrams::arrive(socket, entry, connections) => {}
                }
                JoinSet::new()
            }
        }
    }
}

async fn accept(
    listener: impl Listener,
    entry: Arc<Entry>,
    connections: Connections,
    until: impl Future<Output = ()>,
) -> JoinSet<()> {
    let (mut streams, mut half_made) = (JoinSet::new(), HalfMade::default());
    tokio::pin!(until);
    loop {
        let accepted = loop {
            tokio::select! {
                biased;
                () = &mut until => return streams,
                Some(_) = streams.join_next(), if !streams.is_empty() => {}
                accepted = listener.accept() => break accepted,
            }
        };
        let (socket, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                entry.teller.tell(&entry.name, &format!("cannot accept a connection: {}", words(&error)));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let file = match entry.budget.socket() {
            Ok(file) => file,
            Err(full) => {
                entry.tell_full(&full);
                sockets::reset(socket);
                continue;
            }
        };
        let (carried, connections) = (entry.clone(), connections.clone());
        let is_made = Arc::new(AtomicBool::new(false));
        let made = is_made.clone();
        let stream = streams.spawn(async move {
            let _file = file;
            if let Err(why) = carried.carry(socket, from, connections, &made).await {
                carried.teller.tell(&carried.name, &why);
            }
        });
        if entry.asked.is_none() && half_made.add(stream, is_made) {
            let line =
                format!("{HALF_MADE_MAX} programs have connected and said nothing: the first are closed");
            entry.teller.tell(&entry.name, &line);
        }
    }
}

/// Programs that have connected and not yet said where to. The oldest makes room for the newest.
#[derive(Default)]
struct HalfMade(VecDeque<(AbortHandle, Arc<AtomicBool>)>);

impl HalfMade {
    /// One more; says whether another has made room.
    fn add(&mut self, stream: AbortHandle, is_made: Arc<AtomicBool>) -> bool {
        self.0.retain(|(stream, is_made)| !(stream.is_finished() || is_made.load(Relaxed)));
        self.0.push_back((stream, is_made));
        let oldest = if self.0.len() > HALF_MADE_MAX { self.0.pop_front() } else { None };
        oldest.map(|(stream, _)| stream.abort()).is_some()
    }
}

/// Program that has connected: it may wait to be told that its connection is made.
enum Arrived<T: Tcp> {
    Plain(Resetting<T>),
    Socks(Waiting<T>),
}

impl<T: Tcp> Arrived<T> {
    async fn refuse(self, refused: &Refused) {
        match self {
            // It is, when it is dropped.
            Arrived::Plain(_) => {}
            Arrived::Socks(waiting) => waiting.refused(refused).await,
        }
    }
}

/// A connection that the other end has made.
struct Made {
    entered: Entered,
    asking: Asking,
    send: SendFlow,
    recv: RecvFlow,
    /// The first that has come of the service.
    first: Vec<u8>,
}

impl Made {
    /// Carries what the program says, until something has come of the service, or more was said
    /// than is kept.
    async fn begin(&mut self, socket: &mut impl Tcp, early: &mut Early) -> Result<(), Unmade> {
        let mut first = vec![0; FIRST_BYTES];
        let sent = &self.entered.carried().sent;
        let read = tokio::select! {
            biased;
            // How it ends is told by the end of the socket.
            read = self.recv.read(&mut first) => read.map_err(|_| Unmade::Gone)?,
            gone = early.pass(socket, &mut self.send, sent, true) => return gone.map_or(Ok(()), Err),
            () = self.entered.ended() => return Err(Unmade::Gone),
        };
        first.truncate(read);
        self.first = first;
        Ok(())
    }
}

/// Why a connection was not made.
enum Unmade {
    Refused(Refused),
    /// The program that has connected is gone, or is to go.
    Gone,
}

impl From<Refused> for Unmade {
    fn from(refused: Refused) -> Self {
        Unmade::Refused(refused)
    }
}

/// Bytes that a program says before anything has come from its service, kept until then.
#[derive(Default)]
struct Early {
    bytes: Vec<u8>,
    /// Of them, how many are in the flow.
    written_bytes: usize,
    /// Packets that had been received of the other end when the program said the first of them.
    heard: u64,
}

/// Bytes that are kept of a program at most. The rest waits for its connection.
const EARLY_BYTES_MAX: usize = 64 << 10;

/// The largest piece in which the first that comes of a service is read, in bytes.
const FIRST_BYTES: usize = 2 << 10;

impl Early {
    /// Reads from the socket, and writes to the flow. Returns when who has connected is gone, and
    /// once its connection is made also when no more is kept of what it says (`None`).
    async fn pass(
        &mut self,
        socket: &mut impl Tcp,
        send: &mut SendFlow,
        sent: &AtomicU64,
        is_made: bool,
    ) -> Option<Unmade> {
        loop {
            while self.written_bytes < self.bytes.len() {
                match send.write(self.rest()).await {
                    Ok(bytes) => self.written_bytes += bytes,
                    // The other end takes no more. What it has answered before comes all the same.
                    Err(_) => return pending().await,
                }
            }
            sent.store(self.bytes.len() as u64, Relaxed);
            let room = EARLY_BYTES_MAX.saturating_sub(self.bytes.len()) as u64;
            match (&mut *socket).take(room).read_buf(&mut self.bytes).await {
                // An end of what it says is read again later.
                Ok(0) if is_made => return None,
                Ok(0) => return pending().await,
                Ok(bytes) if bytes == self.bytes.len() => {
                    self.heard = send.connection().stats().packets_received;
                }
                Ok(_) => {}
                Err(_) => return Some(Unmade::Gone),
            }
        }
    }

    /// Bytes that are not in the flow yet.
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.written_bytes..).unwrap_or_default()
    }

    /// True if all of it can be said to another server: the connection has ended, and nothing of it
    /// was acknowledged. A connection that was lost may have acknowledged something if anything
    /// came by it, and one that the server has closed in any case.
    fn may_be_repeated(&self, connection: &Connection) -> bool {
        let Some(reason) = connection.close_reason() else { return false };
        let is_unheard = || connection.stats().packets_received == self.heard;
        match reason {
            CloseReason::Peer { code: STOPPING, .. } => self.bytes.is_empty(),
            reason => reason.is_worth_retrying() && (self.bytes.is_empty() || is_unheard()),
        }
    }
}

impl Entry {
    /// Carries a connection to its end. An error is why it was not made.
    async fn carry<T: Tcp>(
        self: &Arc<Self>,
        socket: T,
        from: SocketAddr,
        connections: Connections,
        is_made: &AtomicBool,
    ) -> Result<(), String> {
        let (arrived, asked, to) = match &self.asked {
            Some(asked) => (Arrived::Plain(Resetting::new(socket)), asked.clone(), self.to.clone()),
            None => {
                let at = socket.local_addr().map_err(|error| error.to_string())?;
                let (request, waiting) = socks::hear(socket).await?;
                is_made.store(true, Relaxed);
                let place = match request {
                    Request::Connect(place) => place,
                    Request::Associate(port) => {
                        return associate::carry(self, waiting, [at, from], port, connections).await;
                    }
                };
                let to = place.to_string();
                (Arrived::Socks(waiting), Asked::Connect(Protocol::Tcp, place), to)
            }
        };
        let _room = match self.room.charge(Resource::Requests, 1) {
            Ok(room) => room,
            Err(full) => {
                self.tell_full(&full);
                arrived.refuse(&Refused { kind: Kind::NoRoom, why: full.to_string() }).await;
                return Ok(());
            }
        };
        let names = [self.name.clone(), printable::address(from).to_string(), to];
        let mut early = Early::default();
        let made = self.make(&asked, connections, &names, (arrived, &mut early)).await;
        let (socket, made) = match made {
            Ok(made) => made,
            Err((arrived, Unmade::Refused(refused))) => {
                if let Some(arrived) = arrived {
                    arrived.refuse(&refused).await;
                }
                return Err(refused.to_string());
            }
            // Who has gone needs to be told nothing.
            Err((_, Unmade::Gone)) => return Ok(()),
        };
        let Made { entered, asking, mut send, recv, first } = made;
        let mut recv = io::Cursor::new(first).chain(recv);
        // How it ends is told to both its ends by the ends of their sockets.
        let _ = entered.join(socket, &mut send, &mut recv, early.rest(), &asking).await;
        Ok(())
    }

    /// Has the other end make a connection, until something comes by it. A server that was
    /// restarted knows nothing of it: what nobody has acknowledged is said to the next.
    async fn make<T: Tcp>(
        &self,
        asked: &Asked,
        connections: Connections,
        names: &[String; 3],
        (mut arrived, early): (Arrived<T>, &mut Early),
    ) -> Result<(Resetting<T>, Made), (Option<Arrived<T>>, Unmade)> {
        let mut since = Instant::now();
        loop {
            let connection = match current(connections.clone()).await {
                Ok(connection) => connection,
                Err(why) => return Err((Some(arrived), Refused::absent(why).into())),
            };
            early.heard = connection.stats().packets_received;
            let unmade = match self.make_by(&connection, asked, names, (&mut arrived, early)).await {
                Err(unmade) => unmade,
                Ok(mut made) => {
                    let mut socket = match arrived {
                        Arrived::Plain(socket) => socket,
                        Arrived::Socks(waiting) => match waiting.connected().await {
                            Ok(socket) => Resetting::new(socket),
                            Err(_) => return Err((None, Unmade::Gone)),
                        },
                    };
                    match made.begin(socket.socket(), early).await {
                        Ok(()) => return Ok((socket, made)),
                        Err(unmade) => {
                            (arrived, since) = (Arrived::Plain(socket), Instant::now());
                            unmade
                        }
                    }
                }
            };
            if !early.may_be_repeated(&connection) || since.elapsed() >= WAIT_MAX {
                return Err((Some(arrived), unmade));
            }
            early.written_bytes = 0;
        }
    }

    /// Has the other end make a connection, by a connection to it.
    async fn make_by<T: Tcp>(
        &self,
        connection: &Connection,
        asked: &Asked,
        names: &[String; 3],
        (arrived, early): (&mut Arrived<T>, &mut Early),
    ) -> Result<Made, Unmade> {
        let (asking, mut send, mut recv) = self.open(asked, connection).await?;
        let entered = self.live.enter(names.clone(), Some((connection, send.id())));
        match arrived {
            // It is connected as far as it knows: what it says goes out at once, and is held by the
            // other end until that has connected it.
            Arrived::Plain(socket) => tokio::select! {
                biased;
                answered = self.answered(&mut recv) => answered?,
                gone = early.pass(socket.socket(), &mut send, &entered.carried().sent, false) => {
                    return Err(gone.unwrap_or(Unmade::Gone));
                }
                () = entered.ended() => return Err(Unmade::Gone),
            },
            Arrived::Socks(_) => self.answered(&mut recv).await?,
        }
        Ok(Made { entered, asking, send, recv, first: Vec::new() })
    }

    /// A limit is met: who is refused hears it at once, and people once in a while.
    fn tell_full(&self, full: &uts_ledger::Refused) {
        if full.is_news {
            self.teller.tell(&self.name, &format!("{full}; more are refused"));
        }
    }

    /// Opens a flow, and asks the other end to connect it.
    async fn open(
        &self,
        asked: &Asked,
        connection: &Connection,
    ) -> Result<(Asking, SendFlow, RecvFlow), Refused> {
        let asking = self.wants.options(connection, Protocol::Tcp).map_err(Refused::absent)?;
        let opening = Opening { asked: asked.clone(), properties: self.wants.of_peer() };
        let opened = timeout(WAIT_MAX, async {
            let flow = connection.open_flow(asking.flow.clone()).await;
            let (mut send, recv) = flow.map_err(|error| Refused::absent(error.to_string()))?.split();
            send.write_all(&opening.emit()).await.map_err(broken)?;
            Ok((send, recv))
        });
        let (send, recv) = opened.await.unwrap_or_else(|_| Err(late()))?;
        Ok((asking, send, recv))
    }

    /// Waits for the answer of the other end.
    async fn answered(&self, recv: &mut RecvFlow) -> Result<(), Refused> {
        let answered = timeout(WAIT_MAX, async {
            stream::read_answer(recv).await.map_err(broken)??;
            Ok(())
        });
        answered.await.unwrap_or_else(|_| Err(late()))?;
        self.teller.well(&self.name);
        Ok(())
    }
}

fn late() -> Refused {
    Refused { kind: Kind::TimedOut, why: "the other end does not answer".to_owned() }
}

fn broken(error: io::Error) -> Refused {
    Refused::absent(match error.kind() {
        io::ErrorKind::UnexpectedEof => "the other end gives no whole answer".to_owned(),
        _ => error.to_string(),
    })
}

/// The connection to the other end, once there is one that has not ended.
///
/// # Errors
/// That there is none, in words.
pub async fn current(mut connections: Connections) -> Result<Connection, String> {
    let is_open = |now: &Option<Connection>| now.as_ref().is_some_and(|c| c.close_reason().is_none());
    let found = timeout(WAIT_MAX, connections.wait_for(is_open)).await;
    let found = found.ok().and_then(Result::ok).and_then(|connection| connection.clone());
    found.ok_or_else(|| "there is no connection to the other end".to_owned())
}
