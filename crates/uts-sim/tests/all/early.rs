//! Early requests as an attacker meets them: copies of a flight, late, elsewhere and out of order,
//! forged packets, and answers to an address that is not proved. (keys.md K-24 to K-28)

use core::time::Duration;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use uts_engine::{ConnectionConfig, EARLY_BYTES_MAX, Endpoint, EndpointConfig, Event, Ticket, Worker};
use uts_functions::Time;
use uts_sim::identity::{Identities, SERVER_NAME};
use uts_wire::packet::establishment::{EstablishmentPacket, Level, LongPacket, parse_header};

/// The time that a datagram takes.
const WAY: Duration = Duration::from_millis(10);

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 4433))
}

const SERVER: u8 = 1;

/// A server that says "no" to each early request, and its requests.
struct Server {
    endpoint: Endpoint,
    requests: Vec<Vec<u8>>,
    answer: Vec<u8>,
    /// Bytes that came from, and went to, each host.
    heard: [usize; 256],
    said: [usize; 256],
}

impl Server {
    fn new(identities: &Identities, answer: &[u8]) -> Self {
        Self::of_crew(identities, answer, None)
    }

    fn of_crew(identities: &Identities, answer: &[u8], worker: Option<Worker>) -> Self {
        let config = EndpointConfig {
            server: Some(identities.server.clone()),
            takes_early: true,
            worker,
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::new(config, [1; 32]);
        Server { endpoint, requests: Vec::new(), answer: answer.to_vec(), heard: [0; 256], said: [0; 256] }
    }

    /// Takes a datagram in, and says what it has to say.
    fn hear(&mut self, now: Time, from: u8, mut datagram: Vec<u8>) -> Vec<(u8, Vec<u8>)> {
        self.heard[usize::from(from)] += datagram.len();
        self.endpoint.handle_datagram(now, address(from), None, &mut datagram);
        while let Some((handle, request)) = self.endpoint.next_early() {
            self.requests.push(request.bytes.to_vec());
            self.endpoint.answer_early(handle, &self.answer).expect("it is there");
        }
        self.say(now)
    }

    fn say(&mut self, now: Time) -> Vec<(u8, Vec<u8>)> {
        let mut all = Vec::new();
        let mut out = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut out) {
            let SocketAddr::V4(to) = transmit.remote else { panic!("{transmit:?}") };
            let host = to.ip().octets()[3];
            for datagram in out.chunks(transmit.segment_bytes) {
                self.said[usize::from(host)] += datagram.len();
                all.push((host, datagram.to_vec()));
            }
            out.clear();
        }
        all
    }
}

struct Client {
    endpoint: Endpoint,
    answer: Option<Option<Vec<u8>>>,
    ticket: Option<Ticket>,
    is_connected: bool,
}

impl Client {
    fn new(identities: &Identities, seed: u8, now: Time, early: Option<(Ticket, &[u8])>) -> Self {
        let mut endpoint = Endpoint::new(EndpointConfig::default(), [seed; 32]);
        let name = ServerName::try_from(SERVER_NAME).expect("a name");
        let early = early.map(|(ticket, request)| (ticket, request.to_vec().into()));
        let config = ConnectionConfig::default();
        endpoint
            .connect(now, address(SERVER), name, identities.client.clone(), config, early)
            .expect("it begins");
        Client { endpoint, answer: None, ticket: None, is_connected: false }
    }

