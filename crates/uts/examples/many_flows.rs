//! Many flows in one connection: none waits for another, urgent ones go first, one has requirements
//! of its own.
//!
//! ```text
//! cargo run --example many_flows
//! ```

use std::error::Error;
use std::io::Write;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use uts::{
    ConnectOptions, Connection, FlowOptions, Identity, Listener, Requirements, ServerOptions, connect,
};

const FLOWS: usize = 50;
const BYTES_EACH: usize = 20_000;

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
    let (connection, accepted) = (connection?, accepted.ok_or("the listener was closed")?);
    tokio::spawn(count(accepted));

    let mut asked = JoinSet::new();
    for n in 0..FLOWS {
        let options = match n {
            // 0 is the most urgent, 255 the least.
            0 => FlowOptions { priority: 0, ..FlowOptions::default() },
            // A group of its own, with its own mechanisms. What is written waits until the peer has
            // agreed.
            1 => FlowOptions::requiring(Requirements::interactive()),
            _ => FlowOptions::default(),
        };
        // Waits where the peer allows no more flows at once.
        let flow = connection.open_flow(options).await?;
        asked.spawn(ask(flow));
    }
    let mut bytes = 0;
    while let Some(answer) = asked.join_next().await {
        bytes += answer??;
    }
    writeln!(out, "{FLOWS} flows, {bytes} bytes")?;
    connection.close(0, "done").await;
    Ok(())
}

/// Sends, and gives the number of bytes that the peer says have arrived.
async fn ask(flow: uts::Flow) -> std::io::Result<u64> {
    let (mut send, mut recv) = flow.split();
    send.write_all(&vec![0; BYTES_EACH]).await?;
    send.shutdown().await?;
    recv.read_u64().await
}

/// Answers each flow with the number of its bytes.
async fn count(connection: Connection) {
    while let Some(flow) = connection.accept_flow().await {
        let (mut send, mut recv) = flow.split();
        tokio::spawn(async move {
            let bytes = tokio::io::copy(&mut recv, &mut tokio::io::sink()).await?;
            send.write_u64(bytes).await?;
            send.finished().await.map_err(std::io::Error::other)
        });
    }
}
