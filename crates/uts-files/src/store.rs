//! Storing of files that have arrived whole: they come to stand under their names, several at once.
//!
//! The content of all files is on the disk before the first gets its name. The names are on the
//! disk before anybody is told. Nothing half-written is ever seen, and what was reported as stored
//! survives a power cut. A file is made without a name (`O_TMPFILE`) and given one when it is
//! complete. An end that is killed therefore leaves nothing behind. If a file system cannot do
//! that, or there is a part of an earlier copy, the file goes the way of a [`Part`].

use super::error::Fault;
use super::message::Hash;
use super::note::{self, Note, PartNote};
use super::part::{Part, Terms};
use super::path::RelPath;
use super::sink::Sink;
use super::small::Small;
use super::tree::{Tree, set_attributes, synchronise_names};
use super::work::at_work;
use cap_std::fs::Dir;
use rustix::fs::{Advice, AtFlags, CWD, Mode, OFlags, fadvise, linkat, openat, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError};
use uts_ledger::{Payer, Resource};

/// Stores files, on behalf of a payer; for each, its hash, or why it is not stored. Each file is
/// open until all of its group have their names: where there are few descriptors, groups are small.
pub(super) async fn store<T: Send + 'static>(
    payer: &Payer,
    mut group: Vec<(Small, T)>,
) -> Vec<(T, Result<Hash, Fault>)> {
    let mut all = Vec::with_capacity(group.len());
    while !group.is_empty() {
        let files = payer.wait(Resource::Files, 1, group.len()).await;
        let rest = group.split_off(files.amount().min(group.len()));
        let (now, about): (Vec<Small>, Vec<T>) = std::mem::replace(&mut group, rest).into_iter().unzip();
        let count = now.len();
        let stored = at_work(payer, move || {
            let stored = in_order(&now, &System::default());
            // The claims end before anybody else may begin, and only now.
            drop((now, files));
            Ok(stored)
        });
        let stored = stored.await.unwrap_or_else(|fault| vec![Err(fault); count]);
        all.extend(about.into_iter().zip(stored));
    }
    all
}

/// Requests to the operating system for a file, step by step.
trait Disk {
    /// A file that has no name yet.
    type File;

    /// Writes the content. The file may go another way than that of its group; then there is none.
    fn write(&self, small: &Small) -> Result<Option<Self::File>, Fault>;
    /// Asks the disk to begin with the content.
    fn begin(&self, file: &Self::File);
    /// Waits until content and attributes are on the disk.
    fn synchronise(&self, small: &Small, file: &Self::File) -> Result<(), Fault>;
    /// Gives the file its name.
    fn name(&self, small: &Small, file: &Self::File) -> Result<(), Fault>;
    /// Waits until the names in the directory of the file are on the disk.
    fn synchronise_directory(&self, small: &Small) -> Result<(), Fault>;
}

/// Stores a group, each step for all files before the next. A file that fails takes no further
/// steps.
fn in_order<D: Disk>(group: &[Small], disk: &D) -> Vec<Result<Hash, Fault>> {
    let mut files: Vec<_> = group.iter().map(|small| disk.write(small)).collect();
    for file in files.iter().flatten().flatten() {
        disk.begin(file);
    }
    step(&mut files, group, |small, file| disk.synchronise(small, file));
    step(&mut files, group, |small, file| disk.name(small, file));
    let mut directories = BTreeMap::new();
    for (file, small) in files.iter_mut().zip(group) {
        if !matches!(file, Ok(Some(_))) {
            continue;
        }
        let parent = small.target.split().map(|(parent, _)| parent);
        let synchronised = directories.entry(parent).or_insert_with(|| disk.synchronise_directory(small));
        if let Err(fault) = synchronised {
            *file = Err(Fault { path: small.target.as_bytes().to_vec(), ..fault.clone() });
        }
    }
    files.into_iter().zip(group).map(|(file, small)| file.map(|_| small.content.hash)).collect()
}

/// Takes a step with each file that has not failed so far.
fn step<F>(
    files: &mut [Result<Option<F>, Fault>],
    group: &[Small],
    take: impl Fn(&Small, &F) -> Result<(), Fault>,
) {
    for (file, small) in files.iter_mut().zip(group) {
        if let Ok(Some(written)) = file
            && let Err(fault) = take(small, written)
        {
            *file = Err(fault);
        }
    }
}

/// The disks of this machine.
#[derive(Default)]
struct System {
    /// Directories of the group, open.
    directories: Mutex<BTreeMap<RelPath, Arc<Dir>>>,
}

