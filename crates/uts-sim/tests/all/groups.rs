//! Flows with requirements of their own: each keeps its promises, in one connection.

use bytes::Bytes;
use core::time::Duration;
use std::collections::BTreeMap;
use uts_engine::requirements::Requirements;
use uts_engine::{
    Connection, ConnectionConfig, ConnectionHandle, Direction, EndpointConfig, Event, ExchangeEvent,
    FlowError, FlowId, FlowOptions, MessageOptions, Read, TraceKind, WriteError,
};
use uts_functions::{Function, Time};
use uts_sim::identity::Identities;
use uts_sim::{NodeId, World, WorldConfig};

const SERVER: NodeId = 0;
const CLIENT: NodeId = 1;

struct Pair {
    world: World,
    handles: [Option<ConnectionHandle>; 2],
    /// Reads of the server, by flow, and their times.
    read: BTreeMap<FlowId, Vec<(Time, Read)>>,
    exchanges: Vec<(NodeId, ExchangeEvent)>,
    refused: Vec<(FlowId, String)>,
    /// Flows of which the server was told.
    opened: Vec<FlowId>,
}

impl Pair {
    fn new(path: &str, seed: u64, adjust: impl Fn(&mut ConnectionConfig)) -> Self {
        let mut config = ConnectionConfig::default();
        adjust(&mut config);
        let server = EndpointConfig { accept: config.clone(), ..EndpointConfig::default() };
        let world = WorldConfig { server, seed, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        world.limit_steps(5_000_000);
        world.set_path(uts_path::Target::Both, path).expect("a valid change");
        let client = world.connect(CLIENT, config).expect("the connection begins");
        let mut pair = Pair {
            world,
            handles: [None, Some(client)],
            read: BTreeMap::new(),
            exchanges: Vec::new(),
            refused: Vec::new(),
            opened: Vec::new(),
        };
        pair.pass(Duration::from_secs(2));
        pair
    }

    fn at(&mut self, node: NodeId) -> &mut Connection {
        let handle = self.handles[node].expect("connected");
        self.world.connection(node, handle).expect("it is there")
    }

    fn open(&mut self, requirements: &Requirements) -> FlowId {
        self.at(CLIENT).open_flow(FlowOptions::requiring(requirements.clone())).expect("a flow")
    }

    fn write(&mut self, flow: FlowId, data: &[u8]) -> Result<usize, WriteError> {
        let now = self.world.now();
        self.at(CLIENT).write(now, flow, Bytes::copy_from_slice(data))
    }

    fn send(&mut self, flow: FlowId, data: &[u8]) -> Result<(), WriteError> {
        let now = self.world.now();
        self.at(CLIENT).send_message(now, flow, Bytes::copy_from_slice(data), MessageOptions::default())
    }

    fn pass(&mut self, duration: Duration) {
        let until = self.world.now() + duration;
        while let Some(happening) = self.world.next(until) {
            match happening.event {
                Event::Connected => self.handles[happening.node] = Some(happening.connection),
                Event::Readable(flow) if happening.node == SERVER => {
                    let now = self.world.now();
                    while let Ok(read) = self.at(SERVER).read(now, flow, 1 << 20) {
                        self.read.entry(flow).or_default().push((now, read));
                    }
                }
                Event::Exchange(step) => self.exchanges.push((happening.node, *step)),
                Event::FlowOpened(flow) if happening.node == SERVER => self.opened.push(flow),
                Event::Refused(flow, why) => self.refused.push((flow, why)),
                Event::Closed(reason) => panic!("at {}: {reason}", happening.node),
                _ => {}
            }
        }
        assert!(!self.world.is_exhausted(), "too many steps");
    }

    /// Groups for which the client asked, in order.
    fn asked(&self) -> Vec<u8> {
        let asked = |(node, step): &(NodeId, ExchangeEvent)| match step {
            ExchangeEvent::Requested { group, .. } if *node == CLIENT => Some(*group),
            _ => None,
        };
        self.exchanges.iter().filter_map(asked).collect()
    }
}

fn requirements(properties: &[&str]) -> Requirements {
    let mut requirements = Requirements::default();
    properties.iter().for_each(|p| requirements.assign(p).expect(p));
    requirements
}

/// Unreliable, unordered messages with redundancy.
fn telemetry() -> Requirements {
    requirements(&[
        "reliability=prohibit",
        "preserveOrder=prohibit",
        "preserveMsgBoundaries=require",
        "uts.profile.fec=reed-solomon(data=4,parity=2,interleave=1,flush=30)",
    ])
}

fn byte_at(position: usize) -> u8 {
    (position.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// Outcome of a transfer of a file and of telemetry beside each other.
struct Outcome {
    file: Vec<u8>,
    numbers: Vec<u32>,
    delays: Vec<Duration>,
}

const FILE_BYTES: usize = 6_000_000;
const SAMPLES: u32 = 400;

fn file_and_telemetry(pair: &mut Pair) -> (Outcome, FlowId) {
    let file = pair.open(&Requirements::bulk());
    let telemetry = pair
        .at(CLIENT)
        .open_flow(FlowOptions { priority: 0, ..FlowOptions::requiring(telemetry()) })
        .expect("a flow");
    pair.at(CLIENT).trace().start();
    let data: Vec<u8> = (0..FILE_BYTES).map(byte_at).collect();
    let (mut written, mut sent) = (0, Vec::new());
    for number in 0..SAMPLES {
        let mut sample = [number as u8; 200];
        sample[..4].copy_from_slice(&number.to_be_bytes());
        pair.send(telemetry, &sample).expect("room");
        sent.push(pair.world.now());
        if written < data.len() {
            match pair.write(file, &data[written..]) {
                Ok(taken) => written += taken,
                Err(WriteError::Blocked) => {}
                Err(error) => panic!("{error}"),
            }
        }
        pair.pass(Duration::from_millis(10));
    }
    pair.at(CLIENT).finish(telemetry);
    while written < data.len() {
        written += pair.write(file, &data[written..]).unwrap_or(0);
        pair.pass(Duration::from_millis(10));
    }
    pair.at(CLIENT).finish(file);
    let has_ended = |pair: &Pair, flow| {
        pair.read.get(&flow).is_some_and(|reads| matches!(reads.last(), Some((_, Read::End))))
    };
    while !(has_ended(pair, file) && has_ended(pair, telemetry)) {
        pair.pass(Duration::from_secs(1));
    }
    let mut outcome = Outcome { file: Vec::new(), numbers: Vec::new(), delays: Vec::new() };
    for (_, read) in &pair.read[&file] {
        if let Read::Bytes(position, bytes) = read {
            assert_eq!(*position as usize, outcome.file.len(), "in order, without a gap");
            outcome.file.extend_from_slice(bytes);
        }
    }
    for (at, read) in &pair.read[&telemetry] {
        if let Read::Message(sample) = read {
            assert_eq!(sample.len(), 200, "messages arrive as they were sent");
            let number = u32::from_be_bytes([sample[0], sample[1], sample[2], sample[3]]);
            assert!(sample[4..].iter().all(|b| *b == number as u8), "sample {number} is damaged");
            outcome.numbers.push(number);
            outcome.delays.push(at.since(sent[number as usize]));
        }
    }
    assert!(outcome.file == data, "the file is whole");
    (outcome, telemetry)
}

#[test]
fn a_file_and_telemetry_keep_their_own_promises_on_one_lossy_path() {
    let mut missing_in_all = 0;
    for seed in 0..5 {
        println!("seed {seed}");
        // The telemetry's own losses: 3 % each way.
        let mut pair = Pair::new("rate=20mbit delay=20ms buffer=100kB loss=0.03", seed, |_| ());
        let (outcome, telemetry) = file_and_telemetry(&mut pair);
        let rows: Vec<_> = pair.at(CLIENT).trace().take().collect();
        let repeated = |flow: FlowId, end: u64| {
            let is_data = |(f, position)| f == flow.0 && position < end;
            rows.iter().filter(|r| r.kind == TraceKind::Repeated && r.data.is_some_and(is_data)).count()
        };
        // The end of a flow is no sample. It takes the position behind them, and is repeated
        // (sequencing.md R-4).
        assert_eq!(repeated(telemetry, u64::from(SAMPLES) * 201), 0, "telemetry is never repeated");
        assert!(repeated(FlowId(0), u64::MAX) > 50, "the file is");
        let mut distinct = outcome.numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), outcome.numbers.len(), "each at most once");
        // Redundancy brings back nearly all of the 3 %. Some of it comes after its successors,
        // which did not wait.
        let missing = SAMPLES as usize - distinct.len();
        println!("{missing} of {SAMPLES} samples missing");
        missing_in_all += missing;
        assert!(pair.at(SERVER).stats().packets_recovered > 3);
        assert!(outcome.numbers.windows(2).any(|w| w[0] > w[1]), "none waits for an earlier one");
        let slowest = outcome.delays.iter().max().expect("some arrived");
        // Path 20 ms, queue 40 ms, the wait for its profile 60 ms and the handshake's tail,
        // redundancy 60 ms.
        assert!(*slowest < Duration::from_millis(400), "{slowest:?}");
        assert_eq!(pair.asked().iter().filter(|g| **g == 1).count(), 1);
        assert_eq!(pair.asked().iter().filter(|g| **g == 2).count(), 1);
    }
    assert!(missing_in_all < 5 * SAMPLES as usize / 100, "{missing_in_all} are missing");
}

#[test]
fn each_flow_has_the_profile_that_it_requires_and_the_connections_shared_functions() {
    let mut pair = Pair::new("rate=20mbit delay=20ms", 1, |_| ());
    let (plain, file, samples) =
        (FlowOptions::default(), FlowOptions::requiring(Requirements::messages()), telemetry());
    let plain = pair.at(CLIENT).open_flow(plain).expect("a flow");
    let messages = pair.at(CLIENT).open_flow(file).expect("a flow");
    let samples = pair.open(&samples);
    assert_eq!(pair.at(CLIENT).flow_profile(Direction::Out, samples), None, "not agreed yet");
    pair.write(plain, b"bytes").expect("room");
    pair.send(messages, b"one").expect("room");
    pair.send(messages, b"two").expect("room");
    pair.send(samples, b"sample").expect("room");
    pair.pass(Duration::from_secs(2));
    let names = |pair: &mut Pair, node, direction, flow| {
        let profile = pair.at(node).flow_profile(direction, flow).expect("in use");
        [Function::Segmentation, Function::Sequencing, Function::Fec, Function::Retransmission]
            .map(|f| profile.name(f))
    };
    let expected = [
        (plain, ["bytes", "ordered", "none", "selective"]),
        (messages, ["messages", "ordered", "none", "selective"]),
        (samples, ["messages", "unordered", "reed-solomon", "none"]),
    ];
    for (flow, own) in expected {
        assert_eq!(names(&mut pair, CLIENT, Direction::Out, flow), own);
        assert_eq!(names(&mut pair, SERVER, Direction::In, flow), own);
    }
    let texts = |flow| pair.read[&flow].iter().map(|(_, read)| read.clone()).collect::<Vec<_>>();
    assert_eq!(texts(plain), [Read::Bytes(0, Bytes::from_static(b"bytes"))]);
    assert_eq!(texts(messages), [b"one", b"two"].map(|m| Read::Message(Bytes::from_static(m))));
    assert_eq!(texts(samples), [Read::Message(Bytes::from_static(b"sample"))]);
    // What is shared changes for all: congestion with group 0's profile alone, ciphers by an
    // exchange of each group.
    let base = pair.at(CLIENT).profile(Direction::Out).expect("connected");
    let other = base
        .with_named(Function::Congestion, "new-reno")
        .and_then(|p| p.with_named(Function::Protection, "chacha20-poly1305"))
        .expect("in the library");
    let now = pair.world.now();
    pair.at(CLIENT).request_profile(now, Direction::Out, other).expect("idle");
    pair.pass(Duration::from_secs(3));
    for flow in [plain, messages, samples] {
        let profile = pair.at(SERVER).flow_profile(Direction::In, flow).expect("in use");
        assert_eq!(profile.name(Function::Protection), "chacha20-poly1305", "{flow:?}");
    }
    for (flow, own) in expected {
        assert_eq!(names(&mut pair, SERVER, Direction::In, flow), own, "the rest stays");
    }
    assert_eq!(pair.asked(), [1, 2, 0, 1, 2]);
    pair.send(samples, b"later").expect("room");
    pair.pass(Duration::from_secs(2));
    assert_eq!(pair.read[&samples].len(), 2);
}

#[test]
fn the_peer_may_have_requirements_for_its_half() {
    let mut pair = Pair::new("rate=20mbit delay=20ms", 1, |_| ());
    let flow = pair.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
    pair.write(flow, b"question").expect("room");
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.at(SERVER).accept_flow(), Some(flow));
    let now = pair.world.now();
    pair.at(SERVER).set_flow_requirements(flow, &telemetry()).expect("nothing was written");
    for text in ["answer 1", "answer 2"] {
        pair.at(SERVER).send_message(now, flow, text.into(), MessageOptions::default()).expect("room");
    }
    assert_eq!(pair.at(SERVER).set_flow_requirements(flow, &Requirements::bulk()), Err(FlowError::Begun));
    pair.pass(Duration::from_secs(1));
    let now = pair.world.now();
    for text in ["answer 1", "answer 2"] {
        assert_eq!(pair.at(CLIENT).read(now, flow, 100), Ok(Read::Message(text.into())));
    }
    let unknown = FlowId(77);
    assert_eq!(pair.at(SERVER).set_flow_requirements(unknown, &telemetry()), Err(FlowError::Unknown));
}

