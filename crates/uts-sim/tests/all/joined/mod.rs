//! Two endpoints joined by hand, so that every datagram can be seen.
#![allow(dead_code, reason = "each test uses a part of it")]

use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use uts_engine::{
    CLIENT_CID_BYTES, ConnectionConfig, ConnectionHandle, Endpoint, EndpointConfig, Event, FlowOptions, Read,
};
use uts_functions::Time;
use uts_sim::identity::{Identities, SERVER_NAME};

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

pub fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 4433))
}

/// Two endpoints joined by hand, so that every datagram can be seen.
pub struct Pair {
    pub now: Time,
    pub ends: [Endpoint; 2],
    pub client: ConnectionHandle,
    pub server: Option<ConnectionHandle>,
    /// Datagrams of each end, as they left.
    pub sent: [Vec<Vec<u8>>; 2],
    pub events: [Vec<Event>; 2],
    pub identities: Identities,
}

impl Pair {
    pub fn new(server: EndpointConfig) -> Self {
        Self::seeded(server, 1)
    }

    pub fn seeded(server: EndpointConfig, seed: u8) -> Self {
        Self::with_identities(server, seed, Identities::new().expect("keys"))
    }

    pub fn with_identities(server: EndpointConfig, seed: u8, identities: Identities) -> Self {
        let server = EndpointConfig { server: Some(identities.server.clone()), ..server };
        let client = EndpointConfig { cid_bytes: CLIENT_CID_BYTES, ..EndpointConfig::default() };
        let ends = [Endpoint::new(client, [seed; 32]), Endpoint::new(server, [seed + 100; 32])];
        let mut pair = Pair {
            now: Time::from_millis(1),
            ends,
            client: ConnectionHandle(0),
            server: None,
            sent: [Vec::new(), Vec::new()],
            events: [Vec::new(), Vec::new()],
            identities,
        };
        pair.client = pair.connect();
        pair
    }

    pub fn connect(&mut self) -> ConnectionHandle {
        let name = ServerName::try_from(SERVER_NAME).expect("a name");
        let tls = self.identities.client.clone();
        self.ends[CLIENT]
            .connect(self.now, address(1), name, tls, ConnectionConfig::default(), None)
            .expect("the connection begins")
    }

    /// Takes what an end sends.
    pub fn drain(&mut self, end: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut out = Vec::new();
        let mut buffer = Vec::new();
        while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut buffer) {
            out.extend(buffer.chunks(transmit.segment_bytes).map(|bytes| (transmit.remote, bytes.to_vec())));
            assert!(out.len() < 10_000, "it does not stop sending");
        }
        while let Some((handle, event)) = self.ends[end].poll_event() {
            if event == Event::Connected && end == SERVER {
                self.server = Some(handle);
            }
            self.events[end].push(event);
        }
        out
    }

    /// One flight each way; says whether anything was sent.
    pub fn exchange(&mut self) -> bool {
        let mut any = false;
        for end in [CLIENT, SERVER] {
            for (to, mut datagram) in self.drain(end) {
                any = true;
                self.sent[end].push(datagram.clone());
                let from = address(end as u8);
                if to == address(1 - end as u8) {
                    self.ends[1 - end].handle_datagram(self.now, from, None, &mut datagram);
                }
            }
        }
        any
    }

    /// Lets time pass until nothing is due before `until_ms`.
    pub fn settle(&mut self, until_ms: u64) {
        for _ in 0..100_000 {
            if self.exchange() {
                continue;
            }
            let next = self.ends.iter_mut().filter_map(Endpoint::poll_timeout).min().unwrap_or(Time::NEVER);
            if next > Time::from_millis(until_ms) {
                self.now = Time::from_millis(until_ms);
                return;
            }
            self.now = self.now.max(next);
            for end in &mut self.ends {
                end.handle_timeout(self.now);
            }
        }
        panic!("it does not settle");
    }

    /// A stranger's datagram to an end: what it is answered with, in bytes.
    pub fn inject(&mut self, end: usize, from: SocketAddr, datagram: &[u8]) -> usize {
        let mut datagram = datagram.to_vec();
        self.ends[end].handle_datagram(self.now, from, None, &mut datagram);
        let out = self.drain(end);
        out.iter().filter(|(to, _)| *to == from).map(|(_, bytes)| bytes.len()).sum()
    }

    /// State that must not change: connections, and what each keeps.
    pub fn state(&mut self) -> String {
        let (client, server) = (self.client, self.server);
        let of = |end: &Endpoint, handle: Option<ConnectionHandle>| {
            handle.and_then(|h| end.peek(h)).map(|c| {
                let s = c.stats();
                (
                    s.packets_received,
                    s.data_bytes_received,
                    s.exchanges,
                    c.memory_bytes(),
                    c.close_reason().cloned(),
                )
            })
        };
        let [a, b] = &self.ends;
        format!("{} {:?} {} {:?}", a.len(), of(a, Some(client)), b.len(), of(b, server))
    }

    pub fn works(&mut self) {
        let now = self.now;
        let connection = self.ends[CLIENT].connection(self.client).expect("it is there");
        let flow = connection.open_flow(FlowOptions::default()).expect("a flow");
        connection.write(now, flow, bytes::Bytes::from_static(b"still here")).expect("room");
        self.settle(now.as_nanos() / 1_000_000 + 100);
        let server = self.server.expect("connected");
        let read = self.ends[SERVER].connection(server).expect("it is there").read(self.now, flow, 100);
        assert_eq!(read, Ok(Read::Bytes(0, bytes::Bytes::from_static(b"still here"))));
    }
}
