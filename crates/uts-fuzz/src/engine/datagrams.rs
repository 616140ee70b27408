//! Sequences of datagrams between two endpoints: lost, late, repeated, changed, made up, or made by
//! a peer that has the keys and lies.

use super::{address, identities};
use crate::some_bytes;
use arbitrary::Unstructured;
use bytes::Bytes;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use uts_engine::{
    CloseReason, ConnectionConfig, ConnectionHandle, Direction, Ecn, Endpoint, EndpointConfig, Event, FlowId,
    FlowOptions, MessageOptions, Read,
};
use uts_functions::{Choice, Function, Params, Time, library};

const CLIENT: usize = 0;
const SERVER: usize = 1;
const STRANGER: u8 = 9;

const STEPS_MAX: usize = 200;

/// Datagrams under way, and those kept to be sent again: more are lost, and forgotten.
const UNDER_WAY_MAX: usize = 128;

/// Batches that an end sends without time passing: more than any window holds.
const BATCHES_MAX: usize = 4000;

/// Deadlines in a row without time passing.
const DUE_MAX: usize = 1000;

/// Bytes that a connection keeps besides data (`Connection::memory_bytes`), whatever the peer says.
const MEMORY_BYTES_MAX: usize = 512 << 10;

/// Properties that are asked of the connection, by the first byte of the input.
const ASKED: [&[&str]; 10] = [
    &[],
    &["preserveMsgBoundaries=require"],
    &["preserveMsgBoundaries=require", "uts.profile.presentation=lz4"],
    &["uts.profile.fec=reed-solomon"],
    &["uts.profile.fec=xor", "preserveMsgBoundaries=require"],
    &["reliability=avoid", "preserveOrder=no-preference", "preserveMsgBoundaries=require"],
    &["uts.profile.congestion=bbr"],
    &["uts.profile.retransmission=go-back-n"],
    &["uts.profile.acknowledgement=poll-status"],
    &["uts.security=unprotected"],
];

struct World {
    now: Time,
    ends: [Endpoint; 2],
    handles: [Option<ConnectionHandle>; 2],
    /// To whom, and what.
    under_way: VecDeque<(usize, Vec<u8>)>,
    past: VecDeque<(usize, Vec<u8>)>,
    /// An end has said what the protocol forbids, by a packet that it did not make itself.
    lied: [bool; 2],
    has_closed: bool,
    /// An end has given a connection up for want of an answer.
    timed_out: [bool; 2],
    is_protected: bool,
    /// Positions that each end has written of each flow.
    written: [BTreeMap<FlowId, u64>; 2],
    /// Flows on which each end has sent messages. Their ends take positions, and their bytes are
    /// different.
    messages: [BTreeSet<FlowId>; 2],
    /// Bytes from and to the stranger's address, at each end.
    stranger: [(usize, usize); 2],
}

/// The byte at a position of a flow, so that what is read can be told from anything else.
fn pattern(flow: FlowId, position: u64) -> u8 {
    (u64::from(flow.0).wrapping_mul(31) ^ position.wrapping_mul(7) ^ position >> 8) as u8
}

impl World {
    fn new(asked: u8, cids: u8) -> Self {
        let mut config = ConnectionConfig::default();
        for property in ASKED[usize::from(asked) % ASKED.len()] {
            config.requirements.assign(property).expect("a property");
        }
        let is_protected = ASKED[usize::from(asked) % ASKED.len()] != ["uts.security=unprotected"];
        let cid_bytes = [4, 8, 0, 20][usize::from(cids) % 4];
        let handshakes_before_retry = if cids & 4 == 0 { 256 } else { 0 };
        let server = EndpointConfig {
            server: Some(identities().server.clone()),
            accept: config.clone(),
            cid_bytes,
            handshakes_before_retry,
            ..EndpointConfig::default()
        };
        let client =
            EndpointConfig { cid_bytes: if cids & 8 == 0 { 4 } else { 0 }, ..EndpointConfig::default() };
        let mut ends = [Endpoint::new(client, [1; 32]), Endpoint::new(server, [2; 32])];
        let now = Time::from_millis(1);
        let client =
            identities().connect(&mut ends[CLIENT], now, address(SERVER as u8), config).expect("it begins");
        World {
            now,
            ends,
            handles: [Some(client), None],
            under_way: VecDeque::new(),
            past: VecDeque::new(),
            lied: [false; 2],
            has_closed: false,
            timed_out: [false; 2],
            is_protected,
            written: Default::default(),
            messages: Default::default(),
            stranger: Default::default(),
        }
    }

