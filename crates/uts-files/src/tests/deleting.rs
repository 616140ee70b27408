//! Copies after which the goal has what the source has, and nothing more.

use super::*;
use message::{Kind, Reply, Request, read_frame, write_frame};
use std::os::unix::fs::symlink;
use tokio::io::AsyncReadExt;

fn deleting() -> CopyOptions {
    CopyOptions { delete: true, ..recursive() }
}

fn rig() -> Rig {
    Rig::with(ServeOptions { delete: true, hidden: true, ..ServeOptions::default() })
}

/// Makes files of their own names, and directories where names end with a slash.
fn lay(root: &Path, names: &[&str]) {
    for name in names {
        let path = root.join(name);
        fs::create_dir_all(if name.ends_with('/') { &path } else { path.parent().unwrap() }).unwrap();
        if !name.ends_with('/') {
            fs::write(path, name).unwrap();
        }
    }
}

/// The names beneath a directory.
fn names(root: &Path) -> Vec<String> {
    picture(root).into_iter().map(|line| line.split('"').nth(1).unwrap().to_owned()).skip(1).collect()
}

/// A source and a goal, by the direction of the copy.
fn ends(rig: &Rig, is_put: bool) -> (PathBuf, PathBuf) {
    if is_put { (rig.local.clone(), rig.remote.clone()) } else { (rig.remote.clone(), rig.local.clone()) }
}

async fn copy(
    rig: &Rig,
    is_put: bool,
    source: &str,
    to: &str,
    options: &CopyOptions,
) -> Result<Report, FileError> {
    match is_put {
        true => rig.put_with(&[source], to, options).await,
        false => rig.get_with(&[source], to, options).await,
    }
}

#[tokio::test]
async fn what_the_source_has_not_is_deleted_both_ways() {
    for is_put in [true, false] {
        let rig = rig();
        let (source, goal) = ends(&rig, is_put);
        lay(&source, &["s/a", "s/d/b", "s/empty/"]);
        lay(&goal, &["g/a", "g/d/old", "g/old/x/y", "g/old/z/", ".beside", "beside/x"]);
        symlink("../beside", goal.join("g/link")).unwrap();
        symlink("../../beside", goal.join("g/d/link")).unwrap();
        let report = copy(&rig, is_put, "s/.", "g", &deleting()).await.unwrap();
        assert_complete(&report);
        assert_eq!(names(&goal.join("g")), ["a", "d", "d/b", "empty"], "{is_put}");
        assert_eq!((report.deleted, report.warned), (7, 0));
        assert!(goal.join("beside/x").exists() && goal.join(".beside").exists());
        // The directories have the times of the source.
        assert_eq!(picture(&source.join("s"))[1..], picture(&goal.join("g"))[1..]);
        let again = copy(&rig, is_put, "s/.", "g", &deleting()).await.unwrap();
        assert_eq!((again.deleted, again.files_already_there, again.failed), (0, 2, 0));
    }
}

/// As with rsync, the directory that is named is searched, and nothing beside it.
#[tokio::test]
async fn only_directories_that_are_copied_are_searched() {
    for is_put in [true, false] {
        let rig = rig();
        let (source, goal) = ends(&rig, is_put);
        lay(&source, &["s/a", "f"]);
        lay(&goal, &["g/s/old", "g/other"]);
        assert_complete(&copy(&rig, is_put, "s", "g", &deleting()).await.unwrap());
        assert_eq!(names(&goal.join("g")), ["other", "s", "s/a"]);
        assert_complete(&copy(&rig, is_put, "f", "g", &deleting()).await.unwrap());
        assert_eq!(names(&goal.join("g")), ["f", "other", "s", "s/a"]);
    }
}

#[tokio::test]
async fn nothing_is_deleted_if_not_all_of_the_source_was_copied() {
    for is_put in [true, false] {
        let rig = rig();
        let (source, goal) = ends(&rig, is_put);
        lay(&source, &["s/a", "s/c/d"]);
        lay(&goal, &["g/old"]);
        // Names as those of unfinished copies cannot be copied.
        fs::write(source.join("s/c/.theirs.uts-part"), "precious").unwrap();
        let report = copy(&rig, is_put, "s/.", "g", &deleting()).await.unwrap();
        assert_eq!((report.deleted, report.failed, report.warned), (0, 1, 1), "{:?}", report.failures);
        assert!(report.warnings[0].why.contains("nothing was deleted"), "{:?}", report.warnings);
        assert_eq!(names(&goal.join("g")), ["a", "c", "c/d", "old"]);
        let dry = CopyOptions { dry_run: true, ..deleting() };
        let report = copy(&rig, is_put, "s/.", "g", &dry).await.unwrap();
        assert_eq!((report.superfluous, report.warned), (0, 1));
    }
    // One of several sources is missing.
    let rig = rig();
    lay(&rig.local, &["s/a"]);
    lay(&rig.remote, &["g/old"]);
    let report = rig.put_with(&["s/.", "missing"], "g", &deleting()).await.unwrap();
    assert_eq!((report.deleted, report.failed, report.warned), (0, 1, 1));
    assert!(rig.remote.join("g/old").exists());
}

