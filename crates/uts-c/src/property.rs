//! Properties by name: set, and looked at, with any handle that has them.

use crate::border::border;
use crate::code::{Failure, Result, uts_code};
use crate::connection::Connection;
use crate::flow::Flow;
use crate::handles::{find_if, kind};
use crate::listener::Listener;
use crate::memory::{put_text, text};
use crate::options::{Options, SETTINGS};
use core::ffi::{c_char, c_int, c_void};
use std::path::Path;
use uts::requirements::{PREFIX, PROPERTIES, Requirements};
use uts::{Direction, Function, KnownHosts};

/// Facts of connections and listeners that uts_get tells beside properties.
const FACTS: [&str; 9] = [
    "localAddress",
    "remoteAddress",
    "fingerprint",
    "service",
    "profile",
    "profileIn",
    "requirements",
    "state",
    "flow",
];

/// Sets a property by name: uts_set(h, "msgLifetime", "100ms").
///
/// handle: of options; of a connection, whose mechanisms are exchanged if they no longer fit; of a
/// flow, before anything is written to it ("flowPriority" at any time).
/// name: one of RFC 9622 or of its own (uts.…), as "uts properties" lists them, or, for options, a
/// setting (docs/c.md).
/// Returns UTS_OK; UTS_EPROPERTY, UTS_ECLOSED, UTS_ENOTCONN, UTS_EHANDLE or UTS_EINVAL. Nothing has
/// changed in case of an error.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_set(handle: *mut c_void, name: *const c_char, value: *const c_char) -> c_int {
    border(|| {
        let kind = kind(handle)?;
        // SAFETY: as promised.
        let (name, value) = unsafe { (text(name, "name")?, text(value, "value")?) };
        if let Some((_, options)) = find_if::<Options>(handle)? {
            return options.set(name, value);
        }
        if let Some((_, flow)) = find_if::<Flow>(handle)? {
            return flow.set(name, value);
        }
        if let Some((_, connection)) = find_if::<Connection>(handle)? {
            if SETTINGS.iter().any(|setting| setting.name == name) {
                let why = format_args!("`{name}` is set in options, before a connection is made");
                return Err(Failure::new(uts_code::UTS_EPROPERTY, why));
            }
            return Ok(connection.get()?.set_property(name, value)?);
        }
        Err(Failure::new(uts_code::UTS_EHANDLE, format_args!("a {kind} has no properties that can be set")))
    })
}

/// Looks at a property, or at a fact of a connection, a listener or a flow.
///
/// name: a property; or one of "localAddress", "remoteAddress", "fingerprint" (of a listener its
/// own key, of a connection the peer's), "service", "profile" (mechanisms of what this end sends),
/// "profileIn", "requirements" (all that differs from the defaults), "state", "flow" (its number).
/// text, size: where the text goes, with a zero behind it. needed: its length without the zero;
/// NULL if that is of no interest. With a size of 0 it is all that is told.
/// Returns UTS_OK; UTS_ETOOSMALL, UTS_EPROPERTY, UTS_ENOTCONN, UTS_EHANDLE or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_get(
    handle: *const c_void,
    name: *const c_char,
    text_out: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> c_int {
    border(|| {
        let kind = kind(handle)?;
        // SAFETY: as promised.
        let name = unsafe { text(name, "name") }?;
        let found = fact(handle, name)?.ok_or_else(|| {
            let known = FACTS.into_iter().chain(PROPERTIES.iter().map(|property| property.name));
            let near = uts::requirements::nearest(name, known);
            let hint = near.filter(|near| *near != name).map(|near| format!("; did you mean `{near}`?"));
            let why = format!("a {kind} has no `{name}`{}", hint.unwrap_or_default());
            Failure::new(uts_code::UTS_EPROPERTY, why)
        })?;
        // SAFETY: as promised.
        unsafe { put_text(&found, text_out, size, needed) }
    })
}

/// A fact, or a property, of what has this handle.
fn fact(handle: *const c_void, name: &str) -> Result<Option<String>> {
    if let Some((_, options)) = find_if::<Options>(handle)? {
        return Ok(property(options.kept().requirements(), name));
    }
    if let Some((_, listener)) = find_if::<Listener>(handle)? {
        return Ok(match name {
            "localAddress" => Some(listener.inner.local_addr().to_string()),
            "fingerprint" => Some(listener.inner.fingerprint().to_string()),
            _ => None,
        });
    }
    if let Some((_, flow)) = find_if::<Flow>(handle)? {
        return Ok(match name {
            "flow" => Some(flow.id.0.to_string()),
            "profile" => flow.profile().map(|profile| profile.to_string()),
            _ => property(&flow.requirements(), name),
        });
    }
    let Some((_, connection)) = find_if::<Connection>(handle)? else { return Ok(None) };
    if name == "state" {
        return Ok(Some(connection.state()));
    }
    let connection = connection.get()?;
    let shown = |profile: Option<uts::Profile>| profile.map_or_else(|| "none".to_owned(), |p| p.to_string());
    let unknown = || "unknown".to_owned();
    Ok(match name {
        "localAddress" => Some(connection.local_addr().to_string()),
        "remoteAddress" => Some(connection.remote_addr().map_or_else(unknown, |addr| addr.to_string())),
        "fingerprint" => {
            Some(connection.peer_fingerprint().map_or_else(|| "none".to_owned(), |f| f.to_string()))
        }
        "service" => Some(connection.service()),
        "profile" => Some(shown(connection.profile(Direction::Out))),
        "profileIn" => Some(shown(connection.profile(Direction::In))),
        _ => property(&connection.requirements(), name),
    })
}

/// A property as it would be written; `None` = there is none of that name.
fn property(requirements: &Requirements, name: &str) -> Option<String> {
    if name == "requirements" {
        return Some(requirements.to_string());
    }
    if let Some(function) = name.strip_prefix(PREFIX) {
        let pin = requirements.pinned(Function::from_name(function)?);
        let shown = pin.map(|pin| pin.to_string());
        return Some(match shown.as_deref().and_then(|shown| shown.split_once('=')) {
            Some((_, mechanism)) => mechanism.to_owned(),
            None => "none".to_owned(),
        });
    }
    Some(PROPERTIES.iter().find(|property| property.name == name)?.value(requirements))
}

/// Adds a host's key to a file of known hosts: what an interactive program does when uts_connect
/// has failed with UTS_EUNTRUSTED and its user accepts the key.
///
/// file: the file; NULL = the user's own. host: "host:port". fingerprint: "SHA256:…".
/// Returns UTS_OK, UTS_EINVAL, UTS_EPROPERTY or UTS_ESYSTEM.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_known_hosts_add(
    file: *const c_char,
    host: *const c_char,
    fingerprint: *const c_char,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let (file, host, fingerprint) = unsafe {
            (
                crate::memory::text_if_any(file, "file")?,
                text(host, "host")?,
                text(fingerprint, "fingerprint")?,
            )
        };
        let file = match file {
            Some(file) => Path::new(file).to_owned(),
            None => KnownHosts::default_path()?,
        };
        KnownHosts::add(&file, host, fingerprint.parse()?)?;
        Ok(())
    })
}
