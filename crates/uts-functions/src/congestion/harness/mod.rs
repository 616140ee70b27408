//! The conformance harness of congestion control: runs over every registered mechanism, in a small
//! simulated bottleneck and under random events.

mod bottleneck;
mod events;
mod published;
mod table;

use super::{Congestion, Context, MECHANISMS, Slot, Summary};
use crate::facts::PathFacts;
use crate::mechanism::{Bold, Choice, Mechanism, Prediction, Promise};
use crate::time::{Rate, Time};
use bottleneck::{PACKET, Path, World, choice};
use core::time::Duration;
use table::{Asked, Table};

const SEED: u64 = 7;

/// Share of a clean path that every mechanism puts to use, whether or not it promises to keep the
/// path full. The least is Tahoe's, which begins with one packet after each loss.
const PART_OF_FULL: f64 = 0.65;

/// Share of the path's rate that passed the queue in `seconds` from the start, and the mean queue
/// in milliseconds.
fn run(path: Path, choice: Choice, seconds: u64) -> (f64, f64) {
    let mut world = World::new(path, &[choice], SEED);
    let end = Time::from_millis(1000 * seconds);
    world.run_until(end);
    let flow = &world.flows[0];
    let could = path.rate.bytes_in(end.since(Time::ZERO)) as f64;
    (flow.passed as f64 / could, flow.mean_queue_s() * 1000.0)
}

fn controlled() -> impl Iterator<Item = &'static Mechanism> {
    MECHANISMS.iter().copied().filter(|m| m.promises(Promise::Restraint))
}

/// The table of utilisation. Bounds are what each mechanism promises on that path.
#[test]
fn utilisation_by_loss() {
    let fast = Path::new(100, 20);
    let long = Path::new(10, 100);
    let shallow = Path { buffer_bytes: 64 * PACKET, ..Path::new(50, 40) };
    let paths = [
        ("100 Mbit/s 20 ms clean", fast),
        ("100 Mbit/s 20 ms 0.1 %", fast.losing(0.001, 1.0)),
        ("100 Mbit/s 20 ms 1 %", fast.losing(0.01, 1.0)),
        ("100 Mbit/s 20 ms 5 % in bursts of 4", fast.losing(0.05, 4.0)),
        ("50 Mbit/s 40 ms 64 packets clean", shallow),
        ("50 Mbit/s 40 ms 64 packets 1 %", shallow.losing(0.01, 1.0)),
        ("50 Mbit/s 40 ms 64 packets 5 % in bursts of 4", shallow.losing(0.05, 4.0)),
        ("10 Mbit/s 100 ms clean", long),
        ("10 Mbit/s 100 ms 1 %", long.losing(0.01, 1.0)),
        ("10 Mbit/s 100 ms 5 % in bursts of 4", long.losing(0.05, 4.0)),
    ];
    let mut table = Table::new("share of the path");
    for (at, path) in paths {
        for (m, choice) in predicted() {
            let (utilisation, queue_ms) = run(path, choice, 20);
            let name = format!("{} {}", m.name, choice.params.get(0));
            println!("{at:46} {name:10} {:5.1} %  queue {queue_ms:5.1} ms", utilisation * 100.0);
            table.at_least(format_args!("{name} on {at}"), utilisation, asked_on(at, m, choice));
        }
    }
    table.check();
}

/// Share of the path of that name that a mechanism owes.
fn asked_on(at: &str, m: &Mechanism, choice: Choice) -> Asked {
    let is_clean = at.ends_with("clean");
    let is_raised = choice.params != m.params_within(&[]);
    let is_random = at.ends_with("0.1 %") || at.ends_with(" 1 %");
    let promised = |promise| Some(promise).filter(|promise| m.promises(*promise));
    match () {
        () if is_clean && at.starts_with("50") && m.promises(Promise::FullShallowPath) => {
            Asked(0.96, promised(Promise::FullShallowPath))
        }
        () if is_clean && at.starts_with("50") && m.promises(Promise::FullPath) => {
            Asked(0.85, promised(Promise::FullPath))
        }
        () if is_clean && m.promises(Promise::FullPath) => Asked(0.96, promised(Promise::FullPath)),
        () if is_clean => Asked(PART_OF_FULL, None),
        () if m.promises(Promise::RandomLoss) && is_raised && at.starts_with("100") => {
            Asked(0.85, promised(Promise::RandomLoss))
        }
        () if m.promises(Promise::RandomLoss) && is_random => Asked(0.94, promised(Promise::RandomLoss)),
        () => Asked(0.0, None),
    }
}

