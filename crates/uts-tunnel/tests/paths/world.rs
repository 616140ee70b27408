//! A client and a server of tunnels, with the programs of their hosts, in virtual time.

use crate::sockets::Machine;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use uts::simulation::{Network, Running};
use uts::{ConnectOptions, Connection, ConnectionConfig, FlowOptions, Identity, RecvFlow, SendFlow};
use uts::{Listener, ServerOptions, connect};
use uts_ledger::{Ledger, Resource};
use uts_tunnel::dial::Budget;
use uts_tunnel::entry::{Entry, Socket};
use uts_tunnel::exit::{Exit, Goal, Judge};
use uts_tunnel::forward::{Place, Protocol};
use uts_tunnel::live::{Event, Live, Observer};
use uts_tunnel::permit::Permits;
use uts_tunnel::pipe::{self, Owner, Permitted, Pipes};
use uts_tunnel::wire::{Asked, Opening};
use uts_tunnel::{FLOW_BYTES, FLOWS_MAX, SERVICE, Teller, Wants, held, stream};

/// Where the server is.
pub const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);
/// Host of the client.
pub const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

/// A service of the server's host, as programs of the client's host name it.
pub const SERVICE_AT: ([u8; 4], u16) = ([192, 0, 2, 80], 80);
/// Where nobody listens, and where nobody is.
pub const REFUSING_AT: ([u8; 4], u16) = ([192, 0, 2, 81], 80);
pub const SILENT_AT: ([u8; 4], u16) = ([192, 0, 2, 82], 80);
/// Where the client listens for programs: for those that go to the service, and for SOCKS5.
pub const ENTRY_AT: ([u8; 4], u16) = ([127, 0, 0, 1], 8080);
pub const SOCKS_AT: ([u8; 4], u16) = ([127, 0, 0, 1], 1080);
/// Where the client listens for programs whose streams outlive their connections.
pub const KEPT_AT: ([u8; 4], u16) = ([127, 0, 0, 1], 2222);
/// Where the server listens for the client.
pub const REMOTE_AT: ([u8; 4], u16) = ([127, 0, 0, 1], 9090);
/// Name of the service among pipes.
pub const PIPE: &str = "echo";

/// Connections, and streams, are kept through a silence of this length.
pub const SILENCE: Duration = Duration::from_secs(24 * 3600);

/// Time that the last words of an end may take, once all is done.
const SETTLED: Duration = Duration::from_secs(120);

/// The record of a run, each line with its instant.
#[derive(Clone)]
pub struct Log(Instant, Arc<Mutex<Vec<String>>>);

impl Log {
    fn begin() -> Log {
        Log(Instant::now(), Arc::default())
    }

