//! The exchange over whole connections. Each of its messages is lost on the way, the first, second
//! or third of its kind, in every combination, while data flows.

mod checks;

use bytes::Bytes;
use core::time::Duration;
use rustls::pki_types::ServerName;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use uts_engine::requirements::Requirements;
use uts_engine::{
    CloseReason, Connection, ConnectionConfig, ConnectionHandle, Direction, Endpoint, EndpointConfig, Event,
    ExchangeEvent, FlowId, FlowOptions, FrameKinds, MessageOptions, Read, TraceKind, WriteError,
};
use uts_functions::{Function, Profile, Time, library};
use uts_sim::identity::{Identities, SERVER_NAME};
use uts_wire::frame::{self, Frame, kind};

const CLIENT: usize = 0;
const SERVER: usize = 1;
const ONE_WAY: Duration = Duration::from_millis(20);

fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, end as u8], 4433))
}

/// Which packets are lost: those of `end` that carry a frame of type `kind`, by their count from 1.
#[derive(Clone, Debug)]
struct Loss {
    end: usize,
    kind: u8,
    numbers: Vec<u32>,
    seen: u32,
    lost: u32,
}

fn loss(end: usize, kind: u8, numbers: impl IntoIterator<Item = u32>) -> Loss {
    Loss { end, kind, numbers: numbers.into_iter().collect(), seen: 0, lost: 0 }
}

/// Two endpoints, and a path whose every packet is known by what it carries.
struct Script {
    now: Time,
    ends: [Endpoint; 2],
    handles: [Option<ConnectionHandle>; 2],
    /// Datagrams on their way, by when they arrive.
    flight: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    sent: u64,
    losses: Vec<Loss>,
    events: [Vec<ExchangeEvent>; 2],
    closed: [Option<CloseReason>; 2],
    /// Messages that the server has read.
    read: Vec<Bytes>,
    written: u8,
    flow: Option<FlowId>,
}

impl Script {
    fn new(identities: &Identities) -> Self {
        Self::with(identities, "uts.security=required")
    }

    fn with(identities: &Identities, security: &str) -> Self {
        let mut config = ConnectionConfig::default();
        for property in
            ["preserveMsgBoundaries=require", "uts.adapt=off"].into_iter().chain(security.split(' '))
        {
            config.requirements.assign(property).expect("a valid property");
        }
        let server = EndpointConfig {
            server: Some(identities.server.clone()),
            accept: config.clone(),
            ..EndpointConfig::default()
        };
        let mut ends = [Endpoint::new(EndpointConfig::default(), [1; 32]), Endpoint::new(server, [2; 32])];
        let name = ServerName::try_from(SERVER_NAME).expect("a name");
        let tls = identities.client.clone();
        let client =
            ends[CLIENT].connect(Time::ZERO, address(SERVER), name, tls, config, None).expect("begun");
        let mut script = Script {
            now: Time::ZERO,
            ends,
            handles: [Some(client), None],
            flight: BTreeMap::new(),
            sent: 0,
            losses: Vec::new(),
            events: [Vec::new(), Vec::new()],
            closed: [None, None],
            read: Vec::new(),
            written: 0,
            flow: None,
        };
        // Packets are told apart from the first: rows and datagrams go together.
        script.at(CLIENT).trace().start();
        script.pass(2000);
        script.flow = script.at(CLIENT).open_flow(FlowOptions::default()).ok();
        script
    }

    fn at(&mut self, end: usize) -> &mut Connection {
        let handle = self.handles[end].expect("connected");
        self.ends[end].connection(handle).expect("it is there")
    }

