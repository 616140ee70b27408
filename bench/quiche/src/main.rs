//! Ends of measurements over QUIC by quiche, with windows that do not limit it. A thread carries
//! all connections of an end and sleeps in `ppoll`: quiche itself has neither sockets nor timers.
//! Its own programs do the same, and leave pacing to the kernel or, as here, out.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads the clock and opens sockets"
)]

use anyhow::{Context, Result, ensure};
use boring::pkey::PKey;
use boring::ssl::{SslContextBuilder, SslMethod, SslOptions};
use boring::x509::X509;
use bytes::Bytes;
use quiche::{BufFactory, Config, ConnectionId, Error, Header, PROTOCOL_VERSION, RecvInfo, Type};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use uts_bench_ends::wire::Wire;
use uts_bench_ends::{
    Expense, HANDSHAKES_AT_ONCE, MESSAGE_BYTES, Meter, Outcome, PACKET_BYTES, SERVER_NAME, Stopwatch, Task,
    WRITE_BYTES, Work, announce, from_hex, lacks, many, to_hex,
};

/// Larger ones gain nothing here.
const WINDOW_BYTES: u64 = 16 << 20;

/// Messages that wait, to be sent or to be read.
const MESSAGES_MAX: usize = 1 << 14;

/// Without a packet for this long, a connection ends.
const SILENCE_MAX: Duration = Duration::from_secs(9);

/// Messages between two looks at what has arrived, where each has a packet.
const MESSAGES_AT_ONCE: usize = 64;

const PROTOCOL: &[&[u8]] = &[b"bench"];

/// Bytes of the identifiers that an end gives its connections: a number.
const ID_BYTES: usize = 8;

/// The only stream: the first that a client opens in both directions.
const STREAM: u64 = 0;

type Connection = quiche::Connection<Buffers>;

/// What is sent need not be copied into quiche.
#[derive(Clone, Debug, Default)]
struct Buffers;

impl BufFactory for Buffers {
    type Buf = Bytes;
    type DgramBuf = Bytes;

    fn buf_from_slice(buf: &[u8]) -> Bytes {
        Bytes::copy_from_slice(buf)
    }

    fn dgram_buf_from_slice(buf: &[u8]) -> Bytes {
        Bytes::copy_from_slice(buf)
    }
}

fn settings(tls: SslContextBuilder) -> Result<Config> {
    let mut config = Config::with_boring_ssl_ctx_builder(PROTOCOL_VERSION, tls)?;
    config.set_application_protos(PROTOCOL)?;
    config.set_max_idle_timeout(SILENCE_MAX.as_millis() as u64);
    config.set_max_recv_udp_payload_size(PACKET_BYTES);
    config.set_max_send_udp_payload_size(PACKET_BYTES);
    config.set_initial_max_data(WINDOW_BYTES);
    config.set_max_connection_window(WINDOW_BYTES);
    config.set_initial_max_stream_data_bidi_local(WINDOW_BYTES);
    config.set_initial_max_stream_data_bidi_remote(WINDOW_BYTES);
    config.set_max_stream_window(WINDOW_BYTES);
    config.set_initial_max_streams_bidi(1);
    config.enable_dgram(true, MESSAGES_MAX, MESSAGES_MAX);
    config.enable_pacing(false);
    Ok(config)
}

/// Settings of a server, and its certificate.
fn server_settings() -> Result<(Config, Vec<u8>)> {
    let identity = rcgen::generate_simple_self_signed(vec![SERVER_NAME.to_owned()])?;
    let certificate = identity.cert.der().to_vec();
    let mut tls = SslContextBuilder::new(SslMethod::tls())?;
    tls.set_certificate(X509::from_der(&certificate)?.as_ref())?;
    tls.set_private_key(PKey::private_key_from_der(&identity.signing_key.serialize_der())?.as_ref())?;
    // UTS resumes no sessions; every handshake is a whole one.
    tls.set_options(SslOptions::NO_TICKET);
    Ok((settings(tls)?, certificate))
}

