//! Limits of a server: all that it needs of the host, as its options say it. The rest is closed.

use crate::args::ServeArgs;
use crate::cmd::Failure;
use crate::confine::{Confined, Limits, confine};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Files that the libraries of the system read.
const SYSTEM: [&str; 10] = [
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/etc/localtime",
    "/lib",
    "/lib64",
    "/proc/self",
    "/sys/fs/cgroup",
    "/usr/lib",
    "/usr/share/zoneinfo",
];

/// Directories of files that the resolver of names reads. The files are replaced while the server
/// runs.
const NAMES: [&str; 4] = ["/etc", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"];

/// Confines this process to what its options ask for. To be called before there are any threads.
///
/// # Errors
/// If options are refused, if a key cannot be read or made, or if the kernel could confine but does
/// not.
pub fn confine_to(args: &ServeArgs) -> Result<Confined, Failure> {
    if args.unconfined {
        return Ok(Confined::default());
    }
    super::check(args)?;
    // A key that is made at first use is made now, while it still can be.
    if args.cert.is_none() {
        crate::udp::load_key(args.key.as_deref()).map_err(Failure::Failed)?;
    }
    // So is the directory for logs. A fault of it is told by who writes them.
    if let Some(logs) = args.log.dir() {
        let _ = std::fs::create_dir_all(logs);
    }
    // Its files stay open.
    crate::host::prepare(&args.wanted.host_facts);
    confine(&limits(args)).map_err(|why| Failure::Failed(format!("{why}; --unconfined serves without")))
}

/// Files that the libraries of the system read.
pub fn system_files() -> Vec<PathBuf> {
    SYSTEM.iter().map(PathBuf::from).collect()
}

/// All that a server needs with these options.
pub fn limits(args: &ServeArgs) -> Limits {
    let tunnels = !(args.forward.is_empty() && args.listen_forward.is_empty());
    let resolves = tunnels || !args.pipe.is_empty();
    let uses_tcp = resolves || args.metrics.is_some();
    let listens_at_name = args.listen.as_deref().is_some_and(is_name);
    let mut reads = system_files();
    if resolves || listens_at_name {
        reads.extend(NAMES.iter().map(PathBuf::from));
    }
    reads.extend(args.key.clone().or_else(|| uts::Identity::default_path().ok()));
    reads.extend([&args.cert, &args.cert_key].into_iter().flatten().cloned());
    // The file is read again when it is another.
    reads.extend(args.authorized_keys.as_deref().map(directory));
    reads.extend(args.config.as_deref().map(directory));
    reads.extend(args.wanted.dictionaries.iter().cloned());
    reads.extend(args.wanted.profile.iter().map(PathBuf::from));
    reads.extend(args.wanted.mapping.clone());
    let mut writes = Vec::new();
    writes.extend(args.log.dir());
    // Its socket is made and removed there.
    writes.extend(args.control.as_deref().map(directory));
    let secrets = std::env::var_os("SSLKEYLOGFILE").filter(|file| !file.is_empty());
    writes.extend(secrets.map(|file| directory(Path::new(&file))));
    if args.writable { &mut writes } else { &mut reads }.extend(args.dir.clone());
    Limits { reads, writes, uses_tcp }
}

/// The directory that a file is in.
fn directory(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => ".".into(),
    }
}

/// True if a place to listen is given by a name.
fn is_name(place: &str) -> bool {
    let is_port = |text: &str| text.trim_start_matches(':').parse::<u16>().is_ok();
    place.parse::<SocketAddr>().is_err() && !is_port(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn limits_of(options: &[&str]) -> Limits {
        let args = Args::try_parse_from(["uts", "serve"].iter().chain(options)).expect("options");
        let Command::Serve(serve) = args.command else { panic!("serve") };
        limits(&serve)
    }

    fn has(paths: &[PathBuf], path: &str) -> bool {
        paths.iter().any(|had| had == Path::new(path))
    }

    #[test]
    fn a_server_of_files_reads_them_and_nothing_of_the_network() {
        let limits =
            limits_of(&["--dir", "/srv/x", "--listen", "127.0.0.1:1", "--authorized-keys", "k/keys"]);
        assert!(has(&limits.reads, "/srv/x") && has(&limits.reads, "k"), "{limits:?}");
        assert!(!has(&limits.reads, "/etc") && !limits.uses_tcp, "{limits:?}");
        assert!(!has(&limits.writes, "/srv/x"), "{limits:?}");
        let limits = limits_of(&["--dir", "d", "--mapping", "/srv/numbers.toml"]);
        assert!(has(&limits.reads, "/srv/numbers.toml"), "{limits:?}");
        let limits = limits_of(&["--dir", "d", "--writable", "--anyone", "--listen", "host.example:1"]);
        assert!(has(&limits.writes, "d") && !has(&limits.reads, "d") && has(&limits.reads, "/etc"));
    }

    #[test]
    fn who_leads_elsewhere_looks_names_up_and_uses_tcp() {
        let limits = limits_of(&["--pipe", "ssh=22", "--anyone"]);
        assert!(limits.uses_tcp && has(&limits.reads, "/etc"), "{limits:?}");
    }
}