    /// Sends a datagram of an end on its way, if it is not lost.
    fn transmit(&mut self, end: usize) -> bool {
        let mut buffer = Vec::new();
        let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut buffer) else { return false };
        let mut kinds = match self.handles[end].and_then(|handle| self.ends[end].connection(handle)) {
            Some(connection) => connection.trace().take().filter(is_sent).map(|row| row.frames).collect(),
            None => Vec::new(),
        }
        .into_iter();
        for datagram in buffer.chunks(transmit.segment_bytes) {
            let is_short = datagram[0] & 0x80 == 0;
            let frames = if is_short { kinds.next().unwrap_or_default() } else { FrameKinds::default() };
            if !self.is_lost(end, frames) {
                self.sent += 1;
                self.flight.insert((self.now + ONE_WAY, self.sent), (1 - end, datagram.to_vec()));
            }
        }
        assert!(kinds.next().is_none(), "a row for each packet");
        true
    }

    fn is_lost(&mut self, end: usize, frames: FrameKinds) -> bool {
        let mut is_lost = false;
        for loss in self.losses.iter_mut().filter(|l| l.end == end && frames.contains(l.kind)) {
            loss.seen += 1;
            if loss.numbers.contains(&loss.seen) {
                loss.lost += 1;
                is_lost = true;
            }
        }
        is_lost
    }

    fn tell(&mut self, end: usize) {
        while let Some((handle, event)) = self.ends[end].poll_event() {
            match event {
                Event::Connected => {
                    self.handles[end] = Some(handle);
                    self.at(end).trace().start();
                }
                Event::Exchange(step) => self.events[end].push(*step),
                Event::Closed(reason) => self.closed[end] = Some(reason),
                Event::Readable(flow) if end == SERVER => {
                    let now = self.now;
                    while let Ok(Read::Message(message)) = self.at(SERVER).read(now, flow, 1000) {
                        self.read.push(message);
                    }
                }
                _ => {}
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        for _ in 0..1_000_000 {
            let sent = self.transmit(CLIENT) | self.transmit(SERVER);
            self.tell(CLIENT);
            self.tell(SERVER);
            if sent {
                continue;
            }
            let timers = self.ends.iter_mut().filter_map(Endpoint::poll_timeout);
            let arrival = self.flight.first_key_value().map(|((at, _), _)| *at);
            let next = timers.chain(arrival).min().unwrap_or(Time::NEVER);
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            while let Some(entry) = self.flight.first_entry().filter(|e| e.key().0 <= self.now) {
                let (to, mut datagram) = entry.remove();
                self.ends[to].handle_datagram(self.now, address(1 - to), None, &mut datagram);
            }
            let now = self.now;
            self.ends.iter_mut().for_each(|end| end.handle_timeout(now));
        }
        panic!("it does not come to rest");
    }

    /// A message every 20 ms for this long.
    fn talk(&mut self, ms: u64) {
        for _ in 0..ms / 20 {
            self.written += 1;
            let (now, flow, message) = (self.now, self.flow.expect("open"), vec![self.written; 100]);
            let sent = self.at(CLIENT).send_message(now, flow, message.into(), MessageOptions::default());
            sent.expect("room");
            self.pass(20);
        }
    }

    fn request(&mut self, end: usize, direction: Direction, profile: Profile) {
        let now = self.now;
        self.at(end).request_profile(now, direction, profile).expect("idle");
    }

    fn profile(&mut self) -> Profile {
        self.at(CLIENT).profile(Direction::Out).expect("connected")
    }

    /// Both ends of the client's data have the same profile; all messages have arrived, in order;
    /// nothing is under way.
    fn settle(&mut self) -> Profile {
        self.losses.clear();
        self.talk(200);
        self.pass(3000);
        assert_eq!(self.closed, [None, None]);
        assert!(self.read.iter().map(|m| m[0]).eq(1..=self.written), "{} messages", self.read.len());
        let profile = self.profile();
        assert_eq!(self.at(SERVER).profile(Direction::In), Some(profile));
        for end in [CLIENT, SERVER] {
            let timers = self.at(end).timers();
            assert!(timers.contains("exchange None"), "an exchange is under way: {timers}");
        }
        profile
    }

    fn count(&self, end: usize, wanted: impl Fn(&ExchangeEvent) -> bool) -> usize {
        self.events[end].iter().filter(|step| wanted(step)).count()
    }
}

fn is_sent(row: &uts_engine::TraceRow) -> bool {
    matches!(row.kind, TraceKind::Sent | TraceKind::Repeated)
}

fn is_completed(step: &ExchangeEvent) -> bool {
    matches!(step, ExchangeEvent::Completed { .. })
}

/// All sets of the first three.
fn patterns() -> impl Iterator<Item = Vec<u32>> {
    (1..8u32).map(|set| (1..=3).filter(|n| set & (1 << (n - 1)) != 0).collect())
}

/// The ends that may ask for a change of the client's data: the client, its sender, and the server,
/// its receiver.
const ASKERS: [(usize, Direction); 2] = [(CLIENT, Direction::Out), (SERVER, Direction::In)];

#[test]
fn an_exchange_completes_whichever_of_its_messages_are_lost() {
    let identities = Identities::new().expect("keys");
    for (asker, direction) in ASKERS {
        for (from, kind) in [(asker, kind::REQUEST_PF), (1 - asker, kind::ACK_PF), (asker, kind::CONFIRM_PF)]
        {
            for numbers in patterns() {
                let what = format!("{direction:?}, {kind:#x} of {from} lost: {numbers:?}");
                let mut script = Script::new(&identities);
                let wish = script.profile().with_named(Function::Congestion, "bbr").expect("there");
                let wish = wish.with_named(Function::Fec, "xor").expect("there");
                script.losses = vec![loss(from, kind, numbers.clone())];
                script.request(asker, direction, wish);
                script.talk(4000);
                if numbers[0] == 1 {
                    assert!(script.losses[0].lost > 0, "{what}: nothing was lost");
                }
                assert_eq!(script.settle(), wish, "{what}");
                assert_eq!(script.count(asker, is_completed), 1, "{what}");
                let granted = |s: &ExchangeEvent| matches!(s, ExchangeEvent::Granted { .. });
                assert_eq!(script.count(1 - asker, granted), 1, "{what}");
            }
        }
    }
}

#[test]
fn requests_that_cross_end_in_one_profile_whichever_messages_are_lost() {
    let identities = Identities::new().expect("keys");
    let kinds = [kind::REQUEST_PF, kind::ACK_PF, kind::CONFIRM_PF, kind::STALE_PF];
    for (end, kind) in [CLIENT, SERVER].into_iter().flat_map(|end| kinds.map(|kind| (end, kind))) {
        for numbers in patterns() {
            let mut script = Script::new(&identities);
            let base = script.profile();
            let wishes =
                ["bbr", "new-reno"].map(|name| base.with_named(Function::Congestion, name).expect("there"));
            script.losses = vec![loss(end, kind, numbers.clone())];
            for ((end, direction), wish) in ASKERS.into_iter().zip(wishes) {
                script.request(end, direction, wish);
            }
            script.talk(4000);
            let agreed = script.settle();
            assert!(wishes.contains(&agreed), "{kind:#x} of {end} lost: {numbers:?}");
            let completed = script.count(CLIENT, is_completed) + script.count(SERVER, is_completed);
            assert!(completed >= 1, "{kind:#x} of {end} lost: {numbers:?}");
        }
    }
}

#[test]
fn an_exchange_that_nobody_answers_is_given_up_and_asked_for_again() {
    let identities = Identities::new().expect("keys");
    for (asker, direction) in ASKERS {
        let mut script = Script::new(&identities);
        let base = script.profile();
        let wish = base.with_named(Function::Congestion, "bbr").expect("there");
        script.losses = vec![loss(asker, kind::REQUEST_PF, 1..1000)];
        script.request(asker, direction, wish);
        for _ in 0..60 {
            script.talk(60);
            script.pass(1000);
        }
        assert!(
            script.losses[0].lost >= 8,
            "X-20: a packet found lost brings a repeat beside the eight tries"
        );
        let failed = |s: &ExchangeEvent| matches!(s, ExchangeEvent::Failed { .. });
        assert_eq!((script.count(asker, failed), script.count(asker, is_completed)), (1, 0));
        assert_eq!(script.settle(), base, "the old profile goes on");
        script.request(asker, direction, wish);
        assert_eq!(script.settle(), wish);
    }
}

/// The server withdraws a mechanism that it said it had. Over the wire, that is a peer with a
/// smaller library.
#[test]
fn a_peer_that_lacks_a_mechanism_refuses_and_the_old_profile_goes_on() {
    let identities = Identities::new().expect("keys");
    for (asker, direction) in ASKERS {
        for numbers in [vec![]].into_iter().chain(patterns()) {
            let mut script = Script::new(&identities);
            let bbr = library::by_name(Function::Congestion, "bbr").expect("there");
            // It has told the peer that it has it.
            script.at(1 - asker).withdraw(Function::Congestion, bbr.number);
            let base = script.profile();
            let wish = base.with(Function::Congestion, bbr.choice());
            script.losses = vec![loss(1 - asker, kind::NAK_PF, numbers.clone())];
            script.request(asker, direction, wish);
            script.talk(4000);
            assert!(script.losses[0].seen > script.losses[0].lost, "a refusal arrived");
            assert_eq!(script.settle(), base, "{numbers:?}");
            let refused: Vec<_> = script.events[asker]
                .iter()
                .filter_map(|step| match step {
                    ExchangeEvent::Refused { function, why, .. } => Some((*function, why.as_str())),
                    _ => None,
                })
                .collect();
            assert_eq!(refused, [(Function::Congestion, "the peer does not have that mechanism")]);
            // Something else can still be had.
            let other = base.with_named(Function::Congestion, "new-reno").expect("there");
            script.request(asker, direction, other);
            assert_eq!(script.settle(), other);
        }
    }
}

/// Flows that require what the peer then refuses get another profile that does, or are told.
#[test]
fn a_refused_group_is_given_another_profile_or_given_up() {
    let identities = Identities::new().expect("keys");
    let mut script = Script::new(&identities);
    let selective = library::by_name(Function::Retransmission, "selective").expect("there");
    let lz4 = library::by_name(Function::Presentation, "lz4").expect("there");
    script.at(SERVER).withdraw(Function::Retransmission, selective.number);
    script.at(SERVER).withdraw(Function::Presentation, lz4.number);
    let of = |properties: &[&str]| {
        let mut requirements = Requirements::messages();
        properties.iter().for_each(|p| requirements.assign(p).expect(p));
        FlowOptions::requiring(requirements)
    };
    let pinned = script.at(CLIENT).open_flow(of(&["uts.profile.presentation=lz4"])).expect("both had it");
    let (now, message) = (script.now, Bytes::from_static(b"compressed"));
    script.at(CLIENT).send_message(now, pinned, message, MessageOptions::default()).expect("it waits");
    script.pass(3000);
    let now = script.now;
    let again = script.at(CLIENT).write(now, pinned, Bytes::from_static(b"x"));
    let Err(WriteError::Refused(why)) = again else { panic!("{again:?}") };
    assert!(why.contains("presentation") || why.contains("lz4"), "{why}");
    assert_eq!(script.read, Vec::<Bytes>::new(), "nothing left under another profile");
    // Another set of requirements leaves the selector a choice.
    let free = script.at(CLIENT).open_flow(of(&["connPriority=7"])).expect("a flow");
    let (now, message) = (script.now, Bytes::from(vec![1; 100]));
    script.at(CLIENT).send_message(now, free, message, MessageOptions::default()).expect("it waits");
    script.pass(3000);
    let profile = script.at(CLIENT).flow_profile(Direction::Out, free).expect("agreed");
    assert_eq!(profile.name(Function::Retransmission), "go-back-n", "it repeats what was lost, too");
    assert_eq!(script.read.len(), 1);
}

/// Packets that only a broken or hostile peer would send, made with the connection's keys.
#[test]
fn authentic_packets_that_cannot_be_read_end_the_connection_and_change_nothing() {
    let identities = Identities::new().expect("keys");
    let malformed: [&[u8]; 9] = [
        &[0x3f],                                        // P-20: a reserved type,
        &[0xff, 1, 2, 3],                               // and the last of them.
        &[0x01, 0x15, 0x00],                            // A good frame, then a reserved one.
        &[0x02, 0x19],                                  // A truncated acknowledgement.
        &[0x05, 0xff, 0xff, 0xff, 0xff, 0xff],          // P-24: a flow beyond 2^32, cut short.
        &[0x0a, 0x00, 0x08, 0x02, 0x00, 0x00],          // P-25: a ninth group.
        &[0x0a, 0x02, 0x00, 0x02, 0x00, 0x00],          // P-25: no such direction.
        &[0x0a, 0x00, 0x00, 0x02, 0x00, 0x01, 3, 1, 5], // P-41: five parameters.
        &[0x0f, 0x00, 0x02, 0xff, 0xfe],                // P-27: a reason that is no text.
    ];
    for frames in malformed {
        let mut script = Script::new(&identities);
        script.talk(100);
        let before = script.at(SERVER).memory_bytes();
        let (now, read) = (script.now, script.read.len());
        let mut packet = script.at(CLIENT).packet_of(now, frames).expect("open");
        script.at(CLIENT).trace().take().count();
        script.ends[SERVER].handle_datagram(now, address(CLIENT), None, &mut packet);
        let server = script.at(SERVER);
        assert_eq!(server.stats().dropped_malformed, 1, "{frames:x?}");
        assert!(server.memory_bytes() <= before + 1000, "{frames:x?}");
        script.pass(1000);
        let protocol = |reason: &Option<CloseReason>| matches!(reason, Some(CloseReason::Protocol(_)));
        assert!(protocol(&script.closed[SERVER]), "{frames:x?}: {:?}", script.closed);
        assert!(matches!(script.closed[CLIENT], Some(CloseReason::Refused(_))), "{:?}", script.closed);
        assert_eq!(script.read.len(), read);
    }
}

#[test]
fn unprotected_packets_that_cannot_be_read_are_dropped() {
    let identities = Identities::new().expect("keys");
    let mut script = Script::with(&identities, "uts.security=unprotected");
    script.talk(100);
    let name = script.profile().name(Function::Protection);
    assert_eq!(name, "none");
    let now = script.now;
    let mut packet = script.at(CLIENT).packet_of(now, &[0x3f]).expect("open");
    script.at(CLIENT).trace().take().count();
    script.ends[SERVER].handle_datagram(now, address(CLIENT), None, &mut packet);
    assert_eq!(script.at(SERVER).stats().dropped_malformed, 1);
    script.settle();
}

/// Well-formed, authentic, and out of place: answered or ignored as the specification says. No
/// state is made.
#[test]
fn authentic_nonsense_about_exchanges_makes_no_state() {
    let identities = Identities::new().expect("keys");
    let mut script = Script::new(&identities);
    script.talk(100);
    let base = script.profile();
    let of = |frame: Frame<'_>| {
        let mut out = Vec::new();
        frame.emit(&mut out);
        out
    };
    let (out, inward) = (frame::Direction::FromSender, frame::Direction::ToSender);
    let request = |direction, epoch, group, choices: &[(u8, u8, u32)]| {
        let choices = choices.iter().map(|(function, mechanism, param)| uts_wire::WireChoice {
            function: *function,
            mechanism: *mechanism,
            params: [*param, 0, 0, 0],
        });
        let profile = Box::new(uts_wire::WireProfile::from_choices(choices).expect("few"));
        let using =
            if direction == out { [Some(0), None, None, None, None, None, None, None] } else { [None; 8] };
        of(Frame::RequestPf(frame::RequestPf { direction, group, epoch, using, profile }))
    };
    let aes = (12, 1, 0);
    // A refusal is answered with NAK-PF. A message that contradicts the numbering is ignored
    //
    let refused = |round: u32| {
        [
            request(out, round + 2, 0, &[(10, 200, 0), aes]), // an unknown mechanism
            request(out, round + 4, 0, &[(99, 7, 0), aes]),   // of an unknown function
            request(out, round + 6, 3, &[(6, 1, u32::MAX), aes]), // a parameter out of range
            request(out, round + 8, 0, &[]),                  // no protection
            request(inward, round + 1, 0, &[(4, 77, 0), aes]),
        ]
    };
    let ignored = [
        request(out, 3, 0, &[aes]),    // the wrong parity
        request(out, 1000, 0, &[aes]), // far beyond
        request(inward, 2, 0, &[aes]),
        of(Frame::AckPf(frame::AckPf { direction: out, epoch: 77 })),
        of(Frame::AckPf(frame::AckPf { direction: inward, epoch: 2 })),
        of(Frame::ConfirmPf(frame::ConfirmPf { direction: out, epoch: 12 })),
        of(Frame::StalePf(frame::StalePf { direction: inward, epoch: 2, highest: u32::MAX })),
        of(Frame::NakPf(frame::NakPf {
            direction: out,
            epoch: 4,
            function: 250,
            reason: 9,
            alternative: None,
        })),
    ];
    let mut memory = Vec::new();
    for round in [0, 8, 16] {
        let refused = refused(round);
        let all = refused.iter().map(|f| (f, true)).chain(ignored.iter().map(|f| (f, false)));
        for (frames, is_refused) in all {
            let now = script.now;
            let mut packet = script.at(CLIENT).packet_of(now, frames).expect("open");
            script.at(CLIENT).trace().take().count();
            script.losses = vec![loss(SERVER, kind::NAK_PF, [])];
            script.ends[SERVER].handle_datagram(now, address(CLIENT), None, &mut packet);
            script.pass(500);
            assert_eq!(script.losses[0].seen, u32::from(is_refused), "{frames:x?}");
            assert_eq!(script.closed, [None, None], "{frames:x?}");
        }
        memory.push(script.at(SERVER).memory_bytes());
    }
    // Fifteen stacks would take more; the room of the ledger has grown a little, and grows no more.
    assert!(memory[2] < memory[0] + 4096 && memory[2] <= memory[1] + 512, "{memory:?}");
    assert_eq!(script.settle(), base);
    let events: Vec<_> = script.events.iter().flatten().collect();
    assert!(events.is_empty(), "{events:?}");
}

