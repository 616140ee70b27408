//! Copies both ways by many clients at once, in virtual time, where the server and the clients may
//! hold next to nothing: each is done in the end, and right.
//!
//! `UTS_SEEDS=n` sets how many crowds are drawn (8 unless set), `UTS_SEED_FIRST` the first seed.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use uts::simulation::Network;
use uts::{ConnectOptions, Identity, Listener, ServerOptions, connect};
use uts_files::{Client, CopyOptions, NoProgress, ServeOptions, ServerPath, Service, get, put};
use uts_ledger::{Budget, Ledger};

const PLACE: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);

/// Virtual time in which all copies are done.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Files of a tree, and their sizes in bytes.
const FILES: [(&str, usize); 6] = [
    ("empty", 0),
    ("small", 700),
    ("smaller", 90),
    ("deep/middle", 40_000),
    ("deep/large", 900_000),
    ("deep/packs", 500_000),
];

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn budget(rng: &mut ChaCha8Rng) -> Budget {
    Budget {
        memory_bytes: 1 << rng.random_range(19..26),
        threads: rng.random_range(1..40),
        files: rng.random_range(2..100),
        sockets: 10,
    }
}

fn fill(tree: &Path, rng: &mut ChaCha8Rng) {
    fs::create_dir_all(tree.join("deep")).expect("a directory");
    for (name, bytes) in FILES {
        let mut data = vec![b'a'; bytes];
        if !name.ends_with("packs") {
            rng.fill(&mut data[..]);
        }
        fs::write(tree.join(name), data).expect("written");
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    FILES.iter().all(|(name, _)| fs::read(one.join(name)).ok() == fs::read(other.join(name)).ok())
}

/// One client: what it has goes to the server under a name of its own, and comes back. A copy whose
/// place another has got begins again.
async fn there_and_back(options: ConnectOptions, copy: CopyOptions, at: PathBuf, name: String) {
    let connection = connect(&SocketAddr::from(PLACE).to_string(), options).await.expect("connected");
    let connection = Arc::new(connection);
    let path = |name: &str| ServerPath::from_user(name.as_bytes()).expect("a path");
    let (tree, root, back) = ([at.join(&name)], path(""), at.join("back"));
    while !put(connection.clone(), &tree, &root, &copy).await.is_ok_and(|report| report.is_complete()) {
        sleep(Duration::from_secs(1)).await;
    }
    fs::create_dir(&back).expect("made");
    let remote = [path(&name)];
    while !get(connection.clone(), &remote, &back, &copy).await.is_ok_and(|report| report.is_complete()) {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(is_same(&tree[0], &back.join(&name)), "{name}: another tree came back");
}

async fn gather(seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rate = [10, 100][rng.random_range(0..2)];
    let delay = [1, 20, 300][rng.random_range(0..3)];
    let loss = ["", " loss=1%"][rng.random_range(0..2)];
    let path = format!("rate={rate}mbit delay={delay}ms buffer=300p{loss}");
    let _network = Network::begin(&path, seed).expect("a network");
    let dir = tempfile::tempdir().expect("a directory");
    let served = dir.path().join("served");
    fs::create_dir(&served).expect("made");
    let identity = Identity::generate().expect("a key");
    let mut pinned = ConnectOptions::pinned(identity.fingerprint());
    pinned.connection.idle_timeout = PATIENCE;
    let mut options = ServerOptions::new(identity);
    options.connection.idle_timeout = PATIENCE;
    options.connections_per_address_max = usize::MAX;
    let listener = Listener::bind(SocketAddr::from(PLACE), options).expect("bound");
    let of_server = budget(&mut rng);
    let service = Service::open(&served, ServeOptions::default()).expect("served");
    let ledger = Ledger::of_server(&of_server);
    let service = service.charged_to(&ledger);
    tokio::spawn(async move {
        while let Some(connection) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move {
                let address = connection.remote_addr().map_or_else(String::new, |at| at.ip().to_string());
                let client = Client { key: None, address };
                let _ = service.serve(&connection, client, Arc::new(NoProgress)).await;
            });
        }
    });
    let (clients, of_client) = ([1, 4, 16][rng.random_range(0..3)], budget(&mut rng));
    let (compress, flows) = (rng.random_bool(0.5), rng.random_range(1..9));
    let crowd = format!(
        "seed {seed}: {path}, {clients} clients, {flows} flows, compress {compress}, {of_server:?}, {of_client:?}"
    );
    let begun = Instant::now();
    let mut copies = JoinSet::new();
    for client in 0..clients {
        let at = dir.path().join(format!("client{client}"));
        let name = format!("tree{client}");
        fill(&at.join(&name), &mut rng);
        let ledger = Ledger::of_client(&of_client);
        let copy = CopyOptions { recursive: true, compress, flows, ledger, ..CopyOptions::default() };
        copies.spawn(there_and_back(pinned.clone(), copy, at, name));
    }
    let done = timeout(PATIENCE, copies.join_all()).await;
    assert!(done.is_ok(), "{crowd}: not done in {:?}: {:#?}", begun.elapsed(), ledger.rows());
    println!("{crowd}: {:.2} s", begun.elapsed().as_secs_f64());
}

#[test]
fn copies_are_done_however_little_may_be_held() {
    let (first, seeds) = (number("UTS_SEED_FIRST", 0), number("UTS_SEEDS", 8));
    for seed in first..first + seeds {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(gather(seed));
    }
}
