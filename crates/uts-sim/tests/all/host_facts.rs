//! A host with little processor left drops the mechanism that costs the most, if it is told, and
//! takes it up again once it has more (selection.md A-18). The cost model does the work that the
//! policy predicts.

use bytes::Bytes;
use core::time::Duration;
use uts_engine::requirements::{Preference, Requirements};
use uts_engine::{
    ConnectionConfig, ConnectionHandle, Direction, Event, ExchangeEvent, FlowId, FlowOptions, HostFacts,
    MessageOptions, Read,
};
use uts_functions::{Function, Time};
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::{World, WorldConfig};

const SERVER: usize = 0;
const CLIENT: usize = 1;

/// A picture is of no use later.
const LIFETIME: Duration = Duration::from_millis(100);
const EVERY: Duration = Duration::from_millis(40);
const PICTURE_BYTES: usize = 12_000;

/// Losses that a repeat mends too late: redundancy is worth its price.
const PATH: &str = "rate=20mbit delay=40ms loss=0.03 buffer=100kB overhead=28";

/// Work as the mechanisms predict it, on a processor of which others take all but a part between
/// these seconds.
const BUSY_FROM_S: u64 = 20;
const BUSY_UNTIL_S: u64 = 60;
const LEFT: f64 = 1.0 / 800.0;
const COSTS: &str =
    "copy_in=3us protection/aes-128-gcm=0.5us,0us fec/reed-solomon=1.4us,0us load=20s:800,60s:1";

/// Pictures in time from one end to the other.
struct Run {
    world: World,
    client: ConnectionHandle,
    flow: FlowId,
    next_at: Time,
    handed: Vec<Time>,
    ages: Vec<Option<Duration>>,
    /// Seconds at which what the client sends has changed, and its redundancy since.
    exchanges: Vec<(f64, String)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let config = WorldConfig {
            path: PathConfig::both(PATH.parse().expect("a path")),
            seed,
            ..WorldConfig::default()
        };
        let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
        world.set_costs(CLIENT, COSTS.parse().expect("valid costs")).expect("in range");
        let mut requirements = Requirements::media(LIFETIME);
        requirements.reliability = Preference::Avoid;
        let config = ConnectionConfig { requirements, ..ConnectionConfig::default() };
        let client = world.connect(CLIENT, config).expect("the connection begins");
        while !matches!(world.next(Time::from_millis(9_000)).expect("a connection").event, Event::Connected) {
        }
        let flow = world.connection(CLIENT, client).expect("open").open_flow(FlowOptions::default());
        let (flow, next_at) = (flow.expect("a flow"), world.now());
        Run { world, client, flow, next_at, handed: Vec::new(), ages: Vec::new(), exchanges: Vec::new() }
    }

    fn until(&mut self, seconds: u64) -> &mut Self {
        let until = Time::from_millis(seconds * 1000);
        while self.world.now() < until {
            let Some(happening) = self.world.next(self.next_at.min(until)) else {
                if self.world.now() >= self.next_at {
                    self.hand_over();
                }
                continue;
            };
            let now = self.world.now();
            match happening.event {
                Event::Exchange(step) if happening.node == CLIENT => self.note(&step),
                Event::Readable(flow) if happening.node == SERVER => {
                    let connection = self.world.connection(SERVER, happening.connection).expect("open");
                    while let Ok(Read::Message(bytes)) = connection.read(now, flow, 1 << 20) {
                        let number = u64::from_be_bytes(bytes[..8].try_into().expect("a number")) as usize;
                        self.ages[number] = Some(now.since(self.handed[number]));
                    }
                }
                _ => {}
            }
        }
        self
    }

    fn note(&mut self, step: &ExchangeEvent) {
        let ExchangeEvent::Completed { direction: Direction::Out, profile, .. } = step else { return };
        let at = self.world.now().since(Time::ZERO).as_secs_f64();
        self.exchanges.push((at, profile.describe(Function::Fec)));
    }

    fn hand_over(&mut self) {
        let now = self.world.now();
        let mut picture = vec![7; PICTURE_BYTES];
        picture[..8].copy_from_slice(&(self.handed.len() as u64).to_be_bytes());
        let connection = self.world.connection(CLIENT, self.client).expect("open");
        // One that finds no room is none that arrives in time.
        let _ = connection.send_message(now, self.flow, Bytes::from(picture), MessageOptions::default());
        self.handed.push(now);
        self.ages.push(None);
        self.next_at += EVERY;
    }

    fn redundancy(&mut self) -> &'static str {
        let connection = self.world.connection(CLIENT, self.client).expect("open");
        connection.profile(Direction::Out).expect("connected").name(Function::Fec)
    }

    /// Share of the pictures of these seconds that arrived in time.
    fn in_time(&self, from: u64, until: u64) -> f64 {
        let span = Time::from_millis(from * 1000)..Time::from_millis(until * 1000);
        let judged: Vec<bool> = (self.handed.iter().zip(&self.ages))
            .filter(|(at, _)| span.contains(at))
            .map(|(_, age)| age.is_some_and(|age| age <= LIFETIME))
            .collect();
        judged.iter().filter(|is_in_time| **is_in_time).count() as f64 / judged.len() as f64
    }

    fn tell(&mut self, processor: f64) {
        let now = self.world.now();
        self.world
            .endpoint(CLIENT)
            .on_host(now, HostFacts { processor: Some(processor), ..HostFacts::default() });
    }
}

