//! Options, results and errors of flows and messages, as the application meets them: how a flow is
//! opened, how a message is sent, what was read, and why something could not be done.

use crate::connection::CloseReason;
use crate::connection::flows::DEFAULT_PRIORITY;
use crate::event::code_shown;
use crate::requirements::Requirements;
use crate::selector::Contradiction;
use bytes::Bytes;
use core::time::Duration;
use uts_functions::Time;
use uts_functions::playout::{MediaTime, Timing};

/// Options for opening a flow.
///
/// ```
/// use uts_engine::FlowOptions;
/// use uts_engine::requirements::Requirements;
///
/// let urgent = FlowOptions { priority: 0, ..FlowOptions::default() };
/// let messages = FlowOptions::requiring(Requirements::messages());
/// assert!(urgent.requirements.is_none() && messages.requirements.is_some());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOptions {
    /// Importance of the flow among the flows of the connection: 0 = most, 255 = least.
    /// `connScheduler` says what that means: by default a flow's share is as 1 / (priority + 1).
    /// Where it is left at 100, `connPriority` of the requirements says it.
    pub priority: u8,
    /// Requirements for the data that this end sends in the flow; `None` = those of the connection.
    ///
    /// Flows with equal requirements share a profile, which is agreed with the peer by an exchange
    /// when the first of them is opened. Until then what is written waits: nothing is ever sent
    /// under a profile that does not keep what was asked. Besides that of the connection there may
    /// be 7 at once. What belongs to the connection (`uts.security`, `congestionControl`,
    /// `maxSendRate` …; the mechanisms of acknowledgement, timing, rate, congestion and protection)
    /// cannot be asked of a flow.
    pub requirements: Option<Requirements>,
}

impl Default for FlowOptions {
    fn default() -> Self {
        FlowOptions { priority: DEFAULT_PRIORITY, requirements: None }
    }
}

impl FlowOptions {
    /// A flow with requirements of its own.
    pub fn requiring(requirements: Requirements) -> Self {
        FlowOptions { requirements: Some(requirements), ..Self::default() }
    }

    pub(super) fn priority(&self) -> u8 {
        match &self.requirements {
            Some(r) if self.priority == DEFAULT_PRIORITY => u8::try_from(r.conn_priority).unwrap_or(u8::MAX),
            _ => self.priority,
        }
    }
}

/// Time at which the content of a message was made, which is its media time.
///
/// ```
/// use std::time::Duration;
/// use uts_engine::{Made, MediaTime, MessageOptions};
///
/// // A picture that took its encoder 8 ms.
/// let made = Made::Before(Duration::from_millis(8));
/// let picture = MessageOptions { made, ..MessageOptions::default() };
/// // One whose file says when it is due.
/// let frame = MessageOptions { made: Made::At(MediaTime::from_micros(40_000)), ..picture };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Made {
    /// The time at which the message is handed over.
    #[default]
    Now,
    /// So long before that.
    Before(Duration),
    /// A time by a clock of the application's own. All messages of a connection's flows have such a
    /// one, or none.
    At(MediaTime),
}

impl Made {
    /// The media time of a message that is handed over at `now`.
    pub(crate) const fn at(self, now: Time) -> MediaTime {
        match self {
            Made::Now => MediaTime::before(now, Duration::ZERO),
            Made::Before(age) => MediaTime::before(now, age),
            Made::At(time) => time,
        }
    }
}

/// Options for sending a message.
///
/// ```
/// use std::time::Duration;
/// use uts_engine::MessageOptions;
///
/// let lifetime = Some(Duration::from_millis(100));
/// let frame = MessageOptions { lifetime, ..MessageOptions::default() };
/// let header = MessageOptions { checksum_len: Some(20), ..frame };
/// let stop = MessageOptions { expedited: true, ..MessageOptions::default() };
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageOptions {
    /// If it is not acknowledged within this time it is given up (`msgLifetime`); `None` = never.
    pub lifetime: Option<Duration>,
    /// Data that is handed over at the receiver before it, where a profile keeps a partial order
    /// (`uts.profile.sequencing=partial-order`). Under any other profile it says nothing.
    pub after: After,
    /// Where a profile keeps the order of each key (`uts.profile.sequencing=per-key`): it is handed
    /// over after all messages that were sent before it in its flow with the same key. Without a
    /// key it waits for none, and none for it. Under any other profile it says nothing.
    pub key: Option<u32>,
    /// Number of its bytes, from the first on, that have to arrive as they were sent
    /// (`msgChecksumLen`). Bytes behind them may come damaged, where nothing encrypts, the
    /// profile's detection lets that through and the receiver takes it; the receiver is told.
    /// `None` = what the requirements say, which by default is all; [`MessageOptions::ALL`] = all.
    pub checksum_len: Option<u32>,
    /// Time at which its content was made, where a profile has playout. Under any other profile it
    /// says nothing.
    pub made: Made,
    /// It passes all other data of its flow, and arrives although the flow's credit is used up
    /// (`uts.expedited=on` at both ends; ISO 8073 section 6.11). It has at most 16 bytes, and
    /// travels as it is: nothing else that is said here, or by the profile, changes anything about
    /// it. The flow takes no other before the peer's application has taken it, by
    /// [`Connection::read_expedited`](crate::Connection::read_expedited). What is written behind it
    /// arrives behind it.
    pub expedited: bool,
}

