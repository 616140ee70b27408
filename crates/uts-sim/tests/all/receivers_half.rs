//! Mechanisms with a half at the receiver, mechanisms that judge what is handed over, and
//! mechanisms that keep the order that messages ask for: what they do end to end, in virtual time.

use crate::one_client::{CLIENT, OneClient, SERVER, message, with};
use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uts_engine::{
    After, ConnectionConfig, Direction, Event, FlowId, FlowOptions, MessageOptions, Read, Stats, WriteError,
};
use uts_functions::{Function, Time};
use uts_sim::NodeId;

/// A client that sends messages to a server.
struct Transfer {
    ends: OneClient,
    flow: FlowId,
    received: Vec<u32>,
    received_bytes: u64,
    last_at: Time,
    may_write: bool,
}

impl Transfer {
    fn new(path: &str, properties: &[&str], seed: u64) -> Self {
        let config = ConnectionConfig {
            send_buffer_bytes: 64 << 20,
            send_buffer_bytes_max: 64 << 20,
            ..ConnectionConfig::default()
        };
        let always = ["uts.adapt=off", "uts.consent=all", "preserveMsgBoundaries=require"];
        let config = with(config, properties, &always);
        let ends = OneClient::connected("rate=20mbit delay=20ms", config.clone(), config, seed);
        let mut transfer = Transfer {
            ends,
            flow: FlowId(0),
            received: Vec::new(),
            received_bytes: 0,
            last_at: Time::ZERO,
            may_write: false,
        };
        transfer.ends.set_path(path);
        transfer.flow = transfer.ends.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
        transfer
    }

    fn stats(&mut self, node: NodeId) -> Stats {
        self.ends.at(node).stats()
    }

    fn send(&mut self, numbers: core::ops::Range<u32>, len: usize) {
        for number in numbers {
            self.offer(number, len).expect("room");
        }
    }

    fn offer(&mut self, number: u32, len: usize) -> Result<(), WriteError> {
        self.offer_after(number, len, After::default())
    }

    fn offer_after(&mut self, number: u32, len: usize, after: After) -> Result<(), WriteError> {
        let (now, flow) = (self.ends.world.now(), self.flow);
        let options = MessageOptions { after, ..MessageOptions::default() };
        self.ends.at(CLIENT).send_message(now, flow, message(number, len), options)
    }

    /// Goes on for so long, or until all these have arrived.
    fn pass_until(&mut self, duration: Duration, messages: usize) {
        let until = self.ends.world.now() + duration;
        while self.received.len() < messages
            && let Some(happening) = self.ends.next(until)
        {
            match happening.event {
                Event::Readable(flow) if happening.node == SERVER => self.read(flow),
                Event::Writable(_) => self.may_write = true,
                Event::Closed(reason) => panic!("at {}: {reason}", happening.node),
                _ => {}
            }
        }
    }

    fn pass(&mut self, duration: Duration) {
        self.pass_until(duration, usize::MAX);
    }

    fn read(&mut self, flow: FlowId) {
        let now = self.ends.world.now();
        while let Ok(read) = self.ends.at(SERVER).read(now, flow, 1 << 20) {
            let Read::Message(data) = read else { panic!("{read:?}") };
            let number = u32::from_be_bytes([data[0], data[1], data[2], data[3]]);
            assert_eq!(data, message(number, data.len()), "message {number} is damaged");
            self.received.push(number);
            self.received_bytes += data.len() as u64;
            self.last_at = now;
        }
    }

    /// Sends so many messages and says how long it takes until all have arrived.
    fn time_for(&mut self, count: u32, len: usize) -> Duration {
        let start = self.ends.world.now();
        self.send(0..count, len);
        self.pass_until(Duration::from_secs(600), count as usize);
        let mut all = self.received.clone();
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..count), "{} of {count} arrived", all.len());
        self.last_at.since(start)
    }
}

/// Where acknowledgements are rare, who asks for what is missing waits less.
#[test]
fn nak_repairs_without_waiting_for_acknowledgements() {
    let time = |retransmission: &str| {
        let profile = format!("uts.profile.retransmission={retransmission}");
        let properties = [
            &profile,
            "uts.profile.acknowledgement=poll-status(every=1024)",
            "congestionControl=avoid",
            "uts.profile.congestion=none",
            "uts.profile.fec=none",
        ];
        let times = (0..5).map(|seed| {
            let path = "rate=20mbit delay=20ms loss=0.03 buffer=4000p";
            Transfer::new(path, &properties, seed).time_for(1500, 1000)
        });
        times.sum::<Duration>()
    };
    let (selective, nak) = (time("selective"), time("nak"));
    println!("1500 messages with 3 % of loss: {selective:?} selective, {nak:?} nak (five runs each)");
    assert!(nak < selective, "{nak:?}, {selective:?} without asking");
}

