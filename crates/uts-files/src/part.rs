//! A file while it is received: `.NAME.uts-part`, beside its [`note`].

use super::blocks::BLOCK_BYTES;
use super::claim::Claim;
use super::error::{Fault, FaultKind};
use super::hashing::hash_prefix;
use super::message::{Attributes, Entry, Hash, Held};
use super::modes::Modes;
use super::note::{self, Found, Note, PartNote};
use super::path::RelPath;
use super::sink::{Sink, not_told};
use super::sparse::hash_zeros;
use super::tree::{Tree, set_attributes};
use super::work::at_work;
use blake3::Hasher;
use cap_fs_ext::FollowSymlinks;
use std::fs::{File, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread::JoinHandle;
use tokio::sync::watch;
use uts_ledger::{Charge, Payer, Refused, Resource};

/// After this many bytes the disk is asked to take them: some tenths of a second of a fast network.
const WRITE_BEHIND_BYTES: u64 = 32 * 1024 * 1024;

/// On what terms a file is received.
#[derive(Debug)]
pub(super) struct Terms {
    /// Modes that are set.
    pub(super) modes: Modes,
    /// The key of the client that sends it, if this is a server that knows it.
    pub(super) by: Option<String>,
    /// The right to receive it, at a server.
    pub(super) claim: Option<Claim>,
    /// Payer for the threads that it takes.
    pub(super) payer: Option<Payer>,
    /// Its length is not known before it ends.
    pub(super) is_stream: bool,
    /// The file that stands where it is to go, if the sender was told of its pieces.
    pub(super) basis: Option<File>,
}

impl Terms {
    /// Those of a client, which asked for the file itself.
    pub(super) fn client(modes: Modes) -> Terms {
        Terms { modes, by: None, claim: None, payer: None, is_stream: false, basis: None }
    }
}

/// A file under its temporary name, locked.
#[derive(Debug)]
pub(super) struct Part {
    tree: Tree,
    target: RelPath,
    entry: Entry,
    /// Bytes of content; `None` = a stream.
    size: Option<u64>,
    modes: Modes,
    file: File,
    hasher: Hasher,
    written: u64,
    write_behind: WriteBehind,
    claim: Option<Claim>,
    basis: Option<File>,
}

/// Makes what was written durable while the rest arrives. The end of a long copy then waits for the
/// last part only.
#[derive(Debug, Default)]
struct WriteBehind {
    /// Bytes written since the last time.
    pending: u64,
    under_way: Option<JoinHandle<io::Result<()>>>,
    /// Payer for the thread; there is none for the user of this program.
    payer: Option<Payer>,
}

impl WriteBehind {
    /// `bytes` more were written. The error is that of an earlier part: the kernel reports it once,
    /// to the first that asks.
    fn wrote(&mut self, file: &File, bytes: u64) -> io::Result<()> {
        self.pending += bytes;
        if self.pending < WRITE_BEHIND_BYTES || self.under_way.as_ref().is_some_and(|t| !t.is_finished()) {
            return Ok(());
        }
        self.wait()?;
        let Ok(charges) = self.charges() else { return Ok(()) };
        self.pending = 0;
        let file = file.try_clone()?;
        let thread = std::thread::Builder::new().name("uts-sync".into());
        let synchronise = move || {
            let done = file.sync_data();
            drop(charges);
            done
        };
        self.under_way = Some(thread.spawn(synchronise)?);
        Ok(())
    }

    /// A thread and a descriptor. Where there are none, all is made durable at the end.
    fn charges(&self) -> Result<[Option<Charge>; 2], Refused> {
        let Some(payer) = &self.payer else { return Ok([None, None]) };
        Ok([Some(payer.charge(Resource::Threads, 1)?), Some(payer.charge(Resource::Files, 1)?)])
    }

    /// Waits until nothing is under way any more.
    fn wait(&mut self) -> io::Result<()> {
        let Some(thread) = self.under_way.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that synchronises the file died")))
    }
}

/// Part that the receiver has of a file before a copy.
#[derive(Debug, Default)]
pub(super) struct Have {
    /// A prefix, and its hash as it can be continued.
    pub(super) prefix: Option<Prefix>,
    /// If the prefix is a file as long as the source, under its final name.
    pub(super) whole: Option<Attributes>,
    /// Length of the file under the final name, in bytes; 0 = there is none.
    pub(super) there: u64,
}

impl Attributes {
    /// True if they are the attributes that `entry` would be given.
    pub(super) fn are_those_of(self, entry: &Entry, modes: Modes) -> bool {
        self.mode & 0o777 == modes.file(entry.mode) && self.mtime == entry.mtime
    }
}

/// A prefix that was hashed, and by which signs to know that it has not changed since.
#[derive(Clone, Debug)]
pub(super) struct Prefix {
    pub(super) held: Held,
    hasher: Hasher,
    stamp: Stamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Have {
    /// Looks for `entry` at `target`: a file of its length under its final name, or a part of it
    /// that comes from the client with the key `by`. A file that was changed at another time may be
    /// the same; but the part is what this copy is about.
    pub(super) async fn find(
        tree: &Tree,
        target: &RelPath,
        entry: &Entry,
        by: Option<String>,
        payer: &Payer,
    ) -> Result<Have, Fault> {
        let (tree, asked, path, wanted) = (tree.clone(), target.clone(), target, entry.clone());
        let candidate = at_work(payer, move || {
            let old = tree.check_replaceable(&asked)?;
            let there = old.as_ref().map_or(0, |old| old.size);
            let whole = find_whole(&tree, &asked, &wanted, old)?;
            if let Some((_, attributes)) = &whole
                && attributes.mtime == wanted.mtime
            {
                // What a kill between renaming and tidying up may have left.
                if note::find_part(&tree, &asked).is_nothing() {
                    note::remove(&tree, &asked)?;
                }
                return Ok((whole.map(|(file, attributes)| (file, Some(attributes))), there));
            }
            let part = find_part(&tree, &asked, &wanted, by)?.map(|part| (part, None));
            Ok((part.or(whole.map(|(file, attributes)| (file, Some(attributes)))), there))
        });
        let (candidate, there) = candidate.await?;
        let Some((file, whole)) = candidate else { return Ok(Have { there, ..Have::default() }) };
        let prefix = Prefix::read(file, path, payer).await?;
        let whole = whole.filter(|_| prefix.held.bytes == entry.size);
        Ok(Have { prefix: Some(prefix), whole, there })
    }

    /// As it is told to the peer.
    pub(super) fn held(&self) -> Option<Held> {
        self.prefix.as_ref().map(|prefix| prefix.held)
    }
}

/// The file under the final name, if it may be the same.
fn find_whole(
    tree: &Tree,
    target: &RelPath,
    entry: &Entry,
    old: Option<Entry>,
) -> Result<Option<(File, Attributes)>, Fault> {
    let Some(old) = old.filter(|old| old.size == entry.size) else { return Ok(None) };
    let attributes = Attributes { mode: old.mode, mtime: old.mtime };
    Ok(tree.open_file(target, FollowSymlinks::No).ok().map(|(file, _)| (file, attributes)))
}

/// The part of it, if there is one to go on from.
fn find_part(
    tree: &Tree,
    target: &RelPath,
    entry: &Entry,
    by: Option<String>,
) -> Result<Option<File>, Fault> {
    let file = match tree.open_file(&target.part(), FollowSymlinks::No) {
        Ok((file, _)) => Some(file),
        // What is there is judged below.
        Err(_) => None,
    };
    // Before anything of it is read: of a copy that was cut off, even the first block may still be
    // on its way to the disk.
    if file.as_ref().is_some_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))) {
        return Err(busy(target));
    }
    let note = match note::find_part(tree, target) {
        Found::Ours((_, note)) => note,
        Found::Nothing | Found::Empty => return Ok(None),
        Found::Foreign => return Err(note::in_the_way(&target.part())),
    };
    if (note.size, note.mtime, note.by) != (Some(entry.size), entry.mtime, by) {
        return Ok(None);
    }
    // Another copy has begun since.
    let Some(file) = file.filter(|file| tree.is_at(file, &target.part())) else { return Err(busy(target)) };
    let bytes = file.metadata().map_err(|e| Fault::io(target.as_bytes(), &e))?.len();
    Ok((1..=entry.size).contains(&bytes).then_some(file))
}

