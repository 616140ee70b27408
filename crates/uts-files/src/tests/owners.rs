//! Uploads of several clients to one server.

use super::*;
use message::{Reply, Request, write_frame};
use tokio::io::AsyncWriteExt;

fn client(key: &str) -> Client {
    Client { key: Some(key.into()), address: "::1".into() }
}

async fn put_as(rig: &Rig, who: Client, after_bytes: usize) -> Report {
    let (flows, server) = rig.connect_as(who);
    let flows = Arc::new(cut::CutFlows::new(flows, after_bytes));
    let report = put(flows, &[rig.local.join("f")], &at("f"), &impatient()).await.unwrap();
    server.await.unwrap().unwrap();
    report
}

#[tokio::test]
async fn an_upload_by_one_key_is_not_taken_over_by_another() {
    let rig = Rig::new();
    let data = content(1, 1_000_000);
    fs::write(rig.local.join("f"), &data).unwrap();
    let (flows, server) = rig.connect_as(client("one"));
    let mut flow = batch::Conversation::open(&flows, &blocks::tests::payer()).await.unwrap();
    let (_, mut entry) = tree::Source::Ambient(rig.local.join("f")).open().unwrap();
    entry.path = b"f".to_vec();
    write_frame(&mut flow.send, &Request::Put { entry, from: 0 }).await.unwrap();
    flow.send.write_u32(300_000).await.unwrap();
    flow.send.write_all(&data[..300_000]).await.unwrap();
    flow.send.flush().await.unwrap();
    while fs::metadata(rig.remote.join(".f.uts-part")).map_or(0, |m| m.len()) < 250_000 {
        tokio::task::yield_now().await;
    }

    for other in [client("two"), somebody()] {
        let report = put_as(&rig, other, usize::MAX).await;
        let fault = report.failures[0].1.fault().unwrap();
        assert_eq!((report.files_copied, fault.kind), (0, FaultKind::Busy), "{fault}");
    }
    // It goes on as if nothing had been.
    flow.send.write_u32(700_000).await.unwrap();
    flow.send.write_all(&data[300_000..]).await.unwrap();
    flow.send.write_u32(0).await.unwrap();
    flow.send.write_all(blake3::hash(&data).as_bytes()).await.unwrap();
    flow.send.flush().await.unwrap();
    let told = batch::next_reply(&mut flow.recv).await.unwrap();
    assert!(matches!(told, Reply::Stored { .. }), "{told:?}");
    assert_eq!(fs::read(rig.remote.join("f")).unwrap(), data);
    drop((flow, flows));
    server.await.unwrap().unwrap();
}

/// Nor is it told how much of it there is, or by which hash.
#[tokio::test]
async fn a_part_by_one_key_is_not_gone_on_from_by_another() {
    let rig = Rig::new();
    fs::write(rig.local.join("f"), content(1, 1_000_000)).unwrap();
    put_as(&rig, client("one"), 700_000).await;
    assert!(rig.remote.join(".f.uts-part").exists());
    let report = put_as(&rig, client("two"), 700_000).await;
    assert!(report.broken.is_some(), "it went on from the other's part");
    let report = put_as(&rig, client("two"), usize::MAX).await;
    assert_complete(&report);
    assert!(report.bytes_carried < 900_000, "{} again", report.bytes_carried);
    assert_eq!(fs::read(rig.remote.join("f")).unwrap(), content(1, 1_000_000));
    assert_eq!(fs::read_dir(&rig.remote).unwrap().count(), 1);
}

#[tokio::test]
async fn modes_are_preserved_where_both_ends_want_it() {
    let preserving = CopyOptions { preserve_mode: true, ..recursive() };
    let rig = Rig::new();
    fs::create_dir(rig.local.join("d")).unwrap();
    fs::write(rig.local.join("d/f"), "x").unwrap();
    fs::set_permissions(rig.local.join("d/f"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(rig.local.join("d"), fs::Permissions::from_mode(0o777)).unwrap();
    let error = rig.put_with(&["d"], "copy", &preserving).await.unwrap_err();
    assert!(matches!(&error, FileError::Peer(f) if f.kind == FaultKind::Permission), "{error}");
    assert_eq!(fs::read_dir(&rig.remote).unwrap().count(), 0);

    let service = Service::open(&rig.remote, ServeOptions { preserve_mode: true, ..ServeOptions::default() });
    let rig = Rig { service: service.unwrap(), ..rig };
    let mode = |at: PathBuf| fs::metadata(at).unwrap().mode() & 0o777;
    assert_complete(&rig.put_with(&["d"], "copy", &preserving).await.unwrap());
    assert_eq!((mode(rig.remote.join("copy")), mode(rig.remote.join("copy/f"))), (0o777, 0o777));
    assert_complete(&rig.get_with(&["copy"], "back", &preserving).await.unwrap());
    assert_eq!((mode(rig.local.join("back")), mode(rig.local.join("back/f"))), (0o777, 0o777));
}

/// A directory that the user has, and names, is not opened to others, or closed to him, on a peer's
/// word.
#[tokio::test]
async fn directories_that_are_there_are_not_opened_by_a_copy() {
    let rig = Rig::new();
    for (root, copy) in [(&rig.local, &rig.remote), (&rig.remote, &rig.local)] {
        fs::create_dir_all(root.join("src/sub")).unwrap();
        fs::write(root.join("src/sub/f"), "x").unwrap();
        fs::create_dir_all(copy.join("to/src/sub")).unwrap();
        for (at, mode) in [("src/sub", 0o755), ("src", 0o755)] {
            fs::set_permissions(root.join(at), fs::Permissions::from_mode(mode)).unwrap();
        }
        for at in ["to/src/sub", "to/src", "to"] {
            fs::set_permissions(copy.join(at), fs::Permissions::from_mode(0o700)).unwrap();
        }
    }
    assert_complete(&rig.put(&["src"], "to").await.unwrap());
    assert_complete(&rig.get(&["src"], "to").await.unwrap());
    assert_complete(&rig.put(&["src/."], "to").await.unwrap());
    for root in [&rig.local, &rig.remote] {
        for at in ["to", "to/src", "to/src/sub"] {
            let mode = fs::metadata(root.join(at)).unwrap().mode() & 0o777;
            assert_eq!(mode, 0o700, "{root:?} {at}");
        }
    }
}
