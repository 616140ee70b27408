//! Inventory of a directory: a server tells it at first, so that a wrong directory is noticed.

use crate::ui::Clock;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use uts_files::path::show;

/// Entries that are counted. A server does not wait for a count that nobody needs to the last
/// digit.
const ENTRIES_MAX: u64 = 10_000;
/// Time for which they are looked at, in seconds: file systems may be slow.
const SECONDS_MAX: f64 = 1.0;
/// Secrets that are named; more are counted.
const NAMED_MAX: usize = 4;
/// Where the first line of a private key is looked for, in bytes.
const HEAD_BYTES: u64 = 4096;

/// Names of what holds keys and passwords, whatever is in it.
const SECRETS: [&str; 10] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
    ".password-store",
    ".netrc",
    ".pgpass",
    ".git-credentials",
    ".env",
    ".htpasswd",
];
/// Ends of names of what holds keys and passwords.
const SECRET_ENDS: [&str; 4] = [".p12", ".pfx", ".kdbx", ".jks"];
/// Beginnings and ends of names of what is a private key if it says so.
const KEY_BEGINNINGS: [&str; 1] = ["id_"];
const KEY_ENDS: [&str; 2] = [".pem", ".key"];

/// Findings in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Regular files, this many at least.
    pub files: u64,
    /// Not all directories have been looked into.
    pub has_more: bool,
    /// There are hidden files, which are not among them.
    pub leaves_hidden: bool,
    /// Keys and passwords among what is served, by their paths: the first of them.
    pub secrets: Vec<String>,
    /// Number of further secrets.
    pub secrets_more: u64,
}

impl Inventory {
    /// Warning of secrets, before somebody else finds them.
    pub fn warning(&self) -> Option<String> {
        if self.secrets.is_empty() {
            return None;
        }
        let more =
            if self.secrets_more > 0 { format!(" and {} more", self.secrets_more) } else { String::new() };
        let mut named = self.secrets.clone();
        named.sort_unstable();
        Some(format!("private keys or passwords are among what is served: {}{more}", named.join(", ")))
    }
}

/// Counts what is beneath a directory, as far as it may be seen. Hidden files count if they are
/// served. Links are not followed.
pub fn look(dir: &Path, hidden: bool) -> Inventory {
    look_at_most(dir, hidden, ENTRIES_MAX)
}

fn look_at_most(root: &Path, hidden: bool, entries_max: u64) -> Inventory {
    let clock = Clock::start();
    let mut found = Inventory::default();
    let mut entries = 0;
    // What is on top first: a home has its secrets there.
    let mut waiting = VecDeque::from([root.to_owned()]);
    while let Some(dir) = waiting.pop_front() {
        // A directory that may not be read serves nothing.
        let Ok(listing) = std::fs::read_dir(dir) else { continue };
        for entry in listing.flatten() {
            entries += 1;
            if entries > entries_max || clock.seconds() > SECONDS_MAX {
                return Inventory { has_more: true, ..found };
            }
            let Ok(kind) = entry.file_type() else { continue };
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if name.starts_with('.') && !hidden {
                found.leaves_hidden |= !is_of_a_copy(&name);
                continue;
            }
            if is_secret(&name) || kind.is_file() && is_key(&name, &path) {
                if found.secrets.len() < NAMED_MAX {
                    let shown = path.strip_prefix(root).unwrap_or(&path);
                    found.secrets.push(show(shown.as_os_str().as_encoded_bytes()));
                } else {
                    found.secrets_more += 1;
                }
            }
            match kind {
                kind if kind.is_dir() => waiting.push_back(path),
                kind if kind.is_file() => found.files += 1,
                _ => {}
            }
        }
    }
    found
}

/// True if a name is of an unfinished copy: such files are hidden, and nobody misses them.
fn is_of_a_copy(name: &str) -> bool {
    name.ends_with(".uts-part") || name.ends_with(".uts-id")
}

fn is_secret(name: &str) -> bool {
    SECRETS.contains(&name) || SECRET_ENDS.iter().any(|end| name.ends_with(end))
}

/// A key that others may have is no secret: it is one if it says so, as all kinds of PEM do.
fn is_key(name: &str, path: &Path) -> bool {
    let may_be = KEY_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || KEY_ENDS.iter().any(|end| name.ends_with(end));
    if !may_be {
        return false;
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    read.is_ok() && String::from_utf8_lossy(&head).contains("PRIVATE KEY-----")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn files_are_counted_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[("1", ""), ("a/2", ""), ("a/b/3", ""), (".x.uts-part", "")]);
        // A way round in a circle.
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/round")).unwrap();
        assert_eq!(look(dir.path(), false), Inventory { files: 3, ..Inventory::default() });
        let cut = look_at_most(dir.path(), false, 2);
        assert!(cut.has_more && cut.files <= 2, "{cut:?}");
    }

    #[test]
    fn keys_and_passwords_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n";
        let public = "-----BEGIN CERTIFICATE-----\nabc\n";
        write(
            dir.path(),
            &[
                ("a/id_rsa", key),
                ("a/id_rsa.pub", "ssh-rsa abc"),
                ("b/key.pem", key),
                ("b/chain.pem", public),
            ],
        );
        let found = look(dir.path(), false);
        assert_eq!((found.files, found.leaves_hidden), (4, false));
        let warning = found.warning().expect("keys");
        assert_eq!(warning, "private keys or passwords are among what is served: a/id_rsa, b/key.pem");
        write(dir.path(), &[(".ssh/id_ed25519", key), (".gnupg/x", ""), (".bashrc", ""), ("c.kdbx", "")]);
        let found = look(dir.path(), false);
        assert_eq!((found.files, found.leaves_hidden, found.secrets.len()), (5, true, 3));
        let found = look(dir.path(), true);
        assert_eq!((found.files, found.leaves_hidden), (8, false));
        let warning = found.warning().expect("keys");
        assert!(
            warning.contains(".ssh") && warning.contains(".gnupg") && warning.ends_with(" and 2 more"),
            "{warning}"
        );
    }
}
