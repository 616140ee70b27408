//! Mechanisms from outside the library: registered, asked for by name, exchanged to in flight and
//! back.

use bytes::Bytes;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::Arc;
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Direction, EndpointConfig, Event, ExchangeEvent, FlowId, FlowOptions,
    Mapping,
};
use uts_functions::congestion::{self, Ack, Congestion, Delivery, Loss, Summary, Timeout};
use uts_functions::external::NotRegistered;
use uts_functions::mechanism::{Bold, Consent, Described, Facts, Promise, Unasked};
use uts_functions::retransmission::{self, LostData, Response, Retransmission};
use uts_functions::{Function, Mechanism, Param, Profile, Rate, Time, Unit, library};
use uts_sim::identity::Identities;
use uts_sim::{NodeId, World, WorldConfig};

const SERVER: NodeId = 0;
const CLIENT: NodeId = 1;

/// A window that never changes.
#[derive(Clone, Debug)]
struct FixedWindow {
    info: &'static Mechanism,
    packets: u64,
    packet_bytes: u64,
    summary: Summary,
}

/// The most time-outs in a row that a window has heard of.
static TIMEOUTS: AtomicU32 = AtomicU32::new(0);

const FIXED: Mechanism = Mechanism {
    function: Function::Congestion,
    number: 130,
    name: "fixed-window",
    what: "a window that never changes",
    mandatory: false,
    consent: Consent::NotNeeded,
    params: &[Param {
        name: "packets",
        unit: Unit::Packets,
        default: 20,
        min: 2,
        max: 1000,
        bold: Bold::Above,
        what: "packets in flight",
    }],
    needs: &[],
    facts: Facts { uniform: true, promises: &[Promise::Restraint], unasked: Unasked::Never, ..Facts::PLAIN },
    predict: |_, _, _| {},
};

static FIXED_WINDOW: Mechanism = FIXED;

/// Another administrator's, who has begun with the same number.
static LATE_WINDOW: Mechanism = Mechanism { number: 131, name: "late-window", ..FIXED };

impl Described for FixedWindow {
    fn info(&self) -> &'static Mechanism {
        self.info
    }
}

impl Congestion for FixedWindow {
    fn on_sent(&mut self, _: Time, _: u64, _: &Delivery) {}
    fn on_ack(&mut self, _: &Ack, _: &Delivery) {}
    fn on_loss(&mut self, _: &Loss, _: &Delivery) {}
    fn on_timeout(&mut self, timeout: &Timeout, _: &Delivery) {
        TIMEOUTS.fetch_max(timeout.in_a_row, Ordering::Relaxed);
    }
    fn on_spurious_loss(&mut self, _: u64) {}
    fn set_packet_bytes(&mut self, packet_bytes: u64) {
        self.packet_bytes = packet_bytes;
    }
    fn window_bytes(&self) -> u64 {
        self.packets * self.packet_bytes
    }
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
    fn burst_bytes(&self) -> Option<u64> {
        None
    }
    fn summary(&self) -> Summary {
        self.summary
    }
    fn phase(&self) -> &'static str {
        "fixed"
    }
}

/// Repeats what was lost, by a mechanism of its own.
#[derive(Clone, Debug)]
struct Again;

static AGAIN: Mechanism = Mechanism {
    function: Function::Retransmission,
    number: 128,
    name: "again",
    what: "what was lost is sent again",
    mandatory: false,
    consent: Consent::NotNeeded,
    params: &[],
    needs: &[],
    facts: Facts {
        uniform: true,
        positions: true,
        repeats: true,
        promises: &[Promise::Reliability],
        unasked: Unasked::Never,
        ..Facts::PLAIN
    },
    predict: |_, _, p| p.loss = 0.0,
};

impl Described for Again {
    fn info(&self) -> &'static Mechanism {
        &AGAIN
    }
}

impl Retransmission for Again {
    fn on_lost(&mut self, lost: &LostData) -> Response {
        Response::Repeat(lost.range.clone())
    }
}

/// Registers both, once for all tests of this process.
fn register() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        congestion::register(&FIXED_WINDOW, |params, context| {
            let (packets, info) = (u64::from(params.get(0)), &FIXED_WINDOW);
            Box::new(FixedWindow {
                info,
                packets,
                packet_bytes: context.packet_bytes,
                summary: context.summary,
            })
        })
        .expect("its number is free");
        congestion::register(&LATE_WINDOW, |params, context| {
            let (packets, info) = (u64::from(params.get(0)), &LATE_WINDOW);
            Box::new(FixedWindow {
                info,
                packets,
                packet_bytes: context.packet_bytes,
                summary: context.summary,
            })
        })
        .expect("its number is free");
        retransmission::register(&AGAIN, |_, ()| Box::new(Again)).expect("its number is free");
    });
}

