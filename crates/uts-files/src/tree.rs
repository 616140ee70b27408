//! A directory that is shared or copied into. Every path is resolved beneath its root (openat2
//! RESOLVE_BENEATH, through cap-std). Neither `..` nor a symbolic link, however it came to be
//! there, leads outside.

use super::error::{Fault, FaultKind};
use super::hidden;
use super::links;
use super::message::{Entry, Kind, Mtime};
use super::modes::Modes;
use super::note;
use super::path::{RelPath, is_reserved};
use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use std::fs::{File, FileTimes, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Number of tries to make a new part if somebody else makes a file of that name again and again.
const TRIES_MAX: usize = 4;

/// A directory and everything beneath it.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: Arc<Dir>,
    /// Hidden entries are as if they were not allowed, by whichever way they are reached.
    hides: bool,
}

/// Where the content of a file to send comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A path of this machine that the user named.
    Ambient(PathBuf),
    /// A file inside a tree.
    Inside(Tree, RelPath),
}

/// Way to go on after an entry of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Go {
    /// With what is in it, and the next.
    On,
    /// Without what is in it.
    Past,
}

impl Source {
    /// Opens it for reading. Only regular files are opened; a pipe does not block.
    pub(super) fn open(&self) -> Result<(File, Entry), Fault> {
        match self {
            Source::Ambient(path) => {
                let name = path.as_os_str().as_bytes();
                let mut options = std::fs::OpenOptions::new();
                std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), non_blocking());
                let file = options.open(path).map_err(|e| Fault::io(name, &e))?;
                regular(file, name)
            }
            Source::Inside(tree, path) => tree.open_file(path, FollowSymlinks::Yes),
        }
    }
}

impl Tree {
    pub(super) fn open(path: &Path) -> Result<Self, Fault> {
        let dir = Dir::open_ambient_dir(path, ambient_authority());
        let dir = dir.map_err(|e| Fault::io(path.as_os_str().as_bytes(), &e))?;
        Ok(Tree { root: Arc::new(dir), hides: false })
    }

    /// An open directory as a tree.
    pub(super) fn at(directory: Dir) -> Self {
        Tree { root: Arc::new(directory), hides: false }
    }

    /// The same, without what is hidden: see [`hidden`].
    pub(super) fn hiding(self) -> Self {
        Tree { hides: true, ..self }
    }

    /// Judges by where a path leads if it may be used.
    pub(super) fn judge(&self, path: &RelPath) -> Result<(), Fault> {
        if self.hides { hidden::check_way(&self.root, path) } else { Ok(()) }
    }

    /// Entry at `path`; a link inside the tree is followed.
    pub(super) fn stat(&self, path: &RelPath) -> Result<Option<Entry>, Fault> {
        self.judge(path)?;
        found(self.root.metadata(path.as_path()).map(|m| entry_of(path, &m, None)), path)
    }

    /// Entry at `path`, if only a link.
    pub(super) fn stat_link(&self, path: &RelPath) -> Result<Option<Entry>, Fault> {
        self.judge(path)?;
        found(self.root.symlink_metadata(path.as_path()).map(|m| entry_of(path, &m, None)), path)
    }

    pub(super) fn open_file(&self, path: &RelPath, follow: FollowSymlinks) -> Result<(File, Entry), Fault> {
        self.judge(path)?;
        let mut options = OpenOptions::new();
        options.read(true).follow(follow).custom_flags(non_blocking());
        let file =
            self.root.open_with(path.as_path(), &options).map_err(|e| Fault::io(path.as_bytes(), &e))?;
        regular(file.into_std(), path.as_bytes())
    }

    /// Opens a directory, so that names in it can be made.
    pub(super) fn open_directory(&self, path: &RelPath) -> io::Result<Dir> {
        self.judge(path)
            .map_err(|fault| io::Error::new(io::ErrorKind::PermissionDenied, fault.to_string()))?;
        self.root.open_dir(path.as_path())
    }

    /// Waits until the names in the directory of `path` are on the disk.
    pub(super) fn synchronise_parent(&self, path: &RelPath) -> Result<(), Fault> {
        let Some((parent, _)) = path.split() else { return Ok(()) };
        let synchronised = self.open_directory(&parent).and_then(|directory| synchronise_names(&directory));
        synchronised.map_err(|e| Fault::io(path.as_bytes(), &e))
    }

