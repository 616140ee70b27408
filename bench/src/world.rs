//! Two hosts joined by a veth pair, in network namespaces that need no privileges.
//!
//! The whole program runs again in a user and network namespace of its own (the client's host). A
//! child holds a second network namespace (the server's host). Both end with the program.

use crate::offload::Interface;
use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};

/// Set where the program runs in its namespace.
const INSIDE: &str = "UTS_BENCH_INSIDE";

/// The largest IP packet on the veth pair.
pub const MTU_BYTES: usize = 1500;

/// Where the ends of a measurement run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Both on this host.
    Loopback,
    /// The client here, the server beyond a veth pair as it comes: super-packets cross it whole.
    Veth,
    /// The same without segmentation offload, so that every packet of 1500 bytes travels by itself.
    Segments,
    /// The same, and the receiver's kernel joins packets again (GRO).
    SegmentsGro,
}

impl Place {
    /// All of them, in the order of reports.
    pub const ALL: [Place; 4] = [Place::Loopback, Place::Veth, Place::Segments, Place::SegmentsGro];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Place::Loopback => "loopback",
            Place::Veth => "veth",
            Place::Segments => "veth-1500",
            Place::SegmentsGro => "veth-1500-gro",
        }
    }

    /// The veth pair's number, and third number of its addresses.
    const fn pair(self) -> Option<u8> {
        match self {
            Place::Loopback => None,
            Place::Veth => Some(0),
            Place::Segments => Some(1),
            Place::SegmentsGro => Some(2),
        }
    }

    /// Features of both interfaces, and whether they are on.
    pub const fn features(self) -> &'static [(&'static str, bool)] {
        const TCP: (&str, bool) = ("tx-tcp-segmentation", false);
        const UDP: (&str, bool) = ("tx-udp-segmentation", false);
        match self {
            Place::Loopback | Place::Veth => &[],
            Place::Segments => &[TCP, UDP, ("rx-gro", false)],
            Place::SegmentsGro => &[TCP, UDP, ("rx-gro", true)],
        }
    }
}

/// The two hosts.
pub struct World {
    server: Option<Child>,
    places: Vec<Place>,
    /// Places that there are not, and why.
    pub skipped: Vec<String>,
}

/// Runs this program again in namespaces, if that works here; gives its exit status then.
///
/// # Errors
/// Why there are no namespaces.
pub fn reenter() -> Result<Option<i32>> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(None);
    }
    for program in ["ip", "nsenter"] {
        let found = Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        ensure!(found.is_ok_and(|status| status.success()), "`{program}` is missing");
    }
    let probe = Command::new("unshare").args(["-Urn", "true"]).output().context("`unshare` is missing")?;
    let why = String::from_utf8_lossy(&probe.stderr);
    ensure!(probe.status.success(), "no user namespaces here: {}", why.trim());
    let status = Command::new("unshare")
        .arg("-Urn")
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .status()?;
    Ok(Some(status.code().unwrap_or(1)))
}

/// Holds a namespace until nobody wants it any more.
pub fn hold() -> Result<()> {
    println!("held");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

impl World {
    /// Loopback as it is, and no other host.
    pub fn loopback_only() -> Self {
        World { server: None, places: vec![Place::Loopback], skipped: Vec::new() }
    }

    /// Makes both hosts.
    pub fn make() -> Result<Self> {
        ip(&["link", "set", "lo", "up"])?;
        let mut server = Command::new("unshare")
            .arg("-n")
            .arg(std::env::current_exe()?)
            .arg("hold")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare")?;
        let mut line = [0; 5];
        server.stdout.take().context("no output")?.read_exact(&mut line).context("no second namespace")?;
        let pid = server.id().to_string();
        let mut world = World::loopback_only();
        world.server = Some(server);
        run(world.at_server(Place::Veth, "ip").args(["link", "set", "lo", "up"]))?;
        for place in Place::ALL {
            let Some(pair) = place.pair() else { continue };
            match world.lay(place, pair, &pid) {
                Ok(()) => world.places.push(place),
                Err(why) => world.skipped.push(format!("{}: {why:#}", place.name())),
            }
        }
        Ok(world)
    }

    /// Joins the hosts by one more pair.
    fn lay(&self, place: Place, pair: u8, pid: &str) -> Result<()> {
        let (near, far) = (format!("near{pair}"), format!("far{pair}"));
        let mtu = MTU_BYTES.to_string();
        ip(&[
            "link", "add", &near, "mtu", &mtu, "type", "veth", "peer", "name", &far, "mtu", &mtu, "netns",
            pid,
        ])?;
        ip(&["addr", "add", &format!("10.99.{pair}.1/24"), "dev", &near])?;
        ip(&["link", "set", &near, "up"])?;
        for arguments in
            [vec!["addr", "add", &format!("10.99.{pair}.2/24"), "dev", &far], vec!["link", "set", &far, "up"]]
        {
            run(self.at_server(place, "ip").args(&arguments))?;
        }
        if !place.features().is_empty() {
            Interface::named(&near)?.set(place.features())?;
            in_namespace_of(pid, || Interface::named(&far)?.set(place.features()))?;
        }
        Ok(())
    }

    /// Leaves out all other places.
    pub fn keep(&mut self, wanted: &[Place]) {
        self.places.retain(|place| wanted.contains(place));
    }

    /// The places that there are.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Where the server listens.
    pub fn server_ip(&self, place: Place) -> IpAddr {
        match place.pair() {
            None => Ipv4Addr::LOCALHOST.into(),
            Some(pair) => Ipv4Addr::new(10, 99, pair, 2).into(),
        }
    }

    /// A program on the server's host.
    pub fn at_server(&self, place: Place, program: &str) -> Command {
        match (&self.server, place.pair()) {
            (Some(server), Some(_)) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/proc/{}/ns/net", server.id())).arg("--").arg(program);
                command
            }
            _ => Command::new(program),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            drop(server.stdin.take());
            let _ = server.wait();
        }
    }
}

/// Does something in the network namespace of a process.
fn in_namespace_of(pid: &str, act: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/net")).context("the second namespace")?;
    // A thread of its own: others keep their namespace.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(namespace, CloneFlags::CLONE_NEWNET).context("entering the second namespace")?;
            act()
        });
        thread.join().unwrap_or_else(|_| bail!("its thread has panicked"))
    })
}

/// Calls `ip`.
pub fn ip(arguments: &[&str]) -> Result<()> {
    run(Command::new("ip").args(arguments))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", why.trim());
    Ok(())
}
