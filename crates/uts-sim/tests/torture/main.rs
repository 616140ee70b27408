//! Two engines on paths of every kind exchange mechanisms at random. What was sent must arrive as
//! the profiles promise, and both ends must come to rest.
//!
//! `UTS_SEED=n` runs one seed and says what it does, and with `UTS_PACKETS_FROM=s` each packet from
//! that second on. `UTS_SEEDS=n` sets how many run (1000 unless
//! set), `UTS_SEED_FIRST=n` the first of them (0 unless set).

mod lane;
mod plan;

use core::time::Duration;
use lane::Lane;
use plan::{Action, Plan};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use uts_engine::{
    CloseReason, ConnectionHandle, Direction, EndpointConfig, Event, ExchangeError, ExchangeEvent, FlowError,
    FlowId, FlowOptions, MessageBatch, MessageOptions, ReadError, WriteError,
};
use uts_functions::{Function, Profile, Time};
use uts_sim::identity::Identities;
use uts_sim::{Happening, World, WorldConfig};

const SERVER: usize = 0;
const CLIENT: usize = 1;

/// Longer than any transfer here stands still. Time-outs of a minute on a path that loses a third
/// of all packets make some very slow: a message of a hundred packets, each lost several times, or
/// as many passes of a blast. What repeats without a wait runs out of steps long before.
const PATIENCE: Duration = Duration::from_secs(100_000);

/// Longer than any transfer here takes on the slowest path.
const PATIENCE_OF_ALL: Duration = Duration::from_secs(1_000_000);

/// Instants and batches of datagrams of one world in which nothing is delivered; the hungriest
/// seeds take a tenth.
const STEPS_MAX: u64 = 1_000_000;

/// Memory of a connection that has many gaps to remember, its data left out.
const MEMORY_BYTES_MAX: usize = 4 << 20;