    fn flight(&mut self, now: Time) -> Vec<Vec<u8>> {
        let (mut flight, mut out) = (Vec::new(), Vec::new());
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut out) {
            flight.extend(out.chunks(transmit.segment_bytes).map(<[u8]>::to_vec));
            out.clear();
        }
        flight
    }

    fn hear(&mut self, now: Time, mut datagram: Vec<u8>) {
        self.endpoint.handle_datagram(now, address(SERVER), None, &mut datagram);
        while let Some((_, event)) = self.endpoint.poll_event() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::Ticket(ticket) => self.ticket = Some(*ticket),
                Event::EarlyAnswer(answer) => {
                    assert_eq!(self.answer, None, "it is told once");
                    self.answer = Some(answer.map(|answer| answer.to_vec()));
                }
                _ => {}
            }
        }
    }

    /// Everything that both have to say, until the connection stands and is quiet.
    fn settle(&mut self, server: &mut Server, host: u8, mut now: Time) -> Time {
        for _ in 0..300 {
            let flight = self.flight(now);
            now += WAY;
            let mut said: Vec<_> = flight.into_iter().flat_map(|d| server.hear(now, host, d)).collect();
            said.extend(server.say(now));
            now += WAY;
            for (_, datagram) in said.into_iter().filter(|(to, _)| *to == host) {
                self.hear(now, datagram);
            }
            for endpoint in [&mut self.endpoint, &mut server.endpoint] {
                if endpoint.poll_timeout().is_some_and(|due| due <= now) {
                    endpoint.handle_timeout(now);
                }
            }
        }
        assert!(self.is_connected);
        now
    }
}

/// A ticket, and when it was given.
fn ticket(identities: &Identities, server: &mut Server) -> (Ticket, Time) {
    let mut client = Client::new(identities, 20, Time::ZERO, None);
    let now = client.settle(server, 20, Time::from_millis(1));
    assert_eq!(client.answer, None, "nothing was asked");
    (client.ticket.take().expect("a ticket"), now)
}

fn early(datagram: &[u8]) -> Option<EstablishmentPacket<'_>> {
    match parse_header(datagram) {
        Ok(LongPacket::Establishment(packet)) if packet.header.level == Level::Early => Some(packet),
        _ => None,
    }
}

#[test]
fn a_copy_of_a_flight_is_answered_by_nobody() {
    let identities = Identities::new().expect("keys");
    for request in [&b"one"[..], &[7; 3000]] {
        let mut server = Server::new(&identities, b"no");
        let (ticket, now) = ticket(&identities, &mut server);
        let mut client = Client::new(&identities, 2, now, Some((ticket, request)));
        let flight = client.flight(now);
        assert!(flight.iter().filter_map(|d| early(d)).all(|p| !p.header.token.is_empty()));
        for datagram in &flight {
            for (_, answer) in server.hear(now + WAY, 2, datagram.clone()) {
                client.hear(now + 2 * WAY, answer);
            }
        }
        assert_eq!(client.answer, Some(Some(b"no".to_vec())), "after one round trip");
        assert_eq!(server.requests, [request]);
        // At once, and later; from the same place, and from another.
        let mut later = client.settle(&mut server, 2, now + 2 * WAY);
        for host in [2, 3] {
            for _ in 0..3 {
                for datagram in &flight {
                    server.hear(later, host, datagram.clone());
                }
                later += Duration::from_secs(20);
                server.endpoint.handle_timeout(later);
            }
        }
        assert_eq!(server.requests, [request]);
    }
}

/// The copy that comes first is done, and is answered to where it came from. The client hears that
/// it has no answer.
#[test]
fn a_copy_that_comes_first_takes_the_place_of_the_request() {
    let identities = Identities::new().expect("keys");
    let mut server = Server::new(&identities, b"no");
    let (ticket, now) = ticket(&identities, &mut server);
    let mut client = Client::new(&identities, 2, now, Some((ticket, b"one")));
    let flight = client.flight(now);
    for datagram in &flight {
        server.hear(now, 3, datagram.clone());
    }
    for datagram in &flight {
        for (to, answer) in server.hear(now + WAY, 2, datagram.clone()) {
            assert_eq!(to, 2);
            client.hear(now + 2 * WAY, answer);
        }
    }
    client.settle(&mut server, 2, now + 2 * WAY);
    assert_eq!((client.answer, server.requests.len()), (Some(None), 1));
}

