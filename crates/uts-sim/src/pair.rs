//! Two endpoints in memory that hand each other datagrams over a delay: no path, no hosts, nothing
//! but the engine's work. For what is counted rather than timed: instructions, allocations, bytes
//! of memory.

use crate::identity::{Identities, IdentityError};
use bytes::Bytes;
use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use uts_engine::{
    CLIENT_CID_BYTES, CloseReason, ConnectError, ConnectionConfig, ConnectionHandle, Ecn, Endpoint,
    EndpointConfig, Event, FlowId, FlowOptions, IntoBatch, MessageBatch, MessageOptions, Read, WriteError,
};
use uts_functions::Time;

/// Batches that one end sends before the other has its turn.
const BATCHES_PER_TURN: usize = 8;

/// Turns without a packet that came through, after which a pair counts as stuck.
const IDLE_TURNS_MAX: usize = 1000;

/// Bytes that an application writes at once.
const WRITE_BYTES: usize = 64 << 10;
const MESSAGES_AT_ONCE: usize = 64;
const FLOWS_AT_ONCE: usize = 10;

/// Bytes that receive offload joins at most.
const JOINED_BYTES_MAX: usize = 64 << 10;

/// Why a pair does not work.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The identities.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    /// The connection could not be begun.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// A connection ended.
    #[error("a connection has ended: {0}")]
    Closed(CloseReason),
    /// The application's calls are refused.
    #[error("{0}")]
    Application(String),
    /// Nothing moves any more.
    #[error("nothing moves any more at {0:?}")]
    Stuck(Time),
}

/// A batch of datagrams under way.
struct Batch {
    at: Time,
    to_server: bool,
    ecn: Option<Ecn>,
    segment_bytes: usize,
    bytes: Vec<u8>,
}

impl Batch {
    /// True if it has arrived, too, and can be joined to a batch that came before.
    fn follows(&self, before: &Batch, now: Time) -> bool {
        let is_whole = before.bytes.len().is_multiple_of(before.segment_bytes);
        let is_alike = self.to_server == before.to_server && self.ecn == before.ecn;
        let fits = before.bytes.len() + self.bytes.len() <= JOINED_BYTES_MAX;
        self.at <= now && fits && is_whole && is_alike && self.segment_bytes == before.segment_bytes
    }
}

/// A client and a server.
pub struct Pair {
    /// Asks for connections, and sends.
    pub client: Endpoint,
    /// Accepts them, and reads.
    pub server: Endpoint,
    /// Time as both ends read it.
    pub now: Time,
    /// A packet to the server is lost if its place in the count of packets sent is a multiple of
    /// this.
    pub loses_every: Option<u64>,
    /// Batches that are marked as capable of ECN are lost on the way to the server, and to the
    /// client.
    pub drops_marked: [bool; 2],
    /// Batches that the client has sent with each codepoint, in the order of [`Ecn`].
    pub client_marks: [u64; 3],
    /// Datagrams are handed over one by one, although they came together.
    pub one_by_one: bool,
    /// Packets that arrive together are handed over in a buffer for each datagram, as if nothing
    /// were joined.
    pub apart: bool,
    /// Messages are handed over and read in batches.
    pub batches: bool,
    /// Messages that the applications have read.
    pub messages: u64,
    /// Number of times that the client's application was told of room again.
    pub told_of_room: u64,
    /// The applications read what has arrived; if not, what they were told is forgotten.
    pub reads: bool,
    /// The datagrams that the client has sent, if they are to be kept.
    pub kept: Option<Vec<Vec<u8>>>,
    identities: Identities,
    delay: Duration,
    /// Time that the line takes for a batch, so that time passes as packets are sent.
    pub batch_time: Duration,
    on_the_way: VecDeque<Batch>,
    spare: Vec<Vec<u8>>,
    to_server: u64,
    /// Bytes of data that the server's application has read.
    pub received: u64,
    /// The server's application writes back what it reads.
    answers: bool,
    /// Bytes that have come back to the client's.
    answered: u64,
}

impl Pair {
    /// Two endpoints, `delay` apart. The server accepts connections under `accept`.
    ///
    /// # Errors
    /// [`PairError::Identity`] if no keys can be made.
    pub fn new(accept: ConnectionConfig, delay: Duration) -> Result<Self, PairError> {
        Self::seeded(accept, delay, 1)
    }

