//! Options: what is asked of a connection, who the ends are, and settings, all by name.

use crate::border::border;
use crate::code::{Failure, Result, uts_code};
use crate::handles::{Common, Object, find, give};
use crate::memory::Out;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use uts::requirements::{RequirementError, Requirements};
use uts::{
    ClientAuth, ConnectOptions, ConnectionConfig, FlowOptions, Identity, KeyExchange, KnownHosts, NewHost,
    ServerOptions, Trust,
};

/// Options of clients, servers and flows. uts_set sets them by name.
pub struct uts_options(());

/// Options, as they are kept behind a handle.
#[derive(Default)]
pub(crate) struct Options(Mutex<Kept>);

impl Object for Options {
    const NAME: &'static str = "set of options";
}

/// Values that were set.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    pub connection: ConnectionConfig,
    pins: Vec<uts::Fingerprint>,
    known_hosts: Option<PathBuf>,
    accepts_new: bool,
    roots: Option<PathBuf>,
    identity: Option<Arc<Identity>>,
    authorized_keys: Option<PathBuf>,
    server_name: Option<String>,
    qlog: Option<PathBuf>,
    key_log: bool,
    key_exchange: KeyExchange,
    connections_max: Option<usize>,
    connections_per_address_max: Option<usize>,
    connections_per_key_max: Option<usize>,
    memory_bytes_max: Option<usize>,
    priority: Option<u8>,
    has_requirements: bool,
}

type Setter = fn(&mut Kept, &str) -> core::result::Result<(), String>;

/// A setting beside the properties of RFC 9622.
pub(crate) struct Setting {
    pub name: &'static str,
    /// Values that it takes, behind "is not".
    expected: &'static str,
    set: Setter,
}

/// All of them; docs/c.md says what each is for.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "pin",
        expected: "a fingerprint (SHA256:…)",
        set: |kept, text| {
            kept.pins.push(text.parse().map_err(words::<uts::FingerprintError>)?);
            Ok(())
        },
    },
    Setting {
        name: "knownHosts",
        expected: "a file, or `default`",
        set: |kept, text| {
            let default = || KnownHosts::default_path().map_err(words);
            kept.known_hosts = Some(if text == "default" { default()? } else { PathBuf::from(text) });
            Ok(())
        },
    },
    Setting {
        name: "newHosts",
        expected: "`accept` or `refuse`",
        set: |kept, text| {
            kept.accepts_new = one_of(text, ["refuse", "accept"])? == 1;
            Ok(())
        },
    },
    Setting {
        name: "roots",
        expected: "a PEM file of X.509 roots",
        set: |kept, text| {
            kept.roots = Some(PathBuf::from(text));
            Ok(())
        },
    },
    Setting {
        name: "identity",
        expected: "a file with a key, `default`, or `ephemeral`",
        set: |kept, text| {
            let identity = match text {
                "ephemeral" => Identity::generate(),
                "default" => Identity::default_path()
                    .and_then(|path| Identity::load_or_create(&path))
                    .map(|made| made.0),
                path => Identity::load_or_create(Path::new(path)).map(|made| made.0),
            };
            kept.identity = Some(Arc::new(identity.map_err(words)?));
            Ok(())
        },
    },
    Setting {
        name: "authorizedKeys",
        expected: "a file",
        set: |kept, text| {
            kept.authorized_keys = Some(PathBuf::from(text));
            Ok(())
        },
    },
    Setting {
        name: "serverName",
        expected: "a name",
        set: |kept, text| {
            kept.server_name = Some(text.to_owned());
            Ok(())
        },
    },
    Setting {
        name: "service",
        expected: "a name of at most 64 bytes",
        set: |kept, text| {
            kept.connection.service = text.to_owned();
            Ok(())
        },
    },
    Setting {
        name: "idleTimeout",
        expected: "a time, as 300us, 20ms, 1.5s or 2min",
        set: |kept, text| {
            kept.connection.idle_timeout = time(text)?;
            Ok(())
        },
    },
    Setting {
        name: "keepAliveInterval",
        expected: "a time, as 300us, 20ms, 1.5s or 2min",
        set: |kept, text| {
            kept.connection.keep_alive = time(text)?;
            Ok(())
        },
    },
    Setting {
        name: "handshakeTimeout",
        expected: "a time, as 300us, 20ms, 1.5s or 2min",
        set: |kept, text| {
            kept.connection.handshake_timeout = time(text)?;
            Ok(())
        },
    },
    Setting {
        name: "flowsMax",
        expected: "a number",
        set: |kept, text| {
            kept.connection.flows_max = number(text)?;
            Ok(())
        },
    },
    Setting {
        name: "flowPriority",
        expected: "a number from 0 (most urgent) to 255",
        set: |kept, text| {
            kept.priority = Some(number(text)?);
            Ok(())
        },
    },
    Setting {
        name: "connectionsMax",
        expected: "a number",
        set: |kept, text| {
            kept.connections_max = Some(number(text)?);
            Ok(())
        },
    },
    Setting {
        name: "connectionsPerAddressMax",
        expected: "a number",
        set: |kept, text| {
            kept.connections_per_address_max = Some(number(text)?);
            Ok(())
        },
    },
    Setting {
        name: "connectionsPerKeyMax",
        expected: "a number",
        set: |kept, text| {
            kept.connections_per_key_max = Some(number(text)?);
            Ok(())
        },
    },
    Setting {
        name: "memoryBytesMax",
        expected: "a number of bytes",
        set: |kept, text| {
            kept.memory_bytes_max = Some(number(text)?);
            Ok(())
        },
    },
    Setting {
        name: "qlog",
        expected: "a folder",
        set: |kept, text| {
            kept.qlog = Some(PathBuf::from(text));
            Ok(())
        },
    },
    Setting {
        name: "keyLog",
        expected: "`on` or `off`",
        set: |kept, text| {
            kept.key_log = one_of(text, ["off", "on"])? == 1;
            Ok(())
        },
    },
    Setting {
        name: "keyExchange",
        expected: "`hybrid` or `classical`",
        set: |kept, text| {
            let ways = [KeyExchange::Hybrid, KeyExchange::Classical];
            kept.key_exchange = ways[one_of(text, ["hybrid", "classical"])?];
            Ok(())
        },
    },
];

