//! The server's half: each flow of a client is connected to the service that it asks for.

use super::{Permitted, read_request};
use crate::dial::{self, Budget};
use crate::stream::{AHEAD_BYTES, AHEAD_BYTES_MIN, Kind, REQUEST_MAX, Refused, answer, join};
use crate::tunnel::live::Live;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use uts_files::Flows;
use uts_ledger::{Charge, Resource};

/// Streams of one client at once: each holds a socket. (V-7)
const STREAMS_MAX: usize = 100;

/// Serves the flows of a client until its connection ends.
///
/// # Errors
/// Why the connection has ended, if not by the client's wish.
pub async fn serve<F: Flows>(
    permitted: watch::Receiver<Arc<Permitted>>,
    flows: &F,
    budget: Budget,
    live: Arc<Live>,
) -> io::Result<()> {
    let (mut streams, room) = (JoinSet::new(), Arc::new(Semaphore::new(STREAMS_MAX)));
    loop {
        tokio::select! {
            flow = flows.accept() => {
                let Some((send, recv)) = flow? else { return Ok(()) };
                // As they are now.
                let permitted = permitted.borrow().clone();
                let (room, budget, live) = (room.clone(), budget.clone(), live.clone());
                streams.spawn(async move {
                    let place = room.try_acquire();
                    // What goes wrong in a stream its client is told by the stream.
                    let _ = serve_stream::<F>(&permitted, (send, recv), place.is_ok(), &budget, &live).await;
                });
            }
            Some(_) = streams.join_next(), if !streams.is_empty() => {}
        }
    }
}

async fn serve_stream<F: Flows>(
    permitted: &Permitted,
    (mut send, mut recv): (F::Send, F::Recv),
    has_room: bool,
    budget: &Budget,
    live: &Arc<Live>,
) -> io::Result<()> {
    let asked = match timeout(REQUEST_MAX, read_request(&mut recv)).await {
        Ok(asked) => asked,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    let name = asked.as_ref().map_or_else(|_| String::new(), |asked| asked.service.clone());
    let service = match asked {
        Ok(_) if !has_room => {
            let why = format!("{STREAMS_MAX} streams are open, which is the most for a client");
            Err(Refused { kind: Kind::NoRoom, why })
        }
        Ok(asked) if asked.hello.is_some() => {
            Err(Refused::absent("streams that outlive their flows are not kept here"))
        }
        Ok(asked) => connect(permitted, &asked.service, budget).await,
        Err(error) => Err(Refused::absent(error.to_string())),
    };
    let held = budget.0.charge_up_to(Resource::Memory, AHEAD_BYTES_MIN, AHEAD_BYTES);
    let held = held.map_err(|full| Refused { kind: Kind::NoRoom, why: full.to_string() });
    let (service, _socket, held) = match service.and_then(|(service, socket)| Ok((service, socket, held?))) {
        Ok(service) => service,
        Err(refused) => {
            live.refused(&name, &refused.why);
            answer(&mut send, Err(&refused)).await?;
            return send.shutdown().await;
        }
    };
    answer(&mut send, Ok("")).await?;
    let place = service.peer_addr().map_or_else(|_| name.clone(), |address| format!("{name} ({address})"));
    let entered = live.enter([name, String::new(), place], None);
    let carried = entered.carried();
    let on_sent = |_: &F::Send, bytes, _| {
        carried.sent.fetch_add(bytes as u64, Relaxed);
    };
    let on_received = |bytes| {
        carried.received.fetch_add(bytes as u64, Relaxed);
    };
    let joined = join(service, (&mut send, &mut recv), held.amount(), &[], on_sent, on_received);
    entered.carry(joined).await
}

/// Connects to a service.
///
/// # Errors
/// One for the client.
pub async fn connect(
    permitted: &Permitted,
    name: &str,
    budget: &Budget,
) -> Result<(TcpStream, Charge), Refused> {
    let (host, port) = permitted.address(name).map_err(Refused::absent)?;
    let socket = budget.socket().map_err(|full| Refused { kind: Kind::NoRoom, why: full.to_string() })?;
    // Where it is, is not for the client to know.
    let silent = |kind, why| Refused { kind, why: format!("the service `{name}` does not answer: {why}") };
    let found = budget.look_up(host, port).await.map_err(|error| {
        let late = if error.kind() == io::ErrorKind::TimedOut { " in time" } else { "" };
        silent(Kind::HostUnreachable, format!("its host is not found{late}"))
    })?;
    let connected = dial::connect(&found, budget).await;
    connected.map(|service| (service, socket)).map_err(|(kind, why)| silent(kind, why))
}