impl Prefix {
    async fn read(file: File, path: &RelPath, payer: &Payer) -> Result<Prefix, Fault> {
        let stamp = Stamp::of(&file, path)?;
        let (_file, hasher, bytes) = hash_prefix(file, stamp.bytes, path.as_bytes(), payer).await?;
        Ok(Prefix { held: Held { bytes, hash: hasher.finalize().into() }, hasher, stamp })
    }
}

impl Stamp {
    fn of(file: &File, path: &RelPath) -> Result<Stamp, Fault> {
        let m = file.metadata().map_err(|e| Fault::io(path.as_bytes(), &e))?;
        Ok(Stamp { inode: m.ino(), bytes: m.len(), changed: (m.ctime(), m.ctime_nsec()) })
    }
}

impl Part {
    /// Begins to receive `entry` at `target`: after `prefix`, or from the start.
    ///
    /// With a prefix that has changed since it was hashed, [`FaultKind::Changed`].
    pub(super) fn open(
        tree: &Tree,
        target: &RelPath,
        entry: &Entry,
        prefix: Option<Prefix>,
        terms: Terms,
    ) -> Result<Part, Fault> {
        let Terms { modes, by, claim, payer, is_stream, basis } = terms;
        let size = (!is_stream).then_some(entry.size);
        let fault = |e: std::io::Error| Fault::io(target.as_bytes(), &e);
        if target.is_root() {
            return Err(Fault::new(FaultKind::IsDirectory, b"/", "is a directory"));
        }
        tree.check_replaceable(target)?;
        if matches!(note::find_part(tree, target), Found::Foreign) {
            return Err(note::in_the_way(&target.part()));
        }
        let mut file = tree.open_to_write(&target.part())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(busy(target));
            }
            // A file system without locks: the claim still keeps copies of one server apart.
            Err(TryLockError::Error(_)) => {}
        }
        // The copy that had the lock until now has given the file its final name.
        if !tree.is_at(&file, &target.part()) {
            return Err(busy(target));
        }
        let (hasher, written) = match prefix {
            Some(prefix) => {
                if Stamp::of(&file, target)? != prefix.stamp {
                    return Err(Fault::new(
                        FaultKind::Changed,
                        target.as_bytes(),
                        "the unfinished copy has changed",
                    ));
                }
                file.seek(SeekFrom::End(0)).map_err(fault)?;
                (prefix.hasher, prefix.held.bytes)
            }
            None => {
                // First, so that it is never a part without its note.
                file.set_len(0).map_err(fault)?;
                (Hasher::new(), 0)
            }
        };
        let inode = file.metadata().map_err(fault)?.ino();
        note::write(tree, target, Note::Part(PartNote { inode, size, mtime: entry.mtime, by }))?;
        Ok(Part {
            tree: tree.clone(),
            target: target.clone(),
            entry: entry.clone(),
            size,
            modes,
            file,
            hasher,
            written,
            write_behind: WriteBehind { payer, ..WriteBehind::default() },
            claim,
            basis,
        })
    }

    /// Becomes true when another copy of the file takes over.
    pub(super) fn superseded(&self) -> Option<watch::Receiver<bool>> {
        self.claim.as_ref().map(Claim::superseded)
    }

    fn end_after(&mut self, bytes: u64) -> Result<u64, Fault> {
        if let Some(claim) = &self.claim {
            claim.progressed();
        }
        let end = self.written.checked_add(bytes).filter(|&end| self.size.is_none_or(|size| end <= size));
        end.ok_or_else(|| {
            let why = "more content than was announced";
            Fault::new(FaultKind::Protocol, self.target.as_bytes(), why)
        })
    }

    fn discard(&self) -> Result<(), Fault> {
        self.tree.remove(&self.target.part())?;
        note::remove(&self.tree, &self.target)
    }
}