/// to refuse is to decide, whatever the refusal is for. A request of a lower number
/// that comes later is too late, and a copy of the request is answered alike.
#[test]
fn a_request_with_an_unknown_function_is_decided_on_like_any_other() {
    let identities = Identities::new().expect("keys");
    let mut script = Script::new(&identities);
    script.talk(100);
    let request = |epoch, function| {
        let choice = |function, mechanism| uts_wire::WireChoice { function, mechanism, params: [0; 4] };
        let choices = [choice(function, 7), choice(12, 1)];
        let profile = Box::new(uts_wire::WireProfile::from_choices(choices).expect("few"));
        let (direction, mut using) = (frame::Direction::FromSender, [None; 8]);
        using[0] = Some(0);
        let mut out = Vec::new();
        Frame::RequestPf(frame::RequestPf { direction, group: 0, epoch, using, profile }).emit(&mut out);
        out
    };
    // An unknown function, a copy of that, and a lower number.
    let steps = [(request(4, 99), [1, 0]), (request(4, 99), [1, 0]), (request(2, 99), [0, 1])];
    for (frames, [naks, stales]) in steps {
        let now = script.now;
        let mut packet = script.at(CLIENT).packet_of(now, &frames).expect("open");
        script.at(CLIENT).trace().take().count();
        script.losses = vec![loss(SERVER, kind::NAK_PF, []), loss(SERVER, kind::STALE_PF, [])];
        script.ends[SERVER].handle_datagram(now, address(CLIENT), None, &mut packet);
        script.pass(500);
        assert_eq!([script.losses[0].seen, script.losses[1].seen], [naks, stales], "{frames:x?}");
    }
}

