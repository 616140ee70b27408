//! Abilities of this machine for the laboratory, and the command that would allow each that is
//! missing.

use crate::experiment::machine;
use crate::worlds::ends::Programs;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Area that needs it: `sim`, `relay`, `router`, `transports`, `programs` or `machine`.
    pub area: &'static str,
    /// Name of the ability, program or setting that was looked at.
    pub what: String,
    /// The machine can do it.
    pub can: bool,
    /// A world needs it.
    pub needed: bool,
    /// Finding in words: a version, a figure, or the reason why it cannot.
    pub found: String,
    /// A command after which it can, where there is one.
    pub command: Option<String>,
}

impl Finding {
    fn new(area: &'static str, what: impl Into<String>, can: bool, found: impl Into<String>) -> Self {
        Finding { area, what: what.into(), can, needed: false, found: found.into(), command: None }
    }

    fn needed(self) -> Self {
        Finding { needed: true, ..self }
    }

    /// Adds the command that helps, if it cannot.
    fn or(self, command: impl Into<String>) -> Self {
        let command = (!self.can).then(|| command.into());
        Finding { command, ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.can { "yes" } else { "no" };
        writeln!(f, "{:<4}{:<11}{}: {}", mark, self.area, self.what, self.found)?;
        match &self.command {
            Some(command) => writeln!(f, "{:<15}do: {command}", ""),
            None => Ok(()),
        }
    }
}

/// Looks at everything.
pub fn examine(programs: &Programs) -> Vec<Finding> {
    let mut findings = vec![sim(), relay()];
    findings.extend(router());
    findings.push(timer());
    findings.extend(kernel_transports());
    findings.extend(rivals(programs));
    findings.extend(tools());
    findings
}

fn sim() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Finding::new("sim", "virtual time", true, format!("{cores} runs at a time, one for each core")).needed()
}

#[allow(clippy::disallowed_types, reason = "it is the system that is examined")]
fn relay() -> Finding {
    let result = std::net::UdpSocket::bind("127.0.0.1:0");
    let found = result.as_ref().map_or_else(ToString::to_string, |_| "UDP over loopback works".into());
    Finding::new("relay", "UDP relay", result.is_ok(), found).needed().or("ip link set lo up")
}

fn router() -> Vec<Finding> {
    let checks = uts_router::doctor().into_iter();
    let finding = |check: uts_router::Check| {
        let finding = Finding::new("router", check.name, check.ok, check.why);
        let finding = if check.remedy.is_empty() { finding } else { finding.or(check.remedy) };
        Finding { needed: check.required, ..finding }
    };
    checks.map(finding).collect()
}

/// Measures how late a thread wakes up: real-time worlds are no truer than this.
fn timer() -> Finding {
    const SPAN: Duration = Duration::from_millis(1);
    let mut late: Vec<Duration> = (0..200)
        .map(|_| {
            let due = Instant::now() + SPAN;
            std::thread::sleep(SPAN);
            Instant::now().saturating_duration_since(due)
        })
        .collect();
    late.sort_unstable();
    let at = |i: usize| late.get(i).map_or(0, Duration::as_micros);
    let load = machine::load().map_or("unknown".into(), |load| load.to_string());
    let found =
        format!("{} us late at the median, {} us at the 99th percentile; load {load}", at(100), at(198));
    Finding::new("machine", "waking up in time", at(198) < 2000, found)
}

fn kernel_transports() -> Vec<Finding> {
    let available = machine::words("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let mut findings: Vec<Finding> = ["cubic", "reno", "bbr"]
        .into_iter()
        .map(|name| {
            let can = available.iter().any(|a| a == name);
            let found = if can { "the kernel has it" } else { "the kernel has not loaded it" };
            Finding::new("transports", format!("TCP {name}"), can, found)
                .or(format!("sudo modprobe tcp_{name}"))
        })
        .collect();
    let mptcp = machine::words("/proc/sys/net/mptcp/enabled");
    let (can, found) = match mptcp.first().map(String::as_str) {
        Some("1") => (true, "the kernel has it"),
        Some(_) => (false, "the kernel has it, switched off"),
        None => (false, "the kernel has none"),
    };
    let finding = Finding::new("transports", "MPTCP", can, found);
    findings.push(if mptcp.is_empty() { finding } else { finding.or("sudo sysctl net.mptcp.enabled=1") });
    findings
}

fn rivals(programs: &Programs) -> Vec<Finding> {
    match programs.rivals() {
        Ok(rivals) => rivals
            .list
            .iter()
            .map(|rival| {
                let version = rival.version.clone().unwrap_or_else(|| "here".into());
                let found = if rival.available { version } else { rival.why.clone().unwrap_or_default() };
                let finding = Finding::new("transports", &rival.name, rival.available, found);
                match &rival.get {
                    Some(get) => finding.or(get),
                    None => finding,
                }
            })
            .collect(),
        Err(why) => {
            let (why, command) = why.split_once("; build it by: ").unwrap_or((&why, ""));
            let finding = Finding::new("transports", "rivals (QUIC, SRT, ENet)", false, why);
            vec![if command.is_empty() { finding } else { finding.or(command) }]
        }
    }
}

fn tools() -> Vec<Finding> {
    [
        ("wireshark", "wireshark", "to look into recorded packets"),
        ("tcpdump", "tcpdump", "to look into recorded packets"),
    ]
    .into_iter()
    .map(|(program, package, what)| {
        let place = find_program(program);
        let found = place.as_ref().map_or_else(|| "not here".into(), |place| place.display().to_string());
        Finding::new("programs", format!("{program}, {what}"), place.is_some(), found)
            .or(format!("sudo apt install {package}"))
    })
    .collect()
}

fn find_program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| path.is_file())
}
