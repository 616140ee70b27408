//! Copies that nothing disturbs.

use super::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

fn tree(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("a/zero"), "").unwrap();
    fs::write(root.join("a/b/block"), content(1, 700_001)).unwrap();
    fs::write(root.join("a/b/grüße 🦀"), "unicode").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"a/\xff\xfe raw")), "bytes").unwrap();
    fs::write(root.join("tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("tool"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(root.join("a/zero"), fs::Permissions::from_mode(0o400)).unwrap();
    set_mtime(&root.join("tool"), 1_000_000_000, 123_456_789);
    set_mtime(&root.join("a/b"), 1_234_567_890, 987_654_321);
    fs::set_permissions(root.join("a/b"), fs::Permissions::from_mode(0o500)).unwrap();
    set_mtime(&root.join("a"), 1, 1);
    set_mtime(root, 99, 5);
}

#[tokio::test]
async fn directories_come_over_with_modes_and_times() {
    let rig = Rig::new();
    fs::create_dir(rig.local.join("src")).unwrap();
    tree(&rig.local.join("src"));
    let report = rig.put(&["src"], "there").await.unwrap();
    assert_complete(&report);
    assert_eq!((report.files_copied, report.directories), (5, 4));
    assert_eq!(picture(&rig.local.join("src")), picture(&rig.remote.join("there")));
    let report = rig.get(&["there"], "back").await.unwrap();
    assert_complete(&report);
    assert_eq!(picture(&rig.local.join("src")), picture(&rig.local.join("back")));
    for root in ["src/a/b", "back/a/b"] {
        fs::set_permissions(rig.local.join(root), fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[tokio::test]
async fn what_is_there_already_is_not_sent_again() {
    let rig = Rig::new();
    fs::write(rig.local.join("f"), content(2, 300_000)).unwrap();
    fs::write(rig.local.join("zero"), "").unwrap();
    assert_complete(&rig.put(&["f", "zero"], "/").await.unwrap());
    fs::set_permissions(rig.remote.join("f"), fs::Permissions::from_mode(0o600)).unwrap();
    let report = rig.put(&["f", "zero"], "/").await.unwrap();
    assert_eq!((report.files_copied, report.files_already_there, report.bytes_carried), (0, 2, 0));
    assert_eq!(report.bytes, 300_000);
    set_mtime(&rig.remote, 7, 7);
    set_mtime(&rig.local, 7, 7);
    assert_eq!(picture(&rig.local), picture(&rig.remote));
    fs::set_permissions(rig.local.join("f"), fs::Permissions::from_mode(0o600)).unwrap();
    let report = rig.get(&["f", "zero"], "").await.unwrap();
    assert_complete(&report);
    assert_eq!((report.files_already_there, report.bytes_carried), (2, 0));
    assert_eq!(
        fs::metadata(rig.local.join("f")).unwrap().mode(),
        fs::metadata(rig.remote.join("f")).unwrap().mode()
    );

    // The same size and time, but other content.
    let mut other = content(2, 300_000);
    other[299_999] ^= 1;
    let mtime = fs::metadata(rig.local.join("f")).unwrap().modified().unwrap();
    fs::write(rig.remote.join("f"), &other).unwrap();
    fs::File::open(rig.remote.join("f")).unwrap().set_modified(mtime).unwrap();
    let report = rig.get(&["f"], "").await.unwrap();
    assert_eq!((report.files_copied, report.bytes_carried), (1, 300_000));
    assert_eq!(fs::read(rig.local.join("f")).unwrap(), other);
}

#[tokio::test]
async fn three_hundred_small_files() {
    let rig = Rig::new();
    fs::create_dir(rig.local.join("many")).unwrap();
    for i in 0..300 {
        fs::write(rig.local.join(format!("many/{i}")), content(i, (i * 37 % 5000) as usize)).unwrap();
    }
    let put = rig.put(&["many"], "many").await.unwrap();
    assert_complete(&put);
    assert_eq!(put.files_copied, 300);
    let get = rig.get(&["many"], "again").await.unwrap();
    assert_complete(&get);
    assert_eq!(picture(&rig.local.join("many")), picture(&rig.local.join("again")));
    assert_eq!((put.bytes, put.bytes_carried), (get.bytes, get.bytes_carried));
}

#[tokio::test]
async fn where_a_copy_goes() {
    let rig = Rig::new();
    fs::write(rig.local.join("f"), "1").unwrap();
    fs::write(rig.local.join("g"), "2").unwrap();
    fs::create_dir(rig.remote.join("dir")).unwrap();
    assert_complete(&rig.put(&["f"], "named").await.unwrap());
    assert_complete(&rig.put(&["f", "g"], "dir").await.unwrap());
    assert!(rig.remote.join("named").is_file() && rig.remote.join("dir/g").is_file());
    assert!(
        matches!(rig.put(&["f", "g"], "new").await, Err(FileError::Peer(f)) if f.kind == FaultKind::NotDirectory)
    );
    // A finished copy of a directory is copied into by the next, its content by `/.`.
    fs::create_dir(rig.local.join("d")).unwrap();
    fs::write(rig.local.join("d/x"), "x").unwrap();
    assert_complete(&rig.put(&["d"], "copy").await.unwrap());
    assert_complete(&rig.put(&["d"], "copy").await.unwrap());
    assert!(rig.remote.join("copy/x").is_file() && rig.remote.join("copy/d/x").is_file());
    assert_complete(&rig.put(&["d/."], "dir").await.unwrap());
    assert!(rig.remote.join("dir/x").is_file());
    assert_complete(&rig.get(&["copy"], "got").await.unwrap());
    assert_complete(&rig.get(&["copy"], "got").await.unwrap());
    assert!(rig.local.join("got/x").is_file() && rig.local.join("got/copy/d/x").is_file());
    let left: Vec<_> = picture(&rig.remote).into_iter().filter(|line| line.contains(".uts-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn one_file_that_fails_does_not_keep_others_from_coming() {
    let rig = Rig::new();
    fs::create_dir_all(rig.local.join("d/sub")).unwrap();
    for i in 0..20 {
        fs::write(rig.local.join(format!("d/{i}")), content(i, 3000)).unwrap();
    }
    // A directory stands where a file should go.
    fs::create_dir_all(rig.remote.join("d/7")).unwrap();
    let report = rig.put(&["d", "missing"], "/").await.unwrap();
    assert_eq!((report.files_copied, report.failures.len()), (19, 2));
    let kinds: Vec<_> = report.failures.iter().map(|(_, e)| e.fault().unwrap().kind).collect();
    assert!(kinds.contains(&FaultKind::IsDirectory) && kinds.contains(&FaultKind::NotFound), "{kinds:?}");
    fs::create_dir_all(rig.local.join("e/d/7")).unwrap();
    fs::remove_dir(rig.remote.join("d/7")).unwrap();
    fs::write(rig.remote.join("d/7"), "seven").unwrap();
    let report = rig.get(&["d"], "e").await.unwrap();
    assert_eq!((report.files_copied, report.failures.len()), (19, 1));
    assert!(report.failures[0].1.to_string().contains("is a directory"), "{:?}", report.failures);
}

#[tokio::test]
async fn links_are_left_out_unless_asked_for() {
    let rig = Rig::new();
    fs::create_dir_all(rig.local.join("d/sub")).unwrap();
    fs::write(rig.local.join("d/f"), "x").unwrap();
    std::os::unix::fs::symlink("../f", rig.local.join("d/sub/inside")).unwrap();
    std::os::unix::fs::symlink("../../secret", rig.local.join("d/sub/outside")).unwrap();
    let report = rig.put(&["d"], "without").await.unwrap();
    assert_complete(&report);
    assert_eq!((report.links, report.warnings.len()), (0, 2));
    let links = CopyOptions { links: true, ..recursive() };
    let report = rig.put_with(&["d"], "with", &links).await.unwrap();
    assert_eq!((report.links, report.failures.len()), (1, 1));
    assert_eq!(report.failures[0].1.fault().unwrap().kind, FaultKind::Unsafe);
    assert_eq!(fs::read(rig.remote.join("with/sub/inside")).unwrap(), b"x");
    assert!(fs::symlink_metadata(rig.remote.join("with/sub/outside")).is_err());
    let report = rig.get_with(&["with"], "back", &links).await.unwrap();
    assert_eq!((report.links, report.failures.len()), (1, 0));
    assert_eq!(fs::read_link(rig.local.join("back/sub/inside")).unwrap(), Path::new("../f"));
}

#[tokio::test]
async fn errors_name_path_and_cause() {
    let rig = Rig::with(ServeOptions { read_only: true, ..ServeOptions::default() });
    fs::write(rig.local.join("f"), "x").unwrap();
    fs::create_dir(rig.remote.join("d")).unwrap();
    let put = rig.put(&["f"], "f").await.unwrap();
    assert_eq!(put.failures[0].1.fault().unwrap().kind, FaultKind::ReadOnly);
    assert!(!rig.remote.join("f").exists());
    let plain = CopyOptions::default();
    for (source, to, text) in [
        ("missing", "x", "at the peer: missing: no such file or directory"),
        ("d", "x", "at the peer: d: is a directory; copy it with -r"),
    ] {
        let report = rig.get_with(&[source], to, &plain).await.unwrap();
        assert_eq!(report.failures[0].1.to_string(), text);
    }
    let error = rig.get(&["d"], "no/such/place").await.unwrap_err();
    assert!(error.to_string().ends_with("no such file or directory"), "{error}");
    assert!(rig.get(&["d"], "f/").await.unwrap_err().to_string().ends_with("f/: not a directory"));
    let long = "n".repeat(300);
    assert!(RelPath::from_user(long.as_bytes()).unwrap_err().to_string().ends_with("name too long"));
}

/// Taken by its size, it would come over empty, and both ends would agree.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_does_not_tell_its_size_is_refused() {
    let rig = Rig::new();
    let report = rig.put(&["/proc/self/status"], "status").await.unwrap();
    let text = "/proc/self/status: has more content than its size of 0 bytes; copy it to a plain file first";
    assert_eq!(report.failures[0].1.to_string(), text);
    assert!(!rig.remote.join("status").exists());
}

#[tokio::test]
async fn a_full_disk_is_named_and_the_part_kept() {
    // Every write there fails as on a full disk.
    if !Path::new("/dev/full").exists() {
        return;
    }
    let error =
        io::Write::write_all(&mut fs::OpenOptions::new().write(true).open("/dev/full").unwrap(), b"x")
            .unwrap_err();
    let fault = Fault::io(b"d/x", &error);
    assert_eq!(
        (fault.kind, fault.to_string().as_str()),
        (FaultKind::NoSpace, "d/x: no space left on the disk")
    );
}
