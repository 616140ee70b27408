//! Early requests in virtual time: endpoints and connections are those that programs use.

use crate::simulation::Running;
use crate::simulation::testing::{FAIR, FAIR_DELAY, begin};
use crate::{
    ClientAuth, ConnectError, ConnectOptions, Connection, EARLY_BYTES_MAX, EarlyError, FlowOptions, Identity,
    Listener, ServerOptions, Ticket, connect,
};
use bytes::Bytes;
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

const PLACE: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);

/// A server that gives back what it is asked, from the last byte to the first, early and by flows.
struct Server {
    identity: Identity,
    /// Early requests that it has taken.
    taken: Arc<Mutex<Vec<Bytes>>>,
    network: Running,
}

impl Server {
    fn begin(path: &str, seed: u64) -> Self {
        let identity = Identity::generate().expect("a key");
        let server = Server { identity, taken: Arc::default(), network: begin(path, seed) };
        server.start(|options| options, Duration::ZERO);
        server
    }

    /// Starts it, with early answers that take so long.
    fn start(&self, settings: impl FnOnce(ServerOptions) -> ServerOptions, delay: Duration) {
        let options = settings(ServerOptions::new(self.identity.clone()).early_requests());
        let listener = Arc::new(Listener::bind(SocketAddr::from(PLACE), options).expect("bound"));
        let (accepting, taken) = (listener.clone(), self.taken.clone());
        tokio::spawn(async move {
            while let Some(request) = listener.early_request().await {
                taken.lock().expect("whole").push(request.bytes().clone());
                tokio::spawn(async move {
                    sleep(delay).await;
                    let answer = reversed(request.bytes());
                    let _ = request.answer(&answer);
                });
            }
        });
        tokio::spawn(async move {
            while let Some(connection) = accepting.accept().await {
                tokio::spawn(serve(connection));
            }
        });
    }

    fn options(&self) -> ConnectOptions {
        ConnectOptions::pinned(self.identity.fingerprint())
    }

    async fn connect(&self, options: ConnectOptions) -> Connection {
        connect(&SocketAddr::from(PLACE).to_string(), options).await.expect("connected")
    }

    /// A ticket of a connection that has ended.
    async fn ticket(&self) -> Ticket {
        let connection = self.connect(self.options()).await;
        let ticket = connection.take_ticket().expect("a ticket");
        assert_eq!(connection.take_ticket(), None, "it is given once");
        connection.close(0, "").await;
        ticket
    }

    async fn ask(&self, ticket: &Ticket, request: &[u8]) -> (Connection, Option<Bytes>) {
        let connection = self.connect(self.options().early(ticket.clone(), request.to_vec())).await;
        let answer = connection.early_answer().await;
        (connection, answer)
    }

    fn count(&self) -> usize {
        self.taken.lock().expect("whole").len()
    }
}

async fn serve(connection: Connection) {
    while let Some(flow) = connection.accept_flow().await {
        let (mut send, mut recv) = flow.split();
        let mut request = Vec::new();
        if recv.read_to_end(&mut request).await.is_ok() {
            let _ = send.write_all(&reversed(&request)).await;
            let _ = send.finish();
        }
    }
}

async fn by_flow(connection: &Connection, request: &[u8]) -> Vec<u8> {
    let flow = connection.open_flow(FlowOptions::default()).await.expect("a flow");
    let (mut send, mut recv) = flow.split();
    send.write_all(request).await.expect("written");
    send.finish().expect("finished");
    let mut answer = Vec::new();
    recv.read_to_end(&mut answer).await.expect("read");
    answer
}

fn reversed(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().rev().copied().collect()
}

fn request(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n % 251) as u8).collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_after_one_round_trip() {
    let server = Server::begin(FAIR, 1);
    let ticket = server.ticket().await;
    let begun = Instant::now();
    let (connection, answer) = server.ask(&ticket, b"early").await;
    let early = begun.elapsed();
    assert_eq!(answer.as_deref(), Some(b"ylrae".as_slice()));
    // It is told as often as anybody asks.
    assert_eq!(connection.early_answer().await.as_deref(), Some(b"ylrae".as_slice()));
    let begun = Instant::now();
    let connection = server.connect(server.options()).await;
    assert_eq!(by_flow(&connection, b"late").await, b"etal");
    let late = begun.elapsed();
    let round_trip = 2 * FAIR_DELAY;
    let slack = Duration::from_millis(5);
    assert!(early >= round_trip && early < round_trip + slack, "{early:?}");
    assert!(late >= 2 * round_trip && late < 2 * round_trip + slack, "{late:?}");
    assert_eq!(connection.early_answer().await, None, "nothing was asked");
}

