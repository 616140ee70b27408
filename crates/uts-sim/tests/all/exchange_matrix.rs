//! Every mechanism of every function is exchanged for every other while data flows, and nothing is
//! lost.

use bytes::Bytes;
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Direction, EndpointConfig, Event, ExchangeError, ExchangeEvent,
    FlowId, FlowOptions, Mapping, MessageOptions, Read,
};
use uts_functions::mechanism::Promise;
use uts_functions::{Function, Mechanism, Profile, library};
use uts_sim::identity::Identities;
use uts_sim::{NodeId, World, WorldConfig};

pub const SERVER: NodeId = 0;
pub const CLIENT: NodeId = 1;

pub struct Transfer {
    pub world: World,
    /// Changes of the profile under which the client sends take effect at once, where it wishes so.
    pub at_once: bool,
    pub handles: [Option<ConnectionHandle>; 2],
    pub flow: Option<FlowId>,
    pub sent: u32,
    pub received: Vec<u32>,
    pub completed: Vec<(NodeId, u32)>,
    /// Flows whose end the server has acknowledged.
    pub finished: Vec<FlowId>,
    pub refused: Vec<(NodeId, Function)>,
}

fn config(security: &str) -> ConnectionConfig {
    let mut config = ConnectionConfig::default();
    for property in [security, "preserveMsgBoundaries=require", "uts.adapt=off", "uts.consent=all"] {
        config.requirements.assign(property).expect("a valid property");
    }
    config
}

fn message(number: u32) -> Bytes {
    let mut data = vec![number as u8; 100 + (number as usize * 37) % 1900];
    data[..4].copy_from_slice(&number.to_be_bytes());
    data.into()
}

impl Transfer {
    pub fn new(path: &str, security: [&str; 2]) -> Self {
        Self::with_mappings(path, security, [None, None])
    }

    /// Ends with these mapping files.
    pub fn with_mappings(path: &str, security: [&str; 2], mappings: [Option<&str>; 2]) -> Self {
        let config = |end: NodeId| {
            let read = |text| Arc::new(Mapping::read("numbers.toml", text).expect("a valid mapping"));
            ConnectionConfig { mapping: mappings[end].map(read), ..config(security[end]) }
        };
        Self::with_configs(path, [config(SERVER), config(CLIENT)])
    }

    /// Ends with these settings.
    fn with_configs(path: &str, configs: [ConnectionConfig; 2]) -> Self {
        let endpoint =
            |end: NodeId| EndpointConfig { accept: configs[end].clone(), ..EndpointConfig::default() };
        let world = WorldConfig {
            server: endpoint(SERVER),
            client: endpoint(CLIENT),
            seed: 3,
            ..WorldConfig::default()
        };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        world.limit_steps(20_000_000);
        world.set_path(uts_path::Target::Both, path).expect("a valid change");
        let client = world.connect(CLIENT, configs[CLIENT].clone()).expect("the connection begins");
        let mut transfer = Transfer {
            world,
            at_once: false,
            handles: [None, Some(client)],
            flow: None,
            sent: 0,
            received: Vec::new(),
            completed: Vec::new(),
            finished: Vec::new(),
            refused: Vec::new(),
        };
        transfer.pass(Duration::from_secs(5));
        transfer.flow = transfer.connection(CLIENT).open_flow(FlowOptions::default()).ok();
        transfer
    }

    pub fn connection(&mut self, node: NodeId) -> &mut uts_engine::Connection {
        let handle = self.handles[node].expect("connected");
        self.world.connection(node, handle).expect("it is open")
    }

    pub fn send(&mut self, count: u32) {
        let now = self.world.now();
        let flow = self.flow.expect("a flow");
        for _ in 0..count {
            let number = self.sent;
            self.connection(CLIENT)
                .send_message(now, flow, message(number), MessageOptions::default())
                .expect("room");
            self.sent += 1;
        }
    }

    pub fn pass(&mut self, duration: Duration) {
        let until = self.world.now() + duration;
        while let Some(happening) = self.world.next(until) {
            match happening.event {
                Event::Connected => self.handles[happening.node] = Some(happening.connection),
                Event::Readable(flow) if happening.node == SERVER => self.read(flow),
                Event::Finished(flow) if happening.node == CLIENT => self.finished.push(flow),
                Event::Closed(reason) => panic!("at {}: {reason}", happening.node),
                Event::Exchange(step) => match *step {
                    ExchangeEvent::Completed { epoch, .. } => self.completed.push((happening.node, epoch)),
                    ExchangeEvent::Refused { function, .. } => self.refused.push((happening.node, function)),
                    _ => {}
                },
                _ => {}
            }
        }
        assert!(!self.world.is_exhausted(), "too many steps");
    }

