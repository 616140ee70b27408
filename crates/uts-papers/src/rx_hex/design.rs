//! Design of a sender: the mechanisms of the library that it is made of, and what these leave open.

use anyhow::{Result, anyhow};
use core::time::Duration;
use uts_functions::mechanism::Choice;
use uts_functions::{Function, Profile, library};

/// Packets that Rx has outstanding at most (section 1.3).
pub const WINDOW: u64 = 15;
/// Every so many packets one asks for an acknowledgement (section 1.2).
pub const ASKS_EVERY: u64 = 4;

/// A sender's mechanisms, and what these leave open.
#[derive(Clone, Debug)]
pub struct Design {
    /// Its mechanisms.
    pub profile: Profile,
    /// An acknowledgement also starts the time-outs anew of what is in flight.
    pub restarts: bool,
    /// Transmissions whose round trips it measures.
    pub samples: Samples,
    /// Round trips that transfers before this have measured; without any, the first time-out is
    /// [`FIRST_TIMEOUT`].
    pub history: Vec<Duration>,
}

/// The time-out of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timers {
    /// The one with which it left.
    Frozen,
    /// The one at present, from when it left.
    Recomputed,
    /// The one at present, from when it left or from the last acknowledgement, whichever is later.
    Restarted,
}

/// Which transmission of a packet an acknowledgement measures, where there were several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// None (Karn's rule, figure 10).
    Single,
    /// The first or the last, if the acknowledgement bears its serial number (figure 11).
    Serial,
}

impl Design {
    /// Rx of AFS 3.1 with this time-out, which is frozen and never doubled.
    ///
    /// # Errors
    /// The library refuses it.
    pub fn fixed(timeout: Duration) -> Result<Self> {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let timing = choice(Function::Timing, "fixed", &[("timeout", timeout_ms)])?;
        Self::with(timing, Timers::Frozen, Samples::Serial)
    }

    /// Rx with a time-out of the smoothed round trip and so many times its deviation, and no less
    /// than `floor`. It is 2 s at first, and never doubled.
    ///
    /// # Errors
    /// The library refuses it.
    pub fn adaptive(deviations: u64, floor: Duration, timers: Timers, samples: Samples) -> Result<Self> {
        let floor_us = u64::try_from(floor.as_micros()).unwrap_or(u64::MAX);
        let measures_repeats = u64::from(samples != Samples::Single);
        let settings = [("k", deviations), ("repeats", measures_repeats), ("floor", floor_us)];
        Self::with(choice(Function::Timing, "jacobson", &settings)?, timers, samples)
    }

    /// Rx as the paper leaves it (figures 12 and 13).
    ///
    /// # Errors
    /// The library refuses it.
    pub fn hex(timers: Timers) -> Result<Self> {
        Self::adaptive(2, FLOOR, timers, Samples::Serial)
    }

    fn with(timing: Choice, timers: Timers, samples: Samples) -> Result<Self> {
        let settings = [("frozen", u64::from(timers == Timers::Frozen)), ("back-off", 0)];
        let asks = choice(Function::Acknowledgement, "poll-status", &[("every", ASKS_EVERY), ("bursts", 0)])?;
        let profile = Profile::bare()
            .with(Function::Timing, timing)
            .with(Function::Finding, choice(Function::Finding, "expiry", &settings)?)
            .with(Function::Flow, choice(Function::Flow, "fixed-window", &[("packets", WINDOW)])?)
            .with(Function::Acknowledgement, asks)
            .with(Function::Congestion, choice(Function::Congestion, "none", &[])?);
        Ok(Design { profile, restarts: timers == Timers::Restarted, samples, history: Vec::new() })
    }

    /// The same, where transfers before it have measured these round trips.
    #[must_use]
    pub fn knowing(self, history: Vec<Duration>) -> Self {
        Design { history, ..self }
    }

    /// The same under another congestion control.
    ///
    /// # Errors
    /// The library has no such mechanism.
    pub fn restrained(mut self, congestion: &str) -> Result<Self> {
        self.profile.set(Function::Congestion, choice(Function::Congestion, congestion, &[])?);
        Ok(self)
    }
}

/// No time-out is shorter, where nothing else is said: that of the library.
pub const FLOOR: Duration = Duration::from_millis(1);
/// The time-out before anything was measured (section 1.2).
pub const FIRST_TIMEOUT: Duration = Duration::from_secs(2);

fn choice(function: Function, name: &str, settings: &[(&str, u64)]) -> Result<Choice> {
    let mechanism = library::by_name(function, name).map_err(|error| anyhow!("{error}"))?;
    mechanism.choice_with(settings).map_err(|error| anyhow!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The named profiles of the library have the same mechanisms. `rx-hex` doubles time-outs
    /// beside that, which the paper leaves for later (section 9), and asks with the last packet of
    /// a window as well.
    #[test]
    fn it_is_made_of_what_the_named_profiles_name() {
        let fixed = Design::fixed(FIRST_TIMEOUT).expect("in the library");
        let hex = Design::hex(Timers::Recomputed).expect("in the library");
        for (name, design) in [("rx-3.1", fixed), ("rx-hex", hex)] {
            let named = uts_engine::named::find(name).expect("a named profile");
            let mut compared = 0;
            for (function, text) in named.pinned() {
                let (mechanism, settings) = text.split_once('(').unwrap_or((text, ""));
                let settings: Vec<(&str, u64)> = settings
                    .trim_end_matches(')')
                    .split_terminator(',')
                    .map(|setting| setting.split_once('=').expect("a setting"))
                    .map(|(key, value)| (key, value.parse().expect("a number")))
                    .collect();
                let settings = match (name, function) {
                    ("rx-hex", Function::Finding) => vec![("back-off", 0)],
                    ("rx-hex", Function::Acknowledgement) => [settings, vec![("bursts", 0)]].concat(),
                    _ => settings,
                };
                let is_ours = matches!(
                    function,
                    Function::Timing
                        | Function::Finding
                        | Function::Flow
                        | Function::Acknowledgement
                        | Function::Congestion
                );
                if is_ours {
                    let expected = choice(function, mechanism, &settings).expect("in the library");
                    assert_eq!(*design.profile.get(function), expected, "{name}: {text}");
                    compared += 1;
                }
            }
            assert_eq!(compared, 5, "{name}");
        }
    }
}
