//! The file of client keys that a server accepts: lines with a fingerprint, or a public key of
//! OpenSSH, and whatever else is said about it, and comments.

use crate::fingerprint::Fingerprint;
use crate::known_hosts::read_text;
use crate::ssh_keys;
use crate::trusted_file::open_trusted;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// A file that was changed less than this before it was read may change again without looking
/// different: times of files are as coarse as two seconds (FAT).
const UNSETTLED: Duration = Duration::from_secs(3);

/// The keys of a file.
///
/// ```
/// use uts::{AuthorizedKeys, ClientAuth, Identity};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("authorized_keys");
/// let key = Identity::generate()?.fingerprint();
/// std::fs::write(&path, format!("{key} alice\n"))?;
/// let keys = AuthorizedKeys::load(&path)?;
/// assert_eq!(keys.name(&key), Some("alice"));
/// let auth = ClientAuth::Keys(keys);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizedKeys {
    keys: BTreeMap<Fingerprint, String>,
}

/// Error in a file of authorized keys, or in reading it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
        /// Fault of the line.
        why: String,
    },
}

impl From<AuthorizedKeysError> for io::Error {
    fn from(error: AuthorizedKeysError) -> Self {
        let kind = match &error {
            AuthorizedKeysError::Read { source, .. } => source.kind(),
            AuthorizedKeysError::Line { .. } => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}

impl AuthorizedKeys {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or understood.
    pub fn load(path: &Path) -> Result<Self, AuthorizedKeysError> {
        Self::read(path, open_trusted(path))
    }

    fn read(path: &Path, file: io::Result<File>) -> Result<Self, AuthorizedKeysError> {
        let text = file
            .and_then(|mut file| read_text(&mut file))
            .map_err(|source| AuthorizedKeysError::Read { path: path.to_owned(), source })?;
        let mut keys = BTreeMap::new();
        for (index, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (fingerprint, name) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            let wrong = |why| AuthorizedKeysError::Line { path: path.to_owned(), line: index + 1, why };
            let (fingerprint, name) = match fingerprint.parse::<Fingerprint>() {
                Ok(fingerprint) => (fingerprint, name),
                Err(error) => {
                    ssh_keys::public(text).unwrap_or_else(|| Err(error.to_string())).map_err(wrong)?
                }
            };
            keys.insert(fingerprint, name.trim().to_owned());
        }
        Ok(AuthorizedKeys { keys })
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// True if the key with this fingerprint is among them.
    pub fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.keys.contains_key(fingerprint)
    }

    /// Text beside a key in the file, usually the name of its owner.
    pub fn name(&self, fingerprint: &Fingerprint) -> Option<&str> {
        self.keys.get(fingerprint).map(String::as_str)
    }
}

/// Keys without names, which are in no file.
impl FromIterator<Fingerprint> for AuthorizedKeys {
    fn from_iter<I: IntoIterator<Item = Fingerprint>>(keys: I) -> Self {
        AuthorizedKeys { keys: keys.into_iter().map(|key| (key, String::new())).collect() }
    }
}

/// Keys of clients that a server lets in.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// These, for good.
    Keys(Arc<AuthorizedKeys>),
    /// Those of a file.
    File(Watched),
}

impl Admitted {
    /// The keys as they are now.
    ///
    /// # Errors
    /// Fault of the file, in words.
    pub fn keys(&self) -> Result<Arc<AuthorizedKeys>, String> {
        match self {
            Admitted::Keys(keys) => Ok(keys.clone()),
            Admitted::File(watched) => watched.keys(),
        }
    }

    /// Source of the keys, for people.
    pub fn place(&self) -> String {
        match self {
            Admitted::Keys(_) => "the list of this server's clients".to_owned(),
            Admitted::File(watched) => watched.path().display().to_string(),
        }
    }
}

/// A file of keys that is read again only if it has changed. A client costs a look at its times.
#[derive(Debug)]
pub(crate) struct Watched(Mutex<Held>);

/// Keys that were read, and the state of the file then; `None` = to be read again in any case.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    of: Option<Stamp>,
    /// Keys, or the error in the file: a damaged file is not read for each client either.
    keys: Result<Arc<AuthorizedKeys>, String>,
    #[cfg(test)]
    reads: u32,
}

