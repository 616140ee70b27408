//! Which transport, with which settings.

use core::fmt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A transport under test as text: its kind, and settings that its adapter knows, as
/// `{ kind = "tcp", congestion = "cubic", window = "64kB" }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransportSpec {
    /// Which adapter.
    pub kind: String,
    /// Settings by their names.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

impl TransportSpec {
    /// A transport as it comes.
    pub fn new(kind: impl Into<String>) -> Self {
        TransportSpec { kind: kind.into(), settings: Map::new() }
    }

    /// The same with one more setting.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.settings.insert(key.into(), value.into());
        self
    }

    /// The settings as what the adapter takes: a type that should deny unknown fields.
    ///
    /// # Errors
    /// What is wrong, after the kind.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        // Key by key, so that the message can say which one is wrong.
        serde_json::from_value(Value::Object(self.settings.clone())).map_err(|e| {
            let key = self.settings.iter().find(|(key, value)| {
                let without: Map<String, Value> = self
                    .settings
                    .iter()
                    .filter(|(k, _)| k != key)
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                !value.is_null() && serde_json::from_value::<T>(Value::Object(without)).is_ok()
            });
            match key {
                Some((key, _)) if !e.to_string().contains(key.as_str()) => {
                    format!("{}: {key}: {e}", self.kind)
                }
                _ => format!("{}: {e}", self.kind),
            }
        })
    }
}

/// `tcp`, `tcp(congestion=cubic, window=64kB)`.
impl fmt::Display for TransportSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        for (i, (key, value)) in self.settings.iter().enumerate() {
            let before = if i == 0 { "(" } else { ", " };
            match value {
                Value::String(text) => write!(f, "{before}{key}={text}")?,
                other => write!(f, "{before}{key}={other}")?,
            }
        }
        if self.settings.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Settings {
        congestion: Option<String>,
        #[serde(with = "uts_units::text::bytes_option")]
        window: Option<u64>,
    }

    #[test]
    fn a_spec_is_text_and_back() {
        let json = r#"{"kind":"tcp","congestion":"cubic","window":"64kB"}"#;
        let spec: TransportSpec = serde_json::from_str(json).expect("read");
        assert_eq!(spec, TransportSpec::new("tcp").with("congestion", "cubic").with("window", "64kB"));
        assert_eq!(spec.to_string(), "tcp(congestion=cubic, window=64kB)");
        assert_eq!(serde_json::to_string(&spec).expect("written"), json);
        let expected = Settings { congestion: Some("cubic".into()), window: Some(64_000) };
        assert_eq!(spec.read::<Settings>().expect("settings"), expected);
        assert_eq!(TransportSpec::new("tcp").to_string(), "tcp");
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let error = |spec: TransportSpec| spec.read::<Settings>().expect_err("refused");
        assert_eq!(
            error(TransportSpec::new("tcp").with("congestion", "bbr").with("window", "wide")),
            "tcp: window: `wide` is not a size with its unit, as 1500B, 64kB, 64KiB or 16MB"
        );
        let unknown = error(TransportSpec::new("tcp").with("windows", "64kB"));
        assert!(
            unknown.starts_with("tcp: unknown field `windows`, expected `congestion` or `window`"),
            "{unknown}"
        );
    }
}
