//! The file of client keys that a server accepts: lines of `fingerprint`, whatever else is said about them, and comments.

use crate::fingerprint::Fingerprint;
use crate::known_hosts::read_text;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The keys of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizedKeys {
    keys: BTreeMap<Fingerprint, String>,
}

/// What is wrong with a file of authorized keys.
#[derive(Debug, thiserror::Error)]
pub enum AuthorizedKeysError {
    /// It cannot be read.
    #[error("cannot read the authorized keys in {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line cannot be understood.
    #[error("{path}, line {line}: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

impl AuthorizedKeys {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or understood.
    pub fn load(path: &Path) -> Result<Self, AuthorizedKeysError> {
        let text = File::open(path)
            .and_then(|mut file| read_text(&mut file))
            .map_err(|source| AuthorizedKeysError::Read { path: path.to_owned(), source })?;
        let mut keys = BTreeMap::new();
        for (index, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (fingerprint, name) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            let fingerprint = fingerprint.parse().map_err(|e| AuthorizedKeysError::Line {
                path: path.to_owned(),
                line: index + 1,
                why: format!("{e}"),
            })?;
            keys.insert(fingerprint, name.trim().to_owned());
        }
        Ok(AuthorizedKeys { keys })
    }

    /// Whether a key is among them.
    pub fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.keys.contains_key(fingerprint)
    }

    /// What the file says beside a key, its owner's name usually.
    pub fn name(&self, fingerprint: &Fingerprint) -> Option<&str> {
        self.keys.get(fingerprint).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_their_names() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("keys");
        let (a, b, c) = (Fingerprint::of_spki(b"a"), Fingerprint::of_spki(b"b"), Fingerprint::of_spki(b"c"));
        std::fs::write(&path, format!("# staff\n{a}  Ada Lovelace\n\n  {b}\n")).expect("written");
        let keys = AuthorizedKeys::load(&path).expect("read");
        assert_eq!(keys.name(&a), Some("Ada Lovelace"));
        assert_eq!(keys.name(&b), Some(""));
        assert!(!keys.contains(&c));
        std::fs::write(&path, format!("{a}\nssh-ed25519 AAAA\n")).expect("written");
        let error = AuthorizedKeys::load(&path).expect_err("refused").to_string();
        assert!(error.contains("line 2") && error.contains("ssh-ed25519"), "{error}");
        assert!(AuthorizedKeys::load(dir.path()).is_err());
    }
}
