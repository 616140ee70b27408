//! The path as positions of sliders.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use uts_path::{Buffer, Change, Loss, Setting, SpecError};

/// Positions of all sliders. Both directions of the path have them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knobs {
    /// Rate of the bottleneck, in Mbit/s.
    pub rate: f64,
    /// Delay one way, in milliseconds.
    pub delay: f64,
    /// Packets that the wire loses, in per cent.
    pub loss: f64,
    /// Mean number of packets that are lost in a row.
    pub burst: f64,
    /// Time that the full queue takes to empty, in milliseconds.
    pub queue: f64,
}

/// A slider.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Knob {
    /// The field of [`Knobs`].
    pub name: &'static str,
    /// The name for people.
    pub label: &'static str,
    /// The unit behind a value.
    pub unit: &'static str,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
    /// The least value above zero, from which on positions go by ratios; 0 where they are even.
    pub from: f64,
    /// A sentence about it.
    pub help: &'static str,
    #[serde(skip)]
    read: fn(&Knobs) -> f64,
}

/// All sliders, in their order on the page.
pub const KNOBS: [Knob; 5] = [
    Knob {
        name: "rate",
        label: "Rate",
        unit: "Mbit/s",
        min: 0.5,
        max: 50.0,
        from: 0.5,
        help: "what the bottleneck carries each way",
        read: |knobs| knobs.rate,
    },
    Knob {
        name: "delay",
        label: "Delay",
        unit: "ms",
        min: 1.0,
        max: 300.0,
        from: 1.0,
        help: "one way; a round trip takes twice as long",
        read: |knobs| knobs.delay,
    },
    Knob {
        name: "loss",
        label: "Loss",
        unit: "%",
        min: 0.0,
        max: 20.0,
        from: 0.1,
        help: "packets that the wire loses each way",
        read: |knobs| knobs.loss,
    },
    Knob {
        name: "burst",
        label: "Bursts",
        unit: "packets",
        min: 1.0,
        max: 20.0,
        from: 1.0,
        help: "how many packets are lost in a row, on average",
        read: |knobs| knobs.burst,
    },
    Knob {
        name: "queue",
        label: "Queue",
        unit: "ms",
        min: 10.0,
        max: 2000.0,
        from: 10.0,
        help: "how long a packet waits at the bottleneck when the queue is full",
        read: |knobs| knobs.queue,
    },
];

/// A path under a name.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// The path.
    pub knobs: Knobs,
}

const fn preset(name: &'static str, [rate, delay, loss, burst, queue]: [f64; 5]) -> Preset {
    Preset { name, knobs: Knobs { rate, delay, loss, burst, queue } }
}

/// Paths that people know.
pub const PRESETS: [Preset; 6] = [
    preset("Home", [10.0, 20.0, 0.0, 1.0, 100.0]),
    preset("Bad Wi-Fi", [10.0, 15.0, 5.0, 4.0, 100.0]),
    preset("Full buffer", [5.0, 20.0, 0.0, 1.0, 1000.0]),
    preset("Mobile", [3.0, 40.0, 1.0, 3.0, 400.0]),
    preset("Satellite", [20.0, 280.0, 0.5, 1.0, 300.0]),
    preset("Radio link", [2.0, 80.0, 12.0, 2.0, 150.0]),
];

/// The smallest queue holds this much, in bytes: two packets.
const QUEUE_BYTES_MIN: u64 = 3000;

impl Default for Knobs {
    fn default() -> Self {
        PRESETS[0].knobs
    }
}

impl Knobs {
    /// The same, if every slider has such a position.
    ///
    /// # Errors
    /// The slider, its value, and its range.
    pub fn checked(self) -> Result<Knobs, String> {
        for knob in &KNOBS {
            let value = (knob.read)(&self);
            if !(knob.min..=knob.max).contains(&value) {
                let Knob { name, unit, min, max, .. } = knob;
                return Err(format!("{name}: {value} is not from {min} to {max} {unit}"));
            }
        }
        Ok(self)
    }

