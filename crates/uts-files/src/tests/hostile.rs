//! Peers that do not keep to the protocol, or mean harm.

use super::*;
use message::{Entry, Held, Kind, MAGIC, Reply, Request, VERSION, read_frame, write_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};

/// Replies of a server to these bytes, until it ends the flow.
pub(super) async fn answers(rig: &Rig, bytes: Vec<u8>) -> Vec<Reply> {
    let (ours, theirs) = duplex(1 << 20);
    let (recv, send) = split(theirs);
    let service = rig.service.clone();
    let session = Arc::new(service.session(somebody()));
    let server =
        tokio::spawn(async move { service.serve_in(send, recv, session, Arc::new(NoProgress)).await });
    let (mut recv, mut send) = split(ours);
    let asking = async move {
        let _ = send.write_all(&bytes).await;
        let _ = send.shutdown().await;
    };
    let hearing = async {
        let mut replies = Vec::new();
        while let Ok(Some(reply)) = read_frame(&mut recv).await {
            replies.push(reply);
        }
        replies
    };
    let ((), replies) = tokio::join!(asking, hearing);
    let _ = server.await.unwrap();
    replies
}

pub(super) async fn wire(requests: &[Request]) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &[VERSION]].concat();
    for request in requests {
        write_frame(&mut bytes, request).await.unwrap();
    }
    bytes
}

#[tokio::test]
async fn no_request_leads_outside() {
    let rig = Rig::new();
    let before = picture(&rig.remote);
    let outside = rig.local.join("secret");
    fs::write(&outside, "x").unwrap();
    std::os::unix::fs::symlink(&rig.local, rig.remote.join("link")).unwrap();
    for path in [
        &b"../local/secret"[..],
        outside.as_os_str().as_encoded_bytes(),
        b"a/../../local/secret",
        b"link/secret",
        b"a\0",
    ] {
        let path = path.to_vec();
        let requests = [
            Request::Stat { path: path.clone() },
            Request::List { path: path.clone(), recursive: true },
            Request::Get { path: path.clone(), held: None },
            Request::Offer(entry(&path, Kind::File, 1)),
            Request::Sums { path: path.clone() },
            Request::MakeDirectory { entry: entry(&path, Kind::Directory, 0), copy_of: None },
            Request::Attributes { entry: entry(&path, Kind::File, 0), complete: true },
            Request::MakeLink { entry: entry(&path, Kind::Link(b"x".to_vec()), 0), top: Vec::new() },
        ];
        let replies = answers(&rig, wire(&requests).await).await;
        assert_eq!(replies.len(), requests.len());
        for (request, reply) in requests.iter().zip(replies) {
            assert!(matches!(&reply, Reply::Fault(_)), "{request:?}: {reply:?}");
        }
        let mut put = wire(&[Request::Put { entry: entry(&path, Kind::File, 1), from: 0 }]).await;
        put.extend([0, 0, 0, 1, b'!', 0, 0, 0, 0]);
        put.extend(blake3::hash(b"!").as_bytes());
        assert!(matches!(&answers(&rig, put).await[..], [Reply::Fault(_)]));
    }
    assert_eq!(fs::read(&outside).unwrap(), b"x");
    assert_eq!(fs::read_dir(&rig.local).unwrap().count(), 1);
    fs::remove_file(rig.remote.join("link")).unwrap();
    set_mtime(&rig.remote, 5, 5);
    assert_eq!(before.len(), picture(&rig.remote).len());
}

#[tokio::test]
async fn content_that_is_not_as_announced_is_refused() {
    let rig = Rig::new();
    let good = *blake3::hash(b"four").as_bytes();
    let chunks =
        |data: &[u8], hash: &[u8; 32]| [&(data.len() as u32).to_be_bytes()[..], data, &[0; 4], hash].concat();
    for (size, from, content) in [
        (4, 0, chunks(b"four", &[7; 32])),
        (5, 0, chunks(b"four", &good)),
        (3, 0, chunks(b"four", &good)),
        (4, 2, chunks(b"ur", &good)),
        (u64::MAX, u64::MAX, chunks(b"four", &good)),
    ] {
        let mut put = wire(&[Request::Put { entry: entry(b"f", Kind::File, size), from }]).await;
        put.extend(content);
        let replies = answers(&rig, put).await;
        assert!(matches!(&replies[..], [Reply::Fault(_)]), "{size} {from}: {replies:?}");
        assert!(!rig.remote.join("f").exists());
    }
    // And the flow still serves what follows.
    let mut put = wire(&[Request::Put { entry: entry(b"f", Kind::File, 5), from: 0 }]).await;
    put.extend(chunks(b"four", &good));
    write_frame(&mut put, &Request::Put { entry: entry(b"f", Kind::File, 4), from: 0 }).await.unwrap();
    put.extend(chunks(b"four", &good));
    let replies = answers(&rig, put).await;
    assert!(
        matches!(&replies[..], [Reply::Fault(_), Reply::Stored { hash }] if *hash == good),
        "{replies:?}"
    );
}

