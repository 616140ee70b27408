//! A member of a group over sockets.

use super::join::{HAS, Told, VERSION, Welcome};
use super::{Event, sockets};
use crate::clock::Clock;
use crate::random::random_bytes;
use crate::{Connection, FlowOptions, RecvFlow, Requirements, SendFlow};
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use tokio::io::AsyncWriteExt;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uts_functions::Time;
use uts_group::seal::{Key, MemberKeys, Unreadable};
use uts_group::{DATAGRAM_BYTES_MAX, Receiver, ReceiverSettings, ReceiverStats};
use uts_units::printable::words;

/// A member of a group. It leaves when it is dropped.
#[derive(Debug)]
pub struct GroupReceiver {
    core: Receiver,
    pub(super) keys: MemberKeys,
    clock: Clock,
    group: SocketAddr,
    pub(super) socket: UdpSocket,
    asking: UdpSocket,
    /// Keys that come by the connection.
    renewals: mpsc::Receiver<Key>,
    heard: Time,
    unreadable: u64,
    datagram: Box<[u8; DATAGRAM_BYTES_MAX + 1]>,
    _task: JoinSet<()>,
}

/// Time that the sender may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Time without anything that can be read, after which a member is none any more: a sender that
/// has nothing to send says so each second.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Keys that wait to be taken.
const KEYS_MAX: usize = 4;

impl GroupReceiver {
    /// Becomes a member of the group whose sender is at the other end of a connection with the
    /// service [`SERVICE`](super::SERVICE). Messages are handed over at the age `latency`, beyond
    /// the quickest way; without one as soon as those before have come, or are given up by the
    /// sender. The first is the next one that the sender is handed, though it be lost on the way.
    ///
    /// # Errors
    /// The sender does not answer, or what it says cannot be; the system gives no socket in the
    /// group.
    pub async fn join(connection: &Connection, latency: Option<Duration>) -> io::Result<GroupReceiver> {
        let flow = connection.open_flow(FlowOptions::requiring(Requirements::bulk())).await;
        let (mut send, mut recv) = flow.map_err(io::Error::other)?.split();
        send.write_all(&[VERSION]).await?;
        send.flush().await?;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the sender of the group does not answer");
        let told = timeout(ANSWER_MAX, Told::read(&mut recv)).await.map_err(late)??;
        let Some(Told::Welcome(welcome)) = told else {
            let why = "the sender of the group lets nobody in: it ended the flow, or gave a key first";
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, why));
        };
        let gone = || io::Error::new(io::ErrorKind::NotConnected, "the connection has ended");
        let remote = connection.remote_addr().ok_or_else(gone)?;
        Self::begin(connection, *welcome, remote, latency, (send, recv))
    }

    fn begin(
        connection: &Connection,
        welcome: Welcome,
        remote: SocketAddr,
        latency: Option<Duration>,
        (send, recv): (SendFlow, RecvFlow),
    ) -> io::Result<GroupReceiver> {
        let in_group = |error: io::Error| {
            let why = format!("cannot join the group at {}: {}", welcome.address, words(&error));
            io::Error::new(error.kind(), why)
        };
        let asking = sockets::asking(SocketAddr::new(remote.ip(), welcome.requests))?;
        // The way to the sender is the network that the group is heard by.
        let socket = sockets::receiving(welcome.address, asking.local_addr()?.ip()).map_err(in_group)?;
        let (renewed, renewals) = mpsc::channel(KEYS_MAX);
        let mut task = JoinSet::new();
        let connection = connection.clone();
        task.spawn(async move {
            tokio::select! {
                _ = take_keys(send, recv, renewed) => {}
                _ = connection.closed() => {}
            }
        });
        let Welcome { group, member, secret, public, key, first, sources, answers, .. } = welcome;
        let settings =
            ReceiverSettings { sources: sources.into(), answers, latency, ..ReceiverSettings::default() };
        let clock = Clock::start();
        Ok(GroupReceiver {
            core: Receiver::new(settings, first, u64::from_be_bytes(random_bytes()?)),
            keys: MemberKeys::new(group, member, &secret, public, key),
            heard: clock.now(),
            clock,
            group: welcome.address,
            socket,
            asking,
            renewals,
            unreadable: 0,
            datagram: Box::new([0; DATAGRAM_BYTES_MAX + 1]),
            _task: task,
        })
    }

    /// Address of the group.
    pub fn group(&self) -> SocketAddr {
        self.group
    }

    /// Counts so far.
    pub fn stats(&self) -> ReceiverStats {
        self.core.stats()
    }

    /// Datagrams at the port of the group that were not the sender's, or could not be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Changes the age at which messages are handed over.
    pub fn set_latency(&mut self, latency: Option<Duration>) {
        self.core.set_latency(latency);
    }

    /// Waits for the next message, or for word that some are missing, or that nothing follows.
    /// Nothing is lost if the wait is given up.
    ///
    /// # Errors
    /// The connection to the sender has ended, or nothing was heard of the group for ten seconds.
    pub async fn next(&mut self) -> io::Result<Event> {
        loop {
            let now = self.clock.now();
            if let Some(event) = self.core.poll_event(now) {
                return Ok(event);
            }
            if let Some(request) = self.core.poll_request(now) {
                // A request that is lost is made again.
                let _ = self.asking.try_send(&self.keys.seal(&request));
            }
            if now.since(self.heard) > SILENCE_MAX {
                let why = format!("nothing was heard of the group at {} for 10 s", self.group);
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            let wait = self.core.next_timeout(now).since(now).min(Duration::from_secs(1));
            tokio::select! {
                biased;
                key = self.renewals.recv() => match key {
                    Some(key) => self.keys.add(key),
                    None => {
                        let why = "the connection to the sender of the group has ended";
                        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
                    }
                },
                came = self.socket.recv_from(&mut self.datagram[..]) => {
                    if let Ok((bytes, _)) = came {
                        self.on_datagram(bytes);
                    }
                }
                () = sleep(wait) => {}
            }
        }
    }

    fn on_datagram(&mut self, bytes: usize) {
        let mut opened = self.keys.open(&self.datagram[..bytes]);
        // Its key may have come just before.
        while let Err(Unreadable::NoKey { .. }) = opened
            && let Ok(key) = self.renewals.try_recv()
        {
            self.keys.add(key);
            opened = self.keys.open(&self.datagram[..bytes]);
        }
        match opened {
            Ok((number, packet)) => {
                self.heard = self.clock.now();
                self.core.handle(self.heard, number, packet);
            }
            Err(_) => self.unreadable += 1,
        }
    }
}

/// Takes the keys that the sender gives, and says so, until one of the ends goes. (G-24)
async fn take_keys(mut send: SendFlow, mut recv: RecvFlow, renewed: mpsc::Sender<Key>) -> io::Result<()> {
    while let Some(told) = Told::read(&mut recv).await? {
        let Told::Key(key) = told else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the sender welcomes a member twice"));
        };
        let [high, low] = key.generation.to_be_bytes();
        if renewed.send(key).await.is_err() {
            break;
        }
        send.write_all(&[HAS, high, low]).await?;
        send.flush().await?;
    }
    Ok(())
}