    fn read(&mut self, flow: FlowId) {
        let now = self.world.now();
        while let Ok(read) = self.connection(SERVER).read(now, flow, 100_000) {
            let data = match read {
                Read::Message(data) => data,
                Read::Missing { .. } => continue,
                Read::End => return,
                read => panic!("{read:?}"),
            };
            let number = u32::from_be_bytes([data[0], data[1], data[2], data[3]]);
            assert_eq!(data, message(number), "message {number} is damaged");
            self.received.push(number);
        }
    }

    /// Exchanges to a profile while data flows; everything must arrive, once.
    pub fn exchange(&mut self, node: NodeId, direction: Direction, profile: Profile) {
        let before = self.completed.len();
        self.send(6);
        self.pass(Duration::from_millis(15));
        let now = self.world.now();
        let is_at_once = self.at_once && (node, direction) == (CLIENT, Direction::Out);
        let connection = self.connection(node);
        let asked = match is_at_once {
            true => connection.use_profile(now, profile),
            false => connection.request_profile(now, direction, profile),
        };
        asked.unwrap_or_else(|e| panic!("{profile:?}: {e}"));
        self.send(6);
        let mut waits = 0;
        while (self.received.len() as u32) < self.sent || self.completed.len() == before {
            self.pass(Duration::from_secs(1));
            waits += 1;
            assert!(waits < 300, "{profile:?}: {} of {} arrived", self.received.len(), self.sent);
        }
        self.pass(Duration::from_secs(2));
        let mut sorted = self.received.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..self.sent), "{profile:?}: lost or repeated");
        assert_eq!(self.connection(CLIENT).profile(Direction::Out), Some(profile));
        assert_eq!(self.connection(SERVER).profile(Direction::In), Some(profile));
    }
}

/// Visits every ordered pair of the mechanisms of each function, from a profile that repeats what
/// is lost.
fn walk(path: &str, may_lose: bool) -> usize {
    walk_with(Transfer::new(path, ["uts.security=unprotected"; 2]), may_lose)
}

pub fn walk_with(mut transfer: Transfer, may_lose: bool) -> usize {
    let base = transfer.connection(CLIENT).profile(Direction::Out).expect("connected");
    let mut steps = 0;
    let mut turns = VecDeque::from([(CLIENT, Direction::Out), (SERVER, Direction::In)]);
    for &function in Function::ALL {
        let usable = |m: &&Mechanism| {
            let keeps = function != Function::Segmentation || m.name == "messages";
            let repeats = function != Function::Retransmission || m.promises(Promise::Reliability);
            // What gives up data that has arrived cannot hand over everything.
            keeps && (may_lose || repeats) && !m.facts.passes_over
        };
        let of = |m: &Mechanism| base.with_named(function, m.name).expect("in the library");
        let all = library::of(function).into_iter().filter(usable).map(of);
        let profiles: Vec<Profile> = all.filter(|profile| profile.check().is_ok()).collect();
        for profile in tour(profiles.len()).map(|at| profiles[at]) {
            if transfer.connection(CLIENT).profile(Direction::Out) == Some(profile) {
                continue;
            }
            let (node, direction) = turns[0];
            if !transfer.at_once {
                turns.rotate_left(1);
            }
            transfer.exchange(node, direction, profile);
            steps += 1;
        }
        let now_in_use = transfer.connection(CLIENT).profile(Direction::Out);
        if now_in_use != Some(base) {
            transfer.exchange(CLIENT, Direction::Out, base);
        }
    }
    steps
}

/// The numbers below `count` in an order in which each follows on each other exactly once: a walk
/// over all ordered pairs that repeats none.
fn tour(count: usize) -> impl Iterator<Item = usize> {
    let pairs = (0..count).flat_map(move |i| (i + 1..count).flat_map(move |j| [i, j]));
    pairs.chain((count > 1).then_some(0))
}

