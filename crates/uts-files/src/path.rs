//! Paths inside a shared tree: bytes as Unix has them, checked before anything is done with them.

use super::error::{Fault, FaultKind};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The longest path, in bytes (PATH_MAX of Linux).
pub const PATH_BYTES_MAX: usize = 4096;
/// The longest name in a directory, in bytes (NAME_MAX of Linux).
pub const NAME_BYTES_MAX: usize = 255;

const PART_SUFFIX: &[u8] = b".uts-part";
const ID_SUFFIX: &[u8] = b".uts-id";
/// Bytes that are left of a name in the names beside it: there is room for a dot, 17 characters
/// that make it unique, and the longest suffix.
const STEM_BYTES_MAX: usize = NAME_BYTES_MAX - 1 - 17 - PART_SUFFIX.len();

/// Meaning of a name that unfinished copies use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserved {
    /// The content that is there so far.
    Part,
    /// The note beside it.
    Note,
}

/// A path relative to the root of a tree that cannot, by its text, lead outside it: no leading `/`,
/// no empty, `.` or `..` component, no NUL. The empty path is the root. The tree takes care of
/// symbolic links, and follows none that leads outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// The root of the tree.
    pub const ROOT: RelPath = RelPath(Vec::new());

    /// Checks a path that came from the peer.
    ///
    /// # Errors
    /// [`FaultKind::Unsafe`] or [`FaultKind::NameTooLong`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let refuse = |why: &str| Err(Fault::new(FaultKind::Unsafe, bytes, why));
        if bytes.is_empty() {
            return Ok(RelPath::ROOT);
        }
        if bytes.len() > PATH_BYTES_MAX {
            let head = bytes.get(..64).unwrap_or(bytes);
            return Err(Fault::new(
                FaultKind::NameTooLong,
                head,
                format!("path longer than {PATH_BYTES_MAX} bytes"),
            ));
        }
        if bytes.starts_with(b"/") {
            return refuse("absolute paths are refused");
        }
        if bytes.contains(&0) {
            return refuse("the path contains a NUL");
        }
        for name in bytes.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => return refuse("the path has an empty component or `.`"),
                b".." => return refuse("the path contains `..`"),
                _ if name.len() > NAME_BYTES_MAX => {
                    return Err(Fault::new(FaultKind::NameTooLong, bytes, "name too long"));
                }
                _ if is_reserved(name) => return refuse("names of unfinished copies are reserved"),
                _ => {}
            }
        }
        Ok(RelPath(bytes.to_vec()))
    }

    /// The path that a person wrote. A leading `/` means the root of the tree, `//` and `.` mean
    /// nothing.
    ///
    /// # Errors
    /// As [`RelPath::parse`], so for `..`.
    pub fn from_user(bytes: &[u8]) -> Result<Self, Fault> {
        let names: Vec<&[u8]> = bytes.split(|&b| b == b'/').filter(|n| !n.is_empty() && *n != b".").collect();
        RelPath::parse(&names.join(&b'/'))
    }

    /// This path and one more name.
    ///
    /// # Errors
    /// As [`RelPath::parse`]; also if `name` is empty or contains a `/`.
    pub fn join(&self, name: &[u8]) -> Result<Self, Fault> {
        if name.is_empty() || name.contains(&b'/') {
            return Err(Fault::new(FaultKind::Unsafe, name, "not a name"));
        }
        self.join_path(&RelPath::parse(name)?)
    }

    /// This path followed by another.
    ///
    /// # Errors
    /// [`FaultKind::NameTooLong`].
    pub fn join_path(&self, other: &RelPath) -> Result<Self, Fault> {
        match (self.0.is_empty(), other.0.is_empty()) {
            (true, _) => Ok(other.clone()),
            (_, true) => Ok(self.clone()),
            _ => RelPath::parse(&[&self.0[..], b"/", &other.0[..]].concat()),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// True if it is the root of the tree.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// For calls of the operating system: `.` for the root.
    pub fn as_path(&self) -> &Path {
        if self.0.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(&self.0)) }
    }

    /// The directory that it is in, and its name there; `None` for the root.
    pub fn split(&self) -> Option<(RelPath, &[u8])> {
        if self.0.is_empty() {
            return None;
        }
        Some(match self.0.iter().rposition(|&b| b == b'/') {
            Some(at) => (RelPath(self.0[..at].to_vec()), &self.0[at + 1..]),
            None => (RelPath::ROOT, &self.0[..]),
        })
    }

    /// The last name; `None` for the root.
    pub fn name(&self) -> Option<&[u8]> {
        self.split().map(|(_, name)| name)
    }

    /// Its names, from the root down.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|name| !name.is_empty())
    }

    /// The way from `top` to it; `None` if it is not beneath.
    pub(super) fn beneath(&self, top: &RelPath) -> Option<RelPath> {
        if top.is_root() {
            return Some(self.clone());
        }
        let below = self.0.strip_prefix(&top.0[..])?;
        if below.is_empty() {
            Some(RelPath::ROOT)
        } else {
            below.strip_prefix(b"/").map(|b| RelPath(b.to_vec()))
        }
    }

    /// The name that the file is received under.
    pub(super) fn part(&self) -> RelPath {
        self.beside(PART_SUFFIX)
    }

    /// The name of the note that says what the part is a part of.
    pub(super) fn id(&self) -> RelPath {
        self.beside(ID_SUFFIX)
    }

    /// A name in this directory as it was found there, which no peer may name.
    pub(super) fn found(&self, name: &[u8]) -> RelPath {
        if self.is_root() { RelPath(name.to_vec()) } else { RelPath([&self.0[..], b"/", name].concat()) }
    }

    /// A path as it was found, which no peer may name.
    pub(super) fn found_at(path: &[u8]) -> RelPath {
        RelPath(path.to_vec())
    }

    /// A name for a moment, before something gets its own.
    pub(super) fn passing(&self, random: [u8; 8]) -> RelPath {
        self.beside(&[format!(".{:016x}", u64::from_le_bytes(random)).as_bytes(), PART_SUFFIX].concat())
    }

    /// A name beside this one that no other copy has. For a moment, a file that takes the place of
    /// another one has a name made with it.
    pub(super) fn aside(&self, random: [u8; 8]) -> RelPath {
        let passing = self.passing(random);
        passing.reserved().map_or(passing, |(aside, _)| aside)
    }

    /// If the name is one that unfinished copies use: what the copy is to become, and what this is
    /// of it. A long name has been shortened, and stays so.
    pub(super) fn reserved(&self) -> Option<(RelPath, Reserved)> {
        let (parent, name) = self.split()?;
        let stem = name.strip_prefix(b".")?;
        let (stem, what) = match (stem.strip_suffix(PART_SUFFIX), stem.strip_suffix(ID_SUFFIX)) {
            (Some(stem), _) => (stem, Reserved::Part),
            (None, Some(stem)) => (stem, Reserved::Note),
            (None, None) => return None,
        };
        let target = if parent.is_root() { stem.to_vec() } else { [&parent.0[..], b"/", stem].concat() };
        Some((RelPath(target), what))
    }

    fn beside(&self, suffix: &[u8]) -> RelPath {
        let Some((parent, name)) = self.split() else { return RelPath(suffix.to_vec()) };
        let room = STEM_BYTES_MAX;
        let shortened = if name.len() <= room {
            name.to_vec()
        } else {
            // Cut at a character boundary for file systems that take UTF-8 only. The hash keeps
            // names apart.
            let hash = blake3::hash(name).to_hex();
            let mut cut = room - 17;
            while cut > 0 && name.get(cut).is_some_and(|byte| byte & 0xC0 == 0x80) {
                cut -= 1;
            }
            [&name[..cut], b"~", &hash.as_bytes()[..16]].concat()
        };
        let name = [b".", &shortened[..], suffix].concat();
        if parent.is_root() { RelPath(name) } else { RelPath([&parent.0[..], b"/", &name].concat()) }
    }
}

