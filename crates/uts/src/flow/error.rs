//! Why a flow takes or gives nothing more, and what that is as an error of input and output.

use std::io;
use uts_engine::{CloseReason, code_shown};

/// Why nothing can be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The peer wants no more of this flow.
    #[error("the peer wants no more of this flow{}", code_shown(*.0))]
    Stopped(u64),
    /// The requirements of the flow could not be agreed with the peer.
    #[error("the flow cannot have what it requires: {0}")]
    Refused(String),
    /// The flow was finished or reset here.
    #[error("the flow was ended by this end")]
    Finished,
    /// Expedited messages are sent only where both ends ask for them.
    #[error("expedited messages need `uts.expedited=on` at both ends")]
    NotExpedited,
    /// The message is larger than the profile allows, or than an expedited one may be.
    #[error("a message of {size} bytes is larger than the {max} bytes that are allowed")]
    TooLarge {
        /// Its size.
        size: usize,
        /// The largest.
        max: usize,
    },
    /// The connection has ended.
    #[error("{0}")]
    Closed(#[source] CloseReason),
}

/// Why nothing more is read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The peer gave the flow up.
    #[error("the peer reset the flow{}", code_shown(*.0))]
    Reset(u64),
    /// The flow's end was read before, or this end has stopped it.
    #[error("the flow has ended")]
    Ended,
    /// A message was asked for, and bytes came: the profile keeps no boundaries, or part of the
    /// message was read as bytes.
    #[error("the flow carries bytes, not messages: ask for preserveMsgBoundaries")]
    NotMessages,
    /// A message could not be converted back.
    #[error("a message is damaged: {0}")]
    Damaged(String),
    /// A message came damaged behind so many bytes, which its sender and this end allow
    /// (`msgChecksumLen`, `recvChecksumLen`). [`RecvFlow::recv_chunk`](super::RecvFlow::recv_chunk)
    /// hands it over.
    #[error("the next message may be damaged behind its first {right_bytes} bytes")]
    RightTo {
        /// Number of its first bytes that are as they were sent.
        right_bytes: u64,
    },
    /// The connection has ended.
    #[error("{0}")]
    Closed(#[source] CloseReason),
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        let kind = match &error {
            WriteError::Stopped(_) | WriteError::Finished => io::ErrorKind::BrokenPipe,
            WriteError::TooLarge { .. } => io::ErrorKind::InvalidInput,
            WriteError::Refused(_) | WriteError::NotExpedited => io::ErrorKind::Unsupported,
            WriteError::Closed(reason) => reason.kind(),
        };
        io::Error::new(kind, error)
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::Reset(_) => io::ErrorKind::ConnectionReset,
            ReadError::Ended => io::ErrorKind::UnexpectedEof,
            ReadError::NotMessages | ReadError::Damaged(_) | ReadError::RightTo { .. } => {
                io::ErrorKind::InvalidData
            }
            ReadError::Closed(reason) => reason.kind(),
        };
        io::Error::new(kind, error)
    }
}

/// Gives back the error of a flow that reading or writing bytes has told as one of input and
/// output.
///
/// ```
/// # fn example(error: std::io::Error) {
/// match uts::WriteError::try_from(error) {
///     Ok(uts::WriteError::Stopped(code)) => println!("the peer wants no more ({code})"),
///     Ok(other) => println!("{other}"),
///     Err(error) => println!("not of a flow: {error}"),
/// }
/// # }
/// ```
impl TryFrom<io::Error> for WriteError {
    type Error = io::Error;

    fn try_from(error: io::Error) -> Result<Self, io::Error> {
        error.downcast()
    }
}

/// Gives back the error of a flow that reading bytes has told as one of input and output.
impl TryFrom<io::Error> for ReadError {
    type Error = io::Error;

    fn try_from(error: io::Error) -> Result<Self, io::Error> {
        error.downcast()
    }
}
