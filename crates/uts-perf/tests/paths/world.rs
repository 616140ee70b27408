//! A client and a server that measure, in virtual time, each by a clock of its own.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uts::simulation::{Network, Running, Stats, Target};
use uts::{ConnectOptions, Connection, Identity, Listener, Requirements, ServerOptions, connect};
use uts_end::transport::universal::UniversalSettings;
use uts_perf::{
    Ended, Interval, Intervals, MeasureError, Measured, Measurement, Request, SERVICE, Server, VERSION, Way,
};
use uts_traffic::clock::Clock;
use uts_traffic::transport::Local;
use uts_traffic::workload::Workload;

/// Where the server is.
pub const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);
/// Host of the clients.
pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Time by which the server's clock is ahead of the client's.
const AHEAD: Duration = Duration::from_secs(3600);

/// Intervals of a measurement.
const EVERY: Duration = Duration::from_secs(1);

/// Virtual time in which all is over.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Tokio's clock, which in these tests is virtual time, ahead by some time.
struct TokioClock {
    begun: Instant,
    ahead_ns: u64,
}

impl TokioClock {
    fn ahead_by(ahead: Duration) -> Rc<Self> {
        Rc::new(TokioClock { begun: Instant::now(), ahead_ns: ahead.as_nanos() as u64 })
    }
}

impl Clock for TokioClock {
    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64 + self.ahead_ns
    }

    fn sleep_until(&self, at_ns: u64) -> Local<'static, ()> {
        let at = self.begun.checked_add(Duration::from_nanos(at_ns.saturating_sub(self.ahead_ns)));
        Box::pin(async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        })
    }
}

/// What the server says of a client, and when.
pub type Said = (Duration, Result<Measured, String>);

/// What the server says of its clients.
pub struct Served {
    begun: Instant,
    said: Rc<RefCell<Vec<Said>>>,
}

/// A server that measures, and the path to it.
pub struct World {
    pub network: Running,
    begun: Instant,
    options: ConnectOptions,
    clock: Rc<dyn Clock>,
    served: Rc<RefCell<Vec<Said>>>,
    server: RefCell<JoinSet<()>>,
}

/// Measurement as a client has seen it.
#[derive(Debug)]
pub struct Seen {
    pub ended: Ended,
    pub intervals: Vec<Interval>,
    /// Counters of the path to the server, and of that from it, since the network began.
    pub paths: [Stats; 2],
}

impl World {
    /// Begins, with a server that is `served` by something.
    fn begin<F: Future<Output = ()> + 'static>(
        path: &str,
        seed: u64,
        served: impl FnOnce(Listener, Served) -> F,
    ) -> World {
        let network = Network::begin(path, seed).unwrap_or_else(|error| panic!("{path}: {error}"));
        network.set_host(CLIENT);
        // Another one has a certificate of another length, and packets of other lengths.
        static IDENTITY: LazyLock<Identity> = LazyLock::new(|| Identity::generate().expect("a key"));
        let mut options = ServerOptions::new(IDENTITY.clone());
        options.connection.first_request_timeout = Duration::from_secs(20);
        let listener = Listener::bind(SocketAddr::from(SERVER), options).expect("bound");
        let world = World {
            network,
            begun: Instant::now(),
            options: ConnectOptions::pinned(IDENTITY.fingerprint()),
            clock: TokioClock::ahead_by(Duration::ZERO),
            served: Rc::default(),
            server: RefCell::default(),
        };
        let clients = Served { begun: world.begun, said: world.served.clone() };
        world.server.borrow_mut().spawn_local(served(listener, clients));
        world
    }

    /// Connects to the server as `uts perf` does.
    pub async fn connect(&self, requirements: Requirements) -> Connection {
        let mut options = self.options.clone();
        options.connection.service = SERVICE.to_owned();
        options.connection.keep_alive = Duration::from_secs(10);
        options.connection.requirements = requirements;
        connect(&SocketAddr::from(SERVER).to_string(), options).await.expect("connected")
    }

    /// Asks the server for a measurement over a connection of its own.
    pub async fn ask(&self, request: &Request) -> Result<(Connection, Measurement), MeasureError> {
        let requirements = UniversalSettings::default().requirements(&request.workload).expect("sound");
        let connection = self.connect(requirements).await;
        let measurement = Measurement::ask(&connection, request.clone(), self.clock.clone()).await?;
        Ok((connection, measurement))
    }

    /// Measures as `uts perf` does.
    pub async fn measure(&self, request: &Request) -> Result<Seen, MeasureError> {
        let (connection, measurement) = self.ask(request).await?;
        self.carry_out(connection, measurement).await
    }

    /// Carries out what the server is ready for, and closes the connection.
    pub async fn carry_out(&self, connection: Connection, of: Measurement) -> Result<Seen, MeasureError> {
        let running = of.start().await?;
        let mut counted = Intervals::new(&connection);
        let mut intervals = Vec::new();
        let client = {
            let mut measuring = std::pin::pin!(running.measure());
            let mut ticks = tokio::time::interval_at(Instant::now() + EVERY, EVERY);
            loop {
                tokio::select! {
                    biased;
                    client = &mut measuring => {
                        intervals.push(counted.next(&connection, running.elapsed()));
                        break client?;
                    }
                    _ = ticks.tick() => intervals.push(counted.next(&connection, running.elapsed())),
                }
            }
        };
        let ended = running.end(client).await?;
        connection.close(0, "done").await;
        Ok(Seen { ended, intervals, paths: self.paths() })
    }

    /// Counters of the path to the server, and of that from it.
    pub fn paths(&self) -> [Stats; 2] {
        let server = IpAddr::from(SERVER.0);
        [self.network.stats(CLIENT, server), self.network.stats(server, CLIENT)]
    }

    /// Waits until the server has been done with so many clients.
    pub async fn until_served(&self, count: usize) -> Vec<Said> {
        while self.served.borrow().len() < count {
            sleep(Duration::from_millis(1)).await;
        }
        self.served.borrow().clone()
    }

    /// Time since the network began.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Changes the path in both directions.
    pub fn change(&self, change: &str) {
        self.network.change(Target::Both, change).expect("a change");
    }
}

