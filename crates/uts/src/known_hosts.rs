//! The file of hosts whose keys are known: lines of `host:port fingerprint`, and comments.

use crate::fingerprint::Fingerprint;
use crate::trusted_file::open_trusted;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Larger files are refused, so that a wrong path cannot fill the memory.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The hosts of a file.
///
/// ```
/// use uts::{Identity, KnownHosts};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("known_hosts");
/// let key = Identity::generate()?.fingerprint();
/// KnownHosts::add(&path, "example.org:4433", key)?;
/// let known = KnownHosts::load(&path)?;
/// assert!(known.of("example.org:4433").any(|host| host.fingerprint == key));
/// # Ok(())
/// # }
/// ```
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

/// Error in a known-hosts file, or in reading or writing it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KnownHostsError {
    /// There is no place for the file.
    #[error(
        "no place for the known hosts: neither XDG_CONFIG_HOME nor HOME is set, and the user has no home"
    )]
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
    #[error("cannot change the known hosts in {path}: {source}")]
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
        /// Fault of the line.
        why: String,
    },
}

impl From<KnownHostsError> for io::Error {
    fn from(error: KnownHostsError) -> Self {
        let kind = match &error {
            KnownHostsError::NoHome => io::ErrorKind::NotFound,
            KnownHostsError::Read { source, .. } | KnownHostsError::Write { source, .. } => source.kind(),
            KnownHostsError::Line { .. } => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}

impl KnownHosts {
    /// Where a user's known hosts are kept: `$XDG_CONFIG_HOME/uts/known_hosts`, or otherwise
    /// `~/.config/uts/known_hosts`.
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
        let mut entries = Vec::new();
        for entry in Self::entries(path)? {
            entries.push(entry?);
        }
        Ok(KnownHosts { entries })
    }

    /// Entries of a file, in their order: for each line that is no comment, a host or the error in
    /// the line. A file that does not exist has none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn entries(path: &Path) -> Result<Vec<Result<KnownHost, KnownHostsError>>, KnownHostsError> {
        match open_trusted(path) {
            Ok(mut file) => Ok(parse(path, &read(path, &mut file)?).collect()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(KnownHostsError::Read { path: path.to_owned(), source }),
        }
    }

    /// The lines of a host (`host:port`).
    pub fn of<'a>(&'a self, host: &str) -> impl Iterator<Item = &'a KnownHost> {
        let host = host.to_lowercase();
        self.entries.iter().filter(move |entry| entry.host == host)
    }

    /// Adds a host to a file, which is made if it does not exist. The content of the file stays as
    /// it is. A host that is already there with this key is not added again. Returns whether it was
    /// added.
    ///
    /// # Errors
    /// If the file cannot be read, understood or written, or if `host` is not a single word.
    pub fn add(path: &Path, host: &str, fingerprint: Fingerprint) -> Result<bool, KnownHostsError> {
        check(path, host)?;
        let mut file = open_alone(path)?;
        let mut text = read(path, &mut file)?;
        let known = KnownHosts { entries: parse(path, &text).collect::<Result<_, _>>()? };
        if known.of(host).any(|entry| entry.fingerprint == fingerprint) {
            return Ok(false);
        }
        let failed = |source| KnownHostsError::Write { path: path.to_owned(), source };
        let before = text.len();
        append(&mut text, host, fingerprint);
        let more = text.get(before..).unwrap_or_default();
        file.write_all(more.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(true)
    }

    /// Makes this the one key of a host. A line that says so stays, the host's others go, and one
    /// is added if there was none. Everything else in the file stays as it is. Returns the keys
    /// that the host no longer has.
    ///
    /// # Errors
    /// If the file cannot be read or written, a line of another host cannot be understood, or, as
    /// for [`KnownHosts::add`], `host` is not a word.
    pub fn set(
        path: &Path,
        host: &str,
        fingerprint: Fingerprint,
    ) -> Result<Vec<Fingerprint>, KnownHostsError> {
        check(path, host)?;
        let is_of_host = |line: &str| name_of(line).is_some_and(|name| is_same(name, host));
        let has_key = |line: &str| key_of(line) == Ok(fingerprint);
        let removed = rewrite(
            path,
            |line| is_of_host(line) && !has_key(line),
            |kept| {
                if !kept.lines().any(|line| is_of_host(line) && has_key(line)) {
                    append(kept, host, fingerprint);
                }
            },
        )?;
        if removed.is_empty() {
            Self::add(path, host, fingerprint)?;
        }
        Ok(removed.iter().filter_map(|line| key_of(line).ok()).collect())
    }

    /// Removes the lines of a host, whether they can be understood or not. Returns how many there
    /// were. Everything else in the file stays as it is.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn remove(path: &Path, host: &str) -> Result<usize, KnownHostsError> {
        let is_of_host = |line: &str| name_of(line).is_some_and(|name| is_same(name, host));
        Ok(rewrite(path, is_of_host, |_| ())?.len())
    }
}

