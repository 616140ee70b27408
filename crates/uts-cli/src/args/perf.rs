//! Arguments of `uts perf`.

use super::{ReachArgs, WantedArgs};
use clap::Args as ClapArgs;
use std::time::Duration;

/// Options of `uts perf`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts perf host
  uts perf host -t 30 -P 4 --reverse
  uts perf host -n 1GB --profile congestion=bbr
  uts perf host --messages --every 20ms --length 160B --deadline 150ms --bidir
  uts perf host --requests 1000 --answer 64kB -P 8

The server: uts serve --perf --anyone. It measures for one client at a time.
Flows share one connection, and with it one congestion window. In reverse, the
server's own properties and profile hold.")]
pub struct PerfArgs {
    /// Server, as host, host:port or uts://host[:port]
    #[arg(value_name = "HOST")]
    pub host: String,
    /// Measure for so long; a number alone counts seconds [default: 10s]
    #[arg(short = 't', long, value_name = "TIME", value_parser = crate::given::measured, conflicts_with_all = ["bytes", "requests"])]
    pub time: Option<Duration>,
    /// Send so many bytes in all, as 1GB, shared by the flows; a number alone counts bytes
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = crate::given::bytes, conflicts_with_all = ["messages", "requests"])]
    pub bytes: Option<u64>,
    /// Use so many flows at once, in each direction
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub parallel: u32,
    /// Tell how it goes this often; a number alone counts seconds, and 0 is never
    #[arg(short = 'i', long, value_name = "TIME", default_value = "1s", value_parser = crate::given::seconds)]
    pub interval: Duration,
    /// Send at most at this rate, as 5Mbit/s or 5M, and 0 is no limit: short for --property
    /// maxSendRate=…
    #[arg(short = 'b', long, value_name = "RATE", value_parser = crate::given::bitrate)]
    pub bitrate: Option<String>,
    /// The server sends, or asks
    #[arg(short = 'R', long)]
    pub reverse: bool,
    /// Both ends send, or ask, at once
    #[arg(long, conflicts_with = "reverse")]
    pub bidir: bool,
    /// Send messages at a pace, each of which is of use until its deadline
    #[arg(long, conflicts_with_all = ["requests", "parallel"])]
    pub messages: bool,
    /// Time between two messages
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = uts_units::text::parse_duration, requires = "messages")]
    pub every: Duration,
    /// Size of a message; a number alone counts bytes
    #[arg(short = 'l', long, value_name = "SIZE", default_value = "160B", value_parser = crate::given::bytes, requires = "messages")]
    pub length: u64,
    /// Time from its sending for which a message is of use
    #[arg(long, value_name = "TIME", default_value = "150ms", value_parser = uts_units::text::parse_duration, requires = "messages")]
    pub deadline: Duration,
    /// Send so many requests, one after another on each flow, and wait for their answers
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub requests: Option<u32>,
    /// Size of a request
    #[arg(long, value_name = "SIZE", default_value = "100B", value_parser = uts_units::text::parse_bytes, requires = "requests")]
    pub request: u64,
    /// Size of an answer
    #[arg(long, value_name = "SIZE", default_value = "10kB", value_parser = uts_units::text::parse_bytes, requires = "requests")]
    pub answer: u64,
    /// Identity of the server, and of this end to it
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Requirements on what is sent
    #[command(flatten)]
    pub wanted: WantedArgs,
    /// Print one JSON object a line (see docs/uts.md)
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Print the results only
    #[arg(short, long)]
    pub quiet: bool,
}
