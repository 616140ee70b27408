//! The form of what is said on a carrier. All numbers are big-endian.

use std::fmt;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The most data in a frame, in bytes.
pub const DATA_BYTES_MAX: usize = 32 << 10;

/// Kinds of frames, as bytes.
const DATA: u8 = 0;
const TAKEN: u8 = 1;
const END: u8 = 2;
const RESET: u8 = 3;
const ASK: u8 = 4;
const HERE: u8 = 5;

/// T-2: a secret of 32 bytes that the client makes at the start. Who has it has the stream.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket([u8; 32]);

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(…)")
    }
}

impl Ticket {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn generate() -> Result<Ticket, String> {
        uts::random_bytes().map(Ticket).map_err(|error| error.to_string())
    }

    /// Its hash. Streams are looked up by it: how long that takes says nothing of a ticket.
    pub fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, &self.0).as_ref());
        hash
    }
}

/// T-1: words of a client at the begin of a carrier, behind the service's name: the ticket (32
/// bytes), a byte that is 1 if no server has answered for this stream yet and else 0, the number of
/// the carrier (8 bytes), the position up to which the client has received (8 bytes), the bytes
/// that it has room for (4 bytes), and the seconds for which the stream is to be kept without a
/// carrier (4 bytes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Names the stream, and proves that it is this client's.
    pub ticket: Ticket,
    /// No server has answered for this stream yet: it may be begun.
    pub is_new: bool,
    /// Number of the carrier. A later one takes the place of an earlier one, and never the other
    /// way round.
    pub number: u64,
    /// The position up to which the client has received.
    pub received: u64,
    /// The bytes that the client has room for beyond what its application has taken.
    pub window: u32,
    /// The seconds for which the client keeps the stream without a carrier.
    pub silence_s: u32,
}

/// T-3: words of a server behind the answer that the service is there: the position up to which
/// it has received (8 bytes), the position at which what it sends on this carrier begins (8 bytes),
/// and the bytes that it has room for (4 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The position up to which the server has received.
    pub received: u64,
    /// The position at which what it sends begins. It is that of the hello, or later if the client
    /// has taken more meanwhile.
    pub begins: u64,
    /// The bytes that the server has room for.
    pub window: u32,
}

impl Hello {
    /// The hello as bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ticket.0);
        out.push(self.is_new.into());
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.received.to_be_bytes());
        out.extend_from_slice(&self.window.to_be_bytes());
        out.extend_from_slice(&self.silence_s.to_be_bytes());
    }

    /// Reads a hello.
    ///
    /// # Errors
    /// The carrier has failed; [`io::ErrorKind::InvalidData`] if it is none.
    pub async fn read(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<Hello> {
        let mut ticket = [0; 32];
        recv.read_exact(&mut ticket).await?;
        let is_new = match recv.read_u8().await? {
            0 => false,
            1 => true,
            byte => return Err(wrong(format!("{byte} where 0 or 1 says whether a stream is new"))),
        };
        Ok(Hello {
            ticket: Ticket(ticket),
            is_new,
            number: recv.read_u64().await?,
            received: recv.read_u64().await?,
            window: recv.read_u32().await?,
            silence_s: recv.read_u32().await?,
        })
    }

    /// The time for which the client keeps the stream without a carrier.
    pub fn silence(&self) -> Duration {
        Duration::from_secs(self.silence_s.into())
    }
}

/// A time as a hello says it: in seconds, rounded up.
pub fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

impl Welcome {
    /// The welcome as bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.received.to_be_bytes());
        out.extend_from_slice(&self.begins.to_be_bytes());
        out.extend_from_slice(&self.window.to_be_bytes());
    }

    /// Reads a welcome.
    ///
    /// # Errors
    /// The carrier has failed.
    pub async fn read(recv: &mut (impl AsyncRead + Unpin)) -> io::Result<Welcome> {
        Ok(Welcome {
            received: recv.read_u64().await?,
            begins: recv.read_u64().await?,
            window: recv.read_u32().await?,
        })
    }
}

/// The end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// All was said.
    Orderly,
    /// The application is gone: what was said may be half of something.
    Reset,
}

/// T-8: what follows hello and welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A byte 0, the number of bytes (2 bytes, 1 to [`DATA_BYTES_MAX`]), which the reader has put
    /// where it was told to.
    Data(usize),
    /// A byte 1, and the position up to which the application has taken (8 bytes).
    Taken(u64),
    /// A byte 2 (in order) or 3 (reset): the direction ends here.
    End(How),
    /// A byte 4: the other end is to say that it is here.
    Ask,
    /// A byte 5: the end is here.
    Here,
}

