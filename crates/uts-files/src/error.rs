//! Faults of one file, in a form that travels, and errors of a copy.

use super::path::{PATH_BYTES_MAX, show};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// The kind of a fault, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FaultKind {
    /// No such file or directory.
    NotFound,
    /// The operating system refuses access.
    Permission,
    /// A directory where a file is needed.
    IsDirectory,
    /// Something else where a directory is needed.
    NotDirectory,
    /// Neither file, directory nor symbolic link.
    Special,
    /// The disk or the quota is full.
    NoSpace,
    /// A name or path is longer than the file system takes.
    NameTooLong,
    /// A name that could lead outside the tree, or is reserved.
    Unsafe,
    /// The server does not take files, or the file system is read-only.
    ReadOnly,
    /// The source changed while it was read.
    Changed,
    /// The hashes of both ends differ.
    Corrupt,
    /// Another copy of the same file is under way.
    Busy,
    /// Something is in the way that is not to be replaced.
    Exists,
    /// The copy was given up by the end that sends.
    Aborted,
    /// The peer speaks another version of the protocol.
    Version,
    /// The peer broke the protocol.
    Protocol,
    /// Anything else.
    Io,
    /// Nobody reads any more what is written. Of outputs, which servers do not have: it does not
    /// travel.
    Unread,
}

/// The longest cause from a peer that is kept, in bytes: some lines of text. A frame would take
/// sixty times as much, and a copy may keep a thousand.
pub const WHY_BYTES_MAX: usize = 1024;

/// Fault of one file. A fault from a peer is cut to [`WHY_BYTES_MAX`] and [`PATH_BYTES_MAX`] when
/// it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SentFault")]
pub struct Fault {
    /// The kind, for programs.
    pub kind: FaultKind,
    /// The path concerned, as bytes; empty if there is none.
    pub path: Vec<u8>,
    /// The cause, for people.
    pub why: String,
}

/// As it came, of any length that a frame takes.
#[derive(Deserialize)]
struct SentFault {
    kind: FaultKind,
    path: Vec<u8>,
    why: String,
}

impl From<SentFault> for Fault {
    fn from(sent: SentFault) -> Self {
        let SentFault { kind, mut path, mut why } = sent;
        path.truncate(PATH_BYTES_MAX);
        path.shrink_to_fit();
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
        why.shrink_to_fit();
        Fault { kind, path, why }
    }
}

impl Fault {
    /// A fault with its cause in words.
    pub fn new(kind: FaultKind, path: &[u8], why: impl Into<String>) -> Self {
        Fault { kind, path: path.to_vec(), why: why.into() }
    }

    /// The fault that an error of the operating system stands for.
    pub fn io(path: &[u8], error: &io::Error) -> Self {
        use io::ErrorKind as E;
        let (kind, why) = match error.kind() {
            E::NotFound => (FaultKind::NotFound, "no such file or directory"),
            // The sandbox reports an escape so, and without a number of the operating system.
            E::PermissionDenied if error.raw_os_error().is_none() => {
                (FaultKind::Unsafe, "leads outside the directory that is shared")
            }
            E::PermissionDenied => (FaultKind::Permission, "permission denied"),
            E::IsADirectory => (FaultKind::IsDirectory, "is a directory"),
            E::NotADirectory => (FaultKind::NotDirectory, "not a directory"),
            E::StorageFull => (FaultKind::NoSpace, "no space left on the disk"),
            E::QuotaExceeded => (FaultKind::NoSpace, "disk quota exceeded"),
            E::FileTooLarge => (FaultKind::NoSpace, "larger than the file system takes"),
            E::InvalidFilename => (FaultKind::NameTooLong, "name too long"),
            E::BrokenPipe => (FaultKind::Unread, "nobody reads it any more"),
            E::ReadOnlyFilesystem => (FaultKind::ReadOnly, "read-only file system"),
            _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                (FaultKind::Unsafe, "is a symbolic link where none is followed")
            }
            _ => return Fault::new(FaultKind::Io, path, error.to_string()),
        };
        Fault::new(kind, path, why)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both parts may come from the peer: nothing in them may steer a terminal.
        if self.path.is_empty() {
            f.write_str(&show(self.why.as_bytes()))
        } else {
            write!(f, "{}: {}", show(&self.path), show(self.why.as_bytes()))
        }
    }
}

/// Why a file, or a whole copy, failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// At this end.
    #[error("{0}")]
    Local(Fault),
    /// At the peer.
    #[error("at the peer: {0}")]
    Peer(Fault),
    /// The flow or the connection failed.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// The peer's bytes are not of this protocol.
    #[error("the peer broke the files protocol: {0}")]
    Protocol(String),
}

impl FileError {
    /// The fault, if it is one of a file.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            FileError::Local(fault) | FileError::Peer(fault) => Some(fault),
            FileError::Connection(_) | FileError::Protocol(_) => None,
        }
    }

    /// The same of what is at `path`.
    pub(super) fn at(self, path: &[u8]) -> FileError {
        let at = |fault| Fault { path: path.to_vec(), ..fault };
        match self {
            FileError::Local(fault) => FileError::Local(at(fault)),
            FileError::Peer(fault) => FileError::Peer(at(fault)),
            error => error,
        }
    }

    /// True if nothing more can be done on the flow on which it happened.
    pub(super) fn is_fatal(&self) -> bool {
        match self {
            FileError::Local(_) => false,
            FileError::Peer(fault) => matches!(fault.kind, FaultKind::Version | FaultKind::Protocol),
            FileError::Connection(_) | FileError::Protocol(_) => true,
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData {
            FileError::Protocol(error.to_string())
        } else if error.kind() == io::ErrorKind::UnexpectedEof {
            FileError::Connection("the peer ended the flow too early".into())
        } else {
            FileError::Connection(error.to_string())
        }
    }
}
