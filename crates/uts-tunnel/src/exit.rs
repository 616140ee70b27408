//! The end that connects further what has arrived at the other end, where that is permitted.

use crate::dial::{self, Budget};
use crate::entry::{Entry, Socket};
use crate::forward::{Place, Protocol};
use crate::held::{DOUBT_MAX, Holding, LOOK_EVERY, Places};
use crate::live::Live;
use crate::permit::Permits;
use crate::sockets::{Resetting, Sockets, System, Tcp};
use crate::stream::{self, Kind, REQUEST_MAX, Refused};
use crate::wire::{Asked, Opening};
use crate::{CONNECTIONS_MAX, FLOWS_MAX, LISTENERS_MAX, Teller, Wants, datagrams};
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use uts::printable::words;
use uts::requirements::RequirementError;
use uts::{Chunk, Connection, Fingerprint, RecvFlow, Requirements, SendFlow};
use uts_files::Flows;
use uts_ledger::{Charge, Ledger, Payer, Resource};

/// Bytes that the beginning of a flow is read from at most.
const OPENING_BYTES_MAX: usize = 16 << 10;

/// Time that it may take to find and to connect a place: the end that asks waits a little longer
/// ([`crate::entry::WAIT_MAX`]), and hears why it was not connected.
const ANSWER_MAX: Duration = Duration::from_secs(25);

/// Where what a peer asks for may lead.
pub enum Judge {
    /// A server: where its permits say at the time, for a client of this key; and the places that
    /// clients hold.
    Server(watch::Receiver<Arc<Permits>>, Arc<Places>, Option<Fingerprint>),
    /// A client: where its own forwards lead, by their numbers.
    Client(Vec<Goal>),
}

/// Where what arrives at a server leads, at its client.
pub struct Goal {
    /// Name of the forward.
    pub name: String,
    /// Kind of traffic that is carried.
    pub protocol: Protocol,
    /// Where it leads.
    pub place: Place,
    /// Properties that are asked of its flows.
    pub wants: Arc<Wants>,
}

/// An end of one connection, as its peer's flows meet it.
pub struct Exit<S = System> {
    connection: Connection,
    sockets: S,
    judge: Judge,
    live: Arc<Live>,
    teller: Arc<Teller>,
    /// Resources of this process that all its work for the peer may take.
    budget: Budget,
    /// For connections that are carried, in each direction, and for what listens.
    room: Payer,
    arriving: Ledger,
    listeners: Arc<Semaphore>,
    /// The connection, for streams that arrive at what listens.
    here: watch::Sender<Option<Connection>>,
}

/// Room for a connection, and for its socket.
pub(super) struct Room {
    _connection: Charge,
    _socket: Charge,
}

/// Where a flow leads, and how it is carried.
pub(super) struct Way {
    pub name: String,
    pub from: String,
    pub to: String,
    pub addresses: Vec<SocketAddr>,
    pub wants: Arc<Wants>,
}

impl<S: Sockets> Exit<S> {
    /// An end of this connection, which meets programs by these sockets.
    pub fn new(
        connection: Connection,
        sockets: S,
        judge: Judge,
        live: Arc<Live>,
        teller: Arc<Teller>,
        budget: Budget,
    ) -> Arc<Self> {
        Arc::new(Exit {
            here: watch::Sender::new(Some(connection.clone())),
            connection,
            sockets,
            judge,
            live,
            teller,
            budget,
            // As many as there can be flows: the other end bounds them.
            room: Ledger::of(Resource::Requests, FLOWS_MAX as usize, false).payer(""),
            arriving: Ledger::of(Resource::Requests, CONNECTIONS_MAX, true),
            listeners: Arc::new(Semaphore::new(LISTENERS_MAX)),
        })
    }

