//! Symbolic links: after any copies, none of those that were made leads out of what is copied.

use super::*;
use std::os::unix::fs::symlink;

fn links() -> CopyOptions {
    CopyOptions { links: true, ..recursive() }
}

/// Makes the link and the directories above it.
fn link(root: &Path, at: &str, target: &str) {
    let at = root.join(at);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    symlink(target, at).unwrap();
}

/// All links beneath `top`, judged by resolving each as the kernel does, on through names that are
/// not there.
#[track_caller]
fn assert_no_link_leads_out(top: &Path, context: &str) {
    let top = top.canonicalize().unwrap();
    let mut pending = vec![top.clone()];
    while let Some(at) = pending.pop() {
        let kind = fs::symlink_metadata(&at).unwrap();
        if kind.is_dir() {
            pending.extend(fs::read_dir(&at).unwrap().map(|e| e.unwrap().path()));
        } else if kind.is_symlink() {
            let said = format!("{context}: {at:?} -> {:?}", fs::read_link(&at).unwrap());
            if let Ok(real) = at.canonicalize() {
                assert!(real.starts_with(&top), "{said} is {real:?}");
            }
            let mut steps = 0;
            let parent = at.parent().unwrap().to_path_buf();
            resolve(parent, &fs::read_link(&at).unwrap(), &top, &mut steps, &said);
        }
    }
}

/// Where `target` leads from the real directory `at`. Every directory on the way is inside `top`.
#[track_caller]
fn resolve(mut at: PathBuf, target: &Path, top: &Path, steps: &mut u32, said: &str) -> PathBuf {
    use std::path::Component as C;
    *steps += 1;
    if *steps > 40 {
        return at;
    }
    for component in target.components() {
        at = match component {
            C::Normal(name) if at.join(name).is_symlink() => {
                let next = fs::read_link(at.join(name)).unwrap();
                resolve(at, &next, top, steps, said)
            }
            C::Normal(name) => at.join(name),
            C::ParentDir => at.parent().unwrap().to_path_buf(),
            C::CurDir => at,
            C::RootDir | C::Prefix(_) => PathBuf::from("/"),
        };
        assert!(at.starts_with(top), "{said} is on its way at {at:?}");
    }
    at
}

#[tokio::test]
async fn a_link_through_a_link_does_not_lead_out() {
    let rig = Rig::new();
    let src = rig.local.join("src");
    link(&src, "a/b", "..");
    link(&src, "out", "a/b/../x");
    link(&src, "deep/er/still", "../../a/b/../../y");
    link(&src, "fine", "a/b/file");
    fs::write(src.join("file"), "x").unwrap();
    let report = rig.put_with(&["src"], "dst", &links()).await.unwrap();
    assert_eq!((report.links, report.failures.len()), (2, 2), "{:?}", report.failures);
    let kinds = report.failures.iter().map(|(_, e)| e.fault().unwrap().kind);
    assert!(kinds.into_iter().all(|kind| kind == FaultKind::Unsafe), "{:?}", report.failures);
    assert_no_link_leads_out(&rig.remote.join("dst"), "put");
    assert_eq!(fs::read(rig.remote.join("dst/fine")).unwrap(), b"x");

    symlink("a/b/../x", rig.remote.join("dst/out")).unwrap();
    let report = rig.get_with(&["dst"], "back", &links()).await.unwrap();
    assert_eq!((report.links, report.failures.len()), (2, 1), "{:?}", report.failures);
    assert_no_link_leads_out(&rig.local.join("back"), "get");
}

/// The first copy leaves a link; in the next its name is a directory, with a link in it that goes
/// up as far as the name is long, though not as the link is.
#[tokio::test]
async fn a_link_placed_through_an_older_link_does_not_lead_out() {
    let rig = Rig::new();
    let (one, two) = (rig.local.join("one"), rig.local.join("two"));
    link(&one, "a/b/up", "../..");
    link(&two, "a/b/up/in/link", "../../../../file");
    link(&two, "a/b/up/link", "../../../file");
    for (source, made) in [("one/.", 1), ("two/.", 0)] {
        let report = rig.put_with(&[source], "dst", &links()).await.unwrap();
        assert_eq!(report.links, made, "{source}: {:?}", report.failures);
        assert_no_link_leads_out(&rig.remote.join("dst"), source);
    }
}

