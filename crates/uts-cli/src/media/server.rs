//! The server's half: a client's part in a stream, from its request to its end.

use super::hub::{Hub, Publisher, Subscriber};
use super::queue::Queue;
use super::timeline::Timeline;
use super::wire::{Asked, Role};
use super::{AHEAD_BYTES, LATENCY, LOOK_EVERY, WAITING_BYTES, Way, agreed, change, prepare, requests};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, interval, timeout};
use uts::{Chunk, Connection, FlowOptions, Function, RecvFlow, SendFlow, WriteError};
use uts_ledger::{Charge, Resource};
use uts_tunnel::Teller;
use uts_tunnel::dial::Budget;
use uts_tunnel::live::{Carried, Live};
use uts_tunnel::stream::{Kind, REQUEST_MAX, Refused, answer};
use uts_tunnel::wire::read_properties;

/// The least that may wait for a receiver, where there is little room, in bytes.
const WAITING_BYTES_MIN: usize = 128 << 10;

/// Time between two looks at what a receiver could not take.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// A client that is served.
pub struct Client<'a> {
    /// Streams of the server.
    pub hub: &'a Arc<Hub>,
    /// Connection of the client.
    pub connection: Connection,
    /// List of streams that are carried.
    pub live: &'a Arc<Live>,
    /// Means of the server that it may take.
    pub budget: &'a Budget,
    /// Its key, or its address.
    pub owner: &'a str,
    /// Somebody who hears of what it cannot take.
    pub teller: &'a Teller,
}

/// Part of a client in a stream.
enum Part {
    Sender(Publisher),
    /// With the memory that may wait for it.
    Receiver(Subscriber, Charge),
}

impl Client<'_> {
    /// Serves it until its part is over.
    ///
    /// # Errors
    /// Why it has ended, if not by the client's wish.
    pub async fn serve(self) -> io::Result<()> {
        let Some(flow) = self.connection.accept_flow().await else { return Ok(()) };
        let (mut send, mut recv) = flow.split();
        send.set_requirements(&requests()).map_err(io::Error::other)?;
        let asked = match timeout(REQUEST_MAX, Asked::read(&mut recv)).await {
            Ok(asked) => asked,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        let (name, part) = match asked {
            Ok(asked) => (asked.name.clone(), self.begin(&asked).await),
            Err(error) => (String::new(), Err(Refused::absent(error.to_string()))),
        };
        match part {
            Ok(Part::Sender(publisher)) => {
                answer(&mut send, Ok("")).await?;
                self.take(&name, publisher, (send, recv)).await
            }
            Ok(Part::Receiver(subscriber, _held)) => {
                let said = if self.hub.is_sent(&name) { "" } else { "nobody sends it yet" };
                answer(&mut send, Ok(said)).await?;
                self.give(&name, subscriber, (send, recv)).await
            }
            Err(refused) => {
                self.live.refused(&name, &refused.why);
                answer(&mut send, Err(&refused)).await?;
                send.shutdown().await?;
                // Its client ends the connection when it has read that.
                self.connection.closed().await;
                Ok(())
            }
        }
    }

    /// Gives a client its part.
    async fn begin(&self, asked: &Asked) -> Result<Part, Refused> {
        prepare(&self.connection, &asked.properties).map_err(Refused::absent)?;
        match asked.role {
            Role::Send => {
                let publisher = self.hub.send(&asked.name, self.owner);
                publisher.map(Part::Sender).map_err(Refused::forbidden)
            }
            Role::Receive => {
                let held = self.budget.0.charge_up_to(Resource::Memory, WAITING_BYTES_MIN, WAITING_BYTES);
                let held = held.map_err(|full| Refused { kind: Kind::NoRoom, why: full.to_string() })?;
                // Whoever asks for no delay gets messages as they come.
                let has_delay = self.connection.requirements().playout_delay.is_some();
                let function = if has_delay { Function::Playout } else { Function::Segmentation };
                agreed(&self.connection, function).await.map_err(Refused::absent)?;
                Ok(Part::Receiver(self.hub.receive(&asked.name, held.amount()), held))
            }
        }
    }

    /// Takes what a sender sends.
    async fn take(&self, name: &str, publisher: Publisher, requests: (SendFlow, RecvFlow)) -> io::Result<()> {
        let requests = serve_requests(&self.connection, requests);
        tokio::pin!(requests);
        let flow = tokio::select! {
            flow = self.connection.accept_flow() => flow,
            ended = &mut requests => return ended,
            () = publisher.replaced() => return Err(io::Error::other(REPLACED)),
        };
        let Some(flow) = flow else { return Ok(()) };
        let (mut back, recv) = flow.split();
        // Nothing goes that way. Its client may have gone.
        let _ = back.finish();
        let to = format!("the receivers of {name}");
        let entered =
            self.live.enter([name.to_owned(), String::new(), to], Some((&self.connection, recv.id())));
        let taken = async {
            tokio::select! {
                taken = publish(recv, &publisher, entered.carried()) => {
                    taken?;
                    // Its client ends the connection when it knows that all has come.
                    let _ = requests.as_mut().await;
                    Ok(())
                }
                ended = &mut requests => ended,
                () = publisher.replaced() => Err(io::Error::other(REPLACED)),
            }
        };
        entered.carry(taken).await
    }

    /// Gives a receiver what is sent.
    async fn give(
        &self,
        name: &str,
        subscriber: Subscriber,
        requests: (SendFlow, RecvFlow),
    ) -> io::Result<()> {
        let flow = self.connection.open_flow(FlowOptions::default()).await.map_err(io::Error::other)?;
        // What a client would send there is for nobody.
        let (send, _recv) = flow.split();
        let to = self.connection.remote_addr().map_or_else(String::new, |address| address.to_string());
        let entered =
            self.live.enter([name.to_owned(), String::new(), to], Some((&self.connection, send.id())));
        let given = async {
            tokio::select! {
                given = deliver(send, &subscriber.queue, entered.carried()) => given,
                ended = serve_requests(&self.connection, requests) => ended,
                () = self.tell_dropped(name, &subscriber.queue, entered.carried()) => Ok(()),
            }
        };
        entered.carry(given).await
    }

    /// Counts what a receiver could not take, and tells when that begins. It goes on for ever.
    async fn tell_dropped(&self, name: &str, queue: &Queue, carried: &Carried) {
        let mut ticks = interval(TELL_EVERY);
        let mut before = 0;
        loop {
            ticks.tick().await;
            let dropped = queue.dropped();
            carried.dropped.store(dropped, Relaxed);
            if dropped > before {
                self.teller.tell(name, "it takes less than is sent: the oldest datagrams are dropped for it");
            } else {
                self.teller.well(name);
            }
            before = dropped;
        }
    }
}