/// A path at a server as a person wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerPath {
    /// The path.
    pub path: RelPath,
    /// It was written with a `/` at its end: a directory is meant.
    pub is_directory: bool,
    /// It was written with `/.` at its end: what is in the directory is meant, without its name.
    pub is_content: bool,
}

impl ServerPath {
    /// Reads it: see [`RelPath::from_user`].
    ///
    /// # Errors
    /// As [`RelPath::from_user`].
    pub fn from_user(bytes: &[u8]) -> Result<Self, Fault> {
        let path = RelPath::from_user(bytes)?;
        let is_directory = bytes.ends_with(b"/") || bytes.ends_with(b"/.") || bytes == b".";
        let is_content = bytes.ends_with(b"/.") || bytes == b".";
        Ok(ServerPath { path, is_directory, is_content })
    }

    /// The name that a copy of it gets in a directory; `None` for what has none, or none that
    /// counts.
    pub(super) fn name(&self) -> Option<&[u8]> {
        self.path.name().filter(|_| !self.is_content)
    }
}

impl From<RelPath> for ServerPath {
    fn from(path: RelPath) -> Self {
        ServerPath { path, ..ServerPath::default() }
    }
}

/// True if a name is one that unfinished copies use.
pub(super) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(b".") && (name.ends_with(PART_SUFFIX) || name.ends_with(ID_SUFFIX))
}