    /// Calls `emit` for what is in `directory`, each directory before its content, names in order.
    /// `emit` says how to go on. Paths are relative to `directory`. Entries that cannot be read are
    /// emitted as faults. Unfinished copies are left out, because they belong to their receiver.
    pub(super) fn list(
        &self,
        directory: &RelPath,
        recursive: bool,
        emit: &mut dyn FnMut(Result<Entry, Fault>) -> Go,
    ) -> Result<(), Fault> {
        self.walk(directory, recursive, &mut |found| {
            let path = match &found {
                // A link that leads to what is hidden would show it.
                Ok(Entry { kind: Kind::Link(_), path, .. })
                    if self.hides && self.judge(&directory.found(path)).is_err() =>
                {
                    return Go::Past;
                }
                Ok(entry) => &entry.path,
                Err(_) => return emit(found),
            };
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            if !is_reserved(name) {
                return emit(found);
            }
            if note::is_ours(self, &directory.found(path)) {
                Go::Past
            } else {
                emit(Err(note::left_out(path)))
            }
        })
    }

    /// The same, with everything that is there.
    pub(super) fn walk(
        &self,
        directory: &RelPath,
        recursive: bool,
        emit: &mut dyn FnMut(Result<Entry, Fault>) -> Go,
    ) -> Result<(), Fault> {
        self.judge(directory)?;
        let top = self.root.open_dir(directory.as_path()).map_err(|e| Fault::io(directory.as_bytes(), &e))?;
        let mut pending = vec![RelPath::ROOT];
        while let Some(at) = pending.pop() {
            let listed = if at.is_root() {
                top.entries()
            } else {
                top.open_dir_nofollow(at.as_path()).and_then(|d| d.entries())
            };
            let names = listed.and_then(|entries| {
                entries.map(|entry| entry.map(|e| e.file_name())).collect::<io::Result<Vec<_>>>()
            });
            let mut names = match names {
                Ok(names) => names,
                Err(e) => {
                    emit(Err(Fault::io(at.as_bytes(), &e)));
                    continue;
                }
            };
            names.sort_unstable();
            let mut below = Vec::new();
            for name in names {
                let path = at.found(name.as_bytes());
                let found = describe(&top, path.clone());
                let is_directory = found.as_ref().is_ok_and(|entry| entry.kind == Kind::Directory);
                if emit(found) == Go::On && is_directory {
                    below.push(path);
                }
            }
            if recursive {
                pending.extend(below.into_iter().rev());
            }
        }
        Ok(())
    }

    /// When what is at `path` was changed.
    pub(super) fn modified(&self, path: &RelPath) -> Option<SystemTime> {
        self.root
            .symlink_metadata(path.as_path())
            .ok()?
            .modified()
            .ok()
            .map(cap_std::time::SystemTime::into_std)
    }