/// Its connection breaks before all has been listed, or has arrived.
#[tokio::test]
async fn nothing_is_deleted_when_a_copy_is_cut_off() {
    for is_put in [true, false] {
        let rig = rig();
        let (source, goal) = ends(&rig, is_put);
        for i in 0..40 {
            fs::create_dir_all(source.join("s")).unwrap();
            fs::write(source.join(format!("s/{i}")), content(i, 20_000)).unwrap();
        }
        lay(&goal, &["g/old"]);
        for bytes in [0, 300, 3000, 100_000] {
            let (flows, server) = rig.connect();
            let flows = Arc::new(cut::CutFlows::new(flows, bytes));
            let outcome = if is_put {
                put(flows, &[rig.local.join("s/.")], &at("g"), &deleting()).await
            } else {
                get(flows, &[at("s/.")], &rig.local.join("g"), &deleting()).await
            };
            server.await.unwrap().unwrap();
            assert!(outcome.is_err() || outcome.is_ok_and(|report| report.broken.is_some()), "{bytes}");
            assert!(goal.join("g/old").exists(), "{is_put} {bytes}");
        }
        assert_complete(&copy(&rig, is_put, "s/.", "g", &deleting()).await.unwrap());
        assert!(!goal.join("g/old").exists());
        assert_eq!(names(&goal.join("g")).len(), 40);
    }
}

#[tokio::test]
async fn a_dry_run_tells_what_would_be_deleted() {
    for is_put in [true, false] {
        let rig = rig();
        let (source, goal) = ends(&rig, is_put);
        lay(&source, &["s/a", "s/x/inside", "s/y"]);
        lay(&goal, &["g/old/b", "g/x", "g/y/z"]);
        let before = picture(&goal);
        let dry = CopyOptions { dry_run: true, ..deleting() };
        let report = copy(&rig, is_put, "s/.", "g", &dry).await.unwrap();
        assert_complete(&report);
        assert_eq!((report.superfluous, report.files_wanted, report.deleted), (5, 3, 0));
        assert_eq!(picture(&goal), before);
        assert_complete(&copy(&rig, is_put, "s/.", "g", &deleting()).await.unwrap());
        assert_eq!(names(&goal.join("g")), ["a", "x", "x/inside", "y"]);
    }
}

/// A file became a directory, a directory a file, a link one or the other.
#[tokio::test]
async fn what_is_of_another_kind_makes_room() {
    for is_put in [true, false] {
        let rig = rig();
        let (source, goal) = ends(&rig, is_put);
        lay(&source, &["s/a/b/c", "s/f", "s/l", "s/m/n", "s/t"]);
        symlink("t", source.join("s/k")).unwrap();
        lay(&goal, &["g/a", "g/f/deep/er", "beside/n", "g/k/x"]);
        symlink("../beside/n", goal.join("g/l")).unwrap();
        symlink("../beside", goal.join("g/m")).unwrap();
        let options = CopyOptions { links: true, ..deleting() };
        let report = copy(&rig, is_put, "s/.", "g", &options).await.unwrap();
        assert_complete(&report);
        assert_eq!(picture(&source.join("s"))[1..], picture(&goal.join("g"))[1..]);
        assert_eq!(fs::read(goal.join("beside/n")).unwrap(), b"beside/n");
        // Without the option it is in the way, and told by name.
        let rig = Rig::new();
        let (source, goal) = ends(&rig, is_put);
        lay(&source, &["s/f"]);
        lay(&goal, &["g/f/deep"]);
        let report = copy(&rig, is_put, "s/.", "g", &recursive()).await.unwrap();
        assert_eq!((report.failed, report.deleted), (1, 0));
    }
}

#[tokio::test]
async fn what_is_left_out_is_not_deleted_either() {
    for is_put in [true, false] {
        let rig = rig();
        let (source, goal) = ends(&rig, is_put);
        lay(&source, &["s/a"]);
        symlink("a", source.join("s/link")).unwrap();
        lay(&goal, &["g/b.o", "g/old/c.o", "g/old/d", "g/link"]);
        let exclude = Exclude::new(&["*.o"]).unwrap();
        let options = CopyOptions { exclude, skip_special: true, ..deleting() };
        let report = copy(&rig, is_put, "s/.", "g", &options).await.unwrap();
        assert_complete(&report);
        assert_eq!(names(&goal.join("g")), ["a", "b.o", "link", "old", "old/c.o"]);
        assert_eq!(report.deleted, 1);
    }
}

