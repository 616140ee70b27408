//! Confinement of a server. After this a process that serves clients can open no file but those
//! that it was told of, can start no program, and can trace or change no other process. A fault
//! that a client makes use of, of the program or of a library, ends there.
//!
//! Files and TCP are confined by Landlock, system calls by seccomp. Either is left out where the
//! kernel has none. Both hold for the calling thread and for all that it begins later.

#[cfg(target_os = "linux")]
mod linux;

use std::path::PathBuf;

/// Powers that a process keeps.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Files that are read, and directories with all that is in them.
    pub reads: Vec<PathBuf>,
    /// Directories in which files are made, changed and removed as well.
    pub writes: Vec<PathBuf>,
    /// TCP connections are made, or waited for.
    pub uses_tcp: bool,
}

impl Limits {
    /// True if a process with these can do all that one with the others does.
    pub fn covers(&self, others: &Limits) -> bool {
        let is_beneath = |path: &PathBuf, all: &[PathBuf]| all.iter().any(|held| path.starts_with(held));
        let reads =
            others.reads.iter().all(|path| is_beneath(path, &self.reads) || is_beneath(path, &self.writes));
        let writes = others.writes.iter().all(|path| is_beneath(path, &self.writes));
        reads && writes && (self.uses_tcp || !others.uses_tcp)
    }
}

/// Powers that were taken from a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confined {
    /// Files, and TCP unless it is used.
    pub files: bool,
    /// System calls.
    pub calls: bool,
}

impl Confined {
    /// Names of what is confined; empty = nothing.
    pub fn words(self) -> &'static str {
        match (self.files, self.calls) {
            (true, true) => "files, system calls",
            (true, false) => "files",
            (false, true) => "system calls",
            (false, false) => "",
        }
    }
}

/// Confines the calling thread, and all threads that it begins later, for good.
///
/// # Errors
/// In words, if the kernel confines but refuses these limits.
pub fn confine(limits: &Limits) -> Result<Confined, String> {
    #[cfg(target_os = "linux")]
    let confined = Confined {
        files: linux::confine_files(limits).map_err(|error| format!("cannot confine files: {error}"))?,
        calls: linux::confine_calls().map_err(|error| format!("cannot confine system calls: {error}"))?,
    };
    #[cfg(not(target_os = "linux"))]
    let confined = {
        let _ = limits;
        Confined::default()
    };
    Ok(confined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::ErrorKind;
    use std::process::Command;

    /// In a thread of its own: what is confined stays so.
    fn confined(limits: Limits, then: impl FnOnce(Confined) + Send + 'static) {
        let thread = std::thread::spawn(move || then(confine(&limits).expect("confined")));
        thread.join().expect("it held");
    }

    #[test]
    fn only_what_was_named_is_read_and_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        for name in ["read", "write", "other"] {
            fs::create_dir(path(name)).expect("a directory");
            fs::write(path(name).join("file"), name).expect("a file");
        }
        std::os::unix::fs::symlink(path("other").join("file"), path("read").join("link")).expect("a link");
        let limits = Limits { reads: vec![path("read")], writes: vec![path("write")], uses_tcp: true };
        let at = dir.path().to_owned();
        confined(limits, move |confined| {
            if !confined.files {
                eprintln!("skipped: this kernel has no Landlock");
                return;
            }
            let denied = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert_eq!(fs::read(at.join("read/file")).expect("read"), b"read");
            denied(fs::write(at.join("read/file"), "").expect_err("only read"));
            denied(fs::write(at.join("read/new"), "").expect_err("only read"));
            denied(fs::read(at.join("read/link")).expect_err("it leads elsewhere"));
            fs::write(at.join("write/new"), "new").expect("written");
            fs::rename(at.join("write/new"), at.join("write/file")).expect("replaced");
            fs::create_dir(at.join("write/dir")).expect("made");
            fs::remove_dir(at.join("write/dir")).expect("removed");
            denied(fs::read(at.join("other/file")).expect_err("not named"));
            denied(fs::rename(at.join("write/file"), at.join("other/file")).expect_err("not named"));
            denied(fs::read_dir("/etc").expect_err("not named"));
        });
    }

    #[test]
    #[expect(clippy::disallowed_types, reason = "what the system refuses is tried")]
    fn no_program_is_started_and_no_tcp_used() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        let limits = Limits { reads: vec!["/".into()], writes: vec!["/".into()], uses_tcp: false };
        confined(limits, move |confined| {
            if confined.calls {
                let error = Command::new("/bin/true").status().expect_err("no program is started");
                assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            }
            if confined.files {
                // Landlock knows TCP since its fourth interface (Linux 6.7).
                match std::net::TcpStream::connect(at) {
                    Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
                    Ok(_) => eprintln!("skipped: Landlock of this kernel leaves TCP alone"),
                }
            }
        });
        Command::new("/bin/true").status().expect("other threads are free");
    }
}
