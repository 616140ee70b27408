//! The command line of the program.

#![allow(rustdoc::broken_intra_doc_links, reason = "clap prints these texts: `[` is what may be left out")]

use clap::{Args as ClapArgs, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

mod decode;
mod files;
mod group;
mod keys;
mod media;
mod perf;
mod ssh;
mod tunnel;
mod wanted;
pub use decode::DecodeArgs;
pub use files::{CpArgs, LsArgs};
pub use group::{GroupArgs, GroupCommand, GroupRecvArgs, GroupSendArgs};
pub use keys::{FingerprintArgs, HostsCommand, KeygenArgs};
pub use media::{CommonArgs, MediaArgs, MediaCommand, RecvArgs, SendArgs};
pub use perf::PerfArgs;
pub use ssh::{
    SshArgs, SshAttachArgs, SshCarryArgs, SshJoinArgs, SshServerArgs, SshSessionsArgs, SshShellArgs, to_hex,
};
pub use tunnel::{CtlArgs, CtlCommand, TopArgs, TunnelArgs};
pub use wanted::{ExplainArgs, FunctionsArgs, PropertiesArgs, WantedArgs, profile};

/// The Universal Transport System.
#[derive(Debug, Parser)]
#[command(
    name = "uts",
    version,
    about = "Copies files, carries ports, streams and media, and measures: over UTS, a transport on UDP that fits itself to the path",
    after_help = "Examples:
  uts serve --dir /srv/files                  let anyone read a directory
  uts cp big.iso uts://host/incoming/         send a file
  uts cp -r uts://host/photos .               fetch a directory
  uts ssh host                                a session that lives through changes of network
  uts pipe host ssh                           reach a service behind a server
  uts media send udp://:5000 uts://host/hall  pictures and sound, in their time
  uts tunnel -L 8080:127.0.0.1:80 host        lead a port here to one there
  uts perf host                               measure what a connection carries
  uts explain --property reliability=prefer   what that leads to, and why
  uts lab run experiments/loss.toml           compare transports on equal paths

Exit status: 0 done, 1 something failed, 2 the command line is wrong,
130 interrupted, 141 done, but nobody read what was written."
)]
pub struct Args {
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve files, tunnels, services, media and measurements
    Serve(ServeArgs),
    /// Copy files and directories to or from a server
    Cp(CpArgs),
    /// List the files at a server
    Ls(LsArgs),
    /// Carry standard input and output to a service behind a server
    Pipe(PipeArgs),
    /// Run ssh so that its session lives through changes of network
    Ssh(SshArgs),
    /// Server that `uts ssh` starts at the host
    #[command(hide = true)]
    SshServer(SshServerArgs),
    /// Carry a session of `uts ssh` between a login and that server
    #[command(hide = true)]
    SshCarry(SshCarryArgs),
    /// Keep a session of `uts ssh` here
    #[command(hide = true)]
    SshKeep(SshArgs),
    /// Sessions of `uts ssh` that are kept at this host
    #[command(hide = true)]
    SshSessions(SshSessionsArgs),
    /// Attach this terminal to a shell that is held at this host for `uts ssh --attach`
    #[command(hide = true)]
    SshAttach(SshAttachArgs),
    /// Hold a shell
    #[command(hide = true)]
    SshShell(SshShellArgs),
    /// Give ssh the connection of a session
    #[command(hide = true)]
    SshJoin(SshJoinArgs),
    /// Lead ports through a server, or from it, as ssh -L, -R and -D do; UDP as well
    Tunnel(TunnelArgs),
    /// Send and receive pictures and sound by a server: MPEG-TS, RTP
    Media(MediaArgs),
    /// Send and receive pictures and sound by multicast, from one sender to many
    Group(GroupArgs),
    /// Look at a tunnel, a stream of media or a server that runs, and change it
    Ctl(CtlArgs),
    /// Follow a server or a tunnel that runs on a terminal
    Top(TopArgs),
    /// Measure what a connection to a server carries
    Perf(PerfArgs),
    /// Tell of a capture packet by packet: frames, exchanges and mechanisms by name
    Decode(DecodeArgs),
    /// List unfinished copies, or remove what is left of them
    Parts(PartsArgs),
    /// Show which profile given properties lead to, and the reason for each choice
    Explain(ExplainArgs),
    /// List the properties of a transport that can be set, with values and defaults
    Properties(PropertiesArgs),
    /// List the protocol functions with their mechanisms, and named profiles
    Functions(FunctionsArgs),
    /// List, remove or add known servers and their keys
    Hosts {
        /// The command
        #[command(subcommand)]
        command: HostsCommand,
    },
    /// Make a key if there is none, and print its fingerprint
    Keygen(KeygenArgs),
    /// Print the fingerprint of a key
    Fingerprint(FingerprintArgs),
    /// Print what a shell needs to complete command lines
    Completions(CompletionsArgs),
    /// Write the pages of the manual into a directory
    #[command(hide = true)]
    Manual(ManualArgs),
    /// Compare transports on emulated paths, by the program uts-lab
    #[command(disable_help_flag = true)]
    Lab(LabArgs),
}