#[test]
fn what_costs_the_most_leaves_a_busy_host_and_comes_back() {
    for seed in 1..4 {
        let mut run = Run::new(seed);
        run.tell(1.0);
        run.until(BUSY_FROM_S);
        assert_eq!(run.redundancy(), "reed-solomon", "seed {seed}: losses are mended ahead");
        run.tell(LEFT);
        run.until(BUSY_UNTIL_S);
        assert_eq!(run.redundancy(), "none", "seed {seed}: there is no processor for it");
        let told = run.in_time(BUSY_FROM_S + 2, BUSY_UNTIL_S);
        let busy = run.exchanges.len();
        let since_busy = run.exchanges.iter().filter(|(at, _)| *at > BUSY_FROM_S as f64).count();
        assert_eq!(since_busy, 1, "seed {seed}: it leaves once: {:?}", run.exchanges);
        run.tell(1.0);
        let back =
            (BUSY_UNTIL_S..BUSY_UNTIL_S + 60).find(|second| run.until(second + 1).redundancy() != "none");
        println!("seed {seed}: {told:.3} in time while busy, {:?}", run.exchanges);
        let back = back.unwrap_or_else(|| panic!("seed {seed}: it stays away"));
        assert!(
            back >= BUSY_UNTIL_S + 5,
            "seed {seed}: {back} s is too soon to trust a share that has grown"
        );
        assert_eq!(run.exchanges.len(), busy + 1, "seed {seed}: it returns once: {:?}", run.exchanges);

        // Who is told nothing is late before it leaves, and tries again and again.
        let mut untold = Run::new(seed);
        untold.until(BUSY_UNTIL_S);
        let without = untold.in_time(BUSY_FROM_S + 2, BUSY_UNTIL_S);
        println!("seed {seed}: {without:.3} in time untold, {:?}", untold.exchanges);
        assert!(told > without + 0.02, "seed {seed}: {told:.3} in time, {without:.3} if untold");
        assert!(untold.exchanges.len() > busy, "seed {seed}: {:?}", untold.exchanges);
    }
}

/// A share that a host measures is never twice the same.
#[test]
fn a_share_that_swings_about_the_limit_brings_no_exchange_each_time() {
    let mut run = Run::new(7);
    run.until(BUSY_FROM_S);
    for second in BUSY_FROM_S..BUSY_UNTIL_S {
        run.tell(LEFT * if second % 2 == 0 { 0.8 } else { 1.2 });
        run.until(second + 1);
    }
    let exchanges: Vec<_> = run.exchanges.iter().filter(|(at, _)| *at > BUSY_FROM_S as f64).collect();
    assert!(exchanges.len() <= 3, "{exchanges:?}");
}

/// Where bytes are paid for, what little redundancy mends is not worth its bytes.
#[test]
fn advice_that_bytes_are_dear_saves_them() {
    let sent = |metered: Option<bool>| {
        let mut run = Run::new(5);
        let now = run.world.now();
        run.world.endpoint(CLIENT).advise(now, HostFacts { is_metered: metered, ..HostFacts::default() });
        run.until(15);
        let connection = run.world.connection(CLIENT, run.client).expect("open");
        (connection.stats().bytes_sent, run.redundancy())
    };
    let (free, dear) = (sent(None), sent(Some(true)));
    println!("{free:?}, {dear:?}");
    assert_eq!((free.1, dear.1), ("reed-solomon", "none"));
    assert!(dear.0 < free.0);
    assert_eq!(sent(Some(false)), free, "what costs nothing is no reason");
}