/// A file without a name, and the directory where it will have one.
struct Unnamed {
    file: File,
    directory: Arc<Dir>,
}

impl System {
    fn directory(&self, tree: &Tree, path: RelPath) -> io::Result<Arc<Dir>> {
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(directory) = directories.get(&path) {
            return Ok(directory.clone());
        }
        let directory = Arc::new(tree.open_directory(&path)?);
        directories.insert(path, directory.clone());
        Ok(directory)
    }

    /// An empty file without a name. None if that is impossible, or if something is under the names
    /// of an unfinished copy of the file.
    fn make(&self, small: &Small) -> Option<Unnamed> {
        let (parent, _) = small.target.split()?;
        let directory = self.directory(&small.tree, parent).ok()?;
        for reserved in [small.target.part(), small.target.id()] {
            let there = statat(&directory, reserved.name()?, AtFlags::SYMLINK_NOFOLLOW);
            if !matches!(there, Err(Errno::NOENT)) {
                return None;
            }
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(&directory, ".", flags, Mode::RUSR | Mode::WUSR).ok()?;
        Some(Unnamed { file: File::from(file), directory })
    }
}

impl Disk for System {
    type File = Unnamed;

    fn write(&self, small: &Small) -> Result<Option<Unnamed>, Fault> {
        let Some(unnamed) = self.make(small) else { return as_part(small).map(|()| None) };
        let fault = |e: io::Error| Fault::io(small.target.as_bytes(), &e);
        for (at, data) in small.content.data() {
            unnamed.file.write_all_at(data, at as u64).map_err(fault)?;
        }
        if small.content.ends_in_a_hole() {
            unnamed.file.set_len(small.content.bytes.len() as u64).map_err(fault)?;
        }
        set_attributes(&unnamed.file, &small.target, &small.entry, small.modes)?;
        Ok(Some(unnamed))
    }

    /// The pages are not needed any more; where they are still to be written, that is begun.
    fn begin(&self, unnamed: &Unnamed) {
        // Without it, synchronising takes longer.
        let _ = fadvise(&unnamed.file, 0, None, Advice::DontNeed);
    }

    fn synchronise(&self, small: &Small, unnamed: &Unnamed) -> Result<(), Fault> {
        unnamed.file.sync_all().map_err(|e| Fault::io(small.target.as_bytes(), &e))
    }

    fn name(&self, small: &Small, unnamed: &Unnamed) -> Result<(), Fault> {
        match unnamed.link(&small.target) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => replace(small, unnamed),
            // Without /proc there is no way from the open file to a name.
            Err(Errno::NOENT) => as_part(small),
            Err(error) => Err(Fault::io(small.target.as_bytes(), &error.into())),
        }
    }

    fn synchronise_directory(&self, small: &Small) -> Result<(), Fault> {
        let Some((parent, _)) = small.target.split() else { return Ok(()) };
        let directory = self.directory(&small.tree, parent);
        let synchronised = directory.and_then(|directory| synchronise_names(&directory));
        synchronised.map_err(|e| Fault::io(small.target.as_bytes(), &e))
    }
}

impl Unnamed {
    /// Gives the file a name in its directory, unless there is something of that name.
    fn link(&self, path: &RelPath) -> Result<(), Errno> {
        let file = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let name = path.name().unwrap_or_default();
        linkat(CWD, file, &self.directory, name, AtFlags::SYMLINK_FOLLOW)
    }
}

/// Puts the file in the place of an older one. For a moment it has another name, which no other
/// copy uses. Its note exists before that. After a kill, the note shows what it is.
fn replace(small: &Small, unnamed: &Unnamed) -> Result<(), Fault> {
    let Small { tree, target, entry, by, .. } = small;
    let fault = |e: io::Error| Fault::io(target.as_bytes(), &e);
    tree.check_replaceable(target)?;
    let aside = target.aside(uts::random_bytes().map_err(fault)?);
    let inode = unnamed.file.metadata().map_err(fault)?.ino();
    let note = PartNote { inode, size: Some(entry.size), mtime: entry.mtime, by: by.clone() };
    note::write(tree, &aside, Note::Part(note))?;
    let linked = unnamed.link(&aside.part()).map_err(|e| fault(e.into()));
    let renamed = linked.and_then(|()| tree.rename(&aside.part(), target));
    if renamed.is_err() {
        // What failed first is told.
        let _ = tree.remove(&aside.part());
    }
    note::remove(tree, &aside)?;
    renamed
}

