//! Conduct of strangers towards the program: what they say, what they write, how many they are.

use crate::common::{Place, Running};
use rustix::process::Signal;
use std::fs;
use uts::{ConnectOptions, Connection, Identity, Listener, ServerOptions};

/// A text that sets the title, clears the screen, forges a line and turns the direction of text. It
/// shows if it is printed as it is.
const HOSTILE: &str =
    "\u{1b}]0;pwned\u{7}\u{1b}[2J\r\nuts: connected as admin\u{9b}31m\u{202e}\u{2028}\u{7f}";

/// All that stands in `text` shows as itself.
#[track_caller]
fn is_harmless(text: &str) {
    assert!(text.chars().all(|c| c == '\n' || uts::printable::is_plain(c)), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("uts: connected as admin")), "{text}");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Ends a server and gives all that it has written.
fn ended(running: Running) -> String {
    running.signal(Signal::TERM);
    let ended = running.wait().ok();
    format!("{}\n{}", ended.out.join("\n"), ended.err)
}

#[test]
fn words_of_a_server_are_shown_and_not_obeyed() {
    let place = Place::new();
    let file = place.write("a", b"content");
    let runtime = runtime();
    let identity = Identity::generate().expect("a key");
    let pin = identity.fingerprint().to_string();
    let _inside = runtime.enter();
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), ServerOptions::new(identity)).expect("bound");
    let url = format!("uts://{}/a", listener.local_addr());
    runtime.spawn(async move {
        while let Some(connection) = listener.accept().await {
            connection.close(7, HOSTILE).await;
        }
    });
    for option in ["--json", "--quiet", "--no-adapt"] {
        let ended = place.run(&["cp", option, "--pin", &pin, &file, &url]);
        assert_eq!(ended.status, 1, "{option}: {:?} {}", ended.out, ended.err);
        assert!(ended.err.contains(r"\u{1b}[2J\r\nuts: connected as admin\u{9b}31m"), "{}", ended.err);
        is_harmless(&ended.err);
        is_harmless(&ended.out.join("\n"));
    }
}

#[test]
fn words_and_names_of_a_client_are_shown_and_not_obeyed() {
    let place = Place::new();
    let file = place.write("\u{1b}[2J\nuts: connected as admin\u{9b}\u{202e}", b"content");
    for json in [true, false] {
        let mut args = vec!["serve", "--dir", "srv", "--writable", "--anyone", "--listen", "127.0.0.1:0"];
        args.extend(json.then_some("--json"));
        let (server, address, fingerprint) = if json {
            let server = place.serve(&[]);
            (server.running, server.address, server.fingerprint)
        } else {
            let server = place.start_as("server-home", &args);
            let port = place.listening_port(&server);
            let key = place.run_as("server-home", &["fingerprint"]).ok().out.remove(0);
            (server, format!("127.0.0.1:{port}"), key)
        };
        let url = format!("uts://{address}/");
        place.run(&["cp", "--quiet", "--pin", &fingerprint, &file, &url]).ok();
        runtime().block_on(async {
            let options = ConnectOptions::pinned(fingerprint.parse().expect("a key"));
            let connection: Connection = uts::connect(&address, options).await.expect("connected");
            connection.close(9, HOSTILE).await;
        });
        // Told when it is gone, at the latest as the server ends.
        let said = ended(server);
        assert!(said.contains("connected as admin"), "{said}");
        is_harmless(&said);
        fs::remove_dir_all(place.path("srv"))
            .and_then(|()| fs::create_dir(place.path("srv")))
            .expect("emptied");
    }
}

#[test]
fn a_server_takes_nothing_unless_that_was_asked_for_by_name() {
    let place = Place::new();
    let file = place.write("a", b"content");
    place.write("srv/b", b"served");
    // Nobody is named who may write.
    let ended = place.run(&["serve", "--dir", "srv", "--writable"]);
    ended.failed(2, &["--writable", "--authorized-keys", "--anyone"]);
    for wrong in [
        &["--writable", "--read-only", "--anyone"][..],
        &["--anyone", "--authorized-keys", "keys"],
        &["--max-connections", "0"],
    ] {
        assert_eq!(place.run(&[&["serve", "--dir", "srv"], wrong].concat()).status, 2, "{wrong:?}");
    }
    let server = place.serve(&["--anyone"]);
    place.cp(&server, &[&file, &server.url("a")]).failed(1, &["read-only"]);
    place.cp(&server, &[&server.url("b"), "b"]).ok();
    assert_eq!(place.finished("srv"), ["b"]);
}