/// Words for another program.
#[derive(Clone, Debug, clap::Args)]
pub struct LabArgs {
    /// Words for uts-lab: `uts lab --help` is `uts-lab --help`
    #[arg(value_name = "WORDS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<std::ffi::OsString>,
}

impl Command {
    /// True if it says nothing when a signal ends it: whoever has ended it knows. Callers end what
    /// is quiet on purpose, and ssh ends each ProxyCommand so.
    pub fn ends_silently(&self) -> bool {
        match self {
            Command::Serve(serve) => serve.quiet,
            Command::Cp(cp) => cp.quiet,
            Command::Tunnel(tunnel) => tunnel.quiet,
            Command::Perf(perf) => perf.quiet,
            Command::Pipe(_) | Command::Media(_) | Command::Group(_) => true,
            _ => false,
        }
    }
}

/// Options of `uts serve`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts serve --dir /srv/files
  uts serve --dir . --listen 127.0.0.1:0
  uts serve --dir /srv/files --writable --authorized-keys /etc/uts/keys
  uts serve --dir /tmp/inbox --writable --anyone
  uts serve --dir /srv/files --cert chain.pem --cert-key key.pem
  uts serve --pipe ssh=22 --authorized-keys /etc/uts/keys
  uts serve --forward 127.0.0.1:80 --forward '*:443' --authorized-keys /etc/uts/keys
  uts serve --media --authorized-keys /etc/uts/keys
  uts serve --perf --anyone
  uts serve --config /etc/uts/serve.toml

Nothing outside the directory is ever read or written. Ctrl-C ends the server.
Clients can then continue interrupted copies when it runs again.")]
pub struct ServeArgs {
    /// Read options from FILE as well (TOML): a key for each, of the same name with _ for -; what
    /// is written here counts more. SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory to serve; with --writable, files are also taken into it
    #[arg(long, value_name = "DIR", required_unless_present_any = ["config", "pipe", "forward", "listen_forward", "media", "perf"])]
    pub dir: Option<PathBuf>,
    /// Let `uts pipe` reach a TCP service, as ssh=127.0.0.1:22 or ssh=22 (a port of this host); may
    /// be repeated; needs --authorized-keys or --anyone
    #[arg(long, value_name = "NAME=HOST:PORT")]
    pub pipe: Vec<uts_tunnel::pipe::Service>,
    /// Let `uts tunnel` connect to a place, as 127.0.0.1:80, *:443, udp/10.0.0.1:53 or 80 (a port
    /// of this host). With a key behind it the place is for that client alone: 22@SHA256:…. May be
    /// repeated; needs --authorized-keys
    #[arg(long, value_name = "[udp/][HOST:]PORT[@KEY]")]
    pub forward: Vec<uts_tunnel::permit::Pattern>,
    /// Let `uts tunnel -R` have this server listen at a place, as 8080 (of this host only) or
    /// *:8080; may be repeated; needs --authorized-keys
    #[arg(long, value_name = "[udp/][ADDR:]PORT[@KEY]")]
    pub listen_forward: Vec<uts_tunnel::permit::Pattern>,
    /// Let `uts media` send streams under names, and receive them; needs --authorized-keys or
    /// --anyone
    #[arg(long)]
    pub media: bool,
    /// Let `uts perf` measure, one client at a time; needs --authorized-keys or --anyone
    #[arg(long)]
    pub perf: bool,
    /// Address or host name and UDP port to listen on, as ADDR:PORT, [V6]:PORT, NAME, :PORT or
    /// PORT; port 0 takes any free port [default: all networks of the host, port 4433]
    #[arg(long, value_name = "WHERE")]
    pub listen: Option<String>,
    /// Also take files, and replace files of the same name; needs --authorized-keys or --anyone
    #[arg(long)]
    pub writable: bool,
    /// Take no files (this is the default)
    #[arg(long, conflicts_with = "writable")]
    pub read_only: bool,
    /// Also show and take hidden files: names that begin with a dot, and all beneath such
    /// directories
    #[arg(long)]
    pub hidden: bool,
    /// Set the modes that clients ask for (uts cp --preserve-mode), whatever this umask is
    #[arg(long)]
    pub preserve_mode: bool,
    /// Let clients delete what their source does not have (uts cp --delete); needs --writable
    #[arg(long, requires = "writable")]
    pub delete: bool,
    /// Accept only clients whose keys are in FILE, one fingerprint a line
    #[arg(long, value_name = "FILE")]
    pub authorized_keys: Option<PathBuf>,
    /// Accept any client; this is the default for reading, and must be given with --writable
    #[arg(long, conflicts_with = "authorized_keys")]
    pub anyone: bool,
    /// Most connections at once
    #[arg(long, value_name = "COUNT", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Most connections at once from one address (of IPv6: from one /64 network)
    #[arg(long, value_name = "COUNT", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_per_address: u32,
    /// Most connections at once of one client's key, with --authorized-keys
    #[arg(long, value_name = "COUNT", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_per_key: u32,
    /// Carry connections by so many tasks side by side; `all` = one for each processor. Linux only
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = crate::given::workers)]
    pub workers: usize,
    /// Keep streams and tunnels of a client that is not heard for this long at the most
    #[arg(long, value_name = "TIME", default_value = crate::given::SILENCE, value_parser = crate::given::silence)]
    pub silence: Duration,
    /// Make a socket here by which uts ctl and uts top look at clients and end them
    #[arg(long, value_name = "FILE")]
    pub control: Option<PathBuf>,
    /// Take over the port of the server whose --control socket this is, if one runs there: new
    /// clients come here, and it serves those that it has to their end
    #[arg(long, requires = "control")]
    pub take_over: bool,
    /// Once another server has taken over, serve clients for so long at the most
    #[arg(long, value_name = "TIME", default_value = crate::given::DRAIN, value_parser = crate::given::drain)]
    pub drain: Duration,
    /// Tell figures for Prometheus at http://ADDR:PORT/metrics; ADDR is of this host's loopback, or
    /// one that is written out
    #[arg(long, value_name = "[ADDR:]PORT")]
    pub metrics: Option<crate::metrics::Place>,
    /// Do not confine the server to its files and to the system calls that it needs (Landlock,
    /// seccomp)
    #[arg(long)]
    pub unconfined: bool,
    /// Key of this server, made at first use [default: the user's key, see uts keygen]
    #[arg(long, value_name = "FILE", conflicts_with = "cert")]
    pub key: Option<PathBuf>,
    /// X.509 certificate chain (PEM) to present instead of a bare key
    #[arg(long, value_name = "FILE", requires = "cert_key")]
    pub cert: Option<PathBuf>,
    /// Private key (PEM) of that certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub cert_key: Option<PathBuf>,
    /// Agree on keys without ML-KEM, for slow lines; a recording can be read once there are quantum
    /// computers
    #[arg(long)]
    pub classical: bool,
    /// Logs of connections
    #[command(flatten)]
    pub log: LogArgs,
    /// Requirements of what is sent
    #[command(flatten)]
    pub wanted: WantedArgs,
    /// Print one JSON object a line on standard output (see docs/uts.md)
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Print errors and warnings only
    #[arg(short, long)]
    pub quiet: bool,
    /// Words that are said beside
    #[command(flatten)]
    pub more: VerboseArgs,
}

