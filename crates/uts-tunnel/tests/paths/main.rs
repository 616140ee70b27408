//! Tunnels and kept streams in virtual time, from a seed: programs of two hosts, their sockets in
//! memory, over paths that lose, reorder and go silent.

mod hostile;
mod kept;
mod programs;
mod sockets;
mod world;

use kept::Trouble;
use programs::{By, Plan, Service};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use world::{World, run};

const CLEAN: &str = "rate=50mbit delay=10ms";
const SATELLITE: &str = "rate=20mbit delay=300ms loss=2% buffer=300p";
const DISORDER: &str = "rate=20mbit delay=30ms jitter=8ms,uniform,reorder duplicate=0.05 reorder=0.05,20ms";

/// Conversations of a run, at once.
const TALKS: u32 = 12;

/// Virtual time in which all is said.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn seeds(otherwise: u64) -> std::ops::Range<u64> {
    let first = number("UTS_SEED_FIRST", 0);
    first..first + number("UTS_SEEDS", otherwise)
}

fn plans(seed: u64) -> Vec<Plan> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..TALKS).map(|number| Plan::drawn(number, &mut rng)).collect()
}

/// Has all conversations at once, until both sides of each are done.
async fn talk(world: &World, plans: &[Plan]) {
    let (service, mut done) = Service::new(plans);
    let mut serving = JoinSet::new();
    for machine in [&world.near, &world.far] {
        serving.spawn(service.clone().serve(Service::listen(machine).await));
    }
    for plan in plans.iter().copied() {
        let machine = if plan.by == By::Remote { &world.far } else { &world.near };
        let (service, machine) = (service.clone(), machine.clone());
        serving.spawn(async move { service.done("program", plan.number, plan.begin(&machine).await) });
    }
    let all = async {
        let mut left = 2 * plans.len();
        while left > 0 {
            tokio::select! {
                biased;
                Some(line) = done.recv() => {
                    left -= 1;
                    world.log.note(line);
                }
                Some(ended) = serving.join_next() => ended.expect("no panic"),
            }
        }
    };
    timeout(PATIENCE, all).await.expect("it hangs");
    serving.shutdown().await;
}

/// Runs something twice, and holds both records against each other.
fn assert_alike(seed: u64, path: &str, run: impl Fn(&str, u64) -> Vec<String>) {
    let (first, second) = (run(path, seed), run(path, seed));
    let differs = first.iter().zip(&second).position(|(a, b)| a != b);
    let differs = differs.map(|at| (&first[at], &second[at]));
    assert!(first == second, "seed {seed}: {path}: {differs:?}");
}

fn through_a_tunnel(path: &str, seed: u64) -> Vec<String> {
    run(path, seed, async |world| {
        let tunnel = world.tunnel().await;
        talk(&world, &plans(seed)).await;
        tunnel.close().await;
        world.end().await
    })
}

#[test]
fn streams_are_whole_over_every_path() {
    for seed in seeds(20) {
        for path in [CLEAN, SATELLITE, DISORDER] {
            through_a_tunnel(path, seed);
        }
    }
}

/// A conversation that begins early and takes long. A client that is silent for 20 s loses its port
/// at the server, but nothing that has come by it.
fn long(plan: Plan, rng: &mut ChaCha8Rng) -> Plan {
    let after = Duration::from_millis(rng.random_range(0..1_000));
    Plan { after, pause: Duration::from_millis(rng.random_range(500..6_000)), ..plan }
}

#[test]
fn a_tunnel_goes_on_after_hours_of_silence_and_from_another_address() {
    for seed in seeds(20) {
        run([CLEAN, SATELLITE, DISORDER][seed as usize % 3], seed, async |world| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let tunnel = world.tunnel().await;
            let plans: Vec<Plan> = plans(seed).into_iter().map(|plan| long(plan, &mut rng)).collect();
            let troubles = async {
                for round in 0..2 {
                    // All have begun by then.
                    sleep(Duration::from_secs(8)).await;
                    Trouble::of_the_path(&mut rng).happen(&world, round).await;
                }
            };
            tokio::join!(talk(&world, &plans), troubles);
            tunnel.close().await;
            world.end().await
        });
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in seeds(4) {
        for path in [CLEAN, SATELLITE, DISORDER] {
            assert_alike(seed, path, through_a_tunnel);
        }
    }
}