#[tokio::test(start_paused = true)]
async fn all_lengths_are_carried_whole_and_longer_ones_are_refused() {
    let server = Server::begin(FAIR, 2);
    for bytes in [0, 1, 1000, 1200, 1201, 5000, EARLY_BYTES_MAX] {
        let (_, answer) = server.ask(&server.ticket().await, &request(bytes)).await;
        assert_eq!(answer.expect("an answer"), reversed(&request(bytes)), "{bytes} bytes");
    }
    let options = server.options().early(server.ticket().await, request(EARLY_BYTES_MAX + 1));
    let refused = connect(&SocketAddr::from(PLACE).to_string(), options).await.expect_err("refused");
    assert!(matches!(&refused, ConnectError::Setup(why) if why.contains("8193 bytes")), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_good_once_and_a_restarted_server_knows_none() {
    let server = Server::begin(FAIR, 3);
    let ticket = server.ticket().await;
    for expected in [Some(b"eno".as_slice()), None, None] {
        let (connection, answer) = server.ask(&ticket, b"one").await;
        assert_eq!(answer.as_deref(), expected);
        assert_eq!(by_flow(&connection, b"one").await, b"eno", "the connection is as any other");
    }
    assert_eq!(server.count(), 1);
    let ticket = server.ticket().await;
    server.network.kill(PLACE.into());
    server.start(|options| options, Duration::ZERO);
    let (connection, answer) = server.ask(&ticket, b"two").await;
    assert_eq!((answer, server.count()), (None, 1));
    assert_eq!(by_flow(&connection, b"two").await, b"owt");
    // The new one gives tickets, too.
    let (_, answer) = server.ask(&connection.take_ticket().expect("a ticket"), b"three").await;
    assert_eq!(answer.as_deref(), Some(b"eerht".as_slice()));
}

/// The client's Finished comes after a round trip and a half. What is not answered by then is not
/// answered early.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_is_left_to_a_flow() {
    let server = Server::begin(FAIR, 4);
    for (delay, is_in_time) in [(0, true), (10, true), (40, false), (1000, false)] {
        server.network.kill(PLACE.into());
        server.start(|options| options, Duration::from_millis(delay));
        let before = server.count();
        let (connection, answer) = server.ask(&server.ticket().await, b"slow").await;
        assert_eq!(answer.is_some(), is_in_time, "{delay} ms");
        assert_eq!(server.count(), before + 1);
        assert_eq!(by_flow(&connection, b"slow").await, b"wols");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_unsure_of_addresses_takes_requests_too() {
    let server = Server::begin(FAIR, 5);
    server.network.kill(PLACE.into());
    let retries = |mut options: ServerOptions| {
        options.handshakes_before_retry = 0;
        options
    };
    server.start(retries, Duration::ZERO);
    for bytes in [1, EARLY_BYTES_MAX] {
        let (_, answer) = server.ask(&server.ticket().await, &request(bytes)).await;
        assert_eq!(answer.expect("an answer"), reversed(&request(bytes)), "{bytes} bytes");
    }
}

/// The right answer comes of it or none, and a request is not done twice early.
#[tokio::test(start_paused = true)]
async fn on_bad_paths_an_answer_is_right_or_there_is_none() {
    let (mut answered, mut of) = (0, 0);
    for seed in 0..150 {
        let share = f64::from(seed as u32 % 10) / 30.0;
        let jitter = seed % 7 * 3;
        let path = format!("{FAIR} jitter={jitter}ms,uniform,reorder loss={share} duplicate={share}");
        let server = Server::begin(&path, seed);
        let ticket = server.ticket().await;
        let asked = request(seed as usize * 50 % EARLY_BYTES_MAX);
        let (connection, answer) = server.ask(&ticket, &asked).await;
        if let Some(answer) = &answer {
            assert_eq!(*answer, reversed(&asked), "seed {seed}");
        }
        (answered, of) = (answered + usize::from(answer.is_some()), of + 1);
        assert!(server.count() <= 1, "seed {seed}: done {} times", server.count());
        assert_eq!(by_flow(&connection, &asked).await, reversed(&asked), "seed {seed}");
    }
    // The handshake waits for no answer: one that is lost, or overtaken, is left to a flow.
    assert!(answered * 3 > of, "{answered} of {of}");
}

#[tokio::test(start_paused = true)]
async fn who_may_not_take_requests_gives_no_tickets() {
    let network = begin(FAIR, 6);
    let identity = Identity::generate().expect("a key");
    let mut options = ServerOptions::new(identity.clone()).early_requests();
    options.client_auth = ClientAuth::Keys(Default::default());
    let Err(refused) = Listener::bind(PLACE.into(), options) else { panic!("it listens") };
    let refused = refused.to_string();
    assert!(refused.contains("ask for no keys"), "{refused}");
    let listener = Listener::bind(PLACE.into(), ServerOptions::new(identity.clone())).expect("bound");
    let options = ConnectOptions::pinned(identity.fingerprint());
    let connection = connect(&SocketAddr::from(PLACE).to_string(), options).await.expect("connected");
    assert_eq!(connection.take_ticket(), None);
    assert_eq!(listener.accept().await.expect("accepted").take_ticket(), None);
    drop(network);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_sent_is_an_error() {
    let network = begin(FAIR, 7);
    let identity = Identity::generate().expect("a key");
    let options = ServerOptions::new(identity.clone()).early_requests();
    let listener = Listener::bind(PLACE.into(), options).expect("bound");
    let options = ConnectOptions::pinned(identity.fingerprint()).service("clock");
    let to = SocketAddr::from(PLACE).to_string();
    let first = connect(&to, options.clone()).await.expect("connected");
    let options = options.early(first.take_ticket().expect("a ticket"), "now");
    let asking = tokio::spawn(async move { connect(&to, options).await });
    let request = listener.early_request().await.expect("a request");
    assert_eq!((request.bytes().as_ref(), request.service()), (b"now".as_slice(), "clock"));
    let too_long = request.answer(&[0; EARLY_BYTES_MAX + 1]);
    assert_eq!(too_long, Err(EarlyError::TooLong(EARLY_BYTES_MAX + 1)));
    let connection = asking.await.expect("it runs").expect("connected");
    assert_eq!(connection.early_answer().await, None);
    drop((network, listener));
}
