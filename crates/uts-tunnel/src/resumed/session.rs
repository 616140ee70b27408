//! One end of a stream while it lives: between its application and whatever carries it.

use super::delays::Delays;
use super::memory::Memory;
use super::wire::{Frame, How, Welcome, put_ask, put_here, put_taken, read_frame};
use super::{Carrier, Sending};
use crate::stream::{Refused, answer};
use crate::waits::{Either, in_turns, until};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};
use uts_ledger::Payer;

/// Bytes that are read of an application at once, while much comes, and else.
const CHUNK_BYTES: usize = 64 << 10;
const CHUNK_BYTES_MIN: usize = 2 << 10;

/// The peer is told of what was taken within this time, if nothing goes to it meanwhile, or at once
/// if that is this part of the window.
const TELL_WITHIN: Duration = Duration::from_millis(50);
const TELL_PART: u64 = 8;

/// Silence of a carrier after which the peer is asked whether it is here, and after which another
/// carrier is wanted. What was taken is told within [`TELL_WITHIN`]. Chosen: as UTS tells silence.
const ASK_AFTER: Duration = Duration::from_secs(1);
const STALLED_AFTER: Duration = Duration::from_secs(3);

/// Time that is left to the peer to end a carrier once the stream is over. Chosen.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// Time after which an application that takes nothing more is given up, if it says nothing either.
const LINGER: Duration = Duration::from_secs(30);

/// The end of a stream that is not its application's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost(pub String);

/// A carrier to take. `W` is what its owner calls it by: a name, or a place in a list.
pub struct Offer<W = &'static str> {
    /// The carrier itself.
    pub carrier: Carrier,
    /// Its number, counted by the client.
    pub number: u64,
    /// The way that it goes, for its owner.
    pub way: W,
    /// Words of both ends about it.
    pub stand: Stand,
}

/// Carriers that are offered to a session, or why it is to end.
pub type Offers<W = &'static str> = mpsc::Receiver<Result<Offer<W>, Lost>>;

/// A way to offer carriers to a session.
pub type Taker<W = &'static str> = mpsc::Sender<Result<Offer<W>, Lost>>;

/// Carriers that wait to be taken.
const OFFERS_MAX: usize = 4;

/// Both ends of what leads carriers to a session.
pub fn offers<W>() -> (Taker<W>, Offers<W>) {
    mpsc::channel(OFFERS_MAX)
}

/// Words that both ends have said about a carrier.
#[derive(Clone, Copy, Debug)]
pub enum Stand {
    /// The client has said this, and the server has yet to answer: the position up to which the
    /// client has received, and its window.
    Asked { received: u64, window: u32 },
    /// The server has answered this.
    Answered(Welcome),
}

/// News about what carries a stream.
#[derive(Clone, Copy, Debug)]
pub enum News<W = &'static str> {
    /// A carrier that goes this way is in use.
    Carried(W),
    /// Something was sent, and nothing comes by the carrier. Another may be better.
    Stalled,
    /// Something has come again.
    Goes,
    /// The carrier has ended.
    Ended,
}

/// One end of a stream.
pub struct Session {
    memory: Mutex<Memory>,
    /// There is room for what the application says.
    room: Notify,
    /// There is something to send.
    work: Notify,
    /// Something has come.
    arrived: Notify,
    /// Something was said.
    said: Notify,
    /// The application is not listened to any more.
    stop: Notify,
    /// The application has gone.
    leaves: Notify,
    /// The carrier stalls, or does so no more.
    stall: Notify,
    is_stalled: AtomicBool,
    /// The peer is to be asked whether it is here.
    asks: AtomicBool,
    /// Something comes.
    heard: Notify,
    /// When something has come last.
    heard_at: Mutex<Instant>,
    /// The application says no more.
    left: Notify,
    /// Both directions have ended.
    over: Notify,
    /// The application has taken something.
    taken: Notify,
    delays: Mutex<Delays>,
}

impl Session {
    /// A stream of which nothing was said, with so much memory for each direction, in bytes.
    pub fn new(bytes_max: usize) -> Session {
        Session::with(Memory::new(bytes_max))
    }

    /// The same, of which is paid for what it holds.
    ///
    /// # Errors
    /// There is no room at all.
    pub fn paid(bytes_max: usize, payer: &Payer) -> Result<Session, uts_ledger::Refused> {
        Memory::paid(bytes_max, payer).map(Session::with)
    }