/// Checks that `host` is a word: anything else would damage the file for all hosts.
fn check(path: &Path, host: &str) -> Result<(), KnownHostsError> {
    let is_word = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control());
    if is_word && !host.starts_with('#') {
        return Ok(());
    }
    let what = format!("`{}` is not host:port", host.escape_debug());
    let source = io::Error::new(io::ErrorKind::InvalidInput, what);
    Err(KnownHostsError::Write { path: path.to_owned(), source })
}

/// Removes the lines that are to go, and returns them. If there are some, `then` may change what is
/// kept. The file is replaced at once, by a new one that is on the disk. Whatever happens, one of
/// the two is there.
fn rewrite(
    path: &Path,
    goes: impl Fn(&str) -> bool,
    then: impl Fn(&mut String),
) -> Result<Vec<String>, KnownHostsError> {
    if !path.try_exists().unwrap_or(true) {
        return Ok(Vec::new());
    }
    let mut file = open_alone(path)?;
    let text = read(path, &mut file)?;
    let (removed, kept): (Vec<&str>, Vec<&str>) = text.split_inclusive('\n').partition(|line| goes(line));
    if removed.is_empty() {
        return Ok(Vec::new());
    }
    let mut kept = kept.concat();
    then(&mut kept);
    let replace = || -> io::Result<()> {
        // A link stays one, and leads to the new file.
        let path = path.canonicalize()?;
        let (mut part, at) = new_beside(&path)?;
        let written = part
            .set_permissions(file.metadata()?.permissions())
            .and_then(|()| part.write_all(kept.as_bytes()))
            .and_then(|()| part.sync_all())
            .and_then(|()| std::fs::rename(&at, &path));
        if written.is_err() {
            let _ = std::fs::remove_file(&at);
        }
        written
    };
    replace().map_err(|source| KnownHostsError::Write { path: path.to_owned(), source })?;
    Ok(removed.into_iter().map(str::to_owned).collect())
}

/// A new file beside another, and where it is. The process that has locked the other is alone in
/// making one.
fn new_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let at = path.with_file_name(name);
    // One that a killed process has left.
    match std::fs::remove_file(&at) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    Ok((OpenOptions::new().write(true).create_new(true).open(&at)?, at))
}

/// Opens a file to be changed, which is made if it does not exist, once nobody else changes it.
fn open_alone(path: &Path) -> Result<File, KnownHostsError> {
    let failed = |source| KnownHostsError::Write { path: path.to_owned(), source };
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    loop {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        file.lock().map_err(failed)?;
        // Another may have been put in its place meanwhile.
        let (own, there) = (file.metadata().map_err(failed)?, std::fs::metadata(path));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())) {
            return Ok(file);
        }
    }
}

fn read(path: &Path, file: &mut File) -> Result<String, KnownHostsError> {
    read_text(file).map_err(|source| KnownHostsError::Read { path: path.to_owned(), source })
}

fn parse<'a>(path: &'a Path, text: &'a str) -> impl Iterator<Item = Result<KnownHost, KnownHostsError>> + 'a {
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let host = name_of(line)?.to_lowercase();
        Some(match key_of(line) {
            Ok(fingerprint) => Ok(KnownHost { host, fingerprint, line: number }),
            Err(why) => Err(KnownHostsError::Line { path: path.to_owned(), line: number, why }),
        })
    })
}

