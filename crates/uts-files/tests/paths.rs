//! Copies by connections as programs use them, in virtual time, over paths that are drawn by
//! chance: satellites, losses, damage, outages, other addresses, servers that die.
//!
//! `UTS_SEEDS=n` sets how many are drawn (24 unless set), `UTS_SEED_FIRST` the first seed.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use uts::simulation::{Network, Running, Target};
use uts::{ConnectOptions, Connection, Identity, Listener, ServerOptions, connect};
use uts_files::{Client, CopyOptions, NoProgress, ServeOptions, ServerPath, Service, get, put};

const PLACE: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);

/// Virtual time in which a copy is done, however often it has to begin again.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A path between two hosts, in words.
fn drawn(rng: &mut ChaCha8Rng) -> String {
    let rate = [200, 1_000, 8_000, 50_000][rng.random_range(0..4)];
    let delay = [2, 20, 80, 300][rng.random_range(0..4)];
    let mut path =
        format!("rate={rate}kbit delay={delay}ms buffer={}p", [20, 60, 300][rng.random_range(0..3)]);
    let further = [
        "loss=1%",
        "loss=ge:0.08,4",
        "jitter=8ms,uniform,reorder",
        "duplicate=0.05",
        "corrupt=0.01,8",
        "reorder=0.05,20ms",
        "queue=codel",
        "mtu=1300",
    ];
    for setting in further {
        if rng.random_bool(0.3) {
            path = format!("{path} {setting}");
        }
    }
    path
}

/// Files of a few sizes, one of them in a directory of its own.
fn fill(dir: &Path, rng: &mut ChaCha8Rng) {
    fs::create_dir_all(dir.join("deep/er")).expect("a directory");
    for (name, bytes_max) in
        [("large", 600_000), ("deep/middle", 40_000), ("deep/er/small", 900), ("empty", 1)]
    {
        let mut data = vec![0; rng.random_range(0..bytes_max)];
        rng.fill(&mut data[..]);
        fs::write(dir.join(name), data).expect("written");
    }
}

fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(root: &Path, at: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(at).expect("a directory").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                walk(root, &entry, found);
            } else {
                let name = entry.strip_prefix(root).expect("beneath").to_owned();
                found.insert(name, fs::read(&entry).expect("read"));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(root, root, &mut found);
    found
}

/// A server of files in one directory, which may die and come back.
struct Server {
    identity: Identity,
    service: Service,
    serving: Option<tokio::task::JoinHandle<()>>,
}

impl Server {
    fn start(&mut self) {
        let options = ServerOptions::new(self.identity.clone());
        let listener = Listener::bind(SocketAddr::from(PLACE), options).expect("bound");
        let service = self.service.clone();
        self.serving = Some(tokio::spawn(async move {
            while let Some(connection) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let client = Client {
                        key: None,
                        address: connection.remote_addr().map_or_else(String::new, |at| at.ip().to_string()),
                    };
                    let _ = service.serve(&connection, client, Arc::new(NoProgress)).await;
                });
            }
        }));
    }

    fn die(&mut self, network: &Running) {
        network.kill(SocketAddr::from(PLACE));
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
    }
}

/// Copies until it is done, over as many connections as that takes.
async fn copy(options: &ConnectOptions, sources: &Path, local: &Path, is_put: bool) {
    let at = |path: &str| ServerPath::from_user(path.as_bytes()).expect("a path");
    let copy = CopyOptions { recursive: true, ..CopyOptions::default() };
    loop {
        if let Ok(connection) = connect(&SocketAddr::from(PLACE).to_string(), options.clone()).await {
            let connection: Arc<Connection> = Arc::new(connection);
            let copied = match is_put {
                true => put(connection.clone(), &[sources.to_owned()], &at(""), &copy).await,
                false => get(connection.clone(), &[at("tree")], local, &copy).await,
            };
            if copied.is_ok_and(|report| report.is_complete()) {
                return;
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Trouble in mid-copy.
async fn trouble(network: &Running, server: &mut Server, rng: &mut ChaCha8Rng) {
    for _ in 0..rng.random_range(0..4) {
        sleep(Duration::from_millis(rng.random_range(10..6_000))).await;
        match rng.random_range(0..3) {
            0 => {
                network.change(Target::Both, "down").expect("set");
                sleep(Duration::from_millis(rng.random_range(100..20_000))).await;
                network.change(Target::Both, "up").expect("set");
            }
            1 => {
                let to = SocketAddr::new(IpAddr::from([10, 9, 9, 9]), rng.random_range(1024..u16::MAX));
                // Endpoints of the clients are at the ports from 20,000 on, in turn.
                for port in 20_000..20_100 {
                    let _ = network.rebind(SocketAddr::from(([127, 0, 0, 1], port)), to);
                }
            }
            _ => {
                server.die(network);
                sleep(Duration::from_millis(rng.random_range(10..9_000))).await;
                server.start();
            }
        }
    }
}

async fn over_a_drawn_path(seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let path = drawn(&mut rng);
    let network = Network::begin(&path, seed).unwrap_or_else(|error| panic!("seed {seed}: {path}: {error}"));
    let dir = tempfile::tempdir().expect("a directory");
    let (local, remote) = (dir.path().join("local"), dir.path().join("remote"));
    fs::create_dir(&local).expect("made");
    fs::create_dir(&remote).expect("made");
    let is_put = rng.random_bool(0.5);
    let sources = if is_put { local.join("tree") } else { remote.join("tree") };
    fill(&sources, &mut rng);
    let identity = Identity::generate().expect("a key");
    let options = ConnectOptions::pinned(identity.fingerprint());
    let service = Service::open(&remote, ServeOptions::default()).expect("served");
    let mut server = Server { identity, service, serving: None };
    server.start();
    let begun = Instant::now();
    let copying = copy(&options, &sources, &local, is_put);
    let both = async { tokio::join!(copying, trouble(&network, &mut server, &mut rng)) };
    let done = timeout(PATIENCE, both).await;
    assert!(done.is_ok(), "seed {seed}: {path}: not done in {:?}", begun.elapsed());
    let (from, to) = (contents(&local), contents(&remote));
    assert!(from == to, "seed {seed}: {path}: {:?} and {:?}", from.keys(), to.keys());
    println!("seed {seed}: {path}: {:.1} s", begun.elapsed().as_secs_f64());
}

#[test]
fn copies_are_right_over_drawn_paths_and_in_trouble() {
    let (first, seeds) = (number("UTS_SEED_FIRST", 0), number("UTS_SEEDS", 24));
    for seed in first..first + seeds {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(over_a_drawn_path(seed));
    }
}