struct Transfer {
    world: World,
    handles: [Option<ConnectionHandle>; 2],
    flow: FlowId,
    written: u64,
    read: u64,
    exchanged: usize,
}

impl Transfer {
    fn new(path: &str, properties: &[&str]) -> Self {
        Self::with_mappings(path, properties, [None, None])
    }

    fn with_mappings(path: &str, properties: &[&str], mappings: [Option<Arc<Mapping>>; 2]) -> Self {
        let mut config = ConnectionConfig::default();
        for property in properties.iter().chain(&["uts.adapt=off", "uts.consent=all"]) {
            config.requirements.assign(property).unwrap_or_else(|e| panic!("{e}"));
        }
        let [of_server, mapping] = mappings;
        let accept = ConnectionConfig { mapping: of_server, ..config.clone() };
        let server = EndpointConfig { accept, ..EndpointConfig::default() };
        let config = ConnectionConfig { mapping, ..config };
        let world = WorldConfig { server, seed: 5, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        world.limit_steps(5_000_000);
        world.set_path(uts_path::Target::Both, path).expect("a valid change");
        let client = world.connect(CLIENT, config).expect("the connection begins");
        let handles = [None, Some(client)];
        let mut transfer = Transfer { world, handles, flow: FlowId(0), written: 0, read: 0, exchanged: 0 };
        transfer.pass(Duration::from_secs(2));
        transfer.flow = transfer.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
        transfer
    }

    fn at(&mut self, node: NodeId) -> &mut uts_engine::Connection {
        let handle = self.handles[node].expect("connected");
        self.world.connection(node, handle).expect("it is open")
    }

    fn pass(&mut self, duration: Duration) {
        let until = self.world.now() + duration;
        while let Some(happening) = self.world.next(until) {
            match happening.event {
                Event::Connected => self.handles[happening.node] = Some(happening.connection),
                Event::Readable(flow) if happening.node == SERVER => self.read(flow),
                Event::Closed(reason) => panic!("at {}: {reason}", happening.node),
                Event::Exchange(step) if matches!(*step, ExchangeEvent::Completed { .. }) => {
                    self.exchanged += 1
                }
                Event::Exchange(step) => assert!(!matches!(*step, ExchangeEvent::Refused { .. }), "{step:?}"),
                _ => {}
            }
        }
        assert!(!self.world.is_exhausted(), "too many steps");
    }

    /// Every byte says its place.
    fn read(&mut self, flow: FlowId) {
        let now = self.world.now();
        while let Ok(uts_engine::Read::Bytes(_, data)) = self.at(SERVER).read(now, flow, 100_000) {
            for byte in data {
                assert_eq!(byte, (self.read % 251) as u8, "byte {} is damaged", self.read);
                self.read += 1;
            }
        }
    }

    fn write(&mut self, bytes: u64) {
        let (now, flow) = (self.world.now(), self.flow);
        let data: Vec<u8> = (self.written..self.written + bytes).map(|i| (i % 251) as u8).collect();
        let taken = self.at(CLIENT).write(now, flow, Bytes::from(data)).expect("room");
        self.written += taken as u64;
    }

    /// Exchanges while data flows.
    fn exchange(&mut self, profile: Profile) {
        let before = self.exchanged;
        self.write(200_000);
        self.pass(Duration::from_millis(30));
        let now = self.world.now();
        let request = self.at(CLIENT).request_profile(now, Direction::Out, profile);
        request.unwrap_or_else(|e| panic!("{profile:?}: {e}"));
        self.write(200_000);
        for _ in 0..60 {
            self.pass(Duration::from_secs(1));
        }
        assert!(self.exchanged > before, "{profile:?} was not exchanged to");
        assert_eq!(self.read, self.written, "{profile:?}: not all arrived");
        assert_eq!(self.at(CLIENT).profile(Direction::Out), Some(profile));
    }
}

#[test]
fn a_mechanism_of_ones_own_is_exchanged_to_in_flight_and_back() {
    register();
    let mut transfer = Transfer::new("rate=10mbit delay=20ms loss=0.02", &[]);
    let home = transfer.at(CLIENT).profile(Direction::Out).expect("connected");
    let window = FIXED_WINDOW.choice_with(&[("packets", 40)]).expect("in range");
    let own = home.with(Function::Congestion, window).with(Function::Retransmission, AGAIN.choice());
    for profile in [own, home, own.with(Function::Congestion, *home.get(Function::Congestion)), own] {
        transfer.exchange(profile);
    }
}

/// Two administrators have given one number to two mechanisms. Names tell them apart.
#[test]
fn administrators_whose_numbers_collide_mean_the_same_by_names() {
    register();
    let listed = |fixed: u8, late: u8| {
        let mut text = String::from("[congestion]\n");
        for m in uts_functions::library::built_in(Function::Congestion) {
            text += &format!("{} = {}\n", m.name, m.number);
        }
        let text = text + &format!("fixed-window = {fixed}\nlate-window = {late}\n");
        Some(Arc::new(Mapping::read("numbers.toml", &text).expect("a valid mapping")))
    };
    for mappings in [[listed(130, 131), listed(131, 130)], [None, listed(131, 130)], [None, None]] {
        let mut transfer = Transfer::with_mappings("rate=10mbit delay=20ms loss=0.02", &[], mappings);
        let home = transfer.at(CLIENT).profile(Direction::Out).expect("connected");
        for name in ["fixed-window", "late-window", "fixed-window"] {
            transfer.exchange(home.with_named(Function::Congestion, name).expect("registered"));
            let there = transfer.at(SERVER).profile(Direction::In).expect("connected");
            assert_eq!(there.name(Function::Congestion), name);
        }
    }
}

#[test]
fn it_is_asked_for_by_name_and_explained() {
    register();
    let pins = ["uts.profile.congestion=fixed-window(packets=30)", "uts.profile.retransmission=again"];
    let mut transfer = Transfer::new("rate=10mbit delay=20ms loss=0.01", &pins);
    transfer.write(200_000);
    transfer.pass(Duration::from_secs(10));
    let profile = transfer.at(CLIENT).profile(Direction::Out).expect("connected");
    assert_eq!(profile.describe(Function::Congestion), "fixed-window(packets=30)");
    assert_eq!(profile.name(Function::Retransmission), "again");
    assert_eq!(transfer.read, transfer.written);
}

/// While nothing is acknowledged, congestion control hears of each time-out and how many there were
/// in a row.
#[test]
fn it_hears_of_time_outs() {
    register();
    let pins = ["uts.profile.congestion=fixed-window(packets=30)"];
    let mut transfer = Transfer::new("rate=10mbit delay=20ms", &pins);
    transfer.write(200_000);
    transfer.pass(Duration::from_millis(30));
    transfer.world.set_path(uts_path::Target::Both, "loss=1").expect("a valid change");
    transfer.pass(Duration::from_secs(3));
    assert!(TIMEOUTS.load(Ordering::Relaxed) >= 3, "{TIMEOUTS:?}");
}

#[test]
fn only_what_can_stand_beside_the_others_is_registered() {
    register();
    let build: congestion::Builder = |_, context| {
        let info = &FIXED_WINDOW;
        Box::new(FixedWindow {
            info,
            packets: 2,
            packet_bytes: context.packet_bytes,
            summary: context.summary,
        })
    };
    let entry = |number, name| -> &'static Mechanism {
        Box::leak(Box::new(Mechanism { number, name, ..copy_of(&FIXED_WINDOW) }))
    };
    let refused = |info| congestion::register(info, build).expect_err("it cannot stand there");
    assert!(matches!(refused(entry(20, "own")), NotRegistered::Number { number: 20, .. }));
    assert!(matches!(refused(entry(144, "own")), NotRegistered::Number { number: 144, .. }));
    assert!(matches!(refused(entry(130, "own")), NotRegistered::Taken { other: "fixed-window", .. }));
    assert!(matches!(refused(entry(131, "cubic")), NotRegistered::Taken { other: "cubic", .. }));
    assert!(matches!(refused(&AGAIN), NotRegistered::Function { .. }));
    assert!(matches!(refused(entry(131, "Own")), NotRegistered::Name { name: "Own", .. }));
    let mut eager = copy_of(&FIXED_WINDOW);
    (eager.number, eager.facts.unasked) = (132, Unasked::Choice(0));
    assert!(matches!(refused(Box::leak(Box::new(eager))), NotRegistered::Unasked { .. }));
    assert_eq!(library::by_name(Function::Congestion, "fixed-window").map(|m| m.number), Ok(130));
}

fn copy_of(m: &Mechanism) -> Mechanism {
    let Mechanism { function, number, name, what, mandatory, consent, params, needs, facts, predict } = *m;
    Mechanism { function, number, name, what, mandatory, consent, params, needs, facts, predict }
}
