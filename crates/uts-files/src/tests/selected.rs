//! Selection of what is copied: patterns, dry runs, what is there already.

use super::*;

fn lay(root: &Path) {
    for at in ["src/a.c", "src/a.o", "src/sub/b.c", "src/sub/b.o", "src/cache/x", "src/keep/cache2"] {
        fs::create_dir_all(root.join(at).parent().unwrap()).unwrap();
        fs::write(root.join(at), at).unwrap();
    }
}

fn files(root: &Path) -> Vec<String> {
    let lines = picture(root).into_iter().filter(|line| !line.contains(" dir"));
    lines.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
}

#[tokio::test]
async fn what_is_excluded_is_not_copied_and_not_missed() {
    let exclude = Exclude::new(&["*.o", "cache/"]).unwrap();
    let options = CopyOptions { exclude, ..recursive() };
    let rig = Rig::new();
    lay(&rig.local);
    assert_complete(&rig.put_with(&["src"], "to", &options).await.unwrap());
    assert_eq!(files(&rig.remote.join("to")), ["a.c", "keep/cache2", "sub/b.c"]);
    assert!(!rig.remote.join("to/cache").exists());
    lay(&rig.remote);
    assert_complete(&rig.get_with(&["src"], "got", &options).await.unwrap());
    assert_eq!(files(&rig.local.join("got")), ["a.c", "keep/cache2", "sub/b.c"]);
    assert!(!rig.local.join("got/cache").exists());
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_tells_what_would_be() {
    let options = CopyOptions { dry_run: true, ..recursive() };
    let rig = Rig::new();
    lay(&rig.local);
    lay(&rig.remote);
    let before = (picture(&rig.local), picture(&rig.remote));
    let put = rig.put_with(&["src"], "new", &options).await.unwrap();
    let get = rig.get_with(&["src"], "new", &options).await.unwrap();
    for report in [put, get] {
        assert_complete(&report);
        assert_eq!((report.files_wanted, report.files_copied, report.files_already_there), (6, 0, 0));
        assert_eq!(report.bytes_wanted, report.bytes_wanted.max(1));
        assert_eq!((report.bytes, report.directories), (0, 0));
    }
    assert_eq!(before, (picture(&rig.local), picture(&rig.remote)));
    assert_complete(&rig.put(&["src"], "copy").await.unwrap());
    fs::write(rig.local.join("src/a.c"), "changed").unwrap();
    let report = rig.put_with(&["src/."], "copy", &options).await.unwrap();
    assert_eq!((report.files_wanted, report.files_already_there), (1, 5));
}

#[tokio::test]
async fn a_file_that_was_only_touched_is_not_sent_again() {
    let rig = Rig::new();
    fs::write(rig.local.join("f"), content(1, 500_000)).unwrap();
    assert_complete(&rig.put(&["f"], "f").await.unwrap());
    set_mtime(&rig.local.join("f"), 1000, 5);
    let report = rig.put(&["f"], "f").await.unwrap();
    assert_complete(&report);
    assert_eq!((report.files_already_there, report.bytes_carried), (1, 0));
    assert_eq!(fs::metadata(rig.remote.join("f")).unwrap().mtime(), 1000);
    set_mtime(&rig.remote.join("f"), 2000, 7);
    let report = rig.get(&["f"], "f").await.unwrap();
    assert_complete(&report);
    assert_eq!((report.files_already_there, report.bytes_carried), (1, 0));
    assert_eq!(fs::metadata(rig.local.join("f")).unwrap().mtime(), 2000);

    // The same length and another time, but other content.
    for is_put in [true, false] {
        let (source, copy) = if is_put { (&rig.local, &rig.remote) } else { (&rig.remote, &rig.local) };
        fs::write(source.join("f"), content(2 + u64::from(is_put), 500_000)).unwrap();
        let report = if is_put { rig.put(&["f"], "f").await } else { rig.get(&["f"], "f").await };
        let report = report.unwrap();
        assert_complete(&report);
        assert_eq!((report.files_copied, report.bytes_carried), (1, 500_000));
        assert_eq!(fs::read(copy.join("f")).unwrap(), fs::read(source.join("f")).unwrap());
    }
}

/// The copy goes on from the part of a newer file that is as long as an older one, though the old
/// might be the same.
#[tokio::test]
async fn a_part_counts_more_than_an_old_file_of_that_length() {
    let rig = Rig::new();
    for is_put in [true, false] {
        let (source, copy) = if is_put { (&rig.local, &rig.remote) } else { (&rig.remote, &rig.local) };
        let name = if is_put { "f" } else { "g" };
        fs::write(source.join(name), content(1, 1_000_000)).unwrap();
        fs::write(copy.join(name), content(2, 1_000_000)).unwrap();
        set_mtime(&copy.join(name), 1000, 5);
        let (flows, server) = rig.connect();
        let flows = Arc::new(cut::CutFlows::new(flows, 700_000));
        if is_put {
            put(flows, &[rig.local.join("f")], &at("f"), &recursive()).await.unwrap();
        } else {
            get(flows, &[at("g")], &rig.local.join("g"), &recursive()).await.unwrap();
        }
        server.await.unwrap().unwrap();
        let report = if is_put { rig.put(&["f"], "f").await } else { rig.get(&["g"], "g").await };
        let report = report.unwrap();
        assert_complete(&report);
        assert!(report.bytes_carried < 900_000, "{} again", report.bytes_carried);
        assert_eq!(fs::read(copy.join(name)).unwrap(), content(1, 1_000_000));
    }
}

#[tokio::test]
async fn special_files_are_left_out_without_a_word_if_asked() {
    let rig = Rig::new();
    fs::create_dir(rig.local.join("d")).unwrap();
    std::os::unix::fs::symlink("x", rig.local.join("d/link")).unwrap();
    assert_eq!(rig.put(&["d"], "a").await.unwrap().warned, 1);
    let options = CopyOptions { skip_special: true, ..recursive() };
    assert_eq!(rig.put_with(&["d"], "b", &options).await.unwrap().warned, 0);
    fs::create_dir(rig.remote.join("e")).unwrap();
    std::os::unix::fs::symlink("x", rig.remote.join("e/link")).unwrap();
    assert_eq!(rig.get(&["e"], "a").await.unwrap().warned, 1);
    assert_eq!(rig.get_with(&["e"], "b", &options).await.unwrap().warned, 0);
}

#[tokio::test]
async fn a_server_is_listed() {
    let rig = Rig::new();
    lay(&rig.remote);
    let listed = async |path: &str, recursive| {
        let (flows, server) = rig.connect();
        let mut found = Vec::new();
        let outcome = list(&flows, &at(path), recursive, &mut |entry| found.push(entry.unwrap())).await;
        drop(flows);
        server.await.unwrap().unwrap();
        outcome.map(|()| found.iter().map(|entry| path::show(&entry.path)).collect::<Vec<_>>())
    };
    assert_eq!(listed("src", false).await.unwrap(), ["a.c", "a.o", "cache", "keep", "sub"]);
    assert_eq!(listed("src", true).await.unwrap().len(), 9);
    assert_eq!(listed("src/a.c", false).await.unwrap(), ["a.c"]);
    assert!(listed("none", false).await.unwrap_err().to_string().contains("no such file"));
    assert!(listed("src/a.c/", false).await.unwrap_err().to_string().contains("not a directory"));
}
