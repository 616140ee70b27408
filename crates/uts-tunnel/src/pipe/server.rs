//! The server's half: each flow of a client is connected to the service that it asks for, or
//! carries a stream to one that outlives it.

use super::{Asked, Permitted, WINDOW_BYTES, read_request};
use crate::dial::{self, Budget};
use crate::live::Live;
use crate::resumed::{Begun, Carrier, News, Session, Sessions};
use crate::sockets::{Resetting, Sockets, System, Tcp};
use crate::stream::{AHEAD_BYTES, AHEAD_BYTES_MIN, Kind, REQUEST_MAX, Refused, answer, join};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use uts_files::Flows;
use uts_ledger::{Charge, Resource};

/// Streams of one client at once: each holds a socket. (V-7)
const STREAMS_MAX: usize = 100;

/// Streams of one client that are kept at once, carried or not: as many as it may have connections
/// unless the server is told otherwise. (V-7)
const KEPT_MAX: usize = 256;

/// Services of a server, and the streams to them that outlive what carries them.
pub struct Pipes<S = System> {
    sockets: S,
    permitted: watch::Receiver<Arc<Permitted>>,
    sessions: Arc<Sessions<Arc<Live>>>,
    running: Mutex<JoinSet<()>>,
    silence: Duration,
}

/// A client, as streams are kept for it.
#[derive(Clone)]
pub struct Owner {
    /// Its key, if it has shown one.
    pub key: Option<String>,
    /// Resources of this process that it may take.
    pub budget: Budget,
    /// The list of what its connection carries.
    pub live: Arc<Live>,
}

impl<S: Sockets> Pipes<S> {
    /// Services as they are at a time, which are met by these sockets. A stream is kept for
    /// `silence` without a carrier.
    pub fn new(sockets: S, permitted: watch::Receiver<Arc<Permitted>>, silence: Duration) -> Arc<Self> {
        Arc::new(Pipes {
            sockets,
            permitted,
            sessions: Sessions::new(KEPT_MAX),
            running: Mutex::default(),
            silence,
        })
    }

    /// Serves the flows of a client until its connection ends.
    ///
    /// # Errors
    /// Why the connection has ended, if not by the client's wish.
    pub async fn serve<F: Flows>(self: &Arc<Self>, flows: &F, owner: Owner) -> io::Result<()> {
        let (mut streams, room) = (JoinSet::new(), Arc::new(Semaphore::new(STREAMS_MAX)));
        loop {
            tokio::select! {
                biased;
                Some(_) = streams.join_next(), if !streams.is_empty() => {}
                flow = flows.accept() => {
                    let Some(flow) = flow? else { return Ok(()) };
                    let (pipes, room, owner) = (self.clone(), room.clone(), owner.clone());
                    streams.spawn(async move {
                        let place = room.try_acquire();
                        // What goes wrong in a stream its client is told by the stream.
                        let _ = pipes.serve_flow::<F>(flow, place.is_ok(), &owner).await;
                    });
                }
            }
        }
    }

