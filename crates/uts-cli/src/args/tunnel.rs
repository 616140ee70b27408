//! Arguments of `uts tunnel` and `uts ctl`.

use super::{ReachArgs, VerboseArgs, WantedArgs};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use uts_tunnel::forward::Forward;

/// Options of `uts tunnel`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts tunnel -L 8080:127.0.0.1:80 host           port 8080 here is port 80 of the server
  uts tunnel -D 1080 host                        a SOCKS5 proxy at port 1080 here
  uts tunnel -R 8080:127.0.0.1:3000 host         port 8080 of the server is port 3000 here
  uts tunnel -L udp/5353:10.0.0.1:53 host        datagrams
  uts tunnel -L 2222:db:22,connPriority=10 -L 8080:web:80,connPriority=200 host
  uts tunnel -D 1080 --control ~/.uts-tunnel host
  uts ctl ~/.uts-tunnel                          what is carried now

The server says where may be led: uts serve --forward 127.0.0.1:80
--authorized-keys FILE. Ports here are open to this host only unless BIND says
otherwise (* = all networks). Each connection has a flow of its own. What is
typed goes before bulk, unless connPriority says otherwise. The tunnel connects
again by itself. Ctrl-C ends it.")]
pub struct TunnelArgs {
    /// Server, as host, host:port or uts://host[:port]; or NAME, for [tunnel.NAME] of config.toml
    #[arg(value_name = "HOST")]
    pub host: String,
    /// Lead a port here to a place that the server reaches; behind commas, properties of this
    /// forward alone (NAME=VALUE); may be repeated
    #[arg(short = 'L', long, value_name = "[udp/][BIND:]PORT:HOST:HOSTPORT", value_parser = Forward::parse)]
    pub local: Vec<Forward>,
    /// Lead a port of the server to a place that this host reaches; as for -L
    #[arg(short = 'R', long, value_name = "[udp/][BIND:]PORT:HOST:HOSTPORT", value_parser = Forward::parse)]
    pub remote: Vec<Forward>,
    /// Lead a port here to wherever each program says that connects to it (SOCKS5, UDP too); as for
    /// -L
    #[arg(short = 'D', long, value_name = "[BIND:]PORT", value_parser = Forward::parse_dynamic)]
    pub dynamic: Vec<Forward>,
    /// Make a socket here by which uts ctl looks at the tunnel and changes it
    #[arg(long, value_name = "FILE")]
    pub control: Option<PathBuf>,
    /// Keep connections for this long while nothing is heard of the server, if the server does
    #[arg(long, value_name = "TIME", default_value = crate::given::SILENCE, value_parser = crate::given::silence)]
    pub silence: Duration,
    /// Give up when there was no connection for this long, at first or after a loss; 0 gives up at
    /// once [default: never]
    #[arg(long, value_name = "TIME", value_parser = crate::given::lasting)]
    pub retry: Option<Duration>,
    /// Identity of the server, and of this end to it
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Requirements on what is sent
    #[command(flatten)]
    pub wanted: WantedArgs,
    /// Print errors only, not what happens to the tunnel
    #[arg(short, long)]
    pub quiet: bool,
    /// Words that are said beside
    #[command(flatten)]
    pub more: VerboseArgs,
}

/// Options of `uts ctl`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts ctl ~/.uts-tunnel
  uts ctl ~/.uts-tunnel set connCapacityProfile=scavenger
  uts ctl ~/.uts-tunnel set --forward 127.0.0.1:8080 connPriority=200
  uts ctl ~/.uts-tunnel end 17
  uts ctl ~/.uts-camera set uts.playoutDelay=300ms
  uts ctl /run/uts/control
  uts ctl /run/uts/control set --id 3 maxSendRate=5Mbit/s
  uts ctl /run/uts/control audit")]
pub struct CtlArgs {
    /// Socket of the tunnel, the stream of media or the server, the FILE of its --control, or of a
    /// session of `uts ssh`
    #[arg(value_name = "FILE")]
    pub socket: PathBuf,
    /// Action [default: list]
    #[command(subcommand)]
    pub command: Option<CtlCommand>,
    /// Print one JSON object
    #[arg(long, global = true)]
    pub json: bool,
}

/// Options of `uts top`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts top /run/uts/control
  uts top ~/.uts-tunnel

The arrows mark a client, of which the last lines say what its connection saw, what
it changed, what it expects of that, and what that has brought. q ends it.")]
pub struct TopArgs {
    /// Socket of the tunnel or the server, the FILE of its --control
    #[arg(value_name = "FILE")]
    pub socket: PathBuf,
    /// Ask so often, from 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::given::rhythm)]
    pub every: Duration,
}

/// Action on a tunnel or a server.
#[derive(Clone, Debug, Subcommand)]
pub enum CtlCommand {
    /// Print the connection to the server, the forwards, and what they carry, with profiles; of a
    /// server its clients, what they carry and cost, and what is held for them
    List,
    /// Ask a property from now on: of both directions of the connection, or of connections that a
    /// forward will carry; at a server also a fact of its host, as host.battery=yes
    Set {
        /// A property (see uts properties)
        #[arg(value_name = "NAME=VALUE")]
        property: String,
        /// Only of this forward, by the place at which it listens
        #[arg(long, value_name = "PLACE")]
        forward: Option<String>,
        /// At a server, of what is sent to this client, by its number in the list
        #[arg(long = "id", value_name = "NUMBER", conflicts_with = "forward")]
        client: Option<u64>,
    },
    /// Print where a server has led its clients, and from where it has kept them, since it started
    Audit,
    /// End a connection that is carried, or a client of a server
    End {
        /// Its number in the list
        id: u64,
    },
}
