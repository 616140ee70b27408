//! Hidden files: those whose name begins with a dot, and all beneath such a directory. A server
//! neither shows nor takes them unless it was told to. In most homes nobody means to share them.
//! What counts is where a path leads, not how it is written.

use super::error::{Fault, FaultKind};
use super::links;
use super::message::{Kind, Request};
use super::path::{RelPath, is_reserved};
use cap_std::fs::Dir;

/// True if a path, or the target of a link, leads by way of a hidden name. `.` and `..` are none.
pub(super) fn is_hidden(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(|name| name.starts_with(b".") && name != b"." && name != b"..")
}

/// The fault for a path that is hidden.
///
/// # Errors
/// The path is hidden.
pub(super) fn check(path: &[u8]) -> Result<(), Fault> {
    if !is_hidden(path) {
        return Ok(());
    }
    let why = "hidden, and this server neither shows nor takes hidden files (it does with --hidden)";
    Err(Fault::new(FaultKind::Permission, path, why))
}

/// The same for where a path leads, by way of links or not: a link shows what it leads to, under
/// whatever name. Names of unfinished copies, which begin with a dot, are this program's own.
///
/// # Errors
/// It leads to something hidden.
pub(super) fn check_way(root: &Dir, path: &RelPath) -> Result<(), Fault> {
    let own = |name: &[u8]| path.name() == Some(name) && is_reserved(name);
    let is_shown = |name: &[u8]| !is_hidden(name) || own(name);
    if !path.names().all(is_shown) {
        return check(path.as_bytes());
    }
    if !links::has_any(root, path) {
        return Ok(());
    }
    match links::real_names(root, path).iter().all(|name| is_shown(name)) {
        true => Ok(()),
        false => Err(leads_to_hidden(path)),
    }
}

/// The same for where a link would lead that is to be made.
///
/// # Errors
/// It would lead to something hidden.
pub(super) fn check_link(root: &Dir, path: &RelPath, target: &[u8]) -> Result<(), Fault> {
    let Some((parent, _)) = path.split() else { return Ok(()) };
    let way = [parent.as_bytes(), b"/", target].concat();
    if is_hidden(target) || links::names_behind(root, &way).iter().any(|name| is_hidden(name)) {
        return Err(leads_to_hidden(path));
    }
    Ok(())
}

fn leads_to_hidden(path: &RelPath) -> Fault {
    let why = "leads to a hidden file, and this server shows none (it does with --hidden)";
    Fault::new(FaultKind::Permission, path.as_bytes(), why)
}

/// The same for the subject of a request. A link is also hidden if it leads to a hidden file,
/// because it would show the file.
///
/// # Errors
/// It is about something hidden.
pub(super) fn check_request(request: &Request) -> Result<(), Fault> {
    if let Request::MakeLink { entry, .. } = request
        && let Kind::Link(target) = &entry.kind
        && is_hidden(target)
    {
        let why = "leads to a hidden file, and this server shows none (it does with --hidden)";
        return Err(Fault::new(FaultKind::Permission, &entry.path, why));
    }
    check(request.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FaultKind;
    use crate::modes::Modes;
    use crate::tree::{Go, Source, Tree};
    use cap_fs_ext::FollowSymlinks;
    use std::os::unix::fs::symlink;

    /// Whatever way is tried, and whoever made the links.
    #[test]
    fn links_to_hidden_files_show_and_take_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at(".hid/deep")).unwrap();
        std::fs::create_dir_all(at("open/in")).unwrap();
        std::fs::write(at(".hid/deep/key"), "secret").unwrap();
        std::fs::write(at("open/plain"), "shown").unwrap();
        symlink(".hid", at("pub")).unwrap();
        symlink("pub/deep", at("by-way")).unwrap();
        symlink("../.hid/deep/key", at("open/key")).unwrap();
        symlink("../open/in/../../pub", at("open/round")).unwrap();
        symlink("open/plain", at("fine")).unwrap();
        symlink("open", at("also")).unwrap();
        let tree = Tree::open(dir.path()).unwrap().hiding();
        let rel = |path: &str| RelPath::parse(path.as_bytes()).unwrap();
        let denied = |what: &str, path: &str, kind: Option<FaultKind>| {
            assert_eq!(kind, Some(FaultKind::Permission), "{what} {path}");
        };
        for path in [
            "pub",
            "pub/deep",
            "pub/deep/key",
            "by-way",
            "by-way/key",
            "open/key",
            "open/round/deep/key",
            ".hid",
        ] {
            let path_of = rel(path);
            denied("stat", path, tree.stat(&path_of).err().map(|e| e.kind));
            denied("get", path, Source::Inside(tree.clone(), path_of.clone()).open().err().map(|e| e.kind));
            let entry = tree.stat(&rel("open")).unwrap().unwrap();
            denied(
                "attributes",
                path,
                tree.set_attributes(&path_of, &entry, Modes::Preserve).err().map(|e| e.kind),
            );
        }
        for path in ["pub", "by-way", "open/round", "open/round/deep", "also/round"] {
            denied("list", path, tree.list(&rel(path), true, &mut |_| Go::On).err().map(|e| e.kind));
            let inside = format!("{path}/new");
            let new = rel(&inside);
            denied("make", path, tree.make_directory(&new).err().map(|e| e.kind));
            denied("write", path, tree.open_to_write(&new).err().map(|e| e.kind));
            denied("write a part", path, tree.open_to_write(&new.part()).err().map(|e| e.kind));
            denied("rename", path, tree.rename(&rel("open/plain"), &new).err().map(|e| e.kind));
            denied("remove", path, tree.remove(&new).err().map(|e| e.kind));
            denied("link in", path, tree.make_link(&new, b"x", &RelPath::ROOT).err().map(|e| e.kind));
            denied(
                "link to",
                path,
                tree.make_link(&rel("new"), inside.as_bytes(), &RelPath::ROOT).err().map(|e| e.kind),
            );
            assert!(tree.open_directory(&rel(path)).is_err());
        }
        let mut shown = Vec::new();
        let mut note = |entry: Result<crate::message::Entry, Fault>| {
            shown.push(String::from_utf8(entry.unwrap().path).unwrap());
            Go::On
        };
        tree.list(&RelPath::ROOT, true, &mut note).unwrap();
        shown.retain(|path| !path.starts_with(".hid"));
        assert_eq!(shown, ["also", "fine", "open", "open/in", "open/plain"]);
        for path in ["fine", "also/plain", "open/plain"] {
            assert!(tree.open_file(&rel(path), FollowSymlinks::Yes).is_ok(), "{path}");
        }
        assert!(tree.open_to_write(&rel("also/in/new").part()).is_ok());
        assert!(tree.make_link(&rel("open/new"), b"in", &RelPath::ROOT).is_ok());
        let all = Tree::open(dir.path()).unwrap();
        assert!(all.open_file(&rel("by-way/key"), FollowSymlinks::Yes).is_ok());
        assert!(!at(".hid/new").exists() && !at(".hid/deep/new").exists());
    }

    #[test]
    fn what_begins_with_a_dot_is_hidden_and_all_beneath() {
        for hidden in [&b".x"[..], b"a/.x", b".x/a", b"a/.x/b", b"...", b"../.x", b"..x"] {
            assert!(is_hidden(hidden), "{}", hidden.escape_ascii());
        }
        for shown in [&b""[..], b"a", b"a/b.c", b"..", b"../a", b".", b"./a/.."] {
            assert!(!is_hidden(shown), "{}", shown.escape_ascii());
        }
    }
}
