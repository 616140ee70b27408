//! One connection of a sender or a receiver, from its request to its end.

use super::{Ended, Ends, Run};
use crate::cmd::tunnel::server;
use crate::cmd::{Failure, beside, pipe};
use crate::link::{ConnectOptions, ExchangeStep, Link, Transport};
use crate::media::wire::{Asked, Role};
use crate::media::{AHEAD_BYTES, LIFETIME, Way, agreed, millis, requests, split};
use std::io;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uts::{Chunk, Connection, FlowOptions, Function, RecvFlow, SendFlow};
use uts_tunnel::stream::read_answer;

/// Time that the server may take to answer a request.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Time that a connection may take to say why its flows have ended.
const REASON_MAX: Duration = Duration::from_secs(2);

/// The mechanism by which the server hears when a datagram was made, and holds nothing up.
const PASSED_ON: (&str, &str) = ("uts.profile.playout", "fixed(delay=1,late=1)");

impl<T: Transport> Run<'_, T> {
    /// Carries what there is by a connection, as long as that lasts.
    pub(super) async fn carry(&self, link: &T::Link) -> Ended {
        let Some(connection) = link.connection() else {
            return Ended::Failed(Failure::Failed("this transport carries no media".into()));
        };
        // All that is spawned here ends with this connection.
        let mut tasks = JoinSet::new();
        let board = self.board.clone();
        let note = move |step: &ExchangeStep| {
            board.last.lock().unwrap_or_else(PoisonError::into_inner).note(step);
        };
        tasks.spawn(pipe::tell(link.events(), server(&self.host), self.log.clone(), note));
        let asked = match timeout(ANSWER_MAX, self.ask(&connection)).await {
            Ok(asked) => asked,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not answer the request")),
        };
        let requests = match asked {
            Ok(Ok(requests)) => requests,
            Ok(Err(refused)) => return Ended::Failed(Failure::Failed(format!("{}: {refused}", self.host))),
            Err(error) => return self.broken(&connection, &error).await,
        };
        self.board.connected(&connection, requests).await;
        let again =
            ConnectOptions { interactive: false, accept_new: false, qlog: None, ..self.options.clone() };
        let carried = async {
            match &self.ends {
                Ends::From(input) => {
                    let sent = self.send(&connection).await;
                    sent.map(|()| input.failure().map_or(Ended::Done, Ended::Failed))
                }
                Ends::To(sink) => self.receive(&connection, &mut *sink.lock().await).await,
            }
        };
        tokio::select! {
            carried = carried => match carried {
                Ok(ended) => ended,
                Err(error) => self.broken(&connection, &error).await,
            },
            reason = connection.closed() => Ended::Broken(reason.to_string()),
            // It goes on for ever; a connection that it ends is closed.
            () = beside::look(self.transport, &self.host, &again, link) => Ended::Done,
        }
    }

    /// Says why a connection carries no more: its own reason says more than that of a flow.
    async fn broken(&self, connection: &Connection, error: &io::Error) -> Ended {
        let reason = timeout(REASON_MAX, connection.closed()).await;
        Ended::Broken(reason.map_or_else(|_| error.to_string(), |reason| reason.to_string()))
    }

    /// Asks the server for the part in the stream.
    async fn ask(&self, connection: &Connection) -> io::Result<Result<(SendFlow, RecvFlow), String>> {
        let flow = connection.open_flow(FlowOptions::requiring(requests())).await;
        let (mut send, mut recv) = flow.map_err(io::Error::other)?.split();
        let (role, name) = (self.board.role, self.board.name.clone());
        let asked = Asked { role, name, properties: self.board.of_server() };
        send.write_all(&asked.emit()).await?;
        send.flush().await?;
        Ok(match read_answer(&mut recv).await? {
            Ok(said) => {
                let said = if said.is_empty() { said } else { format!("; {said}") };
                self.tell(&format!("{}{said}", self.words()));
                Ok((send, recv))
            }
            Err(refused) => Err(refused.to_string()),
        })
    }

    /// Sends what comes, to its end.
    async fn send(&self, connection: &Connection) -> io::Result<()> {
        let mut way = Way::of(connection);
        // One property is this program's own, a second the user's.
        if self.options.properties.iter().filter(|(asked, _)| asked == LIFETIME).count() < 2 {
            connection.set_property(LIFETIME, &millis(way.lifetime(self.board.latency())))?;
        }
        let (name, value) = PASSED_ON;
        if !self.options.properties.iter().any(|(asked, _)| asked == name) {
            connection.set_property(name, value)?;
            if let Err(why) = agreed(connection, Function::Playout).await {
                self.tell(&format!("datagrams go without their times: {why}"));
            }
        }
        let flow = connection.open_flow(FlowOptions::default()).await.map_err(io::Error::other)?;
        let (mut send, _recv) = flow.split();
        let queue = &self.board.queue;
        loop {
            // It waits in the queue, where the oldest makes room, and not in the flow.
            send.granted(1, AHEAD_BYTES).await?;
            let Some(waiting) = queue.next(|| self.board.latency()).await else { break };
            let options = waiting.options(way.lifetime(self.board.latency()));
            send.send_message(waiting.message, options).await?;
        }
        Ok(send.finished().await?)
    }

    /// Receives what is sent, until nobody wants it any more.
    async fn receive(&self, connection: &Connection, sink: &mut super::Sink) -> io::Result<Ended> {
        debug_assert_eq!(self.board.role, Role::Receive);
        let Some(flow) = connection.accept_flow().await else {
            return Err(connection.closed().await.into());
        };
        let (mut back, mut recv) = flow.split();
        // Nothing goes that way. The server may have gone.
        let _ = back.finish();
        while let Some(chunk) = recv.recv_chunk(usize::MAX).await? {
            let message = match chunk {
                Chunk::Message(message) | Chunk::Timed { message, .. } => message,
                // The numbers tell how many.
                Chunk::Missing { .. } => continue,
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "media that is no messages")),
            };
            let Some((number, datagram)) = split(&message) else { continue };
            self.board.count(|count| {
                count.numbers.on_arrival(number);
                count.on_datagram(&datagram);
                count.playout = recv.playout().unwrap_or(count.playout);
            });
            if sink.put(datagram).await.is_err() {
                return Ok(Ended::Done);
            }
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server has ended the stream"))
    }
}
