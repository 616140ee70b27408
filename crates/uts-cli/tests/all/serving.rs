//! Options of `uts serve` about where to listen and how much to print.

use crate::common::Place;
use rustix::process::Signal;

#[test]
fn it_listens_at_a_name_a_port_or_an_address() {
    let place = Place::new();
    place.write("srv/a", b"content");
    let free = || {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("bound");
        socket.local_addr().expect("an address").port().to_string()
    };
    let colon = format!(":{}", free());
    for listen in ["localhost:0", "127.0.0.1:0", &colon, &free()] {
        let mut server = place.start(&["serve", "--dir", "srv", "--json", "--listen", listen]);
        let start = server.event("start");
        let address = start["address"].as_str().expect("an address");
        let (_, port) = address.rsplit_once(':').expect("a port");
        let pin = start["fingerprint"].as_str().expect("a key").to_owned();
        if listen == "localhost:0" {
            assert_eq!(start["reach"], "from this host only", "{start}");
        }
        let host = if address.starts_with("[::1]") { "[::1]" } else { "127.0.0.1" };
        let url = format!("uts://{host}:{port}/a");
        place.run(&["cp", "--quiet", "--pin", &pin, &url, "got"]).ok();
        server.signal(Signal::TERM);
        server.wait().ok();
    }
}

#[test]
fn where_it_cannot_listen_it_says_what_was_tried() {
    let place = Place::new();
    let serve = |listen: &str| place.run(&["serve", "--dir", "srv", "--listen", listen]);
    serve("no-such-host.invalid").failed(1, &["uts: --listen no-such-host.invalid: no such host"]);
    serve("host:port").failed(2, &["uts: --listen: `host:port` has no port from 0 to 65535"]);
    serve("a:b:c").failed(2, &["`a:b:c`", "[V6]:PORT"]);
    // TEST-NET-1 (RFC 5737) is nobody's.
    serve("192.0.2.1:5000").failed(1, &["192.0.2.1:5000", "annot assign requested address"]);
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address").to_string();
    let ended = serve(&address).failed(1, &[&address, "in use"]);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    // Both families were tried.
    let Ok(both) = std::net::UdpSocket::bind("[::]:0") else { return };
    let port = both.local_addr().expect("an address").port();
    let parts = [format!("[::]:{port}"), format!("0.0.0.0:{port}")];
    let ended = serve(&port.to_string()).failed(1, &[&parts[0], &parts[1]]);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
}

#[test]
fn a_quiet_server_tells_of_errors_only() {
    let place = Place::new();
    place.write("srv/a", b"content");
    let pin = place.run_as("server-home", &["keygen"]).ok().out.remove(0);
    let args = ["serve", "--dir", "srv", "--quiet", "--listen", "127.0.0.1:0"];
    let server = place.start_as("server-home", &args);
    let url = format!("uts://127.0.0.1:{}/a", place.listening_port(&server));
    place.run(&["cp", "--quiet", "--pin", &pin, &url, "got"]).ok();
    server.signal(Signal::TERM);
    let ended = server.wait().ok();
    assert_eq!((ended.out.concat(), ended.err), (String::new(), String::new()));
    place.run(&["serve", "--dir", "srv", "--quiet", "--json"]).failed(2, &["--quiet", "--json"]);
    place.run(&["serve", "--dir", "no", "--quiet"]).failed(1, &["uts: --dir no: no such file or directory"]);
}

