//! Hosts: network namespaces. A thread lives in each, keeps it, and does there what it is asked.

use super::config::TestbedConfig;
use super::error::RouterError;
use super::sys::{Offload, PacketSocket, receive_in_thread, set_offload, unshare};
use super::topology::{ethernet_of, ipv4_of, ipv6_of};
use rustix::thread::UnshareFlags;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

type Job = Box<dyn FnOnce() + Send>;

/// An interface that has not come up by then does not.
const UP_TIME_MAX: Duration = Duration::from_secs(10);

/// Where the programs of iproute2 may be if the search path of an ordinary user does not name them.
const PROGRAM_DIRECTORIES: [&str; 3] = ["", "/usr/sbin/", "/sbin/"];

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    number: usize,
    jobs: Sender<Job>,
    namespace: File,
}

impl Host {
    /// Makes one, with nothing but a loopback interface that is down.
    pub(super) fn new(number: usize) -> Result<Self, RouterError> {
        let (jobs, todo) = channel::<Job>();
        let (made, namespace) = channel();
        std::thread::Builder::new()
            .name(format!("host {number}"))
            .spawn(move || {
                let entered =
                    unshare(UnshareFlags::NEWNET).and_then(|()| File::open("/proc/thread-self/ns/net"));
                let is_in = entered.is_ok();
                if made.send(entered).is_ok() && is_in {
                    todo.iter().for_each(|job| job());
                }
            })
            .map_err(|e| RouterError::system("start a host's thread", e))?;
        let namespace = namespace
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("its thread has ended")))
            .map_err(|e| RouterError::system("make a host's network namespace", e))?;
        Ok(Host { number, jobs, namespace })
    }

    /// Does something in the host's namespace; programs that are started there stay there.
    pub(super) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (done, result) = channel();
        let job = move || {
            // It is waited for below.
            let _ = done.send(job());
        };
        let gone = || io::Error::other("the host's thread has ended");
        self.jobs.send(Box::new(job)).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())
    }

    /// Connects the host with the router, and gives both ends their settings. To be called in the
    /// router's namespace.
    pub(super) fn connect(&self, config: &TestbedConfig) -> Result<PacketSocket, RouterError> {
        let interface = format!("host{}", self.number);
        let mtu = config.mtu_bytes.to_string();
        let stdin = self.namespace.try_clone().map_err(|e| RouterError::system("copy a descriptor", e))?;
        // `ip` finds the namespace as its standard input.
        let add = format!(
            "link add {interface} mtu {mtu} type veth peer name eth0 mtu {mtu} netns /proc/self/fd/0"
        );
        ip(&add.split(' ').collect::<Vec<_>>(), stdin.into())?;
        ip(&["link", "set", &interface, "up"], Stdio::null())?;
        // Without, RouterPC is slower, and nothing else.
        let receives_alone = config.is_fast() && veth_waits() && queue_before(&interface).is_ok();
        if receives_alone {
            let _ = set_offload(&interface, Offload::Send, false);
        }
        self.set_up(config, receives_alone)?;
        wait_until_up(&interface)?;
        // Opened last: what the interface itself sends when it comes up is nobody's traffic.
        open_socket(&interface).map_err(|e| RouterError::system("open a packet socket", e))
    }

    fn set_up(&self, config: &TestbedConfig, receives_alone: bool) -> Result<(), RouterError> {
        let settings = sysctls(config);
        let batch = batch(self.number, config);
        self.run(move || {
            settings.iter().try_for_each(|(name, value)| set_sysctl(name, value))?;
            ip_batch(&batch)?;
            if receives_alone {
                let _ = receive_in_thread("eth0");
            }
            wait_until_up("eth0")
        })
        .map_err(|e| RouterError::system("reach a host", e))?
    }

    /// Datagrams that found their socket's buffer full, and packets dropped on the interface, both
    /// since the start.
    pub(super) fn losses(&self) -> io::Result<HostLosses> {
        self.run(|| {
            let in_sockets = ["/proc/thread-self/net/snmp", "/proc/thread-self/net/snmp6"]
                .iter()
                .filter_map(|file| std::fs::read_to_string(file).ok())
                .filter_map(|text| receive_buffer_errors(&text))
                .sum();
            HostLosses { in_sockets, on_interface: interface_drops("eth0") }
        })
    }
}

