//! UDP through a tunnel: who sends from one address and port has a flow of messages of its own, for
//! as long as anything moves in it. A message is a datagram, and never repeated after its lifetime.
//!
//! A message begins with a byte: 0, and a datagram follows; [`OPENING`], and what the flow begins
//! with ([`crate::wire`]) and then the first datagram follow; [`REFUSED`], and the reason why the
//! other end does not carry on follows. Messages may overtake each other. (V-5)

use crate::addressed::{Addressed, Origin};
use crate::entry::{Entry, current};
use crate::exit::Exit;
use crate::far::Far;
use crate::forward::Protocol;
use crate::live::Entered;
use crate::sockets::Sockets;
use crate::stream::{REQUEST_MAX, Refused};
use crate::wire::{Asked, Opening};
use crate::{Asking, Connections, Teller};
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};
use uts::{MessageOptions, RecvFlow, SendFlow, WriteError};
use uts_ledger::Resource;

const DATAGRAM: u8 = 0;
const OPENING: u8 = 0x80;
const REFUSED: u8 = 0x81;

/// After this long without a datagram either way, who sent is forgotten (RFC 4787 section 4.3 has
/// two minutes for translators; here a flow costs nothing to open again).
const IDLE: Duration = Duration::from_secs(60);

/// Senders that are remembered for one forward; the one that was quiet longest makes room.
const SENDERS_MAX: usize = 128;

/// Datagrams of one sender that wait for its flow.
const WAITING_MAX: usize = 16;

/// Datagrams that have overtaken the beginning of their flow, and their bytes. Nobody has been
/// asked yet if the flow is permitted.
const EARLY_MAX: usize = 16;
const EARLY_BYTES_MAX: usize = 16 << 10;

/// The largest UDP payload (RFC 768, less the IPv4 header).
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

/// True if a message is of one of the kinds above.
pub fn is_one(message: &[u8]) -> bool {
    matches!(message.first(), Some(&(DATAGRAM | OPENING | REFUSED)))
}

fn message(kind: u8, parts: [&[u8]; 2]) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + parts[0].len() + parts[1].len());
    out.put_u8(kind);
    parts.iter().for_each(|part| out.put_slice(part));
    out.freeze()
}

/// Senders, or destinations: each has a flow of its own.
pub struct Senders<K> {
    all: BTreeMap<K, Sender>,
    tasks: JoinSet<K>,
}

struct Sender {
    datagrams: mpsc::Sender<Bytes>,
    heard_at: Instant,
    task: AbortHandle,
}

impl<K: 'static> Default for Senders<K> {
    /// Nobody so far. All flows end when this is dropped.
    fn default() -> Self {
        Senders { all: BTreeMap::new(), tasks: JoinSet::new() }
    }
}

impl<K: Ord + Clone + Send + 'static> Senders<K> {
    /// Takes a datagram. `begin` is given what waits for a flow that is not there yet, and carries
    /// it to its end.
    pub fn take<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        key: K,
        datagram: Bytes,
        begin: impl FnOnce(mpsc::Receiver<Bytes>) -> F,
    ) {
        if self.all.len() >= SENDERS_MAX && !self.all.contains_key(&key) {
            let quietest = self.all.iter().min_by_key(|(_, sender)| sender.heard_at);
            let quietest = quietest.map(|(key, _)| key.clone());
            if let Some(sender) = quietest.and_then(|key| self.all.remove(&key)) {
                sender.task.abort();
            }
        }
        if self.all.get(&key).is_some_and(|sender| sender.datagrams.is_closed()) {
            self.all.remove(&key);
        }
        let now = Instant::now();
        let sender = self.all.entry(key.clone()).or_insert_with(|| {
            let (datagrams, arrivals) = mpsc::channel(WAITING_MAX);
            let carried = begin(arrivals);
            let task = self.tasks.spawn(async move {
                carried.await;
                key
            });
            Sender { datagrams, heard_at: now, task }
        });
        sender.heard_at = now;
        // What finds no room is lost, as datagrams are.
        let _ = sender.datagrams.try_send(datagram);
    }

    /// Waits for the next datagram at a socket: how many bytes it has, and who has sent it.
    /// Meanwhile flows that end are forgotten.
    pub async fn receive(&mut self, socket: &Addressed, datagram: &mut [u8]) -> (usize, Origin) {
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    let gone = |sender: &Sender| sender.datagrams.is_closed();
                    if let Ok(key) = ended && self.all.get(&key).is_some_and(gone) {
                        self.all.remove(&key);
                    }
                }
                // That somebody is gone, to whom was sent: whoever else sends is here.
                received = socket.receive(datagram) => if let Ok(received) = received {
                    return received;
                },
            }
        }
    }
}