/// Settings of a client that trusts this certificate, in hexadecimal digits.
fn client_settings(certificate: &str) -> Result<Config> {
    let mut tls = SslContextBuilder::new(SslMethod::tls())?;
    tls.cert_store_mut().add_cert(X509::from_der(&from_hex(certificate)?)?)?;
    let mut config = settings(tls)?;
    config.verify_peer(true);
    Ok(config)
}

/// Connections that share a socket, by the numbers that this end has given them.
struct Endpoint {
    wire: Wire,
    config: Config,
    is_server: bool,
    connections: HashMap<u64, Connection>,
    /// Of a server: clients that do not know their number yet, by what they have named instead.
    strangers: HashMap<Vec<u8>, u64>,
    next: u64,
    /// Those that may have something to send.
    touched: Vec<u64>,
    /// Why the last one that is over has ended.
    end: String,
}

/// The identifier that a packet is for (RFC 8999).
fn destination(packet: &[u8]) -> Option<&[u8]> {
    let is_long = packet.first()? & 0x80 != 0;
    if !is_long {
        return packet.get(1..=ID_BYTES);
    }
    let bytes = usize::from(*packet.get(5)?);
    packet.get(6..6 + bytes)
}

fn is_initial(packet: &mut [u8]) -> bool {
    Header::from_slice(packet, ID_BYTES).is_ok_and(|header| header.ty == Type::Initial)
}

impl Endpoint {
    fn new(ip: IpAddr, config: Config, is_server: bool) -> Result<Self> {
        let (wire, connections, strangers) = (Wire::bind(ip)?, HashMap::new(), HashMap::new());
        let (next, touched, end) = (0, Vec::new(), String::new());
        Ok(Endpoint { wire, config, is_server, connections, strangers, next, touched, end })
    }

    /// Begins a connection.
    fn begin(&mut self, to: SocketAddr) -> Result<u64> {
        let (id, local) = (self.next, self.wire.local);
        let source = id.to_be_bytes();
        let source = ConnectionId::from_ref(&source);
        let connection =
            quiche::connect_with_buffer_factory(Some(SERVER_NAME), &source, local, to, &mut self.config)?;
        self.connections.insert(id, connection);
        self.next += 1;
        self.touched.push(id);
        Ok(id)
    }

    /// A connection, which may have something to send afterwards.
    fn open(&mut self, id: u64) -> Result<&mut Connection> {
        self.touched.push(id);
        self.connections.get_mut(&id).with_context(|| format!("the connection has ended; {}", self.end))
    }

    /// Begins a connection and carries it until it is established.
    fn connect(&mut self, to: SocketAddr) -> Result<u64> {
        let id = self.begin(to)?;
        while !self.open(id)?.is_established() {
            self.turn(true)?;
        }
        Ok(id)
    }

    /// Ends a connection, and forgets it once that has been said.
    fn end(&mut self, id: u64) -> Result<()> {
        self.open(id)?.close(true, 0, b"done")?;
        self.flush().map(|_| ())
    }

    /// Sends what there is, and takes in what has arrived and what time is up for; `waits` until
    /// there is some. Where a connection is over, that is all for now.
    fn turn(&mut self, waits: bool) -> Result<()> {
        if self.flush()? {
            return Ok(());
        }
        let deadline = self.connections.values().filter_map(Connection::timeout_instant).min();
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let patience = if waits { deadline.map(until) } else { Some(Duration::ZERO) };
        let Endpoint { wire, config, is_server, connections, strangers, next, touched, .. } = self;
        let to = wire.local;
        wire.receive(patience, |packet, from| {
            let Some(named) = destination(packet) else { return Ok(()) };
            let known = named.try_into().ok().map(u64::from_be_bytes).or(strangers.get(named).copied());
            let id = match known.filter(|id| connections.contains_key(id)) {
                Some(id) => id,
                None => {
                    let named = named.to_vec();
                    if !*is_server || !is_initial(packet) {
                        return Ok(());
                    }
                    let (id, source) = (*next, next.to_be_bytes());
                    let source = ConnectionId::from_ref(&source);
                    let connection = quiche::accept_with_buf_factory(&source, None, to, from, config)?;
                    strangers.insert(named, id);
                    connections.insert(id, connection);
                    *next += 1;
                    id
                }
            };
            if touched.last() != Some(&id) {
                touched.push(id);
            }
            if let Some(connection) = connections.get_mut(&id) {
                // What is wrong with a packet ends its connection, if it must.
                let _ = connection.recv(packet, RecvInfo { from, to });
            }
            Ok(())
        })?;
        let now = Instant::now();
        if deadline.is_some_and(|at| at <= now) {
            let late = |c: &Connection| c.timeout_instant().is_some_and(|at| at <= now);
            for (id, connection) in connections.iter_mut().filter(|(_, connection)| late(connection)) {
                connection.on_timeout();
                touched.push(*id);
            }
        }
        Ok(())
    }

