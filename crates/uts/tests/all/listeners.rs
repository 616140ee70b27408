//! Listeners: what they promise of connections that wait, of limits, and of their end; and sockets
//! of clients.

use crate::common::{futures_now, identity, server, within};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{
    CloseReason, ConnectError, ConnectOptions, Connection, Endpoint, FlowOptions, Identity, ListenError,
    Listener, RefusedClient, ServerOptions, connect,
};

/// Reason why this attempt ended: at once, or just after it was taken for established.
async fn refusal(target: &str, options: ConnectOptions) -> Option<String> {
    match within(connect(target, options)).await {
        Err(error) => Some(error.to_string()),
        Ok(connection) => match tokio::time::timeout(Duration::from_secs(2), connection.closed()).await {
            Ok(reason) => Some(reason.to_string()),
            Err(_) => None,
        },
    }
}

fn impatient(fingerprint: uts::Fingerprint) -> ConnectOptions {
    let mut options = ConnectOptions::pinned(fingerprint);
    options.connection.handshake_timeout = Duration::from_secs(2);
    options
}

/// A connection that nobody has accepted is told that nobody will, however the listener goes.
#[tokio::test]
async fn connections_that_wait_are_closed_with_the_listener() {
    for is_dropped in [false, true] {
        let (listener, target) = server(ServerOptions::new(identity()));
        let mut clients = Vec::new();
        for _ in 0..3 {
            let options = ConnectOptions::pinned(listener.fingerprint());
            let client = within(connect(&target, options)).await.expect("connected");
            // Acknowledged: the handshake is done at the server, too.
            let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
            flow.write_all(b"waits").await.expect("written");
            within(flow.send_half().finished()).await.expect("delivered");
            clients.push(client);
        }
        let kept = match is_dropped {
            true => {
                drop(listener);
                None
            }
            false => {
                listener.close();
                Some(listener)
            }
        };
        for client in clients {
            let reason = within(client.closed()).await;
            assert_eq!(reason, CloseReason::Peer { code: 0, reason: "the server is closing".into() });
        }
        if let Some(listener) = kept {
            assert!(within(listener.accept()).await.is_none());
            assert!(within(listener.accept()).await.is_none(), "it stays closed");
            listener.close();
        }
    }
}

/// Of connections there are as many as the server says, and one more when one has gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_as_many_connections_as_a_server_takes() {
    let limits: [fn(&mut ServerOptions); 2] =
        [|options| options.connections_max = 2, |options| options.connections_per_address_max = 2];
    for limit in limits {
        let mut options = ServerOptions::new(identity());
        limit(&mut options);
        let (listener, target) = server(options);
        let options = || impatient(listener.fingerprint());
        let mut held = Vec::new();
        for _ in 0..2 {
            let client = within(connect(&target, options())).await.expect("connected");
            // Who has nothing under way makes room for others.
            let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
            flow.write_all(b"asks").await.expect("written");
            let server = within(listener.accept()).await.expect("accepted");
            let asked = within(server.accept_flow()).await.expect("asked");
            held.push((client, server, flow, asked));
        }
        let why = refusal(&target, options()).await.expect("no third is taken");
        assert!(why.contains("connections"), "{why}");
        drop(held.pop());
        // The server forgets the old one when it has heard of its end.
        within(async { while refusal(&target, options()).await.is_some() {} }).await;
        assert_eq!(held.len(), 1);
    }
}

/// One key has as many connections as it may, and the server hears which client wanted more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_as_many_connections_as_it_may() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, one, other) = (dir.path().join("keys"), identity(), identity());
    std::fs::write(&file, format!("{}\n{}\n", one.fingerprint(), other.fingerprint())).expect("written");
    let refused: Arc<Mutex<Vec<RefusedClient>>> = Arc::default();
    let told = refused.clone();
    let mut options = ServerOptions::new(identity())
        .authorized_keys(&file)
        .on_refused(move |client| told.lock().expect("no panic").push(client.clone()));
    options.connections_per_key_max = 1;
    let (listener, target) = server(options);
    let options = |who: &Identity| impatient(listener.fingerprint()).identity(who.clone());
    let client = within(connect(&target, options(&one))).await.expect("connected");
    let accepted = within(listener.accept()).await.expect("accepted");
    let why = refusal(&target, options(&one)).await.expect("no second of this key");
    assert!(why.contains("connections"), "{why}");
    let told = refused.lock().expect("no panic").clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].fingerprint, Some(one.fingerprint()));
    assert!(told[0].address.ip().is_loopback() && told[0].address.port() != 0, "{told:?}");
    let _other = within(connect(&target, options(&other))).await.expect("another key has its own");
    let second = within(listener.accept()).await.expect("accepted");
    assert_eq!(second.peer_fingerprint(), Some(other.fingerprint()));
    drop((client, accepted));
    within(async { while refusal(&target, options(&one)).await.is_some() {} }).await;
}

