//! Protocols of old, each under its named profile: what they do differs as their papers say.

use bytes::Bytes;
use core::time::Duration;
use std::collections::BTreeMap;
use uts_engine::named::{self, Kind};
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Event, FlowId, FlowOptions, MessageOptions, Read, TraceKind,
};
use uts_functions::Time;
use uts_path::{Direction, PathConfig, Target};
use uts_sim::identity::Identities;
use uts_sim::transfer::Transfers;
use uts_sim::world::SERVER;
use uts_sim::{World, WorldConfig};

/// Figures of a transfer under a profile.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Packets of data within 30 ms of the first: no report can have come.
    at_once: f64,
    /// Bytes that were sent again.
    repeated: f64,
    /// Seconds until the receiver had all; no number if it never had.
    took: f64,
    /// Packets of data that left while nothing arrived.
    in_outage: f64,
    /// Share of the transfer that the receiver has in the end, 0 to 1.
    share: f64,
}

/// Load of a transfer: a run of bytes, or under profiles of messages the same in messages, which
/// may be given up.
enum Load {
    Bytes(Transfers),
    Messages(Messages),
}

/// Messages from a client to the server.
struct Messages {
    client: ConnectionHandle,
    flow: Option<FlowId>,
    left: u64,
    received: u64,
    all: u64,
    done_at: Option<Time>,
}

const MESSAGE_BYTES: u64 = 1000;

impl Messages {
    fn run(&mut self, world: &mut World, until: Time) {
        while world.now() < until {
            let next = until.min(world.now() + Duration::from_millis(1));
            while let Some(happening) = world.next(next) {
                if let Event::Readable(flow) = happening.event
                    && happening.node == SERVER
                {
                    self.read(world, happening.connection, flow);
                }
            }
            // Behind the exchange to the profile.
            if world.now() >= BEGIN {
                self.send(world);
            }
        }
    }

    fn read(&mut self, world: &mut World, connection: ConnectionHandle, flow: FlowId) {
        let now = world.now();
        let Some(connection) = world.connection(SERVER, connection) else { return };
        while let Ok(Read::Message(message)) = connection.read(now, flow, 1 << 20) {
            self.received += message.len() as u64;
        }
        if self.received == self.all {
            self.done_at.get_or_insert(now);
        }
    }

    fn send(&mut self, world: &mut World) {
        let now = world.now();
        let Some(connection) = world.connection(1, self.client) else { return };
        let flow =
            *self.flow.get_or_insert_with(|| connection.open_flow(FlowOptions::default()).expect("a flow"));
        while self.left > 0 {
            let message = Bytes::from(vec![7; MESSAGE_BYTES as usize]);
            if connection.send_message(now, flow, message, MessageOptions::default()).is_err() {
                return;
            }
            self.left -= MESSAGE_BYTES;
        }
    }
}

impl Load {
    fn run(&mut self, world: &mut World, until: Time) {
        match self {
            Load::Bytes(transfers) => {
                transfers.run(world, until);
            }
            Load::Messages(messages) => messages.run(world, until),
        }
    }

    /// The client's connection, when the receiver had all, and the bytes that it had in the end.
    fn outcome(&self) -> (ConnectionHandle, Option<Time>, u64) {
        match self {
            Load::Bytes(transfers) => {
                let progress = &transfers.progress[&1];
                (progress.connection, progress.done_at, progress.received)
            }
            Load::Messages(messages) => (messages.client, messages.done_at, messages.received),
        }
    }
}

/// A handshake and an exchange take less.
const BEGIN: Time = Time::from_millis(150);

fn is_of_messages(profile: &str) -> bool {
    let named = named::all().iter().find(|named| named.name == profile).expect("a profile");
    named.settings.iter().any(|(property, _)| property == "reliability")
}