#[tokio::test]
async fn garbage_gets_an_answer_and_changes_nothing() {
    let rig = Rig::new();
    for seed in 0..200 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bytes = if seed % 4 == 0 { Vec::new() } else { wire(&[]).await };
        let mut noise = vec![0; rng.random_range(0..200)];
        rng.fill(&mut noise[..]);
        if seed % 2 == 0 {
            bytes.extend((noise.len() as u32).to_be_bytes());
        }
        bytes.extend(noise);
        for reply in answers(&rig, bytes).await {
            assert!(
                matches!(
                    reply,
                    Reply::Fault(_)
                        | Reply::Status { .. }
                        | Reply::Have { .. }
                        | Reply::Sums { .. }
                        | Reply::Done
                        | Reply::Found(_)
                ),
                "seed {seed}: {reply:?}"
            );
        }
    }
    assert!(fs::read_dir(&rig.remote).unwrap().all(|e| e.unwrap().path().is_dir()));
}

#[tokio::test]
async fn another_version_is_refused_naming_both() {
    let rig = Rig::new();
    let replies = answers(&rig, [&MAGIC[..], &[9]].concat()).await;
    let Some(Reply::Fault(fault)) = replies.first() else { panic!("{replies:?}") };
    assert!(
        fault.kind == FaultKind::Version
            && fault.why.contains("version 9")
            && fault.why.contains(&format!("version {}", message::VERSION)),
        "{fault}"
    );
}

/// A server that lists these entries and sends "evil" for whatever is asked.
async fn evil_server(flows: MemoryFlows, names: Vec<Entry>) -> io::Result<()> {
    while let Some((mut send, mut recv)) = flows.accept().await? {
        let names = names.clone();
        tokio::spawn(async move {
            recv.read_exact(&mut [0; 10]).await?;
            while let Some(request) = read_frame::<_, Request>(&mut recv).await? {
                match request {
                    Request::Stat { path } => {
                        write_frame(&mut send, &a_directory(&path)).await?;
                    }
                    Request::List { .. } => {
                        for entry in &names {
                            write_frame(&mut send, &Reply::Found(Ok(entry.clone()))).await?;
                        }
                        write_frame(&mut send, &Reply::Done).await?;
                    }
                    Request::Get { path, .. } => {
                        let entry = entry(&path, Kind::File, 4);
                        write_frame(&mut send, &Reply::Sending { entry, from: 0 }).await?;
                        send.write_all(&[0, 0, 0, 4]).await?;
                        send.write_all(b"evil\0\0\0\0").await?;
                        send.write_all(blake3::hash(b"evil").as_bytes()).await?;
                    }
                    _ => return Err(io::Error::other("not asked by a getting client")),
                }
            }
            send.shutdown().await
        });
    }
    Ok(())
}

#[tokio::test]
async fn a_hostile_server_writes_nothing_outside() {
    let rig = Rig::new();
    let outside = rig.remote.join("outside");
    fs::write(&outside, "x").unwrap();
    let names = vec![
        entry(b"../remote/outside", Kind::File, 4),
        entry(outside.as_os_str().as_encoded_bytes(), Kind::File, 4),
        entry(b"", Kind::File, 4),
        entry(b"a/../../b", Kind::File, 4),
        entry(b"up", Kind::Link(b"../../remote".to_vec()), 0),
        entry(b"up/outside", Kind::File, 4),
        entry(b".x.uts-part", Kind::File, 4),
        entry(b"fine", Kind::File, 4),
    ];
    for links in [false, true] {
        let (ours, theirs) = pair(100_000);
        let server = tokio::spawn(evil_server(theirs, names.clone()));
        let options = CopyOptions { links, ..recursive() };
        let report = get(Arc::new(ours), &[at("d")], &rig.local, &options).await.unwrap();
        server.await.unwrap().unwrap();
        assert_eq!(report.files_copied, 1);
        assert!(report.failures.len() >= 6, "{:?}", report.failures);
        assert_eq!(fs::read(&outside).unwrap(), b"x");
        assert_eq!(fs::read(rig.local.join("d/fine")).unwrap(), b"evil");
        assert_eq!(picture(&rig.local).len(), 3);
        fs::remove_dir_all(rig.local.join("d")).unwrap();
    }
}

#[tokio::test]
async fn a_server_cannot_claim_that_more_is_here_than_is() {
    let rig = Rig::new();
    let held = Held { bytes: 10, hash: [1; 32] };
    fs::write(rig.remote.join("f"), content(1, 100)).unwrap();
    let replies = answers(&rig, wire(&[Request::Get { path: b"f".to_vec(), held: Some(held) }]).await).await;
    assert!(matches!(replies.first(), Some(Reply::Sending { from: 0, .. })), "{replies:?}");
}
