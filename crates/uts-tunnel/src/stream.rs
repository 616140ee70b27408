//! Common parts of streams of other programs, however they are asked for (`pipe/`, `tunnel/`): the
//! answer to a request, and the copying between a socket and a flow.
//!
//! An answer is a byte (0 = it is there, 1 = it is not, 2 = it is not permitted), a byte of length,
//! and a text: why not, or what the request asks to be told. Behind the text of a 1 may stand a
//! byte that says of which kind the reason is ([`Kind`]), and the stream ends. Ends that do not
//! know the byte have stopped reading by then. (V-2)

use crate::sockets::{LINGER, Resetting, Tcp};
use crate::waits::{Either, in_turns};
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep};
use uts_files::WriteShared;

/// Bytes that are read at once, while much comes, and at first.
const CHUNK_BYTES: usize = 32 << 10;
const CHUNK_BYTES_MIN: usize = 2 << 10;

/// Bytes that may wait in a flow to leave, if there is room.
pub const AHEAD_BYTES: usize = 256 << 10;
/// Bytes that may wait in a flow to leave, if there is little room.
pub const AHEAD_BYTES_MIN: usize = 8 << 10;

/// Time that a client may take to say what it wants, and a service to answer.
pub const REQUEST_MAX: Duration = Duration::from_secs(20);

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason, for programs.
    pub kind: Kind,
    /// The reason, for people.
    pub why: String,
}

/// Reasons why a request is refused, as far as programs tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any other, or one that the other end does not say.
    Other,
    /// The end that asks may not have it.
    Forbidden,
    /// Nobody listens at the port.
    ConnectionRefused,
    /// The host has no such name, or there is no way to the host.
    HostUnreachable,
    /// There is no way to the network.
    NetworkUnreachable,
    /// The host is silent.
    TimedOut,
    /// No address of the host is of a family that the end can use.
    AddressFamily,
    /// A limit is met.
    NoRoom,
    /// Streams that outlive their flows are not kept there, or no more of them.
    NotKept,
}

/// Kinds that are said behind the text of an answer, by their bytes.
const KINDS: [(Kind, u8); 7] = [
    (Kind::ConnectionRefused, 1),
    (Kind::HostUnreachable, 2),
    (Kind::NetworkUnreachable, 3),
    (Kind::TimedOut, 4),
    (Kind::AddressFamily, 5),
    (Kind::NoRoom, 6),
    (Kind::NotKept, 7),
];

impl Kind {
    /// The kind of an error of the system.
    pub fn of(error: &io::Error) -> Kind {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Kind::ConnectionRefused,
            io::ErrorKind::HostUnreachable => Kind::HostUnreachable,
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown => Kind::NetworkUnreachable,
            io::ErrorKind::TimedOut => Kind::TimedOut,
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported => Kind::AddressFamily,
            _ => Kind::Other,
        }
    }
}

impl Refused {
    /// A reason that is told to people alone.
    pub fn absent(why: impl Into<String>) -> Refused {
        Refused { kind: Kind::Other, why: why.into() }
    }

