//! Messages over a transport that has only streams.

use crate::transport::{ReceiveStream, Result, SendStream, Stream, TransportError};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::lock::Mutex;

/// The largest message: 16 MiB, so that what a broken peer announces cannot exhaust memory.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Bytes of the length before each message, big-endian.
const LENGTH_BYTES: usize = 4;

/// Bytes that one read asks for.
const READ_BYTES: usize = 64 << 10;

/// Carries messages over one stream, each after its length. They arrive whole and in order. A lost
/// packet delays all that follow it: this is the cost of sending messages over a stream.
pub struct MessagesOverStream {
    send: Mutex<Box<dyn SendStream>>,
    receive: Mutex<Receiver>,
}

struct Receiver {
    stream: Box<dyn ReceiveStream>,
    /// Bytes that were read and are not a whole message yet.
    held: BytesMut,
}

impl MessagesOverStream {
    /// Takes a stream, of which nothing was read or written, or as much at either end.
    pub fn new(stream: Stream) -> Self {
        let receive = Receiver { stream: stream.receive, held: BytesMut::new() };
        MessagesOverStream { send: Mutex::new(stream.send), receive: Mutex::new(receive) }
    }

    /// Sends a message, after those whose sending has begun. If it is dropped before it is done, it
    /// may leave half a message. The stream is of no use then.
    ///
    /// # Errors
    /// If it is larger than [`MESSAGE_BYTES_MAX`], and what the stream says.
    pub async fn send(&self, message: &[u8]) -> Result<()> {
        let length = u32::try_from(message.len()).ok().filter(|n| *n as usize <= MESSAGE_BYTES_MAX);
        let Some(length) = length else {
            let why =
                format!("a message of {} bytes is larger than {MESSAGE_BYTES_MAX} bytes", message.len());
            return Err(TransportError::Failed(why));
        };
        // One write, so that the length does not travel in a packet of its own.
        let mut framed = Vec::with_capacity(LENGTH_BYTES + message.len());
        framed.extend_from_slice(&length.to_be_bytes());
        framed.extend_from_slice(message);
        self.send.lock().await.write(&framed).await
    }

    /// The next message. Nothing is lost if the wait is given up, provided that this holds for the
    /// stream's reads.
    ///
    /// # Errors
    /// [`TransportError::Closed`] at the end of the stream; [`TransportError::Failed`] if it ends
    /// within a message or announces one that is too large; what the stream says.
    pub async fn receive(&self) -> Result<Bytes> {
        let mut receiver = self.receive.lock().await;
        loop {
            if let Some(message) = receiver.take()? {
                return Ok(message);
            }
            let Receiver { stream, held } = &mut *receiver;
            let mut buffer = [0; READ_BYTES];
            match stream.read(&mut buffer).await? {
                0 if held.is_empty() => return Err(TransportError::Closed),
                0 => return Err(TransportError::Failed("the stream ended within a message".into())),
                n => held.extend_from_slice(buffer.get(..n).unwrap_or_default()),
            }
        }
    }

    /// Sends no more messages; the peer sees the end after the last one.
    ///
    /// # Errors
    /// What the stream says.
    pub async fn finish(&self) -> Result<()> {
        self.send.lock().await.finish().await
    }
}

impl Receiver {
    /// The first message, if it is there as a whole.
    fn take(&mut self) -> Result<Option<Bytes>> {
        let Some(length) = self.held.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MESSAGE_BYTES_MAX {
            let why = format!("a message of {length} bytes is announced; at most {MESSAGE_BYTES_MAX} can be");
            return Err(TransportError::Failed(why));
        }
        if self.held.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.held.advance(LENGTH_BYTES);
        Ok(Some(self.held.split_to(length).freeze()))
    }
}
