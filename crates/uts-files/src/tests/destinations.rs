//! Where copies go, and what they do not replace.

use super::*;
use std::os::unix::fs::{FileTypeExt, symlink};

fn fifo(at: &Path) {
    use rustix::fs::{CWD, FileType, mknodat};
    mknodat(CWD, at, FileType::Fifo, 0o600.into(), 0).unwrap();
}

#[tokio::test]
async fn what_is_no_file_is_not_replaced() {
    let rig = Rig::new();
    for (source, copy, is_put) in [(&rig.local, &rig.remote, true), (&rig.remote, &rig.local, false)] {
        let to = copy.join("to");
        for at in [source, copy] {
            fs::create_dir_all(at.join("to")).unwrap();
        }
        for name in ["pipe", "link", "nowhere"] {
            fs::write(source.join("to").join(name), "new").unwrap();
        }
        fifo(&to.join("pipe"));
        fs::write(copy.join("old"), "old").unwrap();
        symlink("../old", to.join("link")).unwrap();
        symlink("gone", to.join("nowhere")).unwrap();
        let report = if is_put { rig.put(&["to/."], "to").await } else { rig.get(&["to"], "").await };
        let report = report.unwrap();
        assert_eq!(report.failed, 3, "{:?}", report.failures);
        assert!(report.failures.iter().all(|(_, e)| e.fault().unwrap().kind == FaultKind::Exists));
        let kind = |name: &str| fs::symlink_metadata(to.join(name)).unwrap().file_type();
        assert!(kind("pipe").is_fifo() && kind("link").is_symlink() && kind("nowhere").is_symlink());
        assert_eq!(fs::read(copy.join("old")).unwrap(), b"old");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 3, "nothing is left");
        for at in [source, copy] {
            fs::remove_dir_all(at.join("to")).unwrap();
        }
    }
}

/// As cp does: the user has named the link.
#[tokio::test]
async fn a_link_that_is_named_here_is_followed() {
    let rig = Rig::new();
    fs::write(rig.remote.join("f"), "new").unwrap();
    fs::create_dir(rig.local.join("real")).unwrap();
    fs::write(rig.local.join("real/file"), "old").unwrap();
    symlink("real/file", rig.local.join("link")).unwrap();
    symlink("real", rig.local.join("dir")).unwrap();
    symlink("gone", rig.local.join("nowhere")).unwrap();
    assert_complete(&rig.get(&["f"], "link").await.unwrap());
    assert!(fs::symlink_metadata(rig.local.join("link")).unwrap().is_symlink());
    assert_eq!(fs::read(rig.local.join("real/file")).unwrap(), b"new");
    assert_complete(&rig.get(&["f"], "dir").await.unwrap());
    assert!(rig.local.join("real/f").is_file());
    let error = rig.get(&["f"], "nowhere").await.unwrap_err();
    assert!(error.to_string().contains("leads nowhere"), "{error}");
}

#[tokio::test]
async fn no_name_is_copied_to_twice() {
    let rig = Rig::new();
    for root in [&rig.local, &rig.remote] {
        for (dir, text) in [("q1", "1"), ("q2", "2")] {
            fs::create_dir(root.join(dir)).unwrap();
            fs::write(root.join(dir).join("s"), text).unwrap();
        }
        fs::create_dir(root.join("to")).unwrap();
    }
    for sources in [&["q1/s", "q2/s"][..], &["q1/s", "q1/s"], &["q1/.", "q2/."], &["q1/s", "q2/."]] {
        let error = rig.put(sources, "to").await.unwrap_err().to_string();
        assert!(error.contains("q1/") && error.contains("nothing was copied"), "{sources:?} {error}");
        assert_eq!(fs::read_dir(rig.remote.join("to")).unwrap().count(), 0, "{sources:?}");
    }
    for sources in [&["q1/s", "q2/s"][..], &["q1/s", "q1/s"]] {
        let error = rig.get(sources, "to").await.unwrap_err().to_string();
        assert!(error.contains("q1/s") && error.contains("nothing was copied"), "{sources:?} {error}");
        assert_eq!(fs::read_dir(rig.local.join("to")).unwrap().count(), 0, "{sources:?}");
    }
}

#[tokio::test]
async fn a_slash_at_the_end_asks_for_a_directory() {
    let rig = Rig::new();
    for root in [&rig.local, &rig.remote] {
        fs::write(root.join("f"), "x").unwrap();
        fs::write(root.join("there"), "old").unwrap();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/x"), "x").unwrap();
    }
    for (source, to, words) in
        [("f", "new/", "no such directory"), ("f", "there/", "not a directory"), ("f/", "y", "directory")]
    {
        for (report, root, end) in [
            (rig.put(&[source], to).await, &rig.remote, "put"),
            (rig.get(&[source], to).await, &rig.local, "get"),
        ] {
            let error = match report {
                Ok(report) => report.failures[0].1.to_string(),
                Err(error) => error.to_string(),
            };
            assert!(error.to_lowercase().contains(words), "{end} {source} {to}: {error}");
            assert!(!root.join("new").exists() && !root.join("y").exists());
            assert_eq!(fs::read(root.join("there")).unwrap(), b"old");
        }
    }
    // As cp does, for a directory that is to be new.
    assert_complete(&rig.put(&["d"], "made/").await.unwrap());
    assert_complete(&rig.get(&["d/"], "made/").await.unwrap());
    assert!(rig.remote.join("made/x").is_file() && rig.local.join("made/x").is_file());
}

/// The reply to the last question was lost. The directory is there, and no note says that it is a
/// copy of this source.
#[tokio::test]
async fn a_copy_that_goes_on_goes_where_it_went_before() {
    let rig = Rig::new();
    for (root, other) in [(&rig.local, &rig.remote), (&rig.remote, &rig.local)] {
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/x"), "x").unwrap();
        let _ = other;
    }
    let first = rig.put(&["d"], "copy").await.unwrap();
    let again = CopyOptions { earlier: Some(Arc::new(first)), ..recursive() };
    assert_complete(&rig.put_with(&["d"], "copy", &again).await.unwrap());
    assert!(!rig.remote.join("copy/d").exists());
    let first = rig.get(&["d"], "copy").await.unwrap();
    let again = CopyOptions { earlier: Some(Arc::new(first)), ..recursive() };
    assert_complete(&rig.get_with(&["d"], "copy", &again).await.unwrap());
    assert!(!rig.local.join("copy/d").exists());
}