/// Losses that hosts themselves count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct HostLosses {
    pub in_sockets: u64,
    pub on_interface: u64,
}

/// Packets that an interface of the calling thread's namespace could not hand on.
pub(super) fn interface_drops(interface: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    drops_in(&text, interface).unwrap_or(0)
}

/// `name: bytes packets errs drop …` for reception, eight columns, then the same for transmission.
fn drops_in(text: &str, interface: &str) -> Option<u64> {
    let columns = text.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'))?;
    let columns: Vec<u64> = columns.split_whitespace().map_while(|c| c.parse().ok()).collect();
    Some(columns.get(3)? + columns.get(11)?)
}

/// `Udp: … RcvbufErrors …` and a line of values below; for IPv6, `Udp6RcvbufErrors value`.
fn receive_buffer_errors(text: &str) -> Option<u64> {
    let six = text.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    if let Some(value) = six {
        return value.trim().parse().ok();
    }
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == "RcvbufErrors")?;
    values.split_whitespace().nth(at)?.parse().ok()
}

fn open_socket(interface: &str) -> io::Result<PacketSocket> {
    let probe = std::os::unix::net::UnixDatagram::unbound()?;
    PacketSocket::open(rustix::net::netdevice::name_to_index(&probe, interface)?)
}

/// Settings of a namespace before it gets an interface.
fn sysctls(config: &TestbedConfig) -> Vec<(String, String)> {
    let mut settings = vec![
        // A run must not profit from what an earlier one has learned.
        ("net.ipv4.tcp_no_metrics_save", "1"),
        // `ping` without privileges; the one group that a user namespace knows.
        ("net.ipv4.ping_group_range", "0 0"),
        // Nothing of the kernel's own on the paths.
        ("net.ipv6.conf.default.accept_ra", "0"),
        ("net.ipv6.conf.default.autoconf", "0"),
        ("net.ipv6.conf.default.router_solicitations", "0"),
        ("net.ipv6.conf.default.dad_transmits", "0"),
    ];
    if !config.ipv6 {
        settings.push(("net.ipv6.conf.all.disable_ipv6", "1"));
        settings.push(("net.ipv6.conf.default.disable_ipv6", "1"));
    }
    let mut settings: Vec<(String, String)> =
        settings.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    settings.extend(config.sysctls.iter().cloned());
    settings
}

/// Turns IPv6 off in the router's namespace: its interfaces only pass on.
pub(super) fn silence_router() -> Result<(), RouterError> {
    set_sysctl("net.ipv6.conf.all.disable_ipv6", "1")?;
    set_sysctl("net.ipv6.conf.default.disable_ipv6", "1")
}

/// Sets a sysctl of the calling thread's network namespace.
fn set_sysctl(name: &str, value: &str) -> Result<(), RouterError> {
    let file = format!("/proc/sys/{}", name.replace('.', "/"));
    match std::fs::write(&file, value) {
        Ok(()) => Ok(()),
        // A kernel without IPv6 needs not be told to leave it.
        Err(e) if e.kind() == io::ErrorKind::NotFound && name.starts_with("net.ipv6.") => Ok(()),
        Err(e) => Err(RouterError::system(&format!("set {name} to `{value}`"), e)),
    }
}

/// Commands of `ip` on a host. Neighbours are known, so that nobody asks for them.
fn batch(number: usize, config: &TestbedConfig) -> String {
    let mut text = String::from("link set lo up\n");
    // Writing to a String does not fail.
    let _ = writeln!(text, "link set eth0 address {} addrgenmode none", ethernet_text(number));
    if !config.offload {
        let _ = writeln!(text, "link set eth0 gso_max_segs 1");
    }
    let _ = writeln!(text, "addr add {}/24 broadcast 10.77.0.255 dev eth0", ipv4_of(number));
    let _ = writeln!(text, "link set eth0 up");
    let _ = writeln!(text, "route add 224.0.0.0/4 dev eth0");
    if config.ipv6 {
        let _ = writeln!(text, "addr add {}/64 dev eth0 nodad", ipv6_of(number));
    }
    for other in (0..config.topology.hosts()).filter(|&other| other != number) {
        let ethernet = ethernet_text(other);
        let _ = writeln!(text, "neigh replace {} lladdr {ethernet} dev eth0 nud permanent", ipv4_of(other));
        if config.ipv6 {
            let _ =
                writeln!(text, "neigh replace {} lladdr {ethernet} dev eth0 nud permanent", ipv6_of(other));
        }
    }
    text
}