impl Sink for Part {
    fn write(&mut self, block: &[u8]) -> Result<(), Fault> {
        let end = self.end_after(block.len() as u64)?;
        self.hasher.update(block);
        self.file.write_all(block).map_err(|e| Fault::io(self.target.as_bytes(), &e))?;
        self.written = end;
        let synchronised = self.write_behind.wrote(&self.file, block.len() as u64);
        synchronised.map_err(|e| Fault::io(self.target.as_bytes(), &e))
    }

    /// The zeros take no room on the disk, where the file system can do that.
    fn skip(&mut self, bytes: u64) -> Result<(), Fault> {
        let end = self.end_after(bytes)?;
        hash_zeros(&mut self.hasher, bytes);
        let extended = self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::Start(end)));
        extended.map_err(|e| Fault::io(self.target.as_bytes(), &e))?;
        self.written = end;
        Ok(())
    }

    fn copy(&mut self, at: u64, bytes: u32) -> Result<(), Fault> {
        let end = self.end_after(bytes.into())?;
        let basis = self.basis.as_ref().ok_or_else(|| not_told(self.target.as_bytes()))?;
        let fault = |e: io::Error| Fault::io(self.target.as_bytes(), &e);
        let mut block = vec![0; (bytes as usize).min(BLOCK_BYTES)];
        let (mut from, mut left) = (at, bytes as usize);
        while left > 0 {
            let bytes = left.min(block.len());
            let block = block.get_mut(..bytes).unwrap_or_default();
            basis.read_exact_at(block, from).map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof => {
                    let why = "content that refers to more than there is of the old file";
                    Fault::new(FaultKind::Changed, self.target.as_bytes(), why)
                }
                _ => fault(e),
            })?;
            self.hasher.update(block);
            self.file.write_all(block).map_err(fault)?;
            (from, left) = (from.saturating_add(bytes as u64), left - bytes);
        }
        self.written = end;
        self.write_behind.wrote(&self.file, bytes.into()).map_err(|e| Fault::io(self.target.as_bytes(), &e))
    }

    /// Compares with the sender's hash; then makes the content durable and gives it its final name.
    fn finish(mut self, theirs: &Hash) -> Result<Hash, Fault> {
        let path = self.target.as_bytes();
        let ours: Hash = self.hasher.finalize().into();
        if self.size.is_some_and(|size| size != self.written) || ours != *theirs {
            self.discard()?;
            let why = if ours == *theirs {
                "less content than was announced"
            } else {
                "the hashes of both ends differ"
            };
            return Err(Fault::new(FaultKind::Corrupt, path, why));
        }
        set_attributes(&self.file, &self.target, &self.entry, self.modes)?;
        self.write_behind.wait().and_then(|()| self.file.sync_all()).map_err(|e| Fault::io(path, &e))?;
        // Somebody may have put something else there since.
        self.tree.check_replaceable(&self.target)?;
        self.tree.rename(&self.target.part(), &self.target)?;
        self.tree.synchronise_parent(&self.target)?;
        note::remove(&self.tree, &self.target)?;
        Ok(ours)
    }

    /// Content that came is kept, if it can be gone on from.
    fn give_up(self) -> Result<(), Fault> {
        if self.size.is_some() { Ok(()) } else { self.discard() }
    }
}

