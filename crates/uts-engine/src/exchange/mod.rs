//! The negotiated exchange of profiles, as a pure type (`spec/exchange.md`, cited as `X-n`).
//!
//! A connection has two directions. Each direction has a [`Machine`] at its data sender and one at
//! its data receiver. Either may ask for another profile of a group of flows. An exchange binds one
//! profile to one *epoch*. Every packet names its epoch, and old and new packets are in flight
//! together.
//!
//! The machine knows no frame, no clock and no profile. It takes messages and the time, and gives
//! messages, events and the time of its next timer. After each call, first drain
//! [`Machine::poll_event`], because an epoch must be open before the peer hears of it. Then drain
//! [`Machine::poll_message`].

mod carried;
mod machine;
mod open;
#[cfg(test)]
mod properties;
mod repeat;
#[cfg(test)]
mod tests;

pub use carried::Carried;
pub use machine::Machine;

use core::time::Duration;

/// Groups of flows that one direction can have.
pub const GROUPS_MAX: usize = 8;
/// Packets carry epochs modulo this. All epochs that are live at once are less than this apart
///
pub const EPOCH_SPAN: u32 = 32;
/// Number of times that a message is sent before its sender stops repeating it.
pub const TRIES_MAX: u8 = 8;
/// A replaced epoch stays open at the receiver for this many probe time-outs.
pub const RETIRE_PTOS: u32 = 3;
/// Events that may wait for [`Machine::poll_event`]. While this many wait, input is treated as lost
///
pub const EVENTS_MAX: usize = 64;

/// End of the direction at which a machine stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Builds packets under the profile in use. Allots even epochs.
    DataSender,
    /// Reads them. Allots odd epochs.
    DataReceiver,
}

/// The data sender's epoch in use for each group: its word on what the receiver may close.
pub type Using = [Option<u32>; GROUPS_MAX];

/// Message between the two machines of a direction. The frames with these messages may be lost,
/// repeated, reordered or delayed without bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message<P, R> {
    /// Request-PF: use `profile` for `group`, under the number `epoch`.
    Request {
        /// The number that the profile gets.
        epoch: u32,
        /// The group of flows, below [`GROUPS_MAX`].
        group: u8,
        /// Epochs that the data sender uses as it asks; all `None` when the data receiver asks.
        using: Using,
        /// The profile asked for.
        profile: P,
    },
    /// ACK-PF: the request of that number is accepted.
    Ack {
        /// The request's number.
        epoch: u32,
    },
    /// NAK-PF: the request of that number is refused; its number is spent.
    Nak {
        /// The request's number.
        epoch: u32,
        /// Function that is refused, reason, and what there is instead.
        refusal: R,
    },
    /// Confirm-PF: the ACK arrived.
    Confirm {
        /// The request's number.
        epoch: u32,
    },
    /// The request with that number came after a higher one was decided on or sent. It will never
    /// be accepted.
    Stale {
        /// The request's number.
        epoch: u32,
        /// The highest number that the answering end knows; ask again above it.
        highest: u32,
    },
}

/// Event that a machine tells its owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event<P, R> {
    /// Receiver: packets of `epoch` may now arrive; build the stack that reads them.
    Open {
        /// The new epoch.
        epoch: u32,
        /// Its group.
        group: u8,
        /// Its profile.
        profile: P,
    },
    /// Sender: build the packets of `group` under `epoch` from now on.
    Use {
        /// The new epoch.
        epoch: u32,
        /// Its group.
        group: u8,
        /// Its profile.
        profile: P,
    },
    /// Sender: what packets of `refused` carried was refused. Build the packets of `group` under
    /// `epoch` again, and what was built under `refused` is lost.
    Back {
        /// The epoch that was in use before, and is again.
        epoch: u32,
        /// Its group.
        group: u8,
        /// The spent number.
        refused: u32,
    },
    /// Initiator: the exchange is done.
    Accepted {
        /// The new epoch.
        epoch: u32,
        /// Its group.
        group: u8,
        /// Since [`Machine::request`].
        took: Duration,
    },
    /// Initiator: the peer refused; what was in use goes on.
    Refused {
        /// The spent number.
        epoch: u32,
        /// Its group.
        group: u8,
        /// The peer's reason.
        refusal: R,
    },
    /// Initiator: the peer's own request came first by the rule of crossing requests. Ask again if
    /// it is still wanted.
    Withdrawn {
        /// The spent number.
        epoch: u32,
        /// Its group.
        group: u8,
        /// The profile that was wished for.
        profile: P,
    },
    /// Receiver: nothing under `epoch` is to be expected any more; drop its stack.
    Retire {
        /// The closed epoch.
        epoch: u32,
    },
    /// Initiator: no answer to [`TRIES_MAX`] requests. An answer that comes later still counts.
    Failed {
        /// The number that stays in doubt.
        epoch: u32,
        /// Its group.
        group: u8,
    },
}

/// Why a request cannot be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// An exchange of this direction is under way.
    #[error("an exchange is under way in this direction")]
    Underway,
    /// An earlier request of this end is unanswered; it is now being asked again.
    #[error("epoch {epoch} is in doubt and is being asked for again")]
    InDoubt {
        /// The number in doubt.
        epoch: u32,
    },
    /// The oldest live epoch is too old. `group` must change first (to the same profile under a new
    /// number, if need be). If it has changed already, its old epoch must first retire.
    #[error("the epoch of group {group} is too old; renew it first")]
    Span {
        /// The group of the oldest live epoch.
        group: u8,
    },
    /// The next number would tell the receiver to close an epoch of which packets are under way.
    #[error("packets of epoch {epoch} are still under way")]
    UnderWay {
        /// The oldest such epoch.
        epoch: u32,
    },
    /// No such group.
    #[error("group {group} is not below {GROUPS_MAX}")]
    NoSuchGroup {
        /// The group that was asked for.
        group: u8,
    },
    /// All epoch numbers are used up; only a new connection helps.
    #[error("epoch numbers are used up")]
    Exhausted,
}
