//! Superfluous things at the goal of a copy ([`CopyOptions::delete`]): they are there, and not at
//! the source.
//!
//! The source is listed whole before anything is judged. What the patterns leave out is neither
//! copied nor deleted, and what of the source is not copied, as a device, keeps its name at the
//! goal. A directory that has such a thing in it stays.
//!
//! Something of another kind under a name of the source is in the way, and superfluous as well.
//! The name of the source comes once that is gone. All else comes before anything goes.

use super::client::CopyOptions;
use super::error::{Fault, FaultKind, FileError};
use super::hidden::is_hidden;
use super::journal::Journal;
use super::message::{Entry, Kind};
use super::path::RelPath;
use std::collections::{BTreeMap, BTreeSet};

/// Kind of a name of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needed {
    File,
    Directory,
    Link,
    /// It is not copied: whatever has the name stays.
    Anything,
}

impl Needed {
    /// True if it can stand where this stands now, or take its place.
    pub(super) fn fits(self, there: &Kind) -> bool {
        match self {
            Needed::File => *there == Kind::File,
            Needed::Directory => *there == Kind::Directory,
            Needed::Link => matches!(there, Kind::Link(_) | Kind::File),
            Needed::Anything => true,
        }
    }
}

/// All that the source has, by where it goes.
#[derive(Clone, Debug, Default)]
pub(super) struct Mirror {
    names: BTreeMap<RelPath, Needed>,
    /// Paths at the goal of the directories that were named as sources.
    tops: BTreeSet<RelPath>,
    /// Hidden names at the goal stay: the source does not show its own.
    keeps_hidden: bool,
    /// All of the source has been listed.
    pub(super) is_whole: bool,
}

impl Mirror {
    pub(super) fn needs(&mut self, path: RelPath, needed: Needed) {
        self.names.insert(path, needed);
    }

    /// A directory that was named as a source goes here. `shows_hidden`: all of it is shown.
    pub(super) fn begins(&mut self, top: RelPath, shows_hidden: bool) {
        self.keeps_hidden |= !shows_hidden;
        self.needs(top.clone(), Needed::Directory);
        self.tops.insert(top);
    }

    /// True of a directory that was named as a source.
    pub(super) fn is_top(&self, path: &RelPath) -> bool {
        self.tops.contains(path)
    }

    /// The directories that are to be searched at the goal: none is in another.
    pub(super) fn searched(&self) -> impl Iterator<Item = &RelPath> {
        let is_within =
            |top: &RelPath| self.tops.iter().any(|other| other != top && top.beneath(other).is_some());
        self.tops.iter().filter(move |top| !is_within(top))
    }

    /// True if what is at a path of the goal is neither compared nor deleted.
    fn leaves(&self, path: &RelPath, is_directory: bool, options: &CopyOptions) -> bool {
        let mut inside = self.tops.iter().filter_map(|top| path.beneath(top));
        inside.any(|path| {
            options.exclude.has(path.as_bytes(), is_directory)
                || (self.keeps_hidden && is_hidden(path.as_bytes()))
        })
    }
}

/// Superfluous things at the goal, as they are found.
#[derive(Debug, Default)]
pub(super) struct Superfluous {
    /// Each directory before what is in it.
    found: Vec<Entry>,
    /// Directories that have something in them that stays.
    needed: BTreeSet<RelPath>,
    /// Names of the source under which something else stands.
    in_the_way: BTreeSet<RelPath>,
    /// Text before the paths of the tree in names for the user.
    prefix: Vec<u8>,
}

impl Superfluous {
    /// Nothing so far. `prefix`: what the user writes before the paths.
    pub(super) fn new(prefix: &[u8]) -> Superfluous {
        Superfluous { prefix: prefix.to_vec(), ..Superfluous::default() }
    }

