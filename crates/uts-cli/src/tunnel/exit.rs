//! The end that connects further what has arrived at the other end, where that is permitted.

use super::entry::{Entry, Socket};
use super::forward::{Place, Protocol};
use super::held::{DOUBT_MAX, Holding, LOOK_EVERY, Places};
use super::live::Live;
use super::permit::Permits;
use super::wire::{Asked, Opening};
use super::{CONNECTIONS_MAX, LISTENERS_MAX, Teller, Wants, datagrams, is_for_peer};
use crate::stream::{self, REQUEST_MAX, Refused};
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use uts::files::Flows;
use uts::printable::words;
use uts::{Chunk, Connection, Fingerprint, RecvFlow, SendFlow};

/// What the beginning of a flow is read from at most, in bytes.
const OPENING_BYTES_MAX: usize = 16 << 10;

/// Names that are looked up at once for one peer: each lookup holds a thread that others need too.
const LOOKUPS_MAX: usize = 16;

/// Where what a peer asks for may lead.
pub enum Judge {
    /// A server: where its permits say, for a client of this key; and the places that clients hold.
    Server(Arc<Permits>, Arc<Places>, Option<Fingerprint>),
    /// A client: where its own forwards lead, by their numbers.
    Client(Vec<Goal>),
}

/// Where what arrives at a server leads, at its client.
pub struct Goal {
    /// What it is called.
    pub name: String,
    /// What is carried.
    pub protocol: Protocol,
    /// Where it leads.
    pub place: Place,
    /// What is asked of its flows.
    pub wants: Arc<Wants>,
}

/// An end of one connection, as its peer's flows meet it.
pub struct Exit {
    connection: Connection,
    judge: Judge,
    live: Arc<Live>,
    teller: Arc<Teller>,
    /// For connections that are carried, in each direction, and for what listens.
    room: Arc<Semaphore>,
    arriving: Arc<Semaphore>,
    listeners: Arc<Semaphore>,
    lookups: Semaphore,
}

/// Where a flow leads, and how it is carried.
pub(super) struct Way {
    pub name: String,
    pub from: String,
    pub to: String,
    pub addresses: Vec<SocketAddr>,
    pub wants: Arc<Wants>,
}

