//! Requirements on UTS in an experiment, and those that an application with such a workload would
//! have.

use core::time::Duration;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use uts::{ConnectionConfig, PathFacts, Requirements};
use uts_engine::selector;
use uts_traffic::workload::Workload;
use uts_units::text;

/// Keystrokes may be far apart, and long buffers silent.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Requirements of an application, before properties that are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Defaults of RFC 9622.
    Defaults,
    /// A long transfer.
    Bulk,
    /// Somebody waits for each answer.
    Interactive,
    /// Messages that are worthless after the workload's deadline, and are repeated until then.
    Timely,
    /// Messages that are worthless after the workload's deadline, and are never sent again.
    Media,
    /// Reliable messages, in order.
    Messages,
}

/// Settings of UTS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UniversalSettings {
    /// Requirements. If they are not set, those that an application with such a workload would
    /// have: bulk for files, interactive for requests and keystrokes, timely for messages and
    /// video.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Preset>,
    /// Further properties by their names, as `reliability = "prohibit"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, Value>,
    /// Mechanisms by the names of their functions, as `congestion = "cubic"`. Short for properties
    /// `uts.profile.*`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub profile: BTreeMap<String, String>,
    /// Mechanisms may be exchanged in mid-connection: short for the property `uts.adapt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<bool>,
    /// Data that may be handed over to a stream before its writer has to wait, in bytes.
    #[serde(with = "text::bytes_option", skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<u64>,
    /// Most that a stream's receiver grants beyond what was read, in bytes: its window.
    #[serde(with = "text::bytes_option", skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The largest UDP payload to try, in bytes.
    #[serde(with = "text::bytes_option", skip_serializing_if = "Option::is_none")]
    pub packet: Option<u64>,
}

impl UniversalSettings {
    /// The requirements of an application with such a workload.
    ///
    /// # Errors
    /// A property that does not exist or has another value, with its name. Or properties that
    /// contradict each other.
    pub fn requirements(&self, workload: &Workload) -> std::result::Result<Requirements, String> {
        let lifetime = match workload {
            Workload::Messages { deadline, .. }
            | Workload::RandomMessages { deadline, .. }
            | Workload::Video { deadline, .. } => Some(*deadline),
            _ => None,
        };
        let natural = match workload {
            Workload::Bulk { .. } | Workload::SlowReader { .. } | Workload::Files { .. } => Preset::Bulk,
            Workload::Requests { .. } | Workload::Keystrokes { .. } => Preset::Interactive,
            Workload::Messages { .. } | Workload::RandomMessages { .. } | Workload::Video { .. } => {
                Preset::Timely
            }
        };
        let until = || match lifetime {
            Some(lifetime) => Ok(lifetime),
            None => {
                let kind = workload.kind();
                Err(format!("uts: requirements: timely and media need deadlines, and {kind} has none"))
            }
        };
        let mut requirements = match self.requirements.unwrap_or(natural) {
            Preset::Defaults => Requirements::default(),
            Preset::Bulk => Requirements::bulk(),
            Preset::Interactive => Requirements::interactive(),
            Preset::Messages => Requirements::messages(),
            Preset::Timely => Requirements::timely(until()?),
            Preset::Media => Requirements::media(until()?),
        };
        let mut set = |name: &str, value: &str| {
            requirements.set(name, value).map_err(|error| format!("uts: properties: {error}"))
        };
        if let Some(adaptive) = self.adaptive {
            set("uts.adapt", if adaptive { "on" } else { "off" })?;
        }
        // A named profile comes first: what is said by itself counts more.
        let is_named = |name: &String| name == uts::requirements::NAMED;
        let (named, others): (Vec<_>, Vec<_>) = self.properties.iter().partition(|(name, _)| is_named(name));
        for (name, value) in named.into_iter().chain(others) {
            match value {
                Value::String(text) => set(name, text)?,
                Value::Number(number) => set(name, &number.to_string())?,
                other => {
                    return Err(format!("uts: properties: {name}: {other} is neither text nor a number"));
                }
            }
        }
        for (function, mechanism) in &self.profile {
            set(&format!("uts.profile.{function}"), mechanism)?;
        }
        // Better said now than by the first connection.
        let none_known = PathFacts::default();
        match selector::explain(&requirements, &none_known, &selector::Library::local(), None) {
            Ok(_) => Ok(requirements),
            Err(contradiction) => Err(format!("uts: {contradiction}")),
        }
    }

