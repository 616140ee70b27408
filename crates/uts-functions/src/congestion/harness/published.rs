//! Behaviour that papers and drafts state of a mechanism, in the small bottleneck.

use super::bottleneck::{PACKET, Path, World, choice};
use super::table::{Asked, Table};
use super::{SEED, controlled, run};
use crate::mechanism::Promise;
use crate::time::Time;

/// Jain, Chiu and Hawe, "A Quantitative Measure of Fairness and Discrimination" (1984): 1 where all
/// have the same, `1/n` where one has everything.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

/// Bytes that each of some flows has passed between two instants, in milliseconds.
fn passed(world: &mut World, from_ms: u64, to_ms: u64) -> Vec<f64> {
    world.run_until(Time::from_millis(from_ms));
    let before: Vec<u64> = world.flows.iter().map(|f| f.passed).collect();
    world.run_until(Time::from_millis(to_ms));
    world.flows.iter().zip(before).map(|(f, before)| (f.passed - before) as f64).collect()
}

#[test]
fn four_equal_flows_share_alike() {
    // A buffer of a bandwidth-delay product and a half.
    let path = Path { buffer_bytes: 100 * PACKET, ..Path::new(20, 30) };
    let mut table = Table::new("Jain's index of four flows");
    for m in controlled() {
        let mut world = World::new(path, &[m.choice(); 4], SEED);
        let shares = passed(&mut world, 10_000, 70_000);
        let index = jain(&shares);
        println!("{}: Jain's index {index:.3} of {shares:.0?}", m.name);
        table.at_least(format_args!("{} {shares:.0?}", m.name), index, Asked(0.95, None));
    }
    table.check();
}

/// Beside a sender that fills the queue, LEDBAT++ takes what that one leaves, and all of the path
/// when it is alone.
#[test]
fn ledbat_plus_plus_yields_to_reno() {
    let path = Path::new(20, 30);
    let pair = [choice("ledbat-plus-plus", &[]), choice("reno", &[])];
    let shares = passed(&mut World::new(path, &pair, SEED), 10_000, 40_000);
    println!("beside reno: {shares:.0?}");
    assert!(shares[0] < 0.15 * shares[1], "beside reno {shares:.0?}, 0.15 of it at most");
    let (alone, queue_ms) = run(path, pair[0], 20);
    assert!(alone > 0.8, "alone {alone:.3} of the path, 0.8 at least");
    assert!(queue_ms < 60.0, "a queue of {queue_ms:.1} ms, its target is 60");
}

/// Between `alpha` and `beta` packets of each flow wait.
#[test]
fn vegas_keeps_the_queue_that_it_is_told() {
    let path = Path::new(20, 30);
    for (alpha, beta) in [(2, 4), (10, 12)] {
        let told = choice("vegas", &[("alpha", alpha), ("beta", beta)]);
        let (used, queue_ms) = run(path, told, 20);
        let packets = queue_ms / path.rate.time_for(PACKET).as_secs_f64() / 1000.0;
        println!("{alpha} to {beta}: {packets:.1} packets, {:.1} % used", used * 100.0);
        let asked = alpha as f64 - 2.0..beta as f64 + 3.0;
        assert!(asked.contains(&packets), "{packets:.1} packets wait, {asked:?} asked");
    }
}

/// Whoever promises a short queue keeps it below that of a sender that fills the buffer.
#[test]
fn short_queues_are_short() {
    let (_, filled_ms) = run(Path::new(20, 30), choice("new-reno", &[]), 20);
    let mut table = Table::new("queues, promised by ShortQueue");
    for m in controlled().filter(|m| m.promises(Promise::ShortQueue)) {
        let (_, queue_ms) = run(Path::new(20, 30), m.choice(), 20);
        let most_ms = filled_ms / 3.0;
        table.ask(queue_ms < most_ms, || {
            format!("{}: {queue_ms:.1} ms, {most_ms:.1} at most: a third of new-reno's", m.name)
        });
    }
    table.check();
}
