//! A server that dies without a farewell, over real sockets.

use crate::common::{identity, server, within};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{ConnectOptions, ConnectionEvent, FlowOptions, ServerOptions, connect};

/// A server that reads, and when it is told to goes away with its runtime and its socket, so that
/// the system answers for it that nobody listens there.
fn mortal() -> (String, uts::Fingerprint, impl FnOnce()) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (listener, target) = server(ServerOptions::new(identity()));
            sender.send((target, listener.fingerprint())).expect("sent");
            let connection = listener.accept().await.expect("a client");
            let mut flow = connection.accept_flow().await.expect("a flow");
            let mut word = [0; 5];
            flow.read_exact(&mut word).await.expect("a word");
            let _ = stopped.await;
            // Nobody says farewell.
            std::mem::forget((listener, connection, flow));
        });
    });
    let (target, fingerprint) = receiver.recv().expect("a server");
    let kill = move || {
        let _ = stop.send(());
        thread.join().expect("ended");
    };
    (target, fingerprint, kill)
}

#[tokio::test]
async fn a_server_that_is_killed_is_noticed_while_its_answer_is_waited_for() {
    let (target, fingerprint, kill) = tokio::task::spawn_blocking(mortal).await.expect("a server");
    let client = within(connect(&target, ConnectOptions::pinned(fingerprint))).await.expect("connected");
    let mut events = client.events();
    let mut flow = within(client.open_flow(FlowOptions::default())).await.expect("a flow");
    within(flow.write_all(b"hello")).await.expect("written");
    let waiting = tokio::spawn(async move { flow.read_u8().await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    tokio::task::spawn_blocking(kill).await.expect("killed");
    let told = within(async {
        loop {
            let event = events.next().await.expect("the connection has not ended");
            if matches!(event, ConnectionEvent::Silent(_) | ConnectionEvent::Closed(_)) {
                return event;
            }
        }
    })
    .await;
    assert!(matches!(told, ConnectionEvent::Silent(_)), "{told:?}");
    assert!(client.silence().is_some(), "and it still is");
    assert!(client.close_reason().is_none() && !waiting.is_finished(), "which ends nothing");
}