    /// Lets as many messages wait as may; gives their number.
    fn enqueue(&mut self, id: u64, message: &Bytes) -> Result<usize> {
        let connection = self.open(id)?;
        let before = connection.dgram_send_queue_len();
        while !connection.is_dgram_send_queue_full() {
            connection.dgram_send_buf(message.clone())?;
        }
        Ok(MESSAGES_MAX - before)
    }

    /// Sends up to so many messages, each in a packet of its own; gives their number.
    fn send_each(&mut self, id: u64, message: &Bytes, count_max: usize) -> Result<usize> {
        let connection = self.connections.get_mut(&id).context("the connection has ended")?;
        let mut count = 0;
        self.wire.send(|packet| {
            if count < count_max && connection.dgram_send_queue_len() == 0 {
                connection.dgram_send_buf(message.clone())?;
                count += 1;
            }
            write(connection, packet)
        })?;
        Ok(count)
    }

    /// Sends what touched connections have to send, and forgets those that are over. Says whether
    /// there were any.
    fn flush(&mut self) -> Result<bool> {
        let before = self.connections.len();
        self.touched.sort_unstable();
        self.touched.dedup();
        for id in self.touched.drain(..) {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            self.wire.send(|packet| write(connection, packet))?;
            if connection.is_closed() || connection.is_draining() {
                let (ours, theirs) = (connection.local_error(), connection.peer_error());
                self.end = format!("ours: {ours:?}, theirs: {theirs:?}");
                self.connections.remove(&id);
                self.strangers.retain(|_, stranger| *stranger != id);
            }
        }
        Ok(self.connections.len() < before)
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(2).collect();
    uts_bench_ends::run(&args, serve, call)
}

/// The next packet of a connection, and whom it is for.
fn write(connection: &mut Connection, packet: &mut [u8]) -> Result<Option<(usize, SocketAddr)>> {
    match connection.send(packet) {
        Ok((bytes, info)) => Ok(Some((bytes, info.to))),
        Err(Error::Done) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    let (config, certificate) = server_settings()?;
    let mut endpoint = Endpoint::new(ip, config, true)?;
    announce(endpoint.wire.local, to_hex(&certificate))?;
    // The first has this number.
    let id = 0;
    while !endpoint.connections.get(&id).is_some_and(Connection::is_established) {
        endpoint.turn(true)?;
        ensure!(endpoint.next == 0 || endpoint.connections.contains_key(&id), "no client; {}", endpoint.end);
    }
    match task.work {
        Work::Bulk => take_bulk(task, &mut endpoint, id),
        Work::Ping => echo(&mut endpoint, id),
        Work::Messages | Work::SingleMessages => take_messages(task, &mut endpoint, id),
        Work::Handshakes => accept_many(&mut endpoint, id),
        _ => Err(lacks(task)),
    }
}

fn take_bulk(task: &Task, endpoint: &mut Endpoint, id: u64) -> Result<Outcome> {
    let (mut meter, mut data) = (Meter::new(task), vec![0; WRITE_BYTES]);
    loop {
        let connection = endpoint.open(id)?;
        while let Ok((bytes, is_last)) = connection.stream_recv(STREAM, &mut data) {
            meter.add(bytes)?;
            if is_last {
                let outcome = meter.finish()?;
                connection.stream_send(STREAM, &[], true)?;
                return await_end(endpoint, id).map(|()| outcome);
            }
        }
        endpoint.turn(true)?;
    }
}

fn echo(endpoint: &mut Endpoint, id: u64) -> Result<Outcome> {
    let mut byte = [0];
    loop {
        let connection = endpoint.open(id)?;
        while let Ok((bytes, is_last)) = connection.stream_recv(STREAM, &mut byte) {
            connection.stream_send(STREAM, &byte[..bytes], is_last)?;
            if is_last {
                return await_end(endpoint, id).map(|()| Outcome::default());
            }
        }
        endpoint.turn(true)?;
    }
}

fn take_messages(task: &Task, endpoint: &mut Endpoint, id: u64) -> Result<Outcome> {
    let mut meter = Meter::new(task);
    while let Some(connection) = endpoint.connections.get_mut(&id) {
        while let Ok(message) = connection.dgram_recv_buf() {
            meter.add(message.len())?;
        }
        endpoint.turn(true)?;
    }
    meter.finish()
}

/// Accepts until the first connection ends.
fn accept_many(endpoint: &mut Endpoint, first: u64) -> Result<Outcome> {
    let mut counter = many::Counter::start()?;
    let mut under_way = Vec::new();
    let mut seen = endpoint.next;
    while endpoint.connections.contains_key(&first) {
        endpoint.turn(true)?;
        under_way.extend(seen..endpoint.next);
        seen = endpoint.next;
        under_way.retain(|id| match endpoint.connections.get(id) {
            Some(connection) if connection.is_established() => {
                many::add(&counter.accepted);
                false
            }
            connection => connection.is_some(),
        });
    }
    counter.finish()
}

/// Carries a connection until its peer ends it.
fn await_end(endpoint: &mut Endpoint, id: u64) -> Result<()> {
    while endpoint.connections.contains_key(&id) {
        endpoint.turn(true)?;
    }
    Ok(())
}

fn call(task: &Task, to: SocketAddr, certificate: &str) -> Result<Outcome> {
    let any = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let mut endpoint = Endpoint::new(any, client_settings(certificate)?, false)?;
    let id = endpoint.connect(to)?;
    let outcome = match task.work {
        Work::Bulk => send_bulk(task, &mut endpoint, id),
        Work::Ping => ping(task, &mut endpoint, id),
        Work::Messages | Work::SingleMessages => send_messages(task, &mut endpoint, id),
        Work::Handshakes => handshakes(task, &mut endpoint, to),
        _ => Err(lacks(task)),
    }?;
    endpoint.end(id)?;
    Ok(outcome)
}

fn send_bulk(task: &Task, endpoint: &mut Endpoint, id: u64) -> Result<Outcome> {
    let (data, mut expense) = (Bytes::from(vec![0x5a; WRITE_BYTES]), Expense::start(task)?);
    let mut rest = data.clone();
    while expense.goes_on() {
        let connection = endpoint.open(id)?;
        loop {
            match connection.stream_send_zc(STREAM, rest.clone(), false) {
                Ok((bytes, left)) => {
                    expense.bytes += bytes as u64;
                    rest = left.unwrap_or_else(|| data.clone());
                }
                Err(Error::Done) => break,
                Err(error) => return Err(error.into()),
            }
        }
        endpoint.turn(true)?;
    }
    let connection = endpoint.open(id)?;
    connection.stream_send(STREAM, &[], true)?;
    // The server ends its direction once it has read everything.
    read_end(endpoint, id)?;
    let stats = endpoint.open(id)?.stats();
    let note = format!("cubic, {PACKET_BYTES} B packets, no pacing");
    Ok(Outcome { lost_packets: stats.lost as u64, note, ..expense.finish()? })
}

fn ping(task: &Task, endpoint: &mut Endpoint, id: u64) -> Result<Outcome> {
    let mut stopwatch = Stopwatch::start(task)?;
    let mut byte = [0];
    while stopwatch.again() {
        endpoint.open(id)?.stream_send(STREAM, &byte, false)?;
        while endpoint.open(id)?.stream_recv(STREAM, &mut byte).is_err() {
            endpoint.turn(true)?;
        }
        stopwatch.back();
    }
    endpoint.open(id)?.stream_send(STREAM, &[], true)?;
    read_end(endpoint, id)?;
    stopwatch.finish()
}

/// Waits until the server ends its direction.
fn read_end(endpoint: &mut Endpoint, id: u64) -> Result<()> {
    let mut byte = [0];
    while !matches!(endpoint.open(id)?.stream_recv(STREAM, &mut byte), Ok((_, true))) {
        endpoint.turn(true)?;
    }
    Ok(())
}

fn send_messages(task: &Task, endpoint: &mut Endpoint, id: u64) -> Result<Outcome> {
    let (message, mut expense) = (Bytes::from(vec![0x5a; MESSAGE_BYTES]), Expense::start(task)?);
    while expense.goes_on() {
        // Reading the clock for each message would be a part of its cost.
        let count = match task.work {
            Work::SingleMessages => endpoint.send_each(id, &message, MESSAGES_AT_ONCE)?,
            _ => endpoint.enqueue(id, &message)?,
        };
        expense.bytes += (count * message.len()) as u64;
        let is_full = endpoint.open(id)?.dgram_send_queue_len() > 0;
        endpoint.turn(is_full)?;
    }
    let outcome = expense.finish()?;
    let stats = endpoint.open(id)?.stats();
    let (packets, messages) = (stats.sent, stats.dgram_sent);
    if task.work == Work::SingleMessages {
        ensure!(packets >= messages, "{messages} messages have left in {packets} packets");
    }
    Ok(outcome)
}

/// As [`many::handshakes`].
fn handshakes(task: &Task, endpoint: &mut Endpoint, to: SocketAddr) -> Result<Outcome> {
    let mut shakes = many::Shakes::start()?;
    while shakes.elapsed() < task.duration / 2 {
        let before = Instant::now();
        let id = endpoint.connect(to)?;
        shakes.took(before.elapsed());
        endpoint.end(id)?;
    }
    let mut under_way: Vec<u64> = Vec::new();
    while shakes.elapsed() < task.duration || !under_way.is_empty() {
        while shakes.elapsed() < task.duration && under_way.len() < HANDSHAKES_AT_ONCE {
            under_way.push(endpoint.begin(to)?);
        }
        endpoint.turn(true)?;
        for id in std::mem::take(&mut under_way) {
            if endpoint.open(id)?.is_established() {
                shakes.count += 1;
                endpoint.end(id)?;
            } else {
                under_way.push(id);
            }
        }
    }
    shakes.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::net::Ipv4Addr;

    /// Turns of both ends, of a millisecond's rest each.
    const TURNS_MAX: usize = 2000;

    /// Carries a new connection to a server until the client has it, or does not have it any more.
    fn meet(server: Config, client: Config) -> Result<bool> {
        let ip = Ipv4Addr::LOCALHOST.into();
        let (mut server, mut client) = (Endpoint::new(ip, server, true)?, Endpoint::new(ip, client, false)?);
        let id = client.begin(server.wire.local)?;
        for _ in 0..TURNS_MAX {
            client.turn(false)?;
            server.turn(false)?;
            match client.connections.get(&id) {
                None => return Ok(false),
                Some(connection) if connection.is_established() => return Ok(true),
                Some(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        bail!("neither in {TURNS_MAX} turns")
    }

    #[test]
    fn a_client_talks_to_a_server_whose_certificate_it_trusts_alone() -> Result<()> {
        let (server, certificate) = server_settings()?;
        assert!(meet(server, client_settings(&to_hex(&certificate))?)?);
        let (other, _) = server_settings()?;
        assert!(!meet(other, client_settings(&to_hex(&certificate))?)?);
        Ok(())
    }
}