/// Amount that the log of a server or a tunnel says, in `serve`, `tunnel` and `pipe`.
#[derive(Clone, Debug, Default, PartialEq, Eq, ClapArgs)]
pub struct VerboseArgs {
    /// Say more: each stream when it begins, and progress; given twice, all that is known [default:
    /// as the environment variable RUST_LOG says, or info]
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,
}

/// Logs of connections, in `serve` and all that connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, ClapArgs)]
pub struct LogArgs {
    /// Write what each connection does as qlog to a file in DIR [default: the environment variable
    /// QLOGDIR, if it is set]
    #[arg(long, value_name = "DIR")]
    pub qlog: Option<PathBuf>,
}

impl LogArgs {
    /// Where logs go, if they are wanted.
    pub fn dir(&self) -> Option<PathBuf> {
        let variable = || std::env::var_os("QLOGDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        self.qlog.clone().or_else(variable)
    }
}

/// Ways to know a server, in `cp` and `ls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, ClapArgs)]
pub struct ReachArgs {
    /// File of settings for servers [default: config.toml in the user's configuration]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Accept only a server with this key (SHA256:…)
    #[arg(long, value_name = "FINGERPRINT")]
    pub pin: Option<String>,
    /// Keep the pinned key among the known hosts once the server has shown it; this replaces
    /// another key of that server
    #[arg(long, requires = "pin")]
    pub remember: bool,
    /// Accept and keep the key of a new server without asking; a changed key is still refused
    #[arg(long, conflicts_with_all = ["pin", "ca"])]
    pub accept_new: bool,
    /// File of the keys of known servers [default: known_hosts in the user's configuration]
    #[arg(long, value_name = "FILE", conflicts_with = "ca")]
    pub known_hosts: Option<PathBuf>,
    /// Key to present to the server, made at first use [default: the user's key, if there is one]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Accept a server whose X.509 certificate leads to a root in FILE (PEM)
    #[arg(long, value_name = "FILE", conflicts_with = "pin")]
    pub ca: Option<PathBuf>,
    /// Name that the server's certificate must have [default: the host]
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Agree on keys without ML-KEM, for slow lines; a recording can be read once there are quantum
    /// computers
    #[arg(long)]
    pub classical: bool,
    /// Wait so long for a server of which nothing is heard, as 30s or 2min, and six times that for
    /// one that has answered; a number alone counts seconds [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = crate::given::patience)]
    pub patience: Option<Duration>,
    /// Logs of connections
    #[command(flatten)]
    pub log: LogArgs,
}

/// Options of `uts pipe`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  ssh -o ProxyCommand='uts pipe %h' host
  rsync -e \"ssh -o ProxyCommand='uts pipe %h'\" -a src host:dst
  uts pipe host:5000 git

The server says which services there are: uts serve --pipe ssh=22. The stream
goes on when this host goes to another network, sleeps for days, or has to
connect again.")]
pub struct PipeArgs {
    /// Server, as host, host:port or uts://host[:port]
    #[arg(value_name = "HOST")]
    pub host: String,
    /// Name of the service at the server
    #[arg(value_name = "SERVICE", default_value = "ssh")]
    pub service: String,
    /// Keys of the server and of this end
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Requirements of what is sent
    #[command(flatten)]
    pub wanted: WantedArgs,
    /// Print errors only, not what happens to the connection
    #[arg(short, long)]
    pub quiet: bool,
    /// Words that are said beside
    #[command(flatten)]
    pub more: VerboseArgs,
    /// Keep the stream for this long while nothing is heard of the server, if the server does
    #[arg(long, value_name = "TIME", default_value = crate::given::SILENCE, value_parser = crate::given::silence)]
    pub silence: Duration,
}

/// Options of `uts parts`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts parts
  uts parts --older-than 7d --remove /srv/files

An interrupted copy leaves what has arrived beside the final name, and can go on from there.
Only files that this program recognises as its own are listed.")]
pub struct PartsArgs {
    /// Directory to search, with everything beneath
    #[arg(value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// Remove them, except while a copy is under way; copies can then no longer go on from them
    #[arg(long)]
    pub remove: bool,
    /// Only those that have not grown for this long, as 36h or 7d
    #[arg(long, value_name = "TIME", value_parser = crate::given::lasting)]
    pub older_than: Option<Duration>,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// Options of `uts completions`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts completions bash > ~/.local/share/bash-completion/completions/uts
  uts completions fish > ~/.config/fish/completions/uts.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Options of `uts manual`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ManualArgs {
    /// Directory that the pages are written to
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    /// An option means the same in each command that has it, and one that is called as a property
    /// is that property.
    #[test]
    fn an_option_has_one_meaning() {
        let command = Args::command();
        let mut known = std::collections::BTreeMap::new();
        let plain = |name: &str| name.replace(|c: char| !c.is_ascii_alphabetic(), "").to_ascii_lowercase();
        for command in command.get_subcommands() {
            let groups = command.get_subcommands().chain([command]);
            for argument in groups.flat_map(clap::Command::get_arguments) {
                let Some(long) = argument.get_long().filter(|long| !["help", "version"].contains(long))
                else {
                    continue;
                };
                // A forward that there is, and not where forwards may lead.
                if (command.get_name(), long) == ("ctl", "forward") {
                    continue;
                }
                let values: Vec<String> =
                    argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
                let takes = argument.get_action().takes_values();
                let met = known.entry(long.to_owned()).or_insert_with(|| (takes, values.clone()));
                assert_eq!(*met, (takes, values), "--{long} of {}", command.get_name());
                for property in uts_engine::requirements::PROPERTIES {
                    let bare = property.name.trim_start_matches("uts.");
                    let short = ["conn", "msg", "max", "min"].iter().find_map(|head| bare.strip_prefix(head));
                    let is_called_so =
                        plain(long) == plain(bare) || short.is_some_and(|s| plain(long) == plain(s));
                    assert!(!is_called_so, "--{long} of {} and {}", command.get_name(), property.name);
                }
            }
        }
        assert!(known.len() > 50, "{} options", known.len());
    }

    #[test]
    fn profiles_and_no_adapt_are_properties() {
        let parse = |line: &str| match Args::try_parse_from(line.split(' ')).unwrap().command {
            Command::Cp(cp) => cp.wanted.properties(),
            other => panic!("{other:?}"),
        };
        let properties =
            parse("uts cp a uts://h/ --property minSendRate=1Mbit/s --profile fec=xor(k=4) --no-adapt")
                .unwrap();
        let expected = [("minSendRate", "1Mbit/s"), ("uts.profile.fec", "xor(k=4)"), ("uts.adapt", "false")];
        assert_eq!(properties, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
        assert_eq!(parse("uts cp a uts://h/ --property x").unwrap_err(), "--property x: write NAME=VALUE");
    }
}
