//! Messages that are worthless after a while, over lines that are too slow for all of them, fast
//! enough, lossy, or shared.

use bytes::Bytes;
use core::time::Duration;
use uts_engine::requirements::{Preference, Requirements};
use uts_engine::{ConnectionConfig, ConnectionHandle, Event, FlowId, FlowOptions, MessageOptions, Read};
use uts_functions::Time;
use uts_path::{Direction, PathConfig, Target};
use uts_sim::identity::Identities;
use uts_sim::{World, WorldConfig};

const SERVER: usize = 0;
const CLIENT: usize = 1;
/// IP, UDP, and what UTS puts around a message, about.
const AROUND_BYTES: u64 = 28 + 28;

/// A source of messages that are worthless after `lifetime`.
#[derive(Clone, Debug)]
struct Source {
    bytes: usize,
    every: Duration,
    lifetime: Duration,
    requirements: Requirements,
}

impl Source {
    fn voice() -> Self {
        let lifetime = Duration::from_millis(150);
        Source {
            bytes: 160,
            every: Duration::from_millis(20),
            lifetime,
            requirements: Requirements::media(lifetime),
        }
    }

    /// Messages of so many bytes each `every` ms, of use for `lifetime` ms.
    fn of(bytes: usize, every: u64, lifetime: u64, reliability: Preference) -> Self {
        let lifetime = Duration::from_millis(lifetime);
        let mut requirements = Requirements::media(lifetime);
        requirements.reliability = reliability;
        Source { bytes, every: Duration::from_millis(every), lifetime, requirements }
    }

    /// Share of what is offered that the line has room for.
    fn possible(&self, bits_per_sec: u64) -> f64 {
        let offered = (self.bytes as u64 + AROUND_BYTES) as f64 * 8.0 / self.every.as_secs_f64();
        (bits_per_sec as f64 / offered).min(1.0)
    }
}

/// Messages between two ends, with what became of them.
struct Run {
    world: World,
    client: ConnectionHandle,
    flow: FlowId,
    source: Source,
    next_at: Time,
    /// When each was handed over.
    handed: Vec<Time>,
    /// Ages of the messages that arrived, by their numbers.
    ages: Vec<Option<Duration>>,
    /// Another connection, whose flow takes what it gets, and what has arrived of it.
    bulk: Option<(ConnectionHandle, FlowId)>,
    carried: u64,
}

impl Run {
    fn new(line: &str, source: Source, seed: u64) -> Self {
        let path = PathConfig::both(line.parse().unwrap_or_else(|error| panic!("{line}: {error}")));
        let config = WorldConfig { path, seed, ..WorldConfig::default() };
        let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
        let requirements = source.requirements.clone();
        let config = ConnectionConfig { requirements, ..ConnectionConfig::default() };
        let client = world.connect(CLIENT, config).expect("the connection begins");
        loop {
            let happening = world.next(Time::from_millis(60_000)).expect("a connection");
            if (happening.node, happening.event) == (CLIENT, Event::Connected) {
                break;
            }
        }
        let connection = world.connection(CLIENT, client).expect("open");
        let flow = connection.open_flow(FlowOptions::default()).expect("a flow");
        let next_at = world.now();
        Run {
            world,
            client,
            flow,
            source,
            next_at,
            handed: Vec::new(),
            ages: Vec::new(),
            bulk: None,
            carried: 0,
        }
    }

    /// Begins to carry as much as can be beside it.
    fn bulk(&mut self) {
        let bulk = self.world.connect(CLIENT, ConnectionConfig::default()).expect("it begins");
        loop {
            let happening = self.world.next(Time::from_millis(60_000)).expect("a connection");
            if (happening.node, &happening.event) == (CLIENT, &Event::Connected) {
                break;
            }
        }
        let flow = self.world.connection(CLIENT, bulk).expect("open").open_flow(FlowOptions::default());
        self.bulk = Some((bulk, flow.expect("a flow")));
        self.next_at = self.world.now();
        self.write_bulk();
    }

    fn write_bulk(&mut self) {
        let now = self.world.now();
        let Some((bulk, flow)) = self.bulk else { return };
        let Some(connection) = self.world.connection(CLIENT, bulk) else { return };
        while connection.write(now, flow, Bytes::from(vec![1; 16_384])).is_ok() {}
    }

