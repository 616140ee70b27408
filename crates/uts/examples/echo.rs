//! A server that sends back what it is sent, and its client.
//!
//! ```text
//! cargo run --example echo -- serve [::]:4433
//! cargo run --example echo -- send localhost:4433 SHA256:… hello
//! ```

use std::error::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{ConnectOptions, Connection, FlowOptions, Identity, Listener, ServerOptions, connect};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", addr] => {
            let listener = listen(addr)?;
            println!("{} {}", listener.local_addr(), listener.fingerprint());
            serve(&listener).await;
            Ok(())
        }
        ["send", target, fingerprint, text] => {
            let echo = send(target, fingerprint, text).await?;
            println!("{}", uts::printable::lines(&echo, 1000));
            Ok(())
        }
        _ => Err("usage: echo serve ADDR:PORT | echo send HOST:PORT FINGERPRINT TEXT".into()),
    }
}

/// A server with a key of its own, new each time.
pub fn listen(addr: &str) -> Result<Listener, Box<dyn Error>> {
    Ok(Listener::bind(addr.parse()?, ServerOptions::new(Identity::generate()?))?)
}

/// Serves until the listener is closed.
pub async fn serve(listener: &Listener) {
    while let Some(connection) = listener.accept().await {
        tokio::spawn(echo(connection));
    }
}

async fn echo(connection: Connection) {
    while let Some(flow) = connection.accept_flow().await {
        let (mut send, mut recv) = flow.split();
        tokio::spawn(async move {
            if let Err(error) = tokio::io::copy(&mut recv, &mut send).await {
                eprintln!("flow {}: {error}", recv.id().0);
            } else if let Err(error) = send.finished().await {
                eprintln!("flow {}: {error}", send.id().0);
            }
        });
    }
    // The peer's words, perhaps: they are shown, and do not steer the terminal.
    eprintln!("{}", uts::printable::line(&connection.closed().await.to_string(), 1000));
}

/// Sends a text, and gives what comes back.
pub async fn send(target: &str, fingerprint: &str, text: &str) -> Result<String, Box<dyn Error>> {
    let connection = connect(target, ConnectOptions::pinned(fingerprint.parse()?)).await?;
    let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).await?.split();
    send.write_all(text.as_bytes()).await?;
    send.shutdown().await?;
    let mut echo = String::new();
    recv.read_to_string(&mut echo).await?;
    connection.close(0, "").await;
    Ok(echo)
}
