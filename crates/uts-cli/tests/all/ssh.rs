//! `uts ssh`, with a real ssh and a real sshd: whatever ssh does, over UDP, and without it where
//! that does not go.

mod attach;
mod ending;
mod going_on;
mod recording;

use crate::common::far::{Far, THERE};
use crate::common::sshd::sshd_at;
use crate::common::tunnel::{ask, connect, echo, free_port};
use crate::common::{Ended, PATIENCE, Place, Running};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A user here, and a host with an sshd where `uts` may be in PATH.
struct World {
    place: Place,
    _sshd: Running,
    config: String,
    /// The port of the sshd.
    port: u16,
}

impl World {
    /// `None` where there is no sshd, which was told.
    fn new(has_uts: bool, settings: &[(&str, &str)]) -> Option<World> {
        World::at("127.0.0.1", &[], has_uts, settings)
    }

    /// A host in another network.
    fn behind(far: &Far) -> Option<World> {
        let within = far.within();
        let by: Vec<&str> = within.split(' ').collect();
        World::at(THERE, &by, true, &[])
    }

    fn at(address: &str, by: &[&str], has_uts: bool, settings: &[(&str, &str)]) -> Option<World> {
        let place = Place::new();
        for dir in ["far/bin", "far/tmp", "tmp", "home", "near"] {
            fs::create_dir_all(place.path(dir)).expect("made");
        }
        if has_uts {
            symlink(env!("CARGO_BIN_EXE_uts"), place.path("far/bin/uts")).expect("linked");
        }
        symlink(env!("CARGO_BIN_EXE_uts"), place.path("near/uts-ssh")).expect("linked");
        let far = place.path("far").display().to_string();
        let environment = format!("HOME={far} TMPDIR={far}/tmp PATH={far}/bin:/usr/bin:/bin");
        let settings = [&[("SetEnv", environment.as_str())], settings].concat();
        let (sshd, port) = sshd_at(&place, address, by, &settings)?;
        let key = place.path("user_key").display().to_string();
        let config = format!(
            "Host there\n  HostName {address}\n  Port {port}\n  IdentityFile {key}\n  IdentitiesOnly yes\n  \
             BatchMode yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
        );
        let config = place.write("ssh_config", config.as_bytes());
        Some(World { place, _sshd: sshd, config, port })
    }