#[tokio::test]
async fn what_a_listener_cannot_have_is_told_when_it_is_made() {
    let dir = tempfile::tempdir().expect("a folder");
    let absent = dir.path().join("absent");
    let any = "127.0.0.1:0".parse().expect("an address");
    let error =
        Listener::bind(any, ServerOptions::new(identity()).authorized_keys(&absent)).expect_err("no file");
    assert!(matches!(&error, ListenError::ClientAuth(_)) && error.to_string().contains("absent"), "{error}");
    let elsewhere = "192.0.2.1:4433".parse().expect("an address");
    let error =
        Listener::bind(elsewhere, ServerOptions::new(identity())).expect_err("not an address of this host");
    assert!(matches!(&error, ListenError::Bind { .. }), "{error}");
    assert!(error.to_string().contains("192.0.2.1:4433"), "{error}");
}

/// Without a runtime, the call says so, and nothing panics.
#[test]
fn without_a_runtime_there_is_an_error() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let error = Listener::bind(any, ServerOptions::new(identity())).expect_err("no runtime");
    assert!(matches!(error, ListenError::Bind { .. }), "{error}");
    assert!(Endpoint::client(any).is_err());
    let options = ConnectOptions::pinned(identity().fingerprint());
    let connected = futures_now(connect("127.0.0.1:9", options));
    assert!(matches!(connected, Some(Err(ConnectError::Socket { .. }))), "{connected:?}");
}

/// Sends a word and hears it.
async fn speak(from: &Connection, to: &Connection) {
    let mut flow = from.open_flow(FlowOptions::default()).await.expect("opened");
    flow.write_all(b"word").await.expect("written");
    flow.finish().expect("finished");
    let mut heard = String::new();
    let mut accepted = within(to.accept_flow()).await.expect("accepted");
    within(accepted.read_to_string(&mut heard)).await.expect("read");
    assert_eq!(heard, "word");
}

/// An endpoint reaches servers of its own address family, and its connections need only themselves.
#[tokio::test]
async fn connections_outlive_the_endpoint_that_opened_them() {
    let (listener, target) = server(ServerOptions::new(identity()));
    let options = || ConnectOptions::pinned(listener.fingerprint());
    let endpoint = Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let first = within(endpoint.connect(&target, options())).await.expect("connected");
    let second = within(endpoint.connect(&target, options())).await.expect("connected");
    assert_eq!((first.local_addr(), second.local_addr()), (endpoint.local_addr(), endpoint.local_addr()));
    let other = within(endpoint.connect("[::1]:4433", options())).await;
    assert!(other.is_err(), "an IPv6 server from an IPv4 socket");
    drop(endpoint);
    let (one, two) = (within(listener.accept()).await, within(listener.accept()).await);
    let servers = [one.expect("accepted"), two.expect("accepted")];
    for client in [first, second] {
        let at = Some(client.local_addr());
        let server = servers.iter().find(|server| server.remote_addr() == at);
        // Both come from one socket: which of the two it is, its flow tells.
        assert!(server.is_some(), "{at:?}");
        let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
        flow.write_all(b"still").await.expect("written");
        within(flow.send_half().finished()).await.expect("delivered");
    }
}

/// Connections from before a listener was closed go on both ways.
#[tokio::test]
async fn accepted_connections_outlive_their_listener() {
    let (listener, target) = server(ServerOptions::new(identity()));
    let client =
        within(connect(&target, ConnectOptions::pinned(listener.fingerprint()))).await.expect("connected");
    let server = within(listener.accept()).await.expect("accepted");
    drop(listener);
    speak(&client, &server).await;
    speak(&server, &client).await;
}

/// True if a server lets this client in: what it says is heard by its peer.
async fn is_let_in(target: &str, options: ConnectOptions) -> bool {
    refusal(target, options).await.is_none()
}

/// The file of keys is read again when it has changed. A file that cannot be understood lets nobody
/// in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_to_authorized_keys_count_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, one, other) = (dir.path().join("keys"), identity(), identity());
    let write = |text: String| std::fs::write(&file, text).expect("written");
    write(format!("{}\n", one.fingerprint()));
    let refused: Arc<Mutex<Vec<RefusedClient>>> = Arc::default();
    let told = refused.clone();
    let options = ServerOptions::new(identity())
        .authorized_keys(&file)
        .on_refused(move |client| told.lock().expect("no panic").push(client.clone()));
    let (listener, target) = server(options);
    let options = |who: &Identity| impatient(listener.fingerprint()).identity(who.clone());
    assert!(is_let_in(&target, options(&one)).await && !is_let_in(&target, options(&other)).await);
    write(format!("{}\n", other.fingerprint()));
    assert!(!is_let_in(&target, options(&one)).await && is_let_in(&target, options(&other)).await);
    write("damaged\n".to_owned());
    assert!(!is_let_in(&target, options(&other)).await);
    let last = refused.lock().expect("no panic").last().expect("told").clone();
    assert!(last.why.contains("line 1") && last.address.ip().is_loopback(), "{last:?}");
    std::fs::remove_file(&file).expect("removed");
    assert!(!is_let_in(&target, options(&other)).await);
}