/// Carries what arrives at a socket, until it is given up.
pub async fn arrive(socket: Addressed, entry: Arc<Entry>, connections: Connections) {
    let socket = Arc::new(socket);
    let mut senders = Senders::default();
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let (bytes, from) = senders.receive(&socket, &mut datagram).await;
        let datagram = Bytes::copy_from_slice(&datagram[..bytes]);
        senders.take(from, datagram, |arrivals| {
            let local = Local::Shared { socket: socket.clone(), to: from, head: Bytes::new(), arrivals };
            let (entry, connections) = (entry.clone(), connections.clone());
            async move {
                let Some(asked) = entry.asked.clone() else { return };
                let to = entry.to.clone();
                let from = from.from;
                if let Err(why) = enter(&entry, Leading { asked, from, to }, local, connections).await {
                    entry.teller.tell(&entry.name, &why);
                }
            }
        });
    }
}

/// Where the datagrams of a flow come from, and where they lead.
pub struct Leading {
    /// Request to the other end.
    pub asked: Asked,
    /// Sender of the datagrams.
    pub from: SocketAddr,
    /// Where to, in words.
    pub to: String,
}

/// Carries the datagrams of a flow that is yet to be opened. An error is why it was not.
pub async fn enter(
    entry: &Entry,
    leading: Leading,
    mut local: Local,
    connections: Connections,
) -> Result<(), String> {
    let _room = match entry.room.charge(Resource::Requests, 1) {
        Ok(room) => room,
        Err(full) if full.is_news => return Err(full.to_string()),
        Err(_) => return Ok(()),
    };
    let Leading { asked, from, to } = leading;
    let Some(first) = local.next(&mut Vec::new()).await else { return Ok(()) };
    let connection = current(connections).await?;
    let asking = entry.wants.options(&connection, Protocol::Udp)?;
    let flow = connection.open_flow(asking.flow.clone()).await;
    let (mut send, recv) = flow.map_err(|error| error.to_string())?.split();
    let opening = Opening { asked, properties: entry.wants.of_peer() }.emit();
    // All that follows is worth nothing without it.
    let sent = send.send_message(message(OPENING, [&opening, &first]), MessageOptions::default()).await;
    sent.map_err(|error| error.to_string())?;
    let entered =
        entry.live.enter([entry.name.clone(), from.to_string(), to], Some((&connection, send.id())));
    entered.carried().sent.fetch_add(first.len() as u64, Relaxed);
    let told = (entry.teller.as_ref(), entry.name.as_str());
    relay(local, send, recv, &asking, &entered, Some(told)).await;
    Ok(())
}

/// Carries the datagrams of a flow that the peer has opened, of which this is the first message.
pub async fn exit<S: Sockets>(
    exit: &Exit<S>,
    mut send: SendFlow,
    mut recv: RecvFlow,
    first: Bytes,
) -> io::Result<()> {
    let begun = timeout(REQUEST_MAX, begin(&mut recv, first)).await;
    let (opening, early) = begun.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let place = opening.asked.to_string();
    let prepared = async {
        let room = exit.room()?;
        let way = exit.way(&opening.asked, opening.properties).await?;
        let asking = way.wants.options(exit.connection(), Protocol::Udp).map_err(Refused::absent)?;
        let socket = Far::reach(&way).await.inspect_err(|refused| exit.tell(&way.name, refused))?;
        Ok::<_, Refused>((room, way, asking, socket))
    };
    let (_room, way, asking, socket) = match prepared.await {
        Ok(prepared) => prepared,
        Err(refused) => {
            exit.live().refused(&place, &refused.why);
            let asking = crate::Wants::default().options(exit.connection(), Protocol::Udp);
            asking.and_then(|asking| asking.apply(&send)).map_err(io::Error::other)?;
            let why = message(REFUSED, [refused.to_string().as_bytes(), &[]]);
            send.send_message(why, MessageOptions::default()).await?;
            send.finish()?;
            return Ok(send.finished().await?);
        }
    };
    asking.apply(&send).map_err(io::Error::other)?;
    let entered = exit.live().enter([way.name, way.from, way.to], Some((exit.connection(), send.id())));
    let mut local = Local::Own(socket);
    for datagram in early {
        entered.carried().received.fetch_add(datagram.len() as u64, Relaxed);
        local.put(&datagram).await;
    }
    relay(local, send, recv, &asking, &entered, None).await;
    Ok(())
}

