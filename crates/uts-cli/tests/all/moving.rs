//! A client that goes from one network to another in mid-connection. The server is in a network of
//! its own, to which two lines lead.

use crate::common::{Place, Running, Server, in_own_namespace, pattern};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The other network. The whole process must have a namespace of its own.
struct Far(Child);

/// The server's address, behind both lines.
const THERE: &str = "10.97.0.1";

/// What a program may take behind its last move: the rest of its work, and as much again. One that
/// does not follow is silent for half a minute.
const REST_MAX: Duration = Duration::from_secs(25);

fn sh(script: &str) {
    let done = Command::new("sh").args(["-ec", script]).output().expect("it runs");
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Far {
    fn new() -> Self {
        let mut holder = Command::new("unshare");
        holder.args(["-n", "sh", "-c", "echo made; exec sleep 1000"]).stdout(Stdio::piped());
        let mut holder = holder.spawn().expect("started");
        holder.stdout.as_mut().expect("piped").read_exact(&mut [0; 5]).expect("made");
        let far = Far(holder);
        let there = far.within();
        sh(&format!("ip link set lo up; {there} ip link set lo up; {there} ip addr add {THERE}/32 dev lo"));
        for line in 0..2 {
            sh(&format!(
                "ip link add d{line} type veth peer name e{line} netns {}
                ip link set d{line} up
                ip addr add 10.99.{line}.1/24 dev d{line}
                {there} ip link set e{line} up
                {there} ip addr add 10.99.{line}.2/24 dev e{line}",
                far.0.id()
            ));
        }
        sh(&format!("ip route add {THERE} via 10.99.0.2"));
        far
    }

    /// What begins a command line there.
    fn within(&self) -> String {
        format!("nsenter -t {} -n", self.0.id())
    }

    /// Starts a server there.
    fn serve(&self, place: &Place, options: &[&str]) -> Server {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.0.id().to_string(), "-n", env!("CARGO_BIN_EXE_uts"), "serve", "--json"]);
        command.args(["--dir", "srv", "--listen", &format!("{THERE}:0"), "--writable", "--anyone", "--perf"]);
        command.args(options);
        Place::served(Place::begin(place.here(command, "server-home")))
    }

    /// The first line falls silent, though its address stays: the second takes its place.
    fn falls_silent(&self) {
        let there = self.within();
        sh(&format!(
            "ip neigh replace 10.99.0.2 lladdr 02:00:00:00:00:02 dev d0
            {there} ip neigh replace 10.99.0.1 lladdr 02:00:00:00:00:02 dev e0
            sleep 0.5
            ip route replace {THERE} via 10.99.1.2"
        ));
    }

    /// The address of the second line goes, and after a while another comes.
    fn changes_address(&self) {
        sh(&format!(
            "ip addr del 10.99.1.1/24 dev d1
            sleep 0.5
            ip addr add 10.99.1.3/24 dev d1
            ip route replace {THERE} via 10.99.1.2"
        ));
    }

    /// Moves under a program, which has to end in good time.
    fn moves_under(&self, mut running: Running) -> Vec<String> {
        for moves in [Far::falls_silent, Far::changes_address] {
            std::thread::sleep(Duration::from_millis(1500));
            assert!(!running.has_ended(), "it has ended before: {}", running.end().err);
            moves(self);
        }
        assert!(!running.has_ended(), "it has ended before: {}", running.end().err);
        let begun = Instant::now();
        let ended = running.wait().ok();
        assert!(begun.elapsed() < REST_MAX, "{:?} after the last move", begun.elapsed());
        ended.out
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Slow enough to last for longer than the moves: 8 MB take 8 s.
const SLOW: [&str; 2] = ["--property", "maxSendRate=8Mbit/s"];

#[test]
fn a_copy_goes_on_in_another_network() {
    if !in_own_namespace("-Urmn", module_path!(), "a_copy_goes_on_in_another_network") {
        return;
    }
    let (place, content) = (Place::new(), pattern(8 << 20));
    place.write("big", &content);
    let far = Far::new();
    let server = far.serve(&place, &SLOW);
    // By no other connection: it is to go on in the one that it has.
    let args = ["--json", "--retry", "0", SLOW[0], SLOW[1], "big", &server.url("big")];
    far.moves_under(place.start_cp(&server, &args));
    assert!(place.read("srv/big") == content);
}

#[test]
fn what_is_fetched_goes_on_in_another_network() {
    if !in_own_namespace("-Urmn", module_path!(), "what_is_fetched_goes_on_in_another_network") {
        return;
    }
    let (place, content) = (Place::new(), pattern(8 << 20));
    place.write("srv/big", &content);
    let far = Far::new();
    let server = far.serve(&place, &SLOW);
    far.moves_under(place.start_cp(&server, &["--json", "--retry", "0", &server.url("big"), "big"]));
    assert!(place.read("big") == content);
}

#[test]
fn a_measurement_goes_on_in_another_network() {
    if !in_own_namespace("-Urmn", module_path!(), "a_measurement_goes_on_in_another_network") {
        return;
    }
    let place = Place::new();
    let far = Far::new();
    let server = far.serve(&place, &SLOW);
    let args =
        ["perf", "--json", "--pin", &server.fingerprint, SLOW[0], SLOW[1], "-n", "8MB", &server.address];
    let out = far.moves_under(place.start(&args));
    let result = out.iter().find(|line| line.contains(r#""event":"result""#)).expect("a result");
    let result: serde_json::Value = serde_json::from_str(result).expect("JSON");
    assert_eq!(result["receiver"][0]["delivered"].as_f64(), Some(8e6), "{result}");
    assert!(result["cut_short"].is_null(), "{result}");
}

#[test]
fn a_list_goes_on_in_another_network() {
    if !in_own_namespace("-Urmn", module_path!(), "a_list_goes_on_in_another_network") {
        return;
    }
    let place = Place::new();
    let long = "n".repeat(200);
    for n in 0..4000 {
        place.write(&format!("srv/{n}-{long}"), b"");
    }
    let far = Far::new();
    // Its list takes some 900 kB.
    let server = far.serve(&place, &["--property", "maxSendRate=1Mbit/s"]);
    let out = far.moves_under(place.start(&["ls", "--pin", &server.fingerprint, &server.url("")]));
    assert_eq!(out.len(), 4000);
}