    /// Takes what an end sends.
    fn drain(&mut self, end: usize) {
        let mut out = Vec::new();
        let mut batches = 0;
        while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut out) {
            batches += 1;
            assert!(batches < BATCHES_MAX, "it does not stop sending");
            if transmit.remote == address(STRANGER) {
                let (heard, said) = &mut self.stranger[end];
                *said += out.len();
                assert!(*said <= 3 * *heard, "{said} bytes to a stranger, for {heard}");
                continue;
            }
            for datagram in out.chunks(transmit.segment_bytes.max(1)) {
                self.under_way.push_back((1 - end, datagram.to_vec()));
            }
            while self.under_way.len() > UNDER_WAY_MAX {
                self.under_way.pop_front();
            }
        }
        self.tell(end);
    }

    fn tell(&mut self, end: usize) {
        while let Some((handle, event)) = self.ends[end].poll_event() {
            match event {
                Event::Connected if end == SERVER => {
                    self.handles[SERVER].get_or_insert(handle);
                }
                Event::Closed(reason) => self.judge(end, &reason),
                Event::Readable(flow) => self.read(end, handle, flow),
                _ => {}
            }
        }
        let handles: Vec<_> = self.ends[end].handles().collect();
        for handle in handles {
            if let Some(connection) = self.ends[end].peek(handle) {
                let bytes = connection.memory_bytes();
                assert!(bytes <= MEMORY_BYTES_MAX, "{bytes} bytes: {:?}", connection.memory_parts());
            }
        }
    }

    /// A connection does not end because datagrams are lost, late, repeated, changed or made up,
    /// except by a time-out.
    fn judge(&mut self, end: usize, reason: &CloseReason) {
        let by_time = matches!(reason, CloseReason::IdleTimeout(_) | CloseReason::HandshakeTimeout { .. })
            // The other end has given it up, and says so when it hears of it again.
            || (*reason == CloseReason::Reset && self.timed_out[1 - end]);
        self.timed_out[end] |= by_time;
        let by_peer = self.has_closed || self.lied.contains(&true) || !self.is_protected;
        assert!(by_time || by_peer, "end {end}: {reason}");
    }

    /// Checks that what is read is what was written.
    fn read(&mut self, end: usize, handle: ConnectionHandle, flow: FlowId) {
        let now = self.now;
        let Some(connection) = self.ends[end].connection(handle) else { return };
        let is_judged = !self.lied.contains(&true) && self.is_protected && self.handles[end] == Some(handle);
        let written = self.written[1 - end].get(&flow).copied().unwrap_or(0);
        let has_messages = self.messages[1 - end].contains(&flow);
        while let Ok(read) = connection.read(now, flow, 1 << 16) {
            match read {
                Read::Bytes(start, bytes) if is_judged && !has_messages => {
                    assert!(
                        start + bytes.len() as u64 <= written,
                        "more is read of {flow:?} than was written"
                    );
                    let is_so = |(i, byte): (u64, &u8)| *byte == pattern(flow, start + i);
                    assert!((0u64..).zip(&bytes).all(is_so), "{flow:?} is read as it was not written");
                }
                Read::Message(message) if is_judged && written == 0 => {
                    let first = message.first().copied().unwrap_or(0);
                    assert!(message.iter().all(|byte| *byte == first), "{flow:?}: a message of two");
                }
                Read::End => break,
                _ => {}
            }
        }
    }

    fn deliver(&mut self, to: usize, from: u8, ecn: Option<Ecn>, datagram: &[u8]) {
        if datagram.is_empty() {
            return;
        }
        if from == STRANGER {
            self.stranger[to].0 += datagram.len();
        }
        let mut copy = datagram.to_vec();
        self.ends[to].handle_datagram(self.now, address(from), ecn, &mut copy);
        self.past.push_back((to, datagram.to_vec()));
        if self.past.len() > UNDER_WAY_MAX {
            self.past.pop_front();
        }
        self.drain(to);
    }

    /// Lets time pass, as far as the next deadline or further; all that is due is done.
    fn pass(&mut self, until: Time) {
        for _ in 0..DUE_MAX {
            let next = self.ends.iter_mut().filter_map(Endpoint::poll_timeout).min().unwrap_or(Time::NEVER);
            if next > until {
                self.now = self.now.max(until);
                return;
            }
            self.now = self.now.max(next);
            for end in [CLIENT, SERVER] {
                self.ends[end].handle_timeout(self.now);
                self.drain(end);
            }
        }
        assert!(self.now >= until || self.now > Time::ZERO + Duration::from_secs(1), "time stands still");
    }

    /// Rounds over a network that delivers.
    fn converse(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for end in [CLIENT, SERVER] {
                self.drain(end);
            }
            let Some((to, datagram)) = self.under_way.pop_front() else {
                let next = self.ends.iter_mut().filter_map(Endpoint::poll_timeout).min();
                let Some(next) = next.filter(|next| *next < self.now + Duration::from_secs(1)) else {
                    return;
                };
                self.pass(next);
                continue;
            };
            self.now += Duration::from_micros(50);
            self.deliver(to, 1 - to as u8, None, &datagram);
        }
    }

    /// A datagram under way, or of the past.
    fn choose(&mut self, u: &mut Unstructured<'_>) -> arbitrary::Result<Option<(usize, Vec<u8>)>> {
        let past = u.arbitrary()?;
        let list = if past { &self.past } else { &self.under_way };
        if list.is_empty() {
            return Ok(None);
        }
        let index = u.choose_index(list.len())?;
        Ok(list.get(index).cloned())
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        let end = usize::from(u.arbitrary::<bool>()?);
        match u.int_in_range(0..=15)? {
            0 | 1 => self.converse(u.int_in_range(1..=24)?),
            2 => {
                let index = u.choose_index(self.under_way.len().max(1))?;
                if let Some((to, datagram)) = self.under_way.remove(index) {
                    let ecn = *u.choose(&[None, Some(Ecn::Ect0), Some(Ecn::Ect1), Some(Ecn::Ce)])?;
                    self.deliver(to, 1 - to as u8, ecn, &datagram);
                }
            }
            3 => {
                let index = u.choose_index(self.under_way.len().max(1))?;
                self.under_way.remove(index);
            }
            4 => {
                if let Some((to, datagram)) = self.choose(u)? {
                    let from = if u.ratio(3, 4)? { 1 - to as u8 } else { STRANGER };
                    self.deliver(to, from, None, &datagram);
                }
            }
            5 => {
                if let Some((to, mut datagram)) = self.choose(u)? {
                    change(u, &mut datagram)?;
                    let from = if u.ratio(3, 4)? { 1 - to as u8 } else { STRANGER };
                    self.deliver(to, from, None, &datagram);
                }
            }
            6 => {
                let datagram = some_bytes(u, 255)?.to_vec();
                let from = if u.arbitrary()? { 1 - end as u8 } else { STRANGER };
                self.deliver(end, from, None, &datagram);
            }
            7 => {
                let span = Duration::from_micros(
                    u64::from(u.arbitrary::<u16>()?) * [1, 100, 2000][u.choose_index(3)?],
                );
                self.pass(self.now + span);
            }
            8..=11 => self.lie(u, end)?,
            12 if u.ratio(1, 8)? => {
                self.has_closed = true;
                let now = self.now;
                self.with(end, |connection| connection.close(now, 1, "enough"));
            }
            _ => self.act(u, end)?,
        }
        Ok(())
    }

    /// A packet of any frames, with the keys of the other end.
    fn lie(&mut self, u: &mut Unstructured<'_>, to: usize) -> arbitrary::Result<()> {
        let frames = some_bytes(u, 255)?.to_vec();
        let now = self.now;
        if let Some(Some(packet)) = self.with(1 - to, |connection| connection.packet_of(now, &frames)) {
            self.lied[1 - to] = true;
            self.deliver(to, 1 - to as u8, None, &packet);
        }
        Ok(())
    }

    fn with<T>(&mut self, end: usize, act: impl FnOnce(&mut uts_engine::Connection) -> T) -> Option<T> {
        let handle = self.handles[end]?;
        self.ends[end].connection(handle).map(act)
    }

    /// Acts as an application does.
    fn act(&mut self, u: &mut Unstructured<'_>, end: usize) -> arbitrary::Result<()> {
        let (now, flow) = (self.now, FlowId(u32::from(u.int_in_range(0..=9u8)?)));
        let (kind, len) = (u.int_in_range(0..=7)?, u.arbitrary::<u16>()?);
        let choice = any_choice(u)?;
        let direction = if u.arbitrary()? { Direction::Out } else { Direction::In };
        let start = self.written[end].get(&flow).copied().unwrap_or(0);
        let mut has_sent = false;
        let taken = self.with(end, |connection| {
            match kind {
                0 => drop(connection.open_flow(FlowOptions::default())),
                1..=3 => {
                    let data: Bytes = (0..u64::from(len)).map(|i| pattern(flow, start + i)).collect();
                    return connection.write(now, flow, data).unwrap_or(0);
                }
                4 => {
                    let message = Bytes::from(vec![len as u8; usize::from(len) / 16]);
                    has_sent = connection.send_message(now, flow, message, MessageOptions::default()).is_ok();
                }
                5 => connection.finish(flow),
                6 if len.is_multiple_of(2) => connection.reset(flow, u64::from(len)),
                6 => connection.stop(flow, u64::from(len)),
                _ => {
                    if let Some(profile) = connection.profile(direction) {
                        let profile = profile.with(choice.0, choice.1);
                        let _ = match direction == Direction::Out && len.is_multiple_of(2) {
                            true => connection.use_profile(now, profile),
                            false => connection.request_profile(now, direction, profile),
                        };
                    }
                }
            }
            0
        });
        if has_sent {
            self.messages[end].insert(flow);
        }
        *self.written[end].entry(flow).or_default() += taken.unwrap_or(0) as u64;
        self.drain(end);
        Ok(())
    }
}