impl MessageOptions {
    /// All bytes of a message, for [`MessageOptions::checksum_len`].
    pub const ALL: u32 = u32::MAX;
}

/// Data that a message waits for at the receiver, under a partial order (RFC 1693).
///
/// ```
/// use uts_engine::{After, MessageOptions};
///
/// // A message that waits for what was sent between two positions, and for nothing else.
/// let picture = After::Positions { from: 1000, to: 9000 };
/// let options = MessageOptions { after: picture, ..MessageOptions::default() };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// Everything that was sent before it in its flow.
    #[default]
    Everything,
    /// Data of its flow between these positions, which
    /// [`Connection::position`](crate::Connection::position) has given. Data behind the message
    /// does not count.
    Positions {
        /// The first.
        from: u64,
        /// The first that it does not wait for.
        to: u64,
    },
}

impl After {
    /// It waits for nothing.
    pub const NOTHING: After = After::Positions { from: 0, to: 0 };
}

/// Why a flow cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The peer allows no more at present, or the handshake is not done.
    #[error("the peer allows no more flows at present")]
    Blocked,
    /// The connection is over.
    #[error("{0}")]
    Closed(#[source] CloseReason),
    /// The flow's requirements contradict each other, the path, or what the two ends have.
    #[error("{0}")]
    Contradiction(#[from] Contradiction),
    /// Something is asked of the flow that is the connection's.
    #[error(
        "`{asked}` cannot be asked of a flow: all flows of a connection share that, and this one has `{shared}`"
    )]
    Shared {
        /// Property that was asked for, as it would be written.
        asked: String,
        /// Value of it that the connection has.
        shared: String,
    },
    /// As many sets of requirements are in use as there may be.
    #[error(
        "flows with {0} different sets of requirements are open, which is the most that a connection can have"
    )]
    TooManyGroups(usize),
    /// Requirements come too late: something was written to the flow.
    #[error("the flow's requirements are fixed: something was written to it already")]
    Begun,
    /// No such flow.
    #[error("no such flow")]
    Unknown,
}

impl From<FlowError> for std::io::Error {
    fn from(error: FlowError) -> Self {
        use std::io::ErrorKind;
        let kind = match &error {
            FlowError::Blocked => ErrorKind::WouldBlock,
            FlowError::Closed(reason) => reason.kind(),
            FlowError::Contradiction(_) | FlowError::Shared { .. } => ErrorKind::InvalidInput,
            FlowError::TooManyGroups(_) => ErrorKind::QuotaExceeded,
            FlowError::Begun => ErrorKind::Unsupported,
            FlowError::Unknown => ErrorKind::NotFound,
        };
        std::io::Error::new(kind, error)
    }
}

/// Why data cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The flow is full; an [`Event::Writable`](crate::Event::Writable) follows.
    #[error("the flow takes no more at present")]
    Blocked,
    /// The peer wants no more data.
    #[error("the peer wants no more of this flow{}", code_shown(*.0))]
    Stopped(u64),
    /// The requirements of the flow could not be agreed with the peer.
    #[error("the flow cannot have what it requires: {0}")]
    Refused(String),
    /// The flow was finished or reset here.
    #[error("the flow was ended by this end")]
    Finished,
    /// The message is larger than the profile allows, or than an expedited one may be.
    #[error("a message of {size} bytes is larger than the {max} bytes that are allowed")]
    TooLarge {
        /// Its size.
        size: usize,
        /// The largest.
        max: usize,
    },
    /// Expedited messages are sent only where both ends ask for them.
    #[error("expedited messages need `uts.expedited=on` at both ends")]
    NotExpedited,
    /// No such flow.
    #[error("no such flow")]
    Unknown,
    /// The connection is over.
    #[error("{0}")]
    Closed(CloseReason),
}

/// Why nothing was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Nothing has arrived yet; an [`Event::Readable`](crate::Event::Readable) follows.
    #[error("nothing has arrived")]
    Blocked,
    /// The peer gave the flow up.
    #[error("the peer reset the flow{}", code_shown(*.0))]
    Reset(u64),
    /// No such flow, or its end was read already.
    #[error("no such flow")]
    Unknown,
    /// A message could not be converted back.
    #[error("a message is damaged: {0}")]
    Presentation(String),
    /// The connection is over.
    #[error("{0}")]
    Closed(CloseReason),
}

/// Result of reading from a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// A stretch of bytes, and its position in the flow (which matters only where order is not
    /// kept).
    Bytes(u64, Bytes),
    /// A message.
    Message(Bytes),
    /// A message whose end may be damaged, which its sender and this end allow (`msgChecksumLen`,
    /// `recvChecksumLen`).
    Damaged {
        /// The message.
        message: Bytes,
        /// Number of its bytes, from the first on, that are as they were sent.
        right_bytes: u64,
    },
    /// A message that was handed over in its time, where a profile has playout.
    Timed {
        /// The message.
        message: Bytes,
        /// When it was made, and how it was handed over.
        timing: Timing,
    },
    /// Messages are missing here, in the order of the media, where a profile has playout: they were
    /// lost, were given up, or came too late. What is shown instead is up to the application.
    Missing {
        /// Positions that they took: one for each byte, and one for each message.
        positions: u64,
    },
    /// The flow has ended.
    End,
}