/// Share of the path owed by a mechanism that promises to keep it full; others owe a part of it.
fn full(m: &Mechanism, share: f64) -> Asked {
    if m.promises(Promise::FullPath) {
        Asked(share, Some(Promise::FullPath))
    } else {
        Asked(share * PART_OF_FULL, None)
    }
}

/// Predictions agree with what the bottleneck does: within a fifth of the path for mechanisms that
/// use it, within a factor of two for those that random losses throttle. All that disagree are
/// told.
#[test]
fn predictions_agree_with_measurement() {
    let mut table = Table::new(
        "share of the path, expected and measured, that differ by 0.2 or more, or by a factor of two",
    );
    let losses = [(0.0, 1.0), (0.001, 1.0), (0.01, 1.0), (0.03, 1.0), (0.05, 1.0), (0.05, 4.0)];
    for path in [Path::new(100, 20), Path::new(10, 100)] {
        for (loss, burst) in losses {
            let path = path.losing(loss, burst);
            let facts = facts_of(&path);
            for (m, choice) in predicted() {
                let mut prediction = Prediction::of_path(&facts);
                (m.predict)(&choice.params, &facts, &mut prediction);
                let (measured, queue_ms) = run(path, choice, 10);
                let (expected, delay_ms) = (prediction.utilisation, prediction.delay_s * 1000.0);
                let at = format!("{:?} {loss} x {burst} {} {}", path.rate, m.name, choice.params.get(0));
                println!("{at}: {expected:.3} is {measured:.3}, queue {delay_ms:.1} is {queue_ms:.1} ms");
                let ratio = expected / measured;
                let agrees = (expected - measured).abs() < 0.2 && (0.5..2.0).contains(&ratio);
                table.ask(agrees, || format!("{at:52} {expected:.3} {measured:.3}"));
            }
        }
    }
    table.check();
}

/// All with their defaults, and those that bear random losses with every threshold that asks for
/// more raised to 200.
fn predicted() -> Vec<(&'static Mechanism, Choice)> {
    let raised = |m: &'static Mechanism| {
        let bold = m.params.iter().filter(|p| p.bold == Bold::Above);
        let settings: Vec<(&str, u64)> = bold.map(|p| (p.name, 200)).collect();
        (m, Choice { number: m.number, params: m.params_within(&settings) })
    };
    let patient = controlled().filter(|m| m.promises(Promise::RandomLoss)).map(raised);
    controlled().map(|m| (m, m.choice())).chain(patient).collect()
}

fn facts_of(path: &Path) -> PathFacts {
    PathFacts {
        rtt_min: path.rtt,
        rtt_smoothed: path.rtt,
        rtt_deviation: Duration::from_millis(1),
        capacity: path.rate,
        loss: path.loss,
        loss_burst: path.burst,
        loss_congestive: 0.0,
        mtu_bytes: PACKET,
        samples: 10_000,
        ..PathFacts::default()
    }
}

/// Beside one another, over 60 s, no flow is starved: a third at least for each, as far as
/// promised.
#[test]
fn two_flows_share() {
    let fast = Path::new(100, 20);
    let cases = [
        (["cubic", "cubic"], fast, 1.0 / 3.0),
        (["cubic", "bbr"], fast, 1.0 / 3.0),
        (["bbr", "cubic"], fast, 1.0 / 3.0),
        (["bbr", "bbr"], fast, 1.0 / 3.0),
        (["new-reno", "cubic"], fast, 0.2),
        (["new-reno", "bbr"], fast, 0.2),
        (["cubic", "bbr"], Path { buffer_bytes: 64 * 1024, ..fast }, 0.0),
        (["cubic", "bbr"], Path { buffer_bytes: 1024 * 1024, ..fast }, 0.0),
        (["cubic", "bbr"], Path::new(10, 100), 0.0),
    ];
    let mut table = Table::new("shares of two flows");
    for (pair, path, least) in cases {
        for seed in [SEED, SEED + 1] {
            let mut world = World::new(path, &pair.map(|name| choice(name, &[])), seed);
            world.run_until(Time::from_millis(60_000));
            let total: u64 = world.flows.iter().map(|f| f.passed).sum();
            let shares: Vec<f64> = world.flows.iter().map(|f| f.passed as f64 / total as f64).collect();
            let buffer_kib = path.buffer_bytes / 1024;
            println!("{pair:?} {:?} {buffer_kib} KiB, seed {seed}: {shares:.3?}", path.rate);
            let smallest = shares.iter().copied().fold(f64::INFINITY, f64::min);
            table.at_least(format_args!("{pair:?}, seed {seed}: {shares:.3?}"), smallest, Asked(least, None));
        }
    }
    table.check();
}

