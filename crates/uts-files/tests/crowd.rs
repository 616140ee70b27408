//! Many clients that take what they asked for slowly, in virtual time: each flow has its turn,
//! whatever the others of its connection and of the server leave unread.
//!
//! `UTS_SEEDS=n` sets how many crowds are drawn (12 unless set), `UTS_SEED_FIRST` the first seed.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use uts::simulation::Network;
use uts::{
    ConnectOptions, Connection, FlowOptions, Identity, Listener, RecvFlow, SendFlow, ServerOptions, connect,
};
use uts_files::message::{MAGIC, Request, VERSION, write_frame};
use uts_files::{Client, NoProgress, ServeOptions, Service};
use uts_ledger::{Budget, LEAST_RATE, Ledger};

const PLACE: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);
const FILE_BYTES: usize = 8 << 20;

/// Virtual time in which something comes of a flow. All of a crowd that has to take turns at few
/// places is done sooner.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[derive(Clone, Debug)]
struct Crowd {
    path: String,
    clients: usize,
    flows: usize,
    credit_bytes: u64,
    /// Memory of all connections of the server.
    memory_bytes: usize,
    /// Budget of the service.
    budget: Budget,
    piece_bytes: usize,
    pieces: usize,
    pause: Duration,
}

impl Crowd {
    fn drawn(rng: &mut ChaCha8Rng) -> Crowd {
        let rate = [10, 100, 1000][rng.random_range(0..3)];
        let delay = [1, 20, 300][rng.random_range(0..3)];
        let loss = ["", " loss=1%", " loss=ge:0.05,4"][rng.random_range(0..3)];
        Crowd {
            path: format!("rate={rate}mbit delay={delay}ms buffer=300p{loss}"),
            clients: [5, 40, 120][rng.random_range(0..3)],
            flows: rng.random_range(1..9),
            credit_bytes: 1 << rng.random_range(13..21),
            memory_bytes: 1 << rng.random_range(16..27),
            budget: Budget {
                memory_bytes: 1 << rng.random_range(20..29),
                threads: rng.random_range(1..80),
                files: rng.random_range(2..1000),
                sockets: 10,
            },
            piece_bytes: 1 << rng.random_range(8..15),
            pieces: rng.random_range(5..60),
            pause: Duration::from_millis([1, 20, 100, 700][rng.random_range(0..4)]),
        }
    }

    /// Its clients take less than what a place is left for, if others wait.
    fn is_idle(&self) -> bool {
        (self.piece_bytes as u128) * 1000 < u128::from(LEAST_RATE) * self.pause.as_millis()
    }
}

async fn ask(connection: &Connection) -> (SendFlow, RecvFlow) {
    let (mut send, recv) = connection.open_flow(FlowOptions::default()).await.expect("a flow").split();
    let mut bytes = [&MAGIC[..], &[VERSION]].concat();
    write_frame(&mut bytes, &Request::Get { path: "big".into(), held: None }).await.expect("written");
    send.write_all(&bytes).await.expect("asked");
    (send, recv)
}

/// The longest wait for a piece, and when it began.
async fn read(crowd: &Crowd, recv: &mut RecvFlow) -> (Duration, Instant) {
    let mut piece = vec![0; crowd.piece_bytes];
    let mut longest = (Duration::ZERO, Instant::now());
    for _ in 0..crowd.pieces {
        let begun = Instant::now();
        let read = timeout(PATIENCE, recv.read(&mut piece)).await;
        match read.unwrap_or_else(|_| panic!("{crowd:?}: nothing comes for {PATIENCE:?}")) {
            Ok(bytes) => assert!(bytes > 0, "{crowd:?}: it ends"),
            // Who takes next to nothing while others wait loses its place.
            Err(_) if crowd.is_idle() => break,
            Err(error) => panic!("{crowd:?}: {error}"),
        }
        longest = longest.max((begun.elapsed(), begun));
        sleep(crowd.pause).await;
    }
    longest
}

async fn gather(seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let crowd = Crowd::drawn(&mut rng);
    let _network = Network::begin(&crowd.path, seed).expect("a network");
    let dir = tempfile::tempdir().expect("a directory");
    let mut content = vec![0; FILE_BYTES];
    rng.fill(&mut content[..]);
    fs::write(dir.path().join("big"), content).expect("written");
    let identity = Identity::generate().expect("a key");
    let pinned = ConnectOptions::pinned(identity.fingerprint());
    let mut options = ServerOptions::new(identity);
    options.memory_bytes_max = crowd.memory_bytes;
    options.connections_max = 10_000;
    options.connection.idle_timeout = 2 * PATIENCE;
    options.connections_per_address_max = usize::MAX;
    let listener = Listener::bind(SocketAddr::from(PLACE), options).expect("bound");
    let ledger = Ledger::of_server(&crowd.budget);
    let service = Service::open(dir.path(), ServeOptions::default()).expect("served").charged_to(&ledger);
    let serving = tokio::spawn(async move {
        while let Some(connection) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move {
                let address = connection.remote_addr().map_or_else(String::new, |at| at.ip().to_string());
                let client = Client { key: None, address };
                let _ = service.serve(&connection, client, Arc::new(NoProgress)).await;
            });
        }
    });
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..crowd.clients {
        let mut options = pinned.clone();
        options.connection.credit_bytes_initial = crowd.credit_bytes;
        options.connection.credit_bytes_max = crowd.credit_bytes;
        options.connection.idle_timeout = 2 * PATIENCE;
        let crowd = crowd.clone();
        clients.spawn(async move {
            let connection = connect(&SocketAddr::from(PLACE).to_string(), options).await.expect("connected");
            let mut reads = JoinSet::new();
            for _ in 0..crowd.flows {
                let (send, mut recv) = ask(&connection).await;
                let crowd = crowd.clone();
                reads.spawn(async move {
                    let longest = read(&crowd, &mut recv).await;
                    drop((send, recv));
                    longest
                });
            }
            let longest = reads.join_all().await.into_iter().max().expect("a flow");
            drop(connection);
            longest
        });
    }
    let longest = clients.join_all().await.into_iter().max().expect("a client");
    serving.abort();
    println!(
        "seed {seed}: longest {:.2} s at {:.2} of {:.2} s: {crowd:?}",
        longest.0.as_secs_f64(),
        longest.1.duration_since(begun).as_secs_f64(),
        begun.elapsed().as_secs_f64()
    );
}

#[test]
fn each_flow_of_a_slow_crowd_has_its_turn() {
    let (first, seeds) = (number("UTS_SEED_FIRST", 0), number("UTS_SEEDS", 12));
    for seed in first..first + seeds {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(gather(seed));
    }
}
