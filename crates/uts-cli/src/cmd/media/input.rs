//! Media that comes to a sender: it is read whether there is a connection or not, and waits for one
//! for no longer than it is worth something.

use crate::cmd::Failure;
use crate::cmd::pipe::standard_input;
use crate::media::board::Board;
use crate::media::cutter::Cutter;
use crate::media::format::Format;
use crate::media::pacer::Pacer;
use crate::media::place::{Place, listen};
use crate::media::timeline::Timeline;
use crate::media::{DATAGRAM_BYTES_MAX, head};
use crate::ui::Ui;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use uts_end::output;

/// A source that is being read.
pub struct Input {
    failed: Arc<Mutex<Option<Failure>>>,
    _reading: JoinSet<()>,
}

impl Input {
    /// Opens the place of a sender, and reads what comes there into its queue.
    ///
    /// # Errors
    /// Why nothing can come from there.
    pub async fn open(board: Arc<Board>, log: Arc<dyn Ui>) -> Result<Input, Failure> {
        let failed = Arc::<Mutex<Option<Failure>>>::default();
        let mut reading = JoinSet::new();
        let mut source = Source {
            board: board.clone(),
            log,
            number: first_number(),
            timeline: Timeline::new(Instant::now()),
        };
        match board.place.clone() {
            Place::Udp(host, port) => {
                let socket = listen(&host, port).await.map_err(Failure::Failed)?;
                reading.spawn(async move { source.datagrams(&socket).await });
            }
            Place::Standard => {
                let told = failed.clone();
                reading.spawn(async move {
                    if let Err(failure) = source.stream().await {
                        *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                    }
                    source.board.queue.end();
                });
            }
        }
        Ok(Input { failed, _reading: reading })
    }

    /// Why it has ended, if not by its end.
    pub fn failure(&self) -> Option<Failure> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The number of the first datagram. Another sender of the name, and this one when it is started
/// again, begins far from it.
#[expect(clippy::disallowed_methods, reason = "a number that is another at each start")]
fn first_number() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u32)
}

struct Source {
    board: Arc<Board>,
    log: Arc<dyn Ui>,
    number: u32,
    timeline: Timeline,
}

impl Source {
    /// Reads datagrams, for ever. What they are is told once.
    async fn datagrams(&mut self, socket: &UdpSocket) {
        let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
        let mut was_told = false;
        loop {
            // That somebody is gone, to whom was sent, is nothing to somebody who only reads.
            let Ok(bytes) = socket.recv(&mut datagram).await else { continue };
            let datagram = &datagram[..bytes];
            if !std::mem::replace(&mut was_told, true) {
                let format = Format::of(datagram);
                let more = if format == Format::Other { ": datagrams are carried as they are" } else { "" };
                self.log.notice(None, "media", &format!("{} is {format}{more}", self.board.place));
            }
            self.take(datagram);
        }
    }

    /// Reads a transport stream, at the pace of its clock.
    async fn stream(&mut self) -> Result<(), Failure> {
        let (mut cutter, mut pacer, mut skipped) = (Cutter::default(), Pacer::default(), 0);
        let (mut chunks, mut has_ended) = (standard_input().await, false);
        let failed = |why: String| Failure::Failed(format!("standard input: {why}"));
        while !has_ended {
            match chunks.recv().await {
                Some(Ok(chunk)) => cutter.push(&chunk),
                Some(Err(error)) => return Err(failed(output::words(&error))),
                None => {
                    cutter.end();
                    has_ended = true;
                }
            }
            while let Some(datagram) = cutter.next_datagram().map_err(failed)? {
                sleep_until(pacer.due(&datagram, Instant::now())).await;
                self.board.queue.has_room(datagram.len()).await;
                self.take(&datagram);
            }
            if cutter.skipped() > skipped {
                skipped = cutter.skipped();
                let line = format!(
                    "standard input: {skipped} bytes so far belong to no packet of a transport stream"
                );
                self.log.warning(&line);
            }
        }
        Ok(())
    }

    fn take(&mut self, datagram: &[u8]) {
        self.board.count(|count| count.on_datagram(datagram));
        let message = head(self.number, datagram);
        self.number = self.number.wrapping_add(1);
        self.board.queue.push(self.timeline.now(Instant::now(), message));
    }
}
