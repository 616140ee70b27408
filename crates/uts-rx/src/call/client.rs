//! A client: one channel of a connection, one call at a time.

use super::half::{Incoming, Outgoing};
use crate::{Body, Flags, Header, Packet, Reason, Segments, Type};
use core::time::Duration;
use std::collections::VecDeque;

/// A call fails if nothing is heard of the server for so long.
const PATIENCE: Duration = Duration::from_secs(12);
/// A server that is busy is asked again after so long.
const BUSY: Duration = Duration::from_secs(3);
/// While an answer is awaited the server is asked so often if it is there.
const PING_EVERY: Duration = Duration::from_secs(4);

/// The end of a call without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server has ended it; the code is the server's.
    #[error("the server has aborted the call with error {0}")]
    Aborted(i32),
    /// Nothing was heard of the server. The call may have been executed.
    #[error("the server has not answered for {} s", PATIENCE.as_secs())]
    Silent,
    /// The answer is longer than the client takes.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The server asks for a proof that this client does not have.
    #[error("the server asks who the client is, which this client cannot prove")]
    Challenged,
}

/// A call under way.
#[derive(Debug)]
struct Call {
    request: Outgoing,
    answer: Incoming,
    heard_at: Duration,
    pinged_at: Duration,
    /// The server was busy: nothing is sent until then.
    rests_until: Option<Duration>,
}

/// A channel of a connection, as its client has it.
#[derive(Debug)]
pub struct Client {
    header: Header,
    serial: u32,
    answer_bytes_max: usize,
    call: Option<Call>,
    /// Packets besides data that wait to be sent.
    waiting: VecDeque<Vec<u8>>,
}

impl Client {
    /// A client of a service. Epoch and connection number are to differ from those of all other
    /// clients at the same address and port; the two lowest bits of the number are the channel.
    /// Answers are of `answer_bytes_max` at most.
    pub fn new(epoch: u32, connection: u32, service: u16, answer_bytes_max: usize) -> Self {
        let header = Header {
            epoch,
            connection,
            call: 0,
            sequence: 0,
            serial: 0,
            kind: Type::Data,
            flags: Flags::FROM_CLIENT,
            status: 0,
            security: 0,
            verifier: 0,
            service,
        };
        Client { header, serial: 0, answer_bytes_max, call: None, waiting: VecDeque::new() }
    }

    /// True if no call is under way.
    pub fn is_idle(&self) -> bool {
        self.call.is_none()
    }

    /// Begins a call. One that is under way is given up.
    pub fn call(&mut self, now: Duration, request: Vec<u8>) {
        self.header.call += 1;
        self.call = Some(Call {
            request: Outgoing::new(request),
            answer: Incoming::new(self.answer_bytes_max),
            heard_at: now,
            pinged_at: now,
            rests_until: None,
        });
    }

    /// Takes a datagram of the server. What belongs to no call under way is passed over. Returns
    /// how the call has ended, if it has.
    pub fn handle_datagram(&mut self, now: Duration, bytes: &[u8]) -> Option<Result<Vec<u8>, Failure>> {
        let packet = Packet::parse(bytes).ok()?;
        let (header, own) = (*packet.header(), self.header);
        let is_ours = (header.epoch, header.connection) == (own.epoch, own.connection)
            && !header.flags.has(Flags::FROM_CLIENT);
        let is_of_call = header.call == own.call || (header.call == 0 && header.kind != Type::Data);
        if !is_ours || !is_of_call {
            return None;
        }
        let Some(call) = self.call.as_mut() else {
            // The server has missed that its answer has arrived.
            if header.kind == Type::Data {
                self.send(self.header.flags, &Body::AckAll(&[]));
            }
            return None;
        };
        call.heard_at = now;
        match packet.body() {
            Body::Data(_) => {
                // The answer acknowledges the request.
                call.request.finish();
                for (header, bytes) in Segments::of(&packet) {
                    if call.answer.on_data(&header, bytes).is_err() {
                        return self.end(Err(Failure::TooLong(self.answer_bytes_max)));
                    }
                }
                if call.answer.is_done() {
                    let answer = call.answer.take();
                    self.acknowledge();
                    return self.end(Ok(answer));
                }
                self.acknowledge();
                None
            }
            Body::Ack(ack) => {
                call.request.on_ack(now, ack);
                if ack.reason == Reason::Ping {
                    call.answer.on_ping(header.serial);
                    self.acknowledge();
                }
                None
            }
            Body::AckAll(_) => {
                call.request.finish();
                None
            }
            Body::Busy(_) => {
                call.rests_until = Some(now + BUSY);
                None
            }
            Body::Abort(code) => {
                let code = *code;
                self.end(Err(Failure::Aborted(code)))
            }
            Body::Challenge(_) => self.end(Err(Failure::Challenged)),
            Body::Response(_) | Body::Debug(_) | Body::Version(_) => None,
        }
    }

    fn end(&mut self, how: Result<Vec<u8>, Failure>) -> Option<Result<Vec<u8>, Failure>> {
        self.call = None;
        Some(how)
    }

    /// Has an acknowledgement of the answer sent, if one is wanted.
    fn acknowledge(&mut self) {
        let Some(ack) = self.call.as_mut().and_then(|call| call.answer.poll_ack()) else { return };
        self.send(self.header.flags, &Body::Ack(ack.view()));
    }

    fn send(&mut self, flags: Flags, body: &Body<'_>) {
        self.serial += 1;
        let header = Header { serial: self.serial, flags, ..self.header };
        self.waiting.push_back(Packet::new(header, *body).to_bytes());
    }

    /// Does what is due. Returns how the call has ended, if it has.
    pub fn handle_timeout(&mut self, now: Duration) -> Option<Failure> {
        let call = self.call.as_mut()?;
        if call.heard_at + PATIENCE <= now {
            self.call = None;
            return Some(Failure::Silent);
        }
        if call.rests_until.is_some_and(|until| until <= now) {
            call.rests_until = None;
        }
        call.request.handle_timeout(now);
        if call.request.is_done() && call.pinged_at.max(call.heard_at) + PING_EVERY <= now {
            call.pinged_at = now;
            let ack = call.answer.ping();
            let flags = self.header.flags.with(Flags::REQUEST_ACK);
            self.send(flags, &Body::Ack(ack.view()));
        }
        None
    }

    /// When something is due.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let call = self.call.as_ref()?;
        let ping = call.request.is_done().then(|| call.pinged_at.max(call.heard_at) + PING_EVERY);
        let due = [Some(call.heard_at + PATIENCE), call.rests_until, call.request.poll_timeout(), ping];
        due.into_iter().flatten().min()
    }

    /// The next datagram for the server.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        if let Some(waiting) = self.waiting.pop_front() {
            return Some(waiting);
        }
        let call = self.call.as_mut().filter(|call| call.rests_until.is_none())?;
        let serial = self.serial + 1;
        let (header, bytes) = call.request.poll(now, self.header, serial)?;
        self.serial = serial;
        Some(Packet::new(header, Body::Data(bytes)).to_bytes())
    }
}
