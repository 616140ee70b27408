//! An endpoint under attack, and what it holds by the counting allocator. Only what its own calls
//! allocate and free counts.

use super::counting::{CALLS, HELD};
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use uts_engine::{ConnectionConfig, ConnectionHandle, Endpoint, EndpointConfig, FlowId};
use uts_functions::Time;
use uts_sim::identity::Identities;

/// The address of the server.
const SERVER: u8 = 1;
/// The address of its client; strangers have others.
pub const CLIENT: u8 = 0;

/// More than a batch of datagrams takes: the buffer does not grow while it is counted.
const BUFFER_BYTES: usize = 1 << 18;

/// The counter is the process's: tests take turns, from their first line on.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The attack's address number `host`.
pub fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

/// A server, and what it holds.
pub struct Victim {
    /// The endpoint itself; what is done to it directly does not count.
    pub endpoint: Endpoint,
    /// Time as it reads it.
    pub now: Time,
    /// Bytes held since it was made.
    pub held: isize,
    /// Most bytes held so far.
    pub peak: isize,
    /// Bytes that it has sent, and datagrams.
    pub sent: usize,
    pub datagrams: usize,
    /// Allocations that it has made: of work that data causes, what can be counted.
    pub allocations: usize,
    buffer: Vec<u8>,
}

impl Victim {
    /// A server with these settings.
    pub fn new(identities: &Identities, config: EndpointConfig) -> Self {
        let config = EndpointConfig { server: Some(identities.server.clone()), ..config };
        Victim {
            endpoint: Endpoint::new(config, [9; 32]),
            now: Time::from_millis(1),
            held: 0,
            peak: 0,
            sent: 0,
            datagrams: 0,
            allocations: 0,
            buffer: Vec::with_capacity(BUFFER_BYTES),
        }
    }

    fn count<T>(&mut self, call: impl FnOnce(&mut Endpoint, &mut Vec<u8>) -> T) -> T {
        let before = HELD.load(Ordering::Relaxed) as isize;
        let calls = CALLS.load(Ordering::Relaxed);
        let result = call(&mut self.endpoint, &mut self.buffer);
        self.allocations += CALLS.load(Ordering::Relaxed) - calls;
        self.held += HELD.load(Ordering::Relaxed) as isize - before;
        self.peak = self.peak.max(self.held);
        result
    }

    /// Takes in a datagram.
    pub fn hear(&mut self, from: SocketAddr, datagram: &[u8]) {
        let (now, mut copy) = (self.now, datagram.to_vec());
        self.count(|endpoint, _| endpoint.handle_datagram(now, from, None, &mut copy));
    }

    /// Datagrams that it sends, one by one; its application hears its events, and reads nothing.
    pub fn speak(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let now = self.now;
        let mut all = Vec::new();
        while let Some(sent) = self.count(|endpoint, buffer| endpoint.poll_transmit(now, buffer)) {
            assert!(self.buffer.capacity() == BUFFER_BYTES, "the buffer grew, and was counted");
            self.sent += self.buffer.len();
            self.datagrams += self.buffer.len().div_ceil(sent.segment_bytes.max(1));
            all.extend(self.buffer.chunks(sent.segment_bytes.max(1)).map(|d| (sent.remote, d.to_vec())));
        }
        while self.count(|endpoint, _| endpoint.poll_event()).is_some() {}
        all
    }

    /// Its application reads all that there is to read of all flows.
    pub fn read_all(&mut self) {
        let now = self.now;
        self.count(|endpoint, _| {
            let handles: Vec<_> = endpoint.handles().collect();
            for handle in handles {
                let open = endpoint.connection(handle).filter(|connection| connection.is_open());
                let Some(connection) = open else { continue };
                for flow in (0..200).step_by(2).map(FlowId) {
                    while connection.read(now, flow, 1 << 16).is_ok() {}
                }
            }
        });
    }