/// A mechanism of the library with its default parameters, or with any.
fn any_choice(u: &mut Unstructured<'_>) -> arbitrary::Result<(Function, Choice)> {
    let function = *u.choose(Function::ALL)?;
    let mechanism = *u.choose(&library::of(function))?;
    let mut choice = mechanism.choice();
    if u.ratio(1, 4)? {
        choice.params = Params([u.arbitrary()?, u.arbitrary()?, 0, 0]);
    }
    Ok((function, choice))
}

/// Damages a datagram.
fn change(u: &mut Unstructured<'_>, datagram: &mut Vec<u8>) -> arbitrary::Result<()> {
    let at = u.choose_index(datagram.len().max(1))?;
    match u.int_in_range(0..=3)? {
        0 => datagram.truncate(at),
        1 => datagram.resize(datagram.len() + usize::from(u.arbitrary::<u8>()?), 0),
        _ => {
            if let Some(byte) = datagram.get_mut(at) {
                *byte ^= u.int_in_range(1..=255u8)?;
            }
        }
    }
    Ok(())
}

pub fn run(data: &[u8]) {
    let Some(([asked, cids, begin], rest)) = data.split_first_chunk::<3>() else { return };
    let mut world = World::new(*asked, *cids);
    // Mostly the handshake is done before anything happens.
    if begin % 4 != 0 {
        world.converse(40);
    }
    let mut u = Unstructured::new(rest);
    for _ in 0..STEPS_MAX {
        if u.is_empty() || world.step(&mut u).is_err() {
            break;
        }
    }
    world.converse(200);
}