fn words<E: core::fmt::Display>(error: E) -> String {
    error.to_string()
}

fn time(text: &str) -> core::result::Result<Duration, String> {
    // What is expected says the same.
    uts_units::time(text).map_err(|error| error.or(""))
}

fn number<N: core::str::FromStr<Err = core::num::ParseIntError>>(
    text: &str,
) -> core::result::Result<N, String> {
    text.parse().map_err(|_| String::new())
}

fn one_of<const N: usize>(text: &str, known: [&str; N]) -> core::result::Result<usize, String> {
    known.iter().position(|known| *known == text).ok_or_else(String::new)
}

impl Kept {
    /// Sets a property or a setting. In case of an error nothing has changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        if let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) {
            return (setting.set)(self, value).map_err(|why| {
                let expected = setting.expected;
                // A sentence of its own, or nothing.
                let why = if why.is_empty() { format!("`{value}` is not {expected}") } else { why };
                Failure::new(uts_code::UTS_EPROPERTY, format_args!("{name}: {why}"))
            });
        }
        self.connection.requirements.set(name, value).map_err(|error| with_settings(error, name))?;
        self.has_requirements = true;
        Ok(())
    }

    /// Way to know a server.
    fn trust(&self) -> Result<Trust> {
        let said = [!self.pins.is_empty(), self.known_hosts.is_some(), self.roots.is_some()];
        match (said.iter().filter(|said| **said).count(), &self.known_hosts, &self.roots) {
            (0, ..) => Err(Failure::new(
                uts_code::UTS_EPROPERTY,
                "nothing says how to know the server: set `pin`, `knownHosts` or `roots`",
            )),
            (1, Some(file), _) => {
                let on_new = if self.accepts_new { NewHost::Accept } else { NewHost::Refuse };
                Ok(Trust::KnownHosts { file: file.clone(), on_new })
            }
            (1, _, Some(file)) => Ok(Trust::Roots(file.clone())),
            (1, ..) => Ok(Trust::Pin(self.pins.clone())),
            _ => Err(Failure::new(
                uts_code::UTS_EPROPERTY,
                "`pin`, `knownHosts` and `roots` are three ways to know a server: set one of them",
            )),
        }
    }

    /// For a client.
    pub fn for_client(&self) -> Result<ConnectOptions> {
        let mut options = ConnectOptions::new(self.trust()?);
        options.identity = self.identity.as_deref().cloned();
        options.connection = self.connection.clone();
        options.server_name = self.server_name.clone();
        options.qlog = self.qlog.clone();
        options.key_log = self.key_log;
        options.key_exchange = self.key_exchange;
        Ok(options)
    }

    /// For a server.
    pub fn for_server(&self) -> Result<ServerOptions> {
        let identity = self.identity.as_deref().cloned().ok_or_else(|| {
            let why = "a server has a key: set `identity` to a file, or to `ephemeral`";
            Failure::new(uts_code::UTS_EPROPERTY, why)
        })?;
        let mut options = ServerOptions::new(identity);
        if let Some(file) = &self.authorized_keys {
            options.client_auth = ClientAuth::AuthorizedKeys(file.clone());
        }
        options.connection = self.connection.clone();
        options.connections_max = self.connections_max.unwrap_or(options.connections_max);
        let per_address = &mut options.connections_per_address_max;
        *per_address = self.connections_per_address_max.unwrap_or(*per_address);
        let per_key = &mut options.connections_per_key_max;
        *per_key = self.connections_per_key_max.unwrap_or(*per_key);
        options.memory_bytes_max = self.memory_bytes_max.unwrap_or(options.memory_bytes_max);
        options.qlog = self.qlog.clone();
        options.key_log = self.key_log;
        options.key_exchange = self.key_exchange;
        Ok(options)
    }

    /// For a flow: with requirements of its own if any were set.
    pub fn for_flow(&self) -> FlowOptions {
        let defaults = FlowOptions::default();
        FlowOptions {
            priority: self.priority.unwrap_or(defaults.priority),
            requirements: self.has_requirements.then(|| self.connection.requirements.clone()),
        }
    }

    pub fn requirements(&self) -> &Requirements {
        &self.connection.requirements
    }
}

