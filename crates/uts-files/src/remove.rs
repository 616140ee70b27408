//! Removal of what is at the goal of a copy and not at its source.
//!
//! Beneath the goal no link is followed: a link is removed as a link, and what lies behind one
//! cannot be named. Only what was listed is removed: if something else has its name by then, that
//! stays.

use super::error::{Fault, FaultKind};
use super::message::{Entry, Kind};
use super::path::RelPath;
use super::tree::{Tree, describe};
use super::unfinished;
use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, PermissionsExt};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Removes what is at the path of `entry`, beneath the directory `goal`. A directory must be empty
/// but for unfinished copies, of which nobody receives any. Nothing there is no fault.
///
/// # Errors
/// [`FaultKind::Unsafe`] if the path is not beneath the goal, or a link is on the way;
/// [`FaultKind::Changed`] if it is not what was listed; [`FaultKind::Exists`] if a directory is not
/// empty. Otherwise what the operating system says.
pub(super) fn remove(tree: &Tree, goal: &RelPath, entry: &Entry) -> Result<(), Fault> {
    let path = RelPath::parse(&entry.path)?;
    let fault = |e: io::Error| Fault::io(path.as_bytes(), &e);
    let refuse = |kind, why| Err(Fault::new(kind, path.as_bytes(), why));
    tree.judge(&path)?;
    let Some((at, name)) = path.beneath(goal).as_ref().and_then(RelPath::split).map(own) else {
        return refuse(FaultKind::Unsafe, "is not beneath the directory that is copied to");
    };
    let mut directory = tree.open_directory(goal).map_err(fault)?;
    for name in at.names() {
        directory = match directory.open_dir_nofollow(OsStr::from_bytes(name)) {
            Ok(inner) => inner,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) if is_link(&directory, name) => {
                return refuse(FaultKind::Unsafe, "a link stands on the way to it, which is not followed");
            }
            Err(e) => return Err(fault(e)),
        };
    }
    let there = match describe(&directory, name.clone()) {
        Ok(there) => there,
        Err(fault) if fault.kind == FaultKind::NotFound => return Ok(()),
        Err(fault) => return Err(Fault { path: path.as_bytes().to_vec(), ..fault }),
    };
    if !is_same(&there, entry) {
        return refuse(FaultKind::Changed, "has changed since it was listed, and was not deleted");
    }
    let is_directory = there.kind == Kind::Directory;
    let mut removed = remove_in(&directory, &name, is_directory);
    if is_directory && removed.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::DirectoryNotEmpty) {
        clear(&directory, &name).map_err(fault)?;
        removed = remove_in(&directory, &name, is_directory);
    }
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {
            refuse(FaultKind::Exists, "is not empty: what is in it is hidden, under way, or has come since")
        }
        removed => removed.map_err(fault),
    }
}

fn own((at, name): (RelPath, &[u8])) -> (RelPath, RelPath) {
    (at, RelPath::found_at(name))
}

fn is_link(directory: &Dir, name: &[u8]) -> bool {
    directory.symlink_metadata(OsStr::from_bytes(name)).is_ok_and(|there| there.is_symlink())
}

/// True if what is there is what was listed. The time of a directory changes with what is removed
/// from it.
fn is_same(there: &Entry, listed: &Entry) -> bool {
    match (&there.kind, &listed.kind) {
        (Kind::File, Kind::File) => (there.size, there.mtime) == (listed.size, listed.mtime),
        (there, listed) => there == listed,
    }
}

/// Removes a name. Where the directory keeps its own user from that, it is made writable: it is
/// removed next, or gets the mode of its source.
fn remove_in(directory: &Dir, name: &RelPath, is_directory: bool) -> io::Result<()> {
    let remove = || match is_directory {
        true => directory.remove_dir(name.as_path()),
        false => directory.remove_file(name.as_path()),
    };
    match remove() {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && open_up(directory).is_ok() => remove(),
        removed => removed,
    }
}

fn open_up(directory: &Dir) -> io::Result<()> {
    let mut permissions = directory.dir_metadata()?.permissions();
    permissions.set_mode((permissions.mode() & 0o7777) | 0o700);
    directory.set_permissions(".", permissions)
}

/// Removes the unfinished copies in a directory that is to go, if there is nothing else in it.
fn clear(directory: &Dir, name: &RelPath) -> io::Result<()> {
    let tree = Tree::at(directory.open_dir_nofollow(name.as_path())?);
    let mut found = Vec::new();
    let listed = tree.walk(&RelPath::ROOT, false, &mut |entry| {
        found.push(entry.ok().map(|entry| RelPath::found_at(&entry.path)));
        super::tree::Go::On
    });
    let is_ours =
        |path: &Option<RelPath>| path.as_ref().is_some_and(|path| super::note::is_ours(&tree, path));
    if listed.is_err() || !found.iter().all(is_ours) {
        return Ok(());
    }
    for path in found.iter().flatten() {
        if let Some(unfinished) = unfinished::describe(&tree, path) {
            // What cannot be removed is found when the directory is.
            let _ = unfinished.remove();
        }
    }
    Ok(())
}