    /// Settings of both directions.
    ///
    /// # Errors
    /// They contradict each other.
    pub fn change(&self) -> Result<Change, SpecError> {
        let rate_bps = (self.rate * 1e6).round() as u64;
        let queue_bytes = ((self.queue * rate_bps as f64 / 8e3).round() as u64).max(QUEUE_BYTES_MIN);
        let loss = match self.loss / 100.0 {
            share if share <= 0.0 => Loss::None,
            p if self.burst <= 1.0 => Loss::Random { p },
            loss => Loss::GilbertElliott { loss, burst: self.burst },
        };
        Change::new(vec![
            Setting::Rate(Some(rate_bps)),
            Setting::Delay((self.delay * 1e6).round() as u64),
            Setting::Loss(loss),
            Setting::Buffer(Buffer::Bytes(queue_bytes)),
        ])
    }

    /// A round trip without queues.
    pub fn round_trip(&self) -> Duration {
        Duration::from_secs_f64(self.delay * 2.0 / 1e3)
    }

    /// The sliders that stand elsewhere than `before`, as `loss 0 → 5 %`.
    pub fn differences(&self, before: &Knobs) -> String {
        let moved = KNOBS.iter().filter(|knob| (knob.read)(self) != (knob.read)(before)).map(|knob| {
            let [from, to] = [before, self].map(|knobs| shown((knob.read)(knobs)));
            format!("{} {from} → {to} {}", knob.label.to_lowercase(), knob.unit)
        });
        moved.collect::<Vec<_>>().join(", ")
    }
}

/// A value with three digits that count.
fn shown(value: f64) -> String {
    let decimals = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_is_a_path_and_no_other_is() {
        for knob in &KNOBS {
            for (value, is_one) in [
                (knob.min, true),
                (knob.max, true),
                (knob.min - 0.01, false),
                (knob.max * 1.01, false),
                (f64::NAN, false),
                (f64::INFINITY, false),
            ] {
                let mut object = serde_json::to_value(Knobs::default()).unwrap();
                let mut knobs = Knobs::default();
                match knob.name {
                    "rate" => knobs.rate = value,
                    "delay" => knobs.delay = value,
                    "loss" => knobs.loss = value,
                    "burst" => knobs.burst = value,
                    _ => knobs.queue = value,
                }
                assert!(object.get(knob.name).is_some(), "{}", knob.name);
                assert_eq!(knobs.checked().is_ok(), is_one, "{} {value}", knob.name);
                if is_one {
                    assert!(knobs.change().is_ok(), "{} {value}", knob.name);
                    object[knob.name] = value.into();
                    assert_eq!(serde_json::from_value::<Knobs>(object).unwrap(), knobs);
                } else {
                    assert!(knobs.checked().unwrap_err().starts_with(knob.name));
                }
            }
        }
        let worst = Knobs { loss: 20.0, burst: 1.0, ..Knobs::default() };
        assert!(worst.change().is_ok());
    }

    #[test]
    fn presets_are_paths() {
        for preset in PRESETS {
            assert!(preset.knobs.checked().and_then(|k| k.change().map_err(|e| e.to_string())).is_ok());
        }
    }

    #[test]
    fn sliders_are_settings_of_the_path() {
        let change = |knobs: Knobs| knobs.change().unwrap().to_string();
        let knobs = Knobs { rate: 8.0, delay: 20.0, loss: 0.0, burst: 1.0, queue: 100.0 };
        assert_eq!(change(knobs), "rate=8mbit delay=20ms loss=0 buffer=100kB");
        assert!(change(Knobs { loss: 5.0, ..knobs }).contains("loss=0.05"));
        assert!(change(Knobs { loss: 5.0, burst: 4.0, ..knobs }).contains("loss=ge:0.05,4"));
        let small = Knobs { rate: 0.5, queue: 10.0, ..knobs };
        assert!(change(small).contains("buffer=3kB"), "two packets find room");
    }

    #[test]
    fn what_moved_is_told() {
        let before = Knobs::default();
        assert_eq!(before.differences(&before), "");
        let after = Knobs { loss: 5.0, rate: 1.25, ..before };
        assert_eq!(after.differences(&before), "rate 10 → 1.25 Mbit/s, loss 0 → 5 %");
    }
}
