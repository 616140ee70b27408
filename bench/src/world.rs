//! Two hosts joined by a veth pair, in network namespaces that need no privileges.
//!
//! The whole program runs again in a user and network namespace of its own (the client's host); a child that holds a
//! second network namespace is the server's. Both end with the program.

use anyhow::{Context, Result, ensure};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};

/// Set where the program runs in its namespace.
const INSIDE: &str = "UTS_BENCH_INSIDE";

/// The largest IP packet on the veth pair.
pub const MTU_BYTES: usize = 1500;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// Where the ends of a measurement run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Both on this host.
    Loopback,
    /// The client here, the server beyond the veth pair.
    Veth,
}

impl Place {
    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Place::Loopback => "loopback",
            Place::Veth => "veth",
        }
    }
}

/// The two hosts.
pub struct World {
    server: Option<Child>,
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
        World { server: None }
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
        let world = World { server: Some(server) };
        let mtu = MTU_BYTES.to_string();
        ip(&[
            "link", "add", "veth0", "mtu", &mtu, "type", "veth", "peer", "name", "veth1", "mtu", &mtu,
            "netns", &pid,
        ])?;
        ip(&["addr", "add", &format!("{CLIENT}/24"), "dev", "veth0"])?;
        ip(&["link", "set", "veth0", "up"])?;
        for arguments in [
            vec!["addr", "add", &format!("{SERVER}/24"), "dev", "veth1"],
            vec!["link", "set", "veth1", "up"],
            vec!["link", "set", "lo", "up"],
        ] {
            run(world.at_server(Place::Veth, "ip").args(&arguments))?;
        }
        Ok(world)
    }

    /// The places that there are.
    pub fn places(&self) -> Vec<Place> {
        let mut places = vec![Place::Loopback];
        places.extend(self.server.as_ref().map(|_| Place::Veth));
        places
    }

    /// Where the server listens.
    pub fn server_ip(&self, place: Place) -> IpAddr {
        match place {
            Place::Loopback => Ipv4Addr::LOCALHOST.into(),
            Place::Veth => SERVER.into(),
        }
    }

    /// A program on the server's host.
    pub fn at_server(&self, place: Place, program: &str) -> Command {
        match (&self.server, place) {
            (Some(server), Place::Veth) => {
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

fn ip(arguments: &[&str]) -> Result<()> {
    run(Command::new("ip").args(arguments))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", why.trim());
    Ok(())
}