    /// Makes a directory unless there is one. True if it is new. An old one is made writable for
    /// its owner.
    pub(super) fn make_directory(&self, path: &RelPath) -> Result<bool, Fault> {
        self.judge(path)?;
        let fault = |e: io::Error| Fault::io(path.as_bytes(), &e);
        match self.root.create_dir(path.as_path()) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists || path.is_root() => {
                let old = self.root.metadata(path.as_path()).map_err(fault)?;
                if !old.is_dir() {
                    return Err(Fault::new(
                        FaultKind::NotDirectory,
                        path.as_bytes(),
                        "exists and is not a directory",
                    ));
                }
                if old.mode() & 0o700 != 0o700 {
                    let mode = Permissions::from_mode((old.mode() & 0o7777) | 0o700);
                    let mode = cap_std::fs::Permissions::from_std(mode);
                    self.root.set_permissions(path.as_path(), mode).map_err(fault)?;
                }
                Ok(false)
            }
            Err(e) => Err(fault(e)),
        }
    }

    /// Sets mode and time of a file or directory, and makes the names in a directory durable.
    pub(super) fn set_attributes(&self, path: &RelPath, entry: &Entry, modes: Modes) -> Result<(), Fault> {
        self.judge(path)?;
        let fault = |e: io::Error| Fault::io(path.as_bytes(), &e);
        let is_directory = entry.kind == Kind::Directory;
        let follow = if is_directory { FollowSymlinks::Yes } else { FollowSymlinks::No };
        let mut options = OpenOptions::new();
        options.read(true).follow(follow).custom_flags(non_blocking());
        let file = self.root.open_with(path.as_path(), &options).map_err(fault)?.into_std();
        set_attributes(&file, path, entry, modes)?;
        if is_directory {
            file.sync_all().map_err(fault)?;
        }
        Ok(())
    }

    /// Makes a symbolic link in place of any link or file of that name; see [`links`].
    pub(super) fn make_link(&self, path: &RelPath, target: &[u8], top: &RelPath) -> Result<(), Fault> {
        self.judge(path)?;
        if self.hides {
            hidden::check_link(&self.root, path, target)?;
        }
        links::make(&self.root, path, target, top)
    }

    /// Opens a file of this program to be written, with what is in it, or makes a new one. Whatever
    /// else is found under its name stays: somebody may have made it beforehand, to read or to
    /// change what comes, or as a link to a file that would be overwritten.
    pub(super) fn open_to_write(&self, path: &RelPath) -> Result<File, Fault> {
        self.judge(path)?;
        let fault = |e: io::Error| Fault::io(path.as_bytes(), &e);
        let mut options = OpenOptions::new();
        options.read(true).write(true).follow(FollowSymlinks::No).custom_flags(non_blocking());
        let mut new = options.clone();
        new.create_new(true).mode(0o600);
        for _ in 0..TRIES_MAX {
            match self.root.open_with(path.as_path(), &new) {
                Ok(made) => return Ok(made.into_std()),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(fault(e)),
            }
            match self.root.open_with(path.as_path(), &options).map(cap_std::fs::File::into_std) {
                Ok(old) if is_own(&old) => return Ok(old),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                _ => break,
            }
        }
        Err(note::in_the_way(path))
    }

    /// Checks that `target` is a file or nothing, which a file may replace. A link may not be
    /// replaced, for what it leads to is meant as well as it; nor may a device or a pipe, which
    /// somebody needs.
    pub(super) fn check_replaceable(&self, target: &RelPath) -> Result<Option<Entry>, Fault> {
        let there = self.stat_link(target)?;
        let refuse = |kind, why| Err(Fault::new(kind, target.as_bytes(), why));
        match there.as_ref().map(|entry| &entry.kind) {
            None | Some(Kind::File) => Ok(there),
            Some(Kind::Directory) => refuse(FaultKind::IsDirectory, "is a directory"),
            Some(Kind::Link(_)) => refuse(
                FaultKind::Exists,
                "is a symbolic link, which is not replaced; name the file it leads to",
            ),
            Some(Kind::Special) => {
                refuse(FaultKind::Exists, "is a device, pipe or socket, which is not replaced")
            }
        }
    }

    /// True if the open file is the file at `path`.
    pub(super) fn is_at(&self, file: &File, path: &RelPath) -> bool {
        let there = self.root.symlink_metadata(path.as_path());
        match (file.metadata(), there) {
            (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    pub(super) fn rename(&self, from: &RelPath, to: &RelPath) -> Result<(), Fault> {
        self.judge(from)?;
        self.judge(to)?;
        self.root.rename(from.as_path(), &self.root, to.as_path()).map_err(|e| Fault::io(to.as_bytes(), &e))
    }

    /// Removes a file or link; nothing there is no fault.
    pub(super) fn remove(&self, path: &RelPath) -> Result<(), Fault> {
        self.judge(path)?;
        match self.root.remove_file(path.as_path()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Fault::io(path.as_bytes(), &e)),
            _ => Ok(()),
        }
    }
}

/// Sets mode and time of an open file or directory.
pub(super) fn set_attributes(file: &File, path: &RelPath, entry: &Entry, modes: Modes) -> Result<(), Fault> {
    let fault = |e: io::Error| Fault::io(path.as_bytes(), &e);
    let time = system_time(entry.mtime)
        .ok_or_else(|| Fault::new(FaultKind::Io, path.as_bytes(), "its time of change is out of range"))?;
    // What it is, not what the peer says.
    let now = file.metadata().map_err(fault)?;
    let mode = if now.is_dir() {
        modes.directory(entry.mode, now.mode(), path.is_root())
    } else {
        modes.file(entry.mode)
    };
    file.set_permissions(Permissions::from_mode(mode)).map_err(fault)?;
    file.set_times(FileTimes::new().set_modified(time)).map_err(fault)
}

/// Waits until the names in a directory are on the disk.
pub(super) fn synchronise_names(directory: &Dir) -> io::Result<()> {
    // As it was opened it only leads to what is in it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, ".", flags, rustix::fs::Mode::empty()) {
        Ok(readable) => Ok(rustix::fs::fsync(readable)?),
        // One that may be written to and not be read cannot be opened for this.
        Err(rustix::io::Errno::ACCESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// True if this program has made the file for itself, as far as can be told: it is this user's, has
/// one name only, and is writable by nobody else.
pub(super) fn is_own(file: &File) -> bool {
    file.metadata().is_ok_and(|m| {
        let is_ours = m.uid() == rustix::process::geteuid().as_raw();
        m.is_file() && is_ours && m.nlink() == 1 && m.mode() & 0o022 == 0
    })
}

/// Entry of an open file.
pub(super) fn entry_of_file(file: &File, path: &[u8]) -> Result<Entry, Fault> {
    let m = file.metadata().map_err(|e| Fault::io(path, &e))?;
    let kind = if m.is_file() {
        Kind::File
    } else if m.is_dir() {
        Kind::Directory
    } else {
        Kind::Special
    };
    Ok(Entry {
        path: path.to_vec(),
        size: if m.is_file() { m.len() } else { 0 },
        kind,
        mtime: mtime(m.mtime(), m.mtime_nsec()),
        mode: m.mode() & 0o7777,
    })
}

fn regular(file: File, path: &[u8]) -> Result<(File, Entry), Fault> {
    let entry = entry_of_file(&file, path)?;
    match entry.kind {
        Kind::File => Ok((file, entry)),
        Kind::Directory => Err(Fault::new(FaultKind::IsDirectory, path, "is a directory")),
        Kind::Link(_) | Kind::Special => Err(Fault::new(FaultKind::Special, path, "is not a regular file")),
    }
}

pub(super) fn describe(top: &Dir, path: RelPath) -> Result<Entry, Fault> {
    let fault = |e: io::Error| Fault::io(path.as_bytes(), &e);
    let m = top.symlink_metadata(path.as_path()).map_err(fault)?;
    let target =
        if m.is_symlink() { Some(top.read_link_contents(path.as_path()).map_err(fault)?) } else { None };
    Ok(entry_of(&path, &m, target))
}

fn entry_of(path: &RelPath, m: &cap_std::fs::Metadata, target: Option<PathBuf>) -> Entry {
    let kind = if m.is_file() {
        Kind::File
    } else if m.is_dir() {
        Kind::Directory
    } else if m.is_symlink() {
        Kind::Link(target.map(|t| t.into_os_string().into_encoded_bytes()).unwrap_or_default())
    } else {
        Kind::Special
    };
    let size = if kind == Kind::File { m.len() } else { 0 };
    let mode = m.mode() & 0o7777;
    Entry { path: path.as_bytes().to_vec(), kind, size, mtime: mtime(m.mtime(), m.mtime_nsec()), mode }
}

fn found(result: io::Result<Entry>, path: &RelPath) -> Result<Option<Entry>, Fault> {
    match result {
        Ok(entry) => Ok(Some(entry)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Fault::io(path.as_bytes(), &e)),
    }
}

fn mtime(seconds: i64, nanoseconds: i64) -> Mtime {
    Mtime { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) }
}

fn system_time(time: Mtime) -> Option<SystemTime> {
    if time.nanoseconds >= 1_000_000_000 {
        return None;
    }
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds >= 0 {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    };
    whole?.checked_add(Duration::from_nanos(u64::from(time.nanoseconds)))
}

fn non_blocking() -> i32 {
    OFlags::NONBLOCK.bits() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn rel(path: &str) -> RelPath {
        RelPath::parse(path.as_bytes()).unwrap()
    }

    #[test]
    fn no_link_leads_outside() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::fs::write(root.join("in/plain"), "y").unwrap();
        symlink("../secret", root.join("up")).unwrap();
        symlink(dir.path().join("secret"), root.join("abs")).unwrap();
        symlink("..", root.join("updir")).unwrap();
        symlink("in/plain", root.join("fine")).unwrap();
        let tree = Tree::open(&root).unwrap();
        for path in ["up", "abs", "updir/secret"] {
            assert_eq!(
                tree.open_file(&rel(path), FollowSymlinks::Yes).unwrap_err().kind,
                FaultKind::Unsafe,
                "{path}"
            );
            assert!(tree.stat(&rel(path)).is_err());
        }
        assert_eq!(tree.open_to_write(&rel("updir/new")).unwrap_err().kind, FaultKind::Unsafe);
        assert!(tree.make_directory(&rel("updir/new")).is_err());
        assert!(tree.list(&rel("updir"), true, &mut |_| Go::On).is_err());
        assert!(!dir.path().join("new").exists());
        assert!(tree.open_file(&rel("fine"), FollowSymlinks::Yes).is_ok());
    }

    /// Made beforehand by somebody else, who could read or change what arrives, or have another
    /// file overwritten.
    #[test]
    fn nothing_is_written_to_that_was_not_made_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (part, victim) = (dir.path().join("part"), dir.path().join("victim"));
        let tree = Tree::open(dir.path()).unwrap();
        let fifo = |at: &Path| {
            rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        };
        let traps: [(&str, &dyn Fn()); 6] = [
            ("a symbolic link", &|| symlink("victim", &part).unwrap()),
            ("a dangling link", &|| symlink("nowhere", &part).unwrap()),
            ("another name of a file", &|| std::fs::hard_link(&victim, &part).unwrap()),
            ("a pipe", &|| fifo(&part)),
            ("a directory", &|| std::fs::create_dir(&part).unwrap()),
            ("a file that others may write to", &|| {
                std::fs::write(&part, "precious").unwrap();
                std::fs::set_permissions(&part, Permissions::from_mode(0o666)).unwrap();
            }),
        ];
        for (what, set) in traps {
            std::fs::write(&victim, "precious").unwrap();
            std::fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
            set();
            let before = std::fs::symlink_metadata(&part).unwrap();
            let fault = tree.open_to_write(&rel("part")).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Exists, "{what}: {fault}");
            let after = std::fs::symlink_metadata(&part).unwrap();
            assert_eq!((before.ino(), before.len()), (after.ino(), after.len()), "{what}");
            assert_eq!(std::fs::read(&victim).unwrap(), b"precious", "{what}");
            assert!(!dir.path().join("nowhere").exists());
            if before.is_dir() {
                std::fs::remove_dir(&part).unwrap();
            } else {
                std::fs::remove_file(&part).unwrap();
            }
        }
        let new = tree.open_to_write(&rel("part")).unwrap();
        assert_eq!(new.metadata().unwrap().mode() & 0o7777, 0o600);
        io::Write::write_all(&mut &new, b"content").unwrap();
        // Its own it takes again, with what is in it.
        assert_eq!(tree.open_to_write(&rel("part")).unwrap().metadata().unwrap().len(), 7);
    }

    #[test]
    fn times_before_1970_and_out_of_range_are_told_apart() {
        let before = system_time(Mtime { seconds: -1, nanoseconds: 999_999_999 }).unwrap();
        assert_eq!(SystemTime::UNIX_EPOCH.duration_since(before).unwrap(), Duration::from_nanos(1));
        assert!(system_time(Mtime { seconds: 0, nanoseconds: 1_000_000_000 }).is_none());
    }

    #[test]
    fn a_pipe_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(Source::Ambient(pipe).open().unwrap_err().kind, FaultKind::Special);
        let tree = Tree::open(dir.path()).unwrap();
        assert_eq!(tree.open_file(&rel("pipe"), FollowSymlinks::Yes).unwrap_err().kind, FaultKind::Special);
    }
}
