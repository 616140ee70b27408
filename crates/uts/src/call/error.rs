//! Why a call has no answer, and whether it may have run.

use super::body::RecvError;
use super::value::ValueError;
use super::wire::{Refusal, code};
use crate::endpoint::ConnectError;
use crate::flow::{ReadError, WriteError};
use core::fmt;
use uts_engine::CloseReason;
use uts_units::printable;

/// Why a call has no answer.
#[derive(Debug)]
pub struct CallError {
    kind: Box<CallErrorKind>,
    may_have_run: bool,
}

/// Kinds of ends of a call that has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// The server has not run it.
    #[error("the server refuses the call: {text} ({why:?})")]
    Refused {
        /// Its reason.
        why: Refusal,
        /// Its words.
        text: String,
    },
    /// The handler has run, and says that it has failed.
    #[error("the call has failed: {text} (code {code})")]
    Failed {
        /// The handler's code.
        code: u32,
        /// The handler's words.
        text: String,
    },
    /// Its time was over.
    #[error("the deadline of the call has passed")]
    DeadlinePassed,
    /// The server has given it up: its handler has let go of the answer before the end.
    #[error("the server has given the call up")]
    Cancelled,
    /// The connection has ended.
    #[error("the connection of the call is lost: {0}")]
    Lost(CloseReason),
    /// No connection to the server could be had.
    #[error(transparent)]
    NotConnected(#[from] ConnectError),
    /// The answer cannot be taken: it is too long, no value of its type, or breaks a rule.
    #[error("the answer cannot be taken: {0}")]
    Answer(RecvError),
    /// The request cannot be sent: it is no value that can be encoded, the name of the method is
    /// empty or too long, the flow cannot have what it requires.
    #[error("the request cannot be sent: {0}")]
    Request(String),
    /// The server reads no more of the request. This is no end of the call: its answer, or the
    /// reason why there is none, can be received.
    #[error("the server reads no more of the request")]
    Unwanted,
}

impl CallError {
    pub(super) fn new(kind: CallErrorKind, may_have_run: bool) -> Self {
        CallError { kind: Box::new(kind), may_have_run }
    }

    /// The kind of the end.
    pub fn kind(&self) -> &CallErrorKind {
        &self.kind
    }

    /// False if it is known that the call has not run. True if it has, or may have: in part, or as
    /// a whole.
    pub fn may_have_run(&self) -> bool {
        self.may_have_run
    }

    /// True if the same call may succeed when it is made again, over another connection where this
    /// one is lost. Says nothing of whether it may be run twice.
    pub fn is_temporary(&self) -> bool {
        match self.kind() {
            CallErrorKind::Refused { why, .. } => why.is_temporary(),
            CallErrorKind::Lost(reason) => reason.is_worth_retrying(),
            CallErrorKind::NotConnected(error) => error.is_worth_retrying(),
            CallErrorKind::Cancelled => true,
            CallErrorKind::Failed { .. }
            | CallErrorKind::DeadlinePassed
            | CallErrorKind::Answer(_)
            | CallErrorKind::Request(_)
            | CallErrorKind::Unwanted => false,
        }
    }

    /// The same, of a call that was made before and may have run then.
    pub(super) fn after(mut self, may_have_run: bool) -> Self {
        self.may_have_run |= may_have_run;
        self
    }

    /// The end of a call by its answer's half; `has_left` = its request was handed over.
    pub(super) fn of_answer(error: RecvError, has_left: bool) -> Self {
        let kind = match error {
            RecvError::Flow(ReadError::Reset(code::DEADLINE)) => CallErrorKind::DeadlinePassed,
            RecvError::Flow(ReadError::Reset(_)) => CallErrorKind::Cancelled,
            RecvError::Flow(ReadError::Closed(reason)) => CallErrorKind::Lost(reason),
            other => CallErrorKind::Answer(other),
        };
        CallError::new(kind, has_left)
    }

    /// The end of sending; `has_left` = something was handed over.
    pub(super) fn of_request(error: WriteError, has_left: bool) -> Self {
        let kind = match error {
            WriteError::Stopped(_) => CallErrorKind::Unwanted,
            WriteError::Closed(reason) => CallErrorKind::Lost(reason),
            other => CallErrorKind::Request(other.to_string()),
        };
        CallError::new(kind, has_left)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.kind.to_string();
        // The server's words are among it.
        let said = printable::lines(&said, 1000);
        let ran = match (self.kind(), self.may_have_run) {
            (CallErrorKind::Failed { .. } | CallErrorKind::Unwanted, _) => "",
            (_, true) => "; it may have run",
            (_, false) => "; it has not run",
        };
        write!(f, "{said}{ran}")
    }
}

impl core::error::Error for CallError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        core::error::Error::source(self.kind())
    }
}

/// Why a handler has failed, for its caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text} (code {code})")]
pub struct Failure {
    /// A number of the application's; [`Failure::UNREADABLE`] and above are not.
    pub code: u32,
    /// Words for people, of up to 255 bytes; longer ones are cut off.
    pub text: String,
}

impl Failure {
    /// Code of a request that could not be read. (L-5)
    pub const UNREADABLE: u32 = 0xFFFF_FFFF;
    /// Code of an answer that could not be sent, as no value could be made of it. (L-5)
    pub const UNSENDABLE: u32 = 0xFFFF_FFFE;

    /// A failure with a code of the application's.
    pub fn new(code: u32, text: impl Into<String>) -> Self {
        Failure { code, text: text.into() }
    }
}

impl From<RecvError> for Failure {
    fn from(error: RecvError) -> Self {
        Failure::new(Failure::UNREADABLE, error.to_string())
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Failure::new(Failure::UNSENDABLE, error.to_string())
    }
}

impl From<super::body::SendError> for Failure {
    fn from(error: super::body::SendError) -> Self {
        Failure::new(Failure::UNSENDABLE, error.to_string())
    }
}

impl From<ValueError> for Failure {
    fn from(error: ValueError) -> Self {
        Failure::new(Failure::UNSENDABLE, error.to_string())
    }
}
