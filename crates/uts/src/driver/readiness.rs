//! When a UDP socket may be read, and when it may be written.
//!
//! Nearly always it may be written. To be told so costs: the kernel reports room for each datagram that has left, so that who wants to sleep
//! until an answer comes is woken for nothing. So the runtime is asked for room only while there is none.

pub(super) use imp::Readiness;
#[cfg(target_os = "linux")]
pub(super) use imp::watch;

#[cfg(unix)]
mod imp {
    use core::task::{Context, Poll};
    use quinn_udp::UdpSockRef;
    use socket2::Socket;
    use std::io;
    use std::net::SocketAddr;
    use std::os::fd::{AsRawFd, OwnedFd};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A socket that the runtime watches.
    pub struct Readiness {
        socket: AsyncFd<Socket>,
        /// The same socket, watched until it takes something again.
        full: Option<AsyncFd<Socket>>,
    }

    impl Readiness {
        /// Watches a socket that does not block.
        pub fn new(socket: Socket) -> io::Result<Self> {
            Ok(Readiness { socket: watch(socket, Interest::READABLE)?, full: None })
        }

        pub fn socket(&self) -> UdpSockRef<'_> {
            self.socket.get_ref().into()
        }

        pub fn local_addr(&self) -> io::Result<SocketAddr> {
            self.socket.get_ref().local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable.into())
        }

        /// Ready if there may be something to read; else the task is woken once there is.
        pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.socket.poll_read_ready(cx).map_ok(drop)
        }

        /// Reads by `read`, which says `WouldBlock` if there is no more.
        pub fn read<T>(&self, read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
            self.socket.try_io(Interest::READABLE, |_| read())
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
                    self.full = Some(watch(self.socket.get_ref().try_clone()?, Interest::WRITABLE)?);
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
        // Deprecated because it accepts types that do not own their descriptor, or change it. The function that replaces it is
        // unsafe, which this crate forbids.
        #[allow(deprecated, reason = "sound for what owns its descriptor")]
        AsyncFd::with_interest(fd, interest)
    }
}

#[cfg(not(unix))]
mod imp {
    use core::task::{Context, Poll};
    use quinn_udp::UdpSockRef;
    use socket2::Socket;
    use std::io;
    use std::net::SocketAddr;
    use tokio::io::Interest;
    use tokio::net::UdpSocket;

    pub struct Readiness(UdpSocket);

    impl Readiness {
        pub fn new(socket: Socket) -> io::Result<Self> {
            UdpSocket::from_std(socket.into()).map(Readiness)
        }

        pub fn socket(&self) -> UdpSockRef<'_> {
            (&self.0).into()
        }

        pub fn local_addr(&self) -> io::Result<SocketAddr> {
            self.0.local_addr()
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
    use quinn_udp::{Transmit, UdpSocketState};
    use socket2::{Domain, Socket, Type};
    use std::future::poll_fn;
    use std::io;
    use std::net::SocketAddr;

    #[tokio::test]
    async fn a_full_socket_is_waited_for_and_used_again() {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("set");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("bound");
        let mut io = Readiness::new(socket).expect("watched");
        let destination = io.local_addr().expect("bound");
        let state = UdpSocketState::new(io.socket()).expect("set up");
        let transmit =
            Transmit { destination, ecn: None, contents: b"ping", segment_size: None, src_ip: None };
        for _ in 0..3 {
            poll_fn(|cx| io.poll_writable(cx)).await.expect("writable");
            // As the kernel would say if the socket's buffer were full: it is not, which shows at once.
            let full = io.write(|_| Err::<(), _>(io::ErrorKind::WouldBlock.into()));
            assert_eq!(full.expect_err("full").kind(), io::ErrorKind::WouldBlock);
            poll_fn(|cx| io.poll_writable(cx)).await.expect("writable again");
            io.write(|socket| state.try_send(socket, &transmit)).expect("sent");
            poll_fn(|cx| io.poll_readable(cx)).await.expect("readable");
            let mut buffer = [0; 16];
            let mut metas = [quinn_udp::RecvMeta::default()];
            let read =
                io.read(|| state.recv(io.socket(), &mut [io::IoSliceMut::new(&mut buffer)], &mut metas));
            assert_eq!((read.expect("read"), metas[0].len), (1, 4));
            let no_more =
                io.read(|| state.recv(io.socket(), &mut [io::IoSliceMut::new(&mut buffer)], &mut metas));
            assert_eq!(no_more.expect_err("empty").kind(), io::ErrorKind::WouldBlock);
        }
    }
}
