//! Requirements changed while the connection is in use, and the events that tell what follows.
//!
//! ```text
//! cargo run --example live
//! ```

use std::error::Error;
use std::io::Write;
use std::time::Duration;
use uts::{
    ConnectOptions, ConnectionEvent, Direction, ExchangeEvent, Identity, Listener, Requirements,
    ServerOptions, connect,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}

/// Both ends, in one process.
pub async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0".parse()?, ServerOptions::new(Identity::generate()?))?;
    let target = listener.local_addr().to_string();
    let options = ConnectOptions::pinned(listener.fingerprint());
    let (connection, accepted) = tokio::join!(connect(&target, options), listener.accept());
    // A connection lives as long as its handles: the server's is kept to the end.
    let (connection, _accepted) = (connection?, accepted);

    let mut events = connection.events();
    writeln!(out, "bytes: {}", profile(&connection))?;
    // From reliable bytes to messages that are worth nothing after 200 ms.
    connection.set_requirements(Requirements::media(Duration::from_millis(200)))?;
    while let Some(event) = events.next().await {
        let ConnectionEvent::Exchange(step) = event else { continue };
        match *step {
            ExchangeEvent::Requested { changes, .. } => writeln!(out, "asked: {changes}")?,
            ExchangeEvent::Completed { direction: Direction::Out, .. } => {
                writeln!(out, "agreed")?;
                break;
            }
            // The old profile goes on: the application may ask for less.
            ExchangeEvent::Refused { why, .. } => return Err(why.into()),
            ExchangeEvent::Failed { .. } => return Err("the peer did not answer".into()),
            _ => {}
        }
    }
    writeln!(out, "media: {}", profile(&connection))?;
    connection.close(0, "done").await;
    Ok(())
}

fn profile(connection: &uts::Connection) -> String {
    use uts::Function::{Retransmission, Sequencing};
    let Some(profile) = connection.profile(Direction::Out) else { return "none".into() };
    format!("{}, {}", profile.describe(Retransmission), profile.describe(Sequencing))
}
