//! Why there is no testbed, or not any more.

use std::io;
use std::path::PathBuf;

/// Why there is no testbed, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// A value of the configuration or of a request: which, and what was expected.
    #[error("{0}")]
    Config(String),
    /// A setting of a path.
    #[error("{0}")]
    Path(#[from] uts_path::SpecError),
    /// The system did not do what it was asked.
    #[error("cannot {what}: {cause}")]
    System {
        /// Task that it was given.
        what: String,
        /// Error that it returned.
        cause: io::Error,
    },
    /// The record cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Record {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The supervisor said no, or is gone.
    #[error("testbed: {0}")]
    Supervisor(String),
}

impl RouterError {
    pub(crate) fn system(what: &str, cause: io::Error) -> Self {
        RouterError::System { what: what.into(), cause }
    }
}
