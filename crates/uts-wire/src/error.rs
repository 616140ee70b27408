//! Faults of bytes that do not parse.

/// A field that cannot be read: which, where, and what was expected there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}: {problem}")]
pub struct WireError {
    /// The field.
    pub what: &'static str,
    /// Its first byte, counted from the start of the bytes that were handed to the parser.
    pub at: usize,
    /// Kind of fault.
    pub problem: Problem,
}

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The bytes end before the field does.
    #[error("needs {needed} bytes, has {left}")]
    Truncated {
        /// Bytes that the field takes.
        needed: u64,
        /// Bytes that are left.
        left: usize,
    },
    /// The value is not one of those allowed.
    #[error("is {found:#x}, expected {expected}")]
    Value {
        /// Value that was read.
        found: u64,
        /// Values that may stand there.
        expected: &'static str,
    },
    /// A length or count is over its bound.
    #[error("has length {found}, at most {max} allowed")]
    TooLong {
        /// Length or count that was read.
        found: u64,
        /// The bound.
        max: u64,
    },
    /// The type has no meaning in this version.
    #[error("unknown type {found:#x}")]
    Unknown {
        /// Type that was read.
        found: u64,
    },
    /// A part that may stand once stands twice.
    #[error("appears a second time")]
    Duplicate,
    /// A mandatory part is absent.
    #[error("is missing")]
    Missing,
    /// The other end alone may say it.
    #[error("is not for this end to say")]
    Misplaced,
    /// Bytes follow the end of the value.
    #[error("{left} bytes follow its end")]
    Trailing {
        /// Number of these bytes.
        left: usize,
    },
    /// The text is not UTF-8.
    #[error("is not UTF-8")]
    NotText,
}

impl Problem {
    /// The kind's name, as in `spec/vectors`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Problem::Truncated { .. } => "truncated",
            Problem::Value { .. } => "value",
            Problem::TooLong { .. } => "too-long",
            Problem::Unknown { .. } => "unknown",
            Problem::Duplicate => "duplicate",
            Problem::Missing => "missing",
            Problem::Misplaced => "misplaced",
            Problem::Trailing { .. } => "trailing",
            Problem::NotText => "not-text",
        }
    }
}

impl WireError {
    pub(crate) const fn new(what: &'static str, at: usize, problem: Problem) -> Self {
        WireError { what, at, problem }
    }

    pub(crate) const fn value(what: &'static str, at: usize, found: u64, expected: &'static str) -> Self {
        WireError::new(what, at, Problem::Value { found, expected })
    }

    pub(crate) const fn too_long(what: &'static str, at: usize, found: u64, max: u64) -> Self {
        WireError::new(what, at, Problem::TooLong { found, max })
    }
}