impl Exit {
    /// An end of this connection.
    pub fn new(connection: Connection, judge: Judge, live: Arc<Live>, teller: Arc<Teller>) -> Arc<Self> {
        let room = |count| Arc::new(Semaphore::new(count));
        Arc::new(Exit {
            connection,
            judge,
            live,
            teller,
            room: room(CONNECTIONS_MAX),
            arriving: room(CONNECTIONS_MAX),
            listeners: room(LISTENERS_MAX),
            lookups: Semaphore::new(LOOKUPS_MAX),
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
                flow = self.connection.accept() => {
                    let Some((send, recv)) = flow? else { return Ok(()) };
                    let exit = self.clone();
                    // What goes wrong in a flow its peer is told by the flow.
                    flows.spawn(async move { drop(exit.serve_flow(send, recv).await) });
                }
                Some(_) = flows.join_next(), if !flows.is_empty() => {}
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
            Some(Chunk::Bytes(..) | Chunk::Damaged { .. }) => return Err(io::ErrorKind::InvalidData.into()),
            None => Bytes::new(),
        };
        let mut recv = io::Cursor::new(begun).chain(recv);
        let opening = match timeout(REQUEST_MAX, Opening::read(&mut recv)).await {
            Ok(opening) => opening.map_err(|error| Refused::Absent(error.to_string())),
            Err(_) => Err(Refused::Absent("nothing was asked in time".to_owned())),
        };
        let served = match opening {
            Ok(Opening { asked: Asked::Listen(protocol, number, place), properties }) => {
                self.listen(protocol, number, &place, properties, &mut send, &mut recv).await
            }
            Ok(Opening { asked: Asked::Properties, properties }) => match self.ask(&properties) {
                Ok(()) => stream::answer(&mut send, Ok("")).await.map(Ok),
                Err(refused) => Ok(Err(refused)),
            },
            Ok(Opening { asked, properties }) => self.connect(&asked, properties, &mut send, &mut recv).await,
            Err(refused) => Ok(Err(refused)),
        };
        if let Err(refused) = served? {
            stream::answer(&mut send, Err(&refused)).await?;
        }
        send.shutdown().await
    }

    /// Where a flow leads that begins so.
    pub(super) async fn way(&self, asked: &Asked, properties: Vec<(String, String)>) -> Result<Way, Refused> {
        let _turn = self.lookups.acquire().await;
        let from = || self.connection.remote_addr().map_or_else(String::new, |address| address.to_string());
        match (asked, &self.judge) {
            (Asked::Connect(protocol, place), Judge::Server(permits, _, key)) => {
                let wants = wants_of_peer(properties)?;
                let addresses = permits.addresses(*protocol, place, *key).await;
                let addresses = addresses.inspect_err(|refused| {
                    if let Refused::Forbidden(why) = refused {
                        self.teller.tell("refused", why);
                    }
                })?;
                let to = format!("{}{place}", protocol.prefix());
                Ok(Way { name: to.clone(), from: from(), to, addresses, wants })
            }
            (Asked::Arrived(protocol, number), Judge::Client(goals)) => {
                let goal = goals.get(usize::from(*number)).filter(|goal| goal.protocol == *protocol);
                let goal =
                    goal.ok_or_else(|| Refused::Forbidden(format!("no forward has number {number}")))?;
                let Place { host, port } = &goal.place;
                let found = tokio::net::lookup_host((host.as_str(), *port)).await;
                let absent = |why| Refused::Absent(format!("{}: {why}", goal.place));
                let addresses: Vec<SocketAddr> = found.map_err(|error| absent(error.to_string()))?.collect();
                let (name, wants) = (goal.name.clone(), goal.wants.clone());
                Ok(Way { name, from: from(), to: goal.place.to_string(), addresses, wants })
            }
            (_, Judge::Client(_)) => {
                Err(Refused::Forbidden("a client connects and listens nowhere for its server".to_owned()))
            }
            (_, Judge::Server(..)) => {
                Err(Refused::Forbidden("a server takes only what it is asked to connect".to_owned()))
            }
        }
    }

    pub(super) fn room(&self) -> Result<tokio::sync::OwnedSemaphorePermit, Refused> {
        self.room.clone().try_acquire_owned().map_err(|_| {
            Refused::Absent(format!("{CONNECTIONS_MAX} connections are open, which is the most"))
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
            return Ok(Err(Refused::Absent("datagrams are asked for in a flow of bytes".to_owned())));
        }
        let _room = match self.room() {
            Ok(room) => room,
            Err(refused) => return Ok(Err(refused)),
        };
        let way = match self.way(asked, properties).await {
            Ok(way) => way,
            Err(refused) => return Ok(Err(refused)),
        };
        let asking = way.wants.options(&self.connection, Protocol::Tcp);
        let asking = match asking.and_then(|asking| asking.apply(send).map(|()| asking)) {
            Ok(asking) => asking,
            Err(why) => return Ok(Err(Refused::Absent(why))),
        };
        let connected = timeout(REQUEST_MAX, TcpStream::connect(&way.addresses[..])).await;
        let socket = match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(socket) => socket,
            Err(error) => {
                let refused = Refused::Absent(format!("{} does not answer: {}", way.to, words(&error)));
                self.tell(&way.name, &refused);
                return Ok(Err(refused));
            }
        };
        stream::answer(send, Ok("")).await?;
        let entered = self.live.enter([way.name, way.from, way.to], &self.connection, send.id());
        entered.join(socket, send, recv, stream::at_once, &asking).await.map(Ok)
    }

    /// Listens for the peer as long as the flow is open.
    async fn listen(
        &self,
        protocol: Protocol,
        number: u16,
        place: &Place,
        properties: Vec<(String, String)>,
        send: &mut SendFlow,
        recv: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Result<(), Refused>> {
        let bound = async {
            let Judge::Server(permits, places, key) = &self.judge else {
                return Err(Refused::Forbidden("a client listens nowhere for its server".to_owned()));
            };
            let addresses = permits.listening(protocol, place, *key).inspect_err(|refused| {
                self.teller.tell("refused", &refused.to_string());
            })?;
            let room = self.listeners.clone().try_acquire_owned().map_err(|_| {
                Refused::Absent(format!("{LISTENERS_MAX} places are listened at, which is the most"))
            })?;
            let wants = wants_of_peer(properties)?;
            let socket = bind(protocol, &addresses, places, *key).await.map_err(Refused::Absent)?;
            let address = socket.local_addr().map_err(|error| Refused::Absent(error.to_string()))?;
            let holding: Holding = places.hold(protocol, address, *key, &self.connection);
            Ok((socket, address, holding, room, wants))
        };
        let (socket, address, holding, _room, wants) = match bound.await {
            Ok(bound) => bound,
            Err(refused) => return Ok(Err(refused)),
        };
        stream::answer(send, Ok(&address.port().to_string())).await?;
        let entry = Arc::new(Entry {
            name: format!("{}{address}", protocol.prefix()),
            asked: Some(Asked::Arrived(protocol, number)),
            to: "the client".to_owned(),
            wants,
            room: self.arriving.clone(),
            live: self.live.clone(),
            teller: self.teller.clone(),
        });
        let (_now, connections) = watch::channel(Some(self.connection.clone()));
        let mut nowhere = tokio::io::sink();
        tokio::select! {
            () = socket.serve(entry, connections) => {}
            () = holding.gone() => {}
            // Nothing is expected in it but its end.
            _ = tokio::io::copy(recv, &mut nowhere) => {}
        }
        Ok(Ok(()))
    }

    /// Asks properties of all that this end sends.
    fn ask(&self, properties: &[(String, String)]) -> Result<(), Refused> {
        if let Judge::Client(_) = self.judge {
            return Err(Refused::Forbidden("a client is asked nothing by its server".to_owned()));
        }
        for (name, value) in properties {
            check_for_peer(name)?;
            let set = self.connection.set_property(name, value);
            set.map_err(|error| Refused::Absent(error.to_string()))?;
        }
        Ok(())
    }
}

/// Listens at the first of these places that can be had. Who holds one for the same key, and does
/// not answer any more, makes room.
async fn bind(
    protocol: Protocol,
    addresses: &[SocketAddr],
    places: &Places,
    key: Option<Fingerprint>,
) -> Result<Socket, String> {
    let mut bound = Socket::bind(protocol, addresses).await;
    let Some(_doubt) = bound.is_err().then(|| places.doubt(protocol, addresses, key)).flatten() else {
        return bound;
    };
    let until = Instant::now() + DOUBT_MAX;
    while bound.is_err() && Instant::now() < until {
        sleep(LOOK_EVERY).await;
        bound = Socket::bind(protocol, addresses).await;
    }
    bound
}

/// Whether a peer may ask this property.
fn check_for_peer(name: &str) -> Result<(), Refused> {
    if is_for_peer(name) {
        return Ok(());
    }
    Err(Refused::Forbidden(format!("{name} is for each end to choose for itself")))
}

/// What a peer asks of the flows that it has opened.
fn wants_of_peer(properties: Vec<(String, String)>) -> Result<Arc<Wants>, Refused> {
    let wants = Wants::default();
    for (name, value) in &properties {
        check_for_peer(name)?;
        wants.set(name, value).map_err(Refused::Absent)?;
    }
    Ok(Arc::new(wants))
}