/// Bytes for people: UTF-8 as it is, the rest and everything that could steer a terminal escaped.
pub fn show(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Control characters, and those that turn the direction of text.
            if c.is_control()
                || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            {
                text.extend(c.escape_unicode());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_that_could_leave_the_tree_are_refused() {
        let long = vec![b'a'; NAME_BYTES_MAX + 1];
        for bad in [
            &b"/etc/passwd"[..],
            b"..",
            b"a/..",
            b"../a",
            b"a/../b",
            b"a//b",
            b"a/",
            b"./a",
            b"a/.",
            b"a\0b",
            b".x.uts-part",
            b"d/.x.uts-id",
            &long,
            &[b"a/".repeat(3000), b"a".to_vec()].concat(),
        ] {
            assert!(RelPath::parse(bad).is_err(), "{} passed", show(bad));
        }
        for good in [
            &b""[..],
            b"a",
            b"a/b",
            b"...",
            b"..a",
            b"a..",
            b"\xff\xfe",
            b".x",
            b"x.uts-part",
            "ü/ñ".as_bytes(),
        ] {
            assert!(RelPath::parse(good).is_ok(), "{} refused", show(good));
        }
    }

    #[test]
    fn what_people_write_is_read_from_the_root() {
        for (text, path) in [("/a//b/", "a/b"), ("", ""), ("/", ""), ("./a/./b", "a/b")] {
            assert_eq!(RelPath::from_user(text.as_bytes()).unwrap().as_bytes(), path.as_bytes());
        }
        assert!(RelPath::from_user(b"/a/../../b").is_err());
    }

    #[test]
    fn a_slash_at_the_end_means_a_directory() {
        for (text, is_directory) in [("a", false), ("a/", true), ("/a//", true), ("a/.", true), ("", false)] {
            assert_eq!(ServerPath::from_user(text.as_bytes()).unwrap().is_directory, is_directory, "{text}");
        }
    }

    #[test]
    fn names_beside_a_name_lead_back_to_it() {
        for name in [&b"f"[..], b"d/f", &[b'x'; 255]] {
            let path = RelPath::parse(name).unwrap();
            let (of_part, of_note) = (path.part().reserved().unwrap(), path.id().reserved().unwrap());
            assert_eq!((of_part.1, of_note.1), (Reserved::Part, Reserved::Note));
            assert_eq!(of_part.0, of_note.0);
            assert_eq!((of_part.0.part(), of_part.0.id()), (path.part(), path.id()));
            assert!(path.passing([255; 8]).name().unwrap().len() <= NAME_BYTES_MAX);
        }
        for other in ["f", ".f", "f.uts-part", ".f.uts-other"] {
            assert!(RelPath(other.into()).reserved().is_none(), "{other}");
        }
    }

    #[test]
    fn names_of_parts_fit_and_differ() {
        let a = RelPath::parse(&[b'x'; 255]).unwrap();
        let mut other = [b'x'; 255];
        other[254] = b'y';
        let b = RelPath::parse(&other).unwrap();
        assert!(a.part().as_bytes().len() <= NAME_BYTES_MAX && a.id().as_bytes().len() <= NAME_BYTES_MAX);
        assert_ne!(a.part(), b.part());
        assert!(is_reserved(a.part().as_bytes()) && is_reserved(a.id().as_bytes()));
        let umlauts = RelPath::parse("ü".repeat(125).as_bytes()).unwrap().part();
        assert!(std::str::from_utf8(umlauts.as_bytes()).is_ok());
        assert_eq!(RelPath::parse(b"d/e").unwrap().part().as_bytes(), b"d/.e.uts-part");
    }

    #[test]
    fn nothing_shown_steers_a_terminal() {
        assert_eq!(show(b"a\x1b[2Jb\n\xff"), "a\\u{1b}[2Jb\\u{a}\\xff");
    }

    proptest! {
        #[test]
        fn a_checked_path_has_only_plain_components(bytes in proptest::collection::vec(prop_oneof![Just(b'/'), Just(b'.'), any::<u8>()], 0..40)) {
            if let Ok(path) = RelPath::parse(&bytes) {
                let plain = path.as_path().components().all(|c| matches!(c, std::path::Component::Normal(_) | std::path::Component::CurDir));
                prop_assert!(plain);
                prop_assert!(path.as_path().is_relative());
            }
        }
    }
}
