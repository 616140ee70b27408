//! Files that stand there in another version: what differs is sent.

use super::*;
use batch::Conversation;
use message::{Kind, Reply, Request, Sum, read_frame, write_frame};
use tokio::io::AsyncWriteExt;

const BYTES: usize = 4_000_000;

/// Versions of a file, and the bytes at most that are sent of each after `old`.
fn versions(old: &[u8]) -> Vec<(&'static str, Vec<u8>, u64)> {
    let inserted = [&old[..1_000_000], b"more", &old[1_000_000..]].concat();
    let mut changed = old.to_vec();
    (0..4).for_each(|n| changed[n * 900_000] ^= 1);
    let appended = [old, &content(9, 100_000)].concat();
    vec![
        ("inserted", inserted, 200_000),
        ("changed", changed, 600_000),
        ("appended", appended, 300_000),
        ("shorter", old[..BYTES / 2].to_vec(), 100_000),
        ("another", content(10, BYTES), BYTES as u64),
    ]
}

#[tokio::test]
async fn what_differs_is_sent_in_both_directions() {
    let rig = Rig::new();
    let old = content(1, BYTES);
    for (name, new, most) in versions(&old) {
        for whole_files in [false, true] {
            let options = CopyOptions { whole_files, ..recursive() };
            fs::write(rig.remote.join("f"), &old).unwrap();
            fs::write(rig.local.join("f"), &new).unwrap();
            let put = rig.put_with(&["f"], "f", &options).await.unwrap();
            assert_complete(&put);
            assert!(fs::read(rig.remote.join("f")).unwrap() == new, "{name}: another file at the server");
            fs::write(rig.local.join("f"), &old).unwrap();
            let get = rig.get_with(&["f"], "f", &options).await.unwrap();
            assert_complete(&get);
            assert!(fs::read(rig.local.join("f")).unwrap() == new, "{name}: another file here");
            for report in [put, get] {
                let carried = report.bytes_carried;
                let is_right = if whole_files { carried == new.len() as u64 } else { carried <= most };
                assert!(is_right, "{name}: {carried} of {} bytes, whole: {whole_files}", new.len());
            }
        }
    }
}

#[tokio::test]
async fn a_tree_of_changed_files_keeps_them_apart() {
    let rig = Rig::new();
    for dir in [&rig.local, &rig.remote] {
        fs::create_dir(dir.join("d")).unwrap();
    }
    for n in 0..12u64 {
        let old = content(n, 300_000 + 1000 * n as usize);
        let mut new = old.clone();
        new.splice(150_000..150_000, n.to_be_bytes());
        fs::write(rig.remote.join(format!("d/{n}")), old).unwrap();
        fs::write(rig.local.join(format!("d/{n}")), new).unwrap();
    }
    let expected: Vec<_> = (0..12).map(|n| fs::read(rig.local.join(format!("d/{n}"))).unwrap()).collect();
    let report = rig.put(&["d"], "").await.unwrap();
    assert_complete(&report);
    assert!(report.bytes_carried < 12 * 150_000, "{}", report.bytes_carried);
    let back = rig.get(&["d"], "back").await.unwrap();
    assert_complete(&back);
    for (n, expected) in expected.iter().enumerate() {
        assert!(fs::read(rig.remote.join(format!("d/{n}"))).unwrap() == *expected, "{n}");
        assert!(fs::read(rig.local.join(format!("back/{n}"))).unwrap() == *expected, "{n}");
    }
}

/// A part is gone on from, and the rest of it is told by the old file.
#[tokio::test]
async fn an_unfinished_copy_goes_on_by_what_differs() {
    let rig = Rig::new();
    let old = content(1, BYTES);
    let new = [&content(2, 500_000)[..], &old].concat();
    fs::write(rig.remote.join("f"), &old).unwrap();
    fs::write(rig.local.join("f"), &new).unwrap();
    let tree = tree::Tree::open(&rig.remote).unwrap();
    let (_, mut entry) = tree::Source::Ambient(rig.local.join("f")).open().unwrap();
    entry.path = b"f".to_vec();
    let terms = part::Terms::client(modes::Modes::Preserve);
    let mut part = part::Part::open(&tree, &rel("f"), &entry, None, terms).unwrap();
    sink::Sink::write(&mut part, &new[..600_000]).unwrap();
    drop(part);
    let report = rig.put(&["f"], "f").await.unwrap();
    assert_complete(&report);
    assert!(report.bytes_carried < 150_000, "{}", report.bytes_carried);
    assert!(fs::read(rig.remote.join("f")).unwrap() == new);
}