    /// A refusal to an end that may not have what it asks for.
    pub fn forbidden(why: impl Into<String>) -> Refused {
        Refused { kind: Kind::Forbidden, why: why.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Answers a request. Nothing may follow a refusal but the end.
///
/// # Errors
/// Those of the flow.
pub async fn answer(send: &mut (impl AsyncWrite + Unpin), result: Result<&str, &Refused>) -> io::Result<()> {
    let (status, text) = match result {
        Ok(text) => (0, text),
        Err(Refused { kind: Kind::Forbidden, why }) => (2, why.as_str()),
        Err(Refused { why, .. }) => (1, why.as_str()),
    };
    let mut answer = vec![status];
    put_text(&mut answer, text, u8::MAX.into());
    let kind = result.err().and_then(|refused| KINDS.iter().find(|(kind, _)| *kind == refused.kind));
    answer.extend(kind.map(|(_, byte)| *byte));
    send.write_all(&answer).await?;
    send.flush().await
}

/// Reads the answer to a request. The inner error is why it was refused.
///
/// # Errors
/// Those of the flow; [`io::ErrorKind::InvalidData`] if it is no answer.
pub async fn read_answer(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<Result<String, Refused>> {
    let status = recv.read_u8().await?;
    let text = read_text(recv).await?;
    match status {
        0 => Ok(Ok(text)),
        1 => {
            // An end that says none ends the stream here.
            let said = recv.read_u8().await.ok();
            let kind = KINDS.iter().find(|(_, byte)| Some(*byte) == said);
            Ok(Err(Refused { kind: kind.map_or(Kind::Other, |(kind, _)| *kind), why: text }))
        }
        2 => Ok(Err(Refused::forbidden(text))),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("an answer of kind {status}"))),
    }
}

/// Appends a byte of length, and text of at most `most` bytes; what is longer is cut.
pub fn put_text(out: &mut Vec<u8>, text: &str, most: usize) {
    let text = &text[..text.floor_char_boundary(most.min(u8::MAX.into()))];
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

/// Reads what [`put_text`] has written.
///
/// # Errors
/// Those of the flow; [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub async fn read_text(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut text = vec![0; recv.read_u8().await?.into()];
    recv.read_exact(&mut text).await?;
    String::from_utf8(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "text that is not UTF-8"))
}

/// Why a direction has ended before its time.
#[derive(Debug)]
enum Broken {
    /// Nothing more can be read from where it comes.
    Unread(io::Error),
    /// Nothing more can be written to where it goes.
    Unwritten(io::Error),
}

/// Progress of both directions.
#[derive(Debug, Default)]
struct Progress {
    /// Pieces that were written.
    pieces: AtomicU64,
    /// The socket takes nothing more. Its connection is gone: an end of it is none in order.
    is_dead: AtomicBool,
}

impl Progress {
    /// Waits until nothing has moved for [`LINGER`].
    async fn stands_still(&self) {
        loop {
            let before = self.pieces.load(Relaxed);
            sleep(LINGER).await;
            if self.pieces.load(Relaxed) == before {
                return;
            }
        }
    }
}

/// Writer that is asked first if it takes more: what it does not take is left where it comes from.
trait Taker: AsyncWrite + Unpin {
    /// Waits until more may be written without being held here.
    fn takes(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

/// A socket, which holds no more than the system lets it.
struct Plain<S>(S);

impl<S: AsyncWrite + Send + Unpin> Taker for Plain<S> {
    async fn takes(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A flow, and what may wait in it to leave, in bytes.
struct Granting<'a, S>(&'a mut S, usize);

impl<S: WriteShared> Taker for Granting<'_, S> {
    async fn takes(&mut self) -> io::Result<()> {
        self.0.granted(1, self.1).await.map(drop)
    }
}

write_through!(Plain<S>, Granting<'_, S>);

/// Copies what comes until its end, which is passed on. What has come is passed on before more is
/// waited for. `watch` is told of each piece before it is written: where to, how many bytes, and
/// how long they were waited for.
async fn pass<W: Taker>(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut W,
    mut watch: impl FnMut(&W, usize, Duration),
    progress: &Progress,
) -> Result<(), Broken> {
    let mut chunk = vec![0; CHUNK_BYTES_MIN];
    loop {
        to.takes().await.map_err(Broken::Unwritten)?;
        let since = Instant::now();
        let bytes = from.read(&mut chunk).await.map_err(Broken::Unread)?;
        if bytes == 0 {
            if progress.is_dead.load(Relaxed) {
                return Err(Broken::Unread(io::ErrorKind::ConnectionReset.into()));
            }
            return to.shutdown().await.map_err(Broken::Unwritten);
        }
        watch(to, bytes, since.elapsed());
        to.write_all(&chunk[..bytes]).await.map_err(Broken::Unwritten)?;
        to.flush().await.map_err(Broken::Unwritten)?;
        progress.pieces.fetch_add(1, Relaxed);
        // Who waits with little to pass holds little.
        match bytes {
            _ if bytes == chunk.len() => chunk.resize(CHUNK_BYTES, 0),
            ..CHUNK_BYTES_MIN if chunk.len() > CHUNK_BYTES_MIN => chunk = vec![0; CHUNK_BYTES_MIN],
            _ => {}
        }
    }
}

/// Carries what comes from a socket to a flow and back, until both directions have ended. Each ends
/// by itself. An error of one ends both, but what was said before it is carried first: what the
/// socket still gives goes to the flow, and what has come in the flow goes to the socket. Then the
/// socket is reset, and so is the flow when its halves are dropped. If this is given up, both
/// happen at once. `ahead` was read of the socket already, and goes to the flow first. The watches
/// are told of each piece that goes to the flow behind it (where to, how many bytes, and how long
/// they were waited for), and to the socket.
///
/// # Errors
/// Those of both ends.
///
/// `ahead_bytes`: what may wait in the flow to leave. The rest waits in the socket.
pub async fn join<T: Tcp, S: WriteShared, R: AsyncRead + Unpin>(
    mut socket: Resetting<T>,
    (send, recv): (&mut S, &mut R),
    ahead_bytes: usize,
    ahead: &[u8],
    mut on_sent: impl FnMut(&S, usize, Duration),
    mut on_received: impl FnMut(usize),
) -> io::Result<()> {
    // Keystrokes are not to wait for each other.
    socket.socket().send_at_once();
    let progress = Progress::default();
    let ended = {
        let (mut from, to) = socket.socket().split();
        let mut to = Plain(to);
        let outward = async {
            send.write_all(ahead).await.map_err(Broken::Unwritten)?;
            let on_sent = |to: &Granting<'_, S>, bytes, waited| on_sent(&*to.0, bytes, waited);
            pass(&mut from, &mut Granting(send, ahead_bytes), on_sent, &progress).await
        };
        let inward = pass(recv, &mut to, |_, bytes, _| on_received(bytes), &progress);
        both(outward, inward, &progress).await
    };
    match ended {
        Ok(()) => {
            socket.end();
            Ok(())
        }
        Err(Ended::Socket(error)) => Err(error),
        Err(Ended::Flow(error)) => {
            socket.reset().await;
            Err(error)
        }
    }
}

/// Which end has failed.
enum Ended {
    Socket(io::Error),
    Flow(io::Error),
}

/// Waits for both directions, as far as one is of use without the other.
async fn both(
    outward: impl Future<Output = Result<(), Broken>>,
    inward: impl Future<Output = Result<(), Broken>>,
    progress: &Progress,
) -> Result<(), Ended> {
    tokio::pin!(outward, inward);
    let (sent, received) = match in_turns(outward.as_mut(), inward.as_mut()).await {
        // The socket's connection is gone.
        Either::First(Err(Broken::Unread(error))) => return Err(Ended::Socket(error)),
        Either::First(sent) => (sent, inward.await),
        Either::Second(Ok(())) => (outward.await, Ok(())),
        // The flow is over: what has come of it has gone to the socket.
        Either::Second(Err(Broken::Unread(error))) => return Err(Ended::Flow(error)),
        Either::Second(Err(Broken::Unwritten(error))) => {
            // What came before its connection went can still be read.
            progress.is_dead.store(true, Relaxed);
            tokio::select! {
                biased;
                _ = outward => {}
                () = progress.stands_still() => {}
            }
            return Err(Ended::Socket(error));
        }
    };
    match (sent, received) {
        (Err(Broken::Unread(error)), _) | (_, Err(Broken::Unwritten(error))) => Err(Ended::Socket(error)),
        (_, Err(Broken::Unread(error))) | (Err(Broken::Unwritten(error)), _) => Err(Ended::Flow(error)),
        (Ok(()), Ok(())) => Ok(()),
    }
}

/// Priority of a flow, by what goes into it: typing goes first, bulk comes later.
#[derive(Debug, Default)]
pub struct Pace {
    /// Bytes since the last pause.
    burst_bytes: u64,
    is_bulk: bool,
}

/// The priority of a flow that somebody types into, and of one that carries bulk, on the scale of
/// [`uts::FlowOptions::priority`]. Others have 100.
pub const URGENT: u8 = 50;
const BULK: u8 = 150;

/// More than this without a pause is bulk, in bytes: a screen that is drawn anew is less.
const BURST_BYTES: u64 = 64 << 10;

/// Waiting this long for the sender is a pause: nobody types faster than 20 characters a second.
const PAUSE: Duration = Duration::from_millis(50);

impl Pace {
    /// The new priority, if it changes: these bytes go into the flow, and were waited for so long.
    pub fn on_passed(&mut self, bytes: usize, waited: Duration) -> Option<u8> {
        if waited >= PAUSE {
            self.burst_bytes = 0;
        }
        self.burst_bytes = self.burst_bytes.saturating_add(bytes as u64);
        let is_bulk = self.burst_bytes > BURST_BYTES;
        let before = core::mem::replace(&mut self.is_bulk, is_bulk);
        (before != is_bulk).then_some(if is_bulk { BULK } else { URGENT })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::unacknowledged_bytes;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn answers_are_read_as_they_were_written() {
        let (mut a, mut b) = tokio::io::duplex(1000);
        answer(&mut a, Ok("8080")).await.unwrap();
        assert_eq!(read_answer(&mut b).await.unwrap(), Ok("8080".to_owned()));
        let kinds = KINDS.map(|(kind, _)| kind);
        for kind in kinds.into_iter().chain([Kind::Forbidden, Kind::Other]) {
            let refused = Refused { kind, why: "down".to_owned() };
            let mut said = Vec::new();
            answer(&mut said, Err(&refused)).await.unwrap();
            assert_eq!(read_answer(&mut &said[..]).await.unwrap(), Err(refused));
            // Ends of before know these bytes, and read no further.
            let status = if kind == Kind::Forbidden { 2 } else { 1 };
            assert_eq!(said[..6], [status, 4, b'd', b'o', b'w', b'n']);
        }
        let long = "é".repeat(300);
        let mut said = Vec::new();
        answer(&mut said, Err(&Refused::absent(long.clone()))).await.unwrap();
        let why = read_answer(&mut &said[..]).await.unwrap().unwrap_err().to_string();
        assert!(why.len() <= 255 && long.starts_with(&why), "{why}");
        let error = read_answer(&mut &[7, 0][..]).await.unwrap_err();
        assert!(error.to_string().contains("kind 7"), "{error}");
        let error = read_answer(&mut &[0, 2, 0xff, 0xff][..]).await.unwrap_err();
        assert!(error.to_string().contains("UTF-8"), "{error}");
        // A kind that is not known here.
        let refused = read_answer(&mut &[1, 1, b'x', 200][..]).await.unwrap();
        assert_eq!(refused, Err(Refused::absent("x")));
    }

    #[test]
    fn who_types_is_urgent_and_bulk_is_not_until_it_pauses() {
        let mut pace = Pace::default();
        let soon = Duration::ZERO;
        assert_eq!(pace.on_passed(1, soon), None, "a flow begins urgent");
        assert_eq!(pace.on_passed(BURST_BYTES as usize, soon), Some(BULK));
        assert_eq!(pace.on_passed(1, soon), None);
        assert_eq!(pace.on_passed(1, PAUSE), Some(URGENT));
        for _ in 0..10_000 {
            assert_eq!(pace.on_passed(60_000, PAUSE), None);
        }
    }

    async fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (a, b) = tokio::join!(TcpStream::connect(address), listener.accept());
        (a.unwrap(), b.unwrap().0)
    }

    #[tokio::test]
    async fn each_direction_ends_by_itself() {
        let (mut outer, inner) = sockets().await;
        let (near, far) = tokio::io::duplex(1000);
        let (mut recv, mut send) = tokio::io::split(near);
        let joined = tokio::spawn(async move {
            let (mut sent, mut received) = (0, 0);
            join(
                Resetting::new(inner),
                (&mut send, &mut recv),
                AHEAD_BYTES,
                &[],
                |_, bytes, _| sent += bytes,
                |bytes| received += bytes,
            )
            .await
            .map(|()| (sent, received))
        });
        let (mut recv, mut send) = tokio::io::split(far);
        outer.write_all(b"question").await.unwrap();
        outer.shutdown().await.unwrap();
        let mut text = String::new();
        recv.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "question");
        send.write_all(b"answer").await.unwrap();
        send.shutdown().await.unwrap();
        text.clear();
        outer.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "answer");
        assert_eq!(joined.await.unwrap().unwrap(), (8, 6));
    }

    #[tokio::test]
    async fn an_error_of_the_flow_resets_the_socket_behind_what_came_before() {
        let (mut outer, inner) = sockets().await;
        let (near, far) = tokio::io::duplex(1 << 20);
        let (_, mut send) = tokio::io::split(near);
        drop(far);
        outer.write_all(b"x").await.unwrap();
        // More than the socket takes before it is read.
        let whole = io::Cursor::new(vec![7; 20 << 20]);
        let mut recv = whole.chain(fails());
        let joined = tokio::spawn(async move {
            join(Resetting::new(inner), (&mut send, &mut recv), AHEAD_BYTES, &[], |_, _, _| {}, |_| {})
                .await
                .unwrap_err();
        });
        let mut got = Vec::new();
        let error = outer.read_to_end(&mut got).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(got.len(), 20 << 20);
        joined.await.unwrap();
    }

    /// A service that answers, and closes with unread data.
    #[tokio::test]
    async fn what_a_socket_has_said_before_it_was_reset_goes_to_the_flow() {
        for answer in [68, 300_000] {
            for _ in 0..20 {
                let (outer, inner) = sockets().await;
                let (near, far) = tokio::io::duplex(100_000);
                let (mut recv, mut send) = tokio::io::split(near);
                let joined = tokio::spawn(async move {
                    let ended = join(
                        Resetting::new(inner),
                        (&mut send, &mut recv),
                        AHEAD_BYTES,
                        &[],
                        |_, _, _| {},
                        |_| {},
                    )
                    .await;
                    // The flow would be reset, and not end.
                    drop((send, recv));
                    ended
                });
                let (mut from, mut to) = tokio::io::split(far);
                // It goes on to be sent something, which fails once the service has gone.
                let sending = tokio::spawn(async move { while to.write_all(&[1; 1000]).await.is_ok() {} });
                let service = tokio::task::spawn_blocking(move || {
                    use std::io::{Read, Write};
                    let mut service = outer.into_std().unwrap();
                    service.set_nonblocking(false).unwrap();
                    service.read_exact(&mut [0; 100]).unwrap();
                    service.write_all(&vec![2; answer]).unwrap();
                    // What the other side's system does not have yet, its own throws away.
                    while unacknowledged_bytes(&service).unwrap() > 0 {
                        #[expect(clippy::disallowed_methods, reason = "the system does not say when")]
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                let mut got = Vec::new();
                from.read_to_end(&mut got).await.unwrap();
                assert_eq!(got.len(), answer);
                assert!(joined.await.unwrap().is_err(), "a reset is no end in order");
                service.await.unwrap();
                sending.abort();
            }
        }
    }

    /// A reader that fails.
    fn fails() -> impl AsyncRead + Unpin {
        struct Fails;
        impl AsyncRead for Fails {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                _: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
        }
        Fails
    }
}