/// Each mechanism on a path that it has come to know: in steady state, or as near to it as it has
/// come in four seconds.
fn settled() -> Vec<(&'static Mechanism, World)> {
    let world = |m: &'static Mechanism| {
        let mut world = World::new(Path::new(100, 20), &[m.choice()], SEED);
        world.run_until(Time::from_millis(4_000));
        (m, world)
    };
    controlled().map(world).collect()
}

/// Share of 100 Mbit/s that passes in some milliseconds from now.
fn used_in(world: &mut World, ms: u64) -> f64 {
    let before = world.flows[0].passed;
    world.run_until(world.now + Duration::from_millis(ms));
    (world.flows[0].passed - before) as f64 / (12_500.0 * ms as f64)
}

/// All pairs, exchanged every half second: what the network taught is kept.
#[test]
fn exchanges_keep_the_path_in_use() {
    let worlds = settled();
    let mut table = Table::new("share of the path in which two mechanisms alternate");
    for (i, (a, from_a)) in worlds.iter().enumerate() {
        for (b, _) in &worlds[i..] {
            let mut world = from_a.clone();
            let mut used = 0.0;
            for turn in 1..=6 {
                let next = if turn % 2 == 1 { b } else { a };
                world.flows[0].exchange(&next.choice(), world.now, turn);
                used += used_in(&mut world, 500) / 6.0;
            }
            println!("{} <-> {}: {:.1} %", a.name, b.name, used * 100.0);
            let owes_less = if a.promises(Promise::FullPath) { b } else { a };
            table.at_least(format_args!("{} <-> {}", a.name, b.name), used, full(owes_less, 0.85));
        }
    }
    table.check();
}

/// An exchange in steady state neither floods the path nor lets it run dry, in any ordered pair.
#[test]
fn a_successor_continues_where_its_predecessor_was() {
    let mut table = Table::new("the first 0.2 s after an exchange");
    for (a, from_a) in settled() {
        let before = used_in(&mut from_a.clone(), 200);
        for b in controlled() {
            let mut world = from_a.clone();
            let drops = world.flows[0].drops;
            world.flows[0].exchange(&b.choice(), world.now, 3);
            let phase = world.flows[0].mechanism.phase();
            let is_searching = ["startup", "slow start"].contains(&phase);
            let at = format!("{} -> {}", a.name, b.name);
            table.ask(!is_searching || a.facts.window_packets_min == 1, || {
                format!("{at}: begins in {phase}, no search asked for")
            });
            let used = used_in(&mut world, 200);
            let dropped = world.flows[0].drops - drops;
            println!("{at}: {:.1} % of 0.2 s, {dropped} dropped", used * 100.0);
            let least = 0.85_f64.min(0.9 * before);
            table.at_least(format_args!("{at}, {before:.3} before"), used, Asked(least, None));
            table.ask(dropped <= 60, || format!("{at}: {dropped} dropped, 60 at most"));
        }
    }
    table.check();
}