/// A server that shows no hidden files says nothing of whether it has them.
#[tokio::test]
async fn hidden_files_stay_unless_the_server_shows_its_own() {
    for is_put in [true, false] {
        let rig = Rig::with(ServeOptions { delete: true, ..ServeOptions::default() });
        let (source, goal) = ends(&rig, is_put);
        lay(&source, &["s/a"]);
        lay(&goal, &["g/.git/x", "g/old/.hidden", "g/b"]);
        let report = copy(&rig, is_put, "s/.", "g", &deleting()).await.unwrap();
        assert_eq!(names(&goal.join("g")), [".git", ".git/x", "a", "old", "old/.hidden"]);
        // To the client the directory at the server is empty.
        let told: Vec<_> =
            report.failures.iter().map(|(name, error)| (&name[..], error.to_string())).collect();
        let hidden =
            "at the peer: g/old: is not empty: what is in it is hidden, under way, or has come since";
        let expected = [(&b"g/old"[..], hidden.to_owned())];
        assert_eq!(told, expected[usize::from(!is_put)..], "{is_put}");
    }
}

#[tokio::test]
async fn a_server_refuses_before_anything_is_sent() {
    for (options, why) in [
        (ServeOptions::default(), "this server lets nobody delete (it lets clients by --delete)"),
        (
            ServeOptions { read_only: true, delete: true, ..ServeOptions::default() },
            "this server takes no files (it is read-only)",
        ),
    ] {
        let rig = Rig::with(options);
        lay(&rig.local, &["s/a"]);
        lay(&rig.remote, &["g/old"]);
        for dry_run in [false, true] {
            let options = CopyOptions { dry_run, ..deleting() };
            let error = rig.put_with(&["s/."], "g", &options).await.unwrap_err();
            assert_eq!(error.to_string(), format!("at the peer: {why}"));
        }
        // A client of its own making does not ask.
        let remove = Request::Remove { entry: listed(&rig, "g/old"), goal: b"g".to_vec() };
        assert!(matches!(&answers(&rig, &[remove]).await[..], [Reply::Fault(_)]));
        assert_eq!(names(&rig.remote), ["g", "g/old"]);
        // From a server nothing is asked of it.
        lay(&rig.local, &["h/old"]);
        assert_complete(&rig.get_with(&["g/."], "h", &deleting()).await.unwrap());
        assert_eq!(names(&rig.local.join("h")), ["old"]);
    }
}

/// The entry of something at the server, as it is listed.
fn listed(rig: &Rig, path: &str) -> message::Entry {
    let tree = tree::Tree::open(&rig.remote).unwrap();
    tree.stat_link(&rel(path)).unwrap().unwrap()
}

async fn answers(rig: &Rig, requests: &[Request]) -> Vec<Reply> {
    hostile::answers(rig, hostile::wire(requests).await).await
}

#[tokio::test]
async fn no_request_removes_anything_outside_the_goal() {
    let rig = rig();
    lay(&rig.local, &["secret"]);
    lay(&rig.remote, &["g/in/f", "g/.x.uts-part", "beside/f"]);
    symlink("../beside", rig.remote.join("g/link")).unwrap();
    symlink(&rig.local, rig.remote.join("g/out")).unwrap();
    let before = (picture(&rig.remote), picture(&rig.local));
    let file = |path: &[u8]| message::Entry { path: path.to_vec(), ..listed(&rig, "beside/f") };
    let absolute = rig.local.join("secret");
    for (path, goal) in [
        (&b"beside/f"[..], &b"g"[..]),
        (b"g/../beside/f", b"g"),
        (b"../local/secret", b""),
        (absolute.as_os_str().as_encoded_bytes(), b""),
        (b"g/link/f", b"g"),
        (b"g/link/f", b""),
        (b"g/out/secret", b"g"),
        (b"g/out/secret", b"g/out"),
        (b"g/.x.uts-part", b"g"),
        (b"g", b"g"),
        (b"", b""),
        (b"g\0", b""),
        // It is another file than was listed, a directory that is not empty, of another kind.
        (b"g/in/f", b"g"),
    ] {
        let remove = Request::Remove { entry: file(path), goal: goal.to_vec() };
        let replies = answers(&rig, &[remove]).await;
        assert!(matches!(&replies[..], [Reply::Fault(_)]), "{}: {replies:?}", path::show(path));
    }
    for (path, kind) in [("g/in", Kind::Directory), ("g/in/f", Kind::Directory), ("g/link", Kind::File)] {
        let entry = message::Entry { kind, ..listed(&rig, path) };
        let replies = answers(&rig, &[Request::Remove { entry, goal: b"g".to_vec() }]).await;
        assert!(matches!(&replies[..], [Reply::Fault(_)]), "{path}: {replies:?}");
    }
    assert_eq!((picture(&rig.remote), picture(&rig.local)), before);
    // A link goes as a link, what is gone is gone, and a directory goes with what was unfinished.
    fs::remove_file(rig.remote.join("g/in/f")).unwrap();
    let link = message::Entry { kind: Kind::Link(b"../beside".to_vec()), ..listed(&rig, "g/link") };
    let all = [link, file(b"g/in/f"), listed(&rig, "g/in")];
    let requests = all.map(|entry| Request::Remove { entry, goal: b"g".to_vec() });
    assert_eq!(answers(&rig, &requests).await, [Reply::Done, Reply::Done, Reply::Done]);
    assert_eq!(fs::read(rig.remote.join("beside/f")).unwrap(), b"beside/f");
}

