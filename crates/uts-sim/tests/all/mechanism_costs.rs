//! Costs of mechanisms for a host: transfers that its processor limits, against closed forms.

use core::time::Duration;
use uts_engine::{ConnectionConfig, Direction as DataDirection, EndpointConfig};
use uts_functions::Function;
use uts_path::{Direction, PathConfig};
use uts_sim::identity::Identities;
use uts_sim::transfer::Transfers;
use uts_sim::world::SERVER;
use uts_sim::{World, WorldConfig};

const CLIENT: usize = 1;
const MS: Duration = Duration::from_millis(1);

fn config(cipher: &str) -> ConnectionConfig {
    let mut config = ConnectionConfig::default();
    let cipher = format!("uts.profile.protection={cipher}");
    for property in ["uts.adapt=off", "uts.consent=all", "uts.security=required", cipher.as_str()] {
        config.requirements.assign(property).expect("a valid property");
    }
    config
}

/// A transfer without an end, and a host with costs.
struct Bound {
    world: World,
    transfers: Transfers,
}

/// Counters of the time between two looks.
#[derive(Clone, Copy)]
struct Passed {
    packets: f64,
    kilobytes: f64,
    reports: f64,
    busy_s: f64,
    time_s: f64,
}

impl Bound {
    fn new(cipher: &str, path: &str, (node, costs): (usize, &str)) -> Self {
        let path = PathConfig::both(path.parse().expect("a valid path"));
        let accepting = EndpointConfig { accept: config(cipher), ..EndpointConfig::default() };
        let world = WorldConfig { path, server: accepting, seed: 3, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        world.set_costs(node, costs.parse().expect("valid costs")).expect("in range");
        let transfers = Transfers::start(&mut world, &[(CLIENT, config(cipher))], u64::MAX);
        Bound { world, transfers }
    }

    fn pass(&mut self, span: Duration) {
        let until = self.world.now() + span;
        assert!(!self.transfers.run(&mut self.world, until), "the transfer has ended");
    }

    /// Packets that pass in this time, and the work of a host's processor in it.
    fn passed(&mut self, span: Duration, node: usize) -> Passed {
        let look = |world: &World| {
            let [there, back] =
                [Direction::Forward, Direction::Backward].map(|direction| world.path_stats(direction));
            [
                there.delivered as f64,
                there.bytes_delivered as f64 / 1e3,
                back.delivered as f64,
                world.host_counters(node).busy.as_secs_f64(),
            ]
        };
        let before = look(&self.world);
        self.pass(span);
        let after = look(&self.world);
        let of = |n: usize| after[n] - before[n];
        Passed { packets: of(0), kilobytes: of(1), reports: of(2), busy_s: of(3), time_s: span.as_secs_f64() }
    }
}

fn close(found: f64, expected: f64, what: &str) {
    println!("{what}: {found:.2}, closed form {expected:.2}");
    assert!((found / expected - 1.0).abs() < 0.01, "{what}: {found} is not {expected} (seed 3)");
}

/// A processor that needs a for each packet, and b for each of its bytes, sends a packet in each
/// a + b bytes. After an exchange in mid-transfer, the rate is that of the other mechanism.
#[test]
fn a_sender_is_as_fast_as_its_mechanisms_allow() {
    let costs = "copy_in=100us send_queue=8 protection/aes-128-gcm=20us+200us/kB,0us";
    let mut bound = Bound::new("aes-128-gcm", "delay=1ms", (CLIENT, costs));
    bound.pass(500 * MS);
    let expected = |passed: &Passed, packet_us: f64, kilobyte_us: f64| {
        1e6 / (packet_us + kilobyte_us * passed.kilobytes / passed.packets)
    };
    let costly = bound.passed(4000 * MS, CLIENT);
    close(costly.packets / costly.time_s, expected(&costly, 120.0, 200.0), "packets a second with a cost");

    let handle = bound.transfers.progress[&CLIENT].connection;
    let now = bound.world.now();
    let connection = bound.world.connection(CLIENT, handle).expect("it is open");
    let next = connection.profile(DataDirection::Out).expect("connected");
    let next = next.with_named(Function::Protection, "chacha20-poly1305").expect("in the library");
    connection.request_profile(now, DataDirection::Out, next).expect("idle");
    bound.pass(500 * MS);
    let connection = bound.world.connection(CLIENT, handle).expect("it is open");
    assert_eq!(connection.profile(DataDirection::Out), Some(next));
    let free = bound.passed(4000 * MS, CLIENT);
    close(free.packets / free.time_s, expected(&free, 100.0, 0.0), "packets a second without");
    assert!(free.packets > 3.0 * costly.packets, "the exchange shows");

    // From the first packet on, the other mechanism costs nothing either.
    let mut other = Bound::new("chacha20-poly1305", "delay=1ms", (CLIENT, costs));
    other.pass(1000 * MS);
    let found = other.passed(4000 * MS, CLIENT);
    close(found.packets / found.time_s, 10_000.0, "packets a second under the other");
}

/// A receiver works for each packet that comes, and for each report that it sends, under the
/// mechanisms of that direction.
#[test]
fn a_receiver_works_for_what_comes_and_for_what_it_sends() {
    let costs = "receive=100us copy_in=10us protection/aes-128-gcm=50us,200us+100us/kB";
    let mut bound = Bound::new("aes-128-gcm", "rate=5mbit delay=1ms buffer=50p", (SERVER, costs));
    bound.pass(1000 * MS);
    let passed = bound.passed(20_000 * MS, SERVER);
    let work_s = 300e-6 * passed.packets + 100e-6 * passed.kilobytes + 60e-6 * passed.reports;
    close(passed.busy_s, work_s, "seconds of work");
}

/// A mechanism that is not in use, and one that costs nothing, change nothing at all.
#[test]
fn costs_of_what_is_not_in_use_change_nothing() {
    let arrived = |costs: &str| {
        let mut bound = Bound::new("aes-128-gcm", "delay=1ms", (CLIENT, costs));
        bound.pass(2000 * MS);
        let progress = &bound.transfers.progress[&CLIENT];
        (progress.received, progress.checksum, bound.world.path_stats(Direction::Forward))
    };
    let plain = arrived("copy_in=100us send_queue=8");
    assert!(plain.0 > 0);
    assert_eq!(plain, arrived("copy_in=100us send_queue=8 protection/chacha20-poly1305=9ms fec/xor=1ms"));
    assert_eq!(plain, arrived("copy_in=100us send_queue=8 protection/aes-128-gcm=0us"));
    assert_ne!(plain, arrived("copy_in=100us send_queue=8 protection/aes-128-gcm=1us"));
}