/// A link that somebody else put there is his to keep, and no way for what is copied.
#[tokio::test]
async fn no_link_goes_through_one_that_leads_out() {
    let rig = Rig::new();
    for (dst, to) in [("dst", "../.."), ("dst", "/"), ("dst", "sub/../../missing/../..")] {
        let _ = fs::remove_dir_all(rig.remote.join(dst));
        link(&rig.remote, "dst/theirs", to);
        let src = rig.local.join("src");
        link(&src, "mine", "theirs/etc");
        link(&src, "last", "theirs");
        let report = rig.put_with(&["src/."], dst, &links()).await.unwrap();
        assert_eq!((report.links, report.failures.len()), (0, 2), "{to}: {:?}", report.failures);
        fs::remove_dir_all(&src).unwrap();
    }
}

#[tokio::test]
async fn links_that_stay_inside_are_kept_as_they_are() {
    let rig = Rig::new();
    let src = rig.local.join("src");
    let all = [
        ("lib.so", "lib.so.1"),
        ("lib.so.1", "lib.so.1.2"),
        ("lib64", "lib"),
        ("lib/up", ".."),
        ("bin/tool", "../lib64/./tool"),
        ("nowhere", "not/there/yet"),
        ("slash", "lib//"),
    ];
    for (at, target) in all {
        link(&src, at, target);
    }
    fs::write(src.join("lib/tool"), "x").unwrap();
    fs::write(src.join("lib.so.1.2"), "y").unwrap();
    let report = rig.put_with(&["src"], "dst", &links()).await.unwrap();
    assert_complete(&report);
    assert_eq!(report.links, all.len() as u64);
    for (at, target) in all {
        assert_eq!(fs::read_link(rig.remote.join("dst").join(at)).unwrap(), Path::new(target));
    }
    assert_eq!(fs::read(rig.remote.join("dst/bin/tool")).unwrap(), b"x");
    assert_eq!(fs::read(rig.remote.join("dst/lib.so")).unwrap(), b"y");
    assert_no_link_leads_out(&rig.remote.join("dst"), "put");
}

/// A tree of few names, so that copies meet each other, and of links that go anywhere.
fn random_tree(root: &Path, rng: &mut ChaCha8Rng) {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    fs::create_dir_all(root).unwrap();
    for _ in 0..rng.random_range(4..14) {
        let mut at = root.to_path_buf();
        for _ in 0..rng.random_range(0..4) {
            at.push(NAMES[rng.random_range(0..3)]);
        }
        // A name that is a file or link already: the next one fits better.
        if fs::symlink_metadata(&at).is_ok_and(|m| !m.is_dir()) || fs::create_dir_all(&at).is_err() {
            continue;
        }
        at.push(NAMES[rng.random_range(0..3)]);
        if fs::symlink_metadata(&at).is_ok() {
            continue;
        }
        if rng.random_range(0..4) == 0 {
            fs::write(&at, "x").unwrap();
            continue;
        }
        let mut target = if rng.random_range(0..12) == 0 { vec![""] } else { Vec::new() };
        for _ in 0..rng.random_range(1..6) {
            target.push(["a", "b", "c", "..", "..", "."][rng.random_range(0..6)]);
        }
        symlink(target.join("/"), &at).unwrap();
    }
}

#[tokio::test]
async fn no_copy_of_any_tree_after_any_other_leaves_a_link_that_leads_out() {
    let mut made = 0;
    for seed in 0..25 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rig = Rig::new();
        for end in ["local/dst", "remote/dst"] {
            fs::create_dir_all(rig.local.parent().unwrap().join(end).join("in/ner")).unwrap();
        }
        for round in 0..4 {
            let inner = ["dst", "dst/in/ner"][rng.random_range(0..2)];
            let sources = ["local/put", "remote/get"].map(|s| rig.local.parent().unwrap().join(s));
            for source in &sources {
                random_tree(source, &mut rng);
            }
            let context = format!("seed {seed}, round {round}, {inner}");
            let report = rig.put_with(&["put/."], inner, &links()).await.unwrap();
            made += report.links;
            let report = rig.get_with(&["get"], inner, &links()).await.unwrap();
            made += report.links;
            assert_no_link_leads_out(&rig.remote.join("dst"), &context);
            for top in ["dst/get", "dst/in/ner/get"].map(|top| rig.local.join(top)) {
                if top.exists() {
                    assert_no_link_leads_out(&top, &context);
                }
            }
            for source in &sources {
                fs::remove_dir_all(source).unwrap();
            }
        }
    }
    assert!(made > 100, "{made} links");
}
