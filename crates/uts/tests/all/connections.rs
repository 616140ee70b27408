//! Connections over real sockets: which peers are trusted, which are let in, and how connections
//! end.

use crate::common::{identity, pair, pair_with, pattern, server, within};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{
    CloseReason, ConnectError, ConnectOptions, ConnectionEvent, Direction, Endpoint, ExchangeEvent,
    FlowOptions, Function, Identity, KnownHosts, NewHost, ServerOptions, Trust, TrustError, connect,
};

#[tokio::test]
async fn a_key_that_was_not_pinned_is_refused_by_name() {
    let (listener, target) = server(ServerOptions::new(identity()));
    let other = identity().fingerprint();
    let error = within(connect(&target, ConnectOptions::pinned(other))).await.expect_err("refused");
    assert!(matches!(error, ConnectError::Untrusted(TrustError::NotPinned { .. })), "{error:?}");
    let text = error.to_string();
    for part in [listener.fingerprint().to_string(), other.to_string(), target] {
        assert!(text.contains(&part), "{text} lacks {part}");
    }
    assert!(tokio::time::timeout(Duration::from_millis(50), listener.accept()).await.is_err());
}

/// However soon the end comes after the beginning, the connecting end hears of it. With several
/// threads, the handshake may be over before the task that asked for it runs on.
#[test]
fn a_refused_key_is_told_every_time() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let serving = runtime();
    let (_listener, target) = serving.block_on(async { server(ServerOptions::new(identity())) });
    for _ in 0..60 {
        let options = ConnectOptions::pinned(identity().fingerprint());
        let refused = runtime().block_on(async { within(connect(&target, options)).await });
        let error = refused.map(|_| ()).expect_err("refused");
        assert!(matches!(error, ConnectError::Untrusted(TrustError::NotPinned { .. })), "{error:?}");
    }
}

#[tokio::test]
async fn ends_know_each_other_by_their_keys() {
    let (listener, target) = server(ServerOptions::new(identity()));
    let options = ConnectOptions::pinned(listener.fingerprint());
    let client = within(connect(&target, options)).await.expect("connected");
    assert_eq!(client.peer_fingerprint(), Some(listener.fingerprint()));
    assert_eq!(client.remote_addr(), Some(listener.local_addr()));
    let accepted = within(listener.accept()).await.expect("accepted");
    assert_eq!(accepted.peer_fingerprint(), None, "it was not asked");
    assert_eq!(accepted.remote_addr().map(|a| a.port()), Some(client.local_addr().port()));
}

