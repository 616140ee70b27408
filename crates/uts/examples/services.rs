//! Two services behind one port, and their client.
//!
//! ```text
//! cargo run --example services -- serve [::]:4433
//! cargo run --example services -- ask localhost:4433 SHA256:… echo hello
//! cargo run --example services -- ask localhost:4433 SHA256:… upper hello
//! ```

use std::error::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{ConnectOptions, Connection, FlowOptions, Identity, Listener, ServerOptions, Services, connect};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", addr] => {
            let listener = Listener::bind(addr.parse()?, ServerOptions::new(Identity::generate()?))?;
            println!("{} {}", listener.local_addr(), listener.fingerprint());
            services().serve(&listener).await;
            Ok(())
        }
        ["ask", target, fingerprint, service, text] => {
            let answer = ask(target, fingerprint, service, text).await?;
            println!("{}", uts::printable::lines(&answer, 1000));
            Ok(())
        }
        _ => Err("usage: services serve ADDR:PORT | services ask HOST:PORT FINGERPRINT SERVICE TEXT".into()),
    }
}

/// Services of the server, by name.
pub fn services() -> Services {
    Services::new()
        .on("echo", |connection| answer(connection, |text| text))
        .on("upper", |connection| answer(connection, |text| text.to_uppercase()))
}

/// Answers each flow of a connection.
async fn answer(connection: Connection, to: fn(String) -> String) {
    while let Some(flow) = connection.accept_flow().await {
        let (mut send, recv) = flow.split();
        let mut text = String::new();
        // What is too long, or no text, is not answered: the flow is reset.
        if recv.take(10_000).read_to_string(&mut text).await.is_err() {
            continue;
        }
        if let Err(error) = send.write_all(to(text).as_bytes()).await {
            eprintln!("flow {}: {error}", send.id().0);
        } else if let Err(error) = send.finished().await {
            eprintln!("flow {}: {error}", send.id().0);
        }
    }
}

/// Asks a service. An error says what the server has said.
pub async fn ask(
    target: &str,
    fingerprint: &str,
    service: &str,
    text: &str,
) -> Result<String, Box<dyn Error>> {
    let mut options = ConnectOptions::pinned(fingerprint.parse()?);
    options.connection.service = service.to_owned();
    let connection = connect(target, options).await?;
    let asked = async {
        let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).await?.split();
        send.write_all(text.as_bytes()).await?;
        send.shutdown().await?;
        let mut answer = String::new();
        recv.read_to_string(&mut answer).await?;
        Ok::<_, Box<dyn Error>>(answer)
    };
    let asked = asked.await;
    // Why a connection has ended says more than that its flow has.
    match connection.close_reason() {
        Some(reason) => Err(reason.to_string().into()),
        None => {
            connection.close(0, "").await;
            asked
        }
    }
}
