//! `uts pipe`: standard input and output, carried to a service behind a server.

use super::tunnel::server;
use super::{Failure, beside, bounded_log, interrupted, properties, reach};
use crate::args::PipeArgs;
use crate::link::{Carrying, ConnectOptions, ExchangeStep, Link, LinkEvent, Transport};
use crate::target::Host;
use crate::ui::Ui;
use crate::ui::record::{Peer, Record};
use bytes::Bytes;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tracing::Level;
use uts_end::output::{self, Output};
use uts_files::Flows;
use uts_tunnel::pipe;
use uts_tunnel::resumed::{Carrier, Client, How, Offers, Session, Step};
use uts_tunnel::stream::{self, Kind, REQUEST_MAX, Refused};

/// Bytes that are read from standard input at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Chunks that wait for the connection.
const CHUNKS_MAX: usize = 4;

/// The name of what carries the stream.
const UTS: &str = "UTS";

/// Time that a server may take to connect the service: it looks its name up first.
const FIRST_ANSWER_MAX: Duration = REQUEST_MAX.saturating_mul(3);

/// Time that the server has to hear that the stream is over.
const END_MAX: Duration = Duration::from_secs(2);

/// Runs `uts pipe` until the service has ended the stream.
///
/// # Errors
/// See [`Failure`].
pub async fn run<T: Transport>(transport: &T, args: &PipeArgs) -> Result<(), Failure> {
    let mut host = reach::host(&args.host)?;
    if args.service.is_empty() || args.service.len() > pipe::NAME_BYTES_MAX {
        let why = format!("SERVICE: write 1 to {} bytes", pipe::NAME_BYTES_MAX);
        return Err(Failure::Usage(why));
    }
    let mut options = args.reach.options(&mut host, properties(&args.wanted)?, true)?;
    options.service = pipe::SERVICE;
    options.silence_max = args.silence;
    let log = bounded_log(args.more.verbose, args.quiet)?;
    let interrupt = interrupted();
    tokio::pin!(interrupt);
    let link = reach::connect(transport, &host, &options, &mut interrupt).await?;
    // Nobody is asked, and nothing is learnt, beside.
    let again = ConnectOptions { interactive: false, accept_new: false, qlog: None, ..options.clone() };
    let (server, since) = (server(&host), Instant::now());
    let telling = tokio::spawn(tell(link.events(), server.clone(), log.clone(), |_| {}));
    let way =
        Way { transport, host: &host, again: &again, server: &server, log: &log, link: Mutex::default() };
    let carried = tokio::select! {
        carried = way.carry(args, link.clone()) => carried,
        () = &mut interrupt => Err(End::Interrupted),
    };
    telling.abort();
    let link = way.link.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or(link);
    let (bytes, lasted) = (Some(link.content_bytes()), Some(since.elapsed()));
    let ended = match carried {
        Ok(()) => Ok(()),
        Err(End::Interrupted) => Err(Failure::interrupted()),
        Err(End::Input(error)) => {
            Err(Failure::Failed(format!("cannot read standard input: {}", output::words(&error))))
        }
        Err(End::Refused(why) | End::Lost(why)) => Err(Failure::Failed(format!("{host}: {why}"))),
        Err(End::Broken(error)) => {
            let why = link.broken().map_or_else(|| error.to_string(), |broken| broken.why);
            Err(Failure::Failed(format!("{host}: {why}")))
        }
        // It has been noted, and told if it is not the reader's business: see `output::status`.
        Err(End::Unread) => Ok(()),
    };
    let why = ended.as_ref().err().and_then(Failure::line).unwrap_or("both ends are done");
    let stream = Record { level: Level::DEBUG, event: "stream", step: "closed", ..Record::default() };
    let peer = Some(&server);
    log.record(&Record { peer, place: &args.service, bytes, lasted, line: why, ..stream });
    link.close(0, "done").await;
    ended
}

/// Means by which the server is reached, for the first time and again.
struct Way<'a, T: Transport> {
    transport: &'a T,
    host: &'a Host,
    again: &'a ConnectOptions,
    server: &'a Peer,
    log: &'a Arc<dyn Ui>,
    /// The connection that took the place of the first.
    link: Mutex<Option<T::Link>>,
}