/// Limits and the file of keys may be others while the listener listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_the_file_of_keys_change_while_it_listens() {
    let dir = tempfile::tempdir().expect("a folder");
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    let (one, other) = (identity(), identity());
    std::fs::write(&first, format!("{}\n", one.fingerprint())).expect("written");
    std::fs::write(&second, format!("{}\n{}\n", one.fingerprint(), other.fingerprint())).expect("written");
    let mut options = ServerOptions::new(identity()).authorized_keys(&first);
    options.connections_per_address_max = 1;
    options.connections_per_key_max = 1;
    let (listener, target) = server(options);
    let options = |who: &Identity| impatient(listener.fingerprint()).identity(who.clone());
    let client = within(connect(&target, options(&one))).await.expect("connected");
    let accepted = within(listener.accept()).await.expect("accepted");
    // Who has nothing under way makes room for others.
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    flow.write_all(b"asks").await.expect("written");
    let _asked = within(accepted.accept_flow()).await.expect("asked");
    assert!(refusal(&target, options(&other)).await.is_some());
    let why = refusal(&target, options(&one)).await.expect("no second from its address");
    assert!(!why.contains("the key") && listener.refused() > 0, "{why} {}", listener.refused());
    listener.set_limits(100, 100, 1);
    let why = refusal(&target, options(&one)).await.expect("a second of its key");
    assert!(why.contains("the key"), "{why}");
    assert!(!is_let_in(&target, options(&other)).await, "its key is not in the first file");
    listener.set_limits(100, 100, 100);
    listener.set_authorized_keys(&second).expect("a file of keys");
    assert!(is_let_in(&target, options(&one)).await && is_let_in(&target, options(&other)).await);
    listener.set_authorized_keys(dir.path().join("absent")).expect_err("no file");
    assert!(is_let_in(&target, options(&other)).await, "the file before stays");
}

/// Any of the keys that were pinned will do, and none is none.
#[tokio::test]
async fn any_pinned_key_will_do() {
    let (listener, target) = server(ServerOptions::new(identity()));
    let several = uts::Trust::Pin(vec![identity().fingerprint(), listener.fingerprint()]);
    within(connect(&target, ConnectOptions::new(several))).await.expect("one of them");
    let error =
        within(connect(&target, ConnectOptions::new(uts::Trust::Pin(Vec::new())))).await.expect_err("none");
    assert!(error.to_string().contains("pinned is none"), "{error}");
}

/// A socket that is bound already, as a service manager hands it over, is listened at as it is.
#[tokio::test]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a socket of the system")]
async fn a_socket_that_is_bound_already_is_listened_at() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let addr = socket.local_addr().expect("an address");
    let listener = Listener::from_socket(socket, ServerOptions::new(identity())).expect("listening");
    assert_eq!(listener.local_addr(), addr);
    let options = ConnectOptions::pinned(listener.fingerprint());
    let target = addr.to_string();
    let (client, accepted) =
        within(async { tokio::join!(connect(&target, options), listener.accept()) }).await;
    assert_eq!(client.expect("connected").remote_addr(), Some(addr));
    assert!(accepted.is_some());
}

/// A key that is taken out of the file loses its connections within seconds. Others keep theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_taken_out_loses_its_connections() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, one, other) = (dir.path().join("keys"), identity(), identity());
    std::fs::write(&file, format!("{}\n{}\n", one.fingerprint(), other.fingerprint())).expect("written");
    let (listener, target) = server(ServerOptions::new(identity()).authorized_keys(&file));
    let options = |who: &Identity| ConnectOptions::pinned(listener.fingerprint()).identity(who.clone());
    let mut ends = Vec::new();
    for who in [&one, &other] {
        let client = within(connect(&target, options(who))).await.expect("connected");
        ends.push((client, within(listener.accept()).await.expect("accepted")));
    }
    std::fs::write(&file, format!("{}\n", other.fingerprint())).expect("written");
    let why = within(ends[0].0.closed()).await.to_string();
    assert!(why.contains("its key may not connect any more"), "{why}");
    speak(&ends[1].0, &ends[1].1).await;
    // A file that is damaged ends nothing.
    std::fs::write(&file, "nonsense").expect("written");
    tokio::time::sleep(Duration::from_secs(5)).await;
    speak(&ends[1].0, &ends[1].1).await;
}

