//! A listing for a peer, in steps: however large a directory is, and however many are in it, what
//! is held of the names is bounded.
//!
//! Of a directory those names are held that come next in order, as many as there is room for. For
//! the rest it is read again. So a directory that is larger than that costs time, and no memory.

use super::error::Fault;
use super::hidden;
use super::message::{Entry, Kind};
use super::note;
use super::path::{RelPath, is_reserved};
use super::tree::{Tree, describe};
use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Entries of a step.
const STEP_ENTRIES: usize = 256;
/// Text of the entries of a step, in bytes, after which it ends.
const STEP_BYTES: usize = 32 * 1024;
/// Bytes that a name takes besides its text.
const NAME_BYTES: usize = 64;

/// A listing under way.
pub(super) struct Walk {
    tree: Tree,
    directory: RelPath,
    top: Dir,
    is_recursive: bool,
    shows_hidden: bool,
    /// Bytes that may be held of names.
    names_bytes_max: usize,
    below_bytes: usize,
    /// The directories that lead to where it is, the outermost first.
    levels: Vec<Level>,
}

/// A directory that is listed.
#[derive(Default)]
struct Level {
    at: RelPath,
    /// Names to be told of next, and whether there are more behind them.
    names: VecDeque<OsString>,
    has_more_names: bool,
    /// The last name that was held: what is read again comes behind it.
    last: Option<OsString>,
    /// It was told of all names: now for what is in its directories.
    is_told: bool,
    /// Directories in it that come next, and whether there are more behind them.
    below: VecDeque<OsString>,
    has_more_below: bool,
    /// The directory that was gone into last.
    entered: Option<OsString>,
}

/// Result of a step.
pub(super) struct Step {
    pub(super) found: Vec<Result<Entry, Fault>>,
    pub(super) is_last: bool,
}

impl Walk {
    /// Begins to list what is in `directory`. `names_bytes_max`: what may be held of names.
    pub(super) fn begin(
        tree: Tree,
        directory: RelPath,
        (is_recursive, shows_hidden): (bool, bool),
        names_bytes_max: usize,
    ) -> Result<Walk, Fault> {
        let top = tree.open_directory(&directory).map_err(|e| Fault::io(directory.as_bytes(), &e))?;
        let levels = vec![Level { at: RelPath::ROOT, has_more_names: true, ..Level::default() }];
        let below_bytes = 0;
        Ok(Walk { tree, directory, top, is_recursive, shows_hidden, names_bytes_max, below_bytes, levels })
    }

    /// Finds some more, each directory before its content, names in order. Paths are relative to
    /// what is listed. What cannot be read is found as a fault.
    pub(super) fn step(mut self) -> (Walk, Step) {
        let (mut found, mut bytes) = (Vec::new(), 0);
        while found.len() < STEP_ENTRIES && bytes < STEP_BYTES {
            let Some(mut level) = self.levels.pop() else { break };
            if level.is_told {
                self.descend(level);
                continue;
            }
            let Some(name) = level.names.pop_front() else {
                if let Err(error) = self.read_names(&mut level) {
                    found.push(Err(Fault::io(level.at.as_bytes(), &error)));
                    continue;
                }
                level.is_told = level.names.is_empty();
                self.levels.push(level);
                continue;
            };
            if let Some(entry) = self.look(&level.at.found(name.as_bytes())) {
                if entry.as_ref().is_ok_and(|entry| entry.kind == Kind::Directory) {
                    self.keep_below(&mut level, name);
                }
                bytes += entry.as_ref().map_or_else(|fault| fault.path.len(), |entry| entry.path.len());
                found.push(entry);
            }
            self.levels.push(level);
        }
        let is_last = self.levels.is_empty();
        (self, Step { found, is_last })
    }

    /// Entry at a path; `None` if nobody is told of it.
    fn look(&self, path: &RelPath) -> Option<Result<Entry, Fault>> {
        if !self.shows_hidden && hidden::is_hidden(path.as_bytes()) {
            return None;
        }
        let found = describe(&self.top, path.clone());
        // A link that leads to what is hidden would show it.
        let is_link = matches!(found, Ok(Entry { kind: Kind::Link(_), .. }));
        if is_link && self.tree.judge(&self.directory.found(path.as_bytes())).is_err() {
            return None;
        }
        if found.is_err() || !path.name().is_some_and(is_reserved) {
            return Some(found);
        }
        let is_ours = note::is_ours(&self.tree, &self.directory.found(path.as_bytes()));
        (!is_ours).then(|| Err(note::left_out(path.as_bytes())))
    }

    fn open(&self, at: &RelPath) -> io::Result<Dir> {
        if at.is_root() { self.top.try_clone() } else { self.top.open_dir_nofollow(at.as_path()) }
    }

