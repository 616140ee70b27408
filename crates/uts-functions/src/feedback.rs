//! Feedback: the words in which the half of a mechanism at the receiver speaks to its half at the
//! sender (packets.md P-35). Numbers in them are variable-length integers (`uts_wire::varint`).

/// Words that a mechanism cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("feedback of {mechanism} that cannot be read")]
pub struct BadFeedback {
    /// The mechanism that they are for.
    pub mechanism: &'static str,
}
