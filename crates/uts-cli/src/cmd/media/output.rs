//! Where a receiver puts media.

use crate::cmd::Failure;
use crate::media::place::{Place, reach};
use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, oneshot};
use uts_end::output::Output;

/// Datagrams that wait for standard output. What it does not take holds up the receiver, and then
/// waits at the server, where the oldest makes room.
const WAITING_MAX: usize = 64;

/// A place that takes media.
pub enum Sink {
    /// A socket.
    Udp(UdpSocket),
    /// Standard output, which is written by a thread: a write may wait.
    Standard(mpsc::Sender<Bytes>, oneshot::Receiver<()>),
}

/// Nobody reads standard output any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Unread;

impl Sink {
    /// Opens a place.
    ///
    /// # Errors
    /// Why nothing can go there.
    pub async fn open(place: &Place) -> Result<Sink, Failure> {
        match place {
            Place::Udp(host, port) => Ok(Sink::Udp(reach(host, *port).await.map_err(Failure::Failed)?)),
            Place::Standard => {
                let (datagrams, mut waiting) = mpsc::channel::<Bytes>(WAITING_MAX);
                let (written, done) = oneshot::channel();
                std::thread::spawn(move || {
                    while let Some(datagram) = waiting.blocking_recv() {
                        // What is lost has been noted, and told if it is not the reader's business.
                        if Output::Out.bytes(&datagram).is_err() {
                            break;
                        }
                    }
                    drop(waiting);
                    let _ = written.send(());
                });
                Ok(Sink::Standard(datagrams, done))
            }
        }
    }

    /// Puts a datagram there.
    ///
    /// # Errors
    /// That nobody reads standard output any more.
    pub async fn put(&mut self, datagram: Bytes) -> Result<(), Unread> {
        match self {
            Sink::Udp(socket) => {
                // A player that is not there yet takes the next.
                let _ = socket.send(&datagram).await;
                Ok(())
            }
            Sink::Standard(datagrams, _) => datagrams.send(datagram).await.map_err(|_| Unread),
        }
    }

    /// Waits until all is written that was put there.
    pub async fn finish(self) {
        if let Sink::Standard(datagrams, written) = self {
            drop(datagrams);
            // A thread that panicked has written what it could. A reader that has stopped reading
            // is not waited for.
            let _ = tokio::time::timeout(std::time::Duration::from_secs(1), written).await;
        }
    }
}
