//! Moves: bytes of a piece of memory are moved into memory that the other end has named beforehand,
//! at an offset (MoveTo), or out of it (MoveFrom), as in the V kernel. (spec/moves.md)
//!
//! An end names memory by [`Moves`], and tells its peer the [`Tag`] and the length in whatever way
//! it likes, say in a call. The peer then moves bytes into it ([`move_to`]), or out of it
//! ([`move_from`]). Bytes are placed where they belong as they arrive, in whatever order. Each
//! packet is opened where it lies, and from there its bytes are copied once, into the memory that
//! was named. [`Region::held_bytes`] and [`Moved::held_bytes`] count those that were copied twice.
//!
//! A peer can write only into what was named in the same connection, within its range, and each
//! byte once. Whoever it is, the connection has proved.
//!
//! ```
//! use bytes::{Bytes, BytesMut};
//! use uts::moves::{MoveOptions, Moves, move_to};
//! use uts::{ConnectOptions, Identity, Listener, ServerOptions, connect};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = ServerOptions::new(Identity::generate()?);
//! let listener = Listener::bind("127.0.0.1:0".parse()?, options)?;
//! let options = ConnectOptions::pinned(listener.fingerprint());
//! let client = connect(&listener.local_addr().to_string(), options).await?;
//! let server = listener.accept().await.expect("the client");
//!
//! // The client names memory for a page, and tells the server its tag.
//! let moves = Moves::new(&client);
//! tokio::spawn(moves.clone().serve());
//! let region = moves.name(BytesMut::zeroed(4096));
//! let tag = region.tag();
//!
//! let page = Bytes::from(vec![7; 4096]);
//! move_to(&server, tag, 0, page, &MoveOptions::default()).await?;
//! assert_eq!(region.whole().await?, vec![7; 4096]);
//! # Ok(())
//! # }
//! ```
//!
//! * [`wire`]: bytes; [`memory`]: what is named; [`blast`]: repeats, and the sizes of blasts;
//! * [`mover`]: the end that moves; [`served`]: the end that has named memory.

mod blast;
mod memory;
mod mover;
mod served;
#[cfg(test)]
mod tests;
mod wire;

pub use blast::{Repeats, Strategy, best_kibibytes};
pub use memory::{Lent, Moves, Region};
pub use mover::{MoveError, MoveOptions, Moved, move_from, move_to};

use core::fmt;

/// The name of memory in a connection. It is told to the peer. No tag is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Tag(pub u64);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Reasons of the end that has named memory for not taking, or not giving, a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MoveRefusal {
    /// No memory has this tag, or it is withdrawn, or it is named for moves the other way.
    #[error("no memory has this tag")]
    NoSuchMemory,
    /// The move reaches beyond the end of the memory.
    #[error("the move reaches beyond the end of the memory")]
    OutOfRange,
    /// Bytes were moved there already, or are being moved.
    #[error("bytes were moved there already, or are being moved")]
    Taken,
    /// The move breaks a rule of moves.md.
    #[error("the move breaks a rule")]
    BadMove,
    /// It has not brought all that it said.
    #[error("the move has not brought all that it said")]
    Incomplete,
    /// A reason that this version does not know.
    #[error("a reason that this version does not know ({0})")]
    Other(u8),
}

impl MoveRefusal {
    /// All that have a number of their own, with it. (B-4)
    const NUMBERED: [(u8, MoveRefusal); 5] = [
        (1, MoveRefusal::NoSuchMemory),
        (2, MoveRefusal::OutOfRange),
        (3, MoveRefusal::Taken),
        (4, MoveRefusal::BadMove),
        (5, MoveRefusal::Incomplete),
    ];

    fn number(self) -> u8 {
        match self {
            MoveRefusal::Other(number) => number,
            known => Self::NUMBERED.iter().find(|(_, why)| *why == known).map_or(0, |(number, _)| *number),
        }
    }

    fn of(number: u8) -> Self {
        let known = Self::NUMBERED.iter().find(|(n, _)| *n == number);
        known.map_or(MoveRefusal::Other(number), |(_, why)| *why)
    }
}