/// Whatever the strategy, and whatever is lost of data and of answers, everything arrives.
#[test]
fn blasts_arrive_under_each_strategy() {
    for strategy in 1..=4 {
        for seed in 0..3 {
            let profile = format!("uts.profile.retransmission=blast(unit=16,strategy={strategy})");
            let path = "rate=20mbit delay=20ms loss=0.1 jitter=5ms,reorder duplicate=0.05 buffer=400p";
            let time = Transfer::new(path, &[&profile], seed).time_for(300, 1000);
            println!("strategy {strategy}, seed {seed}: {time:?}");
            assert!(time < Duration::from_secs(120), "strategy {strategy}, seed {seed}: {time:?}");
        }
    }
}

/// Data that waits to be asked for is not forgotten when another mechanism takes over.
#[test]
fn what_waits_is_repeated_by_whoever_comes() {
    const NAMES: [&str; 4] = ["nak", "selective", "blast", "go-back-n"];
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let path = "rate=20mbit delay=20ms loss=0.1 jitter=5ms,reorder buffer=400p";
        let mut transfer = Transfer::new(path, &["uts.profile.retransmission=nak"], seed);
        let home = transfer.ends.at(CLIENT).profile(Direction::Out).expect("connected");
        let mut sent = 0;
        for _ in 0..12 {
            let more = rng.random_range(1..40);
            transfer.send(sent..sent + more, 1500);
            sent += more;
            transfer.pass(Duration::from_millis(rng.random_range(1..150)));
            let name = NAMES[rng.random_range(0..NAMES.len())];
            let profile = home.with_named(Function::Retransmission, name).expect("it exists");
            let now = transfer.ends.world.now();
            // One that is under way already stays so.
            let _ = transfer.ends.at(CLIENT).request_profile(now, Direction::Out, profile);
        }
        transfer.pass_until(Duration::from_secs(120), sent as usize);
        let mut all = transfer.received.clone();
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..sent), "failing seed {seed}: {} of {sent} arrived", all.len());
    }
}

/// The receiver finds the rate of the line, from below and from above, although nothing else bounds
/// the sender.
#[test]
fn netblt_comes_to_the_rate_of_the_line() {
    for kbits in [500, 40_000] {
        let profile = format!("uts.profile.rate=netblt(rate={kbits})");
        let properties = [
            profile.as_str(),
            "congestionControl=avoid",
            "uts.profile.congestion=none",
            "uts.profile.fec=none",
        ];
        let mut transfer = Transfer::new("rate=8mbit delay=20ms buffer=60p", &properties, 1);
        let time = transfer.time_for(8000, 1000);
        let stats = transfer.stats(CLIENT);
        println!(
            "from {kbits} kbit/s: 8 MB in {time:?}, {} of {} packets lost",
            stats.packets_lost, stats.packets_sent
        );
        // The line alone needs 8.3 s.
        assert!(time < Duration::from_secs(16), "from {kbits} kbit/s: {time:?}");
        assert!(stats.packets_lost * 5 < stats.packets_sent, "from {kbits} kbit/s: {stats:?}");
    }
}

const POLICED: &str = "uts.profile.rate=leaky-bucket(rate=800,depth=50,excess=";

fn policed(excess: u32, path: &str) -> Transfer {
    let property = format!("{POLICED}{excess})");
    Transfer::new(path, &[&property, "uts.profile.fec=none"], 1)
}

#[test]
fn messages_beyond_the_rate_are_thrown_away() {
    let mut transfer = policed(0, "rate=20mbit delay=20ms");
    transfer.send(0..200, 1024);
    transfer.pass(Duration::from_secs(10));
    // 50 KiB in advance, and the one that goes over it.
    assert_eq!(transfer.received, Vec::from_iter(0..51));
    assert_eq!(transfer.stats(CLIENT).messages_discarded, 149);
    // 100,000 bytes a second have run out since.
    transfer.send(200..210, 1024);
    transfer.pass(Duration::from_secs(1));
    assert_eq!(transfer.received.len(), 61);
}