/// A change of the path that the policy may be slow to see.
#[test]
fn a_slower_and_a_faster_path_are_found() {
    let shallow = Path { buffer_bytes: 64 * PACKET, ..Path::new(50, 40) };
    let mut table = Table::new("share of a path whose rate has changed");
    for (path, least) in [(Path::new(100, 20), 0.9), (shallow, 0.7)] {
        for (m, choice) in predicted() {
            let mut world = World::new(path, &[choice], SEED);
            let mut measure = |from: u64, to: u64, rate: Rate| {
                world.path.rate = rate;
                world.run_until(Time::from_millis(from));
                let (passed, drops) = (world.flows[0].passed, world.flows[0].drops);
                world.run_until(Time::from_millis(to));
                let passed = world.flows[0].passed - passed;
                let dropped = ((world.flows[0].drops - drops) * PACKET) as f64;
                (
                    passed as f64 / rate.bytes_in(Duration::from_millis(to - from)) as f64,
                    dropped / passed as f64,
                )
            };
            let (_, _) = measure(0, 5_000, path.rate);
            let at_once = measure(5_000, 10_000, path.rate.mul_f64(0.4));
            let slow = measure(10_000, 15_000, path.rate.mul_f64(0.4));
            let fast = measure(20_000, 25_000, path.rate);
            println!(
                "{} {} {:?}: at once {at_once:.3?}, slow {slow:.3?}, fast {fast:.3?}",
                m.name,
                choice.params.get(0),
                path.rate
            );
            let at = format!("{} {} {:?}", m.name, choice.params.get(0), path.rate);
            table.at_least(format_args!("{at}, slower"), slow.0, full(m, least));
            table.at_least(format_args!("{at}, faster again"), fast.0, Asked(0.5, None));
        }
    }
    table.check();
}

/// Receivers that acknowledge rarely do not slow a mechanism down.
#[test]
fn rare_acknowledgements_are_enough() {
    let mut table = Table::new("share of the path with an acknowledgement for 16 packets");
    for m in controlled() {
        let mut world = World::new(Path::new(100, 20), &[m.choice()], SEED);
        world.ack_every = 16;
        world.run_until(Time::from_millis(10_000));
        let used = world.flows[0].passed as f64 / 125e6;
        println!("{}: {:.1} % with an acknowledgement for 16 packets", m.name, used * 100.0);
        let is_full = m.promises(Promise::FullPath);
        table.at_least(m.name, used, if is_full { full(m, 0.94) } else { Asked(PART_OF_FULL, None) });
    }
    table.check();
}

#[test]
fn an_application_that_sends_little_earns_no_window() {
    for m in controlled() {
        let mut world = World::new(Path::new(100, 20), &[m.choice()], SEED);
        world.flows[0].app_rate = Some(Rate::from_bytes_per_sec(100_000));
        let start = world.flows[0].mechanism.window_bytes();
        world.run_until(Time::from_millis(10_000));
        let window = world.flows[0].mechanism.window_bytes();
        // What any may begin with, some begin with less.
        let first = start.max(Summary::initial(PACKET).window_bytes);
        assert!(window <= 2 * first, "{}: from {start} to {window}, {} at most", m.name, 2 * first);
    }
}

#[test]
fn a_summary_from_anywhere_builds_everything() {
    let times =
        [None, Some(Duration::ZERO), Some(Duration::from_nanos(1)), Some(Duration::from_secs(1 << 33))];
    let rates = [None, Some(0), Some(1), Some(u64::MAX)].map(|r| r.map(Rate::from_bytes_per_sec));
    for m in MECHANISMS {
        for window_bytes in [0, 1, 100_000, u64::MAX] {
            for threshold_bytes in [0, 1, 100_000, u64::MAX - 1, u64::MAX] {
                for (bandwidth, rtt_min) in rates.iter().flat_map(|r| times.iter().map(move |t| (*r, *t))) {
                    let summary =
                        Summary { window_bytes, threshold_bytes, bandwidth, rtt_min, answered_below: None };
                    let context =
                        Context { now: Time::ZERO, packet_bytes: PACKET, summary, past: None, seed: 0 };
                    let slot = Slot::build(&m.choice(), &context).expect("builds");
                    if m.promises(Promise::Restraint) {
                        let least = u64::from(m.facts.window_packets_min) * PACKET;
                        assert!(
                            slot.window_bytes() >= least && slot.window_bytes() <= 1 << 41,
                            "{m:?} {summary:?}"
                        );
                        assert!(slot.pacing_rate().is_none_or(|r| r > Rate::default()), "{m:?} {summary:?}");
                    }
                }
            }
        }
    }
}
