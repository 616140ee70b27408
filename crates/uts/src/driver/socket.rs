//! The socket of an endpoint: with segmentation offload both ways, ECN, and no IP fragmentation. One of its peers may be received by a
//! socket of his own.

use super::bound::{Bound, Buffers};
use crate::driver::Host;
use core::task::{Context, Poll};
use quinn_udp::EcnCodepoint;
use std::io;
use std::net::{IpAddr, SocketAddr};
use uts_engine::Ecn;

pub(crate) use super::bound::Received;

/// The most that a UDP datagram, and hence a batch of segments, can hold over IPv4 (RFC 768, RFC 791).
const BATCH_BYTES_MAX: usize = 65_507;

/// Looks after which nothing can be left of what came to the main socket before a peer had his own, however small it was: else who
/// floods that one could keep him from being heard.
const BEHIND_MAX: u32 = 2048;

/// A socket, and its buffers for what arrives.
pub(crate) struct Socket {
    main: Bound,
    dedicated: Option<Dedicated>,
    buffers: Buffers,
}

/// A socket at the same address that is connected to one peer: for what he sends the kernel looks up socket and route by one step.
/// Others are received, and all is sent, by the main one.
struct Dedicated {
    socket: Bound,
    remote: SocketAddr,
    /// Looks at the main one, which may hold what came from him before, until his is looked at.
    behind: u32,
}

/// A batch that is to be sent: datagrams of `segment_bytes`, the last may be shorter.
pub(crate) struct Batch<'a> {
    pub remote: SocketAddr,
    /// The address of this host that it is to come from; `None` = the system chooses.
    pub local: Option<IpAddr>,
    pub ecn: Option<Ecn>,
    pub segment_bytes: usize,
    pub contents: &'a [u8],
}

impl Socket {
    /// A socket at an address; `peer` = the only one that it will talk to, so that it hears of ports that are closed.
    pub fn bind(addr: SocketAddr, peer: Option<SocketAddr>, host: Host) -> io::Result<Self> {
        let main = Bound::new(addr, peer, host)?;
        Ok(Socket { main, dedicated: None, buffers: Buffers::default() })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.main.local_addr()
    }

    /// What the kernel keeps of what has arrived, with what it takes to keep it; 0 = it does not say.
    pub fn buffer_bytes(&self) -> usize {
        self.main.buffer_bytes()
    }

    /// How many segments the kernel takes at once.
    pub fn segments_max(&self) -> usize {
        self.main.segments_max()
    }

    /// Receives from `remote` by a socket of his own from now on, unless somebody has one already. `local` = the address of this host that
    /// he sends to, where there are several. Nothing is lost, and nothing overtakes what he has sent before.
    ///
    /// # Errors
    /// The system refuses another socket at this address.
    pub fn dedicate(&mut self, remote: SocketAddr, local: Option<IpAddr>) -> io::Result<()> {
        if self.dedicated.is_none() && self.peer().is_none() {
            let mut socket = self.main.for_peer(remote, local)?;
            socket.unwatch();
            self.dedicated = Some(Dedicated { socket, remote, behind: BEHIND_MAX });
        }
        Ok(())
    }

    /// The peer that has a socket of his own.
    #[cfg(all(test, target_os = "linux"))]
    pub fn dedicated(&self) -> Option<SocketAddr> {
        self.dedicated.as_ref().map(|dedicated| dedicated.remote)
    }

    /// Receives from all by the main socket, unless the peer that has one of his own still matters: what he has sent is lost.
    pub fn release_unless(&mut self, matters: impl FnOnce(SocketAddr) -> bool) {
        self.dedicated.take_if(|dedicated| !matters(dedicated.remote));
    }

