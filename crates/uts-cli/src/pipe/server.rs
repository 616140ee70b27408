//! The server's half: each flow of a client is connected to the service that it asks for.

use super::{Permitted, read_request};
use crate::stream::{REQUEST_MAX, Refused, answer, at_once, join};
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uts::files::Flows;
use uts::printable::words;

/// Streams of one client at once: each holds a socket.
const STREAMS_MAX: usize = 100;

/// Serves the flows of a client until its connection ends.
///
/// # Errors
/// Why the connection has ended, if not by the client's wish.
pub async fn serve<F: Flows>(permitted: Arc<Permitted>, flows: &F) -> io::Result<()> {
    let (mut streams, room) = (JoinSet::new(), Arc::new(Semaphore::new(STREAMS_MAX)));
    loop {
        tokio::select! {
            flow = flows.accept() => {
                let Some((send, recv)) = flow? else { return Ok(()) };
                let (permitted, room) = (permitted.clone(), room.clone());
                streams.spawn(async move {
                    let place = room.try_acquire();
                    // What goes wrong in a stream its client is told by the stream.
                    let _ = serve_stream::<F>(&permitted, send, recv, place.is_ok()).await;
                });
            }
            Some(_) = streams.join_next(), if !streams.is_empty() => {}
        }
    }
}

async fn serve_stream<F: Flows>(
    permitted: &Permitted,
    mut send: F::Send,
    mut recv: F::Recv,
    has_room: bool,
) -> io::Result<()> {
    let asked = match timeout(REQUEST_MAX, read_request(&mut recv)).await {
        Ok(asked) => asked,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    let service = match asked {
        Ok(_) if !has_room => Err(format!("{STREAMS_MAX} streams are open, which is the most for a client")),
        Ok(name) => connect(permitted, &name).await,
        Err(error) => Err(error.to_string()),
    };
    let service = match service {
        Ok(service) => service,
        Err(why) => {
            answer(&mut send, Err(&Refused::Absent(why))).await?;
            return send.shutdown().await;
        }
    };
    answer(&mut send, Ok("")).await?;
    join(service, &mut send, &mut recv, at_once, |_, _, _| {}, |_| {}).await
}

/// Connects to a service. An error is for the client.
async fn connect(permitted: &Permitted, name: &str) -> Result<TcpStream, String> {
    let address = permitted.address(name)?;
    let connected = timeout(REQUEST_MAX, TcpStream::connect(address)).await;
    connected
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        // Where it is, is not for the client to know.
        .map_err(|error| format!("the service `{name}` does not answer: {}", words(&error)))
}
