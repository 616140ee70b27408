//! Symbolic links of a copy lead to nothing outside it, whatever else is copied before or after.
//!
//! The rule: the target of a link first goes up, by no more names than its directory is beneath the
//! top of the copy, and then only down. The kernel that resolves such a link is inside the top
//! after each step: going up it is, for the directories that it passes are real ones; going down it
//! comes to a file or directory inside, to nothing, or to a link, for which the same holds. So
//! links that keep the rule lead nowhere else together, in any order of their making.
//!
//! A link that somebody else made need not keep the rule. A new link is therefore followed when it
//! is made, and refused if a link on its way breaks the rule.

use super::error::{Fault, FaultKind};
use super::path::{PATH_BYTES_MAX, RelPath};
use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Links on the way that are followed: as many as Linux does (MAXSYMLINKS).
const FOLLOWED_MAX: usize = 40;

/// Makes a symbolic link to `target` at `path` beneath `root`, in place of any link or file of that
/// name.
///
/// # Errors
/// [`FaultKind::Unsafe`] if it leads out of `top`, or could: see the rule above. Otherwise what the
/// operating system says.
pub(super) fn make(root: &Dir, path: &RelPath, target: &[u8], top: &RelPath) -> Result<(), Fault> {
    let fault = |e: io::Error| Fault::io(path.as_bytes(), &e);
    let unsafe_ = |why: &str| Fault::new(FaultKind::Unsafe, path.as_bytes(), why);
    let below = path.beneath(top).and_then(|below| below.split().map(|(at, name)| (at, name.to_vec())));
    let (at, name) = below.ok_or_else(|| unsafe_("the link is not in what is copied"))?;
    // Where the top is may be told by way of links inside the tree; beneath it no link is followed.
    let mut place = Place::new(root.open_dir(top.as_path()).map_err(fault)?).map_err(fault)?;
    for name in at.names() {
        place.enter(name).map_err(|e| place.fault(name, path, &e))?;
    }
    let directory = place.at.try_clone().map_err(fault)?;
    place.follow(target).map_err(|refused| match refused {
        Refused::Leads(why) => unsafe_(why),
        Refused::Io(e) => fault(e),
    })?;
    let link = RelPath::ROOT.join(&name)?;
    match directory.symlink_metadata(link.as_path()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fault(e)),
        Ok(there) if there.is_dir() => {
            return Err(Fault::new(FaultKind::IsDirectory, path.as_bytes(), "is a directory"));
        }
        Ok(there) if !there.is_file() && !there.is_symlink() => {
            let why = "is a device, pipe or socket, which is not replaced";
            return Err(Fault::new(FaultKind::Exists, path.as_bytes(), why));
        }
        _ => {}
    }
    // A name that nobody has, and nobody can guess: nothing is there to be put out of the way.
    let passing = link.passing(uts::random_bytes().map_err(fault)?);
    DirExt::symlink(&directory, OsStr::from_bytes(target), passing.as_path()).map_err(fault)?;
    directory.rename(passing.as_path(), &directory, link.as_path()).map_err(|e| {
        // What it would have replaced stands; of this nothing is left.
        let _ = directory.remove_file(passing.as_path());
        fault(e)
    })
}

/// True if a path leads by way of links, or may: one that cannot be told counts as one that does.
pub(super) fn has_any(root: &Dir, path: &RelPath) -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
        use rustix::io::Errno;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match openat2(root, path.as_path(), flags, Mode::empty(), resolve) {
            // Up to where nothing is there was no link either.
            Ok(_) | Err(Errno::NOENT) => false,
            Err(_) => true,
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (root, path);
        true
    }
}

/// The names of what a path leads to, from the root down: links are followed, and what is not there
/// has the names that it would have.
pub(super) fn real_names(root: &Dir, path: &RelPath) -> Vec<Vec<u8>> {
    names_behind(root, path.as_bytes())
}

/// The same for a path as a link may have it. Where nobody can go (out of the tree, through what is
/// no directory, round and round), the rest is left as it is written: no call of the tree goes
/// there either.
pub(super) fn names_behind(root: &Dir, path: &[u8]) -> Vec<Vec<u8>> {
    let split =
        |path: &[u8]| -> Vec<Vec<u8>> { path.split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect() };
    let mut left = VecDeque::from(split(path));
    let place = root.try_clone().and_then(Place::new);
    let Ok(mut place) = place else { return left.into() };
    let mut followed = 0;
    while let Some(name) = left.pop_front() {
        match &name[..] {
            b"" | b"." => continue,
            b".." if place.leave(1).is_ok() => continue,
            _ => {}
        }
        let at = OsStr::from_bytes(&name);
        let what = place.at.symlink_metadata(at);
        let is_link = what.as_ref().is_ok_and(|what| what.is_symlink()) && followed < FOLLOWED_MAX;
        if is_link && let Ok(target) = place.at.read_link_contents(at) {
            followed += 1;
            split(target.as_os_str().as_bytes()).into_iter().rev().for_each(|name| left.push_front(name));
            continue;
        }
        if what.is_ok_and(|what| what.is_dir()) && place.enter(&name).is_ok() {
            continue;
        }
        let rest = core::iter::once(name).chain(left);
        return place.names.into_iter().chain(rest).collect();
    }
    place.names
}

