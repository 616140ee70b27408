//! Servers that have more to say than a client can hold, and other than they said.

use super::*;
use message::{Entry, Kind, Reply, Request, read_frame, write_frame};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Entry by its number; `None` ends the listing.
type Listed = fn(u64) -> Option<Result<Entry, Fault>>;

/// Server that lists without end and sends these bytes for each file.
#[derive(Clone)]
struct Server {
    listed: Listed,
    content: Vec<u8>,
    /// Number of entries that went out.
    count: Arc<AtomicU64>,
    asked: Arc<tokio::sync::Notify>,
    /// The listing waits here until a file has been asked for.
    waits_at: u64,
}

impl Server {
    fn new(listed: Listed) -> Server {
        let (count, asked) = Default::default();
        Server { listed, content: Vec::new(), count, asked, waits_at: u64::MAX }
    }

    async fn run(self, flows: MemoryFlows) -> io::Result<()> {
        while let Some((send, recv)) = flows.accept().await? {
            tokio::spawn(self.clone().serve(send, recv));
        }
        Ok(())
    }

    async fn serve<S: AsyncWrite + Unpin, R: AsyncRead + Unpin>(
        self,
        mut send: S,
        mut recv: R,
    ) -> io::Result<()> {
        recv.read_exact(&mut [0; 10]).await?;
        while let Some(request) = read_frame::<_, Request>(&mut recv).await? {
            match request {
                Request::Stat { path } => {
                    write_frame(&mut send, &a_directory(&path)).await?;
                }
                Request::List { .. } => {
                    for i in 0.. {
                        let Some(found) = (self.listed)(i) else { break };
                        if i == self.waits_at {
                            self.asked.notified().await;
                        }
                        write_frame(&mut send, &Reply::Found(found)).await?;
                        self.count.fetch_add(1, SeqCst);
                    }
                    write_frame(&mut send, &Reply::Done).await?;
                }
                Request::Get { path, .. } => {
                    self.asked.notify_one();
                    let entry = entry(&path, Kind::File, self.content.len() as u64);
                    write_frame(&mut send, &Reply::Sending { entry, from: 0 }).await?;
                    for chunk in self.content.chunks(100_000) {
                        send.write_u32(chunk.len() as u32).await?;
                        send.write_all(chunk).await?;
                    }
                    send.write_u32(0).await?;
                    send.write_all(blake3::hash(&self.content).as_bytes()).await?;
                }
                _ => return Err(io::Error::other("not asked by a client that fetches")),
            }
        }
        send.shutdown().await
    }
}

async fn fetch(rig: &Rig, server: &Server, options: &CopyOptions) -> Report {
    let (ours, theirs) = pair(100_000);
    let serving = tokio::spawn(server.clone().run(theirs));
    let report = get(Arc::new(ours), &[at("d")], &rig.local, options).await.unwrap();
    serving.await.unwrap().unwrap();
    report
}

fn bounded(listing_bytes_max: u64) -> CopyOptions {
    CopyOptions { links: true, listing_bytes_max, ..recursive() }
}

#[tokio::test]
async fn an_endless_listing_is_broken_off() {
    let all: [Listed; 5] = [
        |i| Some(Ok(entry(format!("{i:0200}").as_bytes(), Kind::File, 0))),
        |i| Some(Ok(entry(format!("{i:0200}").as_bytes(), Kind::Directory, 0))),
        |i| Some(Ok(entry(format!("{i}").as_bytes(), Kind::Link(vec![b'x'; 200]), 0))),
        |i| Some(Ok(entry(format!("{i}").as_bytes(), Kind::Special, 0))),
        |_| Some(Err(Fault::new(FaultKind::Io, b"", ""))),
    ];
    for listed in all {
        let rig = Rig::new();
        let server = Server::new(listed);
        let report = fetch(&rig, &server, &bounded(400_000)).await;
        let Some(FileError::Protocol(why)) = &report.broken else { panic!("{:?}", report.broken) };
        assert!(why.contains("400000 bytes"), "{why}");
        // Besides those that were counted: what stands in the buffers of the flow.
        assert!(server.count.load(SeqCst) < 2_000 + 100_000 / 12 + 64_000 / 12, "{:?}", server.count);
    }
}

#[tokio::test]
async fn faults_are_counted_and_few_of_them_kept() {
    struct Told(AtomicU64, AtomicU64);
    impl Progress for Told {
        fn ended(&self, _: &[u8], _: u64, _: &FileOutcome) {
            self.0.fetch_add(1, SeqCst);
        }
        fn untold(&self, failures: u64, _: u64) {
            self.1.fetch_add(failures, SeqCst);
        }
    }
    let rig = Rig::new();
    let fault = |i| {
        let why = "ü".repeat(29_000);
        (i < 1_500).then(|| Err(Fault::new(FaultKind::Io, &[b'x'; 5_000], why)))
    };
    let told = Arc::new(Told(0.into(), 0.into()));
    let options = CopyOptions { progress: told.clone(), ..recursive() };
    let report = fetch(&rig, &Server::new(fault), &options).await;
    assert_eq!((report.failed, report.failures.len(), &report.broken), (1_500, TOLD_MAX, &None));
    assert!(!report.is_complete());
    assert_eq!((told.0.load(SeqCst), told.1.load(SeqCst)), (TOLD_MAX as u64, 500));
    for (name, error) in &report.failures {
        let fault = error.fault().unwrap();
        assert_eq!(fault.why, "ü".repeat(WHY_BYTES_MAX / 2));
        assert!(name.len() <= path::PATH_BYTES_MAX + 2 && fault.path.len() == path::PATH_BYTES_MAX + 2);
    }
}

