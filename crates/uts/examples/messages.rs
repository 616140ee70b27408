//! Messages with a lifetime: a late frame of video is worth nothing, and nobody waits for it.
//!
//! ```text
//! cargo run --example messages
//! ```

use bytes::Bytes;
use std::error::Error;
use std::io::Write;
use std::time::Duration;
use uts::{
    ConnectOptions, FlowOptions, Identity, Listener, MessageOptions, Requirements, ServerOptions, connect,
};

const FRAMES: usize = 20;
const LIFETIME: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}

/// Both ends, in one process.
pub async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0".parse()?, ServerOptions::new(Identity::generate()?))?;
    let target = listener.local_addr().to_string();
    let fingerprint = listener.fingerprint();
    let ((), arrived) = tokio::try_join!(film(&target, fingerprint), watch(&listener))?;
    writeln!(out, "sent {FRAMES} frames, {} arrived in time", arrived.len())?;
    if let Some(last) = arrived.last() {
        writeln!(out, "the last: {}", uts::printable::line(&String::from_utf8_lossy(last), 100))?;
    }
    Ok(())
}

async fn film(target: &str, fingerprint: uts::Fingerprint) -> Result<(), Box<dyn Error>> {
    let mut options = ConnectOptions::pinned(fingerprint);
    // Requirements are about what this end sends: messages in any order, not repeated once they are
    // late.
    options.connection.requirements = Requirements::media(LIFETIME);
    let connection = connect(target, options).await?;
    let (mut send, _recv) = connection.open_flow(FlowOptions::default()).await?.split();
    for n in 0..FRAMES {
        // A message may have a lifetime of its own: a key frame is worth more than others.
        let lifetime = if n % 10 == 0 { LIFETIME * 2 } else { LIFETIME };
        let frame = Bytes::from(format!("frame {n}"));
        send.send_message(frame, MessageOptions { lifetime: Some(lifetime), ..MessageOptions::default() })
            .await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Closing drops what is under way: wait until nothing is.
    send.finished().await?;
    connection.close(0, "done").await;
    Ok(())
}

async fn watch(listener: &Listener) -> Result<Vec<Bytes>, Box<dyn Error>> {
    let connection = listener.accept().await.ok_or("the listener was closed")?;
    let mut flow = connection.accept_flow().await.ok_or("the connection ended")?;
    let mut arrived = Vec::new();
    while let Some(frame) = flow.recv_message().await? {
        arrived.push(frame);
    }
    Ok(arrived)
}