/// The opening of a flow, and the datagrams that have come so far.
async fn begin(recv: &mut RecvFlow, first: Bytes) -> io::Result<(Opening, Vec<Bytes>)> {
    let (mut next, mut beginning) = (first, Beginning::default());
    loop {
        if let Some(begun) = beginning.take(&next).await? {
            return Ok(begun);
        }
        next = recv.recv_message().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    }
}

/// A flow whose opening has not come. What overtook it is kept, as far as there is room. The rest
/// is lost, as datagrams are.
#[derive(Debug, Default)]
pub struct Beginning {
    early: Vec<Bytes>,
    bytes: usize,
}

impl Beginning {
    /// Takes a message. With the opening it gives the datagrams so far, the one that came with it
    /// first.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is none of a flow of datagrams, and those of
    /// [`Opening::read`].
    pub async fn take(&mut self, message: &[u8]) -> io::Result<Option<(Opening, Vec<Bytes>)>> {
        match message.split_first() {
            Some((&OPENING, mut rest)) => {
                let opening = Opening::read(&mut rest).await?;
                let mut datagrams = vec![Bytes::copy_from_slice(rest)];
                datagrams.append(&mut self.early);
                return Ok(Some((opening, datagrams)));
            }
            Some((&DATAGRAM, rest)) => {
                if self.early.len() < EARLY_MAX && self.bytes + rest.len() <= EARLY_BYTES_MAX {
                    self.bytes += rest.len();
                    self.early.push(Bytes::copy_from_slice(rest));
                }
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(None)
    }
}

/// Where datagrams come from and go to, beside the flow.
pub enum Local {
    /// Of one sender, by a socket that others send to as well.
    Shared {
        /// The socket.
        socket: Arc<Addressed>,
        /// The sender.
        to: Origin,
        /// Beginning of each datagram to it.
        head: Bytes,
        /// Datagrams that it has sent.
        arrivals: mpsc::Receiver<Bytes>,
    },
    /// By a socket that knows only its peer.
    Own(Far),
}

impl Local {
    /// The next datagram; `None` = there are no more. `space` is for those that are read from a
    /// socket.
    async fn next(&mut self, space: &mut Vec<u8>) -> Option<Bytes> {
        match self {
            Local::Shared { arrivals, .. } => arrivals.recv().await,
            Local::Own(far) => far.next(space).await,
        }
    }

    /// Sends a datagram. If that cannot be done, it is lost, as datagrams are.
    async fn put(&mut self, datagram: &[u8]) {
        let _ = match self {
            Local::Shared { socket, to, head, .. } if head.is_empty() => socket.answer(datagram, *to).await,
            Local::Shared { socket, to, head, .. } => socket.answer(&[head, datagram].concat(), *to).await,
            Local::Own(far) => {
                far.put(datagram).await;
                Ok(())
            }
        };
    }
}

/// Carries datagrams both ways until nothing has moved for long, or either end wants no more. What
/// the peer refuses is told.
async fn relay(
    mut local: Local,
    mut send: SendFlow,
    mut recv: RecvFlow,
    asking: &Asking,
    entered: &Entered,
    told: Option<(&Teller, &str)>,
) {
    let carried = entered.carried();
    let mut space = Vec::new();
    let why = loop {
        tokio::select! {
            received = recv.recv_message() => match received {
                Ok(Some(message)) => match message.split_first() {
                    Some((&DATAGRAM, datagram)) => {
                        carried.received.fetch_add(datagram.len() as u64, Relaxed);
                        if let Some((teller, name)) = told {
                            teller.well(name);
                        }
                        local.put(datagram).await;
                    }
                    Some((&REFUSED, why)) => {
                        if let Some((teller, name)) = told {
                            teller.tell(name, &String::from_utf8_lossy(why));
                        }
                        break "the other end refuses it";
                    }
                    _ => break "the other end says what is no datagram",
                },
                Ok(None) => break "the other end wants no more",
                Err(_) => break "the flow is broken",
            },
            datagram = local.next(&mut space) => {
                let Some(datagram) = datagram else { break "others have taken its room" };
                let sent = send.send_message(message(DATAGRAM, [&datagram, &[]]), asking.message());
                // A flow that is full takes none: what waits there is older, and more than enough.
                match timeout(Duration::ZERO, sent).await {
                    Ok(Ok(())) => {
                        carried.sent.fetch_add(datagram.len() as u64, Relaxed);
                    }
                    Ok(Err(WriteError::TooLarge { .. })) | Err(_) => {}
                    Ok(Err(_)) => break "the flow is broken",
                }
            }
            () = tokio::time::sleep(IDLE) => break "nothing has moved for a minute",
            () = entered.ended() => break "ended by the operator",
        }
    };
    carried.because(why);
    // The other end is told by that, if it is there.
    let _ = send.finish();
}
