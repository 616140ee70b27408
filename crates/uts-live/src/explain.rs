//! The selector's choice for a path of the sliders.

use crate::knobs::Knobs;
use crate::word::{Asks, KEY_BYTES, KEY_EVERY, Traffic, VOICE_BYTES, VOICE_DEADLINE, VOICE_EVERY};
use serde::Serialize;
use uts::{Library, PathFacts, Rate, Requirements};

/// A choice, for one of those that are carried.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// For which.
    pub traffic: Traffic,
    /// One for each function.
    pub functions: Vec<Choice>,
    /// Extent to which a deadline would be kept; `None` where none is asked.
    pub in_time: Option<String>,
}

/// The choice for a function.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// The function's name.
    pub function: &'static str,
    /// The mechanism, with parameters that are not at their default.
    pub mechanism: String,
    /// The reason.
    pub why: String,
}

/// The facts that a connection would come to know of such a path rest on so many packets.
const SAMPLES: u64 = 100_000;
/// UDP payload of full packets, in bytes.
const PAYLOAD_BYTES: u64 = 1472;
/// The share of the rate that UDP payload can have, beside the headers of IPv4 and UDP.
const PAYLOAD_SHARE: f64 = 1472.0 / 1500.0;

/// Requirements of those that are carried. The file has those of the connection.
pub fn requirements(traffic: Traffic, asks: Asks) -> Requirements {
    match (traffic, asks) {
        (Traffic::File, Asks::Bulk) => Requirements::bulk(),
        (Traffic::Voice, _) => Requirements::timely(VOICE_DEADLINE),
        (Traffic::File, Asks::Interactive) | (Traffic::Keys, _) => Requirements::interactive(),
    }
}

/// The choices for a path.
///
/// # Errors
/// No choice keeps the requirements.
pub fn explain(knobs: &Knobs, asks: Asks) -> Result<Vec<Explained>, String> {
    let one = |traffic| {
        let explained =
            uts::explain(&requirements(traffic, asks), &facts(knobs, traffic), &Library::local(), None)
                .map_err(|contradiction| contradiction.to_string())?;
        let functions = explained.lines.into_iter().map(|line| Choice {
            function: line.function.name(),
            mechanism: line.mechanism,
            why: line.why,
        });
        Ok(Explained {
            traffic,
            functions: functions.collect(),
            in_time: explained.timeliness.map(|timely| timely.to_string()),
        })
    };
    Traffic::ALL.into_iter().map(one).collect()
}

fn facts(knobs: &Knobs, traffic: Traffic) -> PathFacts {
    let rtt = knobs.round_trip();
    let (packets_per_s, payload_bytes) = match traffic {
        Traffic::File => (0.0, 0.0),
        Traffic::Voice => (1.0 / VOICE_EVERY.as_secs_f64(), VOICE_BYTES as f64),
        Traffic::Keys => (1.0 / KEY_EVERY.as_secs_f64(), KEY_BYTES as f64),
    };
    PathFacts {
        rtt_min: rtt,
        rtt_smoothed: rtt,
        capacity: Rate::from_bits_per_sec((knobs.rate * 1e6 * PAYLOAD_SHARE) as u64),
        loss: knobs.loss / 100.0,
        loss_burst: knobs.burst,
        mtu_bytes: PAYLOAD_BYTES,
        samples: SAMPLES,
        packets_per_s,
        payload_bytes,
        ..PathFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::{KNOBS, PRESETS};

    fn mechanism(explained: &[Explained], traffic: Traffic, function: &str) -> String {
        let of = explained.iter().find(|one| one.traffic == traffic).unwrap();
        of.functions.iter().find(|choice| choice.function == function).unwrap().mechanism.clone()
    }

    #[test]
    fn any_position_is_explained() {
        let mut tried: Vec<Knobs> = PRESETS.iter().map(|preset| preset.knobs).collect();
        let ends = |index: usize| KNOBS.get(index).map_or([0.0; 2], |knob| [knob.min, knob.max]);
        for corner in 0..32usize {
            let at = |index: usize| ends(index)[corner >> index & 1];
            tried.push(Knobs { rate: at(0), delay: at(1), loss: at(2), burst: at(3), queue: at(4) });
        }
        for knobs in tried {
            let both = [Asks::Bulk, Asks::Interactive].map(|asks| explain(&knobs, asks));
            for one in both.into_iter().flat_map(|one| one.unwrap_or_else(|why| panic!("{knobs:?}: {why}"))) {
                assert_eq!(one.functions.len(), uts::Function::COUNT, "{knobs:?}");
                assert_eq!(one.in_time.is_some(), one.traffic == Traffic::Voice, "{knobs:?}");
            }
        }
    }

    #[test]
    fn another_path_has_another_choice() {
        let calm = explain(&Knobs::default(), Asks::Bulk).unwrap();
        let lossy = explain(&Knobs { loss: 10.0, delay: 80.0, ..Knobs::default() }, Asks::Bulk).unwrap();
        let quick = explain(&Knobs::default(), Asks::Interactive).unwrap();
        let [before, after] = [&calm, &lossy].map(|on| mechanism(on, Traffic::File, "congestion"));
        assert_ne!(before, after);
        assert_ne!(before, mechanism(&quick, Traffic::File, "congestion"), "what is asked counts as well");
        // A repeat would come after the deadline of the voice.
        let [before, after] = [&calm, &lossy].map(|on| mechanism(on, Traffic::Voice, "retransmission"));
        assert_eq!((before.as_str(), after.as_str()), ("selective", "none"));
    }
}
