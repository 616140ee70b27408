//! At most once, and none lost without an error: calls under loss, duplication, reordering and
//! restarts of the server.
//!
//! `UTS_CALLS=n` sets how many calls there are (20,000 unless set), `UTS_FIRST_SEED` the first
//! seed. A seed has 10,000 of them.

use super::super::{CallErrorKind, CallOptions, Caller, Failure, Methods};
use super::{Server, any};
use crate::Identity;
use crate::simulation::Network;
use crate::simulation::testing::begin;
use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Calls of a seed.
const CALLS: u64 = 10_000;
/// Calls that are under way at once.
const WORKERS: u64 = 48;
/// Connections that they share.
const CALLERS: usize = 3;

/// Times that each call has run.
type Runs = Arc<Mutex<BTreeMap<u64, u32>>>;

/// Ends of calls, counted.
#[derive(Debug, Default)]
struct Tally {
    answered: u64,
    failed: u64,
    late: u64,
    given_up: u64,
    lost: u64,
    /// Ended with an error, and had not run.
    not_run: u64,
    /// Ran more than once, as they may.
    twice: u64,
    restarts: u64,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn methods(runs: Runs) -> Methods {
    Methods::new().on_value("run", move |(id, millis): (u64, u64)| {
        *runs.lock().expect("unharmed").entry(id).or_default() += 1;
        async move {
            sleep(Duration::from_millis(millis)).await;
            if id.is_multiple_of(53) { Err(Failure::new(7, "as asked")) } else { Ok(id * 3 + 1) }
        }
    })
}

/// The server dies again and again, and comes back a while later.
async fn restart(
    mut rng: ChaCha8Rng,
    network: Network,
    runs: Runs,
    identity: Identity,
    tally: Arc<Mutex<Tally>>,
) {
    loop {
        let server = Server::start(identity.clone(), methods(runs.clone()));
        sleep(Duration::from_millis(rng.random_range(100..2000))).await;
        server.kill(&network);
        tally.lock().expect("unharmed").restarts += 1;
        sleep(Duration::from_millis(rng.random_range(1..400))).await;
    }
}

/// Makes one call, and holds its end against how often it has run.
async fn one(id: u64, mut rng: ChaCha8Rng, caller: Caller, runs: Runs, tally: Arc<Mutex<Tally>>) {
    let is_idempotent = id.is_multiple_of(3);
    let mut options = CallOptions { is_idempotent, ..any() };
    if id.is_multiple_of(7) {
        options.deadline = Some(Duration::from_millis(rng.random_range(10..200)));
    }
    let request = (id, rng.random_range(0..40_u64));
    let call = caller.call_value::<_, u64>("run", &request, &options);
    // A call ends by itself: well within the time-outs of connections.
    let patience = if id.is_multiple_of(11) { rng.random_range(1..60) } else { 300_000 };
    let outcome = timeout(Duration::from_millis(patience), call).await;
    let count = runs.lock().expect("unharmed").get(&id).copied().unwrap_or(0);
    assert!(is_idempotent || count <= 1, "call {id} has run {count} times: {outcome:?}");
    let mut tally = tally.lock().expect("unharmed");
    tally.twice += u64::from(count > 1);
    match outcome {
        Err(_) => {
            assert!(id.is_multiple_of(11), "call {id} is lost without an error");
            tally.given_up += 1;
        }
        Ok(Ok(answer)) => {
            assert!(answer == id * 3 + 1 && count >= 1, "call {id}: {answer}, which has run {count} times");
            tally.answered += 1;
        }
        Ok(Err(error)) => {
            assert!(error.may_have_run() || count == 0, "call {id} has run {count} times: {error}");
            tally.not_run += u64::from(!error.may_have_run());
            match error.kind() {
                CallErrorKind::Failed { code: 7, .. } => {
                    assert!(
                        id.is_multiple_of(53) && count >= 1,
                        "call {id}, which has run {count} times: {error}"
                    );
                    tally.failed += 1;
                }
                CallErrorKind::DeadlinePassed => {
                    assert!(options.deadline.is_some(), "call {id}: {error}");
                    tally.late += 1;
                }
                CallErrorKind::Lost(_) | CallErrorKind::NotConnected(_) => tally.lost += 1,
                _ => panic!("call {id}: {error}"),
            }
        }
    }
}

async fn seed(seed: u64) -> Tally {
    let path = "delay=10ms jitter=12ms,uniform,reorder loss=0.03 duplicate=0.03";
    let network = begin(path, seed);
    let (runs, tally) = (Runs::default(), Arc::new(Mutex::new(Tally::default())));
    let identity = Identity::generate().expect("a key");
    let rng = move |stream| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        rng
    };
    let server = restart(rng(0), Network::clone(&network), runs.clone(), identity.clone(), tally.clone());
    let server = tokio::spawn(server);
    let options = crate::ConnectOptions::pinned(identity.fingerprint());
    let callers: Vec<Caller> = (0..CALLERS).map(|_| Caller::to("10.0.0.2:4433", options.clone())).collect();
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let caller = callers[worker as usize % CALLERS].clone();
        let (runs, tally) = (runs.clone(), tally.clone());
        workers.spawn(async move {
            for id in (worker..CALLS).step_by(WORKERS as usize) {
                one(id + 1, rng(id + 1), caller.clone(), runs.clone(), tally.clone()).await;
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    server.abort();
    let _ = server.await;
    // Nothing that comes late runs anything again.
    sleep(Duration::from_secs(60)).await;
    for (id, count) in runs.lock().expect("unharmed").iter() {
        assert!(id.is_multiple_of(3) || *count <= 1, "seed {seed}: call {id} has run {count} times");
    }
    core::mem::take(&mut *tally.lock().expect("unharmed"))
}

#[test]
fn calls_run_at_most_once_and_none_is_lost_without_an_error() {
    let (first, calls) = (number("UTS_FIRST_SEED").unwrap_or(1), number("UTS_CALLS").unwrap_or(20_000));
    let mut all = Tally::default();
    for number in first..first + calls.div_ceil(CALLS) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().expect("a runtime");
        let tally = runtime.block_on(seed(number));
        println!("seed {number}: {tally:?}");
        all.answered += tally.answered;
        all.failed += tally.failed;
        all.late += tally.late;
        all.given_up += tally.given_up;
        all.lost += tally.lost;
        all.not_run += tally.not_run;
        all.twice += tally.twice;
        all.restarts += tally.restarts;
    }
    println!("{calls} calls: {all:?}");
    // All that is to be proved has happened.
    for count in [all.failed, all.late, all.given_up, all.lost, all.not_run, all.twice, all.restarts] {
        assert!(count > 0, "{all:?}");
    }
    assert!(all.answered > calls / 2, "{all:?}");
}
