//! One stream above what carries it. Both ends keep what the other has not taken yet, in bounded
//! memory. A carrier that fails, or that a better one is found for, is replaced by another, and
//! nothing of the stream is lost or doubled. A carrier is a flow of a UTS connection, or any other
//! reliable stream of bytes.
//!
//! A carrier begins with a request of the client (`pipe/`, version 2), behind which stands
//! [`Hello`]. The server answers as to other requests ([`crate::stream`]). Behind an answer that it
//! is there follows [`wire::Welcome`]. Then both ends send frames ([`wire::Frame`]). A position
//! counts the bytes of one direction from its begin; its end counts as one more. The specification
//! is `spec/streams.md`.
//!
//! An end of a stream is a [`Session`]. A client finds carriers for it ([`Client`]), a server hands
//! them to the stream that they are for ([`Sessions`]).

mod client;
mod delays;
pub mod memory;
mod room;
mod session;
mod sessions;
pub mod wire;

pub use client::{Client, Current, PAUSE_MAX, PAUSE_MIN, Step};
pub use session::{Lost, News, Offer, Offers, Session, Taker};
pub use sessions::{Begun, Sessions};
pub use wire::{Hello, How, Ticket};

use std::future::Future;
use std::io;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};
use uts_files::WriteShared;

/// Memory that one end has for each direction of a stream, in bytes. Chosen: ssh's own channels
/// have 2 MiB under way at the most.
pub const WINDOW_BYTES: usize = 2 << 20;

/// The way out of a carrier.
pub trait Sending: AsyncWrite + Send + Unpin {
    /// Waits until more may be written without being held for long.
    fn takes(&mut self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(async { Ok(()) })
    }
}

/// A carrier: both ways of it.
pub struct Carrier {
    /// The way to the peer.
    pub send: Box<dyn Sending>,
    /// The way from it.
    pub recv: Box<dyn AsyncRead + Send + Unpin>,
}

impl Carrier {
    /// A flow of a connection.
    pub fn flow(send: impl WriteShared + 'static, recv: impl AsyncRead + Send + Unpin + 'static) -> Carrier {
        Carrier { send: Box::new(Granting(send)), recv: Box::new(recv) }
    }

    /// Another stream, which holds little of what is written to it.
    pub fn pipe(
        send: impl AsyncWrite + Send + Unpin + 'static,
        recv: impl AsyncRead + Send + Unpin + 'static,
    ) -> Carrier {
        Carrier { send: Box::new(Plain(send)), recv: Box::new(recv) }
    }
}

/// A flow that is asked first: what its peer does not take is kept here, and not once more there.
struct Granting<S>(S);

/// A stream that takes what it takes.
struct Plain<S>(S);

/// Bytes that may wait in a flow to leave. What is behind them can still go by another carrier.
const AHEAD_BYTES: usize = 128 << 10;

impl<S: WriteShared> Sending for Granting<S> {
    fn takes(&mut self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(async { self.0.granted(1, AHEAD_BYTES).await.map(drop) })
    }
}

impl<S: AsyncWrite + Send + Unpin> Sending for Plain<S> {}

write_through!(Granting<S>, Plain<S>);
