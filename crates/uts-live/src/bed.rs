//! The places of a side's ends, and the path between them.

use crate::knobs::Knobs;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use uts_end::{PARENT_VARIABLE, Role};
use uts_path::{LinkConfig, PathConfig, Target};
use uts_relay::{Relay, RelayConfig, RelayHandle};
use uts_router::{Io, RemoteChild, Testbed, TestbedConfig};

/// A path in real time, with a host at each end.
pub(crate) enum Bed {
    /// Hosts in network namespaces, with RouterPC between them.
    Router(Testbed),
    /// Loopback, with a relay on it once a server is there.
    Relay(Box<Relayed>),
}

pub(crate) struct Relayed {
    state: Mutex<(Knobs, Option<RelayHandle>)>,
    seed: u64,
}

/// A process that is an end.
pub(crate) struct Process {
    handle: Handle,
    /// Its standard output and its errors.
    pub outputs: Option<(Box<dyn Read + Send>, Box<dyn Read + Send>)>,
    /// Its standard input.
    pub input: Option<Box<dyn Write + Send>>,
}

enum Handle {
    Remote(RemoteChild),
    Local(Child),
}

impl Bed {
    /// Hosts behind RouterPC.
    ///
    /// # Errors
    /// The system does not permit it.
    pub fn router(knobs: &Knobs, seed: u64) -> Result<Bed> {
        let path = PathConfig::both(LinkConfig::default().with(&knobs.change()?)?);
        // Small queues are to see packets one by one.
        let config = TestbedConfig { seed, offload: false, ..TestbedConfig::point_to_point(path) };
        Ok(Bed::Router(Testbed::start(config)?))
    }

    /// Loopback and a relay.
    pub fn relay(knobs: &Knobs, seed: u64) -> Bed {
        Bed::Relay(Box::new(Relayed { state: Mutex::new((*knobs, None)), seed }))
    }

    /// Where a server listens.
    pub fn server_address(&self) -> SocketAddr {
        let host = match self {
            Bed::Router(bed) => bed.address(1),
            Bed::Relay(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        SocketAddr::new(host, 0)
    }

    /// Where a client reaches a server over the path.
    ///
    /// # Errors
    /// There is no path.
    pub fn way_to(&self, server: SocketAddr) -> Result<SocketAddr> {
        let Bed::Relay(relayed) = self else { return Ok(server) };
        let mut state = relayed.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut config = RelayConfig::new(server);
        config.path = PathConfig::both(uts_relay::default_link().with(&state.0.change()?)?);
        config.seed = relayed.seed;
        let relay = Relay::start(config)?;
        let address = relay.local_addr();
        state.1 = Some(relay);
        Ok(address)
    }

    /// Changes the path.
    ///
    /// # Errors
    /// It has ended.
    pub fn set(&self, knobs: &Knobs) -> Result<()> {
        let change = knobs.change()?;
        match self {
            Bed::Router(bed) => bed.set(0, Target::Both, &change)?,
            Bed::Relay(relayed) => {
                let mut state = relayed.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                state.0 = *knobs;
                if let Some(relay) = &state.1 {
                    relay.set(Target::Both, change)?;
                }
            }
        }
        Ok(())
    }

    /// Starts an end.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&self, role: Role, program: &PathBuf, arguments: Vec<String>) -> Result<Process> {
        match self {
            Bed::Router(bed) => {
                let host = usize::from(role == Role::Server);
                let program = program.to_str().context("this program's name is not UTF-8")?;
                let command = bed.command(host, program).args(arguments);
                let mut child = command.stdin(Io::Pipe).stdout(Io::Pipe).stderr(Io::Pipe).spawn()?;
                let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
                    bail!("an end without outputs");
                };
                let outputs: (Box<dyn Read + Send>, Box<dyn Read + Send>) = (Box::new(out), Box::new(err));
                let input = child.stdin.take().map(|input| Box::new(input) as Box<dyn Write + Send>);
                Ok(Process { handle: Handle::Remote(child), outputs: Some(outputs), input })
            }
            Bed::Relay(_) => {
                let mut child = Command::new(program)
                    .args(arguments.into_iter().map(OsString::from))
                    .env(PARENT_VARIABLE, std::process::id().to_string())
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .context("cannot start an end")?;
                let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
                    bail!("an end without outputs");
                };
                let outputs: (Box<dyn Read + Send>, Box<dyn Read + Send>) = (Box::new(out), Box::new(err));
                let input = child.stdin.take().map(|input| Box::new(input) as Box<dyn Write + Send>);
                Ok(Process { handle: Handle::Local(child), outputs: Some(outputs), input })
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // What has ended already need not be.
        match &mut self.handle {
            Handle::Remote(child) => {
                let _ = child.kill();
            }
            Handle::Local(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