/// Stores a file by itself, as one that came in pieces.
fn as_part(small: &Small) -> Result<(), Fault> {
    let terms = Terms {
        modes: small.modes,
        by: small.by.clone(),
        claim: None,
        payer: None,
        is_stream: false,
        basis: None,
    };
    let mut part = Part::open(&small.tree, &small.target, &small.entry, None, terms)?;
    let mut end = 0;
    for (at, data) in small.content.data() {
        part.skip((at - end) as u64).and_then(|()| part.write(data))?;
        end = at + data.len();
    }
    part.skip((small.content.bytes.len() - end) as u64)?;
    part.finish(&small.content.hash).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FaultKind;
    use crate::message::{Entry, Kind, Mtime};
    use crate::modes::Modes;
    use crate::small::Content;
    use std::cell::RefCell;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn small(root: &Path, path: &str, bytes: &[u8]) -> Small {
        let content = Content {
            bytes: bytes.to_vec(),
            data: std::iter::once(0..bytes.len()).filter(|data| !data.is_empty()).collect(),
            hash: blake3::hash(bytes).into(),
        };
        let mtime = Mtime { seconds: 1000, nanoseconds: 7 };
        Small {
            tree: Tree::open(root).unwrap(),
            target: RelPath::parse(path.as_bytes()).unwrap(),
            entry: Entry {
                path: path.into(),
                kind: Kind::File,
                size: bytes.len() as u64,
                mtime,
                mode: 0o640,
            },
            modes: Modes::Preserve,
            by: None,
            content,
            claim: None,
            memory: crate::blocks::tests::payer().charge(Resource::Memory, 1).unwrap(),
        }
    }

    /// Writes down what is asked of it, and fails where it is told to.
    #[derive(Default)]
    struct Notes {
        steps: RefCell<Vec<String>>,
        fails_at: Option<&'static str>,
    }

    impl Notes {
        fn step(&self, what: &str, path: &[u8]) -> Result<(), Fault> {
            let step = format!("{what} {}", String::from_utf8_lossy(path));
            let fails = self.fails_at == Some(&step[..]);
            self.steps.borrow_mut().push(step);
            if fails { Err(Fault::new(FaultKind::NoSpace, b"", "full")) } else { Ok(()) }
        }
    }

    impl Disk for Notes {
        type File = Vec<u8>;

        fn write(&self, small: &Small) -> Result<Option<Vec<u8>>, Fault> {
            let path = small.target.as_bytes();
            self.step("write", path).map(|()| Some(path.to_vec()))
        }

        fn begin(&self, file: &Vec<u8>) {
            self.step("begin", file).unwrap();
        }

        fn synchronise(&self, _: &Small, file: &Vec<u8>) -> Result<(), Fault> {
            self.step("synchronise", file)
        }

        fn name(&self, _: &Small, file: &Vec<u8>) -> Result<(), Fault> {
            self.step("name", file)
        }

        fn synchronise_directory(&self, small: &Small) -> Result<(), Fault> {
            self.step("directory", small.target.split().unwrap().0.as_bytes())
        }
    }

    fn group(root: &Path) -> Vec<Small> {
        ["d/a", "e/b", "d/c"].map(|path| small(root, path, path.as_bytes())).into()
    }

    #[test]
    fn content_comes_before_names_and_names_before_the_answer() {
        let root = tempfile::tempdir().unwrap();
        let disk = Notes::default();
        let stored = in_order(&group(root.path()), &disk);
        assert!(stored.iter().all(Result::is_ok));
        let steps = disk.steps.into_inner();
        let expected = [
            "write d/a",
            "write e/b",
            "write d/c",
            "begin d/a",
            "begin e/b",
            "begin d/c",
            "synchronise d/a",
            "synchronise e/b",
            "synchronise d/c",
            "name d/a",
            "name e/b",
            "name d/c",
            "directory d",
            "directory e",
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn a_file_that_fails_fails_alone_and_takes_no_further_step() {
        let root = tempfile::tempdir().unwrap();
        for (at, next) in
            [("write d/a", "synchronise d/a"), ("synchronise d/a", "name d/a"), ("name d/a", "")]
        {
            let disk = Notes { fails_at: Some(at), ..Notes::default() };
            let stored = in_order(&group(root.path()), &disk);
            let failed: Vec<_> = stored.iter().map(Result::is_err).collect();
            assert_eq!(failed, [true, false, false], "{at}");
            let steps = disk.steps.into_inner();
            assert!(!steps.iter().any(|step| step == next), "{at}: {steps:?}");
            assert!(steps.iter().any(|step| step == "directory d"), "{at}: {steps:?}");
        }
    }

    #[test]
    fn names_that_are_not_on_the_disk_are_not_told_of() {
        let root = tempfile::tempdir().unwrap();
        let disk = Notes { fails_at: Some("directory d"), ..Notes::default() };
        let stored = in_order(&group(root.path()), &disk);
        let paths = stored.iter().map(|stored| stored.as_ref().err().map(|fault| &fault.path[..]));
        assert_eq!(paths.collect::<Vec<_>>(), [Some(&b"d/a"[..]), None, Some(b"d/c")]);
        // Once for each directory, also where that fails.
        assert_eq!(disk.steps.into_inner().iter().filter(|step| *step == "directory d").count(), 1);
    }

    fn store(root: &Path, files: &[(&str, &[u8])]) -> Vec<Result<Hash, Fault>> {
        let group: Vec<_> = files.iter().map(|(path, bytes)| small(root, path, bytes)).collect();
        in_order(&group, &System::default())
    }

    fn names(root: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_stand_under_their_names_as_their_sources() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/old"), "older").unwrap();
        let files: [(&str, &[u8]); 4] = [("a", b"one"), ("d/b", b"two"), ("d/old", b"new"), ("empty", b"")];
        for (stored, (path, bytes)) in store(root, &files).into_iter().zip(files) {
            assert_eq!(stored.unwrap(), *blake3::hash(bytes).as_bytes());
            let there = fs::metadata(root.join(path)).unwrap();
            assert_eq!(fs::read(root.join(path)).unwrap(), bytes);
            assert_eq!((there.mode() & 0o7777, there.mtime(), there.mtime_nsec()), (0o640, 1000, 7));
        }
        assert_eq!(
            (names(root), names(&root.join("d"))),
            (vec!["a".into(), "d".into(), "empty".into()], vec!["b".into(), "old".into()],)
        );
    }

    /// With a part of an earlier copy, and with a file system that knows no files without names.
    #[test]
    fn a_part_of_an_earlier_copy_is_replaced_and_a_foreign_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let tree = Tree::open(root).unwrap();
        let big = Entry { size: 100, ..small(root, "ours", b"").entry };
        let target = RelPath::parse(b"ours").unwrap();
        let terms = Terms::client(Modes::Preserve);
        drop(Part::open(&tree, &target, &big, None, terms).unwrap());
        fs::write(root.join(".theirs.uts-part"), "precious").unwrap();
        let stored = store(root, &[("ours", b"new"), ("theirs", b"new"), ("plain", b"new")]);
        let kinds: Vec<_> =
            stored.iter().map(|stored| stored.as_ref().err().map(|fault| fault.kind)).collect();
        assert_eq!(kinds, [None, Some(FaultKind::Exists), None]);
        assert_eq!(names(root), [".theirs.uts-part", "ours", "plain"]);
        assert_eq!(fs::read(root.join(".theirs.uts-part")).unwrap(), b"precious");
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("directory")).unwrap();
        std::os::unix::fs::symlink("elsewhere", root.join("link")).unwrap();
        let stored = store(root, &[("directory", b"x"), ("link", b"x"), ("missing/x", b"x"), ("", b"x")]);
        let kinds: Vec<_> = stored.iter().map(|stored| stored.as_ref().unwrap_err().kind).collect();
        let expected =
            [FaultKind::IsDirectory, FaultKind::Exists, FaultKind::NotFound, FaultKind::IsDirectory];
        assert_eq!(kinds, expected);
        assert_eq!(names(root), ["directory", "link"]);
    }

    #[test]
    fn holes_are_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let bytes = [&[0; 20_000][..], &[1; 4096], &[0; 20_000]].concat();
        let mut sparse = small(root, "sparse", &bytes);
        sparse.content.data = std::iter::once(20_000..24_096).collect();
        in_order(std::slice::from_ref(&sparse), &System::default()).remove(0).unwrap();
        let there = fs::metadata(root.join("sparse")).unwrap();
        assert_eq!(fs::read(root.join("sparse")).unwrap(), bytes);
        assert_eq!(there.permissions().mode() & 0o777, 0o640);
        assert!(there.blocks() * 512 < 20_000, "{} blocks", there.blocks());
        // The same, where the file goes the way of a part.
        sparse.target = RelPath::parse(b"other").unwrap();
        as_part(&sparse).unwrap();
        assert_eq!(fs::read(root.join("other")).unwrap(), bytes);
    }
}
