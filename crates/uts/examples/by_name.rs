//! A mechanism asked for by name, at first and in mid-connection.
//!
//! ```text
//! cargo run --example by_name
//! ```

use std::error::Error;
use std::io::Write;
use uts::{
    ConnectOptions, Connection, ConnectionEvent, Direction, Events, ExchangeEvent, Function, Identity,
    Listener, ServerOptions, connect,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}

/// Both ends, in one process.
pub async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0".parse()?, ServerOptions::new(Identity::generate()?))?;
    let target = listener.local_addr().to_string();
    let mut options = ConnectOptions::pinned(listener.fingerprint());
    options.connection.requirements.set("uts.profile.congestion", "bbr")?;
    let (connection, accepted) = tokio::join!(connect(&target, options), listener.accept());
    // A connection lives as long as its handles: the server's is kept to the end.
    let (connection, _accepted) = (connection?, accepted);

    let mut events = connection.events();
    wait_for(&connection, &mut events, "bbr").await?;
    writeln!(out, "first: {}", congestion(&connection))?;
    connection.set_property("uts.profile.congestion", "cubic")?;
    wait_for(&connection, &mut events, "cubic").await?;
    writeln!(out, "then: {}", congestion(&connection))?;
    // A name that does not exist is an error that says what there is, and nothing changes.
    if let Err(error) = connection.set_property("uts.profile.congestion", "magic") {
        writeln!(out, "refused: {error}")?;
    }
    connection.close(0, "done").await;
    Ok(())
}

fn congestion(connection: &Connection) -> String {
    connection.profile(Direction::Out).map_or_else(String::new, |p| p.describe(Function::Congestion))
}

/// A connection begins with mechanisms that every peer has; others follow by an exchange.
async fn wait_for(connection: &Connection, events: &mut Events, name: &str) -> Result<(), Box<dyn Error>> {
    while !congestion(connection).starts_with(name) {
        match events.next().await {
            Some(ConnectionEvent::Exchange(step)) => match *step {
                ExchangeEvent::Refused { why, .. } => return Err(why.into()),
                ExchangeEvent::Failed { .. } => return Err("the peer did not answer".into()),
                _ => {}
            },
            Some(_) => {}
            None => return Err("the connection ended".into()),
        }
    }
    Ok(())
}
