//! Sessions that end: who hears of it, and who can see them before.

use super::{NOWHERE, Talk, World, processes, run, user};
use crate::common::{Ended, PATIENCE, Place};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The session was in the memory of its server. Its user hears so, instead of waiting.
#[test]
fn a_session_whose_server_is_killed_ends_and_says_so() {
    let Some(world) = World::new(true, &[]) else { return };
    let mut talk = Talk::new(&world, &[]);
    talk.ask();
    for server in world.servers() {
        assert!(Command::new("kill").args(["-9", &server]).status().expect("run").success());
    }
    writeln!(talk.to.as_mut().expect("piped"), "more").expect("written");
    let ended = talk.child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(255), "{said}");
    assert!(said.contains("the session is lost: its server is not there any more"), "{said}");
}

/// A client that was killed takes no leave: its session is there, and is seen, and can be ended.
#[test]
fn sessions_are_listed_and_ended_at_their_host_and_here() {
    let Some(world) = World::new(true, &[]) else { return };
    let list = |args: &[&str]| {
        let mut command = world.ssh(args, &["there"]);
        command.stdin(Stdio::null());
        run(command)
    };
    let here = |args: &[&str]| run(world.here(env!("CARGO_BIN_EXE_uts"), &[&["ssh"], args].concat()));
    let none = list(&["--list"]);
    assert_eq!((none.status, none.out.len()), (0, 0), "{}", none.err);
    assert!(none.err.contains("no sessions"), "{}", none.err);
    let (mut killed, mut talk) = (Talk::new(&world, &[]), Talk::new(&world, &NOWHERE));
    killed.ask();
    talk.ask();
    let local = here(&["--list"]);
    assert!(local.status == 0 && local.out.len() == 2, "{:?} {}", local.out, local.err);
    let of = |way: &str, out: &[String]| {
        let found = out.iter().find(|line| line.contains(&format!("{way} for ")));
        found.and_then(|line| line.split(' ').next()).unwrap_or_else(|| panic!("{out:?}")).to_owned()
    };
    let (by_udp, by_tcp) = (of("UDP", &local.out), of("TCP", &local.out));
    let control = world.place.path("tmp").join(format!("uts-ssh-{}/{by_udp}.here", user()));
    let told = run(world.here(env!("CARGO_BIN_EXE_uts"), &["ctl", &control.display().to_string()]));
    let says = |said: &Ended, part: &str| said.out.iter().any(|line| line.contains(part));
    assert!(says(&told, "there") && says(&told, "RTT ") && !says(&told, "was heard"), "{:?}", told.out);
    assert!(says(&told, "keys p99 "), "{:?}", told.out);
    let parent = format!("\nPPid:\t{}\n", killed.child.id());
    let mut clients = processes("ssh-keep", &world.place.path("home")).into_iter();
    let client = clients.find(|process| {
        fs::read_to_string(format!("/proc/{process}/status")).is_ok_and(|status| status.contains(&parent))
    });
    let client = client.expect("what keeps the first");
    assert!(Command::new("kill").args(["-9", &client]).status().expect("run").success());
    drop(killed.to.take());
    killed.child.wait().expect("ended");
    let there = list(&["--list"]);
    assert!(there.status == 0 && there.out.len() == 2, "{:?} {}", there.out, there.err);
    let dead = there.out.iter().find(|line| line.contains("was heard")).expect("one is silent");
    assert!(dead.starts_with(&by_udp), "{dead}");
    let ended = list(&["--end", &by_udp]);
    assert_eq!((ended.status, &ended.out[..]), (0, &[format!("{by_udp} is ended")][..]), "{}", ended.err);
    let again = list(&["--end", &by_udp]);
    assert!(again.status == 1 && again.err.contains("no session"), "{} {}", again.status, again.err);
    let deadline = Instant::now() + PATIENCE;
    while world.servers().len() != 1 {
        assert!(Instant::now() < deadline, "{:?}", world.servers());
        std::thread::sleep(Duration::from_millis(50));
    }
    talk.ask();
    // Ended here, it ends there too.
    assert_eq!(here(&["--end", &by_tcp]).status, 0);
    assert!(!talk.child.wait().expect("ended").success());
    world.await_no_servers();
    here(&["--list"]);
    let left = world.place.path("tmp").join(format!("uts-ssh-{}", user()));
    assert_eq!(fs::read_dir(left).expect("a folder").count(), 0);
}

/// A client that is killed takes no leave; one that ends in order does.
#[test]
fn a_server_whose_client_ends_ends() {
    let Some(world) = World::new(true, &[]) else { return };
    let mut command = world.ssh(&["--linger", "1s"], &["there", "echo in; sleep 1000"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Place::begin(command);
    let deadline = Instant::now() + PATIENCE;
    while world.servers().is_empty() {
        assert!(Instant::now() < deadline, "no server");
        std::thread::sleep(Duration::from_millis(20));
    }
    // This process has become ssh: what it is sent, ssh is.
    let status = fs::read_to_string(format!("/proc/{}/stat", running.id())).expect("it runs");
    let deadline = Instant::now() + PATIENCE;
    let mut status = status;
    while !status.contains("(ssh)") {
        assert!(Instant::now() < deadline, "{status}");
        std::thread::sleep(Duration::from_millis(20));
        status = fs::read_to_string(format!("/proc/{}/stat", running.id())).expect("it runs");
    }
    for server in world.servers() {
        let status = fs::read_to_string(format!("/proc/{server}/status")).unwrap_or_default();
        assert!(status.contains("Seccomp:\t2\n"), "not confined: {status}");
        let session = fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
        assert!(session.contains(&format!(" {server} {server} 0 ")), "of no terminal: {session}");
    }
    running.signal(rustix::process::Signal::TERM);
    drop(running);
    world.await_no_servers();
}