#[tokio::test]
async fn a_host_is_asked_about_once_and_a_changed_key_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("known_hosts");
    let (listener, target) = server(ServerOptions::new(identity()));
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, found) = (asked.clone(), listener.fingerprint());
    let answer = |answer: bool| {
        let count = count.clone();
        NewHost::Ask(Arc::new(move |key| {
            assert_eq!(key.fingerprint, found);
            count.fetch_add(1, Ordering::SeqCst);
            answer
        }))
    };
    let options = |on_new| ConnectOptions::new(Trust::KnownHosts { file: file.clone(), on_new });

    let error = within(connect(&target, options(NewHost::Refuse))).await.expect_err("refused");
    assert!(matches!(error, ConnectError::Untrusted(TrustError::NewHost { .. })), "{error}");
    let error = within(connect(&target, options(answer(false)))).await.expect_err("refused");
    assert!(matches!(error, ConnectError::Untrusted(TrustError::Declined { .. })), "{error}");
    assert!(!file.exists(), "nothing was accepted");
    within(connect(&target, options(answer(true)))).await.expect("connected");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    within(connect(&target, options(NewHost::Refuse))).await.expect("it is known now");

    // Another server at the same address.
    let changed = identity().fingerprint();
    std::fs::write(&file, format!("# known\n{target} {changed}\n")).expect("written");
    let error = within(connect(&target, options(answer(true)))).await.expect_err("refused");
    assert!(matches!(error, ConnectError::Untrusted(TrustError::Changed { line: 2, .. })), "{error:?}");
    let text = error.to_string();
    for part in [&changed.to_string(), &found.to_string(), &target, "known_hosts", "line 2"] {
        assert!(text.contains(part), "{text} lacks {part}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2, "a changed key is no question");

    let (listener, target) = server(ServerOptions::new(identity()));
    within(connect(&target, options(NewHost::Accept))).await.expect("connected");
    let known = KnownHosts::load(&file).expect("read");
    assert!(known.of(&target).any(|entry| entry.fingerprint == listener.fingerprint()));
}

#[tokio::test]
async fn a_server_lets_in_whose_keys_it_knows() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("authorized_keys");
    let (friend, stranger) = (identity(), identity());
    std::fs::write(&file, format!("{} a friend\n", friend.fingerprint())).expect("written");
    let refused = Arc::new(Mutex::new(Vec::new()));
    let told = refused.clone();
    let options = ServerOptions::new(identity())
        .authorized_keys(&file)
        .on_refused(move |client| told.lock().expect("no panic").push(client.clone()));
    let (listener, target) = server(options);
    let options = |who: Option<&Identity>| ConnectOptions {
        identity: who.cloned(),
        ..ConnectOptions::pinned(listener.fingerprint())
    };

    let client = within(connect(&target, options(Some(&friend)))).await.expect("connected");
    let accepted = within(listener.accept()).await.expect("accepted");
    assert_eq!(accepted.peer_fingerprint(), Some(friend.fingerprint()));
    drop(client);

    // The server's verdict may come after the client took the connection for established.
    for who in [Some(&stranger), None] {
        let why = match within(connect(&target, options(who))).await {
            Ok(connection) => within(connection.closed()).await.to_string(),
            Err(error) => error.to_string(),
        };
        match who {
            Some(who) => assert!(why.contains(&who.fingerprint().to_string()), "{why}"),
            None => assert!(why.contains("a client key is required"), "{why}"),
        }
    }
    let refused = refused.lock().expect("no panic").clone();
    assert_eq!(refused.len(), 2, "{refused:?}");
    let (with_key, without): (Vec<_>, Vec<_>) =
        refused.iter().partition(|client| client.fingerprint.is_some());
    assert_eq!(with_key[0].fingerprint, Some(stranger.fingerprint()));
    assert!(with_key[0].why.contains(&stranger.fingerprint().to_string()), "{}", with_key[0].why);
    assert!(without[0].why.contains("no certificates"), "{}", without[0].why);
    assert!(tokio::time::timeout(Duration::from_millis(50), listener.accept()).await.is_err());
}

/// A root, and a certificate of it for a name, as files.
fn certificates(dir: &std::path::Path, name: &str) -> (std::path::PathBuf, Identity) {
    use std::os::unix::fs::PermissionsExt;
    let root_key = rcgen::KeyPair::generate().expect("a key");
    let mut root = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    root.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root_certificate = root.self_signed(&root_key).expect("signed");
    let issuer = rcgen::Issuer::new(root, root_key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &issuer).expect("signed");
    let file = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
        path
    };
    let (chain, key) = (file("chain.pem", certificate.pem()), file("key.pem", key.serialize_pem()));
    let identity = Identity::from_pem_files(&chain, &key).expect("they belong together");
    (file("root.pem", root_certificate.pem()), identity)
}

