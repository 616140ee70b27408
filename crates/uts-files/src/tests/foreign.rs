//! Files that this program has not made, under names that it uses for itself.

use super::*;

/// Everybody may have files of any name: each of these is somebody's, and none is touched.
fn lay(root: &Path) -> Vec<(PathBuf, String)> {
    let made = [
        (".w.uts-part", "my own"),
        (".w.uts-id", "{\"note\": \"mine\"}"),
        (".x.uts-part", "beside nothing"),
        (".y.uts-id", "{\"uts\":\"unfinished copy, 9\",\"directory\":{\"copy_of\":[1]}}"),
    ];
    made.iter()
        .map(|(name, text)| (root.join(name), (*text).to_owned()))
        .inspect(|(at, text)| {
            fs::write(at, text).unwrap();
            fs::set_permissions(at, fs::Permissions::from_mode(0o600)).unwrap();
        })
        .collect()
}

fn assert_untouched(laid: &[(PathBuf, String)]) {
    for (at, text) in laid {
        assert_eq!(&fs::read_to_string(at).unwrap(), text, "{at:?}");
    }
}

#[tokio::test]
async fn what_is_in_the_way_stays_and_is_named() {
    let rig = Rig::new();
    for (source, copy, is_put) in [(&rig.local, &rig.remote, true), (&rig.remote, &rig.local, false)] {
        for name in ["w", "x", "y", "z"] {
            fs::write(source.join(name), content(1, 300_000)).unwrap();
        }
        let laid = lay(copy);
        let names = ["w", "x", "y", "z"];
        let report = if is_put { rig.put(&names, "/").await } else { rig.get(&names, "").await };
        let report = report.unwrap();
        assert_untouched(&laid);
        assert_eq!((report.files_copied, report.failed), (1, 3), "{:?}", report.failures);
        for (_, error) in &report.failures {
            let fault = error.fault().unwrap();
            assert_eq!(fault.kind, FaultKind::Exists);
            assert!(fault.why.contains("in the way"), "{fault}");
        }
        // Moved elsewhere, the copy goes on.
        for (at, _) in &laid {
            fs::remove_file(at).unwrap();
        }
        let report = if is_put { rig.put(&names, "/").await } else { rig.get(&names, "").await };
        assert_complete(&report.unwrap());
        for name in names {
            fs::remove_file(copy.join(name)).unwrap();
            fs::remove_file(source.join(name)).unwrap();
        }
    }
}

#[tokio::test]
async fn what_is_not_copied_is_told_and_what_is_ours_is_not() {
    let rig = Rig::with(ServeOptions { hidden: true, ..ServeOptions::default() });
    for (source, is_put) in [(&rig.local, true), (&rig.remote, false)] {
        let top = source.join("d");
        fs::create_dir_all(&top).unwrap();
        fs::write(top.join("plain"), "x").unwrap();
        let laid = lay(&top);
        // Of copies that were cut off.
        let tree = tree::Tree::open(&top).unwrap();
        let entry = tree.stat(&rel("plain")).unwrap().unwrap();
        let entry = message::Entry { size: 100, ..entry };
        let terms = part::Terms::client(modes::Modes::Preserve);
        let mut ours = part::Part::open(&tree, &rel("cut"), &entry, None, terms).unwrap();
        sink::Sink::write(&mut ours, b"some").unwrap();
        part::make_directory(&tree, &rel("sub"), Some(b"source")).unwrap();

        let report = if is_put { rig.put(&["d"], "copy").await } else { rig.get(&["d"], "copy").await };
        let report = report.unwrap();
        assert_eq!((report.files_copied, report.failed), (1, laid.len() as u64), "{:?}", report.failures);
        for (name, error) in &report.failures {
            assert!(error.to_string().contains("left out"), "{} {error}", path::show(name));
        }
        assert_untouched(&laid);
        drop(ours);
        assert!(top.join(".cut.uts-part").exists() && top.join(".sub.uts-id").exists());
    }
}

