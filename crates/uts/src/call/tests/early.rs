//! Calls that travel with the first flight of a connection.

use super::PLACE;
use crate::call::{CallError, CallErrorKind, CallOptions, Caller, Failure, Methods};
use crate::simulation::testing::{FAIR, FAIR_DELAY, begin};
use crate::{ConnectOptions, EARLY_BYTES_MAX, Identity, Listener, ServerOptions};
use bytes::Bytes;
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::time::{Instant, sleep};

/// Ways in which a server has its calls run.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// As tasks: [`Methods::serve_early`] beside [`Methods::serve`].
    Tasks,
    /// In the one task that waits, as threads serve that wait: `blocking::call`.
    #[cfg(unix)]
    Here,
}

const WAYS: &[Way] = &[
    Way::Tasks,
    #[cfg(unix)]
    Way::Here,
];

/// A server of methods that may be asked for early: it adds one to its count, and gives back what
/// it is asked. Each connection ends a second after its last work.
struct Server {
    identity: Identity,
    runs: Arc<AtomicU64>,
}

impl Server {
    fn start(way: Way, identity: Identity) -> Self {
        let runs = Arc::<AtomicU64>::default();
        let (echoed, slept, plain) = (runs.clone(), runs.clone(), runs.clone());
        let run = |runs: &AtomicU64| runs.fetch_add(1, Relaxed);
        let methods = Methods::new()
            .on_early("echo", move |message| {
                run(&echoed);
                async move { Ok(message) }
            })
            .on_early("fail", |_| async { Err(Failure::new(7, "it does")) })
            .on_early("slow", move |message| {
                run(&slept);
                async move {
                    sleep(Duration::from_millis(200)).await;
                    Ok(message)
                }
            })
            .on_message("by flow", move |message| {
                run(&plain);
                async move { Ok(message) }
            });
        let mut options = ServerOptions::new(identity.clone()).early_requests();
        options.connection.idle_timeout = Duration::from_secs(1);
        let listener = Arc::new(Listener::bind(SocketAddr::from(PLACE), options).expect("bound"));
        match way {
            #[cfg(unix)]
            Way::Here => drop(tokio::spawn(async move { methods.serve_clients_here(&listener).await })),
            Way::Tasks => {
                let (early, taking) = (methods.clone(), listener.clone());
                tokio::spawn(async move { early.serve_early(&taking).await });
                tokio::spawn(async move {
                    while let Some(connection) = listener.accept().await {
                        tokio::spawn(methods.clone().serve(connection));
                    }
                });
            }
        }
        Server { identity, runs }
    }

    fn caller(&self) -> Caller {
        let options = ConnectOptions::pinned(self.identity.fingerprint());
        Caller::to(SocketAddr::from(PLACE).to_string(), options)
    }
}

/// A call by a caller that has no connection, and how long it took.
async fn call(
    caller: &Caller,
    method: &str,
    message: &[u8],
    options: &CallOptions,
) -> (Result<Bytes, CallError>, Duration) {
    sleep(Duration::from_secs(3)).await;
    let begun = Instant::now();
    let answer = caller.call(method, Bytes::copy_from_slice(message), options).await;
    (answer, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_call_may_be_answered_after_one_round_trip() {
    for way in WAYS {
        one_round_trip(*way).await;
    }
}

async fn one_round_trip(way: Way) {
    let _network = begin(FAIR, 1);
    let server = Server::start(way, Identity::generate().expect("a key"));
    let (caller, early) = (server.caller(), CallOptions::default().early());
    let round_trip = 2 * FAIR_DELAY;
    let slack = Duration::from_millis(5);
    let mut took = Vec::new();
    for n in 0..4_u8 {
        // The first has no ticket.
        let (answer, time) = call(&caller, "echo", &[n], &early).await;
        assert_eq!(answer.expect("answered"), [n].as_slice());
        took.push(time);
    }
    assert!(took[0] >= 2 * round_trip && took[0] < 2 * round_trip + slack, "{way:?}: {took:?}");
    assert!(
        took[1..].iter().all(|time| *time >= round_trip && *time < round_trip + slack),
        "{way:?}: {took:?}"
    );
    assert_eq!(server.runs.load(Relaxed), 4);
    // One that is not marked waits for its connection.
    let (answer, time) = call(&caller, "echo", b"x", &CallOptions::default()).await;
    assert!(answer.is_ok() && time >= 2 * round_trip, "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_early_goes_by_a_flow() {
    for way in WAYS {
        by_a_flow(*way).await;
    }
}

async fn by_a_flow(way: Way) {
    let _network = begin(FAIR, 2);
    let server = Server::start(way, Identity::generate().expect("a key"));
    let (caller, early) = (server.caller(), CallOptions::default().early());
    call(&caller, "echo", b"", &early).await.0.expect("answered");
    for bytes in [0, EARLY_BYTES_MAX - 20, EARLY_BYTES_MAX, 100_000] {
        let (answer, _) = call(&caller, "echo", &vec![1; bytes], &early).await;
        assert_eq!(answer.expect("answered").len(), bytes);
    }
    // A method that is not for early requests.
    let before = server.runs.load(Relaxed);
    assert_eq!(call(&caller, "by flow", b"x", &early).await.0.expect("answered"), b"x".as_slice());
    assert_eq!(server.runs.load(Relaxed), before + 1);
    // The answer is too late for the handshake: it runs once more.
    assert_eq!(call(&caller, "slow", b"x", &early).await.0.expect("answered"), b"x".as_slice());
    assert_eq!(server.runs.load(Relaxed), before + 3);
    // A failure is an answer.
    let (failed, time) = call(&caller, "fail", b"x", &early).await;
    let failed = failed.expect_err("it fails");
    assert!(matches!(failed.kind(), CallErrorKind::Failed { code: 7, .. }), "{failed}");
    assert!(time < 3 * FAIR_DELAY, "{time:?}");
    let (refused, _) = call(&caller, "none", b"x", &early).await;
    let refused = refused.expect_err("it is refused");
    assert!(matches!(refused.kind(), CallErrorKind::Refused { .. }), "{refused}");
    let within = CallOptions { deadline: Some(Duration::from_millis(100)), ..early };
    let (late, time) = call(&caller, "slow", b"x", &within).await;
    let late = late.expect_err("it is late");
    assert!(matches!(late.kind(), CallErrorKind::DeadlinePassed), "{late}");
    assert!(time < Duration::from_millis(130), "{time:?}");
}

/// Over bad paths each call has its answer. It runs early once at the most.
#[tokio::test(start_paused = true)]
async fn over_bad_paths_each_call_is_answered() {
    let mut early_ones = 0;
    for seed in 0..40 {
        let (jitter, loss) = (seed % 5 * 4, f64::from(seed as u32 % 4) / 20.0);
        let path = format!("{FAIR} jitter={jitter}ms,uniform,reorder loss={loss} duplicate=0.2");
        let _network = begin(&path, seed);
        let server = Server::start(WAYS[seed as usize % WAYS.len()], Identity::generate().expect("a key"));
        let (caller, early) = (server.caller(), CallOptions::default().early());
        for n in 0..5_u8 {
            let before = server.runs.load(Relaxed);
            let (answer, time) = call(&caller, "echo", &[n; 100], &early).await;
            assert_eq!(answer.expect("answered"), [n; 100].as_slice(), "seed {seed}");
            let runs = server.runs.load(Relaxed) - before;
            assert!((1..=2).contains(&runs), "seed {seed}: {runs} runs");
            early_ones += u32::from(n > 0 && time < 4 * FAIR_DELAY);
        }
    }
    assert!(early_ones > 40, "{early_ones} of 160");
}
