//! Ends of measurements over QUIC by TQUIC, with windows that do not limit it. A thread carries all
//! connections of an end and sleeps in `ppoll`: TQUIC has timers, and leaves sockets to its user.
//! It has no datagrams, and so no messages.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark reads the clock and opens sockets"
)]

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tquic::{
    Config, CongestionControlAlgorithm, Connection, Error, PacketInfo, PacketSendHandler, TlsConfig,
    TransportHandler,
};
use uts_bench_ends::wire::Wire;
use uts_bench_ends::{
    Expense, HANDSHAKES_AT_ONCE, Meter, Outcome, PACKET_BYTES, SERVER_NAME, Stopwatch, Task, WRITE_BYTES,
    Work, announce, from_hex, lacks, many, to_hex,
};

/// Larger ones gain nothing here.
const WINDOW_BYTES: u64 = 16 << 20;

/// Without a packet for this long, a connection ends.
const SILENCE_MAX: Duration = Duration::from_secs(9);

/// The only stream: the first that a client opens in both directions.
const STREAM: u64 = 0;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(2).collect();
    uts_bench_ends::run(&args, serve, call)
}

/// A file that TLS reads, as long as it is needed.
struct Secret(PathBuf);

impl Secret {
    fn new(name: &str, contents: &str) -> Result<Self> {
        let file = std::env::temp_dir().join(format!("uts-bench-{}-{name}", std::process::id()));
        std::fs::write(&file, contents).with_context(|| file.display().to_string())?;
        Ok(Secret(file))
    }