impl<T: Transport> Way<'_, T> {
    /// Carries the stream, which outlives its connections if the server keeps it.
    async fn carry(&self, args: &PipeArgs, link: T::Link) -> Result<(), End> {
        let session = Arc::new(Session::new(pipe::WINDOW_BYTES));
        let client = Client::new(session.clone(), &args.service, args.silence);
        let (client, offers) = client.map_err(|why| End::Broken(io::Error::other(why)))?;
        let (send, recv) = link.flows().open().await.map_err(End::Broken)?;
        match client.ask(Carrier::flow(send, recv), UTS, FIRST_ANSWER_MAX).await.map_err(End::Broken)? {
            Ok(offer) => client.give(Ok(offer)).await,
            // T-1: it keeps no streams, or is of before them and does not say so. What is refused
            // for another reason is refused again.
            Err(Refused { kind: Kind::NotKept | Kind::Other, .. }) => {
                let flows = link.flows();
                return tokio::select! {
                    carried = carry_by_flow(&*flows, &args.service, standard_input()) => carried,
                    // It goes on for ever; a connection that it ends breaks the stream.
                    () = beside::look(self.transport, self.host, self.again, &link) => Ok(()),
                };
            }
            Err(refused) => return Err(End::Refused(refused.to_string())),
        };
        let links = watch::Sender::new(link.clone());
        let looking = async {
            let mut links = links.subscribe();
            loop {
                let link = links.borrow_and_update().clone();
                tokio::select! {
                    () = beside::look(self.transport, self.host, self.again, &link) => {}
                    _ = links.changed() => {}
                }
            }
        };
        let connect = || self.transport.connect(self.host, self.again);
        let going = client.go_on(UTS, Some(link), connect, {
            let (mut is_lost, links) = (false, &links);
            move |step| match step {
                Step::Connected(link) => {
                    if std::mem::take(&mut is_lost) {
                        self.notice("connected again");
                        tokio::spawn(tell(link.events(), self.server.clone(), self.log.clone(), |_| {}));
                        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.clone());
                        links.send_replace(link.clone());
                    }
                }
                Step::Lost(why) if !is_lost => {
                    is_lost = true;
                    self.notice(&format!("connection lost: {why}; connecting again"));
                }
                Step::Lost(_) | Step::Works(_) => {}
            }
        });
        tokio::select! {
            carried = by_carriers(&session, &client, offers, args.silence) => carried,
            broken = going => Err(End::Lost(broken.why)),
            () = looking => Ok(()),
        }
    }

    fn notice(&self, line: &str) {
        self.log.notice(Some(self.server), "pipe", line);
    }
}

/// Carries standard input and output by whatever carries the stream, until the service's end.
async fn by_carriers(
    session: &Session,
    client: &Client,
    mut offers: Offers,
    silence: Duration,
) -> Result<(), End> {
    // What waits here to be written is bounded, and is written in any case.
    let (to, mut out) = tokio::io::duplex(CHUNK_BYTES);
    let failed = Arc::new(Mutex::default());
    let input = Input { chunks: standard_input().await, chunk: Bytes::new(), failed: failed.clone() };
    let told = |news| client.on_news(news);
    let mut running = Box::pin(session.run(input, to, &mut offers, silence, told));
    let copied = copy_out(&mut out);
    tokio::pin!(copied);
    let ended = tokio::select! {
        copied = &mut copied => {
            copied?;
            // Nothing more that is read here is of use: the service has ended.
            session.leave();
            timeout(END_MAX, &mut running).await.unwrap_or(Ok(How::Orderly))
        }
        ended = &mut running => {
            drop(running);
            copied.await?;
            ended
        }
    };
    if let Some(error) = failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(End::Input(error));
    }
    ended.map_err(|lost| End::Lost(lost.0))?;
    match session.peer_end() {
        Some(How::Reset) => Err(End::Lost("the service has reset the stream".to_owned())),
        _ => Ok(()),
    }
}