#[tokio::test]
async fn certificates_are_checked_against_roots_and_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let (root, good) = certificates(dir.path(), "localhost");
    let (listener, target) = server(ServerOptions::new(good));
    let port = listener.local_addr().port();
    let options = ConnectOptions::new(Trust::Roots(root));
    within(connect(&format!("localhost:{port}"), options.clone())).await.expect("it names the host");
    let error = within(connect(&target, options.clone())).await.expect_err("another name");
    assert!(matches!(error, ConnectError::Untrusted(TrustError::Certificate { .. })), "{error:?}");
    let (_unknown, target) = server(ServerOptions::new(identity()));
    let error = within(connect(&target, options)).await.expect_err("nobody vouches for it");
    assert!(matches!(error, ConnectError::Untrusted(TrustError::Certificate { .. })), "{error:?}");
    let options = ConnectOptions::new(Trust::Roots(dir.path().join("absent.pem")));
    let error = within(connect(&target, options)).await.expect_err("no roots").to_string();
    assert!(error.contains("absent.pem"), "{error}");
}

#[tokio::test]
async fn where_nobody_is_the_error_says_so() {
    let closed = std::net::SocketAddr::from(([127, 0, 0, 1], {
        let (listener, _) = server(ServerOptions::new(identity()));
        listener.local_addr().port()
    }));
    // The listener's task ends soon after it was dropped.
    let gone = within(async {
        loop {
            match uts::Listener::bind(closed, ServerOptions::new(identity())) {
                Ok(listener) => return drop(listener),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    });
    gone.await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let options = ConnectOptions::pinned(identity().fingerprint());
    let error = within(connect(&closed.to_string(), options.clone())).await.expect_err("nobody");
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("is the server running?"), "{error}");

    // Somebody who never answers.
    let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("bound");
    let mut patient = options.clone();
    patient.connection.handshake_timeout = Duration::from_millis(300);
    let target = silent.local_addr().expect("bound").to_string();
    let error = within(connect(&target, patient)).await.expect_err("nobody");
    assert!(matches!(error, ConnectError::NoAnswer { .. }), "{error:?}");

    let error = within(connect("no-such-host.invalid:1", options.clone())).await.expect_err("no such host");
    assert!(matches!(error, ConnectError::NoSuchHost { .. }), "{error:?}");
    assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
    assert!(matches!(connect("localhost", options).await, Err(ConnectError::Address { .. })));
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let (listener, _) = server(ServerOptions::new(identity()));
    let error =
        uts::Listener::bind(listener.local_addr(), ServerOptions::new(identity())).expect_err("in use");
    assert!(error.to_string().contains(&listener.local_addr().to_string()), "{error}");
}

#[tokio::test]
async fn a_silent_peer_is_given_up() {
    // The server's whole runtime goes away without a farewell.
    let (sender, receiver) = std::sync::mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (listener, target) = server(ServerOptions::new(identity()));
            sender.send((target, listener.fingerprint())).expect("sent");
            let connection = listener.accept().await;
            let _ = stopped.await;
            std::mem::forget((listener, connection));
        });
    });
    let (target, fingerprint) =
        tokio::task::spawn_blocking(move || receiver.recv()).await.expect("ran").expect("sent");
    let mut options = ConnectOptions::pinned(fingerprint);
    options.connection.idle_timeout = Duration::from_millis(400);
    let client = within(connect(&target, options)).await.expect("connected");
    let _ = stop.send(());
    let reason = within(client.closed()).await;
    assert!(matches!(reason, CloseReason::IdleTimeout(_)), "{reason:?}");
    thread.join().expect("ended");
}

#[tokio::test]
async fn keep_alives_keep_an_idle_connection() {
    let (_listener, client, _server) = pair_with(|config| {
        config.idle_timeout = Duration::from_millis(500);
        config.keep_alive = Duration::from_millis(50);
    })
    .await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(client.close_reason(), None);
}

#[tokio::test]
async fn the_last_handle_closes() {
    let (_listener, client, server) = pair().await;
    let flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    let (again, watch) = (client.clone(), server.clone());
    drop(client);
    drop(again);
    assert!(tokio::time::timeout(Duration::from_millis(50), watch.closed()).await.is_err(), "a flow is held");
    drop(flow);
    let reason = within(server.closed()).await;
    assert_eq!(reason, CloseReason::Peer { code: 0, reason: String::new() });
}