#[tokio::test]
async fn what_has_another_size_than_was_listed_is_changed_and_not_taken() {
    for (size, bytes) in [(5, 3_000_000), (5, 0), (0, 5), (u64::MAX, 5)] {
        let rig = Rig::new();
        let listed: Listed = match size {
            5 => |i| (i < 2).then(|| Ok(entry(&[b'a' + i as u8], Kind::File, 5))),
            0 => |i| (i < 2).then(|| Ok(entry(&[b'a' + i as u8], Kind::File, 0))),
            _ => |i| (i < 2).then(|| Ok(entry(&[b'a' + i as u8], Kind::File, u64::MAX))),
        };
        let server = Server { content: vec![7; bytes], ..Server::new(listed) };
        let report = fetch(&rig, &server, &recursive()).await;
        assert_eq!((report.files_copied, report.bytes_carried, report.failures.len()), (0, 0, 2));
        for (_, error) in &report.failures {
            let fault = error.fault().unwrap();
            assert_eq!(fault.kind, FaultKind::Changed, "{size} {bytes}: {fault}");
            assert!(fault.why.contains(&format!("listed with {size} bytes, sent with {bytes}")), "{fault}");
        }
        assert_eq!(fs::read_dir(rig.local.join("d")).unwrap().count(), 0);
    }
}

/// Files come while the server still lists.
#[tokio::test]
async fn listings_are_streamed() {
    let rig = Rig::new();
    let listed = |i| (i < 3_000).then(|| Ok(entry(format!("{i}").as_bytes(), Kind::File, 4)));
    let server = Server { content: b"four".to_vec(), waits_at: 1_000, ..Server::new(listed) };
    let report = fetch(&rig, &server, &recursive()).await;
    assert_complete(&report);
    assert_eq!((report.files_copied, report.bytes), (3_000, 12_000));
}

/// The server ends all flows but the one that it lists on: nobody is left to take what is listed.
#[tokio::test]
async fn listing_ends_where_nothing_can_be_fetched() {
    let rig = Rig::new();
    let (ours, theirs) = pair(100_000);
    let serving = tokio::spawn(async move {
        let listed = |i: u64| Some(Ok(entry(format!("{i}").as_bytes(), Kind::File, 4)));
        let (send, recv) = theirs.accept().await.unwrap().unwrap();
        let listing = tokio::spawn(Server::new(listed).serve(send, recv));
        while let Some((send, recv)) = theirs.accept().await.unwrap() {
            drop((send, recv));
        }
        let _ = listing.await.unwrap();
    });
    let report = get(Arc::new(ours), &[at("d")], &rig.local, &recursive()).await.unwrap();
    assert!(matches!(report.broken, Some(FileError::Connection(_))), "{:?}", report.broken);
    serving.await.unwrap();
}

/// A server that has stored something else says so by the hash, or lies: the copy does not call it
/// a success.
#[tokio::test]
async fn a_server_cannot_say_that_it_stored_what_was_not_sent() {
    let rig = Rig::new();
    fs::write(rig.local.join("f"), "content").unwrap();
    for reply in [
        Reply::Stored { hash: [7; 32] },
        Reply::GivenUp(Fault::new(FaultKind::Io, b"", "of its own")),
        Reply::Done,
    ] {
        let (ours, theirs) = pair(100_000);
        let said = reply.clone();
        let serving = tokio::spawn(async move {
            while let Some((mut send, mut recv)) = theirs.accept().await.unwrap() {
                let said = said.clone();
                tokio::spawn(async move {
                    recv.read_exact(&mut [0; 10]).await?;
                    while let Some(request) = read_frame::<_, Request>(&mut recv).await? {
                        let reply = match request {
                            Request::Stat { .. } => {
                                Reply::Status { entry: None, copy_of: None, shows_hidden: true }
                            }
                            Request::Offer(_) => Reply::Have { held: None, whole: None, there: 0 },
                            _ => {
                                stream::drain(&mut recv, stream::Drain::AtChunk).await?;
                                said.clone()
                            }
                        };
                        write_frame(&mut send, &reply).await?;
                    }
                    send.shutdown().await
                });
            }
        });
        let report = put(Arc::new(ours), &[rig.local.join("f")], &at("f"), &recursive()).await.unwrap();
        serving.await.unwrap();
        assert_eq!((report.files_copied, report.failed), (0, 1), "{reply:?}: {report:?}");
        assert!(!matches!(&report.failures[0].1, FileError::Local(f) if f.kind == FaultKind::Io));
    }
}