    /// Judges what a listing of `top` at the goal says.
    pub(super) fn judge(
        &mut self,
        found: Result<Entry, Fault>,
        top: &RelPath,
        mirror: &Mirror,
        options: &CopyOptions,
        journal: &Journal,
    ) {
        let (path, entry) = match found.and_then(|entry| placed(entry, top)) {
            Ok((path, entry)) => (path, entry),
            // Its name is one of unfinished copies, and it is none.
            Err(fault) if fault.kind == FaultKind::Unsafe => {
                let path = top.found(&fault.path);
                self.stays_in(&path, top);
                return journal.warned(Fault { path: self.name_of(&path), ..fault });
            }
            Err(fault) => {
                let path = self.name_of(&top.found(&fault.path));
                return journal.failed(&path, FileError::Local(Fault { path: path.clone(), ..fault }));
            }
        };
        let needed = mirror.names.get(&path);
        if needed.is_some_and(|needed| needed.fits(&entry.kind)) {
            return;
        }
        if mirror.leaves(&path, entry.kind == Kind::Directory, options) {
            return self.stays_in(&path, top);
        }
        if needed.is_some() {
            self.in_the_way.insert(path);
        }
        self.found.push(entry);
    }

    fn name_of(&self, path: &RelPath) -> Vec<u8> {
        [&self.prefix, path.as_bytes()].concat()
    }

    /// Something stays: the directories that it is in do too.
    fn stays_in(&mut self, path: &RelPath, top: &RelPath) {
        let mut path = path.clone();
        while let Some((parent, _)) = path.split().filter(|(parent, _)| parent != top) {
            path = parent;
            if !self.needed.insert(path.clone()) {
                return;
            }
        }
    }

    /// True if a name of the source can be made only when something else is gone: it stands there,
    /// or on the way.
    pub(super) fn hinders(&self, path: &RelPath) -> bool {
        if self.in_the_way.is_empty() {
            return false;
        }
        let mut path = Some(path.clone());
        while let Some(at) = path {
            if self.in_the_way.contains(&at) {
                return true;
            }
            path = at.split().map(|(parent, _)| parent);
        }
        false
    }

    /// Things that are to go, those in a directory before the directory.
    pub(super) fn into_order(self) -> Vec<Entry> {
        let stays = |entry: &Entry| self.needed.contains(&RelPath::found_at(&entry.path));
        self.found.into_iter().rev().filter(|entry| !stays(entry)).collect()
    }
}

/// An entry with its path from the root of the tree. The path is the peer's word, if it lists.
fn placed(entry: Entry, top: &RelPath) -> Result<(RelPath, Entry), Fault> {
    let inside = RelPath::parse(&entry.path)?;
    if inside.is_root() {
        return Err(Fault::new(FaultKind::Protocol, b"", "an entry without a name"));
    }
    let path = top.join_path(&inside)?;
    let entry = Entry { path: path.as_bytes().to_vec(), ..entry };
    Ok((path, entry))
}

/// Removal under way. If something in a directory cannot be removed, the directory cannot
/// either, and that is not told again.
#[derive(Debug, Default)]
pub(super) struct Removing(BTreeSet<RelPath>);

impl Removing {
    /// Tells how removing an entry ended. `name` is what the user calls it.
    pub(super) fn ended(
        &mut self,
        entry: &Entry,
        name: &[u8],
        outcome: Result<(), FileError>,
        journal: &Journal,
    ) {
        let path = RelPath::found_at(&entry.path);
        match outcome {
            Ok(()) => journal.deleted(name, entry),
            Err(error) => {
                if !self.0.contains(&path) {
                    journal.failed(name, error.at(name));
                }
                let mut path = path;
                while let Some((parent, _)) = path.split() {
                    path = parent;
                    if !self.0.insert(path.clone()) {
                        return;
                    }
                }
            }
        }
    }
}