    /// The same, with random choices that follow from `seed`.
    ///
    /// # Errors
    /// [`PairError::Identity`] if no keys can be made.
    pub fn seeded(accept: ConnectionConfig, delay: Duration, seed: u8) -> Result<Self, PairError> {
        let identities = Identities::new()?;
        let server = EndpointConfig {
            server: Some(identities.server.clone()),
            accept,
            handshakes_before_retry: usize::MAX,
            ..EndpointConfig::default()
        };
        let client = EndpointConfig { cid_bytes: CLIENT_CID_BYTES, ..EndpointConfig::default() };
        Ok(Pair {
            client: Endpoint::new(client, [seed; 32]),
            server: Endpoint::new(server, [seed.wrapping_add(1); 32]),
            now: Time::ZERO,
            loses_every: None,
            drops_marked: [false; 2],
            client_marks: [0; 3],
            one_by_one: false,
            apart: false,
            batches: false,
            messages: 0,
            told_of_room: 0,
            reads: true,
            kept: None,
            identities,
            delay,
            batch_time: Duration::from_micros(5),
            on_the_way: VecDeque::new(),
            spare: Vec::new(),
            to_server: 0,
            received: 0,
            answers: false,
            answered: 0,
        })
    }

    fn address(of_server: bool) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1 + u8::from(of_server)], 4433))
    }

    /// Connects; both ends know it when this returns.
    ///
    /// # Errors
    /// [`PairError`] if it does not come to be.
    pub fn connect(
        &mut self,
        config: impl Into<Arc<ConnectionConfig>>,
    ) -> Result<ConnectionHandle, PairError> {
        let address = Self::address(true);
        let handle = self.identities.connect(&mut self.client, self.now, address, config)?;
        loop {
            self.turn()?;
            let is_open = self.client.peek(handle).is_some_and(uts_engine::Connection::is_open);
            if is_open && self.server.accept().is_some() {
                return Ok(handle);
            }
        }
    }

    /// Opens a flow at the client.
    ///
    /// # Errors
    /// [`PairError::Application`] if the engine refuses.
    pub fn open_flow(&mut self, handle: ConnectionHandle) -> Result<FlowId, PairError> {
        let connection = self.client.connection(handle).ok_or_else(gone)?;
        connection.open_flow(FlowOptions::default()).map_err(refused)
    }

    /// Carries this many bytes over a flow. The client writes as much as there is room for, the
    /// server reads all.
    ///
    /// # Errors
    /// [`PairError`] if a connection ends or nothing moves any more.
    pub fn carry(&mut self, handle: ConnectionHandle, flow: FlowId, bytes: u64) -> Result<(), PairError> {
        let data = Bytes::from(vec![0x5a; WRITE_BYTES]);
        let target = self.received + bytes;
        while self.received < target {
            let connection = self.client.connection(handle).ok_or_else(gone)?;
            loop {
                match connection.write(self.now, flow, data.clone()) {
                    Ok(_) => {}
                    Err(WriteError::Blocked) => break,
                    Err(error) => return Err(refused(error)),
                }
            }
            self.turn()?;
        }
        Ok(())
    }

    /// Carries this many bytes as messages of `message_bytes` each, as [`Pair::carry`] does bytes.
    /// If losses are not repeated, lost messages do not count.
    ///
    /// # Errors
    /// [`PairError`] if a connection ends or nothing moves any more.
    pub fn carry_messages(
        &mut self,
        handle: ConnectionHandle,
        flow: FlowId,
        bytes: u64,
        message_bytes: usize,
    ) -> Result<(), PairError> {
        let message = Bytes::from(vec![0x5a; message_bytes]);
        let (mut messages, mut batch) = (VecDeque::new(), MessageBatch::new());
        let target = self.received + bytes;
        while self.received < target {
            let connection = self.client.connection(handle).ok_or_else(gone)?;
            loop {
                let sent = if self.batches {
                    if batch.is_empty() {
                        (0..MESSAGES_AT_ONCE).for_each(|_| batch.push(&message));
                    }
                    connection.send_batch(self.now, flow, &mut batch, MessageOptions::default())
                } else {
                    if messages.is_empty() {
                        messages.extend(std::iter::repeat_n(message.clone(), MESSAGES_AT_ONCE));
                    }
                    connection.send_messages(self.now, flow, &mut messages, MessageOptions::default())
                };
                match sent {
                    Ok(_) => {}
                    Err(WriteError::Blocked) => break,
                    Err(error) => return Err(refused(error)),
                }
            }
            self.turn()?;
        }
        Ok(())
    }

    /// Sends a byte to and fro this many times. Each end answers once it has read, after all that
    /// was due is done.
    ///
    /// # Errors
    /// [`PairError`] if a connection ends or nothing moves any more.
    pub fn round_trips(
        &mut self,
        handle: ConnectionHandle,
        flow: FlowId,
        count: u64,
    ) -> Result<(), PairError> {
        self.answers = true;
        for _ in 0..count {
            let target = self.answered + 1;
            let connection = self.client.connection(handle).ok_or_else(gone)?;
            connection.write(self.now, flow, Bytes::from_static(&[7])).map_err(refused)?;
            while self.answered < target {
                self.turn()?;
            }
        }
        self.answers = false;
        Ok(())
    }

    /// Opens flows, each for this many bytes, and ends them; a few at a time.
    ///
    /// # Errors
    /// [`PairError`] if a connection ends or nothing moves any more.
    pub fn short_flows(
        &mut self,
        handle: ConnectionHandle,
        count: u64,
        bytes: usize,
    ) -> Result<(), PairError> {
        let (data, until) = (Bytes::from(vec![0x5a; bytes]), self.received + count * bytes as u64);
        while self.received < until {
            for _ in 0..FLOWS_AT_ONCE {
                let flow = self.open_flow(handle)?;
                let connection = self.client.connection(handle).ok_or_else(gone)?;
                connection.write(self.now, flow, data.clone()).map_err(refused)?;
                connection.finish(flow);
            }
            let target = self.received + (FLOWS_AT_ONCE * bytes) as u64;
            while self.received < target {
                self.turn()?;
            }
        }
        Ok(())
    }

    /// Lets time pass until `until`, with whatever the endpoints do of themselves.
    ///
    /// # Errors
    /// [`PairError`] if a connection ends.
    pub fn pass(&mut self, until: Time) -> Result<(), PairError> {
        loop {
            if self.step()? > 0 {
                continue;
            }
            let Some(next) = self.next_at().filter(|next| *next < until) else { break };
            self.go_to(next);
        }
        self.go_to(until);
        self.step()?;
        self.spare = Vec::new();
        Ok(())
    }

    fn go_to(&mut self, at: Time) {
        self.now = self.now.max(at);
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
    }

    /// When something happens next, if nothing is to be sent at once.
    pub fn next_at(&mut self) -> Option<Time> {
        let arrival = self.on_the_way.front().map(|batch| batch.at);
        [self.client.poll_timeout(), self.server.poll_timeout(), arrival].into_iter().flatten().min()
    }

    /// Each end sends what it may and takes in what has arrived; where nothing did, time passes.
    ///
    /// # Errors
    /// [`PairError`] if a connection ends or nothing moves any more.
    pub fn turn(&mut self) -> Result<(), PairError> {
        for _ in 0..IDLE_TURNS_MAX {
            if self.step()? > 0 {
                return Ok(());
            }
            let Some(next) = self.next_at() else { return Ok(()) };
            self.go_to(next);
        }
        Err(PairError::Stuck(self.now))
    }

    /// Each end sends what it may and takes in what has arrived; says how many batches that were.
    fn step(&mut self) -> Result<usize, PairError> {
        let sent = self.send(true) + self.send(false);
        Ok(sent + self.deliver()?)
    }

    fn send(&mut self, to_server: bool) -> usize {
        let from = if to_server { &mut self.client } else { &mut self.server };
        from.handle_timeout(self.now);
        for sent in 0..BATCHES_PER_TURN {
            let mut bytes = self.spare.pop().unwrap_or_default();
            let Some(transmit) = from.poll_transmit(self.now, &mut bytes) else {
                self.spare.push(bytes);
                return sent;
            };
            self.now += self.batch_time;
            let (ecn, segment_bytes) = (transmit.ecn, transmit.segment_bytes.max(1));
            if let Some(kept) = self.kept.as_mut().filter(|_| to_server) {
                kept.extend(bytes.chunks(segment_bytes).map(<[u8]>::to_vec));
            }
            if let Some(ecn) = ecn.filter(|_| to_server) {
                self.client_marks[ecn as usize] += 1;
            }
            if ecn.is_some() && self.drops_marked[usize::from(!to_server)] {
                self.spare.push(bytes);
                continue;
            }
            let batch = Batch { at: self.now + self.delay, to_server, ecn, segment_bytes, bytes };
            self.on_the_way.push_back(batch);
        }
        BATCHES_PER_TURN
    }

    fn deliver(&mut self) -> Result<usize, PairError> {
        let mut arrived = 0;
        while self.on_the_way.front().is_some_and(|batch| batch.at <= self.now) {
            let Some(mut batch) = self.on_the_way.pop_front() else { break };
            arrived += 1;
            // What arrives together is joined, as receive offload does.
            while let Some(next) = self.on_the_way.pop_front_if(|next| next.follows(&batch, self.now)) {
                arrived += 1;
                batch.bytes.extend_from_slice(&next.bytes);
                self.spare.push(next.bytes);
            }
            self.hand_over(&mut batch);
            self.spare.push(batch.bytes);
            self.follow(batch.to_server)?;
        }
        Ok(arrived)
    }

    fn hand_over(&mut self, batch: &mut Batch) {
        let to = if batch.to_server { &mut self.server } else { &mut self.client };
        let (remote, now, ecn) = (Self::address(!batch.to_server), self.now, batch.ecn);
        let losses = self.loses_every.filter(|_| batch.to_server);
        let (segment_bytes, mut rest) = (batch.segment_bytes, batch.bytes.as_mut_slice());
        while !rest.is_empty() {
            // What stands between two that are lost came together.
            let mut together = 0;
            let mut is_lost = false;
            for datagram in rest.chunks(segment_bytes) {
                self.to_server += u64::from(losses.is_some());
                is_lost = losses.is_some_and(|every| self.to_server.is_multiple_of(every));
                together += if is_lost { 0 } else { datagram.len() };
                if is_lost || self.one_by_one {
                    break;
                }
            }
            let (arrived, behind) = rest.split_at_mut(together);
            let buffer_bytes = if self.apart { segment_bytes } else { arrived.len().max(1) };
            for buffer in arrived.chunks_mut(buffer_bytes) {
                to.take_in(now, remote, None, ecn, segment_bytes, buffer);
            }
            to.taken_in(now);
            let lost = if is_lost { segment_bytes.min(behind.len()) } else { 0 };
            rest = &mut behind[lost..];
        }
    }

    /// Acts for the application of an end on the events that it is told.
    fn follow(&mut self, at_server: bool) -> Result<(), PairError> {
        let end = if at_server { &mut self.server } else { &mut self.client };
        while let Some((handle, event)) = end.poll_event() {
            match event {
                Event::Closed(reason) => return Err(PairError::Closed(reason)),
                Event::Readable(flow) if self.reads => {
                    let Some(connection) = end.connection(handle) else { continue };
                    let (mut has_ended, mut answer) = (false, None);
                    let count = if at_server { &mut self.received } else { &mut self.answered };
                    let messages = &mut self.messages;
                    let take = |read| {
                        *messages += u64::from(matches!(read, Read::Message(_) | Read::Timed { .. }));
                        match read {
                            Read::Bytes(_, data)
                            | Read::Message(data)
                            | Read::Timed { message: data, .. }
                            | Read::Damaged { message: data, .. } => {
                                *count += data.len() as u64;
                                answer = Some(data).filter(|_| at_server && self.answers);
                            }
                            Read::Missing { .. } => {}
                            Read::End => has_ended = true,
                        }
                        true
                    };
                    // What ends it is told by an event, too.
                    if self.batches {
                        let mut batch = MessageBatch::new();
                        let sink = IntoBatch::new(&mut batch, usize::MAX, take);
                        let _ = connection.read_into(self.now, flow, usize::MAX, sink);
                        *count += batch.data_bytes() as u64;
                        *messages += batch.len() as u64;
                    } else {
                        let _ = connection.read_many(self.now, flow, usize::MAX, take);
                    }
                    if let Some(data) = answer {
                        connection.write(self.now, flow, data).map_err(refused)?;
                    }
                    if has_ended {
                        connection.finish(flow);
                    }
                }
                Event::Writable(_) => self.told_of_room += u64::from(!at_server),
                _ => {}
            }
        }
        Ok(())
    }
}

fn refused(error: impl core::fmt::Display) -> PairError {
    PairError::Application(error.to_string())
}

fn gone() -> PairError {
    PairError::Application("the connection is gone".into())
}
