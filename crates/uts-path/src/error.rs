//! The error for settings that make no sense.

/// A value or a text form that does not make sense: where, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {reason}")]
pub struct SpecError {
    /// The key or the piece of text that is wrong.
    pub at: String,
    /// Fault, and the range that would be right.
    pub reason: String,
}

impl SpecError {
    pub(crate) fn new(at: impl Into<String>, reason: impl Into<String>) -> Self {
        SpecError { at: at.into(), reason: reason.into() }
    }
}
