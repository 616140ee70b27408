//! Contenders: the profile that adapts, its own first profile, and fixed profiles.

use serde_json::Value;
use std::collections::BTreeMap;
use uts_end::TransportSpec;
use uts_end::transport::universal::UniversalSettings;

/// A fixed profile: its name, and the mechanisms that differ from what the requirements choose.
pub struct Fixed {
    /// As it stands in tables.
    pub name: &'static str,
    /// Function and mechanism.
    pub mechanisms: &'static [(&'static str, &'static str)],
}

const fn fixed(name: &'static str, mechanisms: &'static [(&'static str, &'static str)]) -> Fixed {
    Fixed { name, mechanisms }
}

/// The fixed profiles: each congestion control with redundancy and without, and for messages also
/// without repeats. One that a service's requirements forbid does not take part there.
pub const FIXED: &[Fixed] = &[
    fixed("cubic", &[("congestion", "cubic"), ("fec", "none")]),
    fixed("new-reno", &[("congestion", "new-reno"), ("fec", "none")]),
    fixed("bbr", &[("congestion", "bbr"), ("fec", "none")]),
    fixed("bbr-300", &[("congestion", "bbr(loss-threshold=300)"), ("fec", "none")]),
    fixed("cubic+rs", &[("congestion", "cubic"), ("fec", "reed-solomon")]),
    fixed("bbr+rs", &[("congestion", "bbr"), ("fec", "reed-solomon")]),
    fixed("bbr-300+rs", &[("congestion", "bbr(loss-threshold=300)"), ("fec", "reed-solomon")]),
    fixed("bbr+window", &[("congestion", "bbr"), ("fec", "sliding-window")]),
    fixed("bbr+rs-short", &[("congestion", "bbr"), ("fec", "reed-solomon(data=4,parity=2,interleave=1)")]),
    fixed("bbr-once", &[("congestion", "bbr"), ("fec", "none"), ("retransmission", "none")]),
    fixed("bbr-once+rs", &[("congestion", "bbr"), ("fec", "reed-solomon"), ("retransmission", "none")]),
];

/// Profile that carries a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Profile that adapts.
    Adaptive,
    /// First profile of [`Contender::Adaptive`], which is never left.
    First,
    /// One of [`FIXED`], by its place.
    Fixed(usize),
}

impl Contender {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Contender> {
        [Contender::Adaptive, Contender::First].into_iter().chain((0..FIXED.len()).map(Contender::Fixed))
    }

    /// As it stands in tables.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Adaptive => "adaptive",
            Contender::First => "first",
            Contender::Fixed(n) => FIXED.get(n).map_or("?", |fixed| fixed.name),
        }
    }

    /// Settings of UTS for it.
    pub fn transport(self) -> TransportSpec {
        let mechanisms = match self {
            Contender::Adaptive | Contender::First => &[],
            Contender::Fixed(n) => FIXED.get(n).map_or(&[][..], |fixed| fixed.mechanisms),
        };
        let profile: BTreeMap<String, String> =
            mechanisms.iter().map(|(function, name)| ((*function).into(), (*name).into())).collect();
        let adaptive = Some(self == Contender::Adaptive);
        let settings = UniversalSettings { profile, adaptive, ..UniversalSettings::default() };
        let mut spec = TransportSpec::new("uts");
        if let Ok(Value::Object(settings)) = serde_json::to_value(&settings) {
            spec.settings = settings;
        }
        spec
    }
}