/// True if what is superfluous may go. It says if not.
pub(super) fn may_go(goes: &[Entry], mirror: &Mirror, journal: &Journal) -> bool {
    if goes.is_empty() || (mirror.is_whole && !journal.has_failures()) {
        return true;
    }
    let why = "nothing was deleted, because not all of the source could be read and copied";
    journal.warned(Fault::new(FaultKind::Aborted, b"", why));
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exclude::Exclude;
    use crate::message::Mtime;

    fn rel(path: &str) -> RelPath {
        RelPath::parse(path.as_bytes()).unwrap()
    }

    fn entry(path: &str, kind: Kind) -> Entry {
        Entry { path: path.into(), kind, size: 0, mtime: Mtime::default(), mode: 0o644 }
    }

    fn judged(mirror: &Mirror, options: &CopyOptions, there: &[(&str, Kind)]) -> (Vec<String>, Superfluous) {
        let journal = Journal::new(options);
        let judge = || {
            let mut superfluous = Superfluous::default();
            for (path, kind) in there {
                let found = Ok(entry(path, kind.clone()));
                superfluous.judge(found, &rel("to"), mirror, options, &journal);
            }
            superfluous
        };
        let order = judge().into_order();
        (order.into_iter().map(|entry| String::from_utf8(entry.path).unwrap()).collect(), judge())
    }

    fn mirror() -> Mirror {
        let mut mirror = Mirror::default();
        mirror.begins(rel("to"), true);
        mirror.needs(rel("to/a"), Needed::File);
        mirror.needs(rel("to/d"), Needed::Directory);
        mirror.needs(rel("to/d/b"), Needed::File);
        mirror.needs(rel("to/pipe"), Needed::Anything);
        mirror
    }

    #[test]
    fn what_the_source_has_not_goes_the_deepest_first() {
        let there = [
            ("a", Kind::File),
            ("d", Kind::Directory),
            ("old", Kind::Directory),
            ("link", Kind::Link(b"a".to_vec())),
            ("pipe", Kind::Special),
            ("d/b", Kind::File),
            ("old/in", Kind::Directory),
            ("old/in/file", Kind::File),
        ];
        let (goes, _) = judged(&mirror(), &CopyOptions::default(), &there);
        assert_eq!(goes, ["to/old/in/file", "to/old/in", "to/link", "to/old"]);
    }

    #[test]
    fn what_is_left_out_stays_with_the_directories_that_lead_to_it() {
        let exclude = Exclude::new(&["*.o", "cache/"]).unwrap();
        let options = CopyOptions { exclude, ..CopyOptions::default() };
        let there = [
            ("old", Kind::Directory),
            ("cache", Kind::Directory),
            ("old/x", Kind::Directory),
            ("old/y", Kind::File),
            ("old/x/b.o", Kind::File),
            ("cache/z", Kind::File),
        ];
        assert_eq!(judged(&mirror(), &options, &there).0, ["to/old/y"]);
    }

    #[test]
    fn hidden_names_stay_where_the_source_does_not_show_its_own() {
        let there = [(".git", Kind::Directory), ("old", Kind::File), (".git/x", Kind::File)];
        assert_eq!(judged(&mirror(), &CopyOptions::default(), &there).0, ["to/.git/x", "to/old", "to/.git"]);
        let mut mirror = mirror();
        mirror.begins(rel("to/d"), false);
        assert_eq!(judged(&mirror, &CopyOptions::default(), &there).0, ["to/old"]);
    }

    #[test]
    fn what_is_of_another_kind_is_in_the_way() {
        let there = [("a", Kind::Directory), ("d", Kind::Link(b"elsewhere".to_vec())), ("a/x", Kind::File)];
        let (goes, superfluous) = judged(&mirror(), &CopyOptions::default(), &there);
        assert_eq!(goes, ["to/a/x", "to/d", "to/a"]);
        for (path, is_hindered) in
            [("to/a", true), ("to/d", true), ("to/d/b", true), ("to/pipe", false), ("to", false)]
        {
            assert_eq!(superfluous.hinders(&rel(path)), is_hindered, "{path}");
        }
    }

    #[test]
    fn a_directory_in_another_is_not_searched_twice() {
        let mut mirror = mirror();
        mirror.begins(rel("to/d"), true);
        mirror.begins(rel("other"), true);
        assert_eq!(mirror.searched().collect::<Vec<_>>(), [&rel("other"), &rel("to")]);
    }
}
