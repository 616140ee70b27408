//! Options of the commands about keys: `uts hosts`, `uts keygen`, `uts fingerprint`.

use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

/// Commands on the servers whose keys are known.
#[derive(Clone, Debug, Subcommand)]
pub enum HostsCommand {
    /// Print each server with its key
    List {
        /// Only this server
        #[arg(value_name = "HOST[:PORT]")]
        host: Option<String>,
        /// File of known servers [default: known_hosts in the user's configuration]
        #[arg(long, value_name = "FILE")]
        known_hosts: Option<PathBuf>,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Forget servers; the next copy treats them as new
    Remove {
        /// Servers to forget
        #[arg(value_name = "HOST[:PORT]", required = true)]
        hosts: Vec<String>,
        /// File of known servers [default: known_hosts in the user's configuration]
        #[arg(long, value_name = "FILE")]
        known_hosts: Option<PathBuf>,
    },
    /// Make a server known by its key, which `uts serve` prints when it starts
    Add {
        /// Server to add
        #[arg(value_name = "HOST[:PORT]")]
        host: String,
        /// Fingerprint of its key (SHA256:…)
        fingerprint: String,
        /// File of known servers [default: known_hosts in the user's configuration]
        #[arg(long, value_name = "FILE")]
        known_hosts: Option<PathBuf>,
    },
}

/// Options of `uts keygen`.
#[derive(Clone, Debug, ClapArgs)]
pub struct KeygenArgs {
    /// File of the key [default: the user's key]
    pub file: Option<PathBuf>,
}

/// Options of `uts fingerprint`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts fingerprint
  uts fingerprint ~/.ssh/id_ed25519.pub
  uts fingerprint --as-ssh ~/.ssh/id_ed25519

Peers of UTS know a key by the fingerprint without --as-ssh: ssh-keygen -l hashes
keys in another form.")]
pub struct FingerprintArgs {
    /// File of the key, or of a public key of ssh [default: the user's key]
    pub file: Option<PathBuf>,
    /// Print the fingerprint that ssh-keygen -l prints of the key, which is to be of Ed25519
    #[arg(long)]
    pub as_ssh: bool,
}