/// Said of a sender whose owner has come again.
const REPLACED: &str = "the same client sends it by another connection";

/// Hands on what a sender sends, with the age that it has, until its flow ends.
async fn publish(mut recv: RecvFlow, publisher: &Publisher, carried: &Carried) -> io::Result<()> {
    let mut timeline = Timeline::new(publisher.zero());
    while let Some(chunk) = recv.recv_chunk(usize::MAX).await? {
        let now = Instant::now();
        let waiting = match chunk {
            Chunk::Timed { message, timing } => timeline.timed(now, message, timing),
            // Until its profile has media times, and of a sender that gives none.
            Chunk::Message(message) => timeline.now(now, message),
            // Its numbers tell the receivers.
            Chunk::Missing { .. } => continue,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "media that is no messages")),
        };
        carried.received.fetch_add(waiting.message.len() as u64, Relaxed);
        publisher.publish(&waiting);
    }
    Ok(())
}

/// Sends what waits for a receiver, until it wants no more.
async fn deliver(mut send: SendFlow, queue: &Queue, carried: &Carried) -> io::Result<()> {
    let mut latency = Latency::of(send.connection());
    let mut way = Way::of(send.connection());
    loop {
        let sent = async {
            // It waits here, where the oldest makes room, and not in the flow.
            send.granted(1, AHEAD_BYTES).await?;
            let Some(waiting) = queue.next(|| latency.now()).await else {
                return Ok(0);
            };
            let bytes = waiting.message.len();
            let options = waiting.options(way.lifetime(latency.now()));
            send.send_message(waiting.message, options).await?;
            Ok::<_, WriteError>(bytes)
        };
        match sent.await {
            Ok(bytes) => carried.sent.fetch_add(bytes as u64, Relaxed),
            Err(WriteError::Stopped(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
    }
}

/// The age at which a receiver wants datagrams, which may change while they are sent.
struct Latency {
    connection: Connection,
    looked: Instant,
    now: Duration,
}

impl Latency {
    fn of(connection: &Connection) -> Latency {
        let now = wanted(connection);
        Latency { connection: connection.clone(), looked: Instant::now(), now }
    }

    fn now(&mut self) -> Duration {
        if self.looked.elapsed() > LOOK_EVERY {
            (self.looked, self.now) = (Instant::now(), wanted(&self.connection));
        }
        self.now
    }
}

fn wanted(connection: &Connection) -> Duration {
    let requirements = connection.requirements();
    requirements.playout_delay.or(requirements.msg_lifetime).unwrap_or(LATENCY)
}

/// Changes properties of what is sent to a client as it asks it, until it asks no more.
async fn serve_requests(
    connection: &Connection,
    (mut send, mut recv): (SendFlow, RecvFlow),
) -> io::Result<()> {
    loop {
        let asked = match read_properties(&mut recv).await {
            Ok(asked) => asked,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let changed = change(connection, connection.requirements(), &asked).map_err(Refused::absent);
        answer(&mut send, changed.as_ref().map(|()| "")).await?;
    }
}
