//! Whether one peer should have a socket of his own.
//!
//! For each packet that arrives the kernel looks up a route, unless it is for a socket that is connected: a tenth of what it takes,
//! which on one host its sender pays. Where interfaces coalesce packets that does not matter, and to look at one socket more costs
//! something for each look. So it pays where one peer's packets come singly, and many at a time.

use super::socket::Received;
use std::net::{IpAddr, SocketAddr};
use uts_engine::ConnectionHandle;

/// To look at another socket costs about what so many packets gain by it.
const COST: usize = 4;

/// What is to be gained before it is done, in packets.
const GAIN_MIN: usize = 4096;

/// Who sent what came of late.
#[derive(Debug)]
pub(super) struct Lone {
    sender: Option<Sender>,
    /// Of what is received at present: packets, if they are all of that sender, and came singly.
    packets: Option<usize>,
    gain: usize,
    gain_min: usize,
    /// The system refuses.
    is_vain: bool,
}

/// Who sends, to which address, and on which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub connection: ConnectionHandle,
    pub remote: SocketAddr,
    pub local: Option<IpAddr>,
}

impl Default for Lone {
    fn default() -> Self {
        Lone { sender: None, packets: None, gain: 0, gain_min: GAIN_MIN, is_vain: false }
    }
}

impl Lone {
    /// The contents of a buffer were taken in, for a connection if they were for any.
    pub fn on_received(&mut self, of: Option<ConnectionHandle>, received: &Received<'_>) {
        let &Received { remote, local, stride, .. } = received;
        let is_single = stride == received.contents.len();
        let sender = of.filter(|_| is_single).map(|connection| Sender { connection, remote, local });
        if sender.is_none() || sender != self.sender {
            (self.sender, self.gain, self.packets) = (sender, 0, None);
        }
        self.packets = self.packets.map(|packets| packets + 1);
    }

    /// That was all of one look.
    pub fn on_looked(&mut self) {
        if let Some(packets) = self.packets.replace(0) {
            self.gain = (self.gain + packets).saturating_sub(COST);
        }
    }

    /// Whose packets come singly and many at a time; who has been found has to be found anew.
    pub fn found(&mut self) -> Option<Sender> {
        if self.gain < self.gain_min || self.is_vain {
            return None;
        }
        self.gain = 0;
        self.sender
    }

    /// The system will not have it.
    pub fn give_up(&mut self) {
        self.is_vain = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Host;
    use crate::driver::Shared;
    use crate::{ClientAuth, ConnectOptions, FlowOptions, Identity, connect, tls};
    use bytes::Bytes;
    use core::future::Future;
    use core::pin::Pin;
    use core::task::Poll;
    use core::time::Duration;
    use std::future::poll_fn;
    use uts_engine::EndpointConfig;

    const STREAM: (u64, u16, usize) = (1, 4433, 1);

    /// Receives so many looks of buffers, each of a connection (0 = none), from a port, with so many datagrams.
    fn found(looks: usize, buffers: &[(u64, u16, usize)]) -> Option<(u64, u16)> {
        let mut lone = Lone::default();
        (0..looks).find_map(|_| {
            for &(of, port, datagrams) in buffers {
                let mut contents = vec![0; 100 * datagrams];
                let remote = SocketAddr::from(([10, 0, 0, 1], port));
                let received =
                    Received { remote, local: None, ecn: None, stride: 100, contents: &mut contents };
                lone.on_received((of > 0).then_some(ConnectionHandle(of)), &received);
            }
            lone.on_looked();
            lone.found().map(|sender| (sender.connection.0, sender.remote.port()))
        })
    }

    #[test]
    fn whose_packets_come_singly_and_many_at_a_time_is_found() {
        assert_eq!(found(147, &[STREAM; 32]), None);
        assert_eq!(found(150, &[STREAM; 32]), Some((1, 4433)));
        assert_eq!(found(5000, &[STREAM; 5]), Some((1, 4433)));
    }

    #[test]
    fn nobody_is_found_where_it_would_not_pay() {
        for (what, buffers) in [
            ("a packet at a time", [STREAM].as_slice()),
            ("coalesced", &[(1, 4433, 44); 8]),
            ("now and then coalesced", &[[STREAM; 32].as_slice(), &[(1, 4433, 2)]].concat()),
            ("two peers", &[[STREAM; 32], [(2, 4434, 1); 32]].concat()),
            ("strangers", &[(0, 4433, 1); 32]),
            ("a stranger now and then", &[[STREAM; 32].as_slice(), &[(0, 4434, 1)]].concat()),
        ] {
            assert_eq!(found(10_000, buffers), None, "{what}");
        }
    }

    #[test]
    fn who_was_refused_does_not_try_again() {
        let mut lone = Lone { gain: GAIN_MIN, ..Lone::default() };
        lone.give_up();
        assert_eq!(lone.found(), None);
    }

    /// For as long as he has connections, and what he sends is received.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn who_is_found_has_a_socket_of_his_own() {
        let identity = Identity::generate().expect("a key");
        let tls = tls::server(&identity, &ClientAuth::None, None).expect("settings");
        let config = EndpointConfig { server: Some(tls), ..EndpointConfig::default() };
        let any = "127.0.0.1:0".parse().expect("an address");
        let (shared, mut task) =
            Shared::bind(Host::Runtime, any, None, config, Duration::ZERO).expect("bound");
        // Over loopback all is coalesced but what is sent alone: the first will do.
        task.lone.gain_min = 0;
        let to = shared.local_addr.to_string();
        let client = async {
            let options = ConnectOptions::pinned(identity.fingerprint());
            let connection = connect(&to, options).await.expect("connected");
            for _ in 0..10 {
                let (mut flow, _) =
                    connection.open_flow(FlowOptions::default()).await.expect("opened").split();
                flow.write_bytes(Bytes::from_static(b"alone")).await.expect("written");
                flow.finish().expect("finished");
                flow.finished().await.expect("acknowledged");
            }
            let address = connection.local_addr();
            connection.close(0, "").await;
            // Nobody has accepted it.
            shared.act(|inner, now| {
                let accepted = inner.accepted.pop_front().expect("to be accepted");
                inner.adopt(accepted);
                inner.disown(now, accepted);
            });
            address
        };
        let mut dedicated = None;
        let server = poll_fn(|cx| {
            assert!(Pin::new(&mut task).poll(cx).is_pending());
            match task.socket.dedicated() {
                None if dedicated.is_some() => return Poll::Ready(dedicated),
                Some(remote) if dedicated.is_none() => {
                    // Not before he has proved who he is.
                    assert!(!shared.lock().accepted.is_empty());
                    dedicated = Some(remote);
                }
                _ => {}
            }
            Poll::Pending
        });
        let both = async { tokio::join!(client, server) };
        let (client, served) =
            tokio::time::timeout(Duration::from_secs(60), both).await.expect("received, and released");
        assert_eq!(served, Some(client));
    }
}