    /// Hands messages over until then.
    fn run(&mut self, until: Time) {
        while self.world.now() < until {
            let Some(happening) = self.world.next(self.next_at.min(until)) else {
                if self.world.now() >= self.next_at {
                    self.hand_over();
                }
                continue;
            };
            let now = self.world.now();
            if matches!(happening.event, Event::Writable(_)) {
                self.write_bulk();
            }
            let Event::Readable(flow) = happening.event else { continue };
            if happening.node != SERVER {
                continue;
            }
            let connection = self.world.connection(SERVER, happening.connection).expect("open");
            while let Ok(read) = connection.read(now, flow, 1 << 20) {
                let bytes = match read {
                    Read::Message(bytes) => bytes,
                    Read::Bytes(_, bytes) => {
                        self.carried += bytes.len() as u64;
                        continue;
                    }
                    _ => break,
                };
                let number = u64::from_be_bytes(bytes[..8].try_into().expect("a number")) as usize;
                self.ages[number] = Some(now.since(self.handed[number]));
            }
        }
    }

    fn hand_over(&mut self) {
        let now = self.world.now();
        let mut message = vec![7; self.source.bytes];
        message[..8].copy_from_slice(&(self.handed.len() as u64).to_be_bytes());
        let Some(connection) = self.world.connection(CLIENT, self.client) else { return };
        connection
            .send_message(now, self.flow, Bytes::from(message), MessageOptions::default())
            .expect("there is room");
        self.handed.push(now);
        self.ages.push(None);
        self.next_at += self.source.every;
    }

    /// Shares of what was handed over from `from` on that arrived in time, and late.
    fn shares(&self, from: Time) -> (f64, f64) {
        let until = self.world.now().since(Time::ZERO).saturating_sub(self.source.lifetime);
        let judged = (self.handed.iter().zip(&self.ages))
            .filter(|(at, _)| **at >= from && at.since(Time::ZERO) < until);
        let (mut all, mut in_time, mut late) = (0, 0, 0);
        for (_, age) in judged {
            all += 1;
            in_time += u32::from(age.is_some_and(|age| age <= self.source.lifetime));
            late += u32::from(age.is_some_and(|age| age > self.source.lifetime));
        }
        let of = |part: u32| f64::from(part) / f64::from(all.max(1));
        (of(in_time), of(late))
    }
}

/// Twenty seconds of voice from the fifth on.
fn shares(line: &str, source: &Source, seed: u64) -> (f64, f64) {
    let mut run = Run::new(line, source.clone(), seed);
    run.run(Time::from_millis(25_000));
    run.shares(Time::from_millis(5_000))
}

/// Messages are in time as far as the line has room for them, on average of queues and delays.
#[test]
fn about_as_much_is_in_time_as_the_line_has_room_for() {
    for (kbit, loss, least) in [
        (40, 0.0, 0.6),
        (60, 0.0, 0.8),
        (80, 0.0, 0.85),
        (100, 0.0, 0.95),
        (200, 0.0, 0.99),
        (1000, 0.0, 0.99),
        (40, 0.02, 0.45),
        (60, 0.02, 0.65),
        (80, 0.02, 0.8),
        (100, 0.02, 0.85),
        (200, 0.02, 0.95),
        (1000, 0.02, 0.95),
    ] {
        let (mut sum, mut lines) = (0.0, 0);
        for buffer in ["2kB", "5kB", "20kB", "100kB"] {
            for delay in [2, 10, 40] {
                let line = format!("rate={kbit}kbit delay={delay}ms buffer={buffer} loss={loss} overhead=28");
                let source = Source::voice();
                let (in_time, late) = shares(&line, &source, kbit);
                let possible = source.possible(kbit * 1000) * (1.0 - loss);
                println!("{line}: {in_time:.3} of {possible:.3} in time, {late:.3} late");
                (sum, lines) = (sum + in_time / possible, lines + 1);
            }
        }
        let mean = sum / f64::from(lines);
        println!("{kbit} kbit/s, loss {loss}: {mean:.3} of what is possible");
        assert!(mean >= least, "{kbit} kbit/s, loss {loss}: {mean:.3} of what is possible");
    }
}

