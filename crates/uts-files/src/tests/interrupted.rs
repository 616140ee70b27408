//! Copies that are cut off and begun again.

use super::cut::CutFlows;
use super::*;

/// Copies over a connection that ends after this many bytes; the report if anything was begun.
async fn put_cut(rig: &Rig, sources: &[&str], to: &str, after_bytes: usize) -> Option<Report> {
    let (flows, server) = rig.connect();
    let sources: Vec<PathBuf> = sources.iter().map(|s| rig.local.join(s)).collect();
    let report = put(Arc::new(CutFlows::new(flows, after_bytes)), &sources, &at(to), &recursive()).await.ok();
    server.await.unwrap().unwrap();
    report
}

async fn get_cut(rig: &Rig, sources: &[&str], to: &str, after_bytes: usize) -> Option<Report> {
    let (flows, server) = rig.connect();
    let sources: Vec<ServerPath> = sources.iter().map(|s| at(s)).collect();
    let report =
        get(Arc::new(CutFlows::new(flows, after_bytes)), &sources, &rig.local.join(to), &recursive())
            .await
            .ok();
    server.await.unwrap().unwrap();
    report
}

/// No file under a final name differs from the source's.
fn assert_nothing_half_written(source: &Path, copy: &Path) {
    if !copy.exists() {
        return;
    }
    for entry in fs::read_dir(copy).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        if name.to_str().unwrap().contains(".uts-") {
            continue;
        }
        if entry.path().is_dir() {
            assert_nothing_half_written(&source.join(&name), &entry.path());
        } else {
            assert_eq!(fs::read(entry.path()).unwrap(), fs::read(source.join(&name)).unwrap(), "{name:?}");
        }
    }
}

#[tokio::test]
async fn a_file_goes_on_from_where_it_was_cut() {
    const BYTES: usize = 2_000_000;
    for seed in 0..12 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rig = Rig::new();
        let data = content(seed, BYTES);
        fs::write(rig.local.join("f"), &data).unwrap();
        fs::write(rig.remote.join("f"), &data).unwrap();
        let cut = rng.random_range(1_000_000..BYTES);
        let report = put_cut(&rig, &["f"], "copy", cut).await.unwrap();
        assert!(matches!(report.broken, Some(FileError::Connection(_))), "seed {seed}: {report:?}");
        assert!(!rig.remote.join("copy").exists(), "seed {seed}");
        let rest = rig.put(&["f"], "copy").await.unwrap();
        assert_complete(&rest);
        assert!(rest.bytes_carried < BYTES as u64 / 2 + 400_000, "seed {seed}: {} again", rest.bytes_carried);
        assert_eq!(fs::read(rig.remote.join("copy")).unwrap(), data, "seed {seed}");

        get_cut(&rig, &["f"], "back", cut).await.unwrap();
        assert!(!rig.local.join("back").exists(), "seed {seed}");
        let rest = rig.get(&["f"], "back").await.unwrap();
        assert_complete(&rest);
        assert!(rest.bytes_carried < BYTES as u64 / 2 + 400_000, "seed {seed}: {} again", rest.bytes_carried);
        assert_eq!(fs::read(rig.local.join("back")).unwrap(), data, "seed {seed}");
    }
}

/// True if the copy of a directory was complete before the cut. If it was, the next would go into
/// it, as with cp.
fn is_finished(parent: &Path, name: &str) -> bool {
    parent.join(name).exists() && !parent.join(format!(".{name}.uts-id")).exists()
}

#[tokio::test]
async fn a_directory_cut_anywhere_any_number_of_times_becomes_whole() {
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rig = Rig::new();
        let src = rig.local.join("src");
        fs::create_dir_all(src.join("sub/deep")).unwrap();
        for i in 0..30 {
            let dir = ["", "sub/", "sub/deep/"][i % 3];
            let bytes =
                if i % 10 == 0 { rng.random_range(100_000..400_000) } else { rng.random_range(0..9_000) };
            fs::write(src.join(format!("{dir}{i}")), content(seed * 100 + i as u64, bytes)).unwrap();
        }
        let total: usize = 1_200_000;
        for _ in 0..4 {
            put_cut(&rig, &["src"], "dst", rng.random_range(0..total)).await;
            assert_nothing_half_written(&src, &rig.remote.join("dst"));
            if is_finished(&rig.remote, "dst") {
                break;
            }
        }
        if !is_finished(&rig.remote, "dst") {
            assert_complete(&rig.put(&["src"], "dst").await.unwrap());
        }
        set_mtime(&src, 5, 5);
        set_mtime(&rig.remote.join("dst"), 5, 5);
        assert_eq!(picture(&src), picture(&rig.remote.join("dst")), "seed {seed}");

        for _ in 0..4 {
            get_cut(&rig, &["dst"], "back", rng.random_range(0..total)).await;
            assert_nothing_half_written(&src, &rig.local.join("back"));
            if is_finished(&rig.local, "back") {
                break;
            }
        }
        if !is_finished(&rig.local, "back") {
            assert_complete(&rig.get(&["dst"], "back").await.unwrap());
        }
        set_mtime(&rig.local.join("back"), 5, 5);
        assert_eq!(picture(&src), picture(&rig.local.join("back")), "seed {seed}");
    }
}