fn ethernet_text(host: usize) -> String {
    ethernet_of(host).map(|byte| format!("{byte:02x}")).join(":")
}

/// True if a veth interface lets packets wait for a slow peer, instead of dropping them. This needs
/// Linux 6.16 and a queue.
pub(super) fn veth_waits() -> bool {
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().unwrap_or_default().split(['.', '-']).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 16),
        _ => false,
    }
}

/// Gives an interface a queue, for more packets than the buffer of a packet socket holds.
fn queue_before(interface: &str) -> Result<(), RouterError> {
    let arguments = ["qdisc", "replace", "dev", interface, "root", "pfifo", "limit", "10000"];
    let output = tc_command()?.args(arguments).stdin(Stdio::null()).output();
    judge(output, "tc", &arguments.join(" "))
}

/// Runs `ip`.
pub(super) fn ip(arguments: &[&str], stdin: Stdio) -> Result<(), RouterError> {
    let mut command = ip_command()?;
    let output = command.args(arguments).stdin(stdin).output();
    judge(output, "ip", &arguments.join(" "))
}

fn ip_batch(text: &str) -> Result<(), RouterError> {
    let mut command = ip_command()?;
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let fed = command.spawn().and_then(|mut child| {
        // If it has ended early, its own words say more than a broken pipe.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
        child.wait_with_output()
    });
    judge(fed, "ip", "-batch")
}

/// Waits until an interface carries packets. It is told to at once, but the kernel takes time. What
/// is sent before that is lost.
pub(super) fn wait_until_up(interface: &str) -> Result<(), RouterError> {
    let begun = Instant::now();
    loop {
        let output = ip_command()?.args(["-o", "link", "show", interface]).output();
        let output = output.map_err(|e| RouterError::system("run `ip`", e))?;
        if String::from_utf8_lossy(&output.stdout).contains(" state UP ") {
            return Ok(());
        }
        if begun.elapsed() > UP_TIME_MAX {
            let cause = io::Error::new(io::ErrorKind::TimedOut, "it stays down");
            return Err(RouterError::system(&format!("bring {interface} up"), cause));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn judge(output: io::Result<Output>, program: &str, what: &str) -> Result<(), RouterError> {
    let output = output.map_err(|e| RouterError::system(&format!("run `{program}`"), e))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(RouterError::system(&format!("{program} {what}"), io::Error::other(words.trim().to_owned())))
}

/// `ip`, wherever it is.
pub(super) fn ip_command() -> Result<Command, RouterError> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    program("ip", &FOUND)
}

/// `tc`, wherever it is.
pub(super) fn tc_command() -> Result<Command, RouterError> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    program("tc", &FOUND)
}

/// A program of iproute2, wherever it is; what was found is kept.
fn program(name: &str, found: &OnceLock<Option<String>>) -> Result<Command, RouterError> {
    let works = |program: &String| {
        let mut command = Command::new(program);
        command.arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let places = || PROGRAM_DIRECTORIES.iter().map(|directory| format!("{directory}{name}"));
    let found = found.get_or_init(|| places().find(works));
    let missing = || io::Error::new(io::ErrorKind::NotFound, "it is not here; the package is iproute2");
    found.as_ref().map(Command::new).ok_or_else(|| RouterError::system(&format!("run `{name}`"), missing()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_kernels_tables() {
        let dev = "Inter-|   Receive                            |  Transmit\n \
                   face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo\n    \
                   lo:       0       0    0    9    0     0          0         0        0       0    0    9    0     0       0          0\n  \
                   eth0:    1386      15    0    2    0     0          0         0     1386      15    0    5    0     0       0          0\n";
        assert_eq!(drops_in(dev, "eth0"), Some(7));
        assert_eq!(drops_in(dev, "eth"), None);
        let snmp = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 1 2 3 4 55 6\n\
                    UdpLite: InDatagrams RcvbufErrors\nUdpLite: 1 9\n";
        assert_eq!(receive_buffer_errors(snmp), Some(55));
        assert_eq!(receive_buffer_errors("Ip6InReceives 3\nUdp6RcvbufErrors                \t8\n"), Some(8));
        assert_eq!(receive_buffer_errors("nonsense"), None);
    }
}