#[test]
fn messages_beyond_the_rate_wait_and_the_writer_is_told() {
    let mut transfer = policed(2, "rate=20mbit delay=20ms");
    let start = transfer.ends.world.now();
    let mut next = 0;
    let mut refusals = 0;
    while next < 250 {
        match transfer.offer(next, 1024) {
            Ok(()) => next += 1,
            Err(WriteError::Blocked) => {
                refusals += 1;
                transfer.may_write = false;
                while !transfer.may_write {
                    transfer.pass(Duration::from_millis(1));
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    let time = transfer.ends.world.now().since(start);
    // 250 KiB less 51 in advance, at 100,000 bytes a second.
    assert!((2.0..2.2).contains(&time.as_secs_f64()), "{time:?}");
    assert!(refusals <= 200, "told {refusals} times, once for each message would do");
    transfer.pass(Duration::from_secs(2));
    assert_eq!(transfer.received, Vec::from_iter(0..250), "all of them, in order");
}

#[test]
fn messages_beyond_the_rate_are_the_first_to_be_given_up() {
    let mut transfer = policed(1, "rate=20mbit delay=20ms loss=0.1");
    transfer.send(0..200, 1024);
    transfer.pass(Duration::from_secs(20));
    let (within, beyond): (Vec<u32>, Vec<u32>) = transfer.received.iter().partition(|number| **number < 51);
    assert_eq!(within, Vec::from_iter(0..51), "what keeps to the rate is repeated");
    assert!((100..149).contains(&beyond.len()), "{} of 149 that are beyond it arrived", beyond.len());
    let stats = transfer.stats(CLIENT);
    assert!(stats.bytes_given_up > 0, "{stats:?}");
    // The flow is whole: what follows is handed over.
    transfer.pass(Duration::from_secs(10));
    transfer.send(500..510, 1024);
    transfer.pass(Duration::from_secs(10));
    assert!((500..510).all(|number| transfer.received.contains(&number)), "{:?}", transfer.received);
}

/// Messages in each picture: a header, and data that waits for that and for nothing else.
const IN_PICTURE: u32 = 8;

/// Sends pictures, one every 10 ms. Returns how long messages took on the mean, and in which order
/// they were read.
fn pictures(sequencing: &str, seed: u64, exchanges: bool) -> (Duration, Vec<u32>) {
    let profile = format!("uts.profile.sequencing={sequencing}");
    let properties = [
        profile.as_str(),
        "preserveOrder=avoid",
        "uts.profile.fec=none",
        "congestionControl=avoid",
        "uts.profile.congestion=none",
    ];
    let mut transfer =
        Transfer::new("rate=20mbit delay=20ms loss=0.05 jitter=2ms,reorder", &properties, seed);
    let home = transfer.ends.at(CLIENT).profile(Direction::Out).expect("connected");
    let (mut taken, mut seen, mut sent_at, mut exchanged) = (Duration::ZERO, 0, Vec::new(), 0);
    for picture in 0..100 {
        if exchanges && picture % 10 == 5 {
            let name = ["ordered", "partial-order"][(picture / 10 % 2) as usize];
            let profile = home.with_named(Function::Sequencing, name).expect("it exists");
            let now = transfer.ends.world.now();
            let asked = transfer.ends.at(CLIENT).request_profile(now, Direction::Out, profile);
            // One may still be under way, where losses hold it up.
            exchanged += u32::from(asked.is_ok());
        }
        let now = transfer.ends.world.now();
        let flow = transfer.flow;
        let mut after = After::NOTHING;
        for part in 0..IN_PICTURE {
            let from = transfer.ends.at(CLIENT).position(flow).expect("open");
            transfer.offer_after(picture * IN_PICTURE + part, 700, after).expect("room");
            if part == 0 {
                let to = transfer.ends.at(CLIENT).position(flow).expect("open");
                after = After::Positions { from, to };
            }
            sent_at.push(now);
        }
        for _ in 0..20 {
            transfer.pass(Duration::from_micros(500));
            for number in transfer.received.iter().skip(seen) {
                taken += transfer.ends.world.now().since(sent_at[*number as usize]);
            }
            seen = transfer.received.len();
        }
    }
    let count = sent_at.len();
    while transfer.received.len() < count {
        transfer.pass(Duration::from_millis(1));
        for number in transfer.received.iter().skip(seen) {
            taken += transfer.ends.world.now().since(sent_at[*number as usize]);
        }
        seen = transfer.received.len();
        assert!(
            transfer.ends.world.now() < Time::from_millis(60_000),
            "seed {seed}: {seen} of {count} arrived"
        );
    }
    assert!(!exchanges || exchanged >= 3, "seed {seed}: {exchanged} exchanges");
    (taken / count as u32, transfer.received)
}

/// Data that need not wait is handed over at once, and no data before what it waits for.
#[test]
fn pictures_overtake_each_other_and_no_data_its_header() {
    let mut means = [Duration::ZERO; 2];
    for seed in 0..5 {
        for (mean, name) in means.iter_mut().zip(["ordered", "partial-order"]) {
            let (taken, order) = pictures(name, seed, false);
            *mean += taken / 5;
            check_order(&order, seed);
            assert_eq!(order.is_sorted(), name == "ordered", "seed {seed}");
        }
    }
    println!("a message takes {means:?} on the mean: in order, in partial order");
    assert!(means[1] < means[0], "{means:?}");
}

#[test]
fn an_order_is_exchanged_for_another_while_messages_wait() {
    for seed in 0..10 {
        let (_, order) = pictures("partial-order", seed, true);
        check_order(&order, seed);
    }
}

fn check_order(order: &[u32], seed: u64) {
    let mut all = order.to_vec();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..all.len() as u32), "failing seed {seed}: lost, or handed over twice");
    let mut has_header = vec![false; order.len()];
    for number in order {
        let (picture, part) = (number / IN_PICTURE, number % IN_PICTURE);
        assert!(part == 0 || has_header[picture as usize], "failing seed {seed}: {number} before its header");
        has_header[picture as usize] |= part == 0;
    }
}