/// A hard link, a link, and a file that others may write to. Somebody puts them there to have a
/// file overwritten, or to change what arrives.
#[tokio::test]
async fn a_trap_laid_beforehand_receives_nothing() {
    let rig = Rig::new();
    let data = content(1, 300_000);
    fs::write(rig.local.join("f"), &data).unwrap();
    fs::write(rig.remote.join("f"), &data).unwrap();
    for (root, is_put) in [(&rig.remote, true), (&rig.local, false)] {
        fs::write(root.join("victim"), "precious").unwrap();
        for name in ["part", "id"] {
            let trap = root.join(format!(".g.uts-{name}"));
            let laid: [&dyn Fn(); 2] = [&|| fs::hard_link(root.join("victim"), &trap).unwrap(), &|| {
                std::os::unix::fs::symlink("victim", &trap).unwrap()
            }];
            for lay in laid {
                lay();
                let report = if is_put { rig.put(&["f"], "g").await } else { rig.get(&["f"], "g").await };
                assert_eq!(report.unwrap().failed, 1);
                assert_eq!(fs::read(root.join("victim")).unwrap(), b"precious");
                assert!(!root.join("g").exists());
                fs::remove_file(&trap).unwrap();
                // What was made beside it is this program's own, and in nobody's way.
                let report = if is_put { rig.put(&["f"], "g").await } else { rig.get(&["f"], "g").await };
                assert_complete(&report.unwrap());
                fs::remove_file(root.join("g")).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn what_was_left_behind_is_found_and_removed() {
    let rig = Rig::new();
    let root = &rig.remote;
    fs::create_dir_all(root.join("a/b")).unwrap();
    let laid = lay(&root.join("a"));
    let tree = tree::Tree::open(root).unwrap();
    let entry = tree.stat(&rel("a")).unwrap().unwrap();
    let entry = message::Entry { size: 100, ..entry };
    let open = |at: &str| {
        let terms =
            part::Terms { by: Some("somebody".into()), ..part::Terms::client(modes::Modes::Preserve) };
        let mut part = part::Part::open(&tree, &rel(at), &entry, None, terms).unwrap();
        sink::Sink::write(&mut part, b"some").unwrap();
        part
    };
    let (running, left) = (open("a/running"), open("a/b/left"));
    drop(left);
    part::make_directory(&tree, &rel("a/new"), Some(b"source")).unwrap();
    fs::write(root.join("a/.done.uts-id"), "").unwrap();
    fs::set_permissions(root.join("a/.done.uts-id"), fs::Permissions::from_mode(0o600)).unwrap();

    let mut found = Vec::new();
    unfinished(root, &mut |one| found.push(one.unwrap())).unwrap();
    let told: Vec<_> =
        found.iter().map(|one| (path::show(one.path.as_bytes()), one.of.clone(), one.is_under_way)).collect();
    let some = Of::File { held: 4, size: Some(100) };
    assert_eq!(
        told,
        [
            ("a/done".to_owned(), Of::File { held: 0, size: None }, false),
            ("a/new".to_owned(), Of::Directory, false),
            ("a/running".to_owned(), some.clone(), true),
            ("a/b/left".to_owned(), some, false),
        ]
    );
    assert_eq!(found[3].by.as_deref(), Some("somebody"));
    for one in &found {
        assert_eq!(one.remove().unwrap(), !one.is_under_way);
    }
    drop(running);
    let mut found = Vec::new();
    unfinished(root, &mut |one| found.push(one.unwrap())).unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].remove().unwrap());
    assert_untouched(&laid);
    assert!(root.join("a/new").is_dir());
    assert_eq!(fs::read_dir(root.join("a")).unwrap().count(), laid.len() + 2);
    assert_eq!(fs::read_dir(root.join("a/b")).unwrap().count(), 0);
}

/// Whatever happens under a name while a copy to it is unfinished, its part never loses the note
/// that identifies it.
#[tokio::test]
async fn a_part_is_known_whatever_else_was_done() {
    use message::{Entry, Request};
    let rig = Rig::new();
    fs::write(rig.local.join("f"), content(1, 1000)).unwrap();
    assert_complete(&rig.put(&["f"], "f").await.unwrap());
    let tree = tree::Tree::open(&rig.remote).unwrap();
    let entry = |size| Entry { size, ..tree.stat(&rel("f")).unwrap().unwrap() };
    let cut = |name: &str, size| {
        let terms = part::Terms::client(modes::Modes::Preserve);
        let mut part = part::Part::open(&tree, &rel(name), &entry(size), None, terms).unwrap();
        sink::Sink::write(&mut part, b"some").unwrap();
    };
    // Of a newer source; then it is the old one again, which is there already.
    cut("f", 500);
    assert_eq!(rig.put(&["f"], "f").await.unwrap().files_already_there, 1);
    // Of a file; then a directory has its name.
    cut("d", 500);
    fs::create_dir(rig.local.join("d")).unwrap();
    fs::write(rig.local.join("d/x"), "x").unwrap();
    assert_complete(&rig.put(&["d"], "d").await.unwrap());
    // A client that says that a directory is complete where there is none.
    cut("f", 500);
    let (flows, server) = rig.connect();
    let mut flow = batch::Conversation::open(&flows, &blocks::tests::payer()).await.unwrap();
    flow.ask(&Request::Attributes { entry: entry(1000), complete: true }).await.unwrap();
    drop((flow, flows));
    server.await.unwrap().unwrap();
    let mut found = Vec::new();
    unfinished(&rig.remote, &mut |one| found.push(one.unwrap())).unwrap();
    let names: Vec<_> = found.iter().map(|one| path::show(one.path.as_bytes())).collect();
    assert_eq!(names, ["f"]);
    fs::write(rig.local.join("f"), content(2, 2000)).unwrap();
    assert_complete(&rig.put(&["f"], "f").await.unwrap());
}
