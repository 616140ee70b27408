//! UTS, as its users have it: the defaults of the library.

use super::{
    Expense, HANDSHAKES_AT_ONCE, MESSAGE_BYTES, Meter, Outcome, Stopwatch, Task, Transport, WRITE_BYTES,
    Work, announce, lacks, many, run_task,
};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uts::{
    Chunk, ConnectOptions, Connection, ConnectionConfig, Direction, Endpoint, Fingerprint, Flow, FlowOptions,
    Identity, Listener, MessageBatch, MessageOptions, RecvFlow, ServerOptions,
};

pub(super) const READ_BYTES: usize = 1 << 20;

/// Messages that are handed over at a time.
const MESSAGES_HANDED_OVER: usize = 256;

/// Messages that are taken at a time.
const MESSAGES_AT_ONCE: usize = 256;

/// How long a waiting end looks for arrivals.
const SPIN: Duration = Duration::from_millis(1);

/// Memory that is left to others when connections are piled up.
const SPARE_BYTES: u64 = 2 << 30;

/// How long connections may be piled up.
const PILING_MAX: Duration = Duration::from_secs(150);

/// How long it is watched what idle connections cost.
const IDLE: Duration = Duration::from_secs(2);

/// The last handshakes still have work to do, and connections go to rest after two seconds. Neither
/// counts as idle.
const SETTLING: Duration = Duration::from_secs(3);

fn settings(task: &Task) -> Result<ConnectionConfig> {
    let mut config = ConnectionConfig::default();
    let asked: &[&str] = match task.transport {
        Transport::UtsCrc32c | Transport::UtsCrc32cBlocking => {
            &["uts.security=unprotected", "uts.profile.detection=crc-32c"]
        }
        Transport::UtsBare => &[
            "uts.security=unprotected",
            "uts.profile.detection=none",
            "uts.profile.retransmission=none",
            "reliability=prohibit",
            "uts.adapt=off",
        ],
        _ => &[],
    };
    let messages: &[&str] = match task.work {
        Work::Messages | Work::SingleMessages => {
            // What QUIC's datagrams have: neither repeats nor order nor flow control.
            &[
                "preserveMsgBoundaries=require",
                "reliability=prohibit",
                "preserveOrder=prohibit",
                "uts.profile.flow=none",
            ]
        }
        _ => &[],
    };
    for property in asked.iter().chain(messages) {
        config.requirements.assign(property)?;
    }
    for property in &task.properties {
        config.requirements.assign(property)?;
    }
    config.coalesce = task.work != Work::SingleMessages;
    if task.work == Work::Idle {
        config.idle_timeout = Duration::ZERO;
    }
    Ok(config)
}

/// The next bytes; `None` at the end.
async fn read(recv: &mut RecvFlow) -> Result<Option<Bytes>> {
    Ok(recv.recv_chunk(READ_BYTES).await?.map(bytes_of))
}

pub(super) fn bytes_of(chunk: Chunk) -> Bytes {
    match chunk {
        Chunk::Bytes(_, bytes)
        | Chunk::Message(bytes)
        | Chunk::Damaged { message: bytes, .. }
        | Chunk::Timed { message: bytes, .. } => bytes,
        // Nobody asks for playout here.
        Chunk::Missing { .. } => Bytes::new(),
    }
}

/// How long a waiting end looks for arrivals instead of sleeping.
fn spin(task: &Task) -> Duration {
    if task.work == Work::Spin { SPIN } else { Duration::ZERO }
}

pub(super) fn server_options(task: &Task) -> Result<ServerOptions> {
    let mut options = ServerOptions::new(Identity::generate()?);
    (options.connection, options.spin) = (settings(task)?, spin(task));
    options.connections_max = options.connections_max.max(task.connections + 1);
    Ok(options)
}

pub(super) fn client_options(task: &Task, fingerprint: Fingerprint) -> Result<ConnectOptions> {
    let mut options = ConnectOptions::pinned(fingerprint);
    (options.connection, options.spin) = (settings(task)?, spin(task));
    Ok(options)
}