#[tokio::test]
async fn a_changed_source_starts_again() {
    let rig = Rig::new();
    fs::write(rig.local.join("f"), content(1, 1_000_000)).unwrap();
    put_cut(&rig, &["f"], "f", 700_000).await;
    assert!(rig.remote.join(".f.uts-part").exists() && rig.remote.join(".f.uts-id").exists());
    let new = content(2, 1_000_000);
    fs::write(rig.local.join("f"), &new).unwrap();
    set_mtime(&rig.local.join("f"), 5, 5);
    let report = rig.put(&["f"], "f").await.unwrap();
    assert_eq!(report.bytes_carried, 1_000_000);
    assert_eq!(fs::read(rig.remote.join("f")).unwrap(), new);
    assert_eq!(fs::read_dir(&rig.remote).unwrap().count(), 1);
}

#[tokio::test]
async fn a_part_that_does_not_agree_starts_again() {
    let rig = Rig::new();
    let data = content(1, 1_000_000);
    fs::write(rig.local.join("f"), &data).unwrap();
    set_mtime(&rig.local.join("f"), 1000, 7);
    put_cut(&rig, &["f"], "f", 700_000).await;
    let part = rig.remote.join(".f.uts-part");
    let mut held = fs::read(&part).unwrap();
    held[10] ^= 1;
    fs::write(&part, &held).unwrap();
    let report = rig.put(&["f"], "f").await.unwrap();
    assert_eq!(report.bytes_carried, 1_000_000);
    assert_eq!(fs::read(rig.remote.join("f")).unwrap(), data);

    get_cut(&rig, &["f"], "g", 700_000).await;
    let part = rig.local.join(".g.uts-part");
    let mut held = fs::read(&part).unwrap();
    assert!(held.len() > 100_000);
    held[10] ^= 1;
    fs::write(&part, &held).unwrap();
    let report = rig.get(&["f"], "g").await.unwrap();
    assert_eq!(report.bytes_carried, 1_000_000);
    assert_eq!(fs::read(rig.local.join("g")).unwrap(), data);
}

#[tokio::test]
async fn an_old_file_stays_until_the_new_is_whole() {
    let rig = Rig::new();
    fs::write(rig.local.join("f"), content(1, 1_000_000)).unwrap();
    fs::write(rig.remote.join("f"), "old").unwrap();
    put_cut(&rig, &["f"], "f", 500_000).await;
    assert_eq!(fs::read(rig.remote.join("f")).unwrap(), b"old");
    assert_complete(&rig.put(&["f"], "f").await.unwrap());
    assert_eq!(fs::read(rig.remote.join("f")).unwrap(), content(1, 1_000_000));
}

#[tokio::test]
async fn a_cancelled_copy_keeps_its_part() {
    let rig = Rig::new();
    fs::write(rig.remote.join("f"), content(1, 3_000_000)).unwrap();
    let (flows, _server) = rig.connect();
    let reached = Arc::new(tokio::sync::Notify::new());
    struct Watch(Arc<tokio::sync::Notify>, std::sync::atomic::AtomicU64);
    impl Progress for Watch {
        fn moved(&self, _: &[u8], bytes: u64) {
            if self.1.fetch_add(bytes, std::sync::atomic::Ordering::SeqCst) + bytes > 1_000_000 {
                self.0.notify_one();
            }
        }
    }
    let options = CopyOptions { progress: Arc::new(Watch(reached.clone(), 0.into())), ..recursive() };
    let (sources, to) = ([at("f")], rig.local.join("f"));
    tokio::select! {
        biased;
        () = reached.notified() => {}
        _ = get(Arc::new(flows), &sources, &to, &options) => panic!("not cancelled"),
    }
    // The thread that writes finishes what it had been given, and then frees the lock.
    let rest = loop {
        let rest = rig.get(&["f"], "f").await.unwrap();
        if !rest.failures.iter().any(|(_, e)| e.fault().is_some_and(|f| f.kind == FaultKind::Busy)) {
            break rest;
        }
    };
    assert_complete(&rest);
    // Of the million bytes, a block that was not full yet may be lost.
    let kept_bytes = 1_000_000 - blocks::BLOCK_BYTES as u64;
    assert!(rest.bytes_carried <= 3_000_000 - kept_bytes, "{}", rest.bytes_carried);
}

#[tokio::test]
async fn a_new_copy_takes_over_from_one_that_hangs() {
    let rig = Rig::new();
    let data = content(1, 1_000_000);
    fs::write(rig.local.join("f"), &data).unwrap();
    // A client that was killed: its flow stays open, and says nothing more.
    let (flows, _server) = rig.connect();
    let mut flow = batch::Conversation::open(&flows, &blocks::tests::payer()).await.unwrap();
    let (_, mut entry) = tree::Source::Ambient(rig.local.join("f")).open().unwrap();
    entry.path = b"f".to_vec();
    let begun = async {
        use tokio::io::AsyncWriteExt;
        message::write_frame(&mut flow.send, &message::Request::Put { entry, from: 0 }).await?;
        flow.send.write_u32(300_000).await?;
        flow.send.write_all(&data[..300_000]).await?;
        flow.send.flush().await
    };
    begun.await.unwrap();
    let part = rig.remote.join(".f.uts-part");
    while fs::metadata(&part).map_or(0, |m| m.len()) < 250_000 {
        tokio::task::yield_now().await;
    }
    let report = rig.put(&["f"], "f").await.unwrap();
    assert_complete(&report);
    assert!(report.bytes_carried <= 750_000, "{}", report.bytes_carried);
    assert_eq!(fs::read(rig.remote.join("f")).unwrap(), data);
    let told = batch::next_reply(&mut flow.recv).await.unwrap();
    assert!(matches!(told, message::Reply::Fault(f) if f.kind == FaultKind::Busy));
}
