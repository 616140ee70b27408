//! `uts-lab demo` with a stand-in for `uts`, a script that says what the real one would. Tests what
//! becomes of its output, and how the demo ends when an end fails.

use crate::skip;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use uts_path::PathConfig;
use uts_record::demo;
use uts_router::TestbedConfig;

/// Speaks for both ends. `MODE` makes it fail in one way or another; the served directory and the
/// processes' numbers are left beside the script.
const SCRIPT: &str = r#"#!/bin/bash
here=$(dirname "$0")
export LC_ALL=C
# A line, with the time for each T; times of the real one count from its start, which is as good.
say() { printf '%s\n' "${1//T/$EPOCHREALTIME}"; }
if [ "$1" = --version ]; then say "uts 9.9.9"; exit; fi
echo $$ >> "$here/pids"
if [ "$1" = serve ]; then
    [ "$MODE" = no-server ] && { echo "no such directory" >&2; exit 1; }
    printf %s "$3" > "$here/served"
    say '{"event":"start","t":T,"address":"127.0.0.1:9","fingerprint":"KEY:abc"}'
    if [ "$MODE" = server-dies ]; then sleep 0.2; echo "out of memory" >&2; exit 7; fi
    trap 'say "{\"event\":\"done\",\"t\":T,\"packets_repaired\":5}"; exit 0' TERM
    while :; do sleep 0.02; done
fi
adapt=yes
for word in "$@"; do
    [ "$word" = --no-adapt ] && adapt=no
    [ "$previous" = --trace ] && trace=$word
    [ "$previous" = --pin ] && [ "$word" != KEY:abc ] && exit 9
    before=$previous previous=$word
done
source=$before url=$previous
hostport=${url#uts://} name=${hostport#*/} hostport=${hostport%%/*}
exec 3<> "/dev/udp/${hostport%:*}/${hostport#*:}"
send() { for _ in $(seq "$1"); do head -c 1000 /dev/zero >&3; sleep 0.002; done; }
exchange() {
    [ $adapt = no ] && return
    say '{"event":"exchange","t":T,"step":"requested","direction":"out","epoch":'$1',"seen":"loss of 5 %","changes":"fec: none -> xor","expects":"more goodput"}'
    say '{"event":"exchange","t":T,"step":"completed","direction":"out","epoch":'$1',"took_ms":41.5}'
    say '{"event":"exchange","t":T,"step":"brought","epoch":'$1',"line":"12 % more"}'
}
say '{"event":"start","t":T}'
if [ "$MODE" = early-exchange ]; then send 5; exchange 1; sleep 0.3; send 5; else send 10; fi
say '{"event":"progress","t":T,"bytes":10000,"total":30000,"rate_bps":1e6,"rtt_ms":40.5,"loss":0.05,"profile":"congestion=cubic"}'
case "$MODE" in
    client-dies) say '{"event":"error","message":"the disk is full"}'; echo "cannot go on" >&2; exit 1 ;;
    bad-json) say 'thread panicked at nowhere' ;;
    stalls) while :; do sleep 0.02; done ;;
    says-nothing) exit 0 ;;
esac
send 4; sleep 0.3
[ "$MODE" = early-exchange ] || exchange 1
send 12; sleep 0.3
[ "$MODE" = one-exchange ] || exchange 2
send 8
cp "$source" "$(cat "$here/served")/$name"
[ "$MODE" = damages ] && echo more >> "$(cat "$here/served")/$name"
{ say t_s,kind,number,bytes,flow,position; say T,sent,1,1000,0,0; say T,lost,1,1000,0,0; } > "$trace"
say '{"event":"file","t":T,"packets_sent":34,"packets_repeated":3}'
say '{"event":"done","t":T}'
"#;

struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("uts");
        fs::write(&script, SCRIPT).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("tmp")).unwrap();
        Stage { dir }
    }

    fn command(&self, mode: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
        command.arg("demo").arg("--uts").arg(self.dir.path().join("uts")).arg("--out").arg(self.out());
        command.args(["--size", "30kB", "--seed", "7"]).args(arguments);
        command.env("MODE", mode).env("TMPDIR", self.dir.path().join("tmp"));
        command
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    /// Runs to the end, after which nothing may be left: no process, no temporary file.
    fn run(&self, mode: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(mode, arguments).output().unwrap();
        self.check_clean();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }

    fn check_clean(&self) {
        for pid in fs::read_to_string(self.dir.path().join("pids")).unwrap_or_default().lines() {
            let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
            assert!(test_kill_process(pid).is_err(), "process {pid:?} is left");
        }
        let left: Vec<_> = fs::read_dir(self.dir.path().join("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// Runs to a failure, and returns what is said of it.
    fn fail(mode: &str, arguments: &[&str]) -> String {
        let (code, stdout, stderr) = Stage::new().run(mode, arguments);
        assert_eq!(code, Some(1), "{mode}: {stdout}{stderr}");
        assert!(stderr.starts_with("uts-lab: "), "{stderr}");
        stderr
    }
}

#[test]
fn a_copy_is_followed_compared_and_reported() {
    let stage = Stage::new();
    let (code, stdout, stderr) = stage.run("", &["--against", "fixed"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    for wanted in [
        " s  path: loss=ge:0.05,4\n",
        " s  path: loss=0 rate=20mbit (both ways)\n",
        "exchange 1: saw loss of 5 %; changes fec: none -> xor; expects more goodput\n",
        "exchange 2 in force after 42 ms\n",
        "exchange 2 brought: 12 % more\n",
        "SHA-256 the same at both ends\n",
        "Adaptive  First profile fixed\n",
        "report.html\n",
    ] {
        assert!(stdout.contains(wanted), "`{wanted}` is missing in\n{stdout}");
    }
    let record = demo::load(&stage.out()).unwrap();
    assert_eq!(record.setting.uts_version, "uts 9.9.9");
    let [adaptive, fixed] = record.runs.as_slice() else { panic!("not two runs") };
    assert_eq!((adaptive.exchanges.len(), fixed.exchanges.len()), (2, 0));
    assert_eq!((adaptive.changes.len(), adaptive.link.len()), (2, 3));
    assert_eq!(adaptive.summary.packets_sent, Some(34));
    assert_eq!(adaptive.summary.packets_repaired, Some(5), "what the server says at its end is heard");
    assert_eq!((adaptive.trace.sent.number.len(), adaptive.trace.lost.number.len()), (1, 1));
    assert!(adaptive.queue.t_s.len() > 10 && adaptive.summary.capacity_bytes.unwrap() > 0.0);
    assert!(fixed.commands[1].contains("--no-adapt") && !adaptive.commands[1].contains("--no-adapt"));
    assert!(stage.out().join("report.html").is_file());
}

#[test]
fn as_many_bytes_go_by_tcp_for_comparison() {
    let stage = Stage::new();
    let path = PathConfig::both("delay=0ms".parse().unwrap());
    let program = Some(env!("CARGO_BIN_EXE_uts-lab").into());
    let config = TestbedConfig { program, ..TestbedConfig::point_to_point(path) };
    let checks = uts_router::doctor_with(&config);
    if let Some(check) = checks.into_iter().find(|check| check.required && !check.ok) {
        let (code, _, stderr) = stage.run("", &["--against", "tcp"]);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("TCP cannot be compared with here"), "{stderr}");
        return skip::say(&format!("{}: {}", check.name, check.why));
    }
    let (code, stdout, stderr) = stage.run("", &["--against", "tcp"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stdout.lines().any(|line| line.split_whitespace().eq(["Adaptive", "Kernel", "TCP"])), "{stdout}");
    let record = demo::load(&stage.out()).unwrap();
    let [adaptive, tcp] = record.runs.as_slice() else { panic!("not two runs") };
    assert_eq!((tcp.name.as_str(), tcp.exchanges.len(), adaptive.exchanges.len()), ("tcp", 0, 2));
    assert_eq!((tcp.summary.payload_bytes, tcp.summary.is_cut_short), (30_000, false));
    // The same changes after the same bytes, and the path of the other way alone changes nothing.
    let changes = |run: &demo::Run| {
        run.changes.iter().map(|c| (c.target.clone(), c.change.clone())).collect::<Vec<_>>()
    };
    assert_eq!(changes(tcp), changes(adaptive));
    assert!(tcp.link.len() == 3 && !tcp.queue.t_s.is_empty() && tcp.summary.packets_sent > Some(20));
    assert!(tcp.commands[0].contains("kind = \"tcp\""), "{:?}", tcp.commands);
    let page = std::fs::read_to_string(stage.out().join("report.html")).unwrap();
    assert!(page.contains("The kernel’s TCP with CUBIC took") && page.contains("Goodput, kernel TCP"));
}

#[test]
fn what_is_compared_with_is_named() {
    let (code, _, stderr) = Stage::new().run("", &["--against", "carrier-pigeons"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("carrier-pigeons") && stderr.contains("tcp, fixed"), "{stderr}");
}

#[test]
fn a_given_file_is_carried_under_a_plain_name() {
    let stage = Stage::new();
    let file = stage.dir.path().join("a file & more");
    fs::write(&file, [7; 30_000]).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    command.arg("demo").arg("--uts").arg(stage.dir.path().join("uts")).arg("--out").arg(stage.out());
    let output = command.arg("--file").arg(&file).arg("--no-comparison").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record = demo::load(&stage.out()).unwrap();
    assert_eq!((record.runs.len(), record.setting.file.name.as_str()), (1, "a file & more"));
    assert!(record.runs[0].commands[1].ends_with("/a_file___more"), "{:?}", record.runs[0].commands);
    assert!(file.is_file(), "a given file is left where it is");
}

#[test]
fn a_change_without_an_exchange_fails_and_is_named() {
    let stage = Stage::new();
    let (code, _, stderr) = stage.run("one-exchange", &["--no-comparison"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("no exchange answered the change of the path `loss=0 rate=20mbit` at "),
        "{stderr}"
    );
    assert!(!stderr.contains("ge:0.05"), "{stderr}");
    assert!(stage.out().join("report.html").is_file(), "the report helps to find out why");
}

#[test]
fn a_change_for_which_an_exchange_had_prepared_needs_none() {
    let stage = Stage::new();
    let (code, stdout, stderr) = stage.run("early-exchange", &["--no-comparison"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let line =
        stdout.lines().find(|line| line.ends_with("needed no exchange: one before it had prepared for it."));
    assert!(line.is_some_and(|line| line.contains("`loss=ge:0.05,4` at ")), "{stdout}");
    let report = fs::read_to_string(stage.out().join("report.html")).unwrap();
    assert!(report.contains("one before it had prepared for it"), "the report says so, too");
}

#[test]
fn a_file_that_differs_fails() {
    let stderr = Stage::fail("damages", &[]);
    assert!(stderr.contains("the file differs at the two ends of the adaptive run: SHA-256 "), "{stderr}");
}

#[test]
fn a_client_that_dies_is_quoted() {
    let stderr = Stage::fail("client-dies", &[]);
    assert!(stderr.contains("`uts cp` ended early (exit status: 1): the disk is full"), "{stderr}");
    assert!(stderr.contains("`uts cp` wrote last:\n    cannot go on"), "{stderr}");
}

#[test]
fn a_server_that_dies_is_quoted() {
    let stderr = Stage::fail("server-dies", &[]);
    assert!(stderr.contains("`uts serve` ended early (exit status: 7)"), "{stderr}");
    assert!(stderr.contains("`uts serve` wrote last:\n    out of memory"), "{stderr}");
    let stderr = Stage::fail("no-server", &[]);
    assert!(stderr.contains("`uts serve` ended early (exit status: 1)"), "{stderr}");
    assert!(stderr.contains("no such directory"), "{stderr}");
}

#[test]
fn what_is_no_event_is_shown() {
    let stderr = Stage::fail("bad-json", &[]);
    let wanted = "`uts cp --json` printed a line that is no event, not JSON";
    assert!(stderr.contains(wanted) && stderr.contains(": thread panicked at nowhere"), "{stderr}");
}

#[test]
fn a_copy_that_stands_still_is_given_up() {
    let stderr = Stage::fail("stalls", &["--patience", "1"]);
    assert!(stderr.contains("nothing moved for 1 s, at 10000 of 30000 bytes"), "{stderr}");
}

#[test]
fn a_client_that_claims_nothing_is_not_believed() {
    let stderr = Stage::fail("says-nothing", &[]);
    assert!(stderr.contains("ended without saying that the file had arrived"), "{stderr}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let stage = Stage::new();
    fs::remove_file(stage.dir.path().join("uts")).unwrap();
    let (code, _, stderr) = stage.run("", &[]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("cannot run ") && stderr.contains("(--uts names another program)"), "{stderr}");
}

#[test]
fn an_interrupt_ends_all_of_it() {
    for signal in [Signal::INT, Signal::TERM] {
        let stage = Stage::new();
        let mut command = stage.command("stalls", &[]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Both children have said something by then.
        while !lines.next().unwrap().unwrap().starts_with("Adaptive") {}
        while fs::read_to_string(stage.dir.path().join("pids")).unwrap_or_default().lines().count() < 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "uts-lab: interrupted\n");
        stage.check_clean();
    }
}