/// Passes datagrams on to a server, until it is dropped: then its client has been killed.
async fn wire(target: &str) -> (String, tokio::task::JoinHandle<()>) {
    let near = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("bound");
    let far = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("bound");
    far.connect(target).await.expect("connected");
    let address = near.local_addr().expect("bound").to_string();
    let passing = tokio::spawn(async move {
        let (mut out, mut back) = ([0; 2048], [0; 2048]);
        let mut client = None;
        loop {
            tokio::select! {
                Ok((bytes, from)) = near.recv_from(&mut out) => {
                    client = Some(from);
                    let _ = far.send(&out[..bytes]).await;
                }
                Ok(bytes) = far.recv(&mut back) => {
                    if let Some(client) = client {
                        let _ = near.send_to(&back[..bytes], client).await;
                    }
                }
            }
        }
    });
    (address, passing)
}

/// Connections of a client that was killed are in the way of none of its next ones; those of one
/// that lives are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_was_killed_is_not_kept_out_by_itself() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, one) = (dir.path().join("keys"), identity());
    std::fs::write(&file, format!("{}\n", one.fingerprint())).expect("written");
    let mut options = ServerOptions::new(identity()).authorized_keys(&file);
    options.connections_per_key_max = 2;
    options.connection.idle_timeout = Duration::from_secs(600);
    let (listener, target) = server(options);
    let options = || ConnectOptions::pinned(listener.fingerprint()).identity(one.clone());
    let (through, passing) = wire(&target).await;
    let mut dead = Vec::new();
    for _ in 0..2 {
        // Each has a wire of its own, for a wire knows one client.
        let (through, passing) = if dead.is_empty() {
            (through.clone(), None)
        } else {
            let (through, passing) = wire(&target).await;
            (through, Some(passing))
        };
        let client = within(connect(&through, options())).await.expect("connected");
        let server = within(listener.accept()).await.expect("accepted");
        speak(&client, &server).await;
        dead.push((client, server, passing));
    }
    passing.abort();
    dead.iter().flat_map(|(.., passing)| passing).for_each(|passing| passing.abort());
    let mut alive = Vec::new();
    for _ in 0..2 {
        let client = within(connect(&target, options())).await.expect("connected");
        let server = within(listener.accept()).await.expect("its place is free");
        speak(&client, &server).await;
        alive.push((client, server));
    }
    let why = refusal(&target, options()).await.expect("these two live");
    assert!(why.contains("2 connections"), "{why}");
    speak(&alive[0].0, &alive[0].1).await;
}

/// A peer's demands in a protocol of applications change nothing that is owed to others.
#[tokio::test]
async fn a_peer_asks_for_nothing_that_is_owed_to_others() {
    let mut options = ServerOptions::new(identity());
    options.connection.requirements.assign("maxSendRate=8Mbit/s").expect("a property");
    let (listener, target) = server(options);
    let client = within(connect(&target, ConnectOptions::pinned(listener.fingerprint()))).await;
    let client = client.expect("connected");
    let server = within(listener.accept()).await.expect("accepted");
    speak(&client, &server).await;
    let before = server.requirements();
    for (name, value) in [
        ("congestionControl", "prohibit"),
        (" congestionControl", "avoid"),
        ("uts.profile.congestion", "none"),
        (" uts.profile", "datagram"),
        ("uts.consent", "all"),
        ("minSendRate", "1Gbit/s"),
        ("keepAliveTimeout", "1us"),
        ("connTimeout", "1us"),
    ] {
        let refused = server.set_property_for_peer(name, value).expect_err(name).to_string();
        assert!(refused.contains("for each end to choose"), "{refused}");
        assert_eq!(server.requirements(), before, "{name}={value}");
    }
    for (asked, kept) in [("1Mbit/s", "1"), ("100Mbit/s", "8"), ("unlimited", "8")] {
        server.set_property_for_peer("maxSendRate", asked).expect("a bound of its own");
        let rate = server.requirements().max_send_rate.expect("a rate").bits_per_sec();
        assert_eq!(rate.to_string(), format!("{kept}000000"), "{asked}");
    }
    server.set_property_for_peer("connCapacityProfile", "scavenger").expect("it yields more");
}

/// Keys that are given to a listener are in no file, and no others are let in.
#[tokio::test]
async fn keys_that_are_given_are_let_in_and_no_others() {
    let (one, other) = (identity(), identity());
    let mut options = ServerOptions::new(identity());
    options.client_auth = uts::ClientAuth::Keys(uts::AuthorizedKeys::from_iter([one.fingerprint()]));
    let (listener, target) = server(options);
    let options = |who: &Identity| impatient(listener.fingerprint()).identity(who.clone());
    assert!(is_let_in(&target, options(&one)).await && !is_let_in(&target, options(&other)).await);
    assert!(!is_let_in(&target, impatient(listener.fingerprint())).await, "no key");
}