#[tokio::test]
async fn a_directory_goes_with_unfinished_copies_unless_they_are_under_way() {
    for is_put in [true, false] {
        let rig = rig();
        let (source, goal) = ends(&rig, is_put);
        lay(&source, &["s/"]);
        lay(&goal, &["g/old/"]);
        let tree = tree::Tree::open(&goal).unwrap();
        let about = message::Entry { path: b"g/old/f".to_vec(), size: 10, ..listed_file() };
        let terms = part::Terms::client(modes::Modes::Preserve);
        let part = part::Part::open(&tree, &rel("g/old/f"), &about, None, terms).unwrap();
        let report = copy(&rig, is_put, "s/.", "g", &deleting()).await.unwrap();
        assert_eq!((report.deleted, report.failed), (0, 1), "{:?}", report.failures);
        drop(part);
        let report = copy(&rig, is_put, "s/.", "g", &deleting()).await.unwrap();
        assert_complete(&report);
        assert_eq!((report.deleted, names(&goal.join("g")).len()), (1, 0));
    }
}

fn listed_file() -> message::Entry {
    entry(b"f", Kind::File, 0)
}

/// Each name is told once: that of a directory is not, if something in it could not go.
#[tokio::test]
async fn what_cannot_be_deleted_is_told_by_name() {
    let rig = rig();
    lay(&rig.local, &["s/"]);
    lay(&rig.remote, &["g/old/deep/", "g/b"]);
    let foreign = rig.remote.join("g/old/deep/.theirs.uts-part");
    fs::write(&foreign, "precious").unwrap();
    let report = rig.put_with(&["s/."], "g", &deleting()).await.unwrap();
    assert_eq!((report.deleted, report.failed, report.warned), (1, 0, 1), "{:?}", report.failures);
    assert_eq!(fs::read(&foreign).unwrap(), b"precious");
}

/// A listing of names that lead elsewhere, or without end, deletes nothing here.
#[tokio::test]
async fn a_hostile_server_deletes_nothing_by_a_listing_that_is_none() {
    let rig = rig();
    lay(&rig.local, &["g/mine"]);
    for (names, limit) in
        [(vec![&b"../x"[..]], u64::MAX), (vec![b"/etc/passwd"], u64::MAX), (vec![b"a", b"b", b"c"], 500)]
    {
        let (ours, theirs) = pair(100_000);
        let server = tokio::spawn(lister(theirs, names.iter().map(|name| name.to_vec()).collect()));
        let options = CopyOptions { listing_bytes_max: limit, skip_special: true, ..deleting() };
        let outcome = get(Arc::new(ours), &[at("d/.")], &rig.local.join("g"), &options).await;
        server.await.unwrap().unwrap();
        assert!(outcome.is_err() || outcome.is_ok_and(|report| !report.is_complete() && report.deleted == 0));
        assert!(rig.local.join("g/mine").exists());
    }
}

/// A server that lists devices of these names.
async fn lister(flows: MemoryFlows, names: Vec<Vec<u8>>) -> io::Result<()> {
    while let Some((mut send, mut recv)) = flows.accept().await? {
        recv.read_exact(&mut [0; 10]).await?;
        while let Some(request) = read_frame::<_, Request>(&mut recv).await? {
            match request {
                Request::Stat { path } => {
                    write_frame(&mut send, &a_directory(&path)).await?;
                }
                _ => {
                    for name in &names {
                        write_frame(&mut send, &Reply::Found(Ok(entry(name, Kind::Special, 0)))).await?;
                    }
                    write_frame(&mut send, &Reply::Done).await?;
                }
            }
        }
    }
    Ok(())
}
