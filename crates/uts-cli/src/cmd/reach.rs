//! Ways of a client to a server: what `cp` and `ls` share.

use super::Failure;
use crate::args::ReachArgs;
use crate::config::Config;
use crate::link::{self, ConnectOptions, ServerTrust, Transport};
use crate::target::Host;
use std::future::Future;
use std::time::Duration;
use uts_end::output;
use uts_files::FileError;

/// The server that is named as `host`, `host:port` or `uts://host[:port]`.
///
/// # Errors
/// [`Failure::Usage`].
pub fn host(text: &str) -> Result<Host, Failure> {
    if text.is_empty() {
        return Err(Failure::Usage("the host is empty; write host, host:port or uts://host[:port]".into()));
    }
    let name = text.strip_prefix("uts://").unwrap_or(text);
    let host = Host::parse(name.trim_end_matches('/'));
    host.map_err(|why| Failure::Usage(format!("{text}: {why}")))
}

/// An error with the server that it is about; those of files name the file.
pub fn named(host: &str, error: &FileError) -> String {
    if error.fault().is_some() { error.to_string() } else { format!("{host}: {error}") }
}

/// Connects, unless it is interrupted before.
///
/// # Errors
/// See [`Failure`].
pub async fn connect<T: Transport>(
    transport: &T,
    host: &Host,
    options: &ConnectOptions,
    interrupt: impl Future<Output = ()>,
) -> Result<T::Link, Failure> {
    tokio::select! {
        link = transport.connect(host, options) => link.map_err(|broken| Failure::Failed(broken.why)),
        () = interrupt => Err(Failure::interrupted()),
    }
}

impl ReachArgs {
    /// Options to connect to a server, by these options and by those of the file of settings. The
    /// host is put right. `asked` of the transport follows the properties of that file, and counts
    /// more. If `may_ask` and there is a terminal, the user is asked about an unknown server.
    ///
    /// # Errors
    /// [`Failure::Usage`]: also what is wrong in the file.
    pub fn options(
        &self,
        host: &mut Host,
        asked: Vec<(String, String)>,
        may_ask: bool,
    ) -> Result<ConnectOptions, Failure> {
        let config = Config::load(self.config.as_deref()).map_err(Failure::Usage)?;
        let mut reach = self.clone();
        let mut properties = config.settle(host, &mut reach);
        properties.extend(asked);
        if let Some(patience) = self.patience {
            let mechanism = format!("three-way(patience={})", patience.as_millis());
            properties.push(("uts.profile.establishment".to_owned(), mechanism));
        }
        Ok(ConnectOptions {
            trust: reach.trust()?,
            properties,
            service: "",
            silence_max: Duration::ZERO,
            flows_max: None,
            interactive: may_ask && output::can_ask(),
            accept_new: reach.accept_new,
            qlog: reach.log.dir(),
            key: reach.key,
            server_name: reach.server_name,
            key_exchange: link::key_exchange(reach.classical),
        })
    }

    fn trust(&self) -> Result<ServerTrust, Failure> {
        let Some(pin) = &self.pin else {
            return Ok(match &self.ca {
                Some(ca) => ServerTrust::Ca(ca.clone()),
                None => ServerTrust::KnownHosts(self.known_hosts.clone()),
            });
        };
        let parsed = pin.parse::<uts::Fingerprint>();
        parsed.map_err(|error| Failure::Usage(format!("--pin: {error}")))?;
        match (self.remember, &self.known_hosts) {
            (true, file) => Ok(ServerTrust::PinKept(pin.clone(), file.clone())),
            (false, None) => Ok(ServerTrust::Pin(pin.clone())),
            (false, Some(_)) => {
                let why = "--known-hosts: with --pin it is where --remember keeps the key; add that, or leave one out";
                Err(Failure::Usage(why.into()))
            }
        }
    }
}
