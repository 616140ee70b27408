//! The list of adapters.

#[cfg(has_enet)]
mod enet;
mod quinn;
mod s2n;
#[cfg(has_srt)]
mod srt;

use serde::Serialize;
use std::rc::Rc;
use uts_end::{Context, TransportSpec};
use uts_traffic::transport::Transport;

/// A rival, as `uts-rival list` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rival {
    /// What a transport's spec calls it: its `kind`.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Which version is in this program.
    pub version: Option<String>,
    /// Whether it can be used.
    pub available: bool,
    /// Why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
    /// One command after which it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub get: Option<&'static str>,
    /// Its settings, beside `kind`.
    pub settings: &'static [Setting],
}

/// A setting of a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its key.
    pub key: &'static str,
    /// Its values, the first being what it is if nothing is said.
    pub values: &'static str,
}

impl Rival {
    /// One whose library cargo brings, and that is therefore always here.
    fn of_cargo(
        name: &'static str,
        about: &'static str,
        version: &str,
        settings: &'static [Setting],
    ) -> Rival {
        Rival { name, about, version: Some(version.into()), available: true, why: None, get: None, settings }
    }
}

/// The size of a UDP socket's buffer, as the system takes it: a C `int`.
fn socket_bytes(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX).min(i32::MAX as usize)
}

/// All rivals, also those that cannot be used.
pub fn list() -> Vec<Rival> {
    vec![
        quinn::rival(),
        s2n::rival(),
        #[cfg(has_srt)]
        srt::rival(),
        #[cfg(not(has_srt))]
        SRT,
        #[cfg(has_enet)]
        enet::rival(),
        #[cfg(not(has_enet))]
        ENET,
    ]
}

/// Makes a rival from its spec.
///
/// # Errors
/// One line for people: no such rival, why it cannot be used, or what is wrong with a setting.
pub fn provide(spec: &TransportSpec, context: &Context<'_>) -> Result<Rc<dyn Transport>, String> {
    match spec.kind.as_str() {
        "quinn" => quinn::provide(spec, context),
        "s2n-quic" => s2n::provide(spec, context),
        #[cfg(has_srt)]
        "srt" => srt::provide(spec, context),
        #[cfg(has_enet)]
        "enet" => enet::provide(spec, context),
        other => Err(unknown(other, &list())),
    }
}

fn unknown(kind: &str, rivals: &[Rival]) -> String {
    match rivals.iter().find(|rival| rival.name == kind) {
        Some(Rival { why: Some(why), get: Some(get), .. }) => {
            format!("{kind} was left out of this program: {why}; to have it: {get}")
        }
        _ => {
            let names: Vec<_> = rivals.iter().map(|rival| rival.name).collect();
            format!("`{kind}` is no rival; there are {}", names.join(", "))
        }
    }
}

/// SRT without what is known of it where it is available.
const SRT: Rival = Rival {
    name: "srt",
    about: "SRT: live mode for messages, file mode for streams",
    version: None,
    available: cfg!(has_srt),
    why: option_env!("RIVAL_SRT_MISSING"),
    get: get(cfg!(has_srt), "apt-get install pkg-config libsrt-openssl-dev && make rivals"),
    settings: &[],
};

/// The same of ENet.
const ENET: Rival = Rival {
    name: "enet",
    about: "ENet: a reliable channel for each stream, unreliable messages",
    version: None,
    available: cfg!(has_enet),
    why: option_env!("RIVAL_ENET_MISSING"),
    get: get(cfg!(has_enet), "apt-get install pkg-config libenet-dev && make rivals"),
    settings: &[],
};

const fn get(available: bool, command: &'static str) -> Option<&'static str> {
    if available { None } else { Some(command) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_that_was_left_out_says_how_to_have_it() {
        let left_out = Rival { available: false, why: Some("no srt"), get: Some("get srt"), ..SRT };
        let why = unknown("srt", &[left_out]);
        assert_eq!(why, "srt was left out of this program: no srt; to have it: get srt");
        assert_eq!(unknown("tcp", &list()), "`tcp` is no rival; there are quinn, s2n-quic, srt, enet");
    }

    #[test]
    fn a_socket_buffer_is_an_int() {
        assert_eq!([1 << 20, u64::MAX].map(socket_bytes), [1 << 20, i32::MAX as usize]);
    }

    #[test]
    fn what_is_available_has_a_version_and_what_is_not_a_way() {
        for rival in list() {
            assert_eq!(rival.available, rival.version.is_some(), "{rival:?}");
            assert_eq!(rival.available, rival.why.is_none() && rival.get.is_none(), "{rival:?}");
        }
    }
}