    /// One more line.
    pub fn note(&self, line: impl std::fmt::Display) {
        let line = format!("{:.3} {line}", self.0.elapsed().as_secs_f64());
        if std::env::var_os("UTS_SHOW").is_some() {
            println!("{line}");
        }
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// All lines.
    pub fn lines(&self) -> Vec<String> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if a line has this text.
    pub fn says(&self, text: &str) -> bool {
        self.lines().iter().any(|line| line.contains(text))
    }

    fn teller(&self, whose: &'static str) -> Arc<Teller> {
        let log = self.clone();
        Teller::new(move |line| log.note(format_args!("{whose} says {line}")))
    }

    fn live(&self, whose: &'static str) -> Arc<Live> {
        Live::new(Arc::default(), Told(self.clone(), whose))
    }
}

struct Told(Log, &'static str);

impl Observer for Told {
    fn on_stream(&self, place: &str, event: Event<'_>) {
        self.0.note(format_args!("{}: {place}: {event:?}", self.1));
    }
}

/// A client, a server, and the programs of both.
pub struct World {
    pub network: Running,
    /// Programs of the client's host, and of the server's.
    pub near: Machine,
    pub far: Machine,
    pub log: Log,
    options: ConnectOptions,
    identity: Identity,
    pipes: Arc<Pipes<Machine>>,
    ledgers: [Ledger; 2],
    lives: [Arc<Live>; 2],
    tellers: [Arc<Teller>; 2],
    server: Mutex<JoinSet<()>>,
    client: Mutex<JoinSet<()>>,
}

fn config(service: &str) -> ConnectionConfig {
    let (first, most) = FLOW_BYTES;
    ConnectionConfig {
        service: service.to_owned(),
        idle_timeout: SILENCE,
        flows_max: FLOWS_MAX,
        credit_bytes_initial: first as u64,
        credit_bytes_max: most as u64,
        send_buffer_bytes: first,
        send_buffer_bytes_max: most,
        ..ConnectionConfig::default()
    }
}

impl World {
    /// Begins, with a server that serves.
    pub fn begin(path: &str, seed: u64) -> World {
        let network = Network::begin(path, seed).unwrap_or_else(|error| panic!("{path}: {error}"));
        network.set_host(CLIENT);
        let (near, far) = (Machine::new(CLIENT), Machine::new(IpAddr::from(SERVER.0)));
        far.silence(SocketAddr::from(SILENT_AT));
        // Another one has a certificate of another length, and packets of other lengths.
        static IDENTITY: LazyLock<Identity> = LazyLock::new(|| Identity::generate().expect("a key"));
        let identity = IDENTITY.clone();
        let log = Log::begin();
        let services = [format!("{PIPE}={}", SocketAddr::from(SERVICE_AT)), "none=192.0.2.81:80".to_owned()];
        let services = services.map(|text| text.parse().expect("a service"));
        let permitted = watch::channel(Arc::new(Permitted::new(&services).expect("of two names"))).1;
        let budget = uts_ledger::Budget { memory_bytes: 256 << 20, threads: 64, files: 2000, sockets: 2000 };
        let world = World {
            pipes: Pipes::new(far.clone(), permitted, SILENCE),
            options: ConnectOptions::pinned(identity.fingerprint()),
            ledgers: [Ledger::of_client(&budget), Ledger::of_server(&budget)],
            lives: [log.live("client"), log.live("server")],
            tellers: [log.teller("client"), log.teller("server")],
            server: Mutex::default(),
            client: Mutex::default(),
            network,
            near,
            far,
            log,
            identity,
        };
        world.serve();
        world
    }

    /// Listens at the server's place.
    pub fn listener(&self) -> Listener {
        let mut options = ServerOptions::new(self.identity.clone());
        options.connection = config("");
        Listener::bind(SocketAddr::from(SERVER), options).expect("bound")
    }

    /// Starts the server.
    pub fn serve(&self) {
        let listener = self.listener();
        let named = |text: &str| text.parse().expect("a pattern");
        let connect = [SERVICE_AT, REFUSING_AT, SILENT_AT].map(|at| named(&SocketAddr::from(at).to_string()));
        let permits = Permits { connect: connect.into(), listen: vec![named("127.0.0.1:9090")] };
        let permits = watch::channel(Arc::new(permits)).1;
        let places: Arc<held::Places> = Arc::default();
        let (far, live, teller) = (self.far.clone(), self.lives[1].clone(), self.tellers[1].clone());
        let (ledger, pipes) = (self.ledgers[1].clone(), self.pipes.clone());
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.spawn(async move {
            let mut clients = JoinSet::new();
            while let Some(connection) = listener.accept().await {
                let budget = Budget(ledger.payer("the client"));
                if connection.service() == pipe::SERVICE {
                    let owner = Owner { key: None, budget, live: live.clone() };
                    let pipes = pipes.clone();
                    clients.spawn(async move { drop(pipes.serve(&connection, owner).await) });
                } else {
                    let judge = Judge::Server(permits.clone(), places.clone(), None);
                    let exit =
                        Exit::new(connection, far.clone(), judge, live.clone(), teller.clone(), budget);
                    clients.spawn(async move { drop(exit.serve().await) });
                }
            }
        });
    }

    /// Ends the server's process: nobody is told.
    pub fn kill(&self) {
        self.network.kill(SocketAddr::from(SERVER));
        self.server.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    /// Connects to the server.
    pub async fn connect(&self, service: &str) -> Result<Connection, uts::ConnectError> {
        let mut options = self.options.clone();
        options.connection = config(service);
        options.connection.keep_alive = Duration::from_secs(25);
        connect(&SocketAddr::from(SERVER).to_string(), options).await
    }

    /// The client's end of a tunnel: what arrives here goes to the service or, by SOCKS5, wherever
    /// it says, and what arrives at the server goes to the service here.
    pub async fn tunnel(&self) -> Tunnel {
        let connection = self.connect(SERVICE).await.expect("connected");
        let (now, connections) = watch::channel(Some(connection.clone()));
        let service = Place { host: SocketAddr::from(SERVICE_AT).ip().to_string(), port: SERVICE_AT.1 };
        let asked = Asked::Connect(Protocol::Tcp, service.clone());
        for (at, asked) in [(ENTRY_AT, Some(asked)), (SOCKS_AT, None)] {
            let at = SocketAddr::from(at);
            let socket: Socket<Machine> =
                Socket::bind(&self.near, Protocol::Tcp, &[at]).await.expect("bound");
            let payer = self.ledgers[0].payer(&at.to_string());
            let entry = Arc::new(Entry {
                name: at.to_string(),
                to: asked.as_ref().map_or_else(|| "anywhere".to_owned(), ToString::to_string),
                asked,
                wants: Arc::default(),
                room: Ledger::of(Resource::Requests, 1000, false).payer("all"),
                budget: Budget(payer),
                live: self.lives[0].clone(),
                teller: self.tellers[0].clone(),
            });
            self.spawn(socket.serve(entry, connections.clone()));
        }
        let wants: Arc<Wants> = Arc::default();
        let goal = Goal { name: "remote".into(), protocol: Protocol::Tcp, place: service, wants };
        let budget = Budget(self.ledgers[0].payer("the server"));
        let judge = Judge::Client(vec![goal]);
        let (near, live, teller) = (self.near.clone(), self.lives[0].clone(), self.tellers[0].clone());
        let exit = Exit::new(connection.clone(), near, judge, live, teller, budget);
        self.spawn(async move { drop(exit.serve().await) });
        let place = Place { host: SocketAddr::from(REMOTE_AT).ip().to_string(), port: REMOTE_AT.1 };
        let asked = Asked::Listen(Protocol::Tcp, 0, place);
        let listening = ask(&connection, &Opening { asked, properties: Vec::new() }).await;
        Tunnel { connection, _now: now, _listening: listening.ok() }
    }

    /// Runs something of the client until the end.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
    }

    /// Ends all, and sees to it that nothing is left: no stream, no socket, no room that is held,
    /// and no task.
    pub async fn end(self) -> Vec<String> {
        self.end_within(SETTLED).await
    }

    /// The same, for which ends may take so long.
    pub async fn end_within(self, settled: Duration) -> Vec<String> {
        let World { network, near, far, log, pipes, ledgers, lives, server, client, .. } = self;
        let left = || {
            let held = ledgers.iter().flat_map(Ledger::rows);
            let held = held.filter(|row| row.held > 0).map(|row| format!("{row:?}"));
            let streams = lives.iter().flat_map(|live| live.all());
            let streams = streams.map(|(_, carried)| format!("{} to {}", carried.from, carried.to));
            held.chain(streams).collect::<Vec<_>>()
        };
        let until = Instant::now() + settled;
        while !left().is_empty() && Instant::now() < until {
            sleep(settled / 1000).await;
        }
        assert_eq!(left(), [""; 0], "left over");
        for tasks in [client, server] {
            tasks.into_inner().unwrap_or_else(PoisonError::into_inner).shutdown().await;
        }
        assert_eq!([near.open(), far.open()], [0, 0], "sockets are left");
        let from_client = network.stats(CLIENT, IpAddr::from(SERVER.0));
        log.note(format_args!("{from_client:?} {:?}", network.stats(IpAddr::from(SERVER.0), CLIENT)));
        drop((network, pipes));
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let until = Instant::now() + SETTLED;
        while tasks() > 0 && Instant::now() < until {
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(tasks(), 0, "tasks are left");
        log.lines()
    }
}

/// The client's end of a tunnel.
pub struct Tunnel {
    pub connection: Connection,
    _now: watch::Sender<Option<Connection>>,
    _listening: Option<(SendFlow, RecvFlow)>,
}

impl Tunnel {
    /// Ends the tunnel in order.
    pub async fn close(self) {
        self.connection.close(0, "done").await;
    }
}

/// Asks the peer for something in a flow of its own.
pub async fn ask(connection: &Connection, opening: &Opening) -> Result<(SendFlow, RecvFlow), String> {
    let flow = connection.open_flow(FlowOptions::default()).await.map_err(|error| error.to_string())?;
    let (mut send, mut recv) = flow.split();
    send.write_all(&opening.emit()).await.map_err(|error| error.to_string())?;
    match stream::read_answer(&mut recv).await {
        Ok(answer) => answer.map(|_| (send, recv)).map_err(|refused| refused.to_string()),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err("no answer".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs a scenario in virtual time, from a seed. Returns its record.
pub fn run(path: &str, seed: u64, scenario: impl AsyncFnOnce(World) -> Vec<String>) -> Vec<String> {
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
    runtime.block_on(async { scenario(World::begin(path, seed)).await })
}