/// The two parts of a target that keeps the rule: how far up, and the names down from there.
struct Target {
    up: usize,
    down: Vec<Vec<u8>>,
}

impl Target {
    fn parse(bytes: &[u8]) -> Result<Target, &'static str> {
        if bytes.is_empty() || bytes.contains(&0) || bytes.len() > PATH_BYTES_MAX {
            return Err("the target of the link is no path");
        }
        if bytes.starts_with(b"/") {
            return Err("the link leads to an absolute path, out of what is copied");
        }
        let mut target = Target { up: 0, down: Vec::new() };
        for name in bytes.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => {}
                // What the name before it is may change: it could be, or become, a link to
                // anywhere.
                b".." if !target.down.is_empty() => return Err("the link has a `..` behind a name"),
                b".." => target.up += 1,
                name => target.down.push(name.to_vec()),
            }
        }
        Ok(target)
    }
}

/// Why a link is not made.
enum Refused {
    Leads(&'static str),
    Io(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Refused::Io(error)
    }
}

/// A real directory, and the way to it from the top.
struct Place {
    top: Dir,
    at: Dir,
    names: Vec<Vec<u8>>,
}

impl Place {
    fn new(top: Dir) -> io::Result<Place> {
        Ok(Place { at: top.try_clone()?, top, names: Vec::new() })
    }

    /// Goes down into a directory that is no link.
    fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        self.at = self.at.open_dir_nofollow(OsStr::from_bytes(name))?;
        self.names.push(name.to_vec());
        Ok(())
    }

    /// Goes up, by the way that it came: two directories are open at most, however deep it is.
    fn leave(&mut self, up: usize) -> Result<(), Refused> {
        let depth = self.names.len().checked_sub(up);
        let depth = depth.ok_or(Refused::Leads("the link leads out of what is copied"))?;
        if up > 0 {
            let names = std::mem::take(&mut self.names);
            self.at = self.top.try_clone()?;
            for name in names.iter().take(depth) {
                self.enter(name)?;
            }
        }
        Ok(())
    }

    /// Follows a link from here to where it leads, or to where nothing is yet.
    fn follow(&mut self, target: &[u8]) -> Result<(), Refused> {
        let Target { up, down } = Target::parse(target).map_err(Refused::Leads)?;
        self.leave(up)?;
        let mut down = VecDeque::from(down);
        let mut followed = 0;
        while let Some(name) = down.pop_front() {
            let path = OsStr::from_bytes(&name);
            let what = match self.at.symlink_metadata(path) {
                Ok(what) => what,
                // Only names follow, and whatever is made there later keeps the rule.
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(e) => return Err(e.into()),
            };
            if what.is_dir() {
                self.enter(&name)?;
            } else if what.is_symlink() {
                followed += 1;
                if followed > FOLLOWED_MAX {
                    return Err(Refused::Leads("the link leads through too many others"));
                }
                let next = self.at.read_link_contents(path)?.into_os_string().into_vec();
                let next = Target::parse(&next).ok().filter(|next| next.up <= self.names.len());
                let next = next.ok_or(Refused::Leads(
                    "the link leads through another that may lead out of what is copied",
                ))?;
                self.leave(next.up)?;
                next.down.into_iter().rev().for_each(|name| down.push_front(name));
                // Names may be many where links have long targets: no more than the kernel would
                // take.
                if down.iter().map(|name| name.len() + 1).sum::<usize>() > PATH_BYTES_MAX {
                    return Err(Refused::Leads("the way of the link is too long"));
                }
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Why a directory on the way to a link could not be entered.
    fn fault(&self, name: &[u8], link: &RelPath, error: &io::Error) -> Fault {
        match self.at.symlink_metadata(OsStr::from_bytes(name)) {
            Ok(what) if what.is_symlink() => {
                let why = "a link stands where it needs a directory";
                Fault::new(FaultKind::Unsafe, link.as_bytes(), why)
            }
            _ => Fault::io(link.as_bytes(), error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_judged_by_where_they_lead() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("top/a")).unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        let rel = |path: &str| RelPath::parse(path.as_bytes()).unwrap();
        for (target, inside) in [
            ("b", true),
            ("../b", true),
            ("..", true),
            ("./.././/b/", true),
            ("../../b", false),
            ("/b", false),
            ("x/../b", false),
            ("a\0", false),
            ("", false),
        ] {
            let made = tree.make_link(&rel("top/a/link"), target.as_bytes(), &rel("top"));
            assert_eq!(made.is_ok(), inside, "{target}: {made:?}");
        }
        // The top itself is not in it, nor is what is beside it.
        for path in ["top", "tops/link", "other"] {
            let made = tree.make_link(&rel(path), b"x", &rel("top"));
            assert_eq!(made.unwrap_err().kind, FaultKind::Unsafe, "{path}");
        }
    }

    #[test]
    fn a_round_of_links_ends() {
        let dir = tempfile::tempdir().unwrap();
        symlink("b", dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        let made = tree.make_link(&RelPath::parse(b"c").unwrap(), b"a", &RelPath::ROOT);
        assert_eq!(made.unwrap_err().kind, FaultKind::Unsafe);
    }
}
