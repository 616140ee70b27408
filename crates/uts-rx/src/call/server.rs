//! A server: calls of many clients, each executed once.

use super::half::{Incoming, Outgoing};
use crate::{Body, Flags, Header, Packet, Reason, Segments};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

/// A channel of which nothing was heard for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Code of a call whose request is too long (`RX_PROTOCOL_ERROR`).
const PROTOCOL_ERROR: i32 = -5;

/// Bounds of what a server holds for its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// Channels at once; a call on a further one hears that the server is busy.
    pub channels: usize,
    /// Bytes of a request.
    pub request_bytes: usize,
}

/// A channel as its server has it: by the client's address, epoch and connection number.
type Key<A> = (A, u32, u32);

/// The call of a channel.
#[derive(Debug)]
struct Call {
    /// Header of what is sent in it.
    header: Header,
    request: Incoming,
    /// Once there is one.
    answer: Option<Outgoing>,
    /// The application has the request, or it was refused; the code of an error, if there was one.
    outcome: Option<Result<(), i32>>,
    heard_at: Duration,
}

/// A server of one service, for clients whose addresses are of type `A`.
#[derive(Debug)]
pub struct Server<A> {
    service: u16,
    places: Places,
    calls: BTreeMap<Key<A>, Call>,
    /// Serial numbers count over all connections, which is as good.
    serial: u32,
    waiting: VecDeque<(A, Vec<u8>)>,
}

impl<A: Copy + Ord> Server<A> {
    /// A server without clients.
    pub fn new(service: u16, places: Places) -> Self {
        Server { service, places, calls: BTreeMap::new(), serial: 0, waiting: VecDeque::new() }
    }

    /// Takes a datagram of a client. What is no packet of Rx for this service is passed over.
    /// `execute` gets the request of a call that is complete, and gives the answer, or the code of
    /// an error. It gets each request once, however often it comes.
    pub fn handle_datagram(
        &mut self,
        now: Duration,
        from: A,
        bytes: &[u8],
        execute: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, i32>,
    ) {
        let Ok(packet) = Packet::parse(bytes) else { return };
        let header = *packet.header();
        let is_for_us = header.flags.has(Flags::FROM_CLIENT) && header.service == self.service;
        if !is_for_us || header.call == 0 || header.security != 0 {
            return;
        }
        let key = (from, header.epoch, header.connection);
        match packet.body() {
            Body::Data(_) => {
                let has_place = self.begin(now, key, &header);
                if has_place {
                    self.on_data(key, &packet, execute);
                }
            }
            Body::Ack(ack) => {
                let Some(call) = self.calls.get_mut(&key).filter(|c| c.header.call == header.call) else {
                    return;
                };
                call.heard_at = now;
                if let Some(answer) = &mut call.answer {
                    answer.on_ack(now, ack);
                }
                if ack.reason == Reason::Ping {
                    call.request.on_ping(header.serial);
                    self.acknowledge(key);
                }
            }
            // An aborted call stays known, so that it is not executed again.
            Body::AckAll(_) | Body::Abort(_) => {
                let call = self.calls.get_mut(&key).filter(|call| call.header.call == header.call);
                if let Some(answer) = call.and_then(|call| call.answer.as_mut()) {
                    answer.finish();
                }
            }
            _ => {}
        }
    }

    /// Makes a place for the call of a packet of data; returns whether there is one.
    fn begin(&mut self, now: Duration, key: Key<A>, header: &Header) -> bool {
        let own = Header { flags: Flags::default(), sequence: 0, status: 0, verifier: 0, ..*header };
        let call = Call {
            header: own,
            request: Incoming::new(self.places.request_bytes),
            answer: None,
            outcome: None,
            heard_at: now,
        };
        let is_full = self.calls.len() >= self.places.channels;
        match self.calls.get_mut(&key) {
            Some(known) if header.call < known.header.call => false,
            Some(known) if header.call == known.header.call => {
                known.heard_at = now;
                true
            }
            // The next call acknowledges the answer before it.
            Some(known) => {
                *known = call;
                true
            }
            None if is_full => {
                self.send(key.0, own, &Body::Busy(&[]));
                false
            }
            None => {
                self.calls.insert(key, call);
                true
            }
        }
    }

    fn on_data(
        &mut self,
        key: Key<A>,
        packet: &Packet<'_>,
        execute: impl FnOnce(Vec<u8>) -> Result<Vec<u8>, i32>,
    ) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        let header = call.header;
        for (header, bytes) in Segments::of(packet) {
            if call.request.on_data(&header, bytes).is_err() {
                call.outcome = Some(Err(PROTOCOL_ERROR));
                break;
            }
        }
        if call.request.is_done() && call.outcome.is_none() {
            let answer = execute(call.request.take());
            call.outcome = Some(answer.as_ref().map(|_| ()).map_err(|code| *code));
            call.answer = answer.ok().map(Outgoing::new);
        }
        match call.outcome {
            // The client asks again if it has missed it.
            Some(Err(code)) => self.send(key.0, header, &Body::Abort(code)),
            _ => self.acknowledge(key),
        }
    }

    /// Has an acknowledgement of the request sent, if one is wanted and no answer says it.
    fn acknowledge(&mut self, key: Key<A>) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        let Some(ack) = call.request.poll_ack() else { return };
        let header = call.header;
        self.send(key.0, header, &Body::Ack(ack.view()));
    }

    fn send(&mut self, to: A, header: Header, body: &Body<'_>) {
        self.serial = self.serial.wrapping_add(1);
        let header = Header { serial: self.serial, ..header };
        self.waiting.push_back((to, Packet::new(header, *body).to_bytes()));
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.calls.retain(|_, call| call.heard_at + FORGOTTEN_AFTER > now);
        self.calls.values_mut().filter_map(|call| call.answer.as_mut()).for_each(|a| a.handle_timeout(now));
    }

    /// When something is due.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let due = |call: &Call| {
            let answer = call.answer.as_ref().and_then(Outgoing::poll_timeout);
            answer.into_iter().chain([call.heard_at + FORGOTTEN_AFTER]).min()
        };
        self.calls.values().filter_map(due).min()
    }

    /// The next datagram, and whom it is for.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<(A, Vec<u8>)> {
        if let Some(waiting) = self.waiting.pop_front() {
            return Some(waiting);
        }
        let serial = self.serial.wrapping_add(1);
        let sent = self.calls.iter_mut().find_map(|(key, call)| {
            let (header, bytes) = call.answer.as_mut()?.poll(now, call.header, serial)?;
            Some((key.0, Packet::new(header, Body::Data(bytes)).to_bytes()))
        })?;
        self.serial = serial;
        Some(sent)
    }
}
