//! Several services behind one port.

use crate::common::within;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{
    CloseReason, ConnectOptions, Connection, FlowOptions, Identity, Listener, NO_SUCH_SERVICE, ServerOptions,
    Services, connect,
};

async fn client(address: &str, fingerprint: uts::Fingerprint, service: &str) -> Connection {
    let mut options = ConnectOptions::pinned(fingerprint);
    options.connection.service = service.to_owned();
    connect(address, options).await.expect("connected")
}

/// Says the name of a service in each flow.
async fn says(connection: Connection, name: &'static str) {
    while let Some(flow) = connection.accept_flow().await {
        let (mut send, _recv) = flow.split();
        send.write_all(name.as_bytes()).await.expect("written");
        send.finished().await.expect("arrived");
    }
}

async fn ask(connection: &Connection) -> String {
    let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).await.expect("opened").split();
    send.write_all(b"?").await.expect("written");
    let mut said = String::new();
    recv.read_to_string(&mut said).await.expect("read");
    said
}

#[tokio::test]
async fn each_client_reaches_the_service_that_it_names_and_no_other() {
    within(async {
        let server = ServerOptions::new(Identity::generate().expect("a key"));
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address"), server).expect("bound");
        let (address, key) = (listener.local_addr().to_string(), listener.fingerprint());
        let listener = Arc::new(listener);
        let services = Services::new()
            .on("a", |connection| says(connection, "a"))
            .on("b", |connection| says(connection, "b"))
            .on("", |connection| says(connection, "none"))
            .on("odd", |_| async { panic!("a handler that fails") });
        let (served, accepting) = (services.clone(), listener.clone());
        let serving = tokio::spawn(async move { served.serve(&accepting).await });
        let (a, b, none) =
            tokio::join!(client(&address, key, "a"), client(&address, key, "b"), client(&address, key, ""));
        assert_eq!((ask(&a).await, ask(&b).await, ask(&none).await), ("a".into(), "b".into(), "none".into()));
        // One that is unknown is told so; one that fails ends its own connection.
        let unknown = client(&address, key, "c").await.closed().await;
        let CloseReason::Peer { code, reason } = &unknown else { panic!("{unknown}") };
        assert_eq!((*code, reason.as_str()), (NO_SUCH_SERVICE, "it has no service `c`"));
        client(&address, key, "odd").await.closed().await;
        assert_eq!((ask(&a).await, ask(&b).await), ("a".into(), "b".into()));
        // A listener that is closed serves those whom it has accepted, to their ends.
        listener.close();
        assert_eq!(ask(&a).await, "a");
        for connection in [a, b, none] {
            connection.close(0, "done").await;
        }
        serving.await.expect("served");
    })
    .await;
}
