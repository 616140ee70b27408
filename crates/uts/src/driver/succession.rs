//! A port that goes from one process to the next without a word to the network.
//!
//! Both have the same socket. Only one reads it: the successor, from the moment at which the
//! process before it has given way. What arrives for connections that the successor neither has nor
//! can begin it hands on, over a stream for each worker, to the process before it. That keeps its
//! connections, sends by the socket as ever, and ends when they have. No byte on the wire tells of
//! it: ids are known to who has given them out (`spec/packets.md` P-65). Socket Takeover has been
//! described by Naseer et al., "Zero Downtime Release" (SIGCOMM 2020).

use super::socket::{OwnSocket, Received, Socket};
use super::{Host, Shared};
use core::fmt;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream as OwnStream;
use std::sync::{Arc, Weak};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use uts_engine::{Ecn, Endpoint, EndpointConfig};
use uts_functions::Time;

/// Bytes that may wait to be handed on, for each worker: two batches of a busy connection. More are
/// dropped, as a full socket drops them.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// The longest datagram (RFC 768).
const DATAGRAM_BYTES_MAX: usize = 65_535;

/// The longest header of a datagram that is handed on.
const HEADER_BYTES_MAX: usize = 64;

/// Part of an endpoint's state that is about processes before and after this one.
#[derive(Default)]
pub(super) struct Succession {
    /// The successor reads the socket.
    is_deaf: bool,
    /// Somebody wants the socket.
    wanted: Option<oneshot::Sender<io::Result<OwnSocket>>>,
    /// Told when the next turn begins, if somebody waits for it.
    turns: Arc<Notify>,
    is_awaited: bool,
    pub predecessor: Option<Predecessor>,
}

impl Succession {
    /// True if somebody waits for a turn to begin. A kick alone may be spent on the turn under way.
    pub fn wants_turn(&self) -> bool {
        self.is_awaited || self.wanted.is_some()
    }

    /// A turn of the task begins.
    pub fn begin_turn(&mut self, socket: &mut Socket) {
        socket.set_deaf(self.is_deaf);
        if let Some(wanted) = self.wanted.take() {
            // Who has given up needs none.
            let _ = wanted.send(socket.share());
        }
        if core::mem::take(&mut self.is_awaited) {
            self.turns.notify_waiters();
        }
    }
}

/// Header of a datagram that is handed on.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    remote: SocketAddr,
    /// The zone of the sender's address, which the form of addresses leaves out.
    scope: u32,
    local: Option<IpAddr>,
    ecn: Option<u8>,
}

/// The two bits of a mark (RFC 3168 section 5).
fn bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::Ect1 => 1,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    }
}

fn mark(bits: u8) -> Option<Ecn> {
    [Ecn::Ect1, Ecn::Ect0, Ecn::Ce].into_iter().find(|ecn| self::bits(*ecn) == bits)
}

