//! Options of `uts cp` and `uts ls`.

use super::{ReachArgs, WantedArgs};
use clap::Args as ClapArgs;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `uts cp`.
#[derive(Clone, Debug, ClapArgs)]
#[command(
    override_usage = "uts cp [OPTIONS] <SRC>... <DST>",
    after_help = "Examples:
  uts cp a.iso b.iso uts://host/incoming/
  uts cp -r uts://host:5000/photos .
  uts cp --pin SHA256:… big.iso uts://192.0.2.7/
  tar c src | uts cp - uts://host/src.tar
  uts cp --property connCapacityProfile=scavenger -r src uts://host/backup
  uts cp -rz --delete src/. uts://host/mirror

SRC… or DST is on a server, written uts://host[:port]/path. A path is beneath
the directory that is served. `-` is standard input or output. To continue an
interrupted copy, run the same command again. A file gets its name only when it
is whole and the hashes of both ends agree. If something was left out, the exit
status is 1, unless an option asked for it."
)]
pub struct CpArgs {
    /// Sources, then the destination
    // How many are needed, the job says: it knows their names.
    #[arg(value_name = "PATH", num_args = 0..)]
    pub paths: Vec<std::ffi::OsString>,
    /// Copy directories with everything in them
    #[arg(short, long)]
    pub recursive: bool,
    /// Copy symbolic links that lead to within the copy, instead of leaving them out
    #[arg(long)]
    pub links: bool,
    /// Leave out links, devices, pipes and sockets in directories without a warning
    #[arg(long)]
    pub skip_special: bool,
    /// Send files whole where another version of them stands, and not only what differs
    #[arg(short = 'W', long)]
    pub whole_file: bool,
    /// With -r, delete what is at the destination and not at the source, once all else has arrived;
    /// at a server, if it allows this
    #[arg(long)]
    pub delete: bool,
    /// Compress content on its way, where that pays
    #[arg(short = 'z', long)]
    pub compress: bool,
    /// Leave out names in directories that match (*.o, cache/, /top, **/x); may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<String>,
    /// Change nothing; print what would be copied and deleted
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Limit the rate in either direction, as 5Mbit/s or 600kB/s; 0 is no limit
    #[arg(long, value_name = "RATE", value_parser = crate::given::limit)]
    pub bwlimit: Option<String>,
    /// Keep trying for this long, from the first try or a loss on; 0 gives up at once [default:
    /// 10min after a loss, one first try]
    #[arg(long, value_name = "TIME", value_parser = crate::given::lasting)]
    pub retry: Option<Duration>,
    /// Set the modes of the sources, whatever the umask; at a server, if it allows this
    #[arg(short, long)]
    pub preserve_mode: bool,
    /// Keys of the server and of this end
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Requirements of what is sent
    #[command(flatten)]
    pub wanted: WantedArgs,
    /// Say more at the end: bytes that were sent and found, what was deleted
    #[arg(long, conflicts_with = "quiet")]
    pub stats: bool,
    /// Print one JSON object a line on standard output (see docs/uts.md)
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Print errors and warnings only
    #[arg(short, long)]
    pub quiet: bool,
    /// Write each packet sent, repeated and acknowledged to FILE (CSV)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// Options of `uts ls`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts ls uts://host/
  uts ls -r uts://host:5000/photos

Each line has the mode, the size, the time of the last change in UTC, and the name.")]
pub struct LsArgs {
    /// File or directory to list, as uts://host[:port]/path
    #[arg(value_name = "URL")]
    pub path: std::ffi::OsString,
    /// List everything beneath it too
    #[arg(short, long)]
    pub recursive: bool,
    /// Keys of the server and of this end
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}
