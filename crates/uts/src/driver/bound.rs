//! One UDP socket, as the kernel is asked to keep it, and how it is read.

#[cfg(unix)]
use super::patience::Patience;
use super::readiness::Readiness;
#[cfg(target_os = "linux")]
use super::receiving::{self, Said};
#[cfg(unix)]
use super::single::Single;
use crate::driver::Host;
use core::task::{Context, Poll, ready};
#[cfg(unix)]
use core::time::Duration;
use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use uts_engine::Ecn;

/// Asked of the kernel; it gives what it may. Half a second at 64 Mbit/s, or a few batches at 10 Gbit/s.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Buffers that one call may fill. Each holds what the kernel coalesces, at most 64 KiB; of memory that is never written
/// to the system takes none.
const BUFFERS: usize = 32;
const BUFFER_BYTES: usize = 64 << 10;

/// Buffers that are offered at least, if little comes in each.
const OFFERED_MIN: usize = 4;

/// Whether a call fills as many buffers as there is anything for; elsewhere it fills one.
const FILLS_ALL: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// What one call should bring at most, so that it is still in cache when it is taken in, and is read before more comes:
/// the more the kernel coalesces the fewer buffers are filled at once.
const CALL_BYTES: usize = 64 << 10;

/// How long who waits polls the interface before he sleeps. At 2.6 Gbit/s as much as a batch holds takes 200 us to come, at 10 Gbit/s 50.
#[cfg(unix)]
const BUSY_POLL: Duration = Duration::from_micros(100);

/// A socket, bound to an address.
pub(super) struct Bound {
    io: Readiness,
    state: UdpSocketState,
    local: Local,
    #[cfg(unix)]
    patience: Patience,
    /// Who waits for it has the kernel poll the network interface meanwhile.
    #[cfg(unix)]
    polls: bool,
    #[cfg(unix)]
    single: Single,
    /// The only peer, if it has one.
    peer: Option<SocketAddr>,
    /// All that comes is from that one: what came before it was the only one has been read.
    is_only_his: bool,
}

/// To which address of this host what arrives was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Local {
    /// To the only one: that need not be said.
    Only,
    /// The kernel says, and would choose one for what is sent.
    Told,
    /// Of several, to this.
    This(IpAddr),
}

/// Where what arrives is put.
pub(super) struct Buffers {
    /// All buffers, one behind the other.
    memory: Vec<u8>,
    /// How many of them the next call may fill.
    offered: usize,
    metas: [RecvMeta; BUFFERS],
    #[cfg(target_os = "linux")]
    said: Said,
}

/// What arrived in one buffer: datagrams of `stride` bytes, the last may be shorter.
pub(crate) struct Received<'a> {
    pub remote: SocketAddr,
    /// The address of this host that it was sent to, where the socket has several.
    pub local: Option<IpAddr>,
    pub ecn: Option<Ecn>,
    pub stride: usize,
    pub contents: &'a mut [u8],
}

impl Bound {
    /// A socket at an address; `peer` = the only one that it will talk to.
    pub fn new(addr: SocketAddr, peer: Option<SocketAddr>, host: Host) -> io::Result<Self> {
        let socket = open(addr)?;
        if let SocketAddr::V6(v6) = addr {
            // `[::]` takes IPv4 as well where the system can do that.
            if v6.ip().is_unspecified() && peer.is_none() {
                let _ = socket.set_only_v6(false);
            }
        }
        socket.bind(&addr.into())?;
        if let Some(peer) = peer {
            socket.connect(&peer.into())?;
        }
        let has_many_addresses = addr.ip().is_unspecified() && peer.is_none();
        let local = if has_many_addresses { Local::Told } else { Local::Only };
        Self::set_up(socket, local, peer, host)
    }

    fn set_up(
        socket: socket2::Socket,
        local: Local,
        peer: Option<SocketAddr>,
        host: Host,
    ) -> io::Result<Self> {
        // As the kernel would say it.
        let peer = peer.map(|peer| socket.peer_addr().ok().and_then(|addr| addr.as_socket()).unwrap_or(peer));
        let io = Readiness::new(socket, host)?;
        let state = UdpSocketState::new(io.socket())?;
        if local != Local::Told {
            io.tell_no_destinations();
        }
        Ok(Bound {
            io,
            state,
            local,
            #[cfg(unix)]
            patience: Patience::default(),
            #[cfg(unix)]
            polls: false,
            #[cfg(unix)]
            single: Single::default(),
            peer,
            is_only_his: false,
        })
    }

