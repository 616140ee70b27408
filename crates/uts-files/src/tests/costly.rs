//! Work that a client asks for with few bytes.

use super::*;
use message::{Held, Reply, Request, write_frame};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// To hash all of it takes many minutes.
const HUGE_BYTES: u64 = 1 << 40;
/// Much more than anything here takes, and much less than to hash a huge file.
const PATIENCE: Duration = Duration::from_secs(100);

/// A file of nothing, which takes no room.
fn huge(at: &Path) {
    fs::File::create(at).unwrap().set_len(HUGE_BYTES).unwrap();
}

/// Asks for a file of which all but the last byte is said to be here already.
async fn ask_to_hash(flows: &MemoryFlows, path: &str) -> batch::Conversation<MemoryFlows> {
    let mut flow = batch::Conversation::open(flows, &blocks::tests::payer()).await.unwrap();
    let held = Some(Held { bytes: HUGE_BYTES - 1, hash: [0; 32] });
    write_frame(&mut flow.send, &Request::Get { path: path.into(), held }).await.unwrap();
    flow.send.flush().await.unwrap();
    flow
}

async fn until_it_hashes(rig: &Rig) {
    while rig.service.turns_are_free() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nothing_is_hashed_for_a_client_that_is_gone() {
    let rig = Rig::new();
    huge(&rig.remote.join("huge"));
    let (flows, server) = rig.connect();
    // More than are served at once, and each with something more to say, behind which its end is
    // not seen.
    let mut asking = Vec::new();
    for _ in 0..70 {
        let mut flow = ask_to_hash(&flows, "huge").await;
        write_frame(&mut flow.send, &Request::Stat { path: Vec::new() }).await.unwrap();
        flow.send.flush().await.unwrap();
        asking.push(flow);
    }
    until_it_hashes(&rig).await;
    drop((asking, flows));
    timeout(PATIENCE, server).await.expect("it goes on").unwrap().unwrap();
    // A slice may be under way still.
    timeout(PATIENCE, async {
        while !rig.service.turns_are_free() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("it goes on");
}

/// A flow that fails ends its work, though the connection goes on.
#[tokio::test]
async fn nothing_is_hashed_for_a_flow_that_is_gone() {
    let rig = Rig::new();
    huge(&rig.remote.join("huge"));
    // The server's end fails: as that of a flow that is reset.
    let (ours, theirs) = pair(100_000);
    let theirs = Arc::new(cut::CutFlows::new(theirs, usize::MAX));
    let (service, flows) = (rig.service.clone(), theirs.clone());
    let serving = tokio::spawn(async move {
        let (send, recv) = flows.take().await;
        let session = Arc::new(service.session(somebody()));
        service.serve_in(send, recv, session, Arc::new(NoProgress)).await
    });
    let flow = ask_to_hash(&ours, "huge").await;
    until_it_hashes(&rig).await;
    theirs.cut();
    drop(flow);
    let ended = timeout(PATIENCE, serving).await.expect("it goes on").unwrap();
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_client_that_has_much_hashed_does_not_keep_others_waiting() {
    let rig = Rig::new();
    huge(&rig.remote.join("huge"));
    let (flows, _server) = rig.connect();
    let mut greedy = Vec::new();
    for _ in 0..50 {
        greedy.push(ask_to_hash(&flows, "huge").await);
    }
    until_it_hashes(&rig).await;
    fs::write(rig.remote.join("small"), content(1, 100_000)).unwrap();
    let work = async {
        assert_complete(&rig.get(&["small"], "small").await.unwrap());
        // Now it is here, and hashed at both ends.
        let report = rig.get(&["small"], "small").await.unwrap();
        assert_eq!((report.files_already_there, report.bytes_carried), (1, 0));
    };
    timeout(PATIENCE, work).await.expect("it waits for the other");
    // Nor its own requests of other kinds.
    let mut flow = batch::Conversation::open(&flows, &blocks::tests::payer()).await.unwrap();
    let stat = Request::Stat { path: b"small".to_vec() };
    let reply = timeout(PATIENCE, flow.ask(&stat)).await.expect("it waits").unwrap();
    assert!(matches!(reply, Reply::Status { entry: Some(_), .. }), "{reply:?}");
}
