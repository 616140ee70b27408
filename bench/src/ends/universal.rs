//! UTS, as its users have it: the defaults of the library.

use super::{Expense, Meter, Outcome, Stopwatch, Task, Transport, WRITE_BYTES, Work, announce, runtime};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use uts::{
    Chunk, ConnectOptions, Connection, ConnectionConfig, Direction, FlowOptions, Identity, Listener,
    RecvFlow, ServerOptions, connect,
};

/// Names the variable that holds further properties, `name=value`, one in a line.
pub const PROPERTIES: &str = "UTS_BENCH_PROPERTIES";

const READ_BYTES: usize = 1 << 20;

fn settings(task: &Task) -> Result<ConnectionConfig> {
    let mut config = ConnectionConfig::default();
    if task.transport == Transport::UtsUnprotected {
        config.requirements.set("uts.security", "unprotected")?;
    }
    for property in std::env::var(PROPERTIES).unwrap_or_default().lines() {
        config.requirements.assign(property)?;
    }
    Ok(config)
}

/// The next bytes; `None` at the end.
async fn read(recv: &mut RecvFlow) -> Result<Option<Bytes>> {
    Ok(recv.recv_chunk(READ_BYTES).await?.map(|chunk| match chunk {
        Chunk::Bytes(_, bytes) | Chunk::Message(bytes) => bytes,
    }))
}

pub fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    runtime()?.block_on(async {
        let mut options = ServerOptions::new(Identity::generate()?);
        options.connection = settings(task)?;
        let listener = Listener::bind(SocketAddr::new(ip, 0), options)?;
        announce(listener.local_addr(), listener.fingerprint().to_string())?;
        let connection = listener.accept().await.context("no client")?;
        let (mut send, mut recv) = connection.accept_flow().await.context("no flow")?.split();
        let outcome = match task.work {
            Work::Bulk => {
                let mut meter = Meter::new(task);
                while let Some(bytes) = read(&mut recv).await? {
                    meter.add(bytes.len())?;
                }
                meter.finish()?
            }
            Work::Ping => {
                while let Some(bytes) = read(&mut recv).await? {
                    send.write_bytes(bytes).await?;
                }
                Outcome::default()
            }
        };
        send.finish()?;
        connection.closed().await;
        Ok(outcome)
    })
}

pub fn call(task: &Task, to: SocketAddr, fingerprint: &str) -> Result<Outcome> {
    runtime()?.block_on(async {
        let mut options = ConnectOptions::pinned(fingerprint.parse()?);
        options.connection = settings(task)?;
        let connection = connect(&to.to_string(), options).await?;
        let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).await?.split();
        let outcome = match task.work {
            Work::Bulk => {
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
                Outcome { lost_packets, note: profile(&connection)?, ..expense.finish()? }
            }
            Work::Ping => {
                let mut stopwatch = Stopwatch::start(task);
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
        };
        check(task, &connection)?;
        connection.close(0, "done").await;
        Ok(outcome)
    })
}

/// The profile that data was sent under in the end.
fn profile(connection: &Connection) -> Result<String> {
    let profile = connection.profile(Direction::Out).context("no profile")?;
    Ok(uts::Function::ALL
        .iter()
        .map(|f| profile.name(*f))
        .filter(|n| *n != "none")
        .collect::<Vec<_>>()
        .join(" "))
}

/// What is called unprotected must be, and what is not must not.
fn check(task: &Task, connection: &Connection) -> Result<()> {
    let profile = connection.profile(Direction::Out).context("no profile")?;
    let is_protected = profile.name(uts::Function::Protection) != "none";
    if is_protected == (task.transport == Transport::UtsUnprotected) {
        bail!("protection is {}", profile.name(uts::Function::Protection));
    }
    Ok(())
}
