//! Arguments of `uts group`.

use super::{ReachArgs, VerboseArgs};
use crate::media::place::Place;
use clap::{Args as ClapArgs, Subcommand};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Options of `uts group`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  ffmpeg -re -i film.mp4 -c copy -f mpegts - | uts group send - 239.1.2.3:5004 --anyone
  uts group recv host - | ffplay -
  uts group send udp://:5000 239.1.2.3:5004 --authorized-keys FILE
  uts group recv host:4433 udp://127.0.0.1:6000

What is sent once reaches all members, by multicast. docs/media.md has more.")]
pub struct GroupArgs {
    /// Part in the group
    #[command(subcommand)]
    pub command: GroupCommand,
}

/// Part in a group.
#[derive(Clone, Debug, Subcommand)]
pub enum GroupCommand {
    /// Send a stream to a group, and let members in
    Send(GroupSendArgs),
    /// Become a member, and receive the stream
    Recv(GroupRecvArgs),
}

/// Options of `uts group send`.
#[derive(Clone, Debug, ClapArgs)]
#[command(
    after_help = "Members join by a connection to this program, by which they get the keys. Who leaves, or is
not heard any more, reads nothing of what is sent from three seconds later on. The rate is
fixed by --rate: nothing looks for congestion."
)]
pub struct GroupSendArgs {
    /// Place that datagrams arrive at, as udp://[HOST]:PORT, or - for a transport stream on
    /// standard input
    #[arg(value_name = "FROM", value_parser = Place::parse)]
    pub from: Place,
    /// Address and port of the group, as 239.1.2.3:5004
    #[arg(value_name = "GROUP")]
    pub group: SocketAddr,
    /// Address or host name and UDP port at which members join, as ADDR:PORT, NAME, :PORT or PORT
    /// [default: all networks of the host, port 4433]
    #[arg(long, value_name = "WHERE")]
    pub listen: Option<String>,
    /// Let in only members whose keys are in FILE
    #[arg(long, value_name = "FILE", required_unless_present = "anyone")]
    pub authorized_keys: Option<PathBuf>,
    /// Let anyone in
    #[arg(long, conflicts_with = "authorized_keys")]
    pub anyone: bool,
    /// File with the key of this end, made if it is not there [default: the server key of the user]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Address of this host in the network of the group [default: the system's choice]
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0")]
    pub interface: IpAddr,
    /// Routers that what is sent may pass, and one: 1 stays in the network
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=255))]
    pub hops: u32,
    /// Send at this rate at the most, repairs included
    #[arg(long, value_name = "RATE", default_value = "20Mbit/s", value_parser = uts_units::text::parse_rate)]
    pub rate: u64,
    /// Datagrams of a block, 1 to 64
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub block: u8,
    /// Parities that are sent with each block, unasked, 0 to 32
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=32))]
    pub parities: u8,
    /// Give members another key after this time, though none has left
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = crate::given::lasting)]
    pub renew: Duration,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
    /// Words that are said beside
    #[command(flatten)]
    pub more: VerboseArgs,
}

/// Options of `uts group recv`.
#[derive(Clone, Debug, ClapArgs)]
pub struct GroupRecvArgs {
    /// Sender of the group, as host, host:port or uts://host[:port]
    #[arg(value_name = "HOST")]
    pub host: String,
    /// Place that datagrams go to, as udp://HOST:PORT, or - for standard output
    #[arg(value_name = "TO", value_parser = Place::parse)]
    pub to: Place,
    /// Age at which a datagram is handed over, beyond the quickest way; what has not come by then
    /// is given up: 1ms to 10s
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = crate::given::latency)]
    pub latency: Duration,
    /// Give up when there was no connection for this long, at first or after a loss; 0 gives up at
    /// once [default: never]
    #[arg(long, value_name = "TIME", value_parser = crate::given::lasting)]
    pub retry: Option<Duration>,
    /// Identity of the sender, and of this end to it
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
    /// Words that are said beside
    #[command(flatten)]
    pub more: VerboseArgs,
}