    /// The names in a directory that come next behind `after`, and whether there are more.
    fn names_after(&self, at: &RelPath, after: Option<&OsString>) -> io::Result<(BTreeSet<OsString>, bool)> {
        let (mut next, mut bytes, mut has_more) = (BTreeSet::new(), 0, false);
        for entry in self.open(at)?.entries()? {
            let name = entry?.file_name();
            if after.is_some_and(|after| name <= *after) {
                continue;
            }
            bytes += NAME_BYTES + name.len();
            next.insert(name);
            while bytes > self.names_bytes_max && next.len() > 1 {
                has_more = true;
                bytes -= next.pop_last().map_or(0, |name| NAME_BYTES + name.len());
            }
        }
        Ok((next, has_more))
    }

    fn read_names(&self, level: &mut Level) -> io::Result<()> {
        if level.has_more_names {
            let (names, has_more) = self.names_after(&level.at, level.last.as_ref())?;
            (level.names, level.has_more_names) = (names.into_iter().collect(), has_more);
            level.last = level.names.back().cloned();
        }
        Ok(())
    }

    /// Keeps a directory that is to be gone into, if there is room.
    fn keep_below(&mut self, level: &mut Level, name: OsString) {
        let bytes = NAME_BYTES + name.len();
        let is_full = self.below_bytes + bytes > self.names_bytes_max && !level.below.is_empty();
        if !self.is_recursive || level.has_more_below || is_full {
            level.has_more_below = self.is_recursive;
            return;
        }
        self.below_bytes += bytes;
        level.below.push_back(name);
    }

    /// Goes into the next directory of a level, or leaves the level.
    fn descend(&mut self, mut level: Level) {
        if level.below.is_empty() && level.has_more_below {
            level.has_more_below = false;
            let mut after = level.entered.clone();
            // One that cannot be read any more was read before: what it had is told of.
            while let Ok((names, has_more)) = self.names_after(&level.at, after.as_ref()) {
                after = names.last().cloned();
                for name in names {
                    let entry = self.look(&level.at.found(name.as_bytes()));
                    if entry.is_some_and(|entry| entry.is_ok_and(|entry| entry.kind == Kind::Directory)) {
                        self.keep_below(&mut level, name);
                    }
                }
                if level.has_more_below || !has_more {
                    break;
                }
            }
        }
        let Some(name) = level.below.pop_front() else { return };
        self.below_bytes -= NAME_BYTES + name.len();
        let at = level.at.found(name.as_bytes());
        level.entered = Some(name);
        self.levels.push(level);
        self.levels.push(Level { at, has_more_names: true, ..Level::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Go;
    use std::fs;
    use std::path::Path;

    fn fill(root: &Path) {
        for directory in 0..20 {
            let path = root.join(format!("d{directory}"));
            for deeper in 0..directory % 4 {
                let path = path.join(format!("deeper {deeper}"));
                fs::create_dir_all(path.join("x/y/z")).unwrap();
                fs::write(path.join("file"), "content").unwrap();
            }
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("a"), "content").unwrap();
        }
        for file in 0..300 {
            fs::write(root.join(format!("file {file}")), "content").unwrap();
        }
        fs::create_dir(root.join(".hidden")).unwrap();
        fs::write(root.join(".theirs.uts-part"), "precious").unwrap();
    }

    /// However little may be held, all is found, in the same order.
    #[test]
    fn what_is_found_does_not_depend_on_what_may_be_held() {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path());
        let tree = Tree::open(dir.path()).unwrap();
        for is_recursive in [false, true] {
            let mut expected = Vec::new();
            let listed = tree.list(&RelPath::ROOT, is_recursive, &mut |entry| {
                expected.push(entry);
                Go::On
            });
            listed.unwrap();
            assert!(expected.len() > 300);
            for names_bytes_max in [0, 200, 2_000, 1 << 20] {
                let how = (is_recursive, true);
                let mut walk = Walk::begin(tree.clone(), RelPath::ROOT, how, names_bytes_max).unwrap();
                let mut all = Vec::new();
                loop {
                    let step;
                    (walk, step) = walk.step();
                    assert!(step.found.len() <= STEP_ENTRIES);
                    assert!(walk.below_bytes <= names_bytes_max + 5 * (NAME_BYTES + 10));
                    all.extend(step.found);
                    if step.is_last {
                        break;
                    }
                }
                assert_eq!(all, expected, "{names_bytes_max}");
                assert_eq!(walk.below_bytes, 0);
            }
        }
    }

    #[test]
    fn what_is_hidden_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(".a/b")).unwrap();
        fs::create_dir_all(dir.path().join("c/.d")).unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        let walk = Walk::begin(tree, RelPath::ROOT, (true, false), 1000).unwrap();
        let (_, step) = walk.step();
        let paths: Vec<_> = step.found.into_iter().map(|entry| entry.unwrap().path).collect();
        assert_eq!(paths, [b"c"]);
    }
}