#[test]
fn a_tour_takes_each_ordered_pair_once() {
    for count in 2..13 {
        let walk: Vec<usize> = tour(count).collect();
        let pairs: BTreeSet<(usize, usize)> = walk.windows(2).map(|w| (w[0], w[1])).collect();
        assert!(walk.len() == count * (count - 1) + 1 && pairs.len() == walk.len() - 1, "{walk:?}");
        assert!(pairs.iter().all(|(a, b)| a != b), "{walk:?}");
    }
}

#[test]
fn every_mechanism_gives_way_to_every_other_on_a_clean_path() {
    let steps = walk("rate=20mbit delay=20ms buffer=400p", true);
    println!("{steps} exchanges");
    assert!(steps > 50);
}

#[test]
fn every_mechanism_gives_way_to_every_other_on_a_lossy_path() {
    let steps = walk("rate=20mbit delay=20ms buffer=400p loss=0.1 jitter=5ms,reorder duplicate=0.05", false);
    assert!(steps > 50);
}

/// Receivers that give up what lies behind a gap give way to others, and others to them, with
/// gaps open: what the one has reported the other does not give up (acknowledgement.md R-22).
#[test]
fn receivers_that_keep_little_give_way_to_others() {
    let path = "rate=20mbit delay=20ms buffer=400p loss=0.2 jitter=5ms,reorder duplicate=0.05";
    let mut transfer = Transfer::new(path, ["uts.security=unprotected"; 2]);
    let base = transfer.connection(CLIENT).profile(Direction::Out).expect("connected");
    let in_order = library::by_name(Function::Acknowledgement, "in-order").expect("in the library");
    let keeping = |keep| {
        let choice = in_order.choice_with(&[("keep", keep)]).expect("in range");
        base.with(Function::Acknowledgement, choice)
    };
    let named = |function, name| keeping(2).with_named(function, name).expect("in the library");
    let profiles = [
        keeping(0),
        keeping(1),
        keeping(4096),
        named(Function::Acknowledgement, "per-packet"),
        named(Function::Acknowledgement, "poll-status"),
        named(Function::Fec, "reed-solomon"),
        named(Function::Sequencing, "unordered"),
    ];
    let dropped = |transfer: &mut Transfer| transfer.connection(SERVER).stats().dropped_overrun;
    for profile in tour(profiles.len()).map(|at| profiles[at]) {
        if transfer.connection(CLIENT).profile(Direction::Out) != Some(profile) {
            transfer.exchange(CLIENT, Direction::Out, profile);
        }
    }
    assert!(dropped(&mut transfer) > 20, "{}", dropped(&mut transfer));
}

/// A flow whose data was sent without a limit, and lost, comes to its end under each mechanism that
/// has one: what lies beyond the limit waits for it, and takes nothing with it that the receiver
/// needs to raise it (flow.md R-39).
#[test]
fn flows_that_were_sent_without_a_limit_end_under_one() {
    let limits = library::of(Function::Flow).into_iter().filter(|m| m.facts.grants);
    let cases = limits.flat_map(|limit| {
        ["none", "selective"].into_iter().flat_map(move |repeats| [0, 1].map(|known| (limit, repeats, known)))
    });
    for (limit, repeats, known) in cases {
        let case = format!("{} and {repeats}, {known} messages known", limit.name);
        let server = ConnectionConfig {
            credit_bytes_initial: 8192,
            credit_bytes_max: 16_384,
            ..config("uts.security=unprotected")
        };
        let mut transfer = Transfer::with_configs(
            "rate=1mbit delay=50ms buffer=400p",
            [server, config("uts.security=unprotected")],
        );
        let base = transfer.connection(CLIENT).profile(Direction::Out).expect("connected");
        let named = |profile: Profile, function, name| profile.with_named(function, name).expect("it exists");
        let free = named(named(base, Function::Flow, "none"), Function::Retransmission, "none");
        transfer.exchange(CLIENT, Direction::Out, free);
        transfer.flow = transfer.connection(CLIENT).open_flow(FlowOptions::default()).ok();
        transfer.send(known);
        transfer.pass(Duration::from_secs(1));
        transfer.world.set_path(uts_path::Target::Both, "down").expect("a valid change");
        transfer.send(30);
        let flow = transfer.flow.expect("a flow");
        transfer.connection(CLIENT).finish(flow);
        transfer.pass(Duration::from_secs(1));
        transfer.world.set_path(uts_path::Target::Both, "up").expect("a valid change");
        let next = named(named(base, Function::Flow, limit.name), Function::Retransmission, repeats);
        let now = transfer.world.now();
        transfer.connection(CLIENT).request_profile(now, Direction::Out, next).expect("idle");
        transfer.pass(Duration::from_secs(20));
        assert_eq!(transfer.connection(CLIENT).profile(Direction::Out), Some(next), "{case}");
        assert!(transfer.finished.contains(&flow), "{case}: it does not come to its end");
        let dropped = transfer.connection(SERVER).stats().dropped_overrun;
        assert_eq!(dropped, 0, "{case}: dropped beyond the limit");
    }
}