/// Metadata that change when a file does.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    /// Device, inode, and when anything of it changed: seconds and nanoseconds.
    #[cfg(unix)]
    inode: (u64, u64, i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        Stamp {
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            inode: (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// When the file last changed, as far as is known.
    fn changed_at(&self) -> Option<SystemTime> {
        #[cfg(unix)]
        {
            let (_, _, seconds, nanos) = self.inode;
            let since = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
            SystemTime::UNIX_EPOCH.checked_add(since)
        }
        #[cfg(not(unix))]
        self.modified
    }
}

impl Watched {
    /// Nothing is read yet.
    pub fn new(path: PathBuf) -> Self {
        let keys = Err(String::new());
        let held = Held {
            path,
            of: None,
            keys,
            #[cfg(test)]
            reads: 0,
        };
        Watched(Mutex::new(held))
    }

    pub fn path(&self) -> PathBuf {
        self.lock().path.clone()
    }

    /// From now on it is another file, which is read when it is needed.
    pub fn move_to(&self, path: PathBuf) {
        let mut held = self.lock();
        (held.path, held.of) = (path, None);
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys that the file has now.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn keys(&self) -> Result<Arc<AuthorizedKeys>, String> {
        let mut held = self.lock();
        let now = std::fs::metadata(&held.path).ok().map(|metadata| Stamp::of(&metadata));
        if now.is_some() && now == held.of {
            return held.keys.clone();
        }
        held.read();
        held.keys.clone()
    }
}

impl Held {
    #[expect(clippy::disallowed_methods, reason = "the times of files are of the system's clock")]
    fn read(&mut self) {
        let file = open_trusted(&self.path);
        // Looked at before it is read: what changes meanwhile is seen next time.
        let stamp = file.as_ref().ok().and_then(|file| file.metadata().ok()).map(|m| Stamp::of(&m));
        let read_at = SystemTime::now();
        self.keys = AuthorizedKeys::read(&self.path, file).map(Arc::new).map_err(|e| e.to_string());
        self.of = stamp.filter(|stamp| {
            let age = stamp.changed_at().and_then(|changed| read_at.duration_since(changed).ok());
            age.is_some_and(|age| age >= UNSETTLED)
        });
        #[cfg(test)]
        {
            self.reads += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many clients cost one reading, and a change is seen by the next client.
    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("keys");
        let (a, b) = (Fingerprint::of_spki(b"a"), Fingerprint::of_spki(b"b"));
        std::fs::write(&path, format!("{a}\n")).expect("written");
        let watched = Watched::new(path.clone());
        let reads = || watched.0.lock().expect("held").reads;
        let has = |key| watched.keys().expect("read").contains(&key);
        assert!(has(a) && has(a));
        assert_eq!(reads(), 2, "what has just changed may change unseen");
        // As if the file had been there for long.
        let settle = || {
            let stamp = Stamp::of(&std::fs::metadata(&path).expect("there"));
            watched.0.lock().expect("held").of = Some(stamp);
        };
        settle();
        assert!((0..100).all(|_| has(a) && !has(b)));
        assert_eq!(reads(), 2);
        std::fs::write(dir.path().join("new"), format!("{b}\n")).expect("written");
        std::fs::rename(dir.path().join("new"), &path).expect("replaced");
        assert!(has(b) && !has(a), "of the same length, and another file");
        settle();
        std::fs::write(&path, "nonsense").expect("written");
        assert!(watched.keys().expect_err("damaged").contains("line 1"));
        settle();
        std::fs::remove_file(&path).expect("removed");
        assert!(watched.keys().expect_err("gone").contains("cannot read"));
        let other = dir.path().join("other");
        std::fs::write(&other, format!("{a}\n")).expect("written");
        watched.move_to(other);
        assert!(has(a) && !has(b));
    }

    #[test]
    fn keys_with_their_names() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("keys");
        let (a, b, c) = (Fingerprint::of_spki(b"a"), Fingerprint::of_spki(b"b"), Fingerprint::of_spki(b"c"));
        std::fs::write(&path, format!("# staff\n{a}  Ada Lovelace\n\n  {b}\n")).expect("written");
        let keys = AuthorizedKeys::load(&path).expect("read");
        assert_eq!(keys.name(&a), Some("Ada Lovelace"));
        assert_eq!(keys.name(&b), Some(""));
        assert!(!keys.contains(&c) && keys.name(&c).is_none());
        assert_eq!((keys.len(), keys.is_empty()), (2, false));
        std::fs::write(&path, format!("{a}\nssh-ed25519 AAAA\n")).expect("written");
        let error = AuthorizedKeys::load(&path).expect_err("refused").to_string();
        assert!(error.contains("line 2") && error.contains("ssh-ed25519"), "{error}");
        assert!(AuthorizedKeys::load(dir.path()).is_err());
        assert!(
            AuthorizedKeys::load(&dir.path().join("absent")).is_err(),
            "no file lets nobody in by mistake"
        );
        std::fs::write(&path, "# nobody\n").expect("written");
        assert!(AuthorizedKeys::load(&path).expect("read").is_empty());
    }
}