/// Standard input as a stream. What cannot be read is noted.
struct Input {
    chunks: mpsc::Receiver<io::Result<Bytes>>,
    chunk: Bytes,
    failed: Arc<Mutex<Option<io::Error>>>,
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.chunk.is_empty() {
            match ready!(self.chunks.poll_recv(cx)) {
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(error)) => {
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
                None => return Poll::Ready(Ok(())),
            }
        }
        let bytes = self.chunk.len().min(buf.remaining());
        buf.put_slice(&self.chunk.split_to(bytes));
        Poll::Ready(Ok(()))
    }
}

/// Tells what happens to the connection. Standard output is the service's.
/// `note` is given each step of an exchange.
pub(super) async fn tell(
    mut events: mpsc::UnboundedReceiver<LinkEvent>,
    server: Peer,
    log: Arc<dyn Ui>,
    note: impl Fn(&ExchangeStep),
) {
    while let Some(event) = events.recv().await {
        match event {
            LinkEvent::Exchange(step) => {
                note(&step);
                let (line, step) = (&step.describe(), step.step);
                let record = Record { level: Level::DEBUG, event: "exchange", step, ..Record::default() };
                log.record(&Record { peer: Some(&server), line, ..record });
            }
            event => {
                if let Some((step, line)) = event.notice() {
                    log.notice(Some(&server), step, &line);
                }
            }
        }
    }
}

/// Why a stream has ended before its time.
#[derive(Debug)]
pub(super) enum End {
    Interrupted,
    /// The server said no.
    Refused(String),
    /// Standard output takes no more.
    Unread,
    /// Standard input cannot be read.
    Input(io::Error),
    Broken(io::Error),
    /// The stream is lost, and why.
    Lost(String),
}

/// Asks for a service, and carries both directions by one flow until the service's ends.
async fn carry_by_flow<F: Flows>(
    flows: &F,
    service: &str,
    input: impl Future<Output = mpsc::Receiver<io::Result<Bytes>>>,
) -> Result<(), End> {
    let (mut send, mut recv) = flows.open().await.map_err(End::Broken)?;
    pipe::ask(&mut send, service).await.map_err(End::Broken)?;
    let answer = stream::read_answer(&mut recv).await.map_err(End::Broken)?;
    answer.map_err(|refused| End::Refused(refused.to_string()))?;
    // Not before: what is typed is for a service that is there.
    let mut input = input.await;
    // It takes the flow's half along. That of an input that has failed is reset behind what was
    // read before, so that nobody takes half of something for the whole.
    let outward = async move {
        while let Some(chunk) = input.recv().await {
            send.write_all(&chunk.map_err(End::Input)?).await.map_err(End::Broken)?;
        }
        send.shutdown().await.map_err(End::Broken)
    };
    let inward = copy_out(&mut recv);
    tokio::pin!(outward, inward);
    tokio::select! {
        ended = &mut inward => ended,
        ended = &mut outward => match ended {
            // The service may have more to say.
            Ok(()) => inward.await,
            // It may say why. Behind an input that has failed, it ends once it has what was read.
            Err(error) => match (error, inward.await) {
                (End::Input(error), _) => Err(End::Input(error)),
                (error, ended) => ended.and(Err(error)),
            },
        },
    }
}

pub(super) async fn copy_out(from: &mut (impl AsyncRead + Unpin)) -> Result<(), End> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let bytes = from.read(&mut chunk).await.map_err(End::Broken)?;
        if bytes == 0 {
            return Ok(());
        }
        // A write that waits holds up a thread that others do not need.
        let written = tokio::task::spawn_blocking(move || {
            let written = Output::Out.bytes(&chunk[..bytes]);
            (chunk, written)
        });
        let (again, written) = written.await.map_err(|error| End::Broken(io::Error::other(error)))?;
        written.map_err(|_| End::Unread)?;
        chunk = again;
    }
}

/// Chunks of standard input. It is read by a thread that nobody waits for: a read that waits
/// cannot be taken back.
pub(super) async fn standard_input() -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
    std::thread::spawn(move || {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = match output::read_input(&mut chunk) {
                Ok(0) => return,
                Ok(bytes) => Ok(Bytes::copy_from_slice(&chunk[..bytes])),
                Err(error) => Err(error),
            };
            let has_failed = read.is_err();
            if sender.blocking_send(read).is_err() || has_failed {
                return;
            }
        }
    });
    receiver
}
