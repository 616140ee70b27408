//! QUIC by s2n-quic as it comes, with windows that do not limit it.

use super::{
    Expense, Meter, Outcome, PACKET_BYTES, SERVER_NAME, SOCKET_BUFFER_BYTES, Stopwatch, Task, WRITE_BYTES,
    Work, announce, from_hex, lacks, run_task, to_hex,
};
use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use s2n_quic::client::Connect;
use s2n_quic::provider::congestion_controller::Cubic;
use s2n_quic::provider::io::tokio::Provider as Io;
use s2n_quic::provider::limits::Limits;
use s2n_quic::{Client, Connection, Server};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};

/// Larger ones gain nothing here, and cost memory.
const WINDOW_BYTES: u64 = 16 << 20;

/// What its packets are called by: IP and UDP headers count.
const MTU_BYTES: u16 = PACKET_BYTES as u16 + 28;

fn io(at: SocketAddr) -> Result<Io, Box<dyn Error>> {
    Ok(Io::builder()
        .with_receive_address(at)?
        .with_recv_buffer_size(SOCKET_BUFFER_BYTES)?
        .with_send_buffer_size(SOCKET_BUFFER_BYTES)?
        .with_max_mtu(MTU_BYTES)?
        .with_initial_mtu(MTU_BYTES)?
        .build()?)
}

fn limits() -> Result<Limits, Box<dyn Error>> {
    Ok(Limits::new()
        .with_data_window(WINDOW_BYTES)?
        .with_bidirectional_local_data_window(WINDOW_BYTES)?
        .with_bidirectional_remote_data_window(WINDOW_BYTES)?
        .with_max_send_buffer_size(WINDOW_BYTES as u32)?)
}

fn server(ip: IpAddr, certificate: &str, key: &str) -> Result<Server, Box<dyn Error>> {
    Ok(Server::builder()
        .with_tls((certificate, key))?
        .with_io(io(SocketAddr::new(ip, 0))?)?
        .with_limits(limits()?)?
        .with_congestion_controller(Cubic::default())?
        .start()?)
}

fn client(to: SocketAddr, certificate: &str) -> Result<Client, Box<dyn Error>> {
    let any = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    Ok(Client::builder()
        .with_tls(certificate)?
        .with_io(io(SocketAddr::new(any, 0))?)?
        .with_limits(limits()?)?
        .with_congestion_controller(Cubic::default())?
        .start()?)
}

/// What went wrong, of whatever kind.
fn wrong(what: &str) -> impl Fn(Box<dyn Error>) -> anyhow::Error + '_ {
    move |error| anyhow!("{what}: {error}")
}

pub fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    let identity = rcgen::generate_simple_self_signed(vec![SERVER_NAME.to_owned()])?;
    let (certificate, key) = (identity.cert.pem(), identity.signing_key.serialize_pem());
    let task = task.clone();
    run_task(async move {
        let task = &task;
        let mut server = server(ip, &certificate, &key).map_err(wrong("s2n-quic server"))?;
        announce(server.local_addr()?, to_hex(certificate.as_bytes()))?;
        let mut connection = server.accept().await.context("no client")?;
        let stream = connection.accept_bidirectional_stream().await?.context("no stream")?;
        let (mut recv, mut send) = stream.split();
        let outcome = match task.work {
            Work::Bulk => {
                let mut meter = Meter::new(task);
                let mut chunks: [Bytes; 32] = Default::default();
                loop {
                    let (filled, is_open) = recv.receive_vectored(&mut chunks).await?;
                    if filled > 0 {
                        meter.add(chunks.iter_mut().take(filled).map(|c| std::mem::take(c).len()).sum())?;
                    }
                    if !is_open {
                        break meter.finish()?;
                    }
                }
            }
            Work::Ping => {
                while let Some(byte) = recv.receive().await? {
                    send.send(byte).await?;
                }
                Outcome::default()
            }
            _ => return Err(lacks(task)),
        };
        // The client may be gone by now: it has its answer.
        let _ = send.close().await;
        Ok(outcome)
    })
}

pub fn call(task: &Task, to: SocketAddr, certificate: &str) -> Result<Outcome> {
    let certificate = String::from_utf8(from_hex(certificate)?)?;
    let task = task.clone();
    run_task(async move {
        let task = &task;
        let mut client = client(to, &certificate).map_err(wrong("s2n-quic client"))?;
        let mut connection: Connection =
            client.connect(Connect::new(to).with_server_name(SERVER_NAME)).await?;
        let (mut recv, mut send) = connection.open_bidirectional_stream().await?.split();
        let outcome = match task.work {
            Work::Bulk => {
                let (data, mut expense) = (Bytes::from(vec![0x5a; WRITE_BYTES]), Expense::start(task)?);
                while expense.goes_on() {
                    send.send(data.clone()).await?;
                    expense.bytes += data.len() as u64;
                }
                // Once the server has all.
                send.close().await?;
                Outcome { note: format!("cubic, {PACKET_BYTES} B packets"), ..expense.finish()? }
            }
            Work::Ping => {
                let mut stopwatch = Stopwatch::start(task)?;
                while stopwatch.again() {
                    send.send(Bytes::from_static(&[7])).await?;
                    recv.receive().await?.context("the server has ended the stream")?;
                    stopwatch.back();
                }
                send.finish()?;
                stopwatch.finish()?
            }
            _ => return Err(lacks(task)),
        };
        // The server ends its direction once it has read everything.
        while recv.receive().await?.is_some() {}
        connection.close(0u32.into());
        client.wait_idle().await?;
        Ok(outcome)
    })
}
