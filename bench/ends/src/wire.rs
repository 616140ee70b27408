//! A UDP socket for transports that leave it to their user: many packets a call, both ways, in a
//! thread that sleeps where it waits.

use crate::{PACKET_BYTES, SOCKET_BUFFER_BYTES};
use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

/// What the kernel joins at most.
const JOINED_BYTES: usize = 64 << 10;

/// What a datagram holds at most, over IPv4.
const DATAGRAM_BYTES: usize = 65_507;

/// The socket.
pub struct Wire {
    socket: UdpSocket,
    state: UdpSocketState,
    /// Where it is.
    pub local: SocketAddr,
    inbox: Vec<Vec<u8>>,
    outbox: Vec<u8>,
}

impl Wire {
    /// One at this address, with a port of its own.
    pub fn bind(ip: IpAddr) -> Result<Self> {
        let addr = SocketAddr::new(ip, 0);
        let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, None)?;
        socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
        socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
        socket.bind(&addr.into())?;
        let socket = UdpSocket::from(socket);
        let state = UdpSocketState::new((&socket).into()).context("UDP segmentation offload")?;
        let (local, inbox) = (socket.local_addr()?, vec![vec![0; JOINED_BYTES]; BATCH_SIZE]);
        Ok(Wire { socket, state, local, inbox, outbox: vec![0; DATAGRAM_BYTES + PACKET_BYTES] })
    }

    /// Hands over the packets that have arrived, and waits for the first of them for so long
    /// (`None` = until one comes). Says whether there were any.
    pub fn receive(
        &mut self,
        patience: Option<Duration>,
        mut take: impl FnMut(&mut [u8], SocketAddr) -> Result<()>,
    ) -> Result<bool> {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut has_waited = patience.is_some_and(|patience| patience.is_zero());
        let count = loop {
            let mut slices = self.inbox.iter_mut().map(|bytes| IoSliceMut::new(bytes));
            let mut slices: [IoSliceMut; BATCH_SIZE] =
                std::array::from_fn(|_| slices.next().expect("as many"));
            match self.state.recv((&self.socket).into(), &mut slices, &mut metas) {
                Ok(count) => break count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && has_waited => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::POLLIN, patience)?;
                    has_waited = true;
                }
                Err(e) => return Err(e.into()),
            }
        };
        for (meta, bytes) in metas.iter().zip(&mut self.inbox).take(count) {
            for packet in bytes[..meta.len].chunks_mut(meta.stride.max(1)) {
                take(packet, meta.addr)?;
            }
        }
        Ok(true)
    }

    /// Sends packets that `next` writes until it has no more. Those of one length and receiver
    /// share a call, and a shorter one may end it.
    pub fn send(
        &mut self,
        mut next: impl FnMut(&mut [u8]) -> Result<Option<(usize, SocketAddr)>>,
    ) -> Result<()> {
        let segments_max = self.state.max_gso_segments();
        let (mut begin, mut end) = (0, 0);
        let mut first: Option<(usize, SocketAddr)> = None;
        while let Some((bytes, to)) = next(&mut self.outbox[end..end + PACKET_BYTES])? {
            let (length, receiver) = *first.get_or_insert((bytes, to));
            if bytes > length || to != receiver {
                self.transmit(begin, end, length, receiver)?;
                (begin, first) = (end, Some((bytes, to)));
            }
            end += bytes;
            let (length, receiver) = first.unwrap_or((bytes, to));
            let is_last = bytes < length || end - begin >= segments_max * length;
            if is_last || end + PACKET_BYTES > DATAGRAM_BYTES {
                self.transmit(begin, end, length, receiver)?;
                (begin, end, first) = (0, 0, None);
            }
        }
        first.map_or(Ok(()), |(length, to)| self.transmit(begin, end, length, to))
    }

    fn transmit(&self, begin: usize, end: usize, length: usize, destination: SocketAddr) -> Result<()> {
        let contents = &self.outbox[begin..end];
        let segment_size = (contents.len() > length).then_some(length);
        let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip: None };
        loop {
            match self.state.try_send((&self.socket).into(), &transmit) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::POLLOUT, None)?,
                other => return Ok(other?),
            }
        }
    }

    fn wait(&self, events: PollFlags, patience: Option<Duration>) -> Result<()> {
        let mut sockets = [PollFd::new(self.socket.as_fd(), events)];
        ppoll(&mut sockets, patience.map(TimeSpec::from_duration), None)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Packets of all lengths, in any order and for two receivers, arrive as they were written.
    #[test]
    fn packets_that_share_calls_arrive_one_by_one() -> Result<()> {
        let ip = Ipv4Addr::LOCALHOST.into();
        let (mut from, mut a, mut b) = (Wire::bind(ip)?, Wire::bind(ip)?, Wire::bind(ip)?);
        let receivers = [a.local, b.local];
        let lengths: Vec<usize> =
            [vec![PACKET_BYTES; 60], vec![100, 100, 1200, 1], vec![90; 70], vec![7, PACKET_BYTES]].concat();
        for (turn, to) in [(0, 0), (1, 1), (2, 2)] {
            // The third turn has both by turns.
            let receiver = |i: usize| receivers[if to == 2 { i % 2 } else { to }];
            let mut sent = lengths.iter().enumerate();
            from.send(|packet| {
                Ok(sent.next().map(|(i, &bytes)| {
                    packet[..bytes].fill((i + turn) as u8);
                    (bytes, receiver(i))
                }))
            })?;
            for (wire, at) in [(&mut a, receivers[0]), (&mut b, receivers[1])] {
                let mut got = Vec::new();
                while wire.receive(Some(Duration::from_millis(20)), |packet, _| {
                    assert!(packet.iter().all(|byte| *byte == packet[0]));
                    got.push((packet.len(), packet[0]));
                    Ok(())
                })? {}
                let expected: Vec<(usize, u8)> = lengths
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| receiver(*i) == at)
                    .map(|(i, &bytes)| (bytes, (i + turn) as u8))
                    .collect();
                assert_eq!(got, expected, "turn {turn}");
            }
        }
        Ok(())
    }
}