    /// Serves the flows that the peer opens, until the connection ends.
    ///
    /// # Errors
    /// Why it has ended, if not by somebody's wish.
    pub async fn serve(self: Arc<Self>) -> io::Result<()> {
        let mut flows = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(_) = flows.join_next(), if !flows.is_empty() => {}
                flow = self.connection.accept() => {
                    let Some((send, recv)) = flow? else { return Ok(()) };
                    let exit = self.clone();
                    // What goes wrong in a flow its peer is told by the flow.
                    flows.spawn(async move { drop(exit.serve_flow(send, recv).await) });
                }
            }
        }
    }

    async fn serve_flow(&self, mut send: SendFlow, mut recv: RecvFlow) -> io::Result<()> {
        let first = timeout(REQUEST_MAX, recv.recv_chunk(OPENING_BYTES_MAX)).await;
        let begun = match first.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
            Some(Chunk::Message(message)) if datagrams::is_one(&message) => {
                return datagrams::exit(self, send, recv, message).await;
            }
            Some(Chunk::Message(bytes) | Chunk::Bytes(0, bytes)) => bytes,
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => Bytes::new(),
        };
        let mut recv = io::Cursor::new(begun).chain(recv);
        let opening = match timeout(REQUEST_MAX, Opening::read(&mut recv)).await {
            Ok(opening) => opening.map_err(|error| Refused::absent(error.to_string())),
            Err(_) => Err(Refused::absent("nothing was asked in time")),
        };
        let place = opening.as_ref().map_or_else(|_| String::new(), |opening| opening.asked.to_string());
        let mut arrived = JoinSet::new();
        let served = match opening {
            Ok(Opening { asked: Asked::Listen(protocol, number, place), properties }) => {
                let listened = self.listen(protocol, number, &place, properties, &mut send, &mut recv).await;
                listened.map(|listened| listened.map(|streams| arrived = streams))
            }
            Ok(Opening { asked: Asked::Properties, properties }) => match self.ask(&properties) {
                Ok(()) => stream::answer(&mut send, Ok("")).await.map(Ok),
                Err(refused) => Ok(Err(refused)),
            },
            Ok(Opening { asked, properties }) => self.connect(&asked, properties, &mut send, &mut recv).await,
            Err(refused) => Ok(Err(refused)),
        };
        if let Err(refused) = served? {
            self.live.refused(&place, &refused.why);
            stream::answer(&mut send, Err(&refused)).await?;
        }
        send.shutdown().await?;
        drop(recv);
        while arrived.join_next().await.is_some() {}
        Ok(())
    }

    /// Where a flow leads that begins so.
    pub(super) async fn way(&self, asked: &Asked, properties: Vec<(String, String)>) -> Result<Way, Refused> {
        let from = || self.connection.remote_addr().map_or_else(String::new, |address| address.to_string());
        match (asked, &self.judge) {
            (Asked::Connect(protocol, place), Judge::Server(permits, _, key)) => {
                let wants = wants_of_peer(self.connection.requirements_at_first(), properties)?;
                let permits = permits.borrow().clone();
                let addresses = permits.addresses(*protocol, place, *key, &self.budget).await?;
                let to = format!("{}{place}", protocol.prefix());
                Ok(Way { name: to.clone(), from: from(), to, addresses, wants })
            }
            (Asked::Arrived(protocol, number), Judge::Client(goals)) => {
                let goal = goals.get(usize::from(*number)).filter(|goal| goal.protocol == *protocol);
                let goal =
                    goal.ok_or_else(|| Refused::forbidden(format!("no forward has number {number}")))?;
                let Place { host, port } = &goal.place;
                let found = self.budget.look_up(host, *port).await;
                let absent = |error| dial::not_found(format!("{}: {}", goal.place, words(&error)));
                let addresses =
                    found.map_err(absent).inspect_err(|refused| self.tell(&goal.name, refused))?;
                let (name, wants) = (goal.name.clone(), goal.wants.clone());
                Ok(Way { name, from: from(), to: goal.place.to_string(), addresses, wants })
            }
            (_, Judge::Client(_)) => {
                Err(Refused::forbidden("a client connects and listens nowhere for its server"))
            }
            (_, Judge::Server(..)) => {
                Err(Refused::forbidden("a server takes only what it is asked to connect"))
            }
        }
    }

    pub(super) fn room(&self) -> Result<Room, Refused> {
        let taken = self.room.charge(Resource::Requests, 1).and_then(|connection| {
            let socket = self.budget.socket()?;
            Ok(Room { _connection: connection, _socket: socket })
        });
        taken.map_err(|full| Refused {
            kind: Kind::NoRoom,
            why: format!("there is no room at the other end: {full}"),
        })
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Tells people here why a connection of the peer was not made, if that is for them to know.
    pub(super) fn tell(&self, name: &str, refused: &Refused) {
        if let Judge::Client(_) = self.judge {
            self.teller.tell(name, &refused.to_string());
        }
    }

    async fn connect(
        &self,
        asked: &Asked,
        properties: Vec<(String, String)>,
        send: &mut SendFlow,
        recv: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Result<(), Refused>> {
        if let Asked::Connect(Protocol::Udp, _) | Asked::Arrived(Protocol::Udp, _) = asked {
            return Ok(Err(Refused::absent("datagrams are asked for in a flow of bytes")));
        }
        let _room = match self.room() {
            Ok(room) => room,
            Err(refused) => return Ok(Err(refused)),
        };
        let connected = timeout(ANSWER_MAX, async {
            let way = self.way(asked, properties).await?;
            let asking = way.wants.options(&self.connection, Protocol::Tcp);
            let asking = asking.and_then(|asking| asking.apply(send).map(|()| asking));
            let asking = asking.map_err(Refused::absent)?;
            let socket =
                dial::connect(&self.sockets, &way.addresses, &self.budget).await.map_err(|(kind, why)| {
                    let refused = Refused { kind, why: format!("{} does not answer: {why}", way.to) };
                    self.tell(&way.name, &refused);
                    refused
                })?;
            Ok::<_, Refused>((way, asking, socket))
        });
        let late = || Refused { kind: Kind::TimedOut, why: "the place does not answer in time".to_owned() };
        let (way, asking, socket) = match connected.await.unwrap_or_else(|_| Err(late())) {
            Ok(connected) => connected,
            Err(refused) => return Ok(Err(refused)),
        };
        stream::answer(send, Ok("")).await?;
        // A name may lead anywhere: where it led is said as well.
        let to = match socket.peer_addr() {
            Ok(at) if !way.to.ends_with(&at.to_string()) => format!("{} ({at})", way.to),
            _ => way.to,
        };
        let entered = self.live.enter([way.name, way.from, to], Some((&self.connection, send.id())));
        entered.join(Resetting::new(socket), send, recv, &[], &asking).await.map(Ok)
    }

    /// Listens for the peer as long as the flow is open. Returns the streams that have arrived by
    /// then, which go on.
    async fn listen(
        &self,
        protocol: Protocol,
        number: u16,
        place: &Place,
        properties: Vec<(String, String)>,
        send: &mut SendFlow,
        recv: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Result<JoinSet<()>, Refused>> {
        let bound = async {
            let Judge::Server(permits, places, key) = &self.judge else {
                return Err(Refused::forbidden("a client listens nowhere for its server"));
            };
            let addresses = permits.borrow().listening(protocol, place, *key)?;
            let room = self.listeners.clone().try_acquire_owned().map_err(|_| {
                let why = format!("{LISTENERS_MAX} places are listened at, which is the most");
                Refused { kind: Kind::NoRoom, why }
            })?;
            let wants = wants_of_peer(self.connection.requirements_at_first(), properties)?;
            let socket =
                bind(&self.sockets, protocol, &addresses, places, *key).await.map_err(Refused::absent)?;
            let address = socket.local_addr().map_err(|error| Refused::absent(words(&error)))?;
            let holding: Holding = places.hold(protocol, address, *key, &self.connection);
            Ok((socket, address, holding, room, wants))
        };
        let (socket, address, holding, _room, wants) = match bound.await {
            Ok(bound) => bound,
            Err(refused) => return Ok(Err(refused)),
        };
        stream::answer(send, Ok(&address.port().to_string())).await?;
        let name = format!("{}{address}", protocol.prefix());
        let entry = Arc::new(Entry {
            room: self.arriving.payer(&name),
            budget: self.budget.clone(),
            name,
            asked: Some(Asked::Arrived(protocol, number)),
            to: "the client".to_owned(),
            wants,
            live: self.live.clone(),
            teller: self.teller.clone(),
        });
        let mut nowhere = tokio::io::sink();
        let until = async {
            tokio::select! {
                biased;
                // Nothing is expected in it but its end.
                _ = tokio::io::copy(recv, &mut nowhere) => {}
                () = holding.gone() => {}
            }
        };
        Ok(Ok(socket.serve_until(entry, self.here.subscribe(), until).await))
    }

    /// Asks properties of all that this end sends.
    fn ask(&self, properties: &[(String, String)]) -> Result<(), Refused> {
        if let Judge::Client(_) = self.judge {
            return Err(Refused::forbidden("a client is asked nothing by its server"));
        }
        for (name, value) in properties {
            self.connection.set_property_for_peer(name, value).map_err(|error| match error {
                uts::PropertyError::Property(why @ RequirementError::NotForPeers { .. }) => {
                    Refused::forbidden(why.to_string())
                }
                error => Refused::absent(error.to_string()),
            })?;
        }
        Ok(())
    }
}

/// Listens at the first of these places that can be had. Who holds one for the same key, and does
/// not answer any more, makes room.
async fn bind<S: Sockets>(
    sockets: &S,
    protocol: Protocol,
    addresses: &[SocketAddr],
    places: &Places,
    key: Option<Fingerprint>,
) -> Result<Socket<S>, String> {
    let mut bound = Socket::bind(sockets, protocol, addresses).await;
    let Some(_doubt) = bound.is_err().then(|| places.doubt(protocol, addresses, key)).flatten() else {
        return bound;
    };
    let until = Instant::now() + DOUBT_MAX;
    while bound.is_err() && Instant::now() < until {
        sleep(LOOK_EVERY).await;
        bound = Socket::bind(sockets, protocol, addresses).await;
    }
    bound
}

/// Wants of a peer for the flows that it has opened, at an end with requirements of its own.
fn wants_of_peer(own: &Requirements, properties: Vec<(String, String)>) -> Result<Arc<Wants>, Refused> {
    let wants = Wants::default();
    for (name, value) in &properties {
        let name = name.trim();
        let asked = Requirements::default().set_for_peer(own, name, value);
        asked.map_err(|error| Refused::forbidden(error.to_string()))?;
        wants.set(name, value).map_err(Refused::absent)?;
    }
    Ok(Arc::new(wants))
}