pub fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    let task = task.clone();
    run_task(async move {
        let task = &task;
        let listener = Listener::bind(SocketAddr::new(ip, 0), server_options(task)?)?;
        announce(listener.local_addr(), listener.fingerprint().to_string())?;
        let connection = listener.accept().await.context("no client")?;
        match task.work {
            Work::Handshakes => accept_many(&listener, &connection).await,
            Work::Idle => hold_many(&listener, &connection).await,
            Work::Shared => take_shared(task, &listener, connection).await,
            _ => {
                let outcome = take(task, connection.accept_flow().await.context("no flow")?).await?;
                connection.closed().await;
                Ok(outcome)
            }
        }
    })
}

async fn take(task: &Task, flow: Flow) -> Result<Outcome> {
    let (mut send, mut recv) = flow.split();
    let outcome = match task.work {
        Work::Bulk => {
            let mut meter = Meter::new(task);
            while let Some(bytes) = read(&mut recv).await? {
                meter.add(bytes.len())?;
            }
            meter.finish()?
        }
        Work::Ping | Work::Spin => {
            while let Some(bytes) = read(&mut recv).await? {
                send.write_bytes(bytes).await?;
            }
            Outcome::default()
        }
        Work::Messages | Work::SingleMessages => {
            let mut meter = Meter::new(task);
            // Its end may be lost: that of the connection is not.
            let mut batch = MessageBatch::new();
            while recv.recv_batch(&mut batch, MESSAGES_AT_ONCE).await.is_ok_and(|count| count > 0) {
                // The sum is kept in a register. In memory, each addition would have to wait for
                // the one before.
                meter.add(
                    batch.iter().fold(0, |bytes, message| bytes + std::hint::black_box(message).len()),
                )?;
                batch.clear();
            }
            return meter.finish();
        }
        _ => return Err(lacks(task)),
    };
    send.finish()?;
    Ok(outcome)
}

/// Accepts until the first connection ends.
async fn accept_many(listener: &Listener, first: &Connection) -> Result<Outcome> {
    let mut counter = many::Counter::start()?;
    loop {
        tokio::select! {
            biased;
            accepted = listener.accept() => {
                let connection = accepted.context("the listener is gone")?;
                many::add(&counter.accepted);
                tokio::spawn(async move { connection.closed().await });
            }
            _ = first.closed() => return counter.finish(),
        }
    }
}

/// Holds connections until the first one says, by a flow, that there are enough. Then watches what
/// they cost.
async fn hold_many(listener: &Listener, first: &Connection) -> Result<Outcome> {
    let (mut held, mut growth) = (Vec::new(), many::Growth::start());
    loop {
        tokio::select! {
            biased;
            accepted = listener.accept() => held.push(accepted.context("the listener is gone")?),
            _ = first.accept_flow() => break,
        }
        growth.look(held.len());
    }
    let bytes_each = growth.bytes_each();
    tokio::time::sleep(SETTLING).await;
    let idle_cpu = many::idle_cpu(IDLE).await?;
    first.closed().await;
    Ok(Outcome { count: held.len() as u64, bytes_each, idle_cpu, ..Outcome::default() })
}