    /// Lets time pass, with all that is due in it.
    pub fn pass(&mut self, span: Duration) {
        let until = self.now + span;
        while let Some(due) = self.count(|endpoint, _| endpoint.poll_timeout()).filter(|due| *due <= until) {
            self.now = self.now.max(due);
            let now = self.now;
            self.count(|endpoint, _| endpoint.handle_timeout(now));
            self.speak();
        }
        self.now = until;
    }
}

/// A peer that has the keys of a connection to the victim, says anything, and hears what it likes.
pub struct Liar {
    client: Endpoint,
    handle: ConnectionHandle,
    /// Datagrams of the victim so far, of which some were heard.
    offered: usize,
    /// Bytes that it has sent itself, and datagrams.
    pub own: usize,
    pub own_datagrams: usize,
    /// The victim.
    pub victim: Victim,
    /// Bytes that the victim held once the connection was open.
    pub before: isize,
}

impl Liar {
    /// A connection under these settings, at both ends.
    pub fn connected(identities: &Identities, config: &ConnectionConfig) -> Self {
        let accept = EndpointConfig { accept: config.clone(), ..EndpointConfig::default() };
        let mut victim = Victim::new(identities, accept);
        let mut client = Endpoint::new(EndpointConfig::default(), [8; 32]);
        let to = address(SERVER, 4433);
        let handle = identities.connect(&mut client, victim.now, to, config.clone()).expect("it begins");
        let (mut out, mut own, mut own_datagrams) = (Vec::new(), 0, 0);
        for _ in 0..20 {
            while let Some(sent) = client.poll_transmit(victim.now, &mut out) {
                own += out.len();
                own_datagrams += out.len().div_ceil(sent.segment_bytes);
                out.chunks(sent.segment_bytes).for_each(|d| victim.hear(address(CLIENT, 4433), d));
            }
            victim.now += Duration::from_millis(1);
            for (_, mut datagram) in victim.speak() {
                client.handle_datagram(victim.now, to, None, &mut datagram);
            }
            let now = victim.now;
            client.handle_timeout(now);
            victim.pass(Duration::from_millis(1));
        }
        assert!(client.peek(handle).is_some_and(uts_engine::Connection::is_open));
        assert!(victim.endpoint.accept().is_some(), "the server has it as well");
        let before = victim.held;
        victim.peak = before;
        Liar { client, handle, offered: 0, own, own_datagrams, victim, before }
    }

    /// A packet of these frames, which the victim hears.
    pub fn say(&mut self, frames: &[u8]) {
        let connection = self.client.connection(self.handle).expect("it is there");
        if let Some(packet) = connection.packet_of(self.victim.now, frames) {
            connection.trace().take().for_each(drop);
            self.own += packet.len();
            self.own_datagrams += 1;
            self.victim.hear(address(CLIENT, 4433), &packet);
        }
    }

    /// Lets the victim send, and its client hear every `every`th datagram and acknowledge it.
    pub fn hear_some(&mut self, every: usize) {
        let to = address(SERVER, 4433);
        for (_, mut datagram) in self.victim.speak() {
            self.offered += 1;
            if !self.offered.is_multiple_of(every) {
                continue;
            }
            self.client.handle_datagram(self.victim.now, to, None, &mut datagram);
        }
        let mut out = Vec::new();
        self.client.handle_timeout(self.victim.now);
        while let Some(sent) = self.client.poll_transmit(self.victim.now, &mut out) {
            self.own += out.len();
            self.own_datagrams += out.len().div_ceil(sent.segment_bytes);
            out.chunks(sent.segment_bytes).for_each(|d| self.victim.hear(address(CLIENT, 4433), d));
        }
    }

    /// Most that the victim held beyond what an open connection takes, in bytes.
    pub fn grown(&self) -> usize {
        usize::try_from(self.victim.peak - self.before).unwrap_or(0)
    }

    /// True if the victim still has the connection open.
    pub fn is_open(&self) -> bool {
        let handle = self.victim.endpoint.handles().next();
        handle.and_then(|h| self.victim.endpoint.peek(h)).is_some_and(uts_engine::Connection::is_open)
    }
}
