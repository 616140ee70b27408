//! The server's half of a measurement.

use super::{Control, Report, Request, SharedClock, ToClient, ToServer, measure};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{LocalSet, spawn_blocking};
use tokio::time::timeout;
use uts::Connection;
use uts_end::Role;
use uts_ledger::{Payer, Resource};
use uts_traffic::clock::Clock;

/// Time that a client may take for each of its messages.
const PATIENCE: Duration = Duration::from_secs(20);

/// Number of times that a client may ask for the time.
const TIMES_MAX: usize = 1000;

/// Measures for one client at a time.
#[derive(Clone, Debug)]
pub struct Server(Arc<Semaphore>);

/// Measurement that was made, with the reports of both ends.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Request of the client.
    pub request: Request,
    /// Report of the server.
    pub own: Report,
    /// Report of the client, if it has sent one.
    pub client: Report,
}

impl Default for Server {
    fn default() -> Self {
        Server(Arc::new(Semaphore::new(1)))
    }
}

impl Server {
    /// Measures for a client. If this is dropped, the measurement ends.
    ///
    /// # Errors
    /// Why nothing was measured.
    pub async fn serve(&self, connection: Arc<Connection>, payer: &Payer) -> io::Result<Measured> {
        // Who has not asked, or is refused, has no thread.
        let admitted = admit(self.0.clone(), &connection).await?;
        let thread = payer.wait(Resource::Threads, 1, 1).await;
        let runtime = tokio::runtime::Handle::current();
        let (kept, dropped) = oneshot::channel::<()>();
        // What carries workloads stays in its thread.
        let measured = spawn_blocking(move || {
            let measured = runtime.block_on(LocalSet::new().run_until(async {
                tokio::select! {
                    measured = serve(admitted, &connection) => measured,
                    _ = dropped => Err(io::Error::new(io::ErrorKind::Interrupted, "the server ends it")),
                }
            }));
            drop(thread);
            measured
        });
        let measured = measured.await.map_err(io::Error::other)?;
        drop(kept);
        measured
    }
}

/// One whose turn it is: its place, and what it asks.
struct Admitted {
    place: OwnedSemaphorePermit,
    control: Control,
    request: Request,
}

/// Hears what a client asks, and whether there is room for it.
async fn admit(room: Arc<Semaphore>, connection: &Connection) -> io::Result<Admitted> {
    let flow = in_time(async { Ok(connection.accept_flow().await) }).await?;
    let mut control = Control::new(flow.ok_or(io::ErrorKind::UnexpectedEof)?);
    let ToServer::Request(request) = in_time(control.hear()).await? else {
        return Err(unexpected("it asks for nothing"));
    };
    let busy = |_| "the server is busy with another measurement; try again later".to_owned();
    match request.check().and_then(|()| room.try_acquire_owned().map_err(busy)) {
        Ok(place) => Ok(Admitted { place, control, request }),
        Err(why) => {
            control.say(&ToClient::Refused(why.clone())).await?;
            // The client closes once it has read that.
            let _ = timeout(PATIENCE, connection.closed()).await;
            Err(io::Error::other(format!("refused: {why}")))
        }
    }
}

async fn serve(admitted: Admitted, connection: &Connection) -> io::Result<Measured> {
    let Admitted { place, mut control, request } = admitted;
    control.say(&ToClient::Ready).await?;
    let clock = Rc::new(SharedClock::own()?);
    let mut asked = 0;
    loop {
        match in_time(control.hear()).await? {
            ToServer::Time if asked < TIMES_MAX => {
                asked += 1;
                control.say(&ToClient::Time(clock.now_ns())).await?;
            }
            ToServer::Start => break,
            _ => return Err(unexpected("it does not begin")),
        }
    }
    let report = measure(connection, Role::Server, &request, clock).await.map_err(io::Error::other)?;
    control.say(&ToClient::Done(report.clone())).await?;
    // The close of a client that has read that may overtake what it has seen.
    let client = match in_time(control.hear()).await {
        Ok(ToServer::Done(client)) => client,
        _ => Report::default(),
    };
    drop(place);
    // Until the client has read it, nothing may be torn down.
    let _ = timeout(PATIENCE, connection.closed()).await;
    Ok(Measured { request, own: report, client })
}

async fn in_time<T>(what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(PATIENCE, what).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn unexpected(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