/// The host that a line is about, unless it is a comment.
fn name_of(line: &str) -> Option<&str> {
    line.split_whitespace().next().filter(|word| !word.starts_with('#'))
}

/// The key that a line gives to its host, or what is wrong with it.
fn key_of(line: &str) -> Result<Fingerprint, String> {
    let mut words = line.split_whitespace();
    let host = words.next().unwrap_or_default();
    let fingerprint = words.next().ok_or_else(|| format!("no fingerprint follows `{host}`"))?;
    fingerprint.parse().map_err(|e: crate::FingerprintError| e.to_string())
}

/// Adds a line of its own.
fn append(text: &mut String, host: &str, fingerprint: Fingerprint) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("{} {fingerprint}\n", host.to_lowercase()));
}

fn is_same(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
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
            let added = KnownHosts::add(&path, host, key).map(|_| ());
            let set = KnownHosts::set(&path, host, key).map(|_| ());
            for error in [added, set].map(|done| done.expect_err("refused")) {
                assert!(matches!(error, KnownHostsError::Write { .. }), "{error}");
                assert!(error.to_string().chars().all(|c| !c.is_control()), "{error}");
            }
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

    #[test]
    fn removing_keeps_comments_other_hosts_and_lines_that_cannot_be_understood() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("known_hosts");
        assert_eq!(KnownHosts::remove(&path, "a:1").expect("nothing there"), 0);
        assert!(!path.exists());
        let (a, b) = (Fingerprint::of_spki(b"a"), Fingerprint::of_spki(b"b"));
        let kept = format!("# mine\n\n  b:1 {b} # home\nc:1 what is this\n");
        std::fs::write(&path, format!("A:1 {a}\n{kept}a:1 {b}\na:1 damaged")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("set");
        let link = dir.path().join("link");
        symlink("known_hosts", &link).expect("linked");
        assert_eq!(KnownHosts::remove(&link, "a:1").expect("removed"), 3);
        assert_eq!(std::fs::read_to_string(&path).expect("read"), kept);
        assert!(link.symlink_metadata().expect("there").is_symlink());
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o640);
        assert_eq!(KnownHosts::remove(&path, "a:1").expect("none"), 0);
        let said: Vec<_> = KnownHosts::entries(&path).expect("read");
        assert_eq!(said[0].as_ref().map(|host| (&*host.host, host.line)).expect("a host"), ("b:1", 3));
        assert!(said[1].as_ref().expect_err("damaged").to_string().contains("line 4"));
        assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 2, "nothing is left beside");
    }

    #[test]
    fn a_host_has_the_key_that_was_set_and_no_other() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("known_hosts");
        let [a, b, c] = [b"a", b"b", b"c"].map(|key| Fingerprint::of_spki(key));
        assert_eq!(KnownHosts::set(&path, "h:1", a).expect("set"), []);
        assert_eq!(KnownHosts::set(&path, "h:1", a).expect("set"), []);
        KnownHosts::add(&path, "h:1", b).expect("added");
        KnownHosts::add(&path, "i:1", b).expect("added");
        assert_eq!(KnownHosts::set(&path, "H:1", c).expect("set"), [a, b]);
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text, format!("i:1 {b}\nh:1 {c}\n"));
    }

    #[test]
    fn adding_and_removing_at_once_lose_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("known_hosts");
        std::thread::scope(|scope| {
            for n in 0..4u8 {
                let path = &path;
                scope.spawn(move || {
                    for host in 0..16 {
                        let (gone, stays) = (format!("gone{host}:{n}"), format!("stays{host}:{n}"));
                        KnownHosts::add(path, &gone, Fingerprint::of_spki(&[n])).expect("added");
                        KnownHosts::add(path, &stays, Fingerprint::of_spki(&[n])).expect("added");
                        assert_eq!(KnownHosts::remove(path, &gone).expect("removed"), 1);
                    }
                });
            }
        });
        let known = KnownHosts::load(&path).expect("read").entries;
        assert_eq!(known.len(), 64);
        assert!(known.iter().all(|entry| entry.host.starts_with("stays")));
    }
}