    /// A program that knows the place, and finds others.
    fn here(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args);
        let mut command = self.place.here(command, "home");
        let near = self.place.path("near").display().to_string();
        command.env("PATH", format!("{near}:/usr/bin:/bin")).env("TMPDIR", self.place.path("tmp"));
        let ssh = format!("'{}' ssh -F '{}'", env!("CARGO_BIN_EXE_uts"), self.config);
        command
            .env("GIT_SSH_COMMAND", &ssh)
            .env("RSYNC_RSH", format!("{} ssh -F {}", env!("CARGO_BIN_EXE_uts"), self.config));
        command.stdin(Stdio::null());
        command
    }

    /// `uts ssh` with options of its own, and what follows.
    fn ssh(&self, own: &[&str], args: &[&str]) -> Command {
        let all = [&["ssh"], own, &["-F", &self.config], args].concat();
        self.here(env!("CARGO_BIN_EXE_uts"), &all)
    }

    /// Numbers of the processes that serve sessions at this host.
    fn servers(&self) -> Vec<String> {
        processes("ssh-server", &self.place.path("far"))
    }

    fn await_no_servers(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.servers().is_empty() {
            assert!(Instant::now() < deadline, "left behind: {:?}", self.servers());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Nothing of a session is left, here or there. What keeps one ends a little after it.
    #[track_caller]
    fn assert_nothing_left(&self) {
        let left = || -> Vec<_> {
            let own = format!("uts-ssh-{}", user());
            let dirs =
                ["tmp", &format!("tmp/{own}"), &format!("far/tmp/{own}")].map(|dir| self.place.path(dir));
            let left = dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
            // The directory for all of a user's sessions stays.
            left.filter(|entry| entry.file_name() != own.as_str()).collect()
        };
        let deadline = Instant::now() + PATIENCE;
        while !left().is_empty() {
            assert!(Instant::now() < deadline, "{:?}", left());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The number of this user.
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

impl Drop for World {
    fn drop(&mut self) {
        let shells = processes("ssh-shell", &self.place.path("far"));
        for process in self.servers().into_iter().chain(shells) {
            let _ = Command::new("kill").arg(process).status();
        }
    }
}

/// Numbers of processes that run with this word, and have this home.
fn processes(word: &str, home: &std::path::Path) -> Vec<String> {
    let home = format!("HOME={}", home.display());
    let is_one = |dir: &std::path::Path| {
        let holds = |file: &str, text: &str| {
            let read = fs::read(dir.join(file)).unwrap_or_default();
            read.split(|byte| *byte == 0).any(|word| word == text.as_bytes())
        };
        holds("cmdline", word) && holds("environ", &home)
    };
    let processes = fs::read_dir("/proc").expect("processes").map_while(Result::ok);
    let found = processes.filter(|process| is_one(&process.path()));
    found.map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}

fn run(mut command: Command) -> Ended {
    let ended = command.output().expect("it runs");
    let out = String::from_utf8_lossy(&ended.stdout);
    Ended {
        status: ended.status.code().unwrap_or(-1),
        out: out.lines().map(ToOwned::to_owned).collect(),
        err: String::from_utf8_lossy(&ended.stderr).into_owned(),
    }
}

/// A session of which each line is answered.
struct Talk {
    child: Child,
    to: Option<ChildStdin>,
    lines: Receiver<String>,
    said: u32,
}

impl Talk {
    fn new(world: &World, own: &[&str]) -> Talk {
        Talk::beside(world, own, &[])
    }

    /// The same with more options of ssh.
    fn beside(world: &World, own: &[&str], options: &[&str]) -> Talk {
        let script = "while read -r line; do echo \"got $line\"; done";
        let mut command = world.ssh(own, &[options, &["-T", "there", script]].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let (to, from) = (child.stdin.take(), child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(from).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Talk { child, to, lines, said: 0 }
    }

    /// Says a line, and waits for the answer.
    #[track_caller]
    fn ask(&mut self) {
        self.said += 1;
        writeln!(self.to.as_mut().expect("it goes on"), "line {}", self.said).expect("written");
        let answer = self.lines.recv_timeout(PATIENCE);
        let ended = self.child.try_wait().expect("a process");
        assert_eq!(answer, Ok(format!("got line {}", self.said)), "{ended:?}");
    }

    /// Says no more, and waits for the end. Returns what was said to people.
    fn end(mut self) -> String {
        drop(self.to.take());
        assert!(self.lines.recv_timeout(PATIENCE).is_err());
        let ended = self.child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{said}");
        said
    }
}

#[test]
fn output_and_status_are_those_of_ssh_and_nothing_is_left_behind() {
    let Some(world) = World::new(true, &[]) else { return };
    let linger = ["--linger", "1s"];
    let ended = run(world.ssh(&linger, &["there", "echo out; echo err >&2; exit 7"]));
    assert_eq!(
        (ended.status, ended.out.as_slice(), ended.err.as_str()),
        (7, &["out".to_owned()][..], "err\n")
    );
    // Options may stand behind the host.
    let ended = run(world.ssh(&linger, &["there", "-v", "-tt", "tty; kill -TERM $$"]));
    assert!(ended.err.contains("Executing proxy dialer command: "), "{}", ended.err);
    assert!(ended.out[0].starts_with("/dev/pts/") && ended.status == 255, "{:?} {}", ended.out, ended.status);
    world.assert_nothing_left();
    assert!(!world.place.path("far/.cache").exists(), "uts is in PATH there");
    world.await_no_servers();
}

#[test]
fn ten_megabytes_come_back_as_they_were_sent() {
    let Some(world) = World::new(true, &[]) else { return };
    let data: Vec<u8> = (0..10 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let file = world.place.write("data", &data);
    let mut command = world.ssh(&["--linger", "1s"], &["-T", "there", "cat"]);
    command.stdin(fs::File::open(file).expect("opened"));
    let back = command.output().expect("it runs");
    assert!(back.status.success() && back.stderr.is_empty(), "{}", String::from_utf8_lossy(&back.stderr));
    assert!(back.stdout == data, "{} bytes", back.stdout.len());
}

#[test]
fn git_rsync_and_scp_take_it_for_ssh() {
    let Some(world) = World::new(true, &[]) else { return };
    let done = |program: &str, args: &[&str]| match world.here(program, args).output() {
        Err(_) => {
            println!("skipped: {program} is not installed (Debian: apt install {program})");
            false
        }
        Ok(ended) => {
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success() && !said.contains("plain ssh"), "{program} {args:?}: {said}");
            true
        }
    };
    let target = |name: &str| format!("there:{}", world.place.path(name).display());
    let file = world.place.write("work/file", b"content");
    let work = world.place.path("work").display().to_string();
    if done("git", &["init", "-q", &work]) {
        let git = ["-C", &work, "-c", "user.name=a", "-c", "user.email=a@example.org"];
        done("git", &[&git[..], &["add", "file"]].concat());
        done("git", &[&git[..], &["commit", "-q", "-m", "first"]].concat());
        done("git", &["clone", "-q", &target("work"), "clone"]);
        assert_eq!(world.place.read("clone/file"), b"content");
    }
    let by_scp = ["-S", "uts-ssh", "-F", &world.config, &file, &target("by-scp")];
    if done("scp", &by_scp) {
        assert_eq!(world.place.read("by-scp"), b"content");
    }
    if done("rsync", &["-a", &file, &target("by-rsync")]) {
        assert_eq!(world.place.read("by-rsync"), b"content");
    }
    world.assert_nothing_left();
}

#[test]
fn the_program_is_put_where_it_is_not_and_found_there_again() {
    let Some(world) = World::new(false, &[]) else { return };
    let ended = run(world.ssh(&["--no-install"], &["there", "echo in"]));
    assert_eq!((ended.status, &ended.out[..]), (0, &["in".to_owned()][..]));
    assert!(ended.err.contains("--no-install") && ended.err.contains("plain ssh"), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    let ended = run(world.ssh(&["--linger", "1s"], &["there", "echo in"]));
    assert_eq!((ended.status, &ended.out[..]), (0, &["in".to_owned()][..]), "{}", ended.err);
    assert!(ended.err.starts_with("uts: there: putting uts into ~/.cache/uts"), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    let put = world.place.finished("far/.cache/uts");
    assert!(put.len() == 1 && put[0].starts_with("uts-"), "{put:?}");
    let file = world.place.path("far/.cache/uts").join(&put[0]);
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o700);
    assert!(fs::read(&file).expect("read") == fs::read(env!("CARGO_BIN_EXE_uts")).expect("read"));
    let ended = run(world.ssh(&["--linger", "1s"], &["there", "echo in"]));
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    world.await_no_servers();
}

/// Nobody answers there (RFC 5737).
const NOWHERE: [&str; 4] = ["--udp-host", "192.0.2.1", "--udp-wait", "300ms"];

#[test]
fn where_udp_does_not_go_it_goes_over_the_login() {
    let Some(world) = World::new(true, &[]) else { return };
    let data: Vec<u8> = (0..10 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let mut command = world.ssh(&NOWHERE, &["there", "cat; exit 5"]);
    command.stdin(fs::File::open(world.place.write("asked", &data)).expect("opened"));
    let ended = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(5), "{said}");
    assert!(ended.stdout == data, "{} bytes", ended.stdout.len());
    assert!(
        said.contains("UDP does not get through") && said.contains("over ssh's TCP connection"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let quiet = run(world.ssh(&NOWHERE, &["-q", "there", "exit 5"]));
    assert_eq!((quiet.status, quiet.err.as_str()), (5, ""));
    world.await_no_servers();
    world.assert_nothing_left();
}

#[test]
fn where_there_can_be_no_server_it_is_plain_ssh() {
    let Some(world) = World::new(true, &[]) else { return };
    // Ports that are taken, of which the server says it.
    let taken = UdpSocket::bind("[::]:0").or_else(|_| UdpSocket::bind("0.0.0.0:0")).expect("bound");
    let port = taken.local_addr().expect("an address").port().to_string();
    let mut command = world.ssh(&["--udp-ports", &port], &["there", "cat; exit 5"]);
    command.stdin(fs::File::open(world.place.write("asked", b"hello\n")).expect("opened"));
    let ended = run(command);
    assert_eq!((ended.status, &ended.out[..]), (5, &["hello".to_owned()][..]), "{}", ended.err);
    assert!(ended.err.contains("no free UDP port") && ended.err.contains("plain ssh"), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    world.assert_nothing_left();
    world.await_no_servers();
}

#[test]
fn what_ssh_cannot_do_it_says_itself() {
    let Some(world) = World::new(true, &[]) else { return };
    let port = free_port().to_string();
    let ended = run(world.ssh(&[], &["-p", &port, "there", "true"]));
    assert_eq!((ended.status, ended.err.lines().count()), (255, 1), "{}", ended.err);
    assert!(ended.err.contains("ssh: connect to host 127.0.0.1"), "{}", ended.err);
    let ended = run(world.ssh(&[], &["-L", "nonsense", "there"]));
    assert!(ended.status == 255 && ended.err.contains("nonsense"), "{}", ended.err);
    let ended = run(world.ssh(&[], &["-o", "PubkeyAuthentication=no", "there", "true"]));
    assert!(ended.status == 255 && ended.err.contains("Permission denied"), "{}", ended.err);
    let ended = run(world.here(env!("CARGO_BIN_EXE_uts"), &["ssh", "-V"]));
    assert!(ended.status == 0 && ended.err.starts_with("OpenSSH"), "{}", ended.err);
    let ended = run(world.ssh(&[], &["-G", "there"]));
    assert!(ended.out.contains(&"hostname 127.0.0.1".to_owned()), "{:?}", ended.out);
    let ended = run(world.ssh(&["--ssh", "nowhere"], &["there"]));
    assert!(ended.status == 1 && ended.err.contains("cannot run nowhere: no such file"), "{}", ended.err);
    world.assert_nothing_left();
}

/// As the accounts of those who host repositories.
#[test]
fn an_account_that_runs_one_command_alone_is_reached_as_by_ssh() {
    let Some(world) = World::new(true, &[("ForceCommand", "echo only this; echo no >&2; exit 3")]) else {
        return;
    };
    let ended = run(world.ssh(&[], &["there", "ls"]));
    assert_eq!((ended.status, &ended.out[..]), (3, &["only this".to_owned()][..]), "{}", ended.err);
    let said: Vec<&str> = ended.err.lines().collect();
    assert!(said.len() == 2 && said[0].contains("no UTS server there") && said[1] == "no", "{said:?}");
    assert!(world.servers().is_empty());
}

/// A session that goes on in the background, once it is there: its status, and what it has said.
fn run_to_background(world: &World, args: &[&str]) -> (Option<i32>, String) {
    let mut command = world.ssh(&["--linger", "1s"], args);
    // It keeps the outputs: nobody waits for their end.
    let said = world.place.path("said");
    command.stdout(Stdio::null()).stderr(fs::File::create(&said).expect("made"));
    let status = command.status().expect("it runs");
    (status.code(), fs::read_to_string(said).expect("text"))
}

#[test]
fn forwards_go_along_and_so_does_a_session_in_the_background() {
    let Some(world) = World::new(true, &[]) else { return };
    let (port, echo) = (free_port(), echo());
    let forward = format!("127.0.0.1:{port}:{echo}");
    let mark = world.place.write("mark", b"");
    let script = format!("while test -e {mark}; do sleep 0.1; done");
    let began = run_to_background(&world, &["-f", "-L", &forward, "there", &script]);
    assert_eq!(began, (Some(0), String::new()));
    let there = ([127, 0, 0, 1], port).into();
    assert_eq!(ask(connect(there), b"through the session").expect("answered"), b"through the session");
    fs::remove_file(&mark).expect("removed");
    world.await_no_servers();
    world.assert_nothing_left();
}

/// A master that carries sessions carries this one too; who becomes one goes over UDP.
#[test]
fn sessions_share_a_master() {
    let Some(world) = World::new(true, &[]) else { return };
    let path = format!("ControlPath={}", world.place.path("master").display());
    let began = run_to_background(&world, &["-M", "-N", "-f", "-o", &path, "there"]);
    assert_eq!(began, (Some(0), String::new()));
    assert_eq!(world.servers().len(), 1);
    let ended = run(world.ssh(&[], &["-o", &path, "there", "echo in; exit 4"]));
    assert_eq!((ended.status, &ended.out[..], ended.err.as_str()), (4, &["in".to_owned()][..], ""));
    assert_eq!(world.servers().len(), 1, "no other server was started");
    let ended = run(world.ssh(&[], &["-o", &path, "-O", "exit", "there"]));
    assert_eq!(ended.status, 0, "{}", ended.err);
    world.await_no_servers();
}