/// Messages that are in time beside others, in bursts, or under a delay that varies are not given
/// up.
#[test]
fn where_others_fill_the_queue_or_the_delay_varies_messages_go_on() {
    let voice = |lifetime| Source::of(160, 20, lifetime, Preference::Avoid);
    let reliable = |lifetime| Source::of(160, 20, lifetime, Preference::Prefer);
    let video = |lifetime| Source::of(12_000, 40, lifetime, Preference::Avoid);
    let (fast, lossy) = ("rate=10mbit delay=10ms", "rate=10mbit delay=10ms loss=0.05");
    let (medium, varies) = ("rate=4mbit delay=20ms", "rate=10mbit delay=20ms jitter=20ms");
    let varies_more = "rate=1mbit delay=20ms jitter=60ms";
    for (source, path, bulk, least) in [
        (voice(150), fast, true, 0.99),
        (voice(150), lossy, true, 0.9),
        (voice(150), medium, true, 0.95),
        (voice(150), varies, true, 0.95),
        (voice(150), varies_more, false, 0.95),
        (reliable(150), medium, true, 0.95),
        (reliable(60), lossy, true, 0.9),
        (voice(60), fast, true, 0.95),
        (voice(60), varies, false, 0.9),
        (video(100), fast, true, 0.9),
        (video(100), varies, false, 0.95),
        (video(50), medium, false, 0.99),
        (voice(15), fast, false, 0.99),
    ] {
        let mut run = Run::new(&format!("{path} buffer=50kB overhead=28"), source.clone(), 5);
        if bulk {
            run.bulk();
        }
        run.run(Time::from_millis(25_000));
        let (in_time, late) = run.shares(Time::from_millis(5_000));
        let (bytes, lifetime) = (source.bytes, source.lifetime);
        println!("{bytes} bytes within {lifetime:?}, {path}, bulk {bulk}: {in_time:.3}, {late:.3} late");
        assert!(in_time >= least, "{bytes} bytes within {lifetime:?}, {path}, bulk {bulk}: {in_time:.3}");
    }
}

/// The way back loses everything. What needs no acknowledgement goes on, at a rate that is bounded,
/// and no less than what the application asks for.
#[test]
fn messages_that_need_no_acknowledgement_go_on_without() {
    for (delay, asked, least) in [(20, None, 0.7), (5, None, 0.7), (100, None, 0.4), (20, Some("100"), 0.9)] {
        let line = format!("rate=2mbit delay={delay}ms buffer=64p overhead=28");
        let mut source = Source { lifetime: Duration::from_millis(300), ..Source::voice() };
        source.requirements = Requirements::media(source.lifetime);
        if let Some(kbit) = asked {
            source.requirements.set("minSendRate", &format!("{kbit}kbit")).expect("a rate");
        }
        let mut run = Run::new(&line, source, 1);
        run.run(Time::from_millis(3_000));
        run.world.set_path(Target::One(Direction::Backward), "loss=1").expect("a change");
        let (from, before) = (run.world.now(), run.world.path_stats(Direction::Forward).packets_in);
        run.run(from + Duration::from_secs(15));
        let (in_time, _) = run.shares(from);
        let packets = run.world.path_stats(Direction::Forward).packets_in - before;
        println!("{delay} ms, {asked:?}: {in_time:.3} in time, {packets} packets");
        assert!(in_time >= least, "{delay} ms, {asked:?}: {in_time:.3} in time");
        // Nothing answers: there must be fewer packets than messages unless more is asked for.
        assert!(packets < 500 || asked.is_some(), "{delay} ms: {packets} packets");
    }
}

/// Runs of which the average is judged: of five, averages still differ by a tenth.
const SEEDS: u64 = 12;

/// Share in time of what is sent beside a flow that takes what it gets, and is handed over with a
/// lifetime of `told`; on average.
fn share_beside_others(path: &str, (bytes, every, lifetime): (usize, u64, u64), told: u64) -> f64 {
    let known = Source::of(bytes, every, told, Preference::Avoid);
    let source = Source { lifetime: Duration::from_millis(lifetime), ..known };
    let shares = (1..=SEEDS).map(|seed| {
        let mut run = Run::new(&format!("{path} buffer=50kB overhead=28"), source.clone(), seed);
        run.bulk();
        run.run(Time::from_millis(25_000));
        run.shares(Time::from_millis(5_000)).0
    });
    shares.sum::<f64>() / SEEDS as f64
}

/// A sender that knows how long messages are of use does no worse for it where others fill the
/// queue.
#[test]
fn beside_others_a_lifetime_that_is_known_does_no_harm() {
    let (fast, medium) = ("rate=10mbit delay=10ms", "rate=4mbit delay=20ms");
    let (varies, slow) = ("rate=10mbit delay=20ms jitter=20ms", "rate=1mbit delay=10ms");
    for (path, source) in [
        (fast, (12_000, 40, 50)),
        (fast, (12_000, 40, 60)),
        (fast, (3_000, 40, 50)),
        (fast, (160, 20, 40)),
        (fast, (160, 20, 50)),
        (varies, (160, 20, 60)),
        (medium, (160, 20, 100)),
        (medium, (3_000, 40, 100)),
        (slow, (160, 20, 400)),
    ] {
        let known = share_beside_others(path, source, source.2);
        let unknown = share_beside_others(path, source, 20 * source.2);
        println!("{source:?}, {path}: {known:.3} in time, {unknown:.3} without");
        assert!(known >= unknown - 0.1, "{source:?}, {path}: {known:.3} in time, {unknown:.3} without");
    }
}