/// Appends a frame of data. `data` has 1 to [`DATA_BYTES_MAX`] bytes, in two pieces.
pub fn put_data(out: &mut Vec<u8>, data: (&[u8], &[u8])) {
    out.push(DATA);
    out.extend_from_slice(&((data.0.len() + data.1.len()) as u16).to_be_bytes());
    out.extend_from_slice(data.0);
    out.extend_from_slice(data.1);
}

/// Appends a frame that says what was taken.
pub fn put_taken(out: &mut Vec<u8>, position: u64) {
    out.push(TAKEN);
    out.extend_from_slice(&position.to_be_bytes());
}

/// Appends a frame that ends a direction.
pub fn put_end(out: &mut Vec<u8>, how: How) {
    out.push(if how == How::Orderly { END } else { RESET });
}

/// Appends a question whether the other end is here.
pub fn put_ask(out: &mut Vec<u8>) {
    out.push(ASK);
}

/// Appends the answer to that.
pub fn put_here(out: &mut Vec<u8>) {
    out.push(HERE);
}

/// Reads a frame; its data becomes the content of `data`.
///
/// # Errors
/// Those of the carrier, whose end between frames is [`io::ErrorKind::UnexpectedEof`] as well;
/// [`io::ErrorKind::InvalidData`] if it is no frame.
pub async fn read_frame(recv: &mut (impl AsyncRead + Unpin), data: &mut Vec<u8>) -> io::Result<Frame> {
    match recv.read_u8().await? {
        DATA => {
            let bytes = usize::from(recv.read_u16().await?);
            if bytes == 0 || bytes > DATA_BYTES_MAX {
                return Err(wrong(format!(
                    "a frame of {bytes} bytes, where 1 to {DATA_BYTES_MAX} are allowed"
                )));
            }
            data.resize(bytes, 0);
            recv.read_exact(data).await?;
            Ok(Frame::Data(bytes))
        }
        TAKEN => Ok(Frame::Taken(recv.read_u64().await?)),
        END => Ok(Frame::End(How::Orderly)),
        RESET => Ok(Frame::End(How::Reset)),
        ASK => Ok(Frame::Ask),
        HERE => Ok(Frame::Here),
        kind => Err(wrong(format!("a frame of kind {kind}"))),
    }
}

/// An error of a peer that keeps no rules.
pub fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn words_are_read_as_they_were_written() {
        let ticket = Ticket::generate().expect("random bytes");
        assert_eq!(format!("{ticket:?}"), "Ticket(…)");
        assert_ne!(ticket.hash(), Ticket::generate().expect("random bytes").hash());
        for is_new in [false, true] {
            let hello = Hello {
                ticket: ticket.clone(),
                is_new,
                number: 3,
                received: 1 << 40,
                window: 7,
                silence_s: 604_800,
            };
            assert_eq!(hello.silence(), Duration::from_secs(7 * 24 * 3600));
            let mut bytes = Vec::new();
            hello.emit(&mut bytes);
            assert_eq!(bytes.len(), 57);
            assert_eq!(Hello::read(&mut &bytes[..]).await.expect("a hello"), hello);
            bytes[32] = 2;
            assert!(Hello::read(&mut &bytes[..]).await.is_err());
            assert!(Hello::read(&mut &bytes[..40]).await.is_err());
        }
        assert_eq!([0, 1, 1000, 1001].map(|ms| seconds(Duration::from_millis(ms))), [0, 1, 1, 2]);
        assert_eq!(seconds(Duration::MAX), u32::MAX);
        let welcome = Welcome { received: 5, begins: 1 << 50, window: u32::MAX };
        let mut bytes = Vec::new();
        welcome.emit(&mut bytes);
        assert_eq!(Welcome::read(&mut &bytes[..]).await.expect("a welcome"), welcome);
    }

    #[tokio::test]
    async fn frames_are_read_as_they_were_written_and_nothing_else_is() {
        let mut bytes = Vec::new();
        put_data(&mut bytes, (b"ab", b"c"));
        put_taken(&mut bytes, 9);
        put_end(&mut bytes, How::Orderly);
        put_end(&mut bytes, How::Reset);
        put_ask(&mut bytes);
        put_here(&mut bytes);
        let (mut from, mut data) = (&bytes[..], Vec::new());
        assert_eq!(read_frame(&mut from, &mut data).await.expect("data"), Frame::Data(3));
        assert_eq!(data, b"abc");
        let rest =
            [Frame::Taken(9), Frame::End(How::Orderly), Frame::End(How::Reset), Frame::Ask, Frame::Here];
        for frame in rest {
            assert_eq!(read_frame(&mut from, &mut data).await.expect("a frame"), frame);
        }
        let end = read_frame(&mut from, &mut data).await.expect_err("the end");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        for bytes in [&[0, 0, 0][..], &[0, 0x80, 1], &[6], &[255]] {
            let error = read_frame(&mut &*bytes, &mut data).await.expect_err("no frame");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
    }
}
