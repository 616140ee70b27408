//! What streams of other programs have in common, however they are asked for (`pipe/`, `tunnel/`):
//! the answer to a request, and the copying between a socket and a flow.
//!
//! An answer is a byte (0 = it is there, 1 = it is not, 2 = it is not permitted), a byte of length,
//! and a text: why not, or what the request asks to be told. Behind the text of a 1 may stand a
//! byte that says of which kind the reason is ([`Kind`]), and the stream ends. Ends that do not
//! know the byte have stopped reading by then.

use std::fmt;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// What is read at once, in bytes.
const CHUNK_BYTES: usize = 32 << 10;

/// How long a client may take to say what it wants, and a service to answer.
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
    /// Who asks may not have it.
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
}

/// Kinds that are said behind the text of an answer, by their bytes.
const KINDS: [(Kind, u8); 6] = [
    (Kind::ConnectionRefused, 1),
    (Kind::HostUnreachable, 2),
    (Kind::NetworkUnreachable, 3),
    (Kind::TimedOut, 4),
    (Kind::AddressFamily, 5),
    (Kind::NoRoom, 6),
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

    /// Who asks may not have it.
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

/// Copies what comes until its end, which is passed on. What has come is passed on before more is
/// waited for. `watch` is told of each piece before it is written: where to, how many bytes, and
/// how long they were waited for.
///
/// # Errors
/// Those of both ends.
pub async fn pass<W: AsyncWrite + Unpin>(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut W,
    mut watch: impl FnMut(&W, usize, Duration),
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let since = Instant::now();
        let bytes = from.read(&mut chunk).await?;
        if bytes == 0 {
            return to.shutdown().await;
        }
        watch(to, bytes, since.elapsed());
        to.write_all(&chunk[..bytes]).await?;
        to.flush().await?;
    }
}

/// Carries what comes from a socket to a flow and back, until both directions have ended. Each ends
/// by itself. An error of one ends both: the socket is reset, and so is the flow when its halves
/// are dropped. The same happens if this is given up. `begun` reads what comes from the flow before
/// that; what comes from the socket does not wait for it. The watches are those of [`pass`], for
/// what goes to the flow and for what goes to the socket.
///
/// # Errors
/// That of `begun`, which says more than one of the flow; else those of both ends.
pub async fn join<S: AsyncWrite + Unpin, R: AsyncRead + Unpin>(
    socket: TcpStream,
    send: &mut S,
    recv: &mut R,
    begun: impl AsyncFnOnce(&mut R) -> io::Result<()>,
    on_sent: impl FnMut(&S, usize, Duration),
    mut on_received: impl FnMut(usize),
) -> io::Result<()> {
    // Keystrokes are not to wait for each other. Without it they only come later.
    let _ = socket.set_nodelay(true);
    let mut held = Resetting { socket, has_ended: false };
    let (mut from, mut to) = held.socket.split();
    let outward = pass(&mut from, send, on_sent);
    tokio::pin!(outward);
    let mut sent = None;
    {
        let begun = begun(recv);
        tokio::pin!(begun);
        loop {
            tokio::select! {
                begun = &mut begun => break begun?,
                ended = &mut outward, if sent.is_none() => sent = Some(ended),
            }
        }
    }
    let inward = pass(recv, &mut to, |_, bytes, _| on_received(bytes));
    match sent {
        Some(ended) => {
            ended?;
            inward.await?;
        }
        None => {
            tokio::try_join!(outward, inward)?;
        }
    }
    held.has_ended = true;
    Ok(())
}

/// Nothing comes before what is carried.
///
/// # Errors
/// None.
pub async fn at_once<R>(_: &mut R) -> io::Result<()> {
    Ok(())
}

/// Has a socket reset when it is dropped: who is at its other end must not take half of something
/// for the whole.
pub fn reset(socket: TcpStream) {
    drop(Resetting { socket, has_ended: false });
}

/// A socket that is reset when it is dropped, unless it has ended in order.
struct Resetting {
    socket: TcpStream,
    has_ended: bool,
}

impl Drop for Resetting {
    fn drop(&mut self) {
        if !self.has_ended {
            // If it cannot be set, the socket ends as others do.
            let _ = socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Who types goes first, what comes in bulk later: the priority of a flow, by what goes into it.
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
    use tokio::net::TcpListener;

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
            join(inner, &mut send, &mut recv, at_once, |_, bytes, _| sent += bytes, |bytes| received += bytes)
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
    async fn an_error_of_the_flow_resets_the_socket() {
        let (mut outer, inner) = sockets().await;
        let (near, far) = tokio::io::duplex(1000);
        let (_, mut send) = tokio::io::split(near);
        drop(far);
        outer.write_all(b"x").await.unwrap();
        let mut recv = never();
        join(inner, &mut send, &mut recv, at_once, |_, _, _| {}, |_| {}).await.unwrap_err();
        let error = outer.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    /// A reader that never has anything.
    fn never() -> impl AsyncRead + Unpin {
        struct Never;
        impl AsyncRead for Never {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                _: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                std::task::Poll::Pending
            }
        }
        Never
    }
}