/// a flow's data in the packets of another group is an error of the connection.
#[test]
fn data_in_the_wrong_group_ends_the_connection() {
    let identities = Identities::new().expect("keys");
    let mut script = Script::new(&identities);
    let flow = script.at(CLIENT).open_flow(FlowOptions::requiring(Requirements::messages())).expect("a flow");
    let (now, message) = (script.now, Bytes::from_static(b"in group 1"));
    script.at(CLIENT).send_message(now, flow, message, MessageOptions::default()).expect("it waits");
    script.pass(1000);
    assert_eq!(script.read.len(), 1);
    // `packet_of` builds under group 0: data, END, BEGIN, MESSAGE, OFFSET; position 11.
    let data = [0x40 | 0b11_1010, flow.0 as u8, 11, b'x'];
    let now = script.now;
    let mut packet = script.at(CLIENT).packet_of(now, &data).expect("open");
    script.at(CLIENT).trace().take().count();
    script.ends[SERVER].handle_datagram(now, address(CLIENT), None, &mut packet);
    script.pass(100);
    let Some(CloseReason::Protocol(why)) = &script.closed[SERVER] else { panic!("{:?}", script.closed) };
    assert!(why.contains("group"), "{why}");
}

/// P-30: without a position, data stands at the front of its flow, and so does each message of a
/// packet.
#[test]
fn messages_without_positions_stand_at_the_front_of_a_flow_that_has_them() {
    let identities = Identities::new().expect("keys");
    let mut script = Script::with(&identities, "preserveMsgBoundaries=require");
    script.talk(100);
    let flow = script.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
    let (now, read) = (script.now, script.read.len());
    // Twice the same: data, END, BEGIN, MESSAGE, LEN; one byte.
    let data = [0x40 | 0b11_1001, flow.0 as u8, 1, b'x'].repeat(2);
    let mut packet = script.at(CLIENT).packet_of(now, &data).expect("open");
    script.at(CLIENT).trace().take().count();
    script.ends[SERVER].handle_datagram(now, address(CLIENT), None, &mut packet);
    script.pass(100);
    assert_eq!((script.read.len() - read, &script.closed), (1, &[None, None]));
}