    fn path(&self) -> Result<&str> {
        self.0.to_str().context("the path of temporary files is not UTF-8")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn protocols() -> Vec<Vec<u8>> {
    vec![b"bench".to_vec()]
}

fn settings(tls: TlsConfig) -> Result<Config> {
    let mut config = Config::new()?;
    config.set_max_idle_timeout(SILENCE_MAX.as_millis() as u64);
    config.set_recv_udp_payload_size(PACKET_BYTES as u16);
    config.set_send_udp_payload_size(PACKET_BYTES);
    config.set_initial_max_data(WINDOW_BYTES);
    config.set_max_connection_window(WINDOW_BYTES);
    config.set_initial_max_stream_data_bidi_local(WINDOW_BYTES);
    config.set_initial_max_stream_data_bidi_remote(WINDOW_BYTES);
    config.set_max_stream_window(WINDOW_BYTES);
    config.set_initial_max_streams_bidi(1);
    config.set_congestion_control_algorithm(CongestionControlAlgorithm::Cubic);
    // Nothing is sent while packets are taken in.
    config.enable_stateless_reset(false);
    config.set_tls_config(tls);
    Ok(config)
}

/// Settings of a server, and its certificate as PEM. It hands out tickets, which nobody uses: there
/// is no setting against it.
fn server_settings() -> Result<(Config, String)> {
    let identity = rcgen::generate_simple_self_signed(vec![SERVER_NAME.to_owned()])?;
    let certificate = identity.cert.pem();
    let (chain, key) =
        (Secret::new("chain", &certificate)?, Secret::new("key", &identity.signing_key.serialize_pem())?);
    let tls = TlsConfig::new_server_config(chain.path()?, key.path()?, protocols(), false)?;
    Ok((settings(tls)?, certificate))
}

/// Settings of a client that trusts this certificate.
fn client_settings(certificate: &str) -> Result<Config> {
    let mut tls = TlsConfig::new_client_config(protocols(), false)?;
    tls.set_ca_certs(Secret::new("trusted", certificate)?.path()?)?;
    tls.set_verify(true);
    settings(tls)
}

/// What an end does with its stream.
enum Job {
    /// Takes data until there is no more.
    Take(Option<Meter>),
    /// Sends back what comes.
    Echo,
    /// Sends all it can until time is up.
    Send(Expense, Bytes),
    /// Sends a byte, and the next when it is back.
    Ping(Stopwatch),
    /// Nothing.
    None,
}

/// What has become of connections.
struct Events {
    job: Job,
    established: Vec<u64>,
    /// With the reason.
    ended: Vec<(u64, String)>,
    /// The peer has ended its direction of the stream.
    is_read: bool,
    outcome: Option<Result<Outcome>>,
}

struct Handler(Rc<RefCell<Events>>);

impl TransportHandler for Handler {
    fn on_conn_created(&mut self, _: &mut Connection) {}

    fn on_conn_established(&mut self, connection: &mut Connection) {
        self.0.borrow_mut().established.extend(connection.index());
    }

    fn on_conn_closed(&mut self, connection: &mut Connection) {
        let why = format!("ours: {:?}, theirs: {:?}", connection.local_error(), connection.peer_error());
        self.0.borrow_mut().ended.extend(connection.index().map(|id| (id, why)));
    }

    fn on_stream_created(&mut self, _: &mut Connection, _: u64) {}

    fn on_stream_readable(&mut self, connection: &mut Connection, _: u64) {
        let events = &mut *self.0.borrow_mut();
        if let Err(error) = events.read(connection) {
            events.outcome = Some(Err(error));
        }
    }

    fn on_stream_writable(&mut self, connection: &mut Connection, _: u64) {
        let events = &mut *self.0.borrow_mut();
        if let Err(error) = events.write(connection) {
            events.outcome = Some(Err(error));
        }
    }

    fn on_stream_closed(&mut self, _: &mut Connection, _: u64) {}

    fn on_new_token(&mut self, _: &mut Connection, _: Vec<u8>) {}
}

impl Events {
    fn read(&mut self, connection: &mut Connection) -> Result<()> {
        let mut data = [0; WRITE_BYTES];
        loop {
            let (bytes, is_last) = match connection.stream_read(STREAM, &mut data) {
                Ok(read) => read,
                Err(Error::Done) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            match &mut self.job {
                Job::Take(meter) => {
                    if let Some(meter) = meter {
                        meter.add(bytes)?;
                    }
                    if is_last {
                        self.outcome = meter.take().map(Meter::finish);
                        connection.stream_write(STREAM, Bytes::new(), true)?;
                    }
                }
                Job::Echo => {
                    connection.stream_write(STREAM, Bytes::copy_from_slice(&data[..bytes]), is_last)?;
                    if is_last {
                        self.outcome = Some(Ok(Outcome::default()));
                    }
                }
                Job::Ping(stopwatch) if bytes > 0 => {
                    stopwatch.back();
                    let goes_on = stopwatch.again();
                    let next = Bytes::from_static(if goes_on { &[7] } else { &[] });
                    connection.stream_write(STREAM, next, !goes_on)?;
                }
                Job::Ping(_) | Job::Send(..) | Job::None => {}
            }
            if is_last {
                self.is_read = true;
                return Ok(());
            }
        }
    }

    fn write(&mut self, connection: &mut Connection) -> Result<()> {
        let Job::Send(expense, data) = &mut self.job else {
            return Ok(connection.stream_want_write(STREAM, false)?);
        };
        while expense.goes_on() {
            match connection.stream_write(STREAM, data.clone(), false) {
                Ok(bytes) => expense.bytes += bytes as u64,
                Err(Error::Done) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        connection.stream_write(STREAM, Bytes::new(), true)?;
        Ok(connection.stream_want_write(STREAM, false)?)
    }
}

struct Sender(Rc<RefCell<Wire>>);

impl PacketSendHandler for Sender {
    fn on_packets_send(&self, packets: &[(Vec<u8>, PacketInfo)]) -> tquic::Result<usize> {
        let mut left = packets.iter();
        let sent = self.0.borrow_mut().send(|packet| {
            Ok(left.next().map(|(bytes, info)| {
                packet[..bytes.len()].copy_from_slice(bytes);
                (bytes.len(), info.dst)
            }))
        });
        sent.map(|()| packets.len()).map_err(|error| Error::IoError(error.to_string()))
    }
}

struct Endpoint {
    quic: tquic::Endpoint,
    wire: Rc<RefCell<Wire>>,
    local: SocketAddr,
    events: Rc<RefCell<Events>>,
}

impl Endpoint {
    fn new(ip: IpAddr, config: Config, is_server: bool, job: Job) -> Result<Self> {
        let wire = Wire::bind(ip)?;
        let (local, wire) = (wire.local, Rc::new(RefCell::new(wire)));
        let (established, ended) = (Vec::new(), Vec::new());
        let events = Events { job, established, ended, is_read: false, outcome: None };
        let events = Rc::new(RefCell::new(events));
        let (handler, sender) = (Box::new(Handler(events.clone())), Rc::new(Sender(wire.clone())));
        let quic = tquic::Endpoint::new(Box::new(config), is_server, handler, sender);
        Ok(Endpoint { quic, wire, local, events })
    }

    fn begin(&mut self, to: SocketAddr) -> Result<u64> {
        Ok(self.quic.connect(self.local, to, Some(SERVER_NAME), None, None, None)?)
    }

    /// Begins a connection and carries it until it is established.
    fn connect(&mut self, to: SocketAddr) -> Result<u64> {
        let id = self.begin(to)?;
        while !self.is_established(id)? {
            self.turn(true)?;
        }
        Ok(id)
    }

    fn is_established(&self, id: u64) -> Result<bool> {
        let events = self.events.borrow();
        if let Some((_, why)) = events.ended.iter().find(|(ended, _)| *ended == id) {
            bail!("the connection has ended; {why}");
        }
        Ok(events.established.contains(&id))
    }

    /// Whether a connection has ended, or its peer has said that it does.
    fn is_over(&mut self, id: u64) -> bool {
        self.quic.conn_get_mut(id).is_none_or(|connection| connection.is_draining() || connection.is_closed())
    }

    fn connection(&mut self, id: u64) -> Result<&mut Connection> {
        self.quic.conn_get_mut(id).context("the connection has ended")
    }

    /// Ends a connection.
    fn end(&mut self, id: u64) -> Result<()> {
        self.events.borrow_mut().established.retain(|established| *established != id);
        self.connection(id)?.close(true, 0, b"done")?;
        Ok(self.quic.process_connections()?)
    }

    /// Sends what there is, and takes in what has arrived and what time is up for; `waits` until
    /// there is some.
    fn turn(&mut self, waits: bool) -> Result<()> {
        self.quic.process_connections()?;
        let dst = self.local;
        let patience = if waits { self.quic.timeout() } else { Some(Duration::ZERO) };
        let mut now = None;
        self.wire.borrow_mut().receive(patience, |packet, src| {
            let time = *now.get_or_insert_with(Instant::now);
            // What is wrong with a packet ends its connection, if it must.
            let _ = self.quic.recv(packet, &PacketInfo { src, dst, time });
            Ok(())
        })?;
        self.quic.on_timeout(Instant::now());
        Ok(())
    }

    /// Carries on until `is_over`.
    fn until(&mut self, mut is_over: impl FnMut(&Events) -> bool) -> Result<()> {
        while !is_over(&self.events.borrow()) {
            self.turn(true)?;
        }
        Ok(())
    }
}

fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    let (config, certificate) = server_settings()?;
    let job = match task.work {
        Work::Bulk => Job::Take(Some(Meter::new(task))),
        Work::Ping => Job::Echo,
        Work::Handshakes => Job::None,
        _ => return Err(lacks(task)),
    };
    let mut endpoint = Endpoint::new(ip, config, true, job)?;
    announce(endpoint.local, to_hex(certificate.as_bytes()))?;
    endpoint.until(|events| !events.established.is_empty() || !events.ended.is_empty())?;
    let first = *endpoint.events.borrow().established.first().context("no client")?;
    if task.work == Work::Handshakes {
        return accept_many(&mut endpoint, first);
    }
    // The client ends it once it has the end of the stream.
    while !endpoint.is_over(first) {
        endpoint.turn(true)?;
    }
    let outcome = endpoint.events.borrow_mut().outcome.take();
    outcome.unwrap_or_else(|| Err(anyhow!("the connection has ended")))
}

/// Accepts until the first connection ends.
fn accept_many(endpoint: &mut Endpoint, first: u64) -> Result<Outcome> {
    let mut counter = many::Counter::start()?;
    endpoint.events.borrow_mut().established.clear();
    while !endpoint.is_over(first) {
        endpoint.turn(true)?;
        endpoint.events.borrow_mut().established.drain(..).for_each(|_| many::add(&counter.accepted));
    }
    counter.finish()
}

fn call(task: &Task, to: SocketAddr, certificate: &str) -> Result<Outcome> {
    let any = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let certificate = String::from_utf8(from_hex(certificate)?)?;
    let mut endpoint = Endpoint::new(any, client_settings(&certificate)?, false, Job::None)?;
    let id = endpoint.connect(to)?;
    let outcome = match task.work {
        Work::Bulk | Work::Ping => exchange(task, &mut endpoint, id)?,
        Work::Handshakes => handshakes(task, &mut endpoint, to)?,
        _ => return Err(lacks(task)),
    };
    endpoint.end(id)?;
    Ok(outcome)
}

/// Sends on the stream until time is up, and waits until the server ends its direction.
fn exchange(task: &Task, endpoint: &mut Endpoint, id: u64) -> Result<Outcome> {
    endpoint.connection(id)?.stream_bidi_new(0, false)?;
    if task.work == Work::Ping {
        let mut stopwatch = Stopwatch::start(task)?;
        ensure!(stopwatch.again(), "no time");
        endpoint.events.borrow_mut().job = Job::Ping(stopwatch);
        endpoint.connection(id)?.stream_write(STREAM, Bytes::from_static(&[7]), false)?;
    } else {
        let data = Bytes::from(vec![0x5a; WRITE_BYTES]);
        endpoint.events.borrow_mut().job = Job::Send(Expense::start(task)?, data);
        endpoint.connection(id)?.stream_want_write(STREAM, true)?;
    }
    endpoint.until(|events| events.is_read || events.outcome.is_some() || !events.ended.is_empty())?;
    let stats = endpoint.connection(id)?.stats();
    let (lost_packets, mean) = (stats.lost_count, stats.sent_bytes / stats.sent_count.max(1));
    let events = &mut *endpoint.events.borrow_mut();
    if let Some(outcome) = events.outcome.take() {
        return outcome;
    }
    match std::mem::replace(&mut events.job, Job::None) {
        Job::Ping(stopwatch) => stopwatch.finish(),
        Job::Send(expense, _) => {
            let note = format!("cubic, packets of {mean} B in the mean");
            Ok(Outcome { lost_packets, note, ..expense.finish()? })
        }
        _ => bail!("the connection has ended"),
    }
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
            if endpoint.is_established(id)? {
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
    use std::net::Ipv4Addr;

    /// Turns of both ends, of a millisecond's rest each.
    const TURNS_MAX: usize = 2000;

    /// Carries a new connection to a server until the client has it, or cannot have it.
    fn meet(server: Config, client: Config) -> Result<bool> {
        let ip = Ipv4Addr::LOCALHOST.into();
        let mut server = Endpoint::new(ip, server, true, Job::None)?;
        let mut client = Endpoint::new(ip, client, false, Job::None)?;
        let id = client.begin(server.local)?;
        for _ in 0..TURNS_MAX {
            client.turn(false)?;
            server.turn(false)?;
            match client.is_established(id) {
                Ok(true) => return Ok(true),
                Ok(false) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => return Ok(false),
            }
        }
        bail!("neither in {TURNS_MAX} turns")
    }

    #[test]
    fn a_client_talks_to_a_server_whose_certificate_it_trusts_alone() -> Result<()> {
        let (server, certificate) = server_settings()?;
        assert!(meet(server, client_settings(&certificate)?)?);
        let (other, _) = server_settings()?;
        assert!(!meet(other, client_settings(&certificate)?)?);
        Ok(())
    }
}