/// The server's answer to content that refers to its file.
async fn answer_to(rig: &Rig, asks: bool, at: u64, bytes: u32) -> Option<Reply> {
    let (flows, server) = rig.connect();
    let mut flow = Conversation::open(&flows, &blocks::tests::payer()).await.unwrap();
    if asks {
        let mut reply = flow.ask(&Request::Sums { path: b"f".to_vec() }).await.unwrap();
        while reply != Reply::Done {
            assert!(matches!(&reply, Reply::Sums { sums, .. } if !sums.is_empty()), "{reply:?}");
            reply = read_frame(&mut flow.recv).await.unwrap().unwrap();
        }
    }
    write_frame(&mut flow.send, &Request::Put { entry: entry(b"f", Kind::File, 300_000), from: 0 })
        .await
        .unwrap();
    flow.send.write_u32(stream::COPY).await.unwrap();
    flow.send.write_u64(at).await.unwrap();
    flow.send.write_u32(bytes).await.unwrap();
    flow.send.write_u32(0).await.unwrap();
    flow.send.write_all(&[0; 32]).await.unwrap();
    flow.send.flush().await.unwrap();
    let told = read_frame(&mut flow.recv).await.unwrap();
    drop((flow, flows));
    server.await.unwrap().unwrap();
    told
}

#[tokio::test]
async fn what_refers_to_what_is_not_there_is_refused() {
    let rig = Rig::new();
    let old = content(1, 400_000);
    fs::write(rig.remote.join("f"), &old).unwrap();
    for (asks, at, bytes, kind) in [
        (false, 0, 300_000, FaultKind::Protocol),
        (true, 0, 0, FaultKind::Protocol),
        (true, 0, u32::MAX, FaultKind::Protocol),
        (true, 0, 300_001, FaultKind::Protocol),
        (true, 200_000, 300_000, FaultKind::Changed),
        (true, u64::MAX - 10, 300_000, FaultKind::Io),
        (true, 0, 300_000, FaultKind::Corrupt),
        (true, 0, 200_000, FaultKind::Corrupt),
    ] {
        let told = answer_to(&rig, asks, at, bytes).await;
        let is_right = matches!(&told, Some(Reply::Fault(fault)) if fault.kind == kind);
        assert!(is_right, "asks: {asks}, {bytes} bytes at {at}: {told:?}");
        assert!(fs::read(rig.remote.join("f")).unwrap() == old, "the old file stays");
    }
}

/// Pieces that a client says it has cost the server no more than so many may.
#[tokio::test]
async fn pieces_that_are_told_are_bounded() {
    let rig = Rig::new();
    fs::write(rig.remote.join("f"), content(1, 400_000)).unwrap();
    let (flows, server) = rig.connect();
    let mut flow = Conversation::open(&flows, &blocks::tests::payer()).await.unwrap();
    let sums: Vec<_> = (0..2000u32).map(|n| Sum { at: n.into(), bytes: n, hash: [n as u8; 16] }).collect();
    let known = |path: &[u8], average| Request::Known { path: path.to_vec(), average, sums: sums.clone() };
    // Those of another file, and a mean of nothing, are of no use and do no harm.
    for request in [known(b"g", 1 << 20), known(b"f", 0), known(b"f", u32::MAX)] {
        write_frame(&mut flow.send, &request).await.unwrap();
    }
    let reply = flow.ask(&Request::Get { path: b"f".to_vec(), held: None }).await.unwrap();
    assert!(matches!(reply, Reply::Sending { .. }), "{reply:?}");
    stream::drain(&mut flow.recv, stream::Drain::AtChunk).await.unwrap();
    let distinct = |frame: u32| {
        let hash =
            |n: u32| blake3::hash(&(2000 * frame + n).to_be_bytes()).as_bytes()[..16].try_into().unwrap();
        let sums = (0..2000).map(|n| Sum { at: 0, bytes: 1, hash: hash(n) }).collect();
        Request::Known { path: b"f".to_vec(), average: 1, sums }
    };
    for frame in 0..40 {
        // The server may have said no, and take no more.
        if write_frame(&mut flow.send, &distinct(frame)).await.is_err() {
            break;
        }
    }
    let _ = flow.send.flush().await;
    let told = read_frame(&mut flow.recv).await.unwrap();
    assert!(matches!(&told, Some(Reply::Fault(fault)) if fault.kind == FaultKind::Protocol), "{told:?}");
    drop((flow, flows));
    server.await.unwrap().unwrap();
}