/// Nothing leaves under a profile that does not keep what was asked.
#[test]
fn data_waits_until_its_profile_is_agreed() {
    let mut pair = Pair::new("rate=20mbit delay=20ms", 1, |c| c.idle_timeout = Duration::from_secs(600));
    let backward = uts_path::Target::One(uts_path::Direction::Backward);
    pair.world.set_path(backward, "down").expect("a valid change");
    let (plain, samples) = (FlowOptions::default(), telemetry());
    let plain = pair.at(CLIENT).open_flow(plain).expect("a flow");
    let waiting = pair.open(&samples);
    pair.write(plain, b"at once").expect("room");
    for _ in 0..3 {
        pair.send(waiting, b"later").expect("it is kept");
    }
    pair.at(CLIENT).finish(waiting);
    pair.pass(Duration::from_secs(100));
    assert!(pair.read.contains_key(&plain) && !pair.read.contains_key(&waiting));
    assert_eq!(pair.at(SERVER).flow_profile(Direction::In, waiting), None, "the server knows no such flow");
    let failed = |(_, step): &(NodeId, ExchangeEvent)| matches!(step, ExchangeEvent::Failed { group: 1, .. });
    assert!(pair.exchanges.iter().any(failed), "it was given up, and is asked for again");
    pair.world.set_path(backward, "up").expect("a valid change");
    pair.pass(Duration::from_secs(100));
    let later = Read::Message(Bytes::from_static(b"later"));
    let read: Vec<_> = pair.read[&waiting].iter().map(|(_, read)| read.clone()).collect();
    assert_eq!(read, [later.clone(), later.clone(), later, Read::End]);
}

