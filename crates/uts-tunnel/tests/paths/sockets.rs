//! TCP of one host in memory. A connection delivers in order, ends each way by itself, and is reset
//! as sockets of the system are: what its peer has not read by then is lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use uts_tunnel::sockets::{Listener, Sockets, Tcp};

/// Bytes that a connection holds for a reader, in each direction.
const BUFFER_BYTES: usize = 64 << 10;

/// The first port of a connection that is made here.
const FIRST_PORT: u16 = 40_000;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A host with its programs. Clones are the same host.
#[derive(Clone, Debug)]
pub struct Machine(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    host: IpAddr,
    next_port: u16,
    listeners: BTreeMap<SocketAddr, UnboundedSender<Stream>>,
    /// Addresses at which nobody answers, not even the system.
    silent: BTreeSet<SocketAddr>,
    /// Ends of connections that are there.
    open: usize,
}

impl Machine {
    /// A host at an address of its own.
    pub fn new(host: IpAddr) -> Machine {
        let (listeners, silent) = (BTreeMap::new(), BTreeSet::new());
        Machine(Arc::new(Mutex::new(State { host, next_port: FIRST_PORT, listeners, silent, open: 0 })))
    }

    /// Nobody answers at an address from now on.
    pub fn silence(&self, address: SocketAddr) {
        locked(&self.0).silent.insert(address);
    }

    /// Ends of connections, and listeners, that are there.
    pub fn open(&self) -> usize {
        let state = locked(&self.0);
        state.open + state.listeners.len()
    }

    fn pair(&self, address: SocketAddr) -> [Stream; 2] {
        let mut state = locked(&self.0);
        let from = SocketAddr::new(state.host, state.next_port);
        state.next_port += 1;
        state.open += 2;
        let ways = Arc::new(Mutex::new([Way::default(), Way::default()]));
        [(0, [from, address]), (1, [address, from])].map(|(side, addresses)| {
            let (end, machine) = (End { ways: ways.clone(), side }, self.clone());
            Stream { end, addresses, machine, is_reset_when_dropped: Mutex::new(false) }
        })
    }
}

impl Sockets for Machine {
    type Tcp = Stream;
    type Listener = At;

    async fn connect(&self, address: SocketAddr) -> io::Result<Stream> {
        let listener = locked(&self.0).listeners.get(&address).cloned();
        if locked(&self.0).silent.contains(&address) {
            std::future::pending::<()>().await;
        }
        let listener = listener.ok_or(io::ErrorKind::ConnectionRefused)?;
        let [near, far] = self.pair(address);
        listener.send(far).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(near)
    }

    async fn listen(&self, address: SocketAddr) -> io::Result<At> {
        let mut state = locked(&self.0);
        if state.listeners.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (listener, arrivals) = unbounded_channel();
        state.listeners.insert(address, listener);
        Ok(At { address, machine: self.clone(), arrivals: tokio::sync::Mutex::new(arrivals) })
    }
}

/// A place at which connections arrive, until it is dropped.
#[derive(Debug)]
pub struct At {
    address: SocketAddr,
    machine: Machine,
    arrivals: tokio::sync::Mutex<UnboundedReceiver<Stream>>,
}

impl Drop for At {
    fn drop(&mut self) {
        locked(&self.machine.0).listeners.remove(&self.address);
    }
}

impl Listener for At {
    type Tcp = Stream;

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let accepted = self.arrivals.lock().await.recv().await;
        let accepted = accepted.ok_or(io::ErrorKind::NotConnected)?;
        let from = accepted.peer_addr()?;
        Ok((accepted, from))
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Way {
    bytes: VecDeque<u8>,
    has_ended: bool,
    is_reset: bool,
    has_no_reader: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Way {
    fn wake(&mut self) {
        [self.reader.take(), self.writer.take()].into_iter().flatten().for_each(Waker::wake);
    }

    fn reset(&mut self) {
        self.bytes.clear();
        self.is_reset = true;
        self.wake();
    }
}

/// One end of a connection, as its halves have it: what side 0 writes is in way 0.
#[derive(Clone, Debug)]
struct End {
    ways: Arc<Mutex<[Way; 2]>>,
    side: usize,
}

impl End {
    fn read(&self, cx: &Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let way = &mut locked(&self.ways)[1 - self.side];
        if way.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if way.bytes.is_empty() && !way.has_ended {
            way.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let bytes = way.bytes.len().min(buf.remaining());
        way.bytes.drain(..bytes).for_each(|byte| buf.put_slice(&[byte]));
        way.wake();
        Poll::Ready(Ok(()))
    }

    fn write(&self, cx: &Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let way = &mut locked(&self.ways)[self.side];
        if way.has_no_reader {
            // It is answered by a reset.
            way.reset();
        }
        if way.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if way.has_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let bytes = data.len().min(BUFFER_BYTES - way.bytes.len());
        if bytes == 0 && !data.is_empty() {
            way.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        way.bytes.extend(&data[..bytes]);
        way.wake();
        Poll::Ready(Ok(bytes))
    }

    fn shutdown(&self) -> Poll<io::Result<()>> {
        let way = &mut locked(&self.ways)[self.side];
        if way.is_reset {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        way.has_ended = true;
        way.wake();
        Poll::Ready(Ok(()))
    }
}

/// A connection with a program.
#[derive(Debug)]
pub struct Stream {
    end: End,
    /// Here, and of the peer.
    addresses: [SocketAddr; 2],
    machine: Machine,
    is_reset_when_dropped: Mutex<bool>,
}

/// The half that is read.
pub struct Reading(End);

/// The half that is written.
pub struct Writing(End);

impl Tcp for Stream {
    fn split(&mut self) -> (impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin) {
        (Reading(self.end.clone()), Writing(self.end.clone()))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addresses[0])
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addresses[1])
    }

    fn send_at_once(&self) {}

    fn undelivered_bytes(&self) -> u64 {
        let way = &locked(&self.end.ways)[self.end.side];
        if way.is_reset || way.has_no_reader { 0 } else { way.bytes.len() as u64 }
    }

    fn reset_when_dropped(&self) {
        *locked(&self.is_reset_when_dropped) = true;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        locked(&self.machine.0).open -= 1;
        let mut ways = locked(&self.end.ways);
        let unread = !ways[1 - self.end.side].bytes.is_empty();
        if unread || *locked(&self.is_reset_when_dropped) {
            ways.iter_mut().for_each(Way::reset);
        }
        ways[1 - self.end.side].has_no_reader = true;
        ways[self.end.side].has_ended = true;
        ways.iter_mut().for_each(Way::wake);
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.end.read(cx, buf)
    }
}

impl AsyncRead for Reading {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.end.write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end.shutdown()
    }
}

impl AsyncWrite for Writing {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.0.write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.shutdown()
    }
}
