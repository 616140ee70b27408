//! Files with holes.

use super::*;
use std::os::unix::fs::FileExt;

fn sparse(at: &Path, bytes: u64) {
    let file = fs::File::create(at).unwrap();
    file.set_len(bytes).unwrap();
    for offset in [0, bytes / 2, bytes - 5000] {
        file.write_all_at(&content(offset, 3000), offset).unwrap();
    }
}

/// True if the file system of the tests tells of holes.
fn has_holes(at: &Path) -> bool {
    let m = fs::metadata(at).unwrap();
    m.blocks() * 512 < m.len() / 2
}

#[tokio::test]
async fn holes_are_carried_as_holes_and_made_as_holes() {
    const BYTES: u64 = 200_000_000;
    let rig = Rig::new();
    sparse(&rig.local.join("f"), BYTES);
    if !has_holes(&rig.local.join("f")) {
        return;
    }
    let put = rig.put(&["f"], "f").await.unwrap();
    assert_complete(&put);
    assert!(put.bytes_carried < 200_000, "{}", put.bytes_carried);
    assert_eq!(put.bytes, BYTES);
    let get = rig.get(&["f"], "back").await.unwrap();
    assert_complete(&get);
    assert!(get.bytes_carried < 200_000, "{}", get.bytes_carried);
    for copy in [rig.remote.join("f"), rig.local.join("back")] {
        assert!(has_holes(&copy), "{copy:?}");
        assert_eq!(fs::read(&copy).unwrap(), fs::read(rig.local.join("f")).unwrap());
    }
    // There already: nothing is sent, and hashing it reads no hole.
    assert_eq!(rig.put(&["f"], "f").await.unwrap().files_already_there, 1);
}

#[tokio::test]
async fn a_sparse_copy_goes_on_from_a_hole() {
    let rig = Rig::new();
    sparse(&rig.local.join("f"), 50_000_000);
    if !has_holes(&rig.local.join("f")) {
        return;
    }
    let tree = tree::Tree::open(&rig.remote).unwrap();
    let (_, mut entry) = tree::Source::Ambient(rig.local.join("f")).open().unwrap();
    entry.path = b"f".to_vec();
    let mut part =
        part::Part::open(&tree, &rel("f"), &entry, None, part::Terms::client(modes::Modes::Preserve))
            .unwrap();
    let start = fs::read(rig.local.join("f")).unwrap();
    sink::Sink::write(&mut part, &start[..8192]).unwrap();
    sink::Sink::skip(&mut part, 1_000_000).unwrap();
    drop(part);
    let report = rig.put(&["f"], "f").await.unwrap();
    assert_complete(&report);
    assert!(report.bytes_carried < 100_000, "{}", report.bytes_carried);
    assert_eq!(fs::read(rig.remote.join("f")).unwrap(), start);
}

#[tokio::test]
async fn holes_beyond_the_end_and_without_an_end_are_refused() {
    use message::{Reply, Request, write_frame};
    use tokio::io::AsyncWriteExt;
    let rig = Rig::new();
    let entry = |size| message::Entry {
        path: b"f".to_vec(),
        kind: message::Kind::File,
        size,
        mtime: message::Mtime::default(),
        mode: 0o600,
    };
    // Each hole costs twelve bytes. A hole of an impossible length ends the flow. A hole beyond the
    // end of the file makes the file fail.
    for (hole, kind) in
        [(0, FaultKind::Protocol), (u64::MAX, FaultKind::Protocol), (1001, FaultKind::Protocol)]
    {
        let (flows, server) = rig.connect();
        let mut flow = batch::Conversation::open(&flows, &blocks::tests::payer()).await.unwrap();
        write_frame(&mut flow.send, &Request::Put { entry: entry(1000), from: 0 }).await.unwrap();
        flow.send.write_u32(u32::MAX - 1).await.unwrap();
        flow.send.write_u64(hole).await.unwrap();
        flow.send.write_u32(0).await.unwrap();
        flow.send.write_all(&[0; 32]).await.unwrap();
        flow.send.flush().await.unwrap();
        let told: Option<Reply> = message::read_frame(&mut flow.recv).await.unwrap();
        assert!(matches!(&told, Some(Reply::Fault(fault)) if fault.kind == kind), "{hole} {told:?}");
        drop((flow, flows));
        server.await.unwrap().unwrap();
        assert!(!rig.remote.join("f").exists());
    }
}