    /// Another socket at this address, for what comes from `remote` only, to `local` of the addresses of this host if it has several.
    /// Only on Linux, which asks who shares an address whenever it is bound, rather than when it was.
    pub fn for_peer(&self, remote: SocketAddr, local: Option<IpAddr>) -> io::Result<Self> {
        if !cfg!(target_os = "linux") {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut addr = self.local_addr()?;
        let mut is_at = Local::Only;
        if self.local == Local::Told {
            let local = local.ok_or(io::ErrorKind::AddrNotAvailable)?;
            is_at = Local::This(local);
            addr.set_ip(match (remote, local) {
                (SocketAddr::V6(_), IpAddr::V4(v4)) => v4.to_ipv6_mapped().into(),
                _ => local,
            });
            if let (SocketAddr::V6(addr), SocketAddr::V6(remote)) = (&mut addr, remote) {
                addr.set_scope_id(remote.scope_id());
            }
        }
        let socket = open(addr)?;
        // Both must agree to share the address, when the second is bound: only then, since anybody's socket might.
        socket.set_reuse_address(true)?;
        self.io.set_reuse_address(true)?;
        let bound = socket.bind(&addr.into());
        self.io.set_reuse_address(false)?;
        bound?;
        socket.connect(&remote.into())?;
        Self::set_up(socket, is_at, Some(remote), self.io.host())
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// What the kernel keeps of what has arrived, with what it takes to keep it; 0 = it does not say.
    pub fn buffer_bytes(&self) -> usize {
        self.state.recv_buffer_size(self.io.socket()).unwrap_or(0)
    }

    /// How many segments the kernel takes at once.
    pub fn segments_max(&self) -> usize {
        self.state.max_gso_segments().max(1)
    }

    /// Waits for datagrams, and hands them over buffer by buffer; says whether there may be more. Nobody is woken while the socket is
    /// not watched.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut Buffers,
        each: impl FnMut(Received<'_>),
    ) -> Poll<io::Result<bool>> {
        if !self.io.is_watched() {
            return self.try_receive(buffers, each);
        }
        let (filled, offered) = loop {
            ready!(self.io.poll_readable(cx))?;
            let mut filled = Ok(0);
            let (offered, sender) = (buffers.offered, self.sender());
            // Fewer than were offered is as much as there was. To say so here, rather than to ask once more, saves a call:
            // what arrives from now on is an event of its own.
            let all = self.io.read(|| {
                filled = buffers.fill(offered, &self.io, &self.state, sender);
                match filled {
                    Ok(filled) if filled == offered || !FILLS_ALL => Ok(()),
                    Ok(_) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(ref e) => Err(e.kind().into()),
                }
            });
            self.on_look(&filled, offered);
            match filled {
                Ok(0) if all.is_err() => {}
                Ok(filled) => break (filled, offered),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        };
        buffers.hand_over(filled, self.local, each);
        // The next event must find somebody to wake.
        Poll::Ready(Ok(filled == offered || self.io.poll_readable(cx).is_ready()))
    }

    /// Hands over what is there, if anything is, whatever the runtime knows of it; says whether there may be more. Has nobody woken.
    pub fn try_receive(
        &mut self,
        buffers: &mut Buffers,
        each: impl FnMut(Received<'_>),
    ) -> Poll<io::Result<bool>> {
        #[cfg(unix)]
        self.patience.end(&self.io)?;
        self.receive(buffers, buffers.offered, each)
    }

    /// Waits in the kernel for a datagram, or some that came together, for so long at most, and hands them over; says whether there may be
    /// more. `None` = the kernel cannot wait for so short a time by this call.
    #[cfg(unix)]
    pub fn wait(
        &mut self,
        buffers: &mut Buffers,
        most: Duration,
        each: impl FnMut(Received<'_>),
    ) -> io::Result<Option<Poll<io::Result<bool>>>> {
        if !self.patience.wait(&self.io, most)? {
            return Ok(None);
        }
        // Of several buffers all would be waited for.
        Ok(Some(self.receive(buffers, 1, each)))
    }

    /// Has who waits in the kernel poll the network interface, for a while before he sleeps, or not.
    ///
    /// # Errors
    /// The system does not let us.
    #[cfg(unix)]
    pub fn set_busy_polling(&mut self, polls: bool) -> io::Result<()> {
        if polls != self.polls {
            self.io.set_busy_poll(if polls { BUSY_POLL } else { Duration::ZERO })?;
            self.polls = polls;
        }
        Ok(())
    }

    /// For how long who waits polls the interface, in microseconds.
    #[cfg(all(test, target_os = "linux"))]
    pub fn busy_poll(&self) -> io::Result<u32> {
        self.io.plain().busy_poll()
    }

    fn receive(
        &mut self,
        buffers: &mut Buffers,
        offered: usize,
        each: impl FnMut(Received<'_>),
    ) -> Poll<io::Result<bool>> {
        let filled = buffers.fill(offered, &self.io, &self.state, self.sender());
        self.on_look(&filled, offered);
        match filled {
            Ok(0) => Poll::Pending,
            Ok(filled) => {
                buffers.hand_over(filled, self.local, each);
                Poll::Ready(Ok(filled == offered || !FILLS_ALL))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(e) => Poll::Ready(Err(e)),
        }
    }

    /// Who has sent whatever there is to read, if that is known.
    fn sender(&self) -> Option<SocketAddr> {
        self.peer.filter(|_| self.is_only_his)
    }

    /// Takes note of what a look has found that could have found so much. (What somebody else sent in the very moment in which the socket
    /// got its only peer, and the kernel brings only after this, is taken for his, as if its sender had forged the address.)
    fn on_look(&mut self, filled: &io::Result<usize>, offered: usize) {
        self.is_only_his |= match filled {
            Ok(filled) => FILLS_ALL && (1..offered).contains(filled),
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
        };
    }

    /// The socket as who waits for it in the kernel knows it.
    #[cfg(unix)]
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.io.fd()
    }

    /// Its one peer, if it has only one.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Nobody is to be woken by what arrives, until the socket is watched.
    pub fn unwatch(&mut self) {
        self.io.unwatch();
    }

    /// Has the task woken by what arrives; says whether something may have already.
    pub fn watch(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.io.is_watched() {
            return Ok(false);
        }
        self.io.watch()?;
        Ok(self.io.poll_readable(cx)?.is_ready())
    }

    /// Whether the task is woken by what arrives.
    pub fn is_watched(&self) -> bool {
        self.io.is_watched()
    }

    /// Sends what the kernel takes at once.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, transmit: &Transmit<'_>) -> Poll<io::Result<()>> {
        #[cfg(unix)]
        if let Some(sent) = self.single.try_send(self.io.plain(), self.peer.is_some(), transmit)
            && !sent.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
        {
            return Poll::Ready(sent);
        }
        loop {
            ready!(self.io.poll_writable(cx))?;
            match self.io.write(|socket| self.state.try_send(socket, transmit)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Buffers {
            memory: vec![0; BUFFERS * BUFFER_BYTES],
            offered: OFFERED_MIN,
            metas: [RecvMeta::default(); BUFFERS],
            #[cfg(target_os = "linux")]
            said: Said::default(),
        }
    }
}

impl Buffers {
    /// Fills so many at most with what is there; says how many. `sender` = who has sent all that, if that is known.
    fn fill(
        &mut self,
        offered: usize,
        io: &Readiness,
        state: &UdpSocketState,
        sender: Option<SocketAddr>,
    ) -> io::Result<usize> {
        #[cfg(target_os = "linux")]
        if offered == 1 {
            let first = &mut self.memory[..BUFFER_BYTES];
            self.metas[0] = receiving::receive(io.plain(), first, &mut self.said, sender)?;
            return Ok(1);
        }
        let buffers = self.memory.chunks_mut(BUFFER_BYTES).take(offered);
        let metas = &mut self.metas[..offered];
        #[cfg(target_os = "linux")]
        if let Some(sender) = sender {
            return receiving::receive_from(sender, io.plain(), buffers, metas);
        }
        // Elsewhere it is always asked.
        let _ = sender;
        let mut slices: [IoSliceMut<'_>; BUFFERS] = core::array::from_fn(|_| IoSliceMut::new(&mut []));
        for (slice, buffer) in slices.iter_mut().zip(buffers) {
            *slice = IoSliceMut::new(buffer);
        }
        state.recv(io.socket(), &mut slices[..offered], metas)
    }

    /// The next call may fill one.
    #[cfg(unix)]
    pub fn expect_one(&mut self) {
        self.offered = 1;
    }

    /// What the kernel said of the address to which the contents of a buffer were sent.
    #[cfg(test)]
    pub fn destination(&self, buffer: usize) -> Option<IpAddr> {
        self.metas[buffer].dst_ip
    }

    fn hand_over(&mut self, filled: usize, local: Local, mut each: impl FnMut(Received<'_>)) {
        let mut bytes = 0;
        for (meta, buffer) in self.metas.iter().zip(self.memory.chunks_mut(BUFFER_BYTES)).take(filled) {
            let contents = &mut buffer[..meta.len.min(BUFFER_BYTES)];
            bytes += contents.len();
            if contents.is_empty() {
                continue;
            }
            let stride = meta.stride.clamp(1, contents.len());
            let local = match local {
                Local::Only => None,
                Local::Told => meta.dst_ip,
                Local::This(local) => Some(local),
            };
            each(Received { remote: meta.addr, local, ecn: meta.ecn.map(from_codepoint), stride, contents });
        }
        // To offer a buffer costs something, too.
        let wanted = if filled == self.offered { 2 * filled } else { filled + 2 };
        let mean = bytes.checked_div(filled).unwrap_or(0).max(1);
        let most = (CALL_BYTES / mean).clamp(1, BUFFERS);
        self.offered = wanted.max(OFFERED_MIN).min(most);
    }
}

/// A socket for addresses such as `addr`, not bound yet.
fn open(addr: SocketAddr) -> io::Result<socket2::Socket> {
    use socket2::{Domain, Protocol, Type};
    let socket = socket2::Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn from_codepoint(ecn: EcnCodepoint) -> Ecn {
    match ecn {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// A socket, and its address.
    fn bound() -> (socket2::Socket, SocketAddr) {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let socket = open(any).expect("a socket");
        socket.bind(&any.into()).expect("bound");
        let addr = socket.local_addr().expect("bound").as_socket().expect("of the Internet");
        (socket, addr)
    }

    /// It is asked who sent what came before the socket had its only peer, and nothing else.
    #[test]
    fn what_came_before_there_was_one_peer_is_not_taken_for_his() {
        let [(socket, to), (stranger, stranger_addr), (peer, peer_addr)] = [(); 3].map(|()| bound());
        let send = |from: &socket2::Socket, contents: &[u8]| {
            assert_eq!(from.send_to(contents, &to.into()).expect("sent"), contents.len());
        };
        // More than one call takes at first.
        let before = 2 * OFFERED_MIN + 1;
        (0..before).for_each(|_| send(&stranger, b"before"));
        socket.connect(&peer_addr.into()).expect("connected");
        let mut bound = Bound::set_up(socket, Local::Only, Some(peer_addr), Host::Thread).expect("set up");
        send(&peer, b"from the peer");
        let mut senders = Vec::new();
        let mut buffers = Buffers::default();
        while senders.len() < before + 1 {
            assert_eq!(bound.sender(), None);
            let looked = bound.try_receive(&mut buffers, |received| senders.push(received.remote));
            assert!(matches!(looked, Poll::Ready(Ok(_)) | Poll::Pending), "{looked:?}");
        }
        assert_eq!(senders, [vec![stranger_addr; before], vec![peer_addr]].concat());
        while bound.sender().is_none() {
            assert!(bound.try_receive(&mut buffers, |_| ()).is_pending());
        }
        assert_eq!(bound.sender(), Some(peer_addr));
        send(&stranger, b"after");
        send(&peer, b"from the peer");
        let (mut contents, mut has_more) = (Vec::new(), true);
        while contents.is_empty() || has_more {
            let looked = bound.try_receive(&mut buffers, |received| {
                contents.push((received.remote, received.contents.to_vec()));
            });
            has_more = matches!(looked, Poll::Ready(Ok(true)));
        }
        assert_eq!(contents, [(peer_addr, b"from the peer".to_vec())]);
    }
}