/// The first line tells a person, and the first event a program, what is given to whom.
#[test]
fn a_server_says_at_first_what_it_serves_and_to_whom() {
    let place = Place::new();
    place.write("srv/a", b"content");
    place.write("srv/deep/b", b"content");
    let key = place.run(&["keygen", "key"]).ok().out.remove(0);
    place.write("keys", format!("{key} a friend\n").as_bytes());
    let first = |options: &[&str]| {
        let server = place.start_as("server-home", &[&["serve", "--dir", "srv"], options].concat());
        // Once it has served somebody it has said that it serves.
        let url = format!("uts://127.0.0.1:{}/a", place.listening_port(&server));
        let pin = place.run_as("server-home", &["fingerprint"]).ok().out.remove(0);
        place.run(&["cp", "-q", "--key", "key", "--pin", &pin, &url, "got"]).ok();
        let said = ended(server);
        said.trim().lines().next().unwrap_or_default().to_owned()
    };
    let line = first(&["--listen", "127.0.0.1:0"]);
    let parts =
        ["serving srv (2 files), read-only, to anyone, at 127.0.0.1:", "(from this host only), key SHA256:"];
    assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    let line = first(&["--listen", "0.0.0.0:0", "--writable", "--authorized-keys", "keys"]);
    let parts = ["(2 files), writable, to the 1 key in keys, at 0.0.0.0:", "(on all networks of this host)"];
    assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    let mut server = place.start(&["serve", "--dir", "srv", "--json", "--listen", "127.0.0.1:0"]);
    let start = server.event("start");
    assert_eq!((&start["access"], &start["clients"]), (&"read-only".into(), &"anyone".into()));
    assert_eq!((&start["files_served"], &start["more_files"]), (&2.into(), &false.into()));
}

/// One host, or one key, has its part of the connections and is told when it wants more.
#[test]
fn connections_are_limited_by_address_and_by_key() {
    let place = Place::new();
    let key = place.run(&["keygen", "key"]).ok().out.remove(0);
    place.write("keys", format!("{key} a friend\n").as_bytes());
    let runtime = runtime();
    for (options, why) in [
        (&["--max-per-address", "2"][..], "this address has as many connections"),
        (&["--max-connections", "2"], "it has as many connections as it may"),
        (&["--authorized-keys", "keys", "--max-per-key", "2"], "has 2 connections to it"),
    ] {
        let server = place.serve(options);
        let identity = Identity::load(&place.path("key")).expect("a key");
        let pin = server.fingerprint.parse().expect("a key");
        let connect =
            || uts::connect(&server.address, ConnectOptions::pinned(pin).identity(identity.clone()));
        runtime.block_on(async {
            let held = [connect().await.expect("connected"), connect().await.expect("connected")];
            // Who has nothing under way makes room for others: these have begun to ask.
            let mut asking = Vec::new();
            for connection in &held {
                let mut flow = connection.open_flow(uts::FlowOptions::default()).await.expect("opened");
                tokio::io::AsyncWriteExt::write_all(&mut flow, &[0x40]).await.expect("written");
                asking.push(flow);
            }
            // The verdict may come after this end took the connection for established.
            let told = match connect().await {
                Ok(connection) => connection.closed().await.to_string(),
                Err(error) => error.to_string(),
            };
            assert!(told.contains(why), "{told}");
            assert!(held.iter().all(|connection| connection.close_reason().is_none()));
            held[0].close(0, "").await;
            // As soon as the server has forgotten it, there is room again.
            let came_back = async {
                while connect().await.is_err() {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            };
            tokio::time::timeout(crate::common::PATIENCE, came_back).await.expect("there is room again");
        });
    }
}
