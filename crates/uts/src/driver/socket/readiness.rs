//! When a UDP socket may be read, and when it may be written.
//!
//! Nearly always it may be written. To be told so costs: the kernel reports room for each datagram
//! that has left, and wakes for nothing a task that sleeps until a response comes. So the runtime
//! is asked for room only while there is none.
//!
//! To have the socket watched at all costs, too: each arrival and each departure is told to the
//! reactor, by the sender of the one and after each packet of the other. So an endpoint that does
//! not sleep has the runtime look away. A thread that carries its endpoints needs no runtime: it
//! waits in the kernel.

pub(super) use imp::Readiness;
#[cfg(target_os = "linux")]
pub(crate) use imp::watch;

#[cfg(unix)]
mod imp {
    use crate::driver::Host;
    use core::task::{Context, Poll};
    use quinn_udp::UdpSockRef;
    use rustix::event::{PollFd, PollFlags, poll};
    use socket2::Socket;
    use std::io;
    use std::net::SocketAddr;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A socket that the runtime watches, if it has one.
    pub struct Readiness {
        socket: Socket,
        host: Host,
        /// The same socket, watched until there is something to read.
        watched: Option<AsyncFd<Socket>>,
        /// The same socket, for when it is to be watched again.
        unwatched: Option<Socket>,
        /// The same socket, watched until it takes something again.
        full: Option<AsyncFd<Socket>>,
    }

    impl Readiness {
        /// A socket that does not block, and that nobody watches yet.
        #[allow(clippy::unnecessary_wraps, reason = "as elsewhere")]
        pub fn new(socket: Socket, host: Host) -> io::Result<Self> {
            Ok(Readiness { socket, host, watched: None, unwatched: None, full: None })
        }

        /// Descriptor that a thread waits for in the kernel.
        pub fn fd(&self) -> BorrowedFd<'_> {
            self.socket.as_fd()
        }

        /// Has calls block until they have something, or end at once.
        pub fn set_blocking(&self, blocks: bool) -> io::Result<()> {
            self.socket.set_nonblocking(!blocks)
        }

        /// For how long calls that receive block.
        pub fn set_timeout(&self, timeout: core::time::Duration) -> io::Result<()> {
            self.socket.set_read_timeout(Some(timeout))
        }

        /// For how long calls that block poll the network interface before they sleep.
        pub fn set_busy_poll(&self, most: core::time::Duration) -> io::Result<()> {
            #[cfg(target_os = "linux")]
            return self.socket.set_busy_poll(u32::try_from(most.as_micros()).unwrap_or(u32::MAX));
            #[cfg(not(target_os = "linux"))]
            Err(io::ErrorKind::Unsupported.into())
        }

        pub fn socket(&self) -> UdpSockRef<'_> {
            (&self.socket).into()
        }

        /// The socket as such.
        pub fn plain(&self) -> &Socket {
            &self.socket
        }

        pub fn local_addr(&self) -> io::Result<SocketAddr> {
            self.socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable.into())
        }

        /// True if the runtime watches; else no task is woken.
        pub fn is_watched(&self) -> bool {
            self.watched.is_some()
        }

        /// Has the runtime look away.
        pub fn unwatch(&mut self) {
            if let Some(watched) = self.watched.take() {
                self.unwatched = Some(watched.into_inner());
            }
        }

        /// Has the runtime watch again, which notices what is there already.
        pub fn watch(&mut self) -> io::Result<()> {
            if self.watched.is_none() {
                let socket = self.unwatched.take().map_or_else(|| self.socket.try_clone(), Ok)?;
                self.watched = Some(watch(socket, Interest::READABLE)?);
            }
            Ok(())
        }

        /// Ready if there may be something to read, or the runtime does not watch; else the task is
        /// woken once there is.
        pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            match &self.watched {
                None => Poll::Ready(Ok(())),
                Some(watched) => watched.poll_read_ready(cx).map_ok(drop),
            }
        }

        /// Reads by `read`, which says `WouldBlock` if there is no more.
        pub fn read<T>(&self, read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
            match &self.watched {
                None => read(),
                Some(watched) => watched.try_io(Interest::READABLE, |_| read()),
            }
        }

        /// Ready if something may be written; else the task is woken once it may.
        pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            match &self.full {
                None => Poll::Ready(Ok(())),
                Some(full) => full.poll_write_ready(cx).map_ok(drop),
            }
        }

        /// Writes by `write`, which says `WouldBlock` if there is no room.
        pub fn write<T>(&mut self, write: impl FnOnce(UdpSockRef<'_>) -> io::Result<T>) -> io::Result<T> {
            let Some(full) = &self.full else {
                let written = write(self.socket());
                if written.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
                    match self.host {
                        Host::Runtime => {
                            self.full = Some(watch(self.socket.try_clone()?, Interest::WRITABLE)?);
                        }
                        // What fills it leaves without help. A wait that is interrupted is tried
                        // again.
                        Host::Thread => {
                            let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], None);
                        }
                    }
                }
                return written;
            };
            let written = full.try_io(Interest::WRITABLE, |socket| write(socket.into()));
            if written.is_ok() {
                self.full = None;
            }
            written
        }
    }

    /// Has the runtime watch what owns its descriptor, and never changes it.
    pub fn watch<T: AsRawFd + Into<OwnedFd>>(fd: T, interest: Interest) -> io::Result<AsyncFd<T>> {
        // Deprecated because it accepts types that do not own their descriptor, or change it. The
        // function that replaces it is unsafe, which this crate forbids.
        #[allow(deprecated, reason = "sound for what owns its descriptor")]
        AsyncFd::with_interest(fd, interest)
    }
}

