//! Many small files, which are stored together.

use super::*;
use message::{Kind, Reply, Request};

/// Sends a file's content as the protocol has it.
async fn put_small<F: Flows>(flow: &mut batch::Conversation<F>, path: &str, data: &[u8]) {
    let entry = entry(path.as_bytes(), Kind::File, data.len() as u64);
    message::write_frame(&mut flow.send, &Request::Put { entry, from: 0 }).await.unwrap();
    let length = (data.len() as u32).to_be_bytes();
    let chunk = if data.is_empty() { Vec::new() } else { [&length[..], data].concat() };
    let chunk = [&chunk[..], &[0; 4], blake3::hash(data).as_bytes()].concat();
    flow.send.write_all(&chunk).await.unwrap();
}

async fn next<F: Flows>(flow: &mut batch::Conversation<F>) -> Reply {
    batch::next_reply(&mut flow.recv).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_go_and_come_and_one_that_cannot_be_stored_fails_alone() {
    let rig = Rig::new();
    let src = rig.local.join("src");
    fs::create_dir_all(src.join("deep")).unwrap();
    for i in 0..500 {
        let dir = ["", "deep/"][i % 2];
        // Some are not small, and go between the others.
        let bytes = if i % 50 == 49 { 70_000 } else { i * 7 };
        fs::write(src.join(format!("{dir}{i}")), content(i as u64, bytes)).unwrap();
    }
    // In the way of one file each.
    for directory in [rig.remote.join("dst/7"), rig.local.join("dst/8")] {
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("mine"), "x").unwrap();
    }
    let sources: Vec<_> = (0..500).map(|i| format!("src/{}{i}", ["", "deep/"][i % 2])).collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let there = rig.put(&sources, "dst").await.unwrap();
    assert_eq!((there.files_copied, there.failed), (499, 1), "{:?}", there.failures);
    fs::create_dir(rig.remote.join("all")).unwrap();
    assert_complete(&rig.put(&["src"], "all").await.unwrap());
    let back = rig.get(&["dst"], "").await.unwrap();
    assert_eq!((back.files_copied, back.failed), (499, 1), "{:?}", back.failures);
    assert_complete(&rig.get(&["all/src"], "back").await.unwrap());
    for copy in [rig.remote.join("all/src"), rig.local.join("back")] {
        assert_eq!(picture(&src), picture(&copy));
    }
}

#[tokio::test]
async fn answers_come_in_the_order_of_the_files() {
    let rig = Rig::new();
    fs::create_dir(rig.remote.join("directory")).unwrap();
    let (flows, server) = rig.connect();
    let mut flow = batch::Conversation::open(&flows, &blocks::tests::payer()).await.unwrap();
    // The same name twice, one that fails, one that is not small, and another question.
    let long = content(1, 100_000);
    for (path, data) in
        [("a", &b"one"[..]), ("directory", b"x"), ("a", b"two"), ("b", b""), ("long", &long), ("c", b"x")]
    {
        put_small(&mut flow, path, data).await;
        if path == "long" {
            flow.send.flush().await.unwrap();
        }
    }
    message::write_frame(&mut flow.send, &Request::Stat { path: b"c".to_vec() }).await.unwrap();
    flow.send.flush().await.unwrap();
    let stored = |data: &[u8]| Reply::Stored { hash: blake3::hash(data).into() };
    assert_eq!(next(&mut flow).await, stored(b"one"));
    let Reply::Fault(fault) = next(&mut flow).await else { panic!("no fault") };
    assert_eq!((fault.kind, &fault.path[..]), (FaultKind::IsDirectory, &b"directory"[..]));
    for data in [&b"two"[..], b"", &long, b"x"] {
        assert_eq!(next(&mut flow).await, stored(data));
    }
    assert!(matches!(next(&mut flow).await, Reply::Status { entry: Some(_), .. }));
    assert_eq!(fs::read(rig.remote.join("a")).unwrap(), b"two");
    flow.end().await.unwrap();
    drop(flows);
    server.await.unwrap().unwrap();
}

/// Each flow has what the other waits for.
#[tokio::test]
async fn flows_that_cross_do_not_wait_for_each_other() {
    let rig = Rig::new();
    let (flows, _server) = rig.connect();
    let sending = [["a", "b"], ["b", "a"]].map(|names| {
        let flows = &flows;
        async move {
            let mut flow = batch::Conversation::open(flows, &blocks::tests::payer()).await.unwrap();
            for round in 0..40 {
                for name in names {
                    put_small(&mut flow, name, &[round; 10]).await;
                }
            }
            flow.send.flush().await.unwrap();
            for round in 0..40 {
                for _ in names {
                    assert_eq!(
                        next(&mut flow).await,
                        Reply::Stored { hash: blake3::hash(&[round; 10]).into() }
                    );
                }
            }
        }
    });
    let [one, other] = sending;
    tokio::join!(one, other);
}

/// A file that came whole before a cut stands, and of a file that did not come whole nothing is
/// left.
#[tokio::test]
async fn a_cut_leaves_whole_files_and_nothing_else() {
    let rig = Rig::new();
    let (flows, server) = rig.connect();
    let mut flow = batch::Conversation::open(&flows, &blocks::tests::payer()).await.unwrap();
    put_small(&mut flow, "whole", b"all of it").await;
    let entry = entry(b"cut", Kind::File, 100);
    message::write_frame(&mut flow.send, &Request::Put { entry, from: 0 }).await.unwrap();
    flow.send.write_all(&[&100u32.to_be_bytes()[..], &[1; 50]].concat()).await.unwrap();
    flow.send.flush().await.unwrap();
    // Told before the rest of the other comes.
    assert_eq!(next(&mut flow).await, Reply::Stored { hash: blake3::hash(b"all of it").into() });
    drop(flow);
    drop(flows);
    server.await.unwrap().unwrap();
    let names: Vec<_> = fs::read_dir(&rig.remote).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["whole"]);
}

#[tokio::test]
async fn content_that_is_not_as_announced_is_refused() {
    let rig = Rig::new();
    let (flows, _server) = rig.connect();
    let mut flow = batch::Conversation::open(&flows, &blocks::tests::payer()).await.unwrap();
    let entry = |size| entry(b"f", Kind::File, size);
    let hash = blake3::hash(b"some");
    let whole = [&4u32.to_be_bytes()[..], b"some", &[0; 4]].concat();
    let hole = [&(u32::MAX - 1).to_be_bytes()[..], &1_000_000u64.to_be_bytes()].concat();
    for (size, content, kind) in [
        (5, [&whole[..], hash.as_bytes()].concat(), FaultKind::Corrupt),
        (4, [&whole[..], &[9; 32]].concat(), FaultKind::Corrupt),
        (3, [&whole[..], hash.as_bytes()].concat(), FaultKind::Protocol),
        (9, [&hole[..], &[0; 4], hash.as_bytes()].concat(), FaultKind::Protocol),
    ] {
        message::write_frame(&mut flow.send, &Request::Put { entry: entry(size), from: 0 }).await.unwrap();
        flow.send.write_all(&content).await.unwrap();
        flow.send.flush().await.unwrap();
        let reply = message::read_frame(&mut flow.recv).await.unwrap();
        let Some(Reply::Fault(fault)) = reply else { panic!("no fault") };
        assert_eq!(fault.kind, kind, "{size}");
    }
    put_small(&mut flow, "f", b"some").await;
    flow.send.flush().await.unwrap();
    assert_eq!(next(&mut flow).await, Reply::Stored { hash: hash.into() });
    assert_eq!(fs::read_dir(&rig.remote).unwrap().count(), 1);
}
