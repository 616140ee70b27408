//! Copies that were not finished, and what of them lies about.

use super::error::Fault;
use super::message::Kind;
use super::note::{self, Found, Note};
use super::path::{RelPath, Reserved};
use super::tree::{Go, Tree};
use cap_fs_ext::FollowSymlinks;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Source of an unfinished copy: a file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// A file.
    File {
        /// Bytes that have come so far.
        held: u64,
        /// Bytes of the source; `None` = a stream, or not known.
        size: Option<u64>,
    },
    /// A directory, of which nothing but the note is unfinished: what is in it counts by itself.
    Directory,
}

/// An unfinished copy.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// Path that it is to have, from the directory that was searched; a long name is shortened.
    pub path: RelPath,
    /// Source that it is a copy of.
    pub of: Of,
    /// Since anything came.
    pub age: Duration,
    /// The key of the client that sends it, at a server that knows it.
    pub by: Option<String>,
    /// Somebody is receiving it now.
    pub is_under_way: bool,
    tree: Tree,
}

impl Unfinished {
    /// Removes what came of it, unless it is under way. A copied directory and what is in it stay.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn remove(&self) -> Result<bool, Fault> {
        // Held until what came is gone: one that is under way may still be empty.
        let part = open_part(&self.tree, &self.path);
        if part.as_ref().is_some_and(|part| matches!(part.try_lock(), Err(TryLockError::WouldBlock))) {
            return Ok(false);
        }
        if matches!(note::find_part(&self.tree, &self.path), Found::Ours(_) | Found::Empty) {
            self.tree.remove(&self.path.part())?;
        }
        note::remove(&self.tree, &self.path)?;
        Ok(true)
    }
}

/// Finds the unfinished copies in a directory and beneath it, in the order of their names. What
/// cannot be looked into is told as well.
///
/// # Errors
/// When the directory cannot be opened.
pub fn unfinished(directory: &Path, emit: &mut dyn FnMut(Result<Unfinished, Fault>)) -> Result<(), Fault> {
    let tree = Tree::open(directory)?;
    tree.walk(&RelPath::ROOT, true, &mut |found| {
        match found {
            Err(fault) => emit(Err(fault)),
            Ok(entry) if entry.kind == Kind::File => {
                if let Some(found) = describe(&tree, &RelPath::found_at(&entry.path)) {
                    emit(Ok(found));
                }
            }
            Ok(_) => {}
        }
        Go::On
    })
}

fn open_part(tree: &Tree, path: &RelPath) -> Option<File> {
    tree.open_file(&path.part(), FollowSymlinks::No).ok().map(|(file, _)| file)
}

/// The unfinished copy that a file belongs to; each is told by one file only, its part or else its
/// note.
pub(super) fn describe(tree: &Tree, path: &RelPath) -> Option<Unfinished> {
    let (target, what) = path.reserved()?;
    let (of, by, is_under_way) = match (what, note::find_part(tree, &target)) {
        (Reserved::Part, Found::Ours((file, note))) => {
            let is_under_way = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
            let held = file.metadata().map_or(0, |m| m.len());
            (Of::File { held, size: note.size }, note.by, is_under_way)
        }
        (Reserved::Part, Found::Empty) => {
            let part = open_part(tree, &target);
            let is_under_way =
                part.is_some_and(|part| matches!(part.try_lock_shared(), Err(TryLockError::WouldBlock)));
            (Of::File { held: 0, size: None }, None, is_under_way)
        }
        (Reserved::Note, Found::Nothing | Found::Foreign) => match note::find(tree, &target) {
            Found::Ours(Note::Directory { .. }) => (Of::Directory, None, false),
            Found::Ours(Note::Part(note)) => (Of::File { held: 0, size: note.size }, note.by, false),
            Found::Empty => (Of::File { held: 0, size: None }, None, false),
            Found::Nothing | Found::Foreign => return None,
        },
        _ => return None,
    };
    let changed = tree.modified(path)?;
    Some(Unfinished { path: target, of, age: age(changed), by, is_under_way, tree: tree.clone() })
}

#[expect(clippy::disallowed_methods, reason = "ages of files count by the clock that they were stamped by")]
fn age(changed: SystemTime) -> Duration {
    SystemTime::now().duration_since(changed).unwrap_or_default()
}