/// A transfer under a profile over a path, which is as it says from the first byte on. In the
/// outage, from one instant behind that to another, everything is lost on the way there.
fn carry(profile: &str, path: &str, loss: &str, bytes: u64, outage_ms: Option<[u64; 2]>, seed: u64) -> Seen {
    let mut client = ConnectionConfig::default();
    for property in [&format!("uts.profile={profile}"), "uts.consent=all"] {
        client.requirements.assign(property).unwrap_or_else(|error| panic!("{property}: {error}"));
    }
    let path = PathConfig::both(path.parse().expect("a path"));
    let mut config = WorldConfig { path, seed, ..WorldConfig::default() };
    // Some mechanisms need the consent of the end that receives.
    config.server.accept.requirements.consents = client.requirements.consents.clone();
    let mut world = World::new(config, Identities::new().expect("keys")).expect("a world");
    world.limit_steps(5_000_000);
    world.keep_packets(1);
    let mut load = if is_of_messages(profile) {
        let client = world.connect(1, client).expect("it begins");
        Load::Messages(Messages { client, flow: None, left: bytes, received: 0, all: bytes, done_at: None })
    } else {
        let mut transfers = Transfers::start(&mut world, &[(1, client)], bytes);
        transfers.awaits_exchange = true;
        Load::Bytes(transfers)
    };
    load.run(&mut world, BEGIN);
    let mut until = |world: &mut World, at: u64| load.run(world, Time::from_millis(at));
    world.set_path(Target::One(Direction::Forward), loss).expect("a change");
    if let Some([from, to]) = outage_ms {
        until(&mut world, from);
        world.set_path(Target::One(Direction::Forward), "loss=1").expect("a change");
        until(&mut world, to);
        world.set_path(Target::One(Direction::Forward), loss).expect("a change");
    }
    until(&mut world, 120_000);
    let (connection, done_at, received) = load.outcome();
    let stats = world.connection(1, connection).map(|c| c.stats()).unwrap_or_default();
    let rows = world.take_packets(1);
    let sent: Vec<Time> = rows
        .iter()
        .filter(|(_, row)| matches!(row.kind, TraceKind::Sent | TraceKind::Repeated) && row.data.is_some())
        .map(|(_, row)| row.at)
        .collect();
    let first = *sent.first().unwrap_or_else(|| panic!("{profile}: nothing was sent"));
    let within = |from: Time, to: Time| sent.iter().filter(|at| (from..to).contains(*at)).count() as f64;
    let outage = outage_ms.map(|ms| ms.map(Time::from_millis));
    Seen {
        at_once: within(first, first + Duration::from_millis(30)),
        repeated: stats.bytes_repeated as f64,
        took: done_at.map_or(f64::INFINITY, |at| at.since(first).as_secs_f64()),
        in_outage: outage.map_or(0.0, |[from, to]| within(from, to)),
        share: received as f64 / bytes as f64,
    }
}

/// Zwaenepoel 1985, section 3.2: full repetition repeats a blast, from the first missing what is
/// behind it, selective what is missing. Without a negative acknowledgement, each failure waits for
/// the time-out.
#[test]
fn blasts_repeat_what_their_strategies_say() {
    let path = "rate=10mbit delay=100us buffer=400p";
    let runs = |strategy: u32| {
        let profile = format!("v-blast-{strategy}");
        let all = (1..=5).map(|seed| carry(&profile, path, "loss=0.02", 1_000_000, None, seed));
        let (repeated, took) = all.fold((0.0, 0.0), |sum, seen| (sum.0 + seen.repeated, sum.1 + seen.took));
        println!("{profile}: {:.0} kB repeated, {:.2} s a transfer", repeated / 5e3, took / 5.0);
        (repeated, took)
    };
    let [silent, full, first, selective] = [1, 2, 3, 4].map(runs);
    // 46 packets each: a blast fails with 1 - 0.98^46 = 0.6, and so does its repeat: 1.5 repeats.
    for (repeated, _) in [silent, full] {
        assert!((4e6..14e6).contains(&repeated), "{repeated}");
    }
    assert!(full.0 > 1.5 * first.0 && first.0 > 3.0 * selective.0 && selective.0 > 0.0);
    assert!(silent.1 > 1.5 * full.1 && full.1 > first.1 && first.1 > selective.1);
}

/// A path, and what is looked at on it.
struct View {
    /// Differences of protocols, as their papers describe them.
    words: &'static str,
    loss: &'static str,
    outage_ms: Option<[u64; 2]>,
    of: fn(&Seen) -> f64,
}

const PATH: &str = "rate=10mbit delay=20ms buffer=400p";

