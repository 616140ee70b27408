//! Trust: how a client knows that a server is the one it means, and which clients a server lets in.

use crate::authorized_keys::AuthorizedKeysError;
use crate::fingerprint::Fingerprint;
use crate::identity::IdentityError;
use crate::known_hosts::{KnownHosts, KnownHostsError};
use core::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Means by which a client recognizes the server that it means.
///
/// ```
/// use std::sync::Arc;
/// use uts::{NewHost, Trust};
///
/// let trust = Trust::KnownHosts {
///     file: "/home/alice/.config/uts/known_hosts".into(),
///     on_new: NewHost::Ask(Arc::new(|key| {
///         println!("{} shows {}: is that right?", key.host, key.fingerprint);
///         false
///     })),
/// };
/// ```
#[derive(Clone, Debug)]
pub enum Trust {
    /// It has one of these keys.
    Pin(Vec<Fingerprint>),
    /// It has the key that it had before.
    KnownHosts {
        /// Where the keys of known hosts are kept.
        file: PathBuf,
        /// Decision on a host that was never met before.
        on_new: NewHost,
    },
    /// Its certificate leads to one of the X.509 roots of this PEM file, and names the host.
    Roots(PathBuf),
}

impl Trust {
    /// The user's known hosts ([`KnownHosts::default_path`]).
    ///
    /// # Errors
    /// [`KnownHostsError::NoHome`].
    pub fn known_hosts(on_new: NewHost) -> Result<Self, KnownHostsError> {
        Ok(Trust::KnownHosts { file: KnownHosts::default_path()?, on_new })
    }
}

/// Decision on a host that was never met before.
#[derive(Clone)]
pub enum NewHost {
    /// Ask: `true` accepts its key and keeps it. The question is put on a thread that may block.
    Ask(Arc<dyn Fn(&NewHostKey) -> bool + Send + Sync>),
    /// Accept its key and keep it.
    Accept,
    /// Refuse it.
    Refuse,
}

impl fmt::Debug for NewHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NewHost::Ask(_) => "Ask",
            NewHost::Accept => "Accept",
            NewHost::Refuse => "Refuse",
        })
    }
}

/// A key that a host shows which was never met before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHostKey {
    /// `host:port`.
    pub host: String,
    /// Its key.
    pub fingerprint: Fingerprint,
    /// Where it would be kept.
    pub file: PathBuf,
}

/// Which clients a server lets in.
#[derive(Clone, Debug, Default)]
pub enum ClientAuth {
    /// All; they are not asked who they are.
    #[default]
    None,
    /// Those whose keys are in this file (see [`crate::AuthorizedKeys`]), which is read again when
    /// it has changed.
    AuthorizedKeys(PathBuf),
    /// Those with these keys, as long as the server listens.
    Keys(crate::AuthorizedKeys),
}

/// A client that a server did not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedClient {
    /// The place from which it came.
    pub address: SocketAddr,
    /// The key that it has shown to have.
    pub fingerprint: Option<Fingerprint>,
    /// Why it was refused, in words.
    pub why: String,
}

