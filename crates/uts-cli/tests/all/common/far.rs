//! Two networks: this one, which must be a namespace of its own, and another, to which two lines
//! lead.

use super::{Place, Running, Server};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The other network. The whole process must have a namespace of its own.
pub struct Far(Child);

/// The server's address, behind both lines.
pub const THERE: &str = "10.97.0.1";

/// Time that a program may take behind its last move: the rest of its work, and as much again. A
/// program that does not follow is silent for half a minute.
const REST_MAX: Duration = Duration::from_secs(25);

pub fn sh(script: &str) {
    let done = Command::new("sh").args(["-ec", script]).output().expect("it runs");
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Far {
    pub fn new() -> Self {
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

    /// Beginning of a command line there.
    pub fn within(&self) -> String {
        format!("nsenter -t {} -n", self.0.id())
    }

    /// Starts a server there.
    pub fn serve(&self, place: &Place, options: &[&str]) -> Server {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.0.id().to_string(), "-n", env!("CARGO_BIN_EXE_uts"), "serve", "--json"]);
        command.args(["--dir", "srv", "--listen", &format!("{THERE}:0"), "--writable", "--anyone", "--perf"]);
        command.args(options);
        Place::served(Place::begin(place.here(command, "server-home")))
    }

    /// The first line falls silent, though its address stays: the second takes its place.
    pub fn falls_silent(&self) {
        let there = self.within();
        sh(&format!(
            "ip neigh replace 10.99.0.2 lladdr 02:00:00:00:00:02 dev d0
            {there} ip neigh replace 10.99.0.1 lladdr 02:00:00:00:00:02 dev e0
            sleep 0.5
            ip route replace {THERE} via 10.99.1.2"
        ));
    }

    /// Has all that this protocol (`udp`, `tcp`) sends there vanish from now on, by either line.
    pub fn swallows(&self, protocol: &str) {
        let table = Self::table(protocol);
        sh(&format!(
            "for line in 0 1; do
                ip neigh replace 10.99.$line.77 lladdr 02:00:00:00:00:77 dev d$line
            done
            ip route replace {THERE} via 10.99.0.77 table {table}
            ip rule add ipproto {protocol} to {THERE} lookup {table}"
        ));
    }

    /// It arrives again.
    pub fn lets_through(&self, protocol: &str) {
        sh(&format!("ip rule del ipproto {protocol} to {THERE} lookup {}", Self::table(protocol)));
    }

    fn table(protocol: &str) -> u32 {
        if protocol == "udp" { 100 } else { 101 }
    }

    /// The address of the second line goes, and after a while another comes.
    pub fn changes_address(&self) {
        sh(&format!(
            "ip addr del 10.99.1.1/24 dev d1
            sleep 0.5
            ip addr add 10.99.1.3/24 dev d1
            ip route replace {THERE} via 10.99.1.2"
        ));
    }

    /// Moves under a program, which has to end in good time.
    pub fn moves_under(&self, mut running: Running) -> Vec<String> {
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