#[test]
fn an_exchange_outlives_an_outage() {
    let mut transfer = Transfer::new("rate=20mbit delay=20ms", ["uts.security=required"; 2]);
    let base = transfer.connection(CLIENT).profile(Direction::Out).expect("connected");
    let profile = base.with_named(Function::Congestion, "bbr").expect("in the library");
    transfer.send(5);
    transfer.world.set_path(uts_path::Target::Both, "down").expect("a valid change");
    let now = transfer.world.now();
    transfer.connection(CLIENT).request_profile(now, Direction::Out, profile).expect("idle");
    transfer.pass(Duration::from_secs(3));
    assert!(transfer.completed.is_empty());
    assert_eq!(transfer.connection(CLIENT).profile(Direction::Out), Some(base), "not before it is agreed");
    transfer.world.set_path(uts_path::Target::Both, "up").expect("a valid change");
    transfer.pass(Duration::from_secs(30));
    assert_eq!(transfer.completed.len(), 1);
    assert_eq!(transfer.connection(CLIENT).profile(Direction::Out), Some(profile));
    assert_eq!(transfer.connection(SERVER).profile(Direction::In), Some(profile));
    assert_eq!(transfer.received.len(), 5);
}

#[test]
fn requests_of_both_ends_that_cross_end_in_one_profile() {
    for head_start_ms in 0..45 {
        let mut transfer = Transfer::new("rate=20mbit delay=20ms", ["uts.security=required"; 2]);
        let base = transfer.connection(CLIENT).profile(Direction::Out).expect("connected");
        let wishes = ["bbr", "new-reno"]
            .map(|name| base.with_named(Function::Congestion, name).expect("in the library"));
        let now = transfer.world.now();
        transfer.connection(CLIENT).request_profile(now, Direction::Out, wishes[0]).expect("idle");
        transfer.pass(Duration::from_millis(head_start_ms));
        let now = transfer.world.now();
        let asked = transfer.connection(SERVER).request_profile(now, Direction::In, wishes[1]);
        assert!(matches!(asked, Ok(_) | Err(ExchangeError::Busy(_))), "{asked:?}");
        transfer.pass(Duration::from_secs(10));
        let agreed = transfer.connection(CLIENT).profile(Direction::Out);
        assert_eq!(agreed, transfer.connection(SERVER).profile(Direction::In), "after {head_start_ms} ms");
        assert!(wishes.contains(&agreed.expect("connected")) && !transfer.completed.is_empty());
        assert!(
            [SERVER, CLIENT]
                .into_iter()
                .all(|node| transfer.connection(node).is_at_rest() || transfer.flow.is_some())
        );
    }
}

#[test]
fn packets_without_protection_need_both_ends() {
    for [server, client] in
        [["required", "unprotected"], ["unprotected", "required"], ["required", "required"]]
    {
        let security = [server, client].map(|s| format!("uts.security={s}"));
        let mut transfer = Transfer::new("rate=20mbit delay=20ms", [&security[0], &security[1]]);
        let base = transfer.connection(CLIENT).profile(Direction::Out).expect("connected");
        let bare = base.with_named(Function::Protection, "none").expect("in the library");
        for (node, direction) in [(CLIENT, Direction::Out), (SERVER, Direction::In)] {
            let now = transfer.world.now();
            let asked = transfer.connection(node).request_profile(now, direction, bare);
            assert_eq!(asked, Err(ExchangeError::Unprotected));
        }
        transfer.send(3);
        transfer.pass(Duration::from_secs(1));
        assert_eq!((transfer.received.len(), transfer.refused.len()), (3, 0));
    }
}