/// Why a server was not trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// It was never met before.
    #[error("{host} is not a known host: its key is {found}, and {file} has none for it")]
    NewHost {
        /// `host:port`.
        host: String,
        /// The key that it shows.
        found: Fingerprint,
        /// The known hosts.
        file: PathBuf,
    },
    /// It was never met before, and the user did not accept its key.
    #[error("the key of {host}, {found}, was not accepted")]
    Declined {
        /// `host:port`.
        host: String,
        /// The key that it shows.
        found: Fingerprint,
    },
    /// It had another key before.
    #[error(
        "the key of {host} has changed: it shows {found}, but {file} has {expected} in line {line}. Either somebody is \
         in between, or the server has a new key; if you know that it has, remove that line"
    )]
    Changed {
        /// `host:port`.
        host: String,
        /// The key that it shows.
        found: Fingerprint,
        /// The key that it had.
        expected: Fingerprint,
        /// The known hosts.
        file: PathBuf,
        /// The line that says so, from 1.
        line: usize,
    },
    /// Its key is none of those that were pinned.
    #[error("{host} has another key than was pinned: it shows {found}, pinned is {}", list(.pinned))]
    NotPinned {
        /// `host:port`.
        host: String,
        /// The key that it shows.
        found: Fingerprint,
        /// The keys that would do.
        pinned: Vec<Fingerprint>,
    },
    /// Its certificate does not lead to a root, or not for this host, or not now.
    #[error("the certificate of {host} is not valid: {why}")]
    Certificate {
        /// `host:port`.
        host: String,
        /// Why not.
        why: String,
    },
    /// The known hosts cannot be read or written.
    #[error(transparent)]
    KnownHosts(#[from] KnownHostsError),
    /// The roots cannot be read.
    #[error(transparent)]
    Roots(#[from] IdentityError),
}

fn list(pinned: &[Fingerprint]) -> String {
    if pinned.is_empty() {
        return "none".to_owned();
    }
    pinned.iter().map(Fingerprint::to_string).collect::<Vec<_>>().join(" or ")
}

/// Why a server cannot find out which clients to let in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientAuthError {
    /// The file of authorized keys.
    #[error(transparent)]
    AuthorizedKeys(#[from] AuthorizedKeysError),
}

/// Expectation of a server's key, before it is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// One of these.
    Keys(Vec<Fingerprint>),
    /// Any, of a host that was never met before.
    New,
    /// A certificate that leads to a root.
    Certificate,
}

/// Expectation that `trust` has of `host` (`host:port`).
pub(crate) fn expected(trust: &Trust, host: &str) -> Result<Expected, TrustError> {
    match trust {
        Trust::Pin(keys) => Ok(Expected::Keys(keys.clone())),
        Trust::Roots(_) => Ok(Expected::Certificate),
        Trust::KnownHosts { file, .. } => {
            let known = KnownHosts::load(file)?;
            let keys: Vec<Fingerprint> = known.of(host).map(|entry| entry.fingerprint).collect();
            Ok(if keys.is_empty() { Expected::New } else { Expected::Keys(keys) })
        }
    }
}

/// The error for a key that was not expected.
pub(crate) fn unexpected(trust: &Trust, host: &str, found: Fingerprint) -> TrustError {
    let host = host.to_owned();
    match trust {
        Trust::Pin(keys) => TrustError::NotPinned { host, found, pinned: keys.clone() },
        Trust::KnownHosts { file, .. } => changed(file, host, found),
        Trust::Roots(_) => TrustError::Certificate { host, why: format!("its key is {found}") },
    }
}

fn changed(file: &Path, host: String, found: Fingerprint) -> TrustError {
    let known = match KnownHosts::load(file) {
        Ok(known) => known,
        Err(e) => return e.into(),
    };
    match known.of(&host).last() {
        Some(entry) => {
            let (expected, line) = (entry.fingerprint, entry.line);
            TrustError::Changed { host, found, expected, file: file.to_owned(), line }
        }
        None => TrustError::NewHost { host, found, file: file.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_key_is_told_from_a_new_host() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("known_hosts");
        let (old, new) = (Fingerprint::of_spki(b"old"), Fingerprint::of_spki(b"new"));
        let trust = Trust::KnownHosts { file: file.clone(), on_new: NewHost::Refuse };
        assert_eq!(expected(&trust, "h:1").expect("absent file"), Expected::New);
        let error = unexpected(&trust, "h:1", new).to_string();
        assert!(error.contains("not a known host") && error.contains(&new.to_string()), "{error}");
        KnownHosts::add(&file, "h:1", old).expect("added");
        assert_eq!(expected(&trust, "h:1").expect("read"), Expected::Keys(vec![old]));
        let error = unexpected(&trust, "h:1", new).to_string();
        for part in [&old.to_string(), &new.to_string(), "h:1", "known_hosts", "line 1"] {
            assert!(error.contains(part), "{error} lacks {part}");
        }
    }
}
