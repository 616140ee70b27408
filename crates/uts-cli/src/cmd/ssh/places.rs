//! Places of a user's servers at their host: a socket each, in a directory that is the user's
//! alone.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use uts::Fingerprint;
use uts_end::output::words;

/// Servers of one user at once. Chosen: more than people have sessions, and 64 such processes hold
/// less than a browser.
pub const SERVERS_MAX: usize = 64;

/// The directory, made if it is not there.
///
/// # Errors
/// It is not this user's alone, or cannot be made, in words.
pub fn directory() -> Result<PathBuf, String> {
    directory_in(&std::env::temp_dir())
}

fn directory_in(above: &Path) -> Result<PathBuf, String> {
    let own = rustix::process::geteuid().as_raw();
    let dir = above.join(format!("uts-ssh-{own}"));
    let wrong = |why: &str| format!("{}: {why}", dir.display());
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(wrong(&words(&error))),
        _ => {}
    }
    let found = fs::symlink_metadata(&dir).map_err(|error| wrong(&words(&error)))?;
    if !found.is_dir() || found.uid() != own || found.mode() & 0o077 != 0 {
        return Err(wrong("it is not a directory of this user alone (mode 0700); remove it"));
    }
    Ok(dir)
}

/// The name of a session: of its client's key, and told to the user.
pub fn name(client: &Fingerprint) -> String {
    let text = client.to_string();
    let letters = text.trim_start_matches("SHA256:").chars().filter(char::is_ascii_alphanumeric);
    letters.take(12).collect()
}

/// Endings of the sockets by which a session is looked at and ended: at its host, and here.
pub const CONTROL_THERE: &str = "there";
pub const CONTROL_HERE: &str = "here";

/// Sockets by which sessions of one kind are looked at.
///
/// # Errors
/// The directory cannot be read.
pub fn controls(dir: &Path, kind: &str) -> io::Result<Vec<PathBuf>> {
    let all = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let mut all: Vec<_> = all.into_iter().filter(|path| path.extension() == Some(kind.as_ref())).collect();
    all.sort();
    Ok(all)
}

/// Sockets of servers that live. Those of others are removed.
///
/// # Errors
/// The directory cannot be read.
pub fn living(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some() {
            continue;
        }
        match UnixStream::connect(&path) {
            Ok(_) => all.push(path),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Who removed it before has done the same.
                let _ = fs::remove_file(&path);
            }
            // One that is busy, or has gone meanwhile.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => all.push(path),
            Err(_) => {}
        }
    }
    all.sort();
    Ok(all)
}

/// The socket of a new server.
///
/// # Errors
/// There are as many as may be, or it cannot be made, in words.
pub fn bind(dir: &Path, client: &Fingerprint) -> Result<(UnixListener, PathBuf), String> {
    let path = dir.join(name(client));
    let wrong = |error: io::Error| format!("{}: {}", path.display(), words(&error));
    let listener = UnixListener::bind(&path).map_err(wrong)?;
    // Looked at after it is there: of two at once, none is missed.
    let living = living(dir).map_err(wrong)?;
    if living.len() > SERVERS_MAX {
        let _ = fs::remove_file(&path);
        return Err(format!(
            "{SERVERS_MAX} sessions of this user are kept here, which is the most (uts ssh --list and --end)"
        ));
    }
    listener.set_nonblocking(true).map_err(wrong)?;
    Ok((listener, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn client(n: usize) -> Fingerprint {
        Fingerprint::of_spki(n.to_string().as_bytes())
    }

    #[test]
    fn the_directory_is_the_users_alone() {
        let above = tempfile::tempdir().expect("a folder");
        let dir = directory_in(above.path()).expect("made");
        assert_eq!(fs::metadata(&dir).expect("there").permissions().mode() & 0o777, 0o700);
        assert_eq!(directory_in(above.path()).expect("found"), dir);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o750)).expect("set");
        assert!(directory_in(above.path()).expect_err("open to others").contains("alone"));
        fs::remove_dir(&dir).expect("removed");
        symlink("/tmp", &dir).expect("linked");
        assert!(directory_in(above.path()).expect_err("a link").contains("alone"));
    }

    #[test]
    fn servers_are_counted_while_they_live() {
        let above = tempfile::tempdir().expect("a folder");
        let dir = directory_in(above.path()).expect("made");
        let mut all: Vec<_> = (0..SERVERS_MAX).map(|n| bind(&dir, &client(n)).expect("room")).collect();
        assert!(bind(&dir, &client(100)).expect_err("full").contains("which is the most"));
        assert_eq!(living(&dir).expect("read").len(), SERVERS_MAX);
        assert!(bind(&dir, &client(3)).is_err(), "it is there");
        // One that was killed leaves its file.
        drop(all.pop());
        bind(&dir, &client(100)).expect("room again");
    }
}