/// All orders of a flight's datagrams, and each of them lost.
#[test]
fn a_flight_may_come_in_any_order() {
    let identities = Identities::new().expect("keys");
    let request = [5; 2000];
    for order in 0..6 * 4 {
        let mut server = Server::new(&identities, b"no");
        let (ticket, now) = ticket(&identities, &mut server);
        let mut client = Client::new(&identities, 2, now, Some((ticket, &request)));
        let mut flight = client.flight(now);
        assert!(flight.len() >= 3, "{}", flight.len());
        flight.rotate_left(order % 3);
        if order % 2 == 1 {
            flight.swap(0, 1);
        }
        if order / 6 > 0 {
            flight.remove(order / 6 - 1);
        }
        for datagram in flight {
            for (_, answer) in server.hear(now + WAY, 2, datagram) {
                client.hear(now + 2 * WAY, answer);
            }
        }
        client.settle(&mut server, 2, now + 2 * WAY);
        let answer = client.answer.expect("it is told");
        assert!(answer.is_none_or(|answer| answer == b"no"), "{order}");
        assert!(server.requests.len() <= 1 && server.requests.iter().all(|r| *r == request), "{order}");
    }
}

/// Each byte of an early packet changed: it is dropped, and the ticket is still good for the
/// packet itself.
#[test]
fn a_forged_packet_uses_nothing_up() {
    let identities = Identities::new().expect("keys");
    let mut server = Server::new(&identities, b"no");
    let (ticket, now) = ticket(&identities, &mut server);
    let mut client = Client::new(&identities, 2, now, Some((ticket, b"one")));
    let flight = client.flight(now);
    let (early_ones, others): (Vec<_>, Vec<_>) = flight.into_iter().partition(|d| early(d).is_some());
    let [packet] = &early_ones[..] else { panic!("{} early packets", early_ones.len()) };
    for datagram in others {
        server.hear(now, 2, datagram);
    }
    for byte in 0..packet.len() {
        let mut forged = packet.clone();
        forged[byte] ^= 0x10;
        server.hear(now, 2, forged);
        assert!(server.requests.is_empty(), "byte {byte}");
    }
    server.hear(now, 2, packet.clone());
    assert_eq!(server.requests, [b"one"]);
}

/// Endpoints that share a port take each other's tickets, and each ticket once together.
#[test]
fn a_crew_takes_a_ticket_once() {
    let identities = Identities::new().expect("keys");
    let crew = Worker::crew(2).into_iter();
    let mut servers: Vec<Server> =
        crew.map(|worker| Server::of_crew(&identities, b"no", Some(worker))).collect();
    let (ticket, mut now) = ticket(&identities, &mut servers[0]);
    for (seed, (worker, is_taken)) in (30..).zip([(1, true), (0, false), (1, false)]) {
        let mut client = Client::new(&identities, seed, now, Some((ticket.clone(), b"one")));
        now = client.settle(&mut servers[worker], seed, now);
        assert_eq!(client.answer, Some(is_taken.then(|| b"no".to_vec())), "{worker}");
    }
}

/// RFC 9000 section 8.1, with the longest answer to the shortest request.
#[test]
fn an_answer_is_held_back_until_the_address_is_proved() {
    let identities = Identities::new().expect("keys");
    let answer = vec![9; EARLY_BYTES_MAX];
    let mut server = Server::new(&identities, &answer);
    let (ticket, now) = ticket(&identities, &mut server);
    let mut client = Client::new(&identities, 2, now, Some((ticket.clone(), b"")));
    for datagram in client.flight(now) {
        server.hear(now, 2, datagram);
    }
    // Nobody is there who would hear it.
    let mut later = now;
    for _ in 0..100 {
        later = server.endpoint.poll_timeout().unwrap_or(later).max(later);
        server.endpoint.handle_timeout(later);
        server.say(later);
        assert!(server.said[2] <= 3 * server.heard[2], "{} for {}", server.said[2], server.heard[2]);
    }
    assert!(server.said[2] > server.heard[2], "it is answered");
    // Who is there has all of it.
    let mut server = Server::new(&identities, &answer);
    let (ticket, now) = self::ticket(&identities, &mut server);
    let mut client = Client::new(&identities, 2, now, Some((ticket, b"")));
    client.settle(&mut server, 2, now);
    assert!(client.answer == Some(Some(answer)) || client.answer == Some(None));
}
