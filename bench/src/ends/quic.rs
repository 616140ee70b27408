//! QUIC by quinn, with windows that do not limit it.

use super::{
    Expense, HANDSHAKES_AT_ONCE, MESSAGE_BYTES, Meter, Outcome, PACKET_BYTES, SERVER_NAME,
    SOCKET_BUFFER_BYTES, Stopwatch, Task, WRITE_BYTES, Work, announce, certificates, lacks, many, run_task,
    to_hex,
};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, MtuDiscoveryConfig, RecvStream, SendStream,
    ServerConfig, TransportConfig, VarInt,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const WINDOW_BYTES: u32 = 64 << 20;

fn settings() -> TransportConfig {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(PACKET_BYTES as u16);
    let mut settings = TransportConfig::default();
    settings
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
        .receive_window(VarInt::from_u32(WINDOW_BYTES))
        .send_window(WINDOW_BYTES.into())
        .initial_mtu(PACKET_BYTES as u16)
        .mtu_discovery_config(Some(discovery));
    settings
}

fn endpoint(ip: IpAddr, server: Option<ServerConfig>) -> Result<Endpoint> {
    use socket2::{Domain, Socket, Type};
    let addr = SocketAddr::new(ip, 0);
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, None)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.bind(&addr.into())?;
    let runtime = Arc::new(quinn::TokioRuntime);
    Ok(Endpoint::new(EndpointConfig::default(), server, socket.into(), runtime)?)
}

pub fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    let task = task.clone();
    let (tls, certificate) = certificates::server()?;
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(Arc::new(settings()));
    run_task(async move {
        let (task, endpoint) = (&task, endpoint(ip, Some(config))?);
        announce(endpoint.local_addr()?, to_hex(&certificate))?;
        if task.work == Work::Handshakes {
            return accept_many(&endpoint).await;
        }
        let connection = endpoint.accept().await.context("no client")?.await?;
        let outcome = match task.work {
            Work::Bulk => take_bulk(task, connection.accept_bi().await?).await?,
            Work::Ping => {
                let (mut send, mut recv) = connection.accept_bi().await?;
                let mut byte = [0];
                while recv.read(&mut byte).await?.is_some() {
                    send.write_all(&byte).await?;
                }
                send.finish()?;
                Outcome::default()
            }
            Work::Messages | Work::SingleMessages => {
                let mut meter = Meter::new(task);
                while let Ok(message) = connection.read_datagram().await {
                    meter.add(message.len())?;
                }
                return meter.finish();
            }
            _ => return Err(lacks(task)),
        };
        connection.closed().await;
        Ok(outcome)
    })
}

async fn take_bulk(task: &Task, (mut send, mut recv): (SendStream, RecvStream)) -> Result<Outcome> {
    let mut meter = Meter::new(task);
    let mut chunks: [Bytes; 32] = Default::default();
    while let Some(filled) = recv.read_chunks(&mut chunks).await? {
        meter.add(chunks.iter().take(filled).map(Bytes::len).sum())?;
    }
    send.finish()?;
    meter.finish()
}

/// Accepts until the first connection ends.
async fn accept_many(endpoint: &Endpoint) -> Result<Outcome> {
    let first = endpoint.accept().await.context("no client")?.await?;
    let mut counter = many::Counter::start()?;
    loop {
        tokio::select! {
            biased;
            incoming = endpoint.accept() => {
                let incoming = incoming.context("the endpoint is gone")?;
                let accepted = counter.accepted.clone();
                tokio::spawn(async move {
                    if let Ok(connection) = incoming.await {
                        many::add(&accepted);
                        connection.closed().await;
                    }
                });
            }
            _ = first.closed() => return counter.finish(),
        }
    }
}

fn client_config(work: Work, certificate: &str) -> Result<ClientConfig> {
    let tls = certificates::client(certificate)?;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let mut settings = settings();
    if work == Work::SingleMessages {
        // There is no setting for one packet each. With room for one packet, a second comes only
        // after the first has left.
        settings.datagram_send_buffer_size(2 * MESSAGE_BYTES);
    }
    config.transport_config(Arc::new(settings));
    Ok(config)
}

pub fn call(task: &Task, to: SocketAddr, certificate: &str) -> Result<Outcome> {
    let (task, config) = (task.clone(), client_config(task.work, certificate)?);
    run_task(async move {
        let task = &task;
        let any = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
        let endpoint = endpoint(any, None)?;
        let connection = endpoint.connect_with(config.clone(), to, SERVER_NAME)?.await?;
        let outcome = match task.work {
            Work::Bulk => send_bulk(task, &connection).await?,
            Work::Ping => ping(task, connection.open_bi().await?).await?,
            Work::Messages | Work::SingleMessages => send_messages(task, &connection).await?,
            Work::Handshakes => {
                let connect = || {
                    let connecting = endpoint.connect_with(config.clone(), to, SERVER_NAME);
                    async move {
                        connecting?.await?;
                        anyhow::Ok(())
                    }
                };
                many::handshakes(task, HANDSHAKES_AT_ONCE, connect).await?
            }
            _ => return Err(lacks(task)),
        };
        connection.close(0u32.into(), b"done");
        endpoint.wait_idle().await;
        Ok(outcome)
    })
}

async fn send_messages(task: &Task, connection: &Connection) -> Result<Outcome> {
    let (message, mut expense) = (Bytes::from(vec![0x5a; MESSAGE_BYTES]), Expense::start(task)?);
    while expense.goes_on() {
        // Reading the clock for each message would be a part of its cost.
        for _ in 0..64 {
            connection.send_datagram_wait(message.clone()).await?;
            expense.bytes += message.len() as u64;
        }
    }
    let outcome = expense.finish()?;
    let stats = connection.stats();
    let (packets, messages) = (stats.udp_tx.datagrams, stats.frame_tx.datagram);
    if task.work == Work::SingleMessages {
        ensure!(packets >= messages, "{messages} messages have left in {packets} packets");
    }
    Ok(outcome)
}

async fn send_bulk(task: &Task, connection: &Connection) -> Result<Outcome> {
    let (mut send, mut recv) = connection.open_bi().await?;
    let (data, mut expense) = (Bytes::from(vec![0x5a; WRITE_BYTES]), Expense::start(task)?);
    while expense.goes_on() {
        send.write_chunk(data.clone()).await?;
        expense.bytes += data.len() as u64;
    }
    send.finish()?;
    // The server ends its direction once it has read everything.
    recv.read_to_end(0).await?;
    let stats = connection.stats().path;
    let mtu = stats.current_mtu;
    let note = format!("cubic, {mtu} B packets");
    Ok(Outcome { lost_packets: stats.lost_packets, note, ..expense.finish()? })
}

async fn ping(task: &Task, (mut send, mut recv): (SendStream, RecvStream)) -> Result<Outcome> {
    let mut stopwatch = Stopwatch::start(task)?;
    let mut byte = [0];
    while stopwatch.again() {
        send.write_all(&byte).await?;
        recv.read_exact(&mut byte).await?;
        stopwatch.back();
    }
    send.finish()?;
    recv.read_to_end(0).await?;
    stopwatch.finish()
}