/// Hidden files are neither shown nor taken unless the options say so. Each one that is left out is
/// reported.
#[test]
fn hidden_files_are_served_by_option() {
    let place = Place::new();
    for name in ["a", "deep/b", ".secret", ".dir/c", "deep/.d"] {
        place.write(&format!("srv/{name}"), name.as_bytes());
        place.write(&format!("tree/{name}"), name.as_bytes());
    }
    std::os::unix::fs::symlink(".dir", place.path("tree/link")).expect("linked");
    let mut server = place.serve(&[]);
    let (top, url) = (server.url(""), |name: &str| server.url(name));
    place.cp(&server, &["--quiet", "-r", &top, "all"]).ok();
    assert!(place.path("all/deep/b").exists() && place.path("all/a").exists());
    assert!(place.finished("all").len() == 2 && !place.path("all/.secret").exists());
    assert!(!place.path("all/.dir").exists() && !place.path("all/deep/.d").exists());
    for name in [".secret", ".dir/c", "deep/.d"] {
        place.cp(&server, &[&url(name), "x"]).failed(1, &[name, "hidden", "--hidden"]);
        place.cp(&server, &["a", &url(name)]).failed(1, &["hidden"]);
    }
    place.write("a", b"new");
    place.cp(&server, &["a", &url(".new")]).failed(1, &[".new", "hidden", "--hidden"]);
    assert!(!place.path("srv/.new").exists());
    let sent = place.cp(&server, &["--quiet", "-r", "--links", "tree", &url("copy")]);
    sent.failed(1, &[".secret", ".dir", "deep/.d", "link", "hidden"]);
    assert!(place.path("srv/copy/deep/b").exists());
    for name in [".secret", ".dir", "deep/.d", "link"] {
        assert!(place.path("srv/copy").join(name).symlink_metadata().is_err(), "{name}");
    }
    server.running.signal(Signal::TERM);
    let _ = server.running.event("connection");
    server.running.wait().ok();

    let mut server = place.serve(&["--hidden"]);
    place.cp(&server, &["--quiet", "-r", &server.url("."), "again"]).ok();
    assert_eq!(place.read("again/deep/.d"), b"deep/.d");
    place.cp(&server, &["--quiet", "-r", "--links", "tree", &server.url("copy2")]).ok();
    assert_eq!(place.read("srv/copy2/link/c"), b".dir/c");
    server.running.signal(Signal::TERM);
    let _ = server.running.event("connection");
}

/// A line of a log without the time that it begins with.
fn behind_the_time(line: &str) -> &str {
    line.split_once("Z ").map_or("", |(_, rest)| rest)
}

#[test]
fn a_server_warns_of_keys_among_what_it_serves() {
    let place = Place::new();
    let key = b"-----BEGIN PRIVATE KEY-----\nabc\n";
    place.write("srv/.ssh/id_ed25519", key);
    place.write("srv/a", b"content");
    let pin = place.run_as("server-home", &["keygen"]).ok().out.remove(0);
    let said = |options: &[&str]| {
        let args = [&["serve", "--dir", "srv", "--listen", "127.0.0.1:0"], options].concat();
        let server = place.start_as("server-home", &args);
        let url = format!("uts://127.0.0.1:{}/a", place.listening_port(&server));
        place.run(&["cp", "--quiet", "--pin", &pin, &url, "got"]).ok();
        server.signal(Signal::TERM);
        server.wait().ok().err
    };
    let text = said(&[]);
    assert!(
        behind_the_time(&text).starts_with("serving srv (1 file, hidden ones left out), ")
            && !text.contains("warning"),
        "{text}"
    );
    let text = said(&["--hidden", "--quiet"]);
    assert!(
        behind_the_time(&text)
            .starts_with("uts: warning: private keys or passwords are among what is served: .ssh"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    place.write("srv/backup/id_rsa", key);
    let text = said(&["--quiet"]);
    assert!(text.contains("served: backup/id_rsa\n"), "{text}");
}

/// Each thread of a server is confined, whatever it serves, unless it is asked not to be.
#[test]
fn a_server_is_confined() {
    let place = Place::new();
    place.write("srv/a", b"content");
    let threads = |process: u32| -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("threads");
        tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok())
            .map(|status| status.lines().filter(|line| line.starts_with("Seccomp:")).collect())
            .collect()
    };
    for (options, mode) in [
        (&["--dir", "srv"][..], "2"),
        (&["--dir", "srv", "--writable", "--anyone", "--perf"], "2"),
        (&["--pipe", "ssh=22", "--anyone"], "2"),
        (&["--dir", "srv", "--unconfined"], "0"),
    ] {
        let mut server =
            place.start(&[&["serve", "--json", "--listen", "127.0.0.1:0"][..], options].concat());
        let start = server.event("start");
        if cfg!(target_os = "linux") {
            let confined = start["confined"].as_str().expect("words");
            assert_eq!(confined.contains("system calls"), mode == "2", "{start}");
            let threads = threads(server.id());
            assert!(threads.len() > 1, "{threads:?}");
            assert!(threads.iter().all(|seccomp| seccomp.ends_with(mode)), "{options:?}: {threads:?}");
        }
        server.kill();
    }
}

/// Options that are refused leave nothing behind: neither a key nor a directory.
#[test]
fn a_server_that_is_refused_has_made_nothing() {
    let place = Place::new();
    place.run(&["serve", "--dir", ".", "--writable"]).failed(2, &["--writable: say who may write"]);
    assert!(!place.path("home/config/uts").exists(), "a key was made");
    place
        .run(&["serve", "--dir", "missing", "--writable", "--anyone"])
        .failed(1, &["uts: --dir missing: no such"]);
    assert!(!place.path("missing").exists(), "the directory was made");
}