/// Serves clients as `uts serve --perf` does, each beside the others.
async fn serve(listener: Listener, served: Served) {
    let (server, clock) = (Server::default(), TokioClock::ahead_by(AHEAD));
    let mut clients = JoinSet::new();
    while let Some(connection) = listener.accept().await {
        let (server, clock) = (server.clone(), clock.clone());
        let Served { begun, said } = &served;
        let (begun, said) = (*begun, said.clone());
        clients.spawn_local(async move {
            let measured = async { server.admit(connection.clone()).await?.measure(clock).await }.await;
            said.borrow_mut().push((begun.elapsed(), measured.map_err(|error| error.to_string())));
            connection.close(0, "done").await;
        });
    }
}

/// Reads something of each client, gives it the next of these answers, and then the next; at last
/// says nothing any more.
async fn pretend(listener: Listener, answers: Vec<Vec<u8>>) {
    let mut clients = JoinSet::new();
    while let Some(connection) = listener.accept().await {
        let answers = answers.clone();
        clients.spawn_local(async move {
            let Some(flow) = connection.accept_flow().await else { return };
            let (mut send, mut recv) = flow.split();
            for answer in answers {
                if recv.read(&mut [0; 4096]).await.is_err() || send.write_all(&answer).await.is_err() {
                    return;
                }
            }
            connection.closed().await;
        });
    }
}

/// What a client asks for.
pub fn request(workload: Workload, flows: u32, way: Way) -> Request {
    Request { version: VERSION, workload, flows, way, seed: 1 }
}

/// Runs a scenario in virtual time, from a seed.
pub fn run<T>(path: &str, seed: u64, scenario: impl AsyncFnOnce(&World) -> T) -> T {
    run_with(path, seed, serve, scenario)
}

/// The same with a server that gives these answers, whatever it is asked.
pub fn run_against<T>(answers: Vec<Vec<u8>>, scenario: impl AsyncFnOnce(&World) -> T) -> T {
    run_with("delay=10ms", 1, |listener, _| pretend(listener, answers), scenario)
}

fn run_with<T, F: Future<Output = ()> + 'static>(
    path: &str,
    seed: u64,
    served: impl FnOnce(Listener, Served) -> F,
    scenario: impl AsyncFnOnce(&World) -> T,
) -> T {
    struct Told<'a>(&'a str, u64);
    impl Drop for Told<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("seed {}: {}", self.1, self.0);
            }
        }
    }
    let _told = Told(path, seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let all = async {
        let world = World::begin(path, seed, served);
        timeout(PATIENCE, scenario(&world)).await.expect("it hangs")
    };
    LocalSet::new().block_on(&runtime, all)
}