    /// Waits for datagrams, and hands them over buffer by buffer; says whether there may be more. Nobody is woken while the socket is
    /// not watched.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        mut each: impl FnMut(Received<'_>),
    ) -> Poll<io::Result<bool>> {
        if let Some(behind) = self.catch_up(&mut each) {
            return behind;
        }
        self.receive(|socket, buffers| socket.poll_receive(cx, buffers, &mut each))
    }

    /// Hands over what is there, if anything is, whatever the runtime knows of it; says whether there may be more. Has nobody woken.
    pub fn try_receive(&mut self, mut each: impl FnMut(Received<'_>)) -> Poll<io::Result<bool>> {
        if let Some(behind) = self.catch_up(&mut each) {
            return behind;
        }
        self.receive(|socket, buffers| socket.try_receive(buffers, &mut each))
    }

    /// Waits in the kernel for what arrives, for so long at most, and hands it over; says whether there may be more. `None` = it has to be
    /// waited for [otherwise](Socket::fds): only the kernel's ticks are counted here, and one socket is waited for.
    #[cfg(unix)]
    pub fn wait(
        &mut self,
        most: core::time::Duration,
        each: impl FnMut(Received<'_>),
    ) -> io::Result<Option<Poll<io::Result<bool>>>> {
        if self.dedicated.is_some() { Ok(None) } else { self.main.wait(&mut self.buffers, most, each) }
    }

    /// Has who waits in the kernel poll the network interface meanwhile, or not: see `busy_polling`.
    ///
    /// # Errors
    /// The system does not let us.
    #[cfg(unix)]
    pub fn set_busy_polling(&mut self, polls: bool) -> io::Result<()> {
        self.main.set_busy_polling(polls)
    }

    /// For how long who waits polls the interface, in microseconds.
    #[cfg(all(test, target_os = "linux"))]
    pub fn busy_poll(&self) -> io::Result<u32> {
        self.main.busy_poll()
    }

    /// The next that comes comes alone, which it costs less to ask for.
    #[cfg(unix)]
    pub fn expect_one(&mut self) {
        self.buffers.expect_one();
    }

    /// What is to be waited for.
    #[cfg(unix)]
    pub fn fds(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        core::iter::once(&self.main)
            .chain(self.dedicated.iter().map(|dedicated| &dedicated.socket))
            .map(Bound::fd)
    }

    /// Receives what came to the main socket before one of the peers had his own, if anything is left of that.
    fn catch_up(&mut self, each: impl FnMut(Received<'_>)) -> Option<Poll<io::Result<bool>>> {
        let dedicated = self.dedicated.as_mut().filter(|dedicated| dedicated.behind > 0)?;
        dedicated.behind -= 1;
        // What the runtime knows of it may be out of date.
        match self.main.try_receive(&mut self.buffers, each) {
            Poll::Pending => {
                dedicated.behind = 0;
                None
            }
            received => Some(received.map_ok(|_| true)),
        }
    }

    /// Receives by both sockets.
    fn receive(
        &mut self,
        mut receive: impl FnMut(&mut Bound, &mut Buffers) -> Poll<io::Result<bool>>,
    ) -> Poll<io::Result<bool>> {
        let received = receive(&mut self.main, &mut self.buffers);
        let Some(dedicated) = &mut self.dedicated else { return received };
        let has_more = match received {
            Poll::Ready(Err(_)) => return received,
            Poll::Ready(Ok(has_more)) => has_more,
            Poll::Pending => false,
        };
        match receive(&mut dedicated.socket, &mut self.buffers) {
            Poll::Pending => received,
            Poll::Ready(more) => Poll::Ready(more.map(|more| more || has_more)),
        }
    }

    /// Nobody is to be woken by what arrives, until the socket is watched: to wake costs who sends it.
    pub fn unwatch(&mut self) {
        self.each().for_each(Bound::unwatch);
    }

    /// Has the task woken by what arrives; says whether something may have already.
    pub fn watch(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut has_more = false;
        for socket in self.each() {
            has_more |= socket.watch(cx)?;
        }
        Ok(has_more)
    }

    /// Whether the task is woken by anything that arrives.
    pub fn is_watched(&mut self) -> bool {
        self.each().any(|socket| socket.is_watched())
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Bound> {
        core::iter::once(&mut self.main)
            .chain(self.dedicated.iter_mut().map(|dedicated| &mut dedicated.socket))
    }

    /// Sends what the kernel takes at once of a batch: says how many bytes of it are done with.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, batch: &Batch<'_>) -> Poll<io::Result<usize>> {
        let segment_bytes = batch.segment_bytes.max(1);
        let segments = self.segments_max().min(BATCH_BYTES_MAX / segment_bytes).max(1);
        let contents = &batch.contents[..batch.contents.len().min(segments.saturating_mul(segment_bytes))];
        let transmit = quinn_udp::Transmit {
            destination: batch.remote,
            ecn: batch.ecn.map(to_codepoint),
            contents,
            segment_size: (contents.len() > segment_bytes).then_some(segment_bytes),
            src_ip: batch.local,
        };
        self.main.poll_send(cx, &transmit).map_ok(|()| contents.len())
    }

    /// The one peer that errors of this socket are about, if it has only one.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.main.peer()
    }
}

fn to_codepoint(ecn: Ecn) -> EcnCodepoint {
    match ecn {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::Ce => EcnCodepoint::Ce,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::task::Waker;
    use std::future::poll_fn;

    /// A batch arrives as the datagrams that it was made of, with its mark, whatever the kernel does to it on the way.
    #[tokio::test]
    async fn batches_arrive_as_datagrams() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let any: SocketAddr = any.parse().expect("an address");
            let Ok(mut receiver) = Socket::bind(any, None, Host::Runtime) else { continue };
            let to = receiver.local_addr().expect("bound");
            let mut sender = Socket::bind(any, Some(to), Host::Runtime).expect("bound");
            let contents: Vec<u8> = (0..100 * 1000 + 500).map(|n| (n / 1000) as u8).collect();
            let mut sent = 0;
            while sent < contents.len() {
                let batch = Batch {
                    local: None,
                    remote: to,
                    ecn: Some(Ecn::Ect0),
                    segment_bytes: 1000,
                    contents: &contents[sent..],
                };
                sent += poll_fn(|cx| sender.poll_send(cx, &batch)).await.expect("sent");
            }
            let mut datagrams: Vec<Vec<u8>> = Vec::new();
            while datagrams.len() < 101 {
                poll_fn(|cx| {
                    receiver.poll_receive(cx, |received| {
                        assert_eq!(received.ecn, Some(Ecn::Ect0));
                        assert_eq!(received.remote.port(), sender.local_addr().expect("bound").port());
                        datagrams.extend(received.contents.chunks(received.stride).map(<[u8]>::to_vec));
                    })
                })
                .await
                .expect("received");
            }
            assert_eq!(datagrams.concat(), contents);
            assert!(datagrams[..100].iter().all(|d| d.len() == 1000));
        }
    }

    /// The kernel says to which of its addresses a datagram came only where there are several: that costs.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[tokio::test]
    async fn the_kernel_tells_destinations_only_to_who_has_many_addresses() {
        for (bound, is_told) in
            [("127.0.0.1:0", false), ("0.0.0.0:0", true), ("[::1]:0", false), ("[::]:0", true)]
        {
            let bound: SocketAddr = bound.parse().expect("an address");
            let Ok(mut receiver) = Socket::bind(bound, None, Host::Runtime) else { continue };
            let here: IpAddr =
                if bound.is_ipv4() { [127, 0, 0, 1].into() } else { "::1".parse().expect("one") };
            let remote = SocketAddr::new(here, receiver.local_addr().expect("bound").port());
            let mut sender =
                Socket::bind(SocketAddr::new(here, 0), Some(remote), Host::Runtime).expect("bound");
            let batch = Batch { local: None, remote, ecn: None, segment_bytes: 4, contents: b"ping" };
            poll_fn(|cx| sender.poll_send(cx, &batch)).await.expect("sent");
            let mut local = None;
            poll_fn(|cx| receiver.poll_receive(cx, |received| local = received.local))
                .await
                .expect("received");
            assert_eq!(local, is_told.then_some(here), "{bound}");
            assert_eq!(receiver.buffers.destination(0), local, "{bound}");
        }
    }

    /// Sends a datagram that says `n`.
    fn say(from: &mut Socket, remote: SocketAddr, n: u32) {
        let contents = &n.to_be_bytes();
        let batch = Batch { remote, local: None, ecn: None, segment_bytes: 4, contents };
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(matches!(from.poll_send(cx, &batch), Poll::Ready(Ok(4))));
    }

    /// Waits for something to arrive; says from whom, to which address, and what.
    async fn hear(receiver: &mut Socket) -> Vec<(SocketAddr, Option<IpAddr>, u32)> {
        let mut heard = Vec::new();
        poll_fn(|cx| {
            if receiver.watch(cx)? {
                cx.waker().wake_by_ref();
            }
            receiver.poll_receive(cx, |Received { remote, local, contents, .. }| {
                let all = contents.chunks(4).map(|n| u32::from_be_bytes(n.try_into().expect("four")));
                heard.extend(all.map(|n| (remote, local, n)));
            })
        })
        .await
        .expect("received");
        heard
    }

    /// One of two peers has a socket of his own from some time on: of neither anything is lost or overtaken, or seems to come to
    /// another address.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_peer_has_a_socket_of_his_own() {
        // What one call takes, several times, before and after.
        const SAID: u32 = 80;
        for (bound, here) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("0.0.0.0:0", "127.0.0.1:0"),
            ("[::1]:0", "[::1]:0"),
            ("[::]:0", "[::1]:0"),
            ("[::]:0", "127.0.0.1:0"),
        ] {
            let mut here: SocketAddr = here.parse().expect("an address");
            let Ok(mut receiver) = Socket::bind(bound.parse().expect("an address"), None, Host::Runtime)
            else {
                continue;
            };
            let mut to = receiver.local_addr().expect("bound");
            to.set_ip(here.ip());
            let mut peers = [(); 2].map(|()| Socket::bind(here, Some(to), Host::Runtime).expect("bound"));
            peers.iter_mut().for_each(|peer| say(peer, to, 0));
            let mut heard = hear(&mut receiver).await;
            (1..SAID).for_each(|n| peers.iter_mut().for_each(|peer| say(peer, to, n)));
            let (remote, local, _) = heard[0];
            receiver.dedicate(remote, local).expect("a socket");
            (SAID..2 * SAID).for_each(|n| peers.iter_mut().for_each(|peer| say(peer, to, n)));
            while heard.len() < 4 * SAID as usize {
                heard.extend(hear(&mut receiver).await);
            }
            assert_eq!(receiver.dedicated(), Some(remote));
            for peer in peers {
                here.set_port(peer.local_addr().expect("bound").port());
                let of = heard.iter().filter(|(remote, ..)| remote.port() == here.port());
                let all = (0..2 * SAID).collect::<Vec<_>>();
                assert_eq!(of.clone().map(|(.., n)| *n).collect::<Vec<_>>(), all, "{bound} {here}");
                assert!(of.clone().all(|(.., to, _)| *to == local), "{bound} {here}");
            }
        }
    }

    /// Who floods the main socket does not keep a peer from being heard that has his own.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_flood_delays_who_has_a_socket_of_his_own_but_for_a_while() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let mut receiver = Socket::bind(any, None, Host::Runtime).expect("bound");
        let to = receiver.local_addr().expect("bound");
        let [mut peer, mut flood] =
            [(); 2].map(|()| Socket::bind(any, Some(to), Host::Runtime).expect("bound"));
        receiver.dedicate(peer.local_addr().expect("bound"), None).expect("a socket");
        say(&mut peer, to, 7);
        let mut looks = 0;
        let mut is_heard = false;
        while !is_heard && looks <= BEHIND_MAX {
            (0..40).for_each(|_| say(&mut flood, to, 0));
            let more = receiver.try_receive(|received| is_heard |= received.contents == 7_u32.to_be_bytes());
            assert!(matches!(more, Poll::Ready(Ok(true))), "the main socket is full");
            looks += 1;
        }
        assert!(is_heard, "not within {looks} looks");
    }

    /// Who goes to sleep before he has read from it is woken by what comes to it, which does not come to the main one.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_socket_of_a_peer_is_watched() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let mut receiver = Socket::bind(any, None, Host::Runtime).expect("bound");
        let to = receiver.local_addr().expect("bound");
        let mut peer = Socket::bind(any, Some(to), Host::Runtime).expect("bound");
        receiver.dedicate(peer.local_addr().expect("bound"), None).expect("a socket");
        let mut sleeps = false;
        let sleep = poll_fn(|cx| {
            if core::mem::replace(&mut sleeps, true) {
                return Poll::Ready(());
            }
            assert!(!receiver.watch(cx).expect("watched"));
            say(&mut peer, to, 7);
            Poll::Pending
        });
        tokio::select! {
            biased;
            () = tokio::time::sleep(core::time::Duration::from_secs(60)) => panic!("nobody was woken"),
            () = sleep => {}
        }
        assert!(receiver.main.try_receive(&mut receiver.buffers, |_| ()).is_pending());
        assert_eq!(hear(&mut receiver).await.len(), 1);
    }

    /// Neither while there are two sockets, nor afterwards, nor if the second was refused.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn nobody_else_may_share_the_address() {
        let any: SocketAddr = "0.0.0.0:0".parse().expect("an address");
        let mut receiver = Socket::bind(any, None, Host::Runtime).expect("bound");
        let address = receiver.local_addr().expect("bound");
        let (here, elsewhere) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([192, 0, 2, 1]));
        let peer = SocketAddr::new(here, 9);
        for (local, is_granted) in [(None, false), (Some(elsewhere), false), (Some(here), true)] {
            assert_eq!(receiver.dedicate(peer, local).is_ok(), is_granted);
            for is_released in [false, true] {
                receiver.release_unless(|_| !is_released);
                assert_eq!(receiver.dedicated().is_some(), is_granted && !is_released);
                let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None);
                let other = other.expect("a socket");
                other.set_reuse_address(true).expect("set");
                let refused = other.bind(&address.into()).expect_err("in use");
                assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
            }
        }
    }

    #[tokio::test]
    async fn a_connected_socket_hears_of_a_closed_port() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let closed = Socket::bind(any, None, Host::Runtime).expect("bound").local_addr().expect("bound");
        let mut socket = Socket::bind(any, Some(closed), Host::Runtime).expect("bound");
        let batch = Batch { remote: closed, local: None, ecn: None, segment_bytes: 4, contents: b"ping" };
        let error = loop {
            if let Err(error) = poll_fn(|cx| socket.poll_send(cx, &batch)).await {
                break error;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