    fn with(memory: Memory) -> Session {
        Session {
            memory: Mutex::new(memory),
            room: Notify::new(),
            work: Notify::new(),
            arrived: Notify::new(),
            said: Notify::new(),
            stop: Notify::new(),
            leaves: Notify::new(),
            stall: Notify::new(),
            is_stalled: AtomicBool::new(false),
            asks: AtomicBool::new(false),
            heard: Notify::new(),
            heard_at: Mutex::new(Instant::now()),
            left: Notify::new(),
            over: Notify::new(),
            taken: Notify::new(),
            delays: Mutex::default(),
        }
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the peer whether it is here, and waits for an answer for this long. Returns since when
    /// nothing has come: zero if it is here.
    pub async fn silence(&self, wait: Duration) -> Duration {
        let heard = self.heard.notified();
        self.asks.store(true, Relaxed);
        self.work.notify_one();
        match timeout(wait, heard).await {
            Ok(()) => Duration::ZERO,
            Err(_) => self.heard_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed(),
        }
    }

    fn delays(&self) -> MutexGuard<'_, Delays> {
        self.delays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time in which the peer's application has taken 99 of 100 keystrokes; `None` before the
    /// first.
    pub fn keys_p99(&self) -> Option<Duration> {
        self.delays().p99()
    }

    /// Bytes that the application has taken, and that it has said.
    pub fn bytes(&self) -> [u64; 2] {
        let memory = self.memory();
        [memory.taken(), memory.said()]
    }

    /// The end of what the peer says, once that has come.
    pub fn peer_end(&self) -> Option<How> {
        self.memory().peer_end()
    }

    /// Ends what the application says, if that was not done: it has gone.
    pub fn leave(&self) {
        self.leaves.notify_one();
    }

    /// Waits until the application says no more.
    pub async fn left(&self) {
        self.left.notified().await;
    }

    /// Carries the stream between its application and the carriers that are offered, until both
    /// directions have ended. An error that is offered ends it. `told` hears what carries it.
    ///
    /// # Errors
    /// The stream is lost: an error was offered, or there was no carrier for `silence`.
    pub async fn run<W>(
        &self,
        from: impl AsyncRead + Unpin,
        to: impl AsyncWrite + Unpin,
        offers: &mut Offers<W>,
        silence: Duration,
        told: impl FnMut(News<W>),
    ) -> Result<How, Lost> {
        self.run_beside(async { _ = self.apply(from, to).await }, offers, silence, told).await
    }

    /// Carries the stream for an application that `applied` sees to.
    pub(super) async fn run_beside<W>(
        &self,
        applied: impl Future<Output = ()>,
        offers: &mut Offers<W>,
        silence: Duration,
        told: impl FnMut(News<W>),
    ) -> Result<How, Lost> {
        tokio::pin!(applied);
        let mut carried = Box::pin(self.be_carried(offers, silence, told));
        match in_turns(carried.as_mut(), applied.as_mut()).await {
            Either::First(ended) => {
                ended?;
                drop(carried);
                offers.close();
                // It may have yet to take what it was given last.
                applied.await;
            }
            Either::Second(()) => carried.await?,
        }
        Ok(self.memory().how())
    }

    /// Serves the application until both directions have ended for it. The peer may not know yet.
    pub(super) async fn apply(&self, from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin) -> How {
        tokio::join!(self.listen(from), self.hand_over(to));
        self.memory().how()
    }

    /// Takes what the application says, as far as there is room, until its end.
    async fn listen(&self, mut from: impl AsyncRead + Unpin) {
        let (mut chunk, mut size) = (Vec::new(), CHUNK_BYTES_MIN);
        let mut is_given_up = false;
        let how = loop {
            let room = self.memory().room();
            chunk.resize(size.min(room), 0);
            let read = tokio::select! {
                biased;
                () = self.leaves.notified() => break How::Reset,
                () = self.stop.notified() => {
                    if self.memory().peer_end() == Some(How::Reset) {
                        break How::Reset;
                    }
                    is_given_up = true;
                    continue;
                }
                read = from.read(&mut chunk), if room > 0 => read,
                () = self.room.notified(), if room == 0 => continue,
                // T-13
                () = sleep(LINGER), if is_given_up => break How::Reset,
            };
            match read {
                Ok(0) if !is_given_up => break How::Orderly,
                Ok(0) | Err(_) => break How::Reset,
                Ok(bytes) => {
                    let end = {
                        let mut memory = self.memory();
                        memory.say(&chunk[..bytes]);
                        memory.said()
                    };
                    self.delays().on_said(bytes, end, Instant::now());
                    // Who waits with little to say holds little.
                    size = if bytes == chunk.len() { CHUNK_BYTES } else { CHUNK_BYTES_MIN };
                }
            }
            self.tell_said();
            chunk.shrink_to(size);
        };
        self.memory().say_end(how);
        self.left.notify_one();
        self.tell_said();
    }

    /// Hands over to the application what comes, until its end.
    async fn hand_over(&self, mut to: impl AsyncWrite + Unpin) {
        let mut chunk = Vec::new();
        let mut is_gone = false;
        loop {
            chunk.clear();
            let end = {
                let memory = self.memory();
                memory.next_for_application(&mut chunk, CHUNK_BYTES);
                memory.peer_end()
            };
            match end {
                _ if !chunk.is_empty() => {
                    // What nobody takes is thrown away: the other direction tells the peer.
                    if !is_gone && Self::write(&mut to, &chunk).await.is_err() {
                        is_gone = true;
                        self.stop.notify_one();
                    }
                    self.memory().on_taken(chunk.len());
                    self.taken.notify_one();
                    self.work.notify_one();
                }
                None => self.arrived.notified().await,
                Some(how) => {
                    match how {
                        // Who has gone needs no end.
                        How::Orderly => drop(to.shutdown().await),
                        How::Reset => self.stop.notify_one(),
                    }
                    self.memory().on_end_taken();
                    self.tell_changed();
                    return;
                }
            }
        }
    }

    async fn write(to: &mut (impl AsyncWrite + Unpin), chunk: &[u8]) -> io::Result<()> {
        to.write_all(chunk).await?;
        to.flush().await
    }

    fn tell_said(&self) {
        self.work.notify_one();
        self.said.notify_one();
    }

    fn tell_changed(&self) {
        self.work.notify_one();
        if self.memory().is_over() {
            self.over.notify_one();
        }
    }

    async fn be_carried<W>(
        &self,
        offers: &mut Offers<W>,
        silence: Duration,
        mut told: impl FnMut(News<W>),
    ) -> Result<(), Lost> {
        let mut current: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>>> = None;
        let mut number = 0;
        let from_now = || Instant::now().checked_add(silence);
        let mut ends_at = from_now();
        loop {
            tokio::select! {
                biased;
                Some(offer) = offers.recv() => {
                    if self.memory().is_over() {
                        return Ok(());
                    }
                    let offer = offer?;
                    // T-5: one that took long on its way.
                    if offer.number <= number {
                        continue;
                    }
                    number = offer.number;
                    let Offer { carrier, number: _, way, stand } = offer;
                    told(News::Carried(way));
                    // The one before has to be still before it is said how far it came.
                    drop(current.take());
                    current = Some(Box::pin(self.carry(carrier, stand)));
                }
                _ = async {
                    match current.as_mut() {
                        Some(carrying) => carrying.await,
                        None => std::future::pending().await,
                    }
                }, if current.is_some() =>
                {
                    current = None;
                    if self.memory().is_over() {
                        return Ok(());
                    }
                    ends_at = from_now();
                    told(News::Ended);
                }
                () = self.stall.notified(), if current.is_some() => {
                    told(if self.is_stalled.load(Relaxed) { News::Stalled } else { News::Goes });
                }
                () = self.over.notified(), if current.is_none() => {
                    if self.memory().is_over() {
                        return Ok(());
                    }
                }
                // T-15
                () = until(ends_at), if current.is_none() => {
                    let silent = uts_units::show::span(silence);
                    return Err(Lost(format!("no way to the other end for {silent}")));
                }
            }
        }
    }

    /// Carries over one carrier, until that ends or the stream is over.
    async fn carry(&self, carrier: Carrier, stand: Stand) -> io::Result<()> {
        let Carrier { mut send, recv } = carrier;
        let (begins, position, window) = match stand {
            Stand::Answered(welcome) => (welcome.begins, welcome.received, welcome.window),
            Stand::Asked { received, window } => {
                let welcome = self.memory().welcome(received);
                let welcome = match welcome {
                    Ok(welcome) => welcome,
                    Err(error) => {
                        answer(&mut send, Err(&Refused::absent(error.to_string()))).await?;
                        return Err(error);
                    }
                };
                answer(&mut send, Ok("")).await?;
                let mut bytes = Vec::new();
                welcome.emit(&mut bytes);
                send.write_all(&bytes).await?;
                send.flush().await?;
                (welcome.received, welcome.begins, window)
            }
        };
        self.memory().on_window(window);
        let progress = Progress::new(begins);
        let sending = self.send(&mut *send, position, &progress);
        let receiving = self.receive(recv, &progress);
        tokio::pin!(sending, receiving);
        tokio::select! {
            biased;
            () = self.watch(&progress) => {}
            ended = in_turns(sending, receiving.as_mut()) => match ended {
                Either::First(sent) => {
                    sent?;
                    let _ = timeout(GOODBYE_MAX, receiving).await;
                }
                // The peer has ended it, as it has all.
                Either::Second(received) => received?,
            },
        }
        Ok(())
    }

    /// Looks whether anything comes while something is expected. It never ends. (T-14)
    async fn watch(&self, progress: &Progress) {
        self.tell_stalled(false);
        loop {
            while !self.memory().is_outstanding() {
                self.said.notified().await;
            }
            let mut since = Instant::now();
            let mut has_asked = false;
            while self.memory().is_outstanding() {
                let ask = if has_asked { STALLED_AFTER } else { ASK_AFTER };
                match timeout(ask, progress.heard.notified()).await {
                    Ok(()) => {
                        self.tell_stalled(false);
                        (since, has_asked) = (Instant::now(), false);
                    }
                    Err(_) if since.elapsed() < STALLED_AFTER => {
                        self.asks.store(true, Relaxed);
                        has_asked = true;
                        self.work.notify_one();
                    }
                    Err(_) => {
                        self.tell_stalled(true);
                        progress.heard.notified().await;
                    }
                }
            }
        }
    }

    fn tell_stalled(&self, is_stalled: bool) {
        if self.is_stalled.swap(is_stalled, Relaxed) != is_stalled {
            self.stall.notify_one();
        }
    }

    /// Sends what is to be said behind a position, and what was taken of what has come by this
    /// carrier, until the stream is over.
    async fn send(&self, send: &mut dyn Sending, mut position: u64, progress: &Progress) -> io::Result<()> {
        let (mut told, mut due) = (0, None::<Instant>);
        let mut out = Vec::new();
        loop {
            send.takes().await?;
            out.clear();
            let is_over = {
                let memory = self.memory();
                position = memory.put_next(&mut out, position);
                // T-11: more was taken, perhaps, of what came by the carrier before.
                let taken = memory.taken().min(progress.come.load(Relaxed));
                let news = taken.saturating_sub(told);
                let is_due = due.is_some_and(|due| due <= Instant::now())
                    || news >= u64::from(memory.window()) / TELL_PART
                    || memory.is_taken();
                if news > 0 && (is_due || !out.is_empty()) {
                    put_taken(&mut out, taken);
                    (told, due) = (taken, None);
                } else if news > 0 {
                    due = due.or_else(|| Some(Instant::now() + TELL_WITHIN));
                }
                if self.asks.swap(false, Relaxed) {
                    put_ask(&mut out);
                }
                if progress.is_asked.swap(false, Relaxed) {
                    put_here(&mut out);
                }
                memory.is_over() && told == memory.taken()
            };
            if !out.is_empty() {
                send.write_all(&out).await?;
                send.flush().await?;
                continue;
            }
            // T-12
            if is_over {
                return send.shutdown().await;
            }
            out.shrink_to(CHUNK_BYTES_MIN);
            tokio::select! {
                biased;
                () = self.work.notified() => {}
                () = until(due) => {}
            }
        }
    }

    /// Takes in what comes behind a position, until the carrier ends.
    async fn receive(&self, recv: Box<dyn AsyncRead + Send + Unpin>, progress: &Progress) -> io::Result<()> {
        let come = &progress.come;
        let mut recv = BufReader::new(recv);
        let mut data = Vec::new();
        loop {
            let frame = match read_frame(&mut recv, &mut data).await {
                Ok(frame) => frame,
                Err(_) if self.memory().is_over() => return Ok(()),
                Err(error) => return Err(error),
            };
            progress.heard.notify_one();
            self.heard.notify_waiters();
            *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            let position = come.load(Relaxed);
            match frame {
                Frame::Here => {}
                Frame::Ask => {
                    progress.is_asked.store(true, Relaxed);
                    self.work.notify_one();
                }
                Frame::Data(bytes) => {
                    while !self.memory().takes(bytes) {
                        self.taken.notified().await;
                    }
                    self.memory().on_data(position, &data)?;
                    come.store(position + bytes as u64, Relaxed);
                    self.arrived.notify_one();
                }
                Frame::End(how) => {
                    self.memory().on_end(position, how)?;
                    come.store(position + 1, Relaxed);
                    self.arrived.notify_one();
                }
                Frame::Taken(position) => {
                    self.memory().on_taken_by_peer(position)?;
                    self.delays().on_taken(position, Instant::now());
                    self.room.notify_one();
                    self.tell_changed();
                }
            }
        }
    }
}

/// State of a carrier in use.
struct Progress {
    /// The position up to which it has brought what comes.
    come: AtomicU64,
    /// A frame has come.
    heard: Notify,
    /// The peer has asked.
    is_asked: AtomicBool,
}

impl Progress {
    fn new(begins: u64) -> Progress {
        Progress { come: AtomicU64::new(begins), heard: Notify::new(), is_asked: AtomicBool::new(false) }
    }
}

#[cfg(test)]
mod tests;
