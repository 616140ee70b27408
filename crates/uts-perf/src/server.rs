//! The server's end of a measurement.

use crate::control::{Control, Request, ToClient, ToServer};
use crate::end::{End, Report};
use crate::outcome::Measured;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{LocalSet, spawn_blocking};
use tokio::time::timeout;
use uts::Connection;
use uts_end::Role;
use uts_end::clock::MonotonicClock;
use uts_ledger::{Payer, Resource};
use uts_traffic::clock::Clock;

/// Time that a client may take for each of its messages.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Number of times that a client may ask for the time.
pub const TIMES_MAX: usize = 1000;

/// Measures for one client at a time.
#[derive(Clone, Debug)]
pub struct Server(Arc<Semaphore>);

impl Default for Server {
    fn default() -> Self {
        Server(Arc::new(Semaphore::new(1)))
    }
}

impl Server {
    /// Measures for a client, in a thread of its own and by the machine's clock. If this is
    /// dropped, the measurement ends.
    ///
    /// # Errors
    /// Why nothing was measured.
    pub async fn serve(&self, connection: Connection, payer: &Payer) -> io::Result<Measured> {
        // Who has not asked, or is refused, has no thread.
        let admitted = self.admit(connection).await?;
        let thread = payer.wait(Resource::Threads, 1, 1).await;
        let runtime = tokio::runtime::Handle::current();
        let (kept, dropped) = oneshot::channel::<()>();
        // What carries workloads stays in its thread.
        let measured = spawn_blocking(move || {
            let measured = runtime.block_on(LocalSet::new().run_until(async {
                let clock = Rc::new(MonotonicClock::new()?);
                tokio::select! {
                    measured = admitted.measure(clock) => measured,
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

    /// Hears what a client asks, and whether there is room for it.
    ///
    /// # Errors
    /// It asks for nothing, or for too much, or the server is busy. It was told so if it listened.
    pub async fn admit(&self, connection: Connection) -> io::Result<Admitted> {
        let flow = timeout(PATIENCE, connection.accept_flow()).await.map_err(|_| io::ErrorKind::TimedOut)?;
        let mut control = Control::new(flow.ok_or(io::ErrorKind::UnexpectedEof)?, PATIENCE);
        let ToServer::Request(request) = control.hear().await? else {
            return Err(unexpected("it asks for nothing"));
        };
        let busy = |_| "the server is busy with another measurement; try again later".to_owned();
        let room = self.0.clone();
        match request.check().and_then(|()| room.try_acquire_owned().map_err(busy)) {
            Ok(place) => Ok(Admitted { place, connection, control, request }),
            Err(why) => Err(refuse(&connection, control, why).await),
        }
    }
}

/// Tells a client that it is not measured for, and why.
async fn refuse(connection: &Connection, mut control: Control, why: String) -> io::Error {
    if let Err(error) = control.say(&ToClient::Refused(why.clone())).await {
        return error;
    }
    // The client closes once it has read that.
    let _ = timeout(PATIENCE, connection.closed()).await;
    io::Error::other(format!("refused: {why}"))
}

/// A client whose turn it is: its place, and what it asks.
#[derive(Debug)]
pub struct Admitted {
    place: OwnedSemaphorePermit,
    connection: Connection,
    control: Control,
    request: Request,
}

impl Admitted {
    /// Measures for the client, by a clock that it is told of. To be called within a `LocalSet` of
    /// a tokio runtime. If this is dropped, the measurement ends.
    ///
    /// # Errors
    /// Why nothing was measured.
    pub async fn measure(self, clock: Rc<dyn Clock>) -> io::Result<Measured> {
        let Admitted { place, connection, mut control, request } = self;
        let end = match End::prepare(connection.clone(), Role::Server, request.clone()).await {
            Ok(end) => end,
            Err(why) => {
                drop(place);
                return Err(refuse(&connection, control, why).await);
            }
        };
        control.say(&ToClient::Ready).await?;
        let mut asked = 0;
        loop {
            match control.hear().await? {
                ToServer::Time if asked < TIMES_MAX => {
                    asked += 1;
                    control.say(&ToClient::Time(clock.now_ns())).await?;
                }
                ToServer::Start => break,
                _ => return Err(unexpected("it does not begin")),
            }
        }
        let server = end.measure(&clock).await.map_err(io::Error::other)?;
        control.say(&ToClient::Done(server.clone())).await?;
        // The close of a client that has read that may overtake what it has seen.
        let client = match control.hear().await {
            Ok(ToServer::Done(client)) => client,
            _ => Report::default(),
        };
        drop(place);
        // Until the client has read it, nothing may be torn down.
        let _ = timeout(PATIENCE, connection.closed()).await;
        Ok(Measured { request, client, server })
    }
}

fn unexpected(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
