//! Note beside an unfinished copy: `.NAME.uts-id`, which says of which source it is, and by which
//! this program knows its own files.
//!
//! A name proves nothing, for people may have files of such names. A note is ours if it begins with
//! [`MARK`]; a part is ours if the note beside it gives its inode. Both must be this user's own,
//! under one name only, and writable for nobody else. An empty file is taken for one that was just
//! made. Whatever else has such a name is somebody's, and stays as it is.

use super::error::{Fault, FaultKind};
use super::message::Mtime;
use super::path::{PATH_BYTES_MAX, RelPath, Reserved, show};
use super::tree::{Tree, is_own};
use cap_fs_ext::FollowSymlinks;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

/// Beginning of a note, and the version of what follows.
const MARK: &str = "unfinished copy, 1";
/// The longest note, in bytes: a name as a list of numbers.
const NOTE_BYTES_MAX: u64 = 8 * PATH_BYTES_MAX as u64;

/// Note beside an unfinished copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Note {
    /// Of a file.
    Part(PartNote),
    /// Of a directory: the name of its source.
    Directory {
        /// Name of the source.
        copy_of: Vec<u8>,
    },
}

/// The source of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartNote {
    /// The file that it is about.
    pub(super) inode: u64,
    /// The source's size, in bytes; `None` = a stream of unknown length.
    pub(super) size: Option<u64>,
    /// The source's time of change.
    pub(super) mtime: Mtime,
    /// The key of the client that sends it, at a server that knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Marked {
    uts: String,
    #[serde(flatten)]
    note: Note,
}

/// Finding under a name that unfinished copies use.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<T> {
    Nothing,
    /// Made just now, or before the power failed.
    Empty,
    Ours(T),
    /// Not of this program.
    Foreign,
}

impl<T> Found<T> {
    /// True if nothing has that name.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Found::Nothing)
    }
}

/// The note of the copy that becomes `target`.
pub(super) fn find(tree: &Tree, target: &RelPath) -> Found<Note> {
    let file = match open_own(tree, &target.id()) {
        Found::Ours(file) => file,
        Found::Nothing => return Found::Nothing,
        Found::Empty => return Found::Empty,
        Found::Foreign => return Found::Foreign,
    };
    let mut text = Vec::new();
    let marked = file.take(NOTE_BYTES_MAX).read_to_end(&mut text).ok();
    let marked = marked.and_then(|_| serde_json::from_slice::<Marked>(&text).ok());
    match marked {
        Some(Marked { uts, note }) if uts == MARK => Found::Ours(note),
        _ => Found::Foreign,
    }
}

/// The note of the copy that becomes `target`, if there is one.
pub(super) fn read(tree: &Tree, target: &RelPath) -> Option<Note> {
    match find(tree, target) {
        Found::Ours(note) => Some(note),
        _ => None,
    }
}

/// The part of the copy that becomes `target`, open for reading, with its note; none with an empty
/// part.
pub(super) fn find_part(tree: &Tree, target: &RelPath) -> Found<(File, PartNote)> {
    let file = match open_own(tree, &target.part()) {
        Found::Ours(file) => file,
        Found::Nothing => return Found::Nothing,
        Found::Empty => return Found::Empty,
        Found::Foreign => return Found::Foreign,
    };
    match (read(tree, target), file.metadata()) {
        (Some(Note::Part(note)), Ok(m)) if m.ino() == note.inode => Found::Ours((file, note)),
        _ => Found::Foreign,
    }
}

/// Writes the note of the copy that becomes `target`. It is short enough for one write.
pub(super) fn write(tree: &Tree, target: &RelPath, note: Note) -> Result<(), Fault> {
    let io = |why: String| Fault::new(FaultKind::Io, target.as_bytes(), why);
    let text = serde_json::to_vec(&Marked { uts: MARK.to_owned(), note }).map_err(|e| io(e.to_string()))?;
    if find(tree, target) == Found::Foreign {
        return Err(in_the_way(&target.id()));
    }
    let file = tree.open_to_write(&target.id())?;
    let written = file.set_len(0).and_then(|()| std::io::Write::write_all(&mut &file, &text));
    written.map_err(|e| Fault::io(target.id().as_bytes(), &e))
}

/// Removes the note of the copy that became `target`, if there is one.
pub(super) fn remove(tree: &Tree, target: &RelPath) -> Result<(), Fault> {
    match find(tree, target) {
        Found::Ours(_) | Found::Empty => tree.remove(&target.id()),
        Found::Nothing | Found::Foreign => Ok(()),
    }
}

/// Why the copy cannot be made: something of that name is there already.
pub(super) fn in_the_way(at: &RelPath) -> Fault {
    let why = "is in the way: the copy needs this name for itself, and what has it is no unfinished copy";
    Fault::new(FaultKind::Exists, at.as_bytes(), format!("{why}; move it elsewhere"))
}

/// True if an entry in a directory of the tree, under a reserved name, is this program's own.
pub(super) fn is_ours(tree: &Tree, path: &RelPath) -> bool {
    match path.reserved() {
        Some((target, Reserved::Note)) => matches!(find(tree, &target), Found::Ours(_) | Found::Empty),
        Some((target, Reserved::Part)) => matches!(find_part(tree, &target), Found::Ours(_) | Found::Empty),
        None => false,
    }
}

/// Why a file of somebody under a reserved name is not copied.
pub(super) fn left_out(path: &[u8]) -> Fault {
    let name = show(path.rsplit(|&b| b == b'/').next().unwrap_or_default());
    let why = format!("left out: names as {name} are for unfinished copies, and this is none; rename it");
    Fault::new(FaultKind::Unsafe, path, why)
}

/// Opens a file of this program for reading. Only by its content can be told whether it is one.
fn open_own(tree: &Tree, path: &RelPath) -> Found<File> {
    let file = match tree.open_file(path, FollowSymlinks::No) {
        Ok((file, _)) => file,
        Err(fault) if fault.kind == FaultKind::NotFound => return Found::Nothing,
        Err(_) => return Found::Foreign,
    };
    match file.metadata() {
        Ok(_) if !is_own(&file) => Found::Foreign,
        Ok(m) if m.len() == 0 => Found::Empty,
        Ok(_) => Found::Ours(file),
        Err(_) => Found::Foreign,
    }
}
