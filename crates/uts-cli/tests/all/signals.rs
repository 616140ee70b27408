//! End of the program when it is told to end.

use crate::common::{PATIENCE, Place, pattern, signal};
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ALL: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];
/// Slow enough to be interrupted.
const SLOW: &str = "maxSendRate=16Mbit/s";

#[test]
fn each_signal_ends_a_server_and_a_copy_in_order() {
    let place = Place::new();
    place.write("big", &pattern(8 << 20));
    for with in ALL {
        let server = place.serve(&[]);
        let client = place.start_cp(&server, &["--json", "--property", SLOW, "big", &server.url("big")]);
        place.await_part("srv/.big.uts-part");
        client.signal(with);
        client.wait().failed(130, &["uts: interrupted; run the same command again to continue"]);
        let to = server.url("other");
        let client = place.start_cp(&server, &["--json", "--retry", "0", "--property", SLOW, "big", &to]);
        place.await_part("srv/.other.uts-part");
        server.running.signal(with);
        let ended = server.running.wait();
        assert_eq!(ended.status, 0, "{with:?}: {}", ended.err);
        // It has taken its leave.
        client.wait().failed(1, &["the server is stopping"]);
        std::fs::remove_file(place.path("srv/.other.uts-part")).expect("removed");
        std::fs::remove_file(place.path("srv/.big.uts-part")).expect("removed");
    }
}

/// nohup(1) begins a program that is not to end with its terminal.
#[test]
fn what_was_ignored_at_the_beginning_is_ignored_still() {
    let place = Place::new();
    place.write("srv/a", b"content");
    let pin = place.run_as("server-home", &["keygen"]).ok().out.remove(0);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_uts")]);
    command.args(["serve", "--dir", "srv", "--listen", "127.0.0.1:0"]);
    let server = Place::begin(place.here(command, "server-home"));
    let url = format!("uts://127.0.0.1:{}/a", place.listening_port(&server));
    // Once it has served somebody it listens to signals.
    for name in ["one", "two"] {
        place.run(&["cp", "--quiet", "--pin", &pin, &url, name]).ok();
        server.signal(Signal::HUP);
    }
    place.run(&["cp", "--quiet", "--pin", &pin, &url, "three"]).ok();
    server.signal(Signal::TERM);
    server.wait().ok();
}

/// Whatever keeps the program from ending in order, as a reader that does not read: it ends.
#[test]
fn a_second_signal_ends_it_at_once() {
    let place = Place::new();
    for n in 0..1000 {
        place.write(&format!("tree/{n}"), b"");
    }
    let server = place.serve(&[]);
    let url = server.url("copy");
    for with in ALL {
        let args = ["cp", "--json", "--pin", &server.fingerprint, "-r", "tree", &url];
        let mut command = place.command("home", &args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("started");
        let pipe = child.stdout.take().expect("piped");
        let deadline = Instant::now() + PATIENCE;
        // Until the pipe takes no more events: nothing has come for a second.
        let (mut held, mut since) = (0, Instant::now());
        while held < 60_000 || since.elapsed() < Duration::from_secs(1) {
            assert!(Instant::now() < deadline, "its events are few");
            std::thread::sleep(Duration::from_millis(20));
            let now = rustix::io::ioctl_fionread(&pipe).expect("a pipe");
            if now > held {
                (held, since) = (now, Instant::now());
            }
        }
        signal(&child, with);
        let mut signals = 1;
        let status = loop {
            std::thread::sleep(Duration::from_millis(100));
            if let Some(status) = child.try_wait().expect("a process") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            signal(&child, with);
            signals += 1;
        };
        assert_eq!(status.code(), Some(130));
        assert!(signals > 1, "the first has ended it, with its events unread");
        std::fs::remove_dir_all(place.path("srv/copy")).expect("removed");
    }
}
