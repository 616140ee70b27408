//! Errors as those of input and output, what they come from, and figures of a connection.

use crate::common::{identity, pair, server, within};
use std::io::{self, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{
    CloseReason, ConnectError, ConnectOptions, FlowError, FlowOptions, Listener, PropertyError, ReadError,
    Requirements, ServerOptions, WriteError, connect,
};

/// Every step of a program can be one of `?` under a result of input and output.
async fn write_to(target: &str, options: ConnectOptions) -> io::Result<()> {
    let connection = connect(target, options).await?;
    connection.set_property("connPriority", "10")?;
    let mut flow = connection.open_flow(FlowOptions::default()).await?;
    flow.write_all(b"hello").await?;
    flow.send_half().finished().await?;
    Ok(())
}

#[tokio::test]
async fn each_step_is_one_of_input_and_output() {
    let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), ServerOptions::new(identity()));
    let listener = listener.map_err(io::Error::from).expect("bound");
    let (target, options) =
        (listener.local_addr().to_string(), ConnectOptions::pinned(listener.fingerprint()));
    tokio::spawn(async move {
        let connection = listener.accept().await.expect("a client");
        while let Some(mut flow) = connection.accept_flow().await {
            flow.read_to_end(&mut Vec::new()).await.expect("read");
        }
    });
    within(write_to(&target, options)).await.expect("written");
}

#[tokio::test]
async fn a_server_that_is_not_meant_is_permission_denied() {
    let (listener, target) = server(ServerOptions::new(identity()));
    let options = ConnectOptions::pinned(identity().fingerprint());
    let error = within(write_to(&target, options)).await.expect_err("another key");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    let inner = error.downcast::<ConnectError>().expect("that of connecting");
    assert!(matches!(inner, ConnectError::Untrusted(_)), "{inner}");
    drop(listener);
}

#[tokio::test]
async fn an_error_names_the_end_of_the_connection_as_its_source() {
    let (_listener, client, server) = pair().await;
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    server.close(7, "enough").await;
    let reason = within(client.closed()).await;
    assert!(matches!(reason, CloseReason::Peer { code: 7, .. }), "{reason}");
    let is_of =
        |error: &dyn std::error::Error| error.source().map(ToString::to_string) == Some(reason.to_string());

    let written = within(flow.write_all(b"x")).await.expect_err("over");
    assert!(written.kind() == ErrorKind::ConnectionAborted && is_of(&written), "{written}");
    assert_eq!(WriteError::try_from(written).expect("of a flow"), WriteError::Closed(reason.clone()));
    let read = within(flow.read_u8()).await.expect_err("over");
    assert_eq!(ReadError::try_from(read).expect("of a flow"), ReadError::Closed(reason.clone()));
    let opened = client.open_flow(FlowOptions::default()).await.expect_err("over");
    assert!(matches!(opened, FlowError::Closed(_)) && is_of(&opened), "{opened}");
    assert_eq!(io::Error::from(opened).kind(), ErrorKind::ConnectionAborted);
    let set = client.set_property("connPriority", "10").expect_err("over");
    assert!(matches!(set, PropertyError::Closed(_)) && is_of(&set), "{set}");
    assert!(WriteError::try_from(io::Error::other("something else")).is_err());
}

#[tokio::test]
async fn figures_tell_of_the_path_and_stay_at_the_end() {
    let (_listener, client, server) = pair().await;
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    flow.write_all(&[0; 100_000]).await.expect("written");
    let reading = tokio::spawn(async move {
        let mut flow = server.accept_flow().await.expect("a flow");
        flow.read_to_end(&mut Vec::new()).await.expect("read");
        server
    });
    within(flow.send_half().finished()).await.expect("delivered");
    let stats = client.stats();
    assert!(!stats.rtt.is_zero() && stats.rtt_min <= stats.rtt && stats.window_bytes > 0, "{stats:?}");
    assert!(stats.packets_sent > 0 && stats.packets_sent == stats.counts.packets_sent);
    client.close(0, "done").await;
    within(client.closed()).await;
    let last = client.stats();
    assert!(last.packets_sent >= stats.packets_sent && !last.rtt.is_zero(), "{last:?}");
    drop(reading.await);
}

/// Datagrams are messages, of which what is lost is not sent again.
#[tokio::test]
async fn datagrams_keep_boundaries_and_are_not_repeated() {
    let (_listener, client, server) = pair().await;
    let mut flow = client.open_flow(FlowOptions::requiring(Requirements::datagrams())).await.expect("opened");
    flow.send_message(bytes::Bytes::from_static(b"one"), uts::MessageOptions::default()).await.expect("sent");
    let mut back = within(server.accept_flow()).await.expect("a flow");
    assert_eq!(within(back.recv_message()).await.expect("read").as_deref(), Some(&b"one"[..]));
    let profile = flow.send_half().profile().expect("agreed");
    let shown = profile.to_string();
    assert!(profile.is_inert(uts::Function::Retransmission) && shown.contains("congestion="), "{shown}");
}