const VIEWS: [View; 8] = [
    View {
        words: "packets before the first report: slow start, a window, a group, a blast, a rate",
        loss: "loss=0",
        outage_ms: None,
        of: |seen| seen.at_once,
    },
    View {
        words: "what is sent again at 2 % loss: what is missing, all behind it, the blast",
        loss: "loss=0.02",
        outage_ms: None,
        of: |seen| seen.repeated,
    },
    View {
        words: "how soon losses are found at 2 %: reports, an answer, a timer; and what they cost the window",
        loss: "loss=0.02",
        outage_ms: None,
        of: |seen| seen.took,
    },
    View {
        words: "what leaves while nothing arrives for 3 s: timers that double, timers that do not, a probe, a window",
        loss: "loss=0",
        outage_ms: Some([250, 3250]),
        of: |seen| seen.in_outage,
    },
    View {
        words: "how long it takes if all is lost for 12 ms: of several losses in a flight one is found in a round trip, or all",
        loss: "loss=0",
        outage_ms: Some([340, 352]),
        of: |seen| seen.took,
    },
    View {
        words: "three losses in a window: one a round trip, all at once, or the timer (Fall and Floyd, 1996)",
        loss: "loss=places:40,42,44",
        outage_ms: None,
        of: |seen| seen.took,
    },
    View {
        words: "three losses in a window: what is sent again is those, or what has arrived as well (Fall and Floyd, 1996)",
        loss: "loss=places:40,42,44",
        outage_ms: None,
        of: |seen| seen.repeated,
    },
    View {
        words: "what is given up if nothing arrives for 3 s: nothing, what is too old, all that is lost",
        loss: "loss=0",
        outage_ms: Some([160, 3160]),
        of: |seen| seen.share,
    },
];

/// By so much two protocols differ at least in one of the views.
const APART: f64 = 1.1;

#[test]
fn each_pair_of_classics_differs_as_their_papers_describe() {
    let names: Vec<&str> =
        (named::all().iter().filter(|n| n.kind == Kind::Classic)).map(|n| n.name.as_str()).collect();
    let mut seen: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for name in &names {
        let mut runs: BTreeMap<(&str, Option<[u64; 2]>), Seen> = BTreeMap::new();
        let row = VIEWS.iter().map(|view| {
            let run = runs
                .entry((view.loss, view.outage_ms))
                .or_insert_with(|| carry(name, PATH, view.loss, 300_000, view.outage_ms, 3));
            (view.of)(run)
        });
        let row: Vec<f64> = row.collect();
        println!("{name:<14} {row:.2?}");
        seen.insert(name, row);
    }
    let mut alike = Vec::new();
    for (n, a) in names.iter().enumerate() {
        for b in &names[n + 1..] {
            let ratio = |view: usize| {
                let (a, b) = (seen[a][view], seen[b][view]);
                if a == b { 1.0 } else { a.max(b) / a.min(b) }
            };
            let widest = (0..VIEWS.len()).max_by(|a, b| ratio(*a).total_cmp(&ratio(*b))).expect("views");
            println!("{a} and {b}: {}", VIEWS[widest].words);
            if ratio(widest) < APART {
                alike.push(format!("{a} and {b}: {:?} and {:?}", seen[a], seen[b]));
            }
        }
    }
    assert!(alike.is_empty(), "{alike:#?}");
    assert_eq!(names.len(), 17);
    let given_up = |name: &str| seen[name][7] < 1.0;
    assert!(names.iter().all(|name| given_up(name) == ["udp", "sctp-pr"].contains(name)));
    // Some of what the papers give in figures.
    for (name, packets) in
        [("rx-3.1", 15..=15), ("rx-hex", 15..=15), ("hdlc", 7..=7), ("tp4", 14..=16), ("vmtp", 12..=12)]
    {
        assert!(packets.contains(&(seen[name][0] as u32)), "{name}: {} packets at once", seen[name][0]);
    }
    // 64 kB in packets of 1150 bytes of data.
    assert!((50.0..=60.0).contains(&seen["v-blast-1"][0]), "a blast of 64 kB");
    assert!(seen["hdlc"][1] > 2.0 * seen["rx-3.1"][1], "go-back-n repeats more than what is missing");
}
