//! An end as a process: a server that takes a file, a voice and keystrokes, or the client that
//! sends them. It goes on until its session or its reader is gone.

mod client;
mod server;

use crate::explain::requirements;
use crate::word::{Asks, Traffic, Word};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::task::LocalSet;
use uts::{ConnectionConfig, Requirements};
use uts_end::output::print_line;
use uts_end::transport::tcp::{Tcp, TcpSettings};
use uts_end::{PARENT_VARIABLE, Role};
use uts_traffic::transport::{Session, Stream};

/// A transport of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// UTS.
    Uts,
    /// UTS that keeps its first profiles
    Fixed,
    /// The kernel's TCP, with CUBIC (RFC 9438)
    Tcp,
}

impl Kind {
    /// The name in arguments.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Uts => "uts",
            Kind::Fixed => "fixed",
            Kind::Tcp => "tcp",
        }
    }
}

/// One end of the live demonstration
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct EndArguments {
    /// Which end this is
    #[arg(long, value_enum)]
    pub role: Role,
    /// The transport
    #[arg(long, value_enum)]
    pub kind: Kind,
    /// Where a server listens; port 0 for any free one
    #[arg(long, value_name = "ADDRESS:PORT", required_if_eq("role", "server"))]
    pub listen: Option<SocketAddr>,
    /// Where a client connects to
    #[arg(long, value_name = "ADDRESS:PORT", required_if_eq("role", "client"))]
    pub to: Option<SocketAddr>,
    /// Identity of the server, as it has printed it
    #[arg(long, value_name = "IDENTITY")]
    pub peer: Option<String>,
}

/// Streams and messages between the two ends.
struct Carried {
    /// Takes and gives messages of the voice.
    session: Rc<dyn Session>,
    file: Stream,
    keys: Stream,
}

/// The first byte of a stream says what the stream is for.
const FILE: u8 = b'f';
const KEYS: u8 = b'k';

/// Runs an end until its session ends, or nobody reads what it prints.
///
/// # Errors
/// The reason for the end.
pub fn run(arguments: &EndArguments) -> Result<()> {
    end_with_parent()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        match arguments.role {
            Role::Server => server::run(arguments).await,
            Role::Client => client::run(arguments).await,
        }
    })
}

/// Has the system end this process with the one that has started it, if that is wanted.
fn end_with_parent() -> Result<()> {
    let Some(parent) = std::env::var(PARENT_VARIABLE).ok().and_then(|id| id.parse::<i32>().ok()) else {
        return Ok(());
    };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // It may have ended before.
    if rustix::process::getppid().is_none_or(|now| now.as_raw_nonzero().get() != parent) {
        bail!("the process {parent}, which has started this end, has ended");
    }
    Ok(())
}

fn say(word: &Word) -> Result<()> {
    Ok(print_line(&serde_json::to_string(word)?)?)
}

/// Requirements of one of those that are carried, over a connection that adapts or does not.
fn required(kind: Kind, traffic: Traffic, asks: Asks) -> Requirements {
    let mut required = requirements(traffic, asks);
    required.adapt = kind != Kind::Fixed;
    required
}

fn config(kind: Kind, traffic: Traffic) -> ConnectionConfig {
    ConnectionConfig {
        requirements: required(kind, traffic, Asks::default()),
        keep_alive: std::time::Duration::from_secs(5),
        ..ConnectionConfig::default()
    }
}

fn tcp() -> Result<Tcp> {
    Tcp::single(TcpSettings::default()).map_err(anyhow::Error::msg)
}
