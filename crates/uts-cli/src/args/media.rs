//! Arguments of `uts media`.

use super::{ReachArgs, VerboseArgs, WantedArgs};
use crate::media::place::Place;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Options of `uts media`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts serve --media --authorized-keys FILE
  ffmpeg -re -i film.mp4 -c copy -f mpegts - | uts media send - uts://host/film
  uts media recv uts://host/film - | ffplay -
  uts media send udp://:5000 uts://host/camera
  uts media recv --latency 80ms uts://host/camera udp://127.0.0.1:6000
  uts media recv --control ~/.uts-camera uts://host/camera udp://127.0.0.1:6000
  uts ctl ~/.uts-camera set uts.playoutDelay=300ms

One client sends a name, any number receive it. docs/media.md has more.")]
pub struct MediaArgs {
    /// Way that media goes
    #[command(subcommand)]
    pub command: MediaCommand,
}

/// Way that media goes.
#[derive(Clone, Debug, Subcommand)]
pub enum MediaCommand {
    /// Send a stream to a server under a name
    Send(SendArgs),
    /// Receive a stream that a server has under a name
    Recv(RecvArgs),
}

/// Options of `uts media send`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts media send udp://:5000 uts://host/camera
  uts media send udp://239.1.1.1:5000 uts://host:5000/hall
  ffmpeg -i film.mp4 -c copy -f mpegts - | uts media send - uts://host/film

Each UDP datagram is carried as it is, as one of MPEG-TS or RTP. Standard input is an
MPEG transport stream, which is sent at the pace of its clock. The server takes
streams if it was started with --media.")]
pub struct SendArgs {
    /// Place that datagrams arrive at, as udp://[HOST]:PORT (without HOST: on all networks of this
    /// host), or - for a transport stream on standard input
    #[arg(value_name = "FROM", value_parser = Place::parse)]
    pub from: Place,
    /// Server, and the name that the stream has there, as uts://host[:port]/name
    #[arg(value_name = "URL")]
    pub url: String,
    /// Options of both ways
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of `uts media recv`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts media recv uts://host/camera udp://127.0.0.1:6000
  uts media recv --latency 300ms uts://host/camera - | ffplay -

Datagrams come out as they were sent, at the pace at which they were made. It may begin before
the sender does, or in the middle of a stream, and goes on when the sender is another.")]
pub struct RecvArgs {
    /// Server, and the name that the stream has there, as uts://host[:port]/name
    #[arg(value_name = "URL")]
    pub url: String,
    /// Place that datagrams go to, as udp://HOST:PORT, or - for standard output
    #[arg(value_name = "TO", value_parser = Place::parse)]
    pub to: Place,
    /// Options of both ways
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of both ways.
#[derive(Clone, Debug, ClapArgs)]
pub struct CommonArgs {
    /// Age at which a datagram is handed over by a receiver, beyond the quickest way; at a sender,
    /// the age after which it is repeated no more: 1ms to 10s
    #[arg(long, value_name = "TIME", default_value = "120ms", value_parser = crate::given::latency)]
    pub latency: Duration,
    /// Make a socket here by which uts ctl looks at the stream and changes it
    #[arg(long, value_name = "FILE")]
    pub control: Option<PathBuf>,
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
    /// Print errors only, not what happens to the stream
    #[arg(short, long)]
    pub quiet: bool,
    /// Words that are said beside
    #[command(flatten)]
    pub more: VerboseArgs,
}
