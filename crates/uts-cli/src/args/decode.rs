//! Options of `uts decode`.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Options of `uts decode`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  SSLKEYLOGFILE=keys uts cp big.iso uts://host/incoming/
  uts decode --keylog keys capture.pcapng
  uts decode --keylog keys --exchanges capture.pcapng
  tcpdump -i any -w - udp port 4433 | uts decode --keylog keys -

Each line is a packet: seconds since the first, number of the connection, > from the end that opened
it or < to it, epoch, packet number, bytes, frames.")]
pub struct DecodeArgs {
    /// A capture in the form pcap or pcapng, which may be compressed (gzip); - for standard input
    #[arg(value_name = "CAPTURE")]
    pub capture: PathBuf,
    /// Secrets of TLS, as a program writes them where SSLKEYLOGFILE is set [default: the file that
    /// SSLKEYLOGFILE names here]
    #[arg(long, value_name = "FILE")]
    pub keylog: Option<PathBuf>,
    /// Print only packets that take part in an exchange of mechanisms
    #[arg(long)]
    pub exchanges: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}