#[tokio::test]
async fn a_closed_listener_leaves_its_connections_alone() {
    let (listener, client, server) = pair().await;
    listener.close();
    assert!(within(listener.accept()).await.is_none());
    let mut options = ConnectOptions::pinned(listener.fingerprint());
    options.connection.handshake_timeout = Duration::from_millis(500);
    let refused = within(connect(&listener.local_addr().to_string(), options)).await;
    assert!(refused.is_err(), "no more are accepted");
    drop(listener);
    let mut flow = client.open_flow(FlowOptions::default()).await.expect("opened");
    flow.write_all(b"still here").await.expect("written");
    flow.shutdown().await.expect("finished");
    let mut text = String::new();
    let mut flow = within(server.accept_flow()).await.expect("accepted");
    within(flow.read_to_string(&mut text)).await.expect("read");
    assert_eq!(text, "still here");
}

#[tokio::test]
async fn a_dropped_listener_frees_its_port_when_its_connections_are_over() {
    let (listener, client, server) = pair().await;
    let addr = listener.local_addr();
    drop(listener);
    within(client.close(1, "bye")).await;
    within(server.closed()).await;
    drop((client, server));
    within(async {
        while tokio::net::UdpSocket::bind(addr).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connections_to_one_listener_from_one_socket_and_from_many() {
    let (listener, target) = server(ServerOptions::new(identity()));
    let fingerprint = listener.fingerprint();
    let serving = tokio::spawn(async move {
        for _ in 0..40 {
            let connection = listener.accept().await.expect("accepted");
            tokio::spawn(async move {
                while let Some(flow) = connection.accept_flow().await {
                    let (mut send, mut recv) = flow.split();
                    tokio::io::copy(&mut recv, &mut send).await.expect("echoed");
                    send.finished().await.expect("delivered");
                }
            });
        }
        listener
    });
    let endpoint = Arc::new(Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("bound"));
    let clients: Vec<_> = (0..40u64)
        .map(|n| {
            let (endpoint, target) = (endpoint.clone(), target.clone());
            tokio::spawn(async move {
                let options = ConnectOptions::pinned(fingerprint);
                let connection = match n % 2 {
                    0 => connect(&target, options).await,
                    _ => endpoint.connect(&target, options).await,
                };
                let connection = connection.expect("connected");
                let data = crate::common::pattern(20_000, n);
                let (mut send, mut recv) =
                    connection.open_flow(FlowOptions::default()).await.expect("opened").split();
                send.write_all(&data).await.expect("written");
                send.shutdown().await.expect("finished");
                let mut echo = Vec::new();
                recv.read_to_end(&mut echo).await.expect("read");
                assert!(echo == data);
                connection.close(0, "").await;
            })
        })
        .collect();
    for client in clients {
        within(client).await.expect("echoed");
    }
    within(serving).await.expect("served");
}

#[tokio::test]
async fn a_profile_is_exchanged_and_both_ends_are_told() {
    let (_listener, client, server) = pair().await;
    let (mut here, mut there) = (client.events(), server.events());
    let profile = client.profile(Direction::Out).expect("connected");
    let wanted = profile.with_named(Function::Congestion, "new-reno").expect("known");
    let wanted = match wanted == profile {
        false => wanted,
        true => profile.with_named(Function::Congestion, "cubic").expect("known"),
    };
    let epoch = client.request_profile(Direction::Out, wanted).expect("asked");
    within(async {
        loop {
            match here.next().await.expect("not closed") {
                ConnectionEvent::Exchange(step)
                    if matches!(*step, ExchangeEvent::Completed { epoch: done, .. } if done == epoch) =>
                {
                    break;
                }
                _ => {}
            }
        }
        loop {
            match there.next().await.expect("not closed") {
                ConnectionEvent::Exchange(step)
                    if matches!(*step, ExchangeEvent::Granted { epoch: done, .. } if done == epoch) =>
                {
                    break;
                }
                _ => {}
            }
        }
    })
    .await;
    assert_eq!(client.profile(Direction::Out), Some(wanted));
    assert_eq!(server.profile(Direction::In), Some(wanted));
}

#[tokio::test]
async fn events_end_with_the_connection_at_both_ends() {
    let (_listener, client, server) = pair().await;
    let (mut here, mut there) = (client.events(), server.events());
    client.close(7, "enough").await;
    for events in [&mut here, &mut there] {
        within(async {
            let mut last = None;
            // The handles stay alive meanwhile.
            while let Some(event) = events.next().await {
                last = Some(event);
            }
            assert!(matches!(last, Some(ConnectionEvent::Closed(_))), "{last:?}");
        })
        .await;
    }
    // A caller that asks afterwards hears of the end, and that it is the end.
    let mut late = server.events();
    assert!(matches!(within(late.next()).await, Some(ConnectionEvent::Closed(_))));
    assert_eq!(within(late.next()).await, None);
}

#[tokio::test]
async fn properties_are_set_by_name_or_refused_by_name() {
    let (_listener, client, _server) = pair().await;
    client.set_property("connCapacityProfile", "capacity-seeking").expect("known");
    let error =
        client.set_property("conCapacityProfile", "capacity-seeking").expect_err("misspelt").to_string();
    assert!(error.contains("connCapacityProfile"), "{error}");
    let error = client.set_property("reliability", "perhaps").expect_err("no value").to_string();
    assert!(error.contains("perhaps"), "{error}");
}

/// When a runtime ends, nobody that waits on another one waits for ever.
#[test]
fn the_end_of_a_runtime_is_the_end_of_its_connections() {
    let build = || {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
    };
    let (ours, theirs) = (build(), build());
    let (_listener, client, _server) = theirs.block_on(pair());
    let waits = ours.spawn(async move { client.closed().await });
    theirs.shutdown_background();
    let reason = ours.block_on(within(waits)).expect("ran");
    assert!(matches!(reason, CloseReason::Local { .. }), "{reason:?}");
}

/// A host has many addresses: what answers a client comes from the one that the client has asked.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_answers_from_the_address_that_was_asked() {
    for any in ["0.0.0.0:0", "[::]:0"] {
        let options = ServerOptions::new(identity());
        let listener = match uts::Listener::bind(any.parse().expect("an address"), options) {
            Ok(listener) => listener,
            Err(error) => {
                println!("SKIPPED {any}: {error}");
                continue;
            }
        };
        // The system would answer from 127.0.0.1, and the client's socket takes nothing from there.
        for asked in ["127.0.0.3", "127.0.0.2", "127.0.0.1"] {
            let target = format!("{asked}:{}", listener.local_addr().port());
            let pinned = ConnectOptions::pinned(listener.fingerprint());
            let (client, server) =
                within(async { tokio::join!(connect(&target, pinned), listener.accept()) }).await;
            let (client, server) = (client.unwrap_or_else(|e| panic!("{any} at {target}: {e}")), server);
            let server = server.expect("accepted");
            let flow = client.open_flow(FlowOptions::default()).await.expect("opened");
            // More than one batch, so that segmentation offload has its turn.
            let data = pattern(1_000_000, 3);
            let sent = data.clone();
            let echo = tokio::spawn(async move {
                let (mut send, mut recv) = server.accept_flow().await.expect("accepted").split();
                tokio::io::copy(&mut recv, &mut send).await.expect("echoed");
                send.finished().await.expect("delivered");
            });
            let (mut send, mut recv) = flow.split();
            let mut received = Vec::new();
            let write = async {
                send.write_bytes(sent.into()).await.expect("written");
                send.finished().await.expect("delivered");
            };
            within(async { tokio::join!(write, recv.read_to_end(&mut received)) }).await.1.expect("read");
            assert!(received == data, "{} bytes", received.len());
            within(echo).await.expect("echoed");
        }
    }
}