/// A name that is neither a property nor a setting may be like one of the latter.
fn with_settings(error: RequirementError, name: &str) -> Failure {
    let is_unknown = matches!(&error, RequirementError::Unknown { nearest: None, .. });
    let names = SETTINGS.iter().map(|setting| setting.name);
    match uts::requirements::nearest(name, names).filter(|_| is_unknown) {
        Some(near) => Failure::new(uts_code::UTS_EPROPERTY, format_args!("{error}; did you mean `{near}`?")),
        None => error.into(),
    }
}

impl Options {
    /// Sets a property or a setting.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).set(name, value)
    }

    /// Copy of what was set.
    pub fn kept(&self) -> Kept {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Values that were set.in these options; the defaults for NULL.
pub(crate) fn kept(options: *const uts_options) -> Result<Kept> {
    if options.is_null() {
        return Ok(Kept::default());
    }
    Ok(find::<Options>(options.cast::<c_void>())?.1.kept())
}

/// Makes options, with nothing set.
///
/// options: where their handle goes; NULL in case of an error.
/// Returns UTS_OK or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_options_new(options: *mut *mut uts_options) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut out = unsafe { Out::new(options, ptr::null_mut(), "options") }?;
        out.set(give(Common::of::<Options>(None), Arc::new(Options::default()))?);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_has_all_settings() {
        let guide = include_str!("../../../docs/c.md");
        for setting in SETTINGS {
            assert!(guide.contains(&format!("`{}`", setting.name)), "docs/c.md lacks `{}`", setting.name);
        }
    }

    #[test]
    fn what_cannot_be_set_is_said_with_what_was_expected() {
        let said = |name, value| Kept::default().set(name, value).expect_err("wrong").text;
        assert_eq!(said("flowsMax", "many"), "flowsMax: `many` is not a number");
        assert_eq!(
            said("idleTimeout", "soon"),
            "idleTimeout: `soon` is not a time, as 300us, 20ms, 1.5s or 2min"
        );
        assert!(said("flowMax", "3").contains("did you mean `flowsMax`?"), "{}", said("flowMax", "3"));
        assert!(said("msgLifetme", "3").contains("did you mean `msgLifetime`?"));
        assert!(said("pin", "x").contains("it has to begin with SHA256:"));
        assert!(Kept::default().for_client().is_err_and(|failure| failure.text.contains("`pin`")));
        assert!(Kept::default().for_server().is_err_and(|failure| failure.text.contains("`identity`")));
    }
}
