//! Data that the program takes from a peer, and the time that it works for a peer.

use crate::common::{Place, Server};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use uts_files::message::{Held, MAGIC, Request, VERSION, write_frame};

fn mode(place: &Place, name: &str) -> u32 {
    fs::metadata(place.path(name)).expect("there").mode() & 0o777
}

fn open_to_all(place: &Place, name: &str) -> String {
    let path = place.write(name, b"content");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("set");
    path
}

fn fetch_under(place: &Place, umask: &str, server: &Server, options: &[&str]) {
    let mut args = vec!["cp", "--pin", &server.fingerprint, "-q"];
    args.extend(options);
    place.start_under(umask, "home", &args).wait().ok();
}

#[test]
fn the_umask_of_the_receiver_beats_the_mode_of_the_peer() {
    let place = Place::new();
    let file = open_to_all(&place, "tree/a");
    fs::set_permissions(place.path("tree"), fs::Permissions::from_mode(0o777)).expect("set");
    open_to_all(&place, "srv/a");
    let server = place.serve_under("077", &[]);
    place.cp(&server, &["-q", "-r", "tree", &server.url("copy")]).ok();
    assert_eq!((mode(&place, "srv/copy"), mode(&place, "srv/copy/a")), (0o700, 0o700));
    fetch_under(&place, "027", &server, &[&server.url("a"), "b"]);
    assert_eq!(mode(&place, "b"), 0o750);
    // It is there already, with the mode that it was to have: nothing to be done.
    fetch_under(&place, "027", &server, &[&server.url("a"), "b"]);
    assert_eq!(mode(&place, "b"), 0o750);
    fetch_under(&place, "077", &server, &["--preserve-mode", &server.url("a"), "c"]);
    assert_eq!(mode(&place, "c"), 0o777);
    // A server is not asked in vain without being told.
    place.cp(&server, &["-p", &file, &server.url("d")]).failed(1, &["--preserve-mode", "umask"]);
    assert_eq!(place.finished("srv").len(), 2);
    drop(server);
    let server = place.serve_under("077", &["--preserve-mode"]);
    place.cp(&server, &["-p", &file, &server.url("d")]).ok();
    place.cp(&server, &[&file, &server.url("e")]).ok();
    assert_eq!((mode(&place, "srv/d"), mode(&place, "srv/e")), (0o777, 0o700));
}

/// To hash all of it takes many minutes, and the patience of the test is one.
#[test]
fn a_server_that_hashes_for_a_client_ends_when_it_is_told() {
    const HUGE_BYTES: u64 = 1 << 40;
    let place = Place::new();
    place.write("srv/huge", b"");
    fs::File::options()
        .write(true)
        .open(place.path("srv/huge"))
        .and_then(|file| file.set_len(HUGE_BYTES))
        .expect("a file of nothing");
    let server = place.serve(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _asked = runtime.block_on(async {
        let options = uts::ConnectOptions::pinned(server.fingerprint.parse().expect("a fingerprint"));
        let connection = uts::connect(&server.address, options).await.expect("connected");
        let mut flow = connection.open_flow(uts::FlowOptions::default()).await.expect("a flow");
        let held = Some(Held { bytes: HUGE_BYTES - 1, hash: [0; 32] });
        let mut wire = [&MAGIC[..], &[VERSION]].concat();
        let request = Request::Get { path: b"huge".to_vec(), held };
        write_frame(&mut wire, &request).await.expect("written");
        flow.write_all(&wire).await.expect("sent");
        flow.flush().await.expect("sent");
        // It has begun by then, or will not.
        tokio::time::sleep(Duration::from_secs(1)).await;
        (connection, flow)
    });
    server.running.signal(Signal::TERM);
    assert_eq!(server.running.wait().status, 0);
}