fn busy(path: &RelPath) -> Fault {
    Fault::new(FaultKind::Busy, path.as_bytes(), "another copy of this file is under way")
}

/// The name of the source that the directory at `path` is an unfinished copy of.
pub(super) fn copy_of(tree: &Tree, path: &RelPath) -> Option<Vec<u8>> {
    match note::read(tree, path)? {
        Note::Directory { copy_of } => Some(copy_of),
        Note::Part(_) => None,
    }
}

/// Makes a directory unless there is one. If it is new and is to be a copy of the source of that
/// name, this is noted before it appears. A copy that is killed at any moment then goes on in its
/// place.
pub(super) fn make_directory(tree: &Tree, path: &RelPath, source: Option<&[u8]>) -> Result<(), Fault> {
    let noted = match source {
        Some(source) if !path.is_root() && tree.stat_link(path)?.is_none() => {
            // It was a file when its copy was broken off.
            if let Found::Ours(_) = note::find_part(tree, path) {
                tree.remove(&path.part())?;
            }
            note::write(tree, path, Note::Directory { copy_of: source.to_vec() })?;
            true
        }
        _ => false,
    };
    let made = tree.make_directory(path);
    if noted && !matches!(made, Ok(true)) {
        end_copy(tree, path)?;
    }
    made.map(|_| ())
}

/// Notes that the copy of a directory is complete.
pub(super) fn end_copy(tree: &Tree, path: &RelPath) -> Result<(), Fault> {
    match note::read(tree, path) {
        Some(Note::Directory { .. }) => note::remove(tree, path),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    /// Its first block may be on its way to the disk. If the part were taken for none, the next
    /// copy would begin anew as soon as the lock is free, and what had come would be lost.
    #[tokio::test]
    async fn a_part_that_is_locked_and_still_empty_is_under_way() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        let target = RelPath::parse(b"f").unwrap();
        let entry = Entry { size: 3, ..tree.stat(&RelPath::ROOT).unwrap().unwrap() };
        let terms = Terms::client(Modes::Preserve);
        let mut part = Part::open(&tree, &target, &entry, None, terms).unwrap();
        let payer = crate::blocks::tests::payer();
        let find = async || Have::find(&tree, &target, &entry, None, &payer).await;
        assert_eq!(find().await.unwrap_err().kind, FaultKind::Busy);
        part.write(b"ab").unwrap();
        assert_eq!(find().await.unwrap_err().kind, FaultKind::Busy);
        part.give_up().unwrap();
        assert_eq!(find().await.unwrap().held().unwrap().bytes, 2);
    }

    #[test]
    fn a_long_copy_reaches_the_disk_while_it_arrives() {
        let file = tempfile::tempfile().unwrap();
        let mut behind = WriteBehind::default();
        behind.wrote(&file, WRITE_BEHIND_BYTES - 1).unwrap();
        assert!(behind.under_way.is_none(), "too early");
        behind.wrote(&file, 1).unwrap();
        assert!(behind.under_way.is_some());
        behind.wait().unwrap();
    }

    /// The kernel reports an error of writing back once. If it were lost here, the final
    /// synchronisation would know nothing of it.
    #[test]
    fn an_error_of_an_earlier_part_is_not_lost() {
        let (_read, write) = std::io::pipe().unwrap();
        // A pipe cannot be synchronised.
        let file = File::from(OwnedFd::from(write));
        let mut behind = WriteBehind::default();
        behind.wrote(&file, WRITE_BEHIND_BYTES).unwrap();
        while !behind.under_way.as_ref().unwrap().is_finished() {
            std::thread::yield_now();
        }
        behind.wrote(&file, WRITE_BEHIND_BYTES).unwrap_err();
        behind.wrote(&file, WRITE_BEHIND_BYTES).unwrap();
        behind.wait().unwrap_err();
    }
}
