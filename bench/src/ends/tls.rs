//! TLS 1.3 by rustls over the kernel's TCP with CUBIC, on tokio: what most programs use.

use super::{
    Expense, HANDSHAKES_AT_ONCE, Meter, Outcome, SERVER_NAME, Stopwatch, Task, WRITE_BYTES, Work, announce,
    certificates, lacks, many, run_task, tcp, to_hex,
};
use anyhow::{Context, Result};
use rustls::pki_types::ServerName;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

pub fn serve(task: &Task, ip: IpAddr) -> Result<Outcome> {
    let task = task.clone();
    let (tls, certificate) = certificates::server()?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    run_task(async move {
        let socket = tcp::socket(ip)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddr::new(ip, 0).into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        announce(listener.local_addr()?, to_hex(&certificate))?;
        let (first, _) = listener.accept().await?;
        let mut stream = acceptor.accept(first).await?;
        match task.work {
            Work::Bulk => take_bulk(&task, stream).await,
            Work::Ping => {
                let mut byte = [0];
                while stream.read(&mut byte).await? == 1 {
                    stream.write_all(&byte).await?;
                }
                Ok(Outcome::default())
            }
            Work::Handshakes => accept_many(&listener, &acceptor, stream).await,
            _ => Err(lacks(&task)),
        }
    })
}

async fn take_bulk(task: &Task, mut stream: server::TlsStream<TcpStream>) -> Result<Outcome> {
    let (mut buffer, mut meter) = (vec![0; 4 * WRITE_BYTES], Meter::new(task));
    loop {
        match stream.read(&mut buffer).await? {
            0 => break,
            bytes => meter.add(bytes)?,
        }
    }
    stream.shutdown().await?;
    meter.finish()
}

/// Accepts until the first connection ends.
async fn accept_many(
    listener: &TcpListener,
    acceptor: &TlsAcceptor,
    mut first: server::TlsStream<TcpStream>,
) -> Result<Outcome> {
    let mut counter = many::Counter::start()?;
    let mut byte = [0];
    let mut ended = std::pin::pin!(first.read(&mut byte));
    loop {
        tokio::select! {
            biased;
            incoming = listener.accept() => {
                let (stream, _) = incoming?;
                let (accepted, acceptor) = (counter.accepted.clone(), acceptor.clone());
                tokio::spawn(async move {
                    stream.set_nodelay(true)?;
                    let mut stream = acceptor.accept(stream).await?;
                    many::add(&accepted);
                    let _ = stream.read(&mut [0]).await;
                    anyhow::Ok(())
                });
            }
            _ = &mut ended => return counter.finish(),
        }
    }
}

/// Connects to servers that have one certificate.
#[derive(Clone)]
struct Connector {
    to: SocketAddr,
    tls: TlsConnector,
}

impl Connector {
    async fn connect(self) -> Result<client::TlsStream<TcpStream>> {
        let socket = tcp::socket(self.to.ip())?;
        socket.set_nonblocking(true)?;
        let socket = tokio::net::TcpSocket::from_std_stream(socket.into());
        let stream =
            socket.connect(self.to).await.with_context(|| format!("no connection to {}", self.to))?;
        Ok(self.tls.connect(ServerName::try_from(SERVER_NAME)?, stream).await?)
    }
}

pub fn call(task: &Task, to: SocketAddr, certificate: &str) -> Result<Outcome> {
    let (task, tls) = (task.clone(), certificates::client(certificate)?);
    let connector = Connector { to, tls: TlsConnector::from(Arc::new(tls)) };
    run_task(async move {
        let mut stream = connector.clone().connect().await?;
        match task.work {
            Work::Bulk => send_bulk(&task, stream).await,
            Work::Ping => {
                let mut stopwatch = Stopwatch::start(&task)?;
                let mut byte = [0];
                while stopwatch.again() {
                    stream.write_all(&byte).await?;
                    stream.read_exact(&mut byte).await?;
                    stopwatch.back();
                }
                stream.shutdown().await?;
                stopwatch.finish()
            }
            Work::Handshakes => {
                let connect = || {
                    let connecting = connector.clone().connect();
                    async move {
                        let mut stream = connecting.await?;
                        stream.shutdown().await?;
                        anyhow::Ok(())
                    }
                };
                let outcome = many::handshakes(&task, HANDSHAKES_AT_ONCE, connect).await?;
                stream.shutdown().await?;
                Ok(outcome)
            }
            _ => Err(lacks(&task)),
        }
    })
}

async fn send_bulk(task: &Task, mut stream: client::TlsStream<TcpStream>) -> Result<Outcome> {
    let (data, mut expense) = (vec![0x5a; 4 * WRITE_BYTES], Expense::start(task)?);
    while expense.goes_on() {
        stream.write_all(&data).await?;
        expense.bytes += data.len() as u64;
    }
    stream.shutdown().await?;
    // The server ends its direction once it has read everything.
    stream.read_to_end(&mut Vec::new()).await?;
    Ok(Outcome { note: "cubic, rustls".into(), ..expense.finish()? })
}
