//! `uts hosts`: the servers whose keys are known.

use super::Failure;
use crate::args::HostsCommand;
use crate::target::Host;
use crate::ui::lines;
use serde_json::json;
use std::path::{Path, PathBuf};
use uts::{Fingerprint, KnownHosts};

/// Lists, forgets or adds.
///
/// # Errors
/// [`Failure::Usage`] if a host or a fingerprint is not one. [`Failure::Failed`] if the file cannot
/// be read or written, or lacks a host that it should have.
pub fn run(command: &HostsCommand) -> Result<(), Failure> {
    match command {
        HostsCommand::List { host, known_hosts, json } => {
            list(&file(known_hosts.as_deref())?, host.as_deref(), *json)
        }
        HostsCommand::Remove { hosts, known_hosts } => {
            let hosts = hosts.iter().map(|host| name(host)).collect::<Result<Vec<_>, _>>()?;
            remove(&file(known_hosts.as_deref())?, &hosts)
        }
        HostsCommand::Add { host, fingerprint, known_hosts } => {
            let fingerprint = fingerprint.parse().map_err(|error| Failure::Usage(format!("{error}")))?;
            add(&file(known_hosts.as_deref())?, &name(host)?, fingerprint)
        }
    }
}

fn file(given: Option<&Path>) -> Result<PathBuf, Failure> {
    given.map_or_else(|| KnownHosts::default_path().map_err(failed), |file| Ok(file.to_owned()))
}

fn failed(error: uts::KnownHostsError) -> Failure {
    Failure::Failed(error.to_string())
}

/// A server as it stands among known hosts.
fn name(text: &str) -> Result<String, Failure> {
    let host = text.strip_prefix("uts://").unwrap_or(text).trim_end_matches('/');
    let host = Host::parse(host).map_err(|why| Failure::Usage(format!("{text}: {why}")))?;
    Ok(host.to_string().to_lowercase())
}

/// Lines that cannot be understood are told, and the others listed nevertheless.
fn list(file: &Path, only: Option<&str>, json: bool) -> Result<(), Failure> {
    let only = only.map(name).transpose()?;
    let (mut is_damaged, mut found) = (false, 0);
    for entry in KnownHosts::entries(file).map_err(failed)? {
        let known = match entry {
            Ok(known) => known,
            Err(error) => {
                is_damaged = true;
                lines::fail(error);
                continue;
            }
        };
        if only.as_ref().is_some_and(|only| *only != known.host) {
            continue;
        }
        found += 1;
        let fingerprint = known.fingerprint.to_string();
        if json {
            let object = json!({"host": known.host, "fingerprint": fingerprint, "line": known.line});
            lines::print_json(object);
        } else {
            lines::print(&format!("{} {fingerprint}", known.host));
        }
    }
    match (only, found) {
        (Some(only), 0) => Err(unknown(&only, file)),
        _ if is_damaged => Err(Failure::Told),
        _ => Ok(()),
    }
}

fn unknown(host: &str, file: &Path) -> Failure {
    Failure::Failed(format!("{host} is not among the known hosts in {}", file.display()))
}

fn remove(file: &Path, hosts: &[String]) -> Result<(), Failure> {
    let mut result = Ok(());
    for host in hosts {
        if KnownHosts::remove(file, host).map_err(failed)? == 0 {
            lines::fail(format_args!("{host} is not among the known hosts in {}", file.display()));
            result = Err(Failure::Told);
        }
    }
    result
}

/// A host with another key is not given one more: whichever of the two is wrong would be trusted.
fn add(file: &Path, host: &str, fingerprint: Fingerprint) -> Result<(), Failure> {
    let known = KnownHosts::load(file).map_err(failed)?;
    if let Some(other) = known.of(host).find(|known| known.fingerprint != fingerprint) {
        return Err(Failure::Failed(format!(
            "{host} is known by another key, {}, in {} line {}; to replace that, first run uts hosts remove {host}",
            other.fingerprint,
            file.display(),
            other.line
        )));
    }
    KnownHosts::add(file, host, fingerprint).map_err(failed)?;
    Ok(())
}