/// Reads from many connections what they have, for this long; says how evenly they were served.
async fn take_shared(task: &Task, listener: &Listener, first: Connection) -> Result<Outcome> {
    let mut counts = Vec::new();
    for _ in 0..task.connections {
        let connection = listener.accept().await.context("the listener is gone")?;
        let count = Arc::new(AtomicU64::new(0));
        counts.push(count.clone());
        tokio::spawn(async move {
            let (_send, mut recv) = connection.accept_flow().await.context("no flow")?.split();
            while let Some(bytes) = read(&mut recv).await? {
                count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    // The first connection's flow says that all begin now.
    let _start = first.accept_flow().await.context("no flow")?;
    let all = || counts.iter().map(|c| c.load(Ordering::Relaxed)).collect::<Vec<_>>();
    tokio::time::sleep(task.warm_up()).await;
    let (before, cpu_before, started) = (all(), crate::usage::cpu_s()?, Instant::now());
    tokio::time::sleep(task.duration - task.warm_up()).await;
    let (after, cpu_s, counted_s) =
        (all(), crate::usage::cpu_s()? - cpu_before, started.elapsed().as_secs_f64());
    let shares: Vec<f64> = after.iter().zip(&before).map(|(a, b)| (a - b) as f64).collect();
    let bytes = shares.iter().sum::<f64>() as u64;
    let count = shares.len() as u64;
    let jain = many::jain(&shares);
    Ok(Outcome { bytes, counted_bytes: bytes, counted_s, cpu_s, count, jain, ..Outcome::default() })
}

pub fn call(task: &Task, to: SocketAddr, fingerprint: &str) -> Result<Outcome> {
    let (task, fingerprint) = (task.clone(), fingerprint.parse()?);
    run_task(async move {
        let task = &task;
        let options = client_options(task, fingerprint)?;
        let any = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
        let connector = Connector { to: to.to_string(), options: Arc::new(options) };
        if matches!(task.work, Work::Handshakes | Work::Idle | Work::Shared) {
            let endpoint = Arc::new(Endpoint::client(SocketAddr::new(any, 0))?);
            let first = connector.connect(&endpoint).await?;
            let outcome = match task.work {
                Work::Handshakes => {
                    let connect = || {
                        let (connector, endpoint) = (connector.clone(), endpoint.clone());
                        async move { connector.connect(&endpoint).await.map(drop) }
                    };
                    many::handshakes(task, HANDSHAKES_AT_ONCE, connect).await?
                }
                Work::Idle => pile_up(task, &connector, &endpoint, &first).await?,
                _ => send_shared(task, &connector, &endpoint, &first).await?,
            };
            first.close(0, "done").await;
            return Ok(outcome);
        }
        let connection = uts::connect(&connector.to, (*connector.options).clone()).await?;
        let flow = connection.open_flow(FlowOptions::default()).await?;
        let outcome = match task.work {
            Work::Bulk => send_bulk(task, &connection, flow).await?,
            Work::Ping | Work::Spin => ping(task, flow).await?,
            Work::Messages | Work::SingleMessages => send_messages(task, &connection, flow).await?,
            _ => return Err(lacks(task)),
        };
        check(task, connection.profile(Direction::Out))?;
        connection.close(0, "done").await;
        Ok(outcome)
    })
}

#[derive(Clone)]
struct Connector {
    to: String,
    options: Arc<ConnectOptions>,
}

impl Connector {
    async fn connect(&self, endpoint: &Endpoint) -> Result<Connection> {
        Ok(endpoint.connect(&self.to, (*self.options).clone()).await?)
    }
}

async fn send_bulk(task: &Task, connection: &Connection, flow: Flow) -> Result<Outcome> {
    let (mut send, mut recv) = flow.split();
    let (data, mut expense) = (Bytes::from(vec![0x5a; WRITE_BYTES]), Expense::start(task)?);
    while expense.goes_on() {
        send.write_bytes(data.clone()).await?;
        expense.bytes += data.len() as u64;
    }
    send.finish()?;
    send.finished().await?;
    // The server ends its direction once it has read everything.
    ensure!(read(&mut recv).await?.is_none(), "bulk data came back");
    let lost_packets = connection.stats().packets_lost;
    Ok(Outcome { lost_packets, note: profile(connection)?, ..expense.finish()? })
}

async fn ping(task: &Task, flow: Flow) -> Result<Outcome> {
    let (mut send, mut recv) = flow.split();
    let mut stopwatch = Stopwatch::start(task)?;
    while stopwatch.again() {
        send.write_bytes(Bytes::from_static(&[7])).await?;
        let back = read(&mut recv).await?.context("the server has ended the flow")?;
        ensure!(back.len() == 1, "{} bytes came back instead of one", back.len());
        stopwatch.back();
    }
    send.finish()?;
    ensure!(read(&mut recv).await?.is_none(), "more came back than was sent");
    stopwatch.finish()
}

async fn send_messages(task: &Task, connection: &Connection, mut flow: Flow) -> Result<Outcome> {
    // Shared, as bulk data and the messages of others are: none copies at its interface.
    let messages = Bytes::from(vec![0x5a; MESSAGES_HANDED_OVER * MESSAGE_BYTES]);
    let (mut batch, mut expense) = (MessageBatch::new(), Expense::start(task)?);
    while expense.goes_on() {
        // Reading the clock for each message would be a part of its cost.
        batch.push_all(messages.clone(), MESSAGE_BYTES)?;
        flow.send_half().send_batch(&mut batch, MessageOptions::default()).await?;
        expense.bytes += messages.len() as u64;
    }
    let lost_packets = connection.stats().packets_lost;
    let outcome = Outcome { lost_packets, note: profile(connection)?, ..expense.finish()? };
    flow.finish()?;
    Ok(outcome)
}

/// Makes connections and keeps them; then watches what they cost.
async fn pile_up(
    task: &Task,
    connector: &Connector,
    endpoint: &Arc<Endpoint>,
    first: &Connection,
) -> Result<Outcome> {
    let (start, mut growth) = (Instant::now(), many::Growth::start());
    let (mut held, mut running) = (Vec::new(), tokio::task::JoinSet::new());
    let mut note = String::new();
    while held.len() < task.connections {
        while running.len() < HANDSHAKES_AT_ONCE.min(task.connections - held.len()) {
            let (connector, endpoint) = (connector.clone(), endpoint.clone());
            running.spawn(async move { connector.connect(&endpoint).await });
        }
        held.push(running.join_next().await.context("nothing runs")???);
        growth.look(held.len());
        if start.elapsed() > PILING_MAX {
            note = format!("stopped after {} s", PILING_MAX.as_secs());
        }
        if held.len() % 256 == 0 && many::available_bytes() < SPARE_BYTES {
            note = format!("stopped with {} GiB of memory left", SPARE_BYTES >> 30);
        }
        if !note.is_empty() {
            break;
        }
    }
    let bytes_each = growth.bytes_each();
    let mut flow = first.open_flow(FlowOptions::default()).await?;
    flow.finish()?;
    tokio::time::sleep(SETTLING).await;
    let idle_cpu = many::idle_cpu(IDLE).await?;
    Ok(Outcome { count: held.len() as u64, bytes_each, idle_cpu, note, ..Outcome::default() })
}

/// Sends all that goes through over many connections.
async fn send_shared(
    task: &Task,
    connector: &Connector,
    endpoint: &Arc<Endpoint>,
    first: &Connection,
) -> Result<Outcome> {
    let mut connections = Vec::new();
    for _ in 0..task.connections {
        connections.push(connector.connect(endpoint).await?);
    }
    let data = Bytes::from(vec![0x5a; WRITE_BYTES]);
    let mut start = first.open_flow(FlowOptions::default()).await?;
    start.finish()?;
    let mut expense = Expense::start(task)?;
    for connection in &connections {
        let mut flow = connection.open_flow(FlowOptions::default()).await?;
        let data = data.clone();
        tokio::spawn(async move { while flow.send_half().write_bytes(data.clone()).await.is_ok() {} });
    }
    tokio::time::sleep(task.duration).await;
    expense.bytes = connections.iter().map(|c| c.stats().data_bytes_sent).sum();
    let lost_packets = connections.iter().map(|c| c.stats().packets_lost).sum();
    Ok(Outcome { lost_packets, ..expense.finish()? })
}

/// The profile that data was last sent under.
fn profile(connection: &Connection) -> Result<String> {
    let profile = connection.profile(Direction::Out).context("no profile")?;
    Ok(uts::Function::ALL
        .iter()
        .map(|f| profile.name(*f))
        .filter(|n| *n != "none")
        .collect::<Vec<_>>()
        .join(" "))
}

/// Checks that unprotected means unprotected and protected means protected, and that there is no
/// detection and no repetition if none was asked for.
pub(super) fn check(task: &Task, profile: Option<uts::Profile>) -> Result<()> {
    use uts::Function::{Detection, Protection, Retransmission};
    let profile = profile.context("no profile")?;
    let expected: &[(uts::Function, &str)] = match task.transport {
        Transport::UtsCrc32c | Transport::UtsCrc32cBlocking => {
            &[(Protection, "none"), (Detection, "crc-32c")]
        }
        Transport::UtsBare => &[(Protection, "none"), (Detection, "none"), (Retransmission, "none")],
        _ => &[(Protection, "aes-128-gcm")],
    };
    for (function, name) in expected {
        if profile.name(*function) != *name {
            bail!("{} is {}, not {name}", function.name(), profile.name(*function));
        }
    }
    Ok(())
}
