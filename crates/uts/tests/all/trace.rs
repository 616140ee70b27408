//! A connection as what is looked into.

use crate::common::{pair, within};
use tokio::io::AsyncWriteExt;

/// Packets are recorded from when that was asked for, and each is told once.
#[tokio::test]
async fn a_trace_has_what_was_sent_since() {
    let (_listener, client, server) = pair().await;
    assert!(client.take_trace().is_empty());
    client.start_trace();
    let (mut send, _recv) =
        within(client.open_flow(uts::FlowOptions::default())).await.expect("opened").split();
    send.write_all(&[7; 5000]).await.expect("written");
    within(send.finished()).await.expect("delivered");
    let mut rows = client.take_trace();
    assert!(rows.iter().filter(|row| row.kind == uts::TraceKind::Sent).count() >= 4, "{rows:?}");
    rows.extend(client.take_trace());
    let mut sent: Vec<_> =
        rows.iter().filter(|row| row.kind == uts::TraceKind::Sent).map(|row| row.number).collect();
    let all = sent.len();
    sent.dedup();
    assert_eq!(sent.len(), all, "each once");
    within(client.close(0, "")).await;
    within(server.closed()).await;
    assert!(server.take_trace().is_empty(), "nobody asked for it");
}
