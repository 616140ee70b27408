//! `uts-lab router` as a program: as an ordinary user, and what is left when it is killed.

use crate::running::Running;
use crate::skip;
use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use uts_router::{TestbedConfig, doctor_with};

const PATIENCE: Duration = Duration::from_secs(30);
/// An ordinary user, if this is run by root.
const NOBODY: u32 = 65_534;

fn router(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    command.arg("router").args(arguments);
    command
}

fn possible() -> bool {
    let program = Some(env!("CARGO_BIN_EXE_uts-lab").into());
    let checks = doctor_with(&TestbedConfig { program, ..TestbedConfig::default() });
    let missing: Vec<_> = checks.iter().filter(|check| check.required && !check.ok).collect();
    if let Some(check) = missing.first() {
        skip::say(&format!("{}: {}; what would help: {}", check.name, check.why, check.remedy));
    }
    missing.is_empty()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_ordinary_user_has_hosts_and_is_told_what_would_be_better() {
    if !possible() {
        return;
    }
    let as_user = |command: &mut Command| -> Option<Output> {
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        match command.current_dir("/").stdin(Stdio::null()).output() {
            Ok(output) => Some(output),
            Err(e) => {
                let program = env!("CARGO_BIN_EXE_uts-lab");
                skip::say(&format!("{program} may not be run by others: {e}; chmod -R o+rX would permit it"));
                None
            }
        }
    };
    let Some(checks) = as_user(&mut router(&["doctor", "--json"])) else { return };
    let checks = text(&checks.stdout);
    let hosts = checks.lines().find(|line| line.contains("hosts in namespaces")).unwrap();
    if hosts.contains("\"ok\":false") {
        return skip::say(&format!("for an ordinary user: {hosts}"));
    }
    assert!(hosts.contains("without privileges"), "{hosts}");

    let probe = [env!("CARGO_BIN_EXE_uts-lab"), "router", "probe", "ping", "10.77.0.2"];
    let arguments = [&["run", "--both", "delay=2ms rate=10mbit", "--json", "--"][..], &probe].concat();
    let output = as_user(&mut router(&arguments)).unwrap();
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(text(&output.stdout).contains("\"answered\":3"), "{output:?}");
    let ending: serde_json::Value = serde_json::from_str(errors.lines().last().unwrap()).unwrap();
    assert_eq!(ending["paths"][0]["forward"]["delivered"], 3, "{ending}");
    assert_eq!(ending["fidelity"]["lost_outside"]["not_sent"], 0);
}

#[test]
fn the_programs_status_is_ours_and_bad_arguments_have_status_2() {
    let status = |arguments: &[&str]| router(arguments).output().unwrap();
    let bad = status(&["run", "--both", "rate=fast", "--", "true"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(text(&bad.stderr).contains("rate=fast: must be a rate as in 9600bit"), "{bad:?}");
    assert_eq!(status(&["run"]).status.code(), Some(2));
    if !possible() {
        return;
    }
    assert_eq!(status(&["run", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let missing = status(&["run", "--", "/no/such-program"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("cannot start `/no/such-program`: No such file"), "{missing:?}");
    let bad = status(&["run", "--on", "5:true", "--", "true"]);
    assert!(text(&bad.stderr).contains("host 5: there are 2, counted from 0"), "{bad:?}");
    let bad = status(&["run", "--on", "true", "--", "true"]);
    assert!(text(&bad.stderr).contains("--on true: must be HOST:COMMAND"), "{bad:?}");
}

/// A process: its parent, and the namespaces that it is in.
struct Process {
    parent: u32,
    namespaces: BTreeSet<PathBuf>,
}

/// All processes that can be seen, but for those that have ended and are not yet collected.
fn processes() -> HashMap<u32, Process> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, process(pid)?))).collect()
}

fn process(pid: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // `pid (name) state parent …`, and the name may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let of = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().filter_map(|e| e.ok());
    let mut namespaces: BTreeSet<PathBuf> =
        of(format!("/proc/{pid}/ns").into()).filter_map(|e| std::fs::read_link(e.path()).ok()).collect();
    for thread in of(format!("/proc/{pid}/task").into()) {
        namespaces.extend(std::fs::read_link(thread.path().join("ns/net")));
    }
    // A descriptor keeps a namespace just as well.
    let open = of(format!("/proc/{pid}/fd").into()).filter_map(|e| std::fs::read_link(e.path()).ok());
    namespaces.extend(open.filter(|target| target.to_string_lossy().starts_with("net:")));
    (state != "Z").then_some(Process { parent, namespaces })
}

fn descendants(of: u32, all: &HashMap<u32, Process>) -> Vec<u32> {
    let mut found = vec![of];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(all.iter().filter(|(_, p)| p.parent == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

fn interfaces() -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir("/sys/class/net").unwrap();
    entries.filter_map(|e| Some(e.ok()?.path())).collect()
}

/// Starts a testbed with programs on both hosts. One of them has left its session and its parent.
/// Kills what `victim` chooses of the program, the outer and the inner process.
fn nothing_is_left_after_killing(victim: usize) {
    if !possible() {
        return;
    }
    let before = interfaces();
    let stray = "setsid sh -c 'sleep 1000 & sleep 1001' & echo running; wait";
    let arguments = ["run", "--on", "1:setsid sleep 1002", "--", "sh", "-c", stray];
    let mut running = Running(
        router(&arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap(),
    );
    let mut line = String::new();
    BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "running\n");
    let own = process(std::process::id()).unwrap().namespaces;
    let begun = Instant::now();
    // Outer, inner, two shells that start, two sleeps on host 0, one on host 1.
    let (all, family) = loop {
        let all = processes();
        let family = descendants(running.0.id(), &all);
        if family.iter().filter(|pid| is_sleeping(**pid)).count() == 3 {
            break (all, family);
        }
        assert!(begun.elapsed() < PATIENCE, "{family:?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    let outer = *family.iter().find(|pid| all[pid].parent == running.0.id()).unwrap();
    let inner = *family.iter().find(|pid| all[pid].parent == outer).unwrap();
    let namespaces: BTreeSet<PathBuf> = family
        .iter()
        .flat_map(|pid| all[pid].namespaces.iter().cloned())
        .filter(|n| !own.contains(n))
        .collect();
    let networks = namespaces.iter().filter(|n| n.to_string_lossy().starts_with("net:")).count();
    assert_eq!(networks, 3, "RouterPC's, and each host's: {namespaces:?}");
    assert_eq!(interfaces(), before, "the machine's own network");

    let pid = [running.0.id(), outer, inner][victim].cast_signed();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let mut rest = String::new();
    // Every copy of the program's output is closed: by it, and by what it has started.
    running.0.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(!running.0.wait().unwrap().success());
    let begun = Instant::now();
    loop {
        let all = processes();
        let left: Vec<u32> = family.iter().copied().filter(|pid| all.contains_key(pid)).collect();
        let kept: Vec<u32> =
            all.iter().filter(|(_, p)| !p.namespaces.is_disjoint(&namespaces)).map(|(pid, _)| *pid).collect();
        if left.is_empty() && kept.is_empty() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "processes {left:?} are left, and {kept:?} keep namespaces");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(interfaces(), before, "the machine's own network");
}

fn is_sleeping(pid: u32) -> bool {
    std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"))
        .is_ok_and(|c| c.starts_with(b"sleep\0"))
}

#[test]
fn nothing_is_left_when_the_program_is_killed() {
    nothing_is_left_after_killing(0);
}

#[test]
fn nothing_is_left_when_the_outer_process_is_killed() {
    nothing_is_left_after_killing(1);
}

#[test]
fn nothing_is_left_when_the_inner_process_is_killed() {
    nothing_is_left_after_killing(2);
}