#[test]
fn equal_requirements_share_a_group_and_there_are_seven_at_most() {
    let mut pair = Pair::new("rate=20mbit delay=20ms", 1, |_| ());
    let of = |data: u32| requirements(&[&format!("uts.profile.fec=xor(data={data})")]);
    let mut flows = Vec::new();
    for data in 2..9 {
        flows.push(pair.open(&of(data)));
        pair.open(&of(data));
    }
    let one_more = FlowOptions::requiring(of(9));
    assert_eq!(pair.at(CLIENT).open_flow(one_more.clone()), Err(FlowError::TooManyGroups(7)));
    pair.pass(Duration::from_secs(5));
    assert_eq!(pair.asked(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(pair.at(CLIENT).open_flow(one_more.clone()), Err(FlowError::TooManyGroups(7)));
    // Both flows of a group end: it is free for others, though the peer has not read the data yet.
    pair.write(flows[3], b"last words").expect("room");
    pair.at(CLIENT).finish(flows[3]);
    pair.at(CLIENT).finish(FlowId(flows[3].0 + 2));
    pair.pass(Duration::from_secs(1));
    let replaced = pair.at(CLIENT).open_flow(one_more).expect("a group is free");
    pair.write(replaced, b"more").expect("room");
    assert_eq!(pair.at(CLIENT).flow_profile(Direction::Out, replaced), None, "not the old one's");
    pair.pass(Duration::from_secs(2));
    let profile = pair.at(CLIENT).flow_profile(Direction::Out, replaced).expect("agreed");
    assert_eq!(profile.describe(Function::Fec), "xor(data=9)");
    assert_eq!(pair.asked().last(), Some(&4));
    assert_eq!(pair.read[&replaced][0].1, Read::Bytes(0, Bytes::from_static(b"more")));
    assert_eq!(pair.read[&flows[3]][0].1, Read::Bytes(0, Bytes::from_static(b"last words")));
}

#[test]
fn what_a_flow_cannot_have_is_told_at_once() {
    let mut pair = Pair::new("rate=20mbit delay=20ms", 1, |_| ());
    let mut refused = |properties: &[&str]| {
        let options = FlowOptions::requiring(requirements(properties));
        pair.at(CLIENT).open_flow(options).expect_err("it cannot be had").to_string()
    };
    assert_eq!(
        refused(&["uts.security=unprotected"]),
        "`uts.security=unprotected` cannot be asked of a flow: all flows of a connection share that, and this one has \
         `required`"
    );
    assert!(refused(&["uts.profile.congestion=bbr"]).contains("`cubic`"));
    let text = refused(&["uts.profile.retransmission=none"]);
    assert!(text.contains("reliability=require") && text.contains("contradict"), "{text}");
    assert!(pair.at(CLIENT).open_flow(FlowOptions::default()).is_ok(), "nothing was opened");
    assert!(pair.asked().is_empty(), "{:?}", pair.asked());
    // What the connection has may be said again.
    let same = requirements(&["uts.profile.congestion=cubic", "congestionControl=require"]);
    assert!(pair.at(CLIENT).open_flow(FlowOptions::requiring(same)).is_ok());
}

/// An epoch of a group that never changes grows old beside one that does; it is renewed in time.
#[test]
fn a_quiet_group_keeps_up_with_a_busy_one() {
    let mut pair = Pair::new("rate=20mbit delay=5ms", 1, |c| c.requirements.adapt = false);
    let samples = pair.open(&telemetry());
    pair.send(samples, b"sample").expect("room");
    pair.pass(Duration::from_secs(1));
    let base = pair.at(CLIENT).profile(Direction::Out).expect("connected");
    let mut changes = 0;
    for turn in 0..80 {
        let name = ["new-reno", "cubic"][turn % 2];
        let profile = base.with_named(Function::Congestion, name).expect("in the library");
        let now = pair.world.now();
        changes += usize::from(pair.at(CLIENT).request_profile(now, Direction::Out, profile).is_ok());
        pair.pass(Duration::from_millis(200));
        pair.send(samples, b"sample").expect("room");
        pair.pass(Duration::from_millis(50));
    }
    assert!(changes > 60, "only {changes} of 80");
    assert!(pair.asked().iter().filter(|g| **g == 1).count() > 2, "it was renewed");
    assert_eq!(pair.read[&samples].len(), 81);
}

/// An end that opens a flow only to send may say this before anything else.
#[test]
fn a_flow_that_begins_with_a_stop_is_told_to_the_peer() {
    let mut pair = Pair::new("rate=20mbit delay=20ms buffer=100kB", 0, |_| ());
    let flow = pair.open(&Requirements::default());
    pair.at(CLIENT).stop(flow, 7);
    pair.pass(Duration::from_millis(200));
    assert_eq!(pair.opened, [flow]);
    assert_eq!(pair.at(SERVER).accept_flow(), Some(flow));
}

/// The server agrees to a profile without protection, and its answer never arrives: the client
/// gives it up. What the client then asks for beside what it uses is judged by that.
#[test]
fn a_group_is_judged_by_what_its_sender_uses_and_not_by_what_it_gave_up() {
    let clean = "rate=10mbit delay=10ms loss=0";
    let mut pair = Pair::new(clean, 1, |config| {
        for property in ["uts.security=unprotected", "uts.consent=all", "uts.adapt=off"] {
            config.requirements.assign(property).expect("a valid property");
        }
        config.idle_timeout = Duration::from_secs(5000);
    });
    let used = pair.at(CLIENT).profile(Direction::Out).expect("established");
    let is_open = used.name(Function::Protection) == "none";
    let other = used.with_named(Function::Protection, if is_open { "aes-128-gcm" } else { "none" });
    let now = pair.world.now();
    let asked = pair.at(CLIENT).request_profile(now, Direction::Out, other.expect("it exists"));
    asked.expect("nothing is under way");
    let backward = uts_path::Target::One(uts_path::Direction::Backward);
    pair.world.set_path(backward, "rate=10mbit delay=10ms loss=1").expect("a valid change");
    pair.pass(Duration::from_secs(1000));
    let has = |pair: &Pair, node, what: fn(&ExchangeEvent) -> bool| {
        pair.exchanges.iter().any(|(at, step)| *at == node && what(step))
    };
    assert!(has(&pair, SERVER, |step| matches!(step, ExchangeEvent::Granted { .. })), "it was agreed to");
    assert!(has(&pair, CLIENT, |step| matches!(step, ExchangeEvent::Failed { .. })), "and given up");
    pair.world.set_path(uts_path::Target::Both, clean).expect("a valid change");
    let flow = pair.open(&requirements(&["uts.profile.fec=xor"]));
    pair.write(flow, b"still here").expect("there is room");
    pair.pass(Duration::from_secs(100));
    assert_eq!(pair.refused, []);
    let refused = has(&pair, CLIENT, |step| matches!(step, ExchangeEvent::Refused { .. }));
    assert!(!refused, "{:?}", pair.exchanges);
    assert!(pair.read.contains_key(&flow), "{:?}", pair.exchanges);
}

/// Keys of a group are due as group 0 stops to protect: one request brings both.
#[test]
fn a_group_whose_keys_are_old_follows_first() {
    let mut pair = Pair::new("rate=10mbit delay=10ms", 5, |config| {
        config.requirements = requirements(&[
            "uts.security=unprotected",
            "uts.consent=all",
            "uts.adapt=off",
            "uts.profile.protection=aes-128-gcm",
        ]);
    });
    let flow = pair.open(&requirements(&["uts.profile.fec=xor"]));
    pair.write(flow, b"begun").expect("there is room");
    pair.pass(Duration::from_secs(2));
    let used = pair.at(CLIENT).profile(Direction::Out).expect("established");
    assert_eq!(used.name(Function::Protection), "aes-128-gcm");
    let open = used.with_named(Function::Protection, "none").expect("it exists");
    let now = pair.world.now();
    pair.at(CLIENT).request_profile(now, Direction::Out, open).expect("nothing is under way");
    // While the request is under way, so that both are due in the instant in which it is answered.
    pair.at(CLIENT).age_keys(1 << 22);
    pair.pass(Duration::from_secs(5));
    pair.write(flow, b"open").expect("there is room");
    pair.pass(Duration::from_secs(2));
    let refused = |(_, step): &&(NodeId, ExchangeEvent)| matches!(step, ExchangeEvent::Refused { .. });
    assert_eq!(pair.exchanges.iter().find(refused), None);
    let profile = pair.at(CLIENT).flow_profile(Direction::Out, flow).expect("in use");
    assert_eq!(profile.name(Function::Protection), "none");
    assert!(pair.asked().ends_with(&[0, 1]), "{:?}", pair.asked());
}