    async fn serve_flow<F: Flows>(
        &self,
        (mut send, mut recv): (F::Send, F::Recv),
        has_room: bool,
        owner: &Owner,
    ) -> io::Result<()> {
        // As they are now.
        let permitted = self.permitted.borrow().clone();
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
            Ok(Asked { service, hello: Some(hello) }) => {
                let carrier = Carrier::flow(send, recv);
                let names = (owner.key.as_deref().unwrap_or_default(), owner.budget.0.name());
                let Some(begun) = self.sessions.take(names, &hello, carrier, owner.live.clone()).await else {
                    return Ok(());
                };
                self.begin(begun, &permitted, &service, hello.silence(), owner).await;
                return Ok(());
            }
            Ok(asked) => connect(&self.sockets, &permitted, &asked.service, &owner.budget).await,
            Err(error) => Err(Refused::absent(error.to_string())),
        };
        let held = owner.budget.0.charge_up_to(Resource::Memory, AHEAD_BYTES_MIN, AHEAD_BYTES);
        let held = held.map_err(|full| no_room(&full));
        let (service, _socket, held) =
            match service.and_then(|(service, socket)| Ok((service, socket, held?))) {
                Ok(service) => service,
                Err(refused) => {
                    owner.live.refused(&name, &refused.why);
                    answer(&mut send, Err(&refused)).await?;
                    return send.shutdown().await;
                }
            };
        answer(&mut send, Ok("")).await?;
        let entered = owner.live.enter(names_of(name, &service), None);
        let carried = entered.carried();
        let on_sent = |_: &F::Send, bytes, _| {
            carried.sent.fetch_add(bytes as u64, Relaxed);
        };
        let on_received = |bytes| {
            carried.received.fetch_add(bytes as u64, Relaxed);
        };
        let joined =
            join(Resetting::new(service), (&mut send, &mut recv), held.amount(), &[], on_sent, on_received);
        entered.carry(joined).await
    }

    /// Connects a stream to its service, and keeps it from now on.
    async fn begin(
        &self,
        mut begun: Begun<Arc<Live>>,
        permitted: &Permitted,
        name: &str,
        silence: Duration,
        owner: &Owner,
    ) {
        // It outlives the connection that it has begun with, and pays for itself.
        let budget = Budget(owner.budget.0.another());
        let (service, socket, session) = match self.find(permitted, name, &budget).await {
            Ok(found) => found,
            Err(refused) => {
                owner.live.refused(name, &refused.why);
                return begun.refuse(&refused).await;
            }
        };
        begun.hold(socket);
        let entered = owner.live.enter(names_of(name.to_owned(), &service), None);
        let silence = silence.min(self.silence);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            let carried = entered.carried();
            let moved = |[said, taken]: [usize; 2]| {
                carried.sent.fetch_add(said as u64, Relaxed);
                carried.received.fetch_add(taken as u64, Relaxed);
            };
            let told = |news| {
                if let News::Carried(live) = news {
                    entered.move_to(&live);
                }
            };
            let run = async {
                let ended = begun.run(service, &session, silence, told, moved).await;
                ended.map(drop).map_err(|lost| io::Error::other(lost.0))
            };
            // How it has ended is noted.
            let _ = entered.carry(run).await;
        });
    }

    /// The service of a stream, and room for both. Streams make room that nothing has carried for
    /// long: those of the same client, and those of others for a client that has no more than this.
    async fn find(
        &self,
        permitted: &Permitted,
        name: &str,
        budget: &Budget,
    ) -> Result<(S::Tcp, Charge, Session), Refused> {
        loop {
            let found = async {
                // What is not permitted is refused for that alone.
                permitted.address(name).map_err(Refused::absent)?;
                let session = Session::paid(WINDOW_BYTES, &budget.0);
                let session =
                    session.map_err(|full| Refused { kind: Kind::NotKept, why: full.to_string() })?;
                let (service, socket) = connect(&self.sockets, permitted, name, budget).await?;
                Ok((service, socket, session))
            };
            match found.await {
                Err(Refused { kind: Kind::NotKept | Kind::NoRoom, .. })
                    if self.sessions.make_room(budget.0.name(), true).await => {}
                found => return found,
            }
        }
    }
}

fn no_room(full: &uts_ledger::Refused) -> Refused {
    Refused { kind: Kind::NoRoom, why: full.to_string() }
}

/// A stream as it is listed: its service, and where that is.
fn names_of(name: String, service: &impl Tcp) -> [String; 3] {
    let place = service.peer_addr().map_or_else(|_| name.clone(), |address| format!("{name} ({address})"));
    [name, String::new(), place]
}

/// Connects to a service.
///
/// # Errors
/// One for the client.
pub async fn connect<S: Sockets>(
    sockets: &S,
    permitted: &Permitted,
    name: &str,
    budget: &Budget,
) -> Result<(S::Tcp, Charge), Refused> {
    let (host, port) = permitted.address(name).map_err(Refused::absent)?;
    let socket = budget.socket().map_err(|full| no_room(&full))?;
    // Where it is, is not for the client to know.
    let silent = |kind, why| Refused { kind, why: format!("the service `{name}` does not answer: {why}") };
    let found = budget.look_up(host, port).await.map_err(|error| {
        let late = if error.kind() == io::ErrorKind::TimedOut { " in time" } else { "" };
        silent(Kind::HostUnreachable, format!("its host is not found{late}"))
    })?;
    let connected = dial::connect(sockets, &found, budget).await;
    connected.map(|service| (service, socket)).map_err(|(kind, why)| silent(kind, why))
}