/// A datagram with all that the kernel has said of it: the length of the header, that of the
/// contents, both.
fn encode(remote: SocketAddr, local: Option<IpAddr>, ecn: Option<Ecn>, contents: &[u8]) -> Option<Vec<u8>> {
    let scope = match remote {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(at) => at.scope_id(),
    };
    let header = postcard::to_stdvec(&Header { remote, scope, local, ecn: ecn.map(bits) }).ok()?;
    let mut out = Vec::with_capacity(3 + header.len() + contents.len());
    out.push(u8::try_from(header.len()).ok()?);
    out.extend_from_slice(&u16::try_from(contents.len()).ok()?.to_be_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(contents);
    Some(out)
}

/// Reads the next datagram into `contents`. `None` = there are no more.
async fn decode(
    from: &mut (impl AsyncReadExt + Unpin),
    contents: &mut Vec<u8>,
) -> io::Result<Option<Header>> {
    let header_bytes = match from.read_u8().await {
        Ok(bytes) => usize::from(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = usize::from(from.read_u16().await?);
    if header_bytes > HEADER_BYTES_MAX || bytes > DATAGRAM_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut header = [0; HEADER_BYTES_MAX];
    from.read_exact(&mut header[..header_bytes]).await?;
    let mut header: Header = postcard::from_bytes(&header[..header_bytes]).map_err(io::Error::other)?;
    if let SocketAddr::V6(at) = &mut header.remote {
        at.set_scope_id(header.scope);
    }
    contents.resize(bytes, 0);
    from.read_exact(contents).await?;
    Ok(Some(header))
}

/// The process that had the port before, as what is for it sees it.
pub(super) struct Predecessor {
    waiting: UnboundedSender<(Vec<u8>, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

impl Predecessor {
    /// Gives the engine what is for it, and hands on the rest.
    pub fn take_in(&self, now: Time, engine: &mut Endpoint, received: Received<'_>) {
        let Received { remote, local, ecn, stride, contents } = received;
        for datagram in contents.chunks_mut(stride.max(1)) {
            if engine.is_for_another(now, remote, datagram) {
                self.pass(remote, local, ecn, datagram);
            } else {
                engine.take_in(now, remote, local, ecn, datagram.len(), datagram);
            }
        }
    }

    fn pass(&self, remote: SocketAddr, local: Option<IpAddr>, ecn: Option<Ecn>, datagram: &[u8]) {
        let Some(bytes) = encode(remote, local, ecn, datagram) else { return };
        let Ok(place) = self.room.clone().try_acquire_many_owned(bytes.len() as u32) else { return };
        // A process that has ended is found out by its link.
        let _ = self.waiting.send((bytes, place));
    }
}

/// One end of a stream between two workers.
pub(crate) struct Link(UnixStream);

impl Link {
    /// Of a stream that another process has made.
    pub fn new(stream: OwnStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream).map(Link)
    }

    /// Hands on what waits, until either end is gone.
    async fn hand_on(
        self,
        worker: Weak<Shared>,
        mut waiting: UnboundedReceiver<(Vec<u8>, OwnedSemaphorePermit)>,
    ) {
        let (mut end, mut link) = self.0.into_split();
        let mut nothing = [0];
        loop {
            tokio::select! {
                next = waiting.recv() => match next {
                    Some((bytes, _place)) if link.write_all(&bytes).await.is_ok() => {}
                    _ => break,
                },
                // Nothing is said that way but that it is over.
                _ = end.read(&mut nothing) => break,
            }
        }
        if let Some(worker) = worker.upgrade() {
            worker.act(|inner, _| inner.succession.predecessor = None);
        }
    }
}

/// Takes in what the successor hands on, until it is gone.
async fn take_in(worker: Weak<Shared>, link: OwnedReadHalf) {
    let (mut link, mut contents) = (BufReader::new(link), Vec::new());
    while let Ok(Some(header)) = decode(&mut link, &mut contents).await {
        let Some(worker) = worker.upgrade() else { return };
        let Header { remote, local, ecn, .. } = header;
        let (stride, contents) = (contents.len(), contents.as_mut_slice());
        worker.act(|inner, now| {
            inner.take_in(now, Received { remote, local, ecn: ecn.and_then(mark), stride, contents });
            inner.engine.taken_in(now);
            inner.changed();
        });
    }
}

impl Shared {
    /// Starts the tasks of workers at sockets of another process, which hand on what is for that.
    pub fn start_succeeding(
        host: Host,
        sockets: Vec<OwnSocket>,
        links: Vec<Link>,
        configs: Vec<EndpointConfig>,
        spin: Duration,
    ) -> io::Result<Vec<Arc<Self>>> {
        Self::start_on(host, sockets, configs, spin, |workers| {
            for (worker, link) in workers.iter().zip(links) {
                let (tell, waiting) = unbounded_channel();
                let room = Arc::new(Semaphore::new(WAITING_BYTES_MAX));
                worker.act(|inner, _| {
                    inner.succession.predecessor = Some(Predecessor { waiting: tell, room });
                });
                tokio::spawn(link.hand_on(Arc::downgrade(worker), waiting));
            }
        })
    }

    /// Waits until the task begins a turn.
    async fn next_turn(&self) {
        let turns = self.act(|inner, _| inner.succession.turns.clone());
        let mut begun = core::pin::pin!(turns.notified());
        begun.as_mut().enable();
        self.act(|inner, _| {
            inner.succession.is_awaited = true;
            inner.changed();
        });
        begun.await;
    }
}

/// All that another process needs to go on in the place of this one, in the order of workers.
#[derive(Debug)]
pub struct TakenOver {
    /// The sockets, which both processes have.
    pub sockets: Vec<OwnSocket>,
    /// Streams by which it hands on what is for connections of this one.
    pub links: Vec<OwnStream>,
}

/// Begins to hand over the port of these workers.
pub(crate) async fn hand_over(workers: &[Arc<Shared>]) -> io::Result<(Handover, TakenOver)> {
    let (mut sockets, mut links) = (Vec::new(), Vec::new());
    let mut readers = Vec::new();
    for worker in workers {
        let (tell, told) = oneshot::channel();
        worker.act(|inner, _| {
            inner.succession.wanted = Some(tell);
            inner.changed();
        });
        sockets.push(told.await.map_err(|_| io::Error::other("the endpoint has ended"))??);
        let (here, there) = OwnStream::pair()?;
        let (read, write) = Link::new(here)?.0.into_split();
        readers.push((Arc::downgrade(worker), read, write));
        links.push(there);
    }
    let workers: Vec<_> = workers.iter().map(Arc::downgrade).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (worker, read, write) in readers {
        tasks.spawn(async move {
            // Its end tells the successor that nothing is to be handed on any more.
            let _write = write;
            take_in(worker, read).await;
        });
    }
    Ok((Handover { workers, _tasks: tasks }, TakenOver { sockets, links }))
}

/// A port that is being handed over to another process. As long as it is kept, what the successor
/// hands on is taken in.
pub struct Handover {
    workers: Vec<Weak<Shared>>,
    /// They take in what is handed on, from the first moment to the last.
    _tasks: tokio::task::JoinSet<()>,
}

impl Handover {
    /// Reads the sockets no more, from the end of this on: what arrives is the successor's.
    /// Connections go on with what it hands on.
    pub async fn give_way(&self) {
        self.set_deaf(true);
        for worker in self.workers.iter().filter_map(Weak::upgrade) {
            worker.next_turn().await;
        }
    }

    /// Reads the sockets again: the successor is gone.
    pub fn take_back(self) {
        self.set_deaf(false);
    }

    fn set_deaf(&self, is_deaf: bool) {
        for worker in self.workers.iter().filter_map(Weak::upgrade) {
            worker.act(|inner, _| {
                inner.succession.is_deaf = is_deaf;
                inner.changed();
            });
        }
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handover({} workers)", self.workers.len())
    }
}

/// A proof that the tasks of a listener take their turns. It holds nothing.
#[derive(Clone, Debug, Default)]
pub struct Pulse {
    workers: Vec<Weak<Shared>>,
}

impl Pulse {
    pub(crate) fn of(workers: &[Arc<Shared>]) -> Self {
        Pulse { workers: workers.iter().map(Arc::downgrade).collect() }
    }

    /// Ends as soon as each worker has taken a whole turn: has received, has done what was due, and
    /// has sent. Never, if one takes none any more.
    pub async fn beat(&self) {
        for worker in self.workers.iter().filter_map(Weak::upgrade) {
            // From the beginning of one to that of the next.
            worker.next_turn().await;
            worker.next_turn().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Datagrams come as they were sent, one behind the other, with all that is known of them.
    #[tokio::test]
    async fn what_is_handed_on_is_taken_in_as_it_came() {
        let scoped: SocketAddr =
            std::net::SocketAddrV6::new("fe80::1".parse().expect("an address"), 5, 0, 7).into();
        let all = [
            ("192.0.2.1:1".parse().expect("an address"), None, None, vec![]),
            (scoped, Some("192.0.2.9".parse().expect("an address")), Some(Ecn::Ce), vec![1; 65_000]),
            ("[2001:db8::1]:9".parse().expect("an address"), None, Some(Ecn::Ect1), vec![2]),
        ];
        let stream: Vec<u8> = all
            .iter()
            .flat_map(|(remote, local, ecn, contents)| encode(*remote, *local, *ecn, contents).expect("fits"))
            .collect();
        let (mut from, mut contents) = (stream.as_slice(), Vec::new());
        for (remote, local, ecn, sent) in &all {
            let header = decode(&mut from, &mut contents).await.expect("read").expect("another");
            assert_eq!((header.remote, header.local, header.ecn.and_then(mark)), (*remote, *local, *ecn));
            assert_eq!(&contents, sent);
        }
        assert_eq!(decode(&mut from, &mut contents).await.expect("read"), None);
        let mut cut = &stream[..20];
        while let Ok(next) = decode(&mut cut, &mut contents).await {
            assert!(next.is_some(), "what is cut short is an error");
        }
    }

    /// A predecessor that does not read holds no more than it may.
    #[test]
    fn what_waits_to_be_handed_on_is_bounded() {
        let (waiting, mut queue) = unbounded_channel();
        let predecessor = Predecessor { waiting, room: Arc::new(Semaphore::new(WAITING_BYTES_MAX)) };
        for _ in 0..10_000 {
            predecessor.pass("192.0.2.1:1".parse().expect("an address"), None, None, &[0; 1200]);
        }
        let mut bytes = 0;
        while let Ok((datagram, place)) = queue.try_recv() {
            bytes += datagram.len();
            drop(place);
        }
        assert!(bytes <= WAITING_BYTES_MAX && bytes > WAITING_BYTES_MAX - 2000, "{bytes}");
    }

    /// The time that a datagram takes to be handed on: the look whose it is, and the way from the
    /// successor's worker to the buffer of the one before it. Printed, and not judged.
    #[tokio::test]
    #[ignore = "it is a measurement"]
    #[allow(clippy::disallowed_methods, reason = "it measures real time")]
    async fn the_cost_of_a_datagram_that_is_handed_on() {
        const COUNT: u32 = 200_000;
        let remote: SocketAddr = "192.0.2.1:1".parse().expect("an address");
        let mut datagram = [0x40; 1200];
        let engine = Endpoint::new(EndpointConfig::default(), [1; 32]);
        let begun = std::time::Instant::now();
        for n in 0..COUNT {
            datagram[1..5].copy_from_slice(&n.to_be_bytes());
            assert!(engine.is_for_another(Time::ZERO, remote, &datagram));
        }
        let looks = begun.elapsed() / COUNT;
        let (tell, waiting) = unbounded_channel();
        let predecessor = Predecessor { waiting: tell, room: Arc::new(Semaphore::new(WAITING_BYTES_MAX)) };
        let (here, there) = OwnStream::pair().expect("a pair");
        tokio::spawn(Link::new(here).expect("a link").hand_on(Weak::new(), waiting));
        let (read, _write) = Link::new(there).expect("a link").0.into_split();
        let (mut read, mut contents) = (BufReader::new(read), Vec::new());
        let begun = std::time::Instant::now();
        for _ in 0..COUNT / 100 {
            // A batch, as a busy socket gives it.
            (0..100).for_each(|_| predecessor.pass(remote, None, None, &datagram));
            for _ in 0..100 {
                decode(&mut read, &mut contents).await.expect("read").expect("another");
            }
        }
        println!("{looks:?} to see that it is for another, {:?} to hand it on", begun.elapsed() / COUNT);
    }
}
