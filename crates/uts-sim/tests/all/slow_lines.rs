//! Over a line on which a packet takes a tenth of a second, each packet that need not go counts.

use bytes::Bytes;
use core::time::Duration;
use uts_engine::requirements::Requirements;
use uts_engine::{ConnectionConfig, ConnectionHandle, Event, FlowId, FlowOptions, Read};
use uts_functions::Time;
use uts_path::{Direction, PathConfig};
use uts_sim::identity::Identities;
use uts_sim::{World, WorldConfig};

const SERVER: usize = 0;
const CLIENT: usize = 1;
/// 9.6 kbit/s of SLIP, as in the Rx study of 1993.
const LINE: &str = "rate=9600bit delay=5ms framing=slip buffer=8p overhead=28";
/// Time that a program needs from data to its answer.
const THINKING: Duration = Duration::from_millis(1);

/// A client whose requests a server answers, one after another on one flow.
struct Requests {
    world: World,
    client: ConnectionHandle,
    flow: FlowId,
    /// Write that is still due: when, by which end, on which connection and flow, and of how many
    /// bytes.
    due: Option<(Time, usize, ConnectionHandle, FlowId, usize)>,
    /// When each answer was there.
    answered: Vec<Time>,
}

impl Requests {
    fn new(line: &str) -> Self {
        let path = PathConfig::both(line.parse().expect("a valid path"));
        let world = WorldConfig { path, ..WorldConfig::default() };
        let world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        Requests::over(world)
    }

    fn over(mut world: World) -> Self {
        let mut requirements = Requirements::default();
        requirements.assign("connCapacityProfile=low-latency-interactive").expect("a profile");
        let config = ConnectionConfig { requirements, ..ConnectionConfig::default() };
        let client = world.connect(CLIENT, config).expect("the connection begins");
        loop {
            let happening = world.next(Time::from_millis(600_000)).expect("a connection");
            if (happening.node, happening.event) == (CLIENT, Event::Connected) {
                break;
            }
        }
        let connection = world.connection(CLIENT, client).expect("open");
        let flow = connection.open_flow(FlowOptions::default()).expect("a flow");
        Requests { world, client, flow, due: None, answered: Vec::new() }
    }

    fn write(&mut self, node: usize, handle: ConnectionHandle, flow: FlowId, bytes: usize) {
        let now = self.world.now();
        let connection = self.world.connection(node, handle).expect("open");
        assert_eq!(connection.write(now, flow, Bytes::from(vec![7; bytes])).expect("room"), bytes);
    }

    /// Until so many requests of 32 bytes have been answered with 64 each.
    fn run(&mut self, count: usize) {
        if self.answered.is_empty() {
            self.write(CLIENT, self.client, self.flow, 32);
        }
        while self.answered.len() < count {
            let end = self.due.map_or(Time::from_millis(600_000), |(at, ..)| at);
            let Some(happening) = self.world.next(end) else {
                let (_, node, handle, flow, bytes) = self.due.take().expect("requests are answered");
                self.write(node, handle, flow, bytes);
                continue;
            };
            let now = self.world.now();
            let Event::Readable(flow) = happening.event else { continue };
            let connection = self.world.connection(happening.node, happening.connection).expect("open");
            let mut had = 0;
            while let Ok(Read::Bytes(_, bytes)) = connection.read(now, flow, 1 << 20) {
                had += bytes.len();
            }
            let bytes = match (happening.node, had) {
                (_, 0) => continue,
                (CLIENT, 64) => 32,
                (SERVER, 32) => 64,
                other => panic!("half a message: {other:?}"),
            };
            if happening.node == CLIENT {
                self.answered.push(now);
            }
            self.due = Some((now + THINKING, happening.node, happening.connection, flow, bytes));
        }
    }
}

/// Each packet costs the line a tenth of a second. A report by itself before each request and each
/// answer took as long as the answer.
#[test]
fn reports_ride_on_requests_and_answers() {
    let mut requests = Requests::new(LINE);
    requests.run(5);
    let packets = |requests: &Requests| {
        [Direction::Forward, Direction::Backward].map(|way| requests.world.path_stats(way).packets_in)
    };
    let before = packets(&requests);
    let begun_at = requests.world.now();
    requests.run(25);
    let (after, took) = (packets(&requests), requests.world.now().since(begun_at) / 20);
    let more = [after[0] - before[0], after[1] - before[1]];
    println!("{took:?} for a request, {more:?} packets for 20");
    assert!(more.iter().all(|&packets| packets <= 22), "{more:?} packets for 20 requests");
    assert!(took < Duration::from_millis(300), "{took:?} for a request");
}

/// A first flight takes 1.3 s of the line, and its answer 0.9 s. Both were repeated after a second.
/// Who has been here before knows how long they take.
#[test]
fn the_next_connection_waits_for_the_answer_to_its_first_flight() {
    let mut requests = Requests::new(LINE);
    requests.run(5);
    let first = requests.answered[0].since(Time::ZERO);
    let now = requests.world.now();
    requests.world.connection(CLIENT, requests.client).expect("open").close(now, 0, "done");
    let Requests { mut world, .. } = requests;
    // Until nothing more can come of the connection.
    world.run_for(Duration::from_secs(60));
    let begun_at = world.now();
    let bytes =
        |world: &World| [Direction::Forward, Direction::Backward].map(|way| world.path_stats(way).bytes_in);
    let before = bytes(&world);
    let mut requests = Requests::over(world);
    requests.run(1);
    let second = requests.answered[0].since(begun_at);
    let after = bytes(&requests.world);
    let sent = [after[0] - before[0], after[1] - before[1]];
    println!("the first answer after {first:?}, then after {second:?} and {sent:?} bytes");
    assert!(second * 5 < first * 4, "{second:?} instead of {first:?}");
    assert!(sent[0] < 2 * 1200 && sent[1] < 2 * 800, "{sent:?} bytes: a flight was repeated");
}