struct Torture {
    world: World,
    plan: Plan,
    handles: [Option<ConnectionHandle>; 2],
    connected: [bool; 2],
    established_at: Option<Time>,
    lanes: BTreeMap<(usize, u32), Lane>,
    /// Flows that are open, by who opened them and the place in the plan.
    opened: Vec<bool>,
    /// The most memory that a connection took, and its parts.
    memory_max: (usize, [(&'static str, usize); 10]),
    completed: u64,
    /// Flows with requirements of their own.
    own_profiles: u64,
    /// The path let no handshake through in time.
    failed: bool,
    verbose: bool,
    /// The instant from which packets are told.
    packets_from: Option<Time>,
}

fn node_name(node: usize) -> &'static str {
    if node == SERVER { "server" } else { "client" }
}

impl Torture {
    fn new(seed: u64, identities: Identities, verbose: bool) -> Self {
        let plan = Plan::of(seed);
        if verbose {
            println!("{:?}\n{}", plan.class, plan.path_text);
            println!("{:?}", plan.config);
            for flow in &plan.flows {
                println!("{flow:?}");
            }
        }
        let endpoint = |cid_bytes| EndpointConfig {
            cid_bytes,
            accept: plan.config.clone(),
            ..EndpointConfig::default()
        };
        let config = WorldConfig {
            path: plan.path.clone(),
            server: endpoint(plan.cid_bytes[0]),
            client: endpoint(plan.cid_bytes[1]),
            clients: 1,
            seed,
        };
        let mut world = World::new(config, identities).expect("a valid world");
        world.limit_steps(STEPS_MAX);
        let opened = vec![false; plan.flows.len()];
        Torture {
            world,
            plan,
            handles: [None; 2],
            connected: [false; 2],
            established_at: None,
            lanes: BTreeMap::new(),
            opened,
            memory_max: Default::default(),
            completed: 0,
            own_profiles: 0,
            failed: false,
            verbose,
            packets_from: None,
        }
    }

    /// Tells each packet from an instant on.
    fn tell_packets(&mut self, from: Time) {
        self.packets_from = Some(from);
        [SERVER, CLIENT].into_iter().for_each(|node| self.world.keep_packets(node));
    }

    fn print_packets(&mut self) {
        let Some(from) = self.packets_from else { return };
        for node in [SERVER, CLIENT] {
            for (_, row) in self.world.take_packets(node).into_iter().filter(|(_, row)| row.at >= from) {
                println!("{} {row:?}", node_name(node));
            }
        }
    }

    fn run(&mut self) {
        let handle = self.world.connect(CLIENT, self.plan.config.clone()).expect("the connection begins");
        self.handles[CLIENT] = Some(handle);
        let end = self.world.now() + PATIENCE_OF_ALL;
        let (mut deadline, mut delivered) = (end, 0);
        loop {
            self.print_packets();
            self.act();
            let now_delivered = self.lanes.values().map(Lane::steps).sum();
            if core::mem::replace(&mut delivered, now_delivered) != now_delivered {
                deadline = end.min(self.world.now() + PATIENCE);
                self.world.limit_steps(STEPS_MAX);
            }
            let done = self.established_at.is_some()
                && self.opened.iter().all(|o| *o)
                && self.plan.actions.is_empty()
                && self.lanes.values().all(Lane::is_done);
            if done {
                break;
            }
            if self.failed {
                return;
            }
            let until = self.next_action_at().unwrap_or(deadline);
            match self.world.next(until) {
                Some(happening) => self.handle(&happening),
                None => assert!(
                    !self.world.is_exhausted() && self.world.now() < deadline,
                    "no end at {:?}: {}",
                    self.world.now(),
                    self.describe()
                ),
            }
        }
        self.check_data();
        self.come_to_rest();
    }

    fn next_action_at(&self) -> Option<Time> {
        let since = self.established_at?.since(Time::ZERO);
        let flows =
            self.plan.flows.iter().zip(&self.opened).filter(|(_, opened)| !**opened).map(|(f, _)| f.opens_at);
        let actions = self.plan.actions.front().map(|(at, _)| *at);
        flows.chain(actions).min().map(|at| at + since)
    }

    /// Does what the plan has due.
    fn act(&mut self) {
        while self.next_action_at().is_some_and(|at| at <= self.world.now()) {
            let now = self.world.now();
            let since = self.established_at.map_or(Duration::ZERO, |at| at.since(Time::ZERO));
            for place in 0..self.plan.flows.len() {
                if !self.opened[place] && self.plan.flows[place].opens_at + since <= now {
                    self.open_flow(place);
                }
            }
            if self.plan.actions.front().is_some_and(|(at, _)| *at + since <= now)
                && let Some((_, action)) = self.plan.actions.pop_front()
            {
                self.carry_out(action);
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        let now = self.world.now();
        if self.verbose {
            println!("{now:?} {action:?}");
        }
        match action {
            Action::Path(target, text) => self.world.set_path(target, &text).expect("a valid change"),
            Action::Exchange(node, direction, profile) => {
                // What is sent here is changed at once every other time.
                let is_at_once = direction == Direction::Out && self.plan.actions.len().is_multiple_of(2);
                let asked = match is_at_once {
                    true => self.connection(node).use_profile(now, *profile),
                    false => self.connection(node).request_profile(now, direction, *profile),
                };
                assert!(
                    matches!(asked, Ok(_) | Err(ExchangeError::Busy(_))),
                    "{} {direction:?} {profile:?}: {asked:?}",
                    node_name(node)
                );
            }
        }
    }

    fn open_flow(&mut self, place: usize) {
        let plan = self.plan.flows[place].clone();
        let own = plan.own.as_deref().map(|own| plan::requirements(own, &self.plan.class));
        let options = FlowOptions { priority: plan.priority, requirements: own };
        let connection = self.connection(plan.opener);
        let flow = match connection.open_flow(options) {
            // It does not go together with what is shared at present.
            Err(FlowError::Contradiction(_)) => {
                connection.open_flow(FlowOptions { priority: plan.priority, requirements: None })
            }
            flow => {
                self.own_profiles += u64::from(plan.own.is_some());
                flow
            }
        };
        let flow = flow.expect("few flows are opened");
        self.opened[place] = true;
        let tag = flow.0 * 2;
        self.lanes.insert((plan.opener, flow.0), Lane::new(tag, place, plan.lane));
        let other = 1 - plan.opener;
        let back =
            plan.back.unwrap_or(plan::LanePlan { sizes: Vec::new(), messages: false, lifetime_ms: None });
        self.lanes.insert((other, flow.0), Lane::new(tag + 1, place, back));
        self.write(plan.opener, flow);
    }

    /// The profile that a flow of the plan was opened for.
    fn own_profile(&self, node: usize, flow: FlowId) -> Option<Profile> {
        let lane = self.lanes.get(&(node, flow.0))?;
        self.plan.flows.get(lane.place).and_then(|plan| plan.own.as_deref().copied())
    }

    fn connection(&mut self, node: usize) -> &mut uts_engine::Connection {
        let handle = self.handles[node].expect("connected");
        self.world.connection(node, handle).expect("the connection is there")
    }

    fn handle(&mut self, happening: &Happening) {
        let Happening { node, connection, event } = happening;
        if self.verbose {
            println!("{:?} {} {event:?}", self.world.now(), node_name(*node));
        }
        match event {
            Event::Connected => self.on_connected(*node, *connection),
            Event::Closed(CloseReason::HandshakeTimeout { .. }) if self.established_at.is_none() => {
                self.failed = true;
            }
            _ if self.handles[*node] != Some(*connection) => {}
            Event::FlowOpened(flow) => self.write(*node, *flow),
            Event::Readable(flow) => {
                self.read(*node, *flow);
                self.check_read(*node);
            }
            Event::Writable(flow) => self.write(*node, *flow),
            Event::Finished(flow) => self.lane(*node, *flow).is_settled = true,
            Event::Closed(reason) => {
                panic!("{} at {:?}: {reason}{}", node_name(*node), self.world.now(), self.describe())
            }
            Event::Exchange(step) => match &**step {
                ExchangeEvent::Completed { .. } => self.completed += 1,
                ExchangeEvent::Refused { function, why, .. } => {
                    panic!("{} was refused {function:?}: {why}", node_name(*node))
                }
                _ => {}
            },
            _ => {}
        }
        for node in [SERVER, CLIENT] {
            if let Some(handle) = self.handles[node]
                && let Some(connection) = self.world.endpoint(node).peek(handle)
            {
                let bytes = connection.memory_bytes();
                if bytes > self.memory_max.0 {
                    self.memory_max = (bytes, connection.memory_parts());
                }
            }
        }
    }

    fn on_connected(&mut self, node: usize, handle: ConnectionHandle) {
        self.connected[node] = true;
        self.handles[node] = Some(handle);
        if self.connected == [true, true] {
            self.established_at = Some(self.world.now());
        }
    }

    fn lane(&mut self, sender: usize, flow: FlowId) -> &mut Lane {
        self.lanes.get_mut(&(sender, flow.0)).expect("a flow of the plan")
    }

    fn write(&mut self, node: usize, flow: FlowId) {
        let now = self.world.now();
        loop {
            let lane = self.lane(node, flow);
            if lane.is_finished {
                return;
            }
            let (data, sends_messages, lifetime) =
                (lane.next_data(), lane.plan.messages, lane.plan.lifetime_ms);
            let batch = (sends_messages && lane.tag % 8 < 4).then(|| {
                let mut batch = MessageBatch::new();
                lane.next_messages(9).for_each(|message| batch.push(&message));
                batch
            });
            let own = self.own_profile(node, flow);
            let connection = self.connection(node);
            let Some(data) = data else {
                connection.finish(flow);
                self.lane(node, flow).is_finished = true;
                return;
            };
            // Until it is agreed, the profile that the flow waits for decides what becomes of
            // messages.
            let profile = connection.flow_profile(Direction::Out, flow);
            let profile = profile.or(own).expect("connected");
            let as_message = sends_messages && profile.name(Function::Segmentation) == "messages";
            let len = data.len();
            let options =
                MessageOptions { lifetime: lifetime.map(Duration::from_millis), ..Default::default() };
            let mut taken = vec![len];
            let sent = if let Some(mut batch) = batch {
                taken = batch.iter().map(<[u8]>::len).collect();
                let sent = connection.send_batch(now, flow, &mut batch, options);
                sent.map(|count| taken.truncate(count))
            } else if sends_messages {
                connection.send_message(now, flow, data, options)
            } else {
                connection.write(now, flow, data).map(|bytes| taken = vec![bytes])
            };
            match sent {
                Ok(()) => {
                    taken.into_iter().for_each(|taken| self.lane(node, flow).on_sent(taken, as_message))
                }
                Err(WriteError::Blocked) => return,
                Err(error) => panic!("{} writes to {flow:?}: {error}", node_name(node)),
            }
        }
    }

    fn read(&mut self, node: usize, flow: FlowId) {
        let (now, ordered) = (self.world.now(), self.plan.class.ordered);
        loop {
            let read = match self.connection(node).read(now, flow, 5000) {
                Ok(read) => read,
                Err(ReadError::Blocked) => return,
                Err(error) => panic!("{} reads {flow:?} at {now:?}: {error}", node_name(node)),
            };
            let lane = self.lane(1 - node, flow);
            if let Err(error) = lane.on_read(&read, ordered) {
                panic!("{} reads {flow:?} at {now:?}: {error}", node_name(node));
            }
            if lane.is_ended {
                return;
            }
        }
    }

    /// Where all is said to have been read nothing is left, of any flow.
    fn check_read(&mut self, node: usize) {
        let now = self.world.now();
        let arriving: Vec<FlowId> =
            self.lanes.keys().filter(|(sender, _)| *sender != node).map(|(_, flow)| FlowId(*flow)).collect();
        for flow in arriving {
            let connection = self.connection(node);
            if connection.has_read_all(flow) {
                let left = connection.read(now, flow, 5000);
                assert!(
                    left.is_err(),
                    "{} has not read all of {flow:?} at {now:?}: {left:?}",
                    node_name(node)
                );
            }
        }
    }

    fn check_data(&mut self) {
        let missing: usize = self.lanes.values().map(Lane::missing).sum();
        if self.plan.class.reliable {
            assert_eq!(missing, 0, "positions that never arrived: {}", self.describe());
        }
        let stats = [SERVER, CLIENT].map(|node| self.connection(node).stats());
        let given_up: u64 = stats
            .iter()
            .map(|s| {
                s.bytes_given_up
                    + s.messages_expired
                    + s.messages_discarded
                    + s.messages_late
                    + s.positions_skipped
                    + s.dropped_overrun
            })
            .sum();
        assert!(missing == 0 || given_up > 0, "{missing} positions are missing and nobody gave them up");
        let (memory, parts) = self.memory_max;
        assert!(memory < MEMORY_BYTES_MAX, "a connection took {memory} bytes: {parts:?}");
    }

    /// On a path that has become clean, an exchange each way succeeds. Then nothing happens any
    /// more.
    fn come_to_rest(&mut self) {
        let clean = "up rate=10mbit delay=10ms buffer=100p loss=0 jitter=0ms duplicate=0 reorder=0,0ms corrupt=0,1 mtu=inf";
        self.world.set_path(uts_path::Target::Both, clean).expect("a valid change");
        self.pass(Duration::from_secs(100));
        let mut rng = plan::rng(1);
        for (node, direction) in [
            (SERVER, Direction::Out),
            (CLIENT, Direction::Out),
            (SERVER, Direction::In),
            (CLIENT, Direction::In),
        ] {
            let profile = plan::profile(&mut rng, &self.plan.class);
            let before = self.completed;
            // An answer whose confirmation was lost is repeated for up to 128 time-outs, of many
            // seconds under timing/fixed.
            for _ in 0..40 {
                let now = self.world.now();
                let asked = self.connection(node).request_profile(now, direction, profile);
                self.pass(Duration::from_secs(100));
                match asked {
                    Ok(_) => break,
                    Err(ExchangeError::Busy(_)) => {}
                    Err(error) => panic!("{} {direction:?} {profile:?}: {error}", node_name(node)),
                }
            }
            assert!(self.completed > before, "no exchange on a clean path: {}", self.describe());
        }
        // Larger packets are tried ten minutes after the last attempt.
        self.pass(Duration::from_secs(700));
        let [a, b] = [(SERVER, CLIENT), (CLIENT, SERVER)].map(|(from, to)| {
            (self.connection(from).profile(Direction::Out), self.connection(to).profile(Direction::In))
        });
        assert_eq!(a.0, a.1, "server to client");
        assert_eq!(b.0, b.1, "client to server");
        let packets = self.world.packets();
        let counts = |t: &mut Self| [SERVER, CLIENT].map(|node| t.connection(node).stats().packets_sent);
        let before = counts(self);
        self.pass(Duration::from_secs(100));
        let after = counts(self);
        assert!(
            self.world.packets() == packets,
            "{before:?} -> {after:?} packets at rest: {}",
            self.describe()
        );
        for node in [SERVER, CLIENT] {
            assert!(
                self.connection(node).is_at_rest(),
                "{} is not at rest: {}",
                node_name(node),
                self.describe()
            );
            let memory = self.connection(node).memory_bytes();
            assert!(memory < 256 << 10, "{} bytes at rest", memory);
        }
    }

    fn pass(&mut self, duration: Duration) {
        let until = self.world.now() + duration;
        while let Some(happening) = self.world.next(until) {
            self.handle(&happening);
        }
        assert!(!self.world.is_exhausted(), "too many steps: {}", self.describe());
    }

    fn describe(&mut self) -> String {
        let mut text = String::new();
        for node in [SERVER, CLIENT] {
            if let Some(handle) = self.handles[node]
                && let Some(c) = self.world.endpoint(node).peek(handle)
            {
                text += &format!(
                    "\n{} {}\n  {:?} {:?}\n  out {:?}\n  in {:?}",
                    node_name(node),
                    c.timers(),
                    c.stats(),
                    c.congestion(),
                    c.profile(Direction::Out),
                    c.profile(Direction::In)
                );
            }
        }
        for ((sender, flow), lane) in self.lanes.iter().filter(|(_, l)| !l.is_done() || l.missing() > 0) {
            text += &format!(
                "\nflow {flow} from {}: finished {} settled {} ended {} missing {}",
                node_name(*sender),
                lane.is_finished,
                lane.is_settled,
                lane.is_ended,
                lane.missing()
            );
        }
        text
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Seeds that broke something: what follows from a seed stays the same as long as what is drawn
/// from it does.
const BROKE: [u64; 13] = [
    3890, 9447, 9838, 10_613, 15_239, 21_052, 22_414, 20_034_113, 20_066_551, 20_075_954, 20_163_129,
    20_174_290, 24_000_321,
];

#[test]
fn what_broke_once_breaks_no_more() {
    let identities = Identities::new().expect("keys");
    for seed in BROKE {
        println!("UTS_SEED={seed}");
        Torture::new(seed, identities.clone(), false).run();
    }
}

#[test]
fn data_survives_every_path_and_every_exchange() {
    let identities = Identities::new().expect("keys");
    if let Some(seed) = number("UTS_SEED") {
        let mut torture = Torture::new(seed, identities, true);
        if let Some(from) = number("UTS_PACKETS_FROM") {
            torture.tell_packets(Time::ZERO + Duration::from_secs(from));
        }
        return torture.run();
    }
    let seeds = number("UTS_SEEDS").unwrap_or(1000);
    let first = number("UTS_SEED_FIRST").unwrap_or(0);
    let next = AtomicU64::new(first);
    let failures = Mutex::new(BTreeMap::new());
    let exchanges = AtomicU64::new(0);
    let unheard = AtomicU64::new(0);
    let own_profiles = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let run = catch_unwind(AssertUnwindSafe(|| {
                        let mut torture = Torture::new(seed, identities.clone(), false);
                        torture.run();
                        exchanges.fetch_add(torture.completed, Ordering::Relaxed);
                        own_profiles.fetch_add(torture.own_profiles, Ordering::Relaxed);
                        unheard.fetch_add(u64::from(torture.failed), Ordering::Relaxed);
                    }));
                    if let Err(cause) = run {
                        let text = cause.downcast_ref::<String>().cloned();
                        let text = text.or(cause.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                        println!("UTS_SEED={seed} failed");
                        failures.lock().expect("no panic holds it").insert(seed, text.unwrap_or_default());
                    }
                }
            });
        }
    });
    let unheard = unheard.into_inner();
    let [exchanges, own_profiles] = [exchanges, own_profiles].map(AtomicU64::into_inner);
    println!(
        "{seeds} seeds from {first} on, {exchanges} exchanges, {own_profiles} flows of their own, {unheard} handshakes in vain"
    );
    assert!(own_profiles >= seeds / 5);
    assert!(unheard <= 3 + seeds / 20, "{unheard} of {seeds} handshakes failed");
    let failures = failures.into_inner().expect("no panic holds it");
    let list: Vec<String> = failures.iter().map(|(seed, why)| format!("UTS_SEED={seed}: {why}")).collect();
    assert!(list.is_empty(), "{} of {seeds} seeds failed:\n{}", list.len(), list.join("\n\n"));
}
