//! The file of hosts whose keys are known: lines of `host:port fingerprint`, and comments.

use crate::fingerprint::Fingerprint;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Larger files are refused, so that a wrong path cannot fill the memory.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The hosts of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownHosts {
    entries: Vec<KnownHost>,
}

/// A line of a known-hosts file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHost {
    /// `host:port`, in lower case.
    pub host: String,
    /// The key that it has.
    pub fingerprint: Fingerprint,
    /// The line of the file, from 1.
    pub line: usize,
}

/// What is wrong with a known-hosts file.
#[derive(Debug, thiserror::Error)]
pub enum KnownHostsError {
    /// There is no place for the file.
    #[error("no place for the known hosts: neither XDG_CONFIG_HOME nor HOME is set")]
    NoHome,
    /// It cannot be read.
    #[error("cannot read the known hosts in {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("cannot add to the known hosts in {path}: {source}")]
    Write {
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

impl KnownHosts {
    /// Where a user's known hosts are kept: `$XDG_CONFIG_HOME/uts/known_hosts`, or else `~/.config/uts/known_hosts`.
    ///
    /// # Errors
    /// [`KnownHostsError::NoHome`].
    pub fn default_path() -> Result<PathBuf, KnownHostsError> {
        Ok(crate::identity::config_dir().ok_or(KnownHostsError::NoHome)?.join("known_hosts"))
    }

    /// Reads a file; one that does not exist knows no hosts.
    ///
    /// # Errors
    /// If it cannot be read or understood: a damaged file must not make known hosts unknown.
    pub fn load(path: &Path) -> Result<Self, KnownHostsError> {
        match File::open(path) {
            Ok(mut file) => Self::read(path, &mut file),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(KnownHosts::default()),
            Err(source) => Err(KnownHostsError::Read { path: path.to_owned(), source }),
        }
    }

    /// The lines of a host (`host:port`).
    pub fn of<'a>(&'a self, host: &str) -> impl Iterator<Item = &'a KnownHost> {
        let host = host.to_lowercase();
        self.entries.iter().filter(move |entry| entry.host == host)
    }

    /// Adds a host to a file, which is made if it does not exist. What is in the file stays as it is. A host that is
    /// already there with this key is not added again.
    ///
    /// # Errors
    /// If the file cannot be read, understood or written, or if `host` is not what a line can begin with: a word.
    pub fn add(path: &Path, host: &str, fingerprint: Fingerprint) -> Result<(), KnownHostsError> {
        let failed = |source| KnownHostsError::Write { path: path.to_owned(), source };
        // It would damage the file for all hosts.
        if host.is_empty()
            || host.starts_with('#')
            || host.contains(|c: char| c.is_whitespace() || c.is_control())
        {
            let what = format!("`{}` is not host:port", host.escape_debug());
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(failed)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        // Of several clients that meet a host for the first time at once, one adds it.
        file.lock().map_err(failed)?;
        let known = Self::read(path, &mut file)?;
        if known.of(host).any(|entry| entry.fingerprint == fingerprint) {
            return Ok(());
        }
        let mut line = format!("{} {fingerprint}\n", host.to_lowercase());
        if !ends_with_newline(&mut file).map_err(failed)? {
            line.insert(0, '\n');
        }
        file.write_all(line.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)
    }

    fn read(path: &Path, file: &mut File) -> Result<Self, KnownHostsError> {
        let text =
            read_text(file).map_err(|source| KnownHostsError::Read { path: path.to_owned(), source })?;
        let mut entries = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let wrong = |why: String| KnownHostsError::Line { path: path.to_owned(), line: index + 1, why };
            let mut words = text.split_whitespace();
            let Some(host) = words.next().filter(|word| !word.starts_with('#')) else { continue };
            let fingerprint =
                words.next().ok_or_else(|| wrong(format!("no fingerprint follows `{host}`")))?;
            let fingerprint = fingerprint.parse().map_err(|e| wrong(format!("{e}")))?;
            entries.push(KnownHost { host: host.to_lowercase(), fingerprint, line: index + 1 });
        }
        Ok(KnownHosts { entries })
    }
}