#[cfg(not(unix))]
mod imp {
    use crate::driver::Host;
    use core::task::{Context, Poll};
    use quinn_udp::UdpSockRef;
    use socket2::Socket;
    use std::io;
    use std::net::SocketAddr;
    use tokio::io::Interest;
    use tokio::net::UdpSocket;

    pub struct Readiness(UdpSocket);

    impl Readiness {
        pub fn new(socket: Socket, _: Host) -> io::Result<Self> {
            UdpSocket::from_std(socket.into()).map(Readiness)
        }

        pub fn socket(&self) -> UdpSockRef<'_> {
            (&self.0).into()
        }

        pub fn local_addr(&self) -> io::Result<SocketAddr> {
            self.0.local_addr()
        }

        pub fn is_watched(&self) -> bool {
            true
        }

        /// Whatever is not read is told by the system all the same.
        pub fn unwatch(&mut self) {}

        pub fn watch(&mut self) -> io::Result<()> {
            Ok(())
        }

        pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0.poll_recv_ready(cx)
        }

        pub fn read<T>(&self, read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
            self.0.try_io(Interest::READABLE, read)
        }

        pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.0.poll_send_ready(cx)
        }

        pub fn write<T>(&mut self, write: impl FnOnce(UdpSockRef<'_>) -> io::Result<T>) -> io::Result<T> {
            self.0.try_io(Interest::WRITABLE, || write((&self.0).into()))
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::driver::Host;
    use core::task::{Context, Poll, Waker};
    use quinn_udp::{Transmit, UdpSocketState};
    use socket2::{Domain, Socket, Type};
    use std::future::poll_fn;
    use std::io;
    use std::net::SocketAddr;

    fn bound() -> Readiness {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("set");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("bound");
        let mut io = Readiness::new(socket, Host::Runtime).expect("a socket");
        io.watch().expect("watched");
        io
    }

    /// A socket that sends to itself.
    struct Echo {
        io: Readiness,
        state: UdpSocketState,
    }

    impl Echo {
        fn new() -> Self {
            let io = bound();
            let state = UdpSocketState::new(io.socket()).expect("set up");
            Echo { io, state }
        }

        fn send(&mut self) {
            let destination = self.io.local_addr().expect("bound");
            let transmit =
                Transmit { destination, ecn: None, contents: b"ping", segment_size: None, src_ip: None };
            self.io.write(|socket| self.state.try_send(socket, &transmit)).expect("sent");
        }

        /// Reads what is there: one datagram.
        fn read_all(&mut self) {
            let (io, mut buffer, mut metas) = (&self.io, [0; 16], [quinn_udp::RecvMeta::default()]);
            let mut read = || {
                io.read(|| self.state.recv(io.socket(), &mut [io::IoSliceMut::new(&mut buffer)], &mut metas))
            };
            assert_eq!(read().expect("read"), 1);
            assert_eq!(read().expect_err("empty").kind(), io::ErrorKind::WouldBlock);
            assert_eq!(metas[0].len, 4);
        }
    }

    #[tokio::test]
    async fn what_arrives_while_nobody_watches_is_noticed_when_it_is_watched_again() {
        let mut echo = Echo::new();
        for _ in 0..3 {
            // A task that waits already is woken once the socket is watched again, and not before.
            assert!(echo.io.poll_readable(&mut Context::from_waker(Waker::noop())).is_pending());
            echo.io.unwatch();
            assert!(!echo.io.is_watched());
            echo.send();
            let asked = echo.io.poll_readable(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(asked, Poll::Ready(Ok(()))));
            echo.io.watch().expect("watched again");
            assert!(echo.io.is_watched());
            poll_fn(|cx| echo.io.poll_readable(cx)).await.expect("readable");
            echo.read_all();
        }
    }

    #[tokio::test]
    async fn a_full_socket_is_waited_for_and_used_again() {
        let mut echo = Echo::new();
        for _ in 0..3 {
            poll_fn(|cx| echo.io.poll_writable(cx)).await.expect("writable");
            // As the kernel would say if the socket's buffer were full: it is not, which shows at
            // once.
            let full = echo.io.write(|_| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
            assert_eq!(full.expect_err("full").kind(), io::ErrorKind::WouldBlock);
            poll_fn(|cx| echo.io.poll_writable(cx)).await.expect("writable again");
            echo.send();
            poll_fn(|cx| echo.io.poll_readable(cx)).await.expect("readable");
            echo.read_all();
        }
    }
}