    /// The settings of a connection that carries such a workload.
    ///
    /// # Errors
    /// A setting that is wrong, with its key.
    pub fn config(&self, workload: &Workload) -> std::result::Result<ConnectionConfig, String> {
        let mut config = ConnectionConfig {
            requirements: self.requirements(workload)?,
            keep_alive: KEEP_ALIVE,
            ..ConnectionConfig::default()
        };
        let within = |key: &str, bytes: u64, min: u64, max: u64| match bytes {
            bytes if (min..=max).contains(&bytes) => Ok(bytes),
            bytes => Err(format!("uts: {key}: {bytes} bytes are not between {min} and {max}")),
        };
        if let Some(bytes) = self.send_buffer {
            let bytes = within("send_buffer", bytes, 1024, 1 << 30)? as usize;
            (config.send_buffer_bytes, config.send_buffer_bytes_max) = (bytes, bytes);
        }
        if let Some(bytes) = self.window {
            config.credit_bytes_max = within("window", bytes, 1024, 1 << 30)?;
            config.credit_bytes_initial = config.credit_bytes_initial.min(bytes);
        }
        if let Some(bytes) = self.packet {
            config.packet_bytes_max = within("packet", bytes, 1200, 65_507)? as usize;
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements(settings: &str, workload: &str) -> std::result::Result<String, String> {
        let settings: UniversalSettings = serde_json::from_str(settings).expect("settings");
        let workload: Workload = serde_json::from_str(workload).expect("a workload");
        settings.requirements(&workload).map(|r| r.to_string())
    }

    const BULK: &str = r#"{"kind":"bulk","bytes":1}"#;
    const VOICE: &str =
        r#"{"kind":"messages","every":"20ms","bytes":160,"duration":"1s","deadline":"150ms"}"#;

    /// Requirements by a name are those of the profile of that name.
    #[test]
    fn a_word_for_requirements_is_a_named_profile() {
        for word in ["bulk", "interactive", "timely", "media", "messages"] {
            let by_word = requirements(&format!(r#"{{"requirements":"{word}"}}"#), VOICE).expect("asked");
            let by_name = format!(r#"{{"requirements":"defaults","properties":{{"uts.profile":"{word}"}}}}"#);
            assert_eq!(Ok(by_word), requirements(&by_name, VOICE), "{word}");
        }
        // There is no other.
        let error = serde_json::from_str::<Preset>(r#""x""#).expect_err("unknown").to_string();
        let words = "expected one of `defaults`, `bulk`, `interactive`, `timely`, `media`, `messages`";
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn what_is_said_by_itself_counts_more_than_a_named_profile() {
        let settings = r#"{"profile":{"congestion":"vegas"},
            "properties":{"congestionControl":"require","uts.adapt":"on","uts.profile":"tcp-tahoe"}}"#;
        let asked = requirements(settings, BULK).expect("asked");
        for part in ["uts.profile.congestion=vegas", "uts.profile.retransmission=go-back-n"] {
            assert!(asked.contains(part), "{asked}");
        }
        assert!(!asked.contains("uts.adapt"), "{asked}");
    }

    #[test]
    fn an_application_asks_for_what_it_needs() {
        let bulk = requirements("{}", BULK).expect("asked");
        assert_eq!(bulk, "connCapacityProfile=capacity-seeking");
        let voice = requirements("{}", VOICE).expect("asked");
        for part in ["reliability=no-preference", "preserveMsgBoundaries=require", "msgLifetime=150"] {
            assert!(voice.contains(part), "{voice}");
        }
        let media = requirements(r#"{"requirements":"media"}"#, VOICE).expect("asked");
        assert!(media.contains("reliability=avoid"), "{media}");
        let by_hand = r#"{"requirements":"defaults","adaptive":false,"profile":{"congestion":"new-reno"},
            "properties":{"connPriority":7}}"#;
        let by_hand = requirements(by_hand, BULK).expect("asked");
        for part in ["uts.adapt=off", "uts.profile.congestion=new-reno", "connPriority=7"] {
            assert!(by_hand.contains(part), "{by_hand}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused_before_it_runs() {
        let error = requirements(r#"{"properties":{"reliability":"require"}}"#, VOICE).expect_err("refused");
        assert!(error.contains("`reliability=require` and `msgLifetime=150 ms` contradict"), "{error}");
        let error = requirements(r#"{"properties":{"connPriority":true}}"#, BULK).expect_err("refused");
        assert_eq!(error, "uts: properties: connPriority: true is neither text nor a number");
    }
}