/// Reads a file of text that is not larger than is reasonable.
pub(crate) fn read_text(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 16 MiB"));
    }
    Ok(text)
}

fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_added_and_comments_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("new/known_hosts");
        let (a, b) = (Fingerprint::of_spki(b"a"), Fingerprint::of_spki(b"b"));
        assert_eq!(KnownHosts::load(&path).expect("absent is empty"), KnownHosts::default());
        KnownHosts::add(&path, "Example.org:4433", a).expect("added");
        let text = std::fs::read_to_string(&path).expect("read");
        std::fs::write(&path, format!("# mine\n\n{}  # home", text.trim_end())).expect("written");
        KnownHosts::add(&path, "[::1]:4433", b).expect("added");
        KnownHosts::add(&path, "example.org:4433", a).expect("known");
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text, format!("# mine\n\nexample.org:4433 {a}  # home\n[::1]:4433 {b}\n"));
        let known = KnownHosts::load(&path).expect("read");
        let found: Vec<_> = known.of("EXAMPLE.org:4433").map(|e| (e.fingerprint, e.line)).collect();
        assert_eq!(found, [(a, 3)]);
        assert_eq!(known.of("example.org:4434").count(), 0);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("known_hosts");
        std::fs::write(&path, "# fine\nhost:1 SHA256:short\n").expect("written");
        let error = KnownHosts::load(&path).expect_err("refused").to_string();
        assert!(error.contains("known_hosts, line 2") && error.contains("SHA256:short"), "{error}");
        std::fs::write(&path, "host:1\n").expect("written");
        let error = KnownHosts::load(&path).expect_err("refused").to_string();
        assert!(error.contains("line 1: no fingerprint follows `host:1`"), "{error}");
        std::fs::write(&path, [0xff, 0xfe]).expect("written");
        assert!(KnownHosts::load(&path).is_err());
    }

    #[test]
    fn what_would_damage_the_file_is_not_added() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("known_hosts");
        let key = Fingerprint::of_spki(b"a");
        KnownHosts::add(&path, "fine:1", key).expect("added");
        let before = std::fs::read(&path).expect("read");
        for host in ["", "two words:1", "#comment:1", "line\nend:1", "tab\t:1", "steers\u{1b}[2J:1"] {
            let error = KnownHosts::add(&path, host, key).expect_err("refused");
            assert!(matches!(error, KnownHostsError::Write { .. }), "{error}");
            assert!(error.to_string().chars().all(|c| !c.is_control()), "{error}");
        }
        assert_eq!(std::fs::read(&path).expect("read"), before);
    }

    /// A damaged or unreadable file stays as it is, and is named.
    #[test]
    fn what_cannot_be_read_or_written_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, key) = (dir.path().join("known_hosts"), Fingerprint::of_spki(b"a"));
        std::fs::write(&path, "damaged\n").expect("written");
        let error = KnownHosts::add(&path, "host:1", key).expect_err("not understood");
        assert!(matches!(error, KnownHostsError::Line { line: 1, .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "damaged\n");
        assert!(matches!(KnownHosts::load(dir.path()), Err(KnownHostsError::Read { .. })), "a folder");
        let error = KnownHosts::add(&path.join("beneath/a/file"), "host:1", key).expect_err("no folder");
        assert!(matches!(&error, KnownHostsError::Write { .. }), "{error}");
        assert!(error.to_string().contains("beneath"), "{error}");
        // A wrong name must not fill the memory.
        let large = std::fs::File::create(&path).expect("made");
        large.set_len(FILE_BYTES_MAX + 1).expect("made of holes");
        let error = KnownHosts::load(&path).expect_err("too large").to_string();
        assert!(error.contains("larger than 16 MiB"), "{error}");
    }

    #[test]
    fn many_at_once_lose_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("known_hosts");
        std::thread::scope(|scope| {
            for n in 0..8u8 {
                let path = &path;
                scope.spawn(move || {
                    for host in 0..4 {
                        let host = format!("host{host}:{n}");
                        KnownHosts::add(path, &host, Fingerprint::of_spki(&[n])).expect("added");
                    }
                });
            }
        });
        assert_eq!(KnownHosts::load(&path).expect("read").entries.len(), 32);
    }
}
