//! A. Richards, "The Universal Transport System: An Adaptive End-to-End Protocol", 1995: its
//! measurements, and questions that it left open, answered by the engine.
//!
//! * [`hand_off`]: nothing passes for 150 ms (section 1.4).
//! * [`nagle`]: keystrokes, and escape codes that wait (section 2.3.2).
//! * [`machines`], [`server`], [`factors`]: the work of its machines for a packet, the protocol
//!   server in a model, and what follows for files (chapter 3, section 4.7).
//! * [`seam`]: functions switched off and on in mid-transfer (section 4.6).
//! * [`exchange`]: a three-way exchange of profiles beside implicit use (sections 4.4, 5.2.3, 6.2).
//! * [`packets`], [`calls`], [`links`], [`sizes`]: instructions of a packet, calls by pointers,
//!   linking, and bytes (tables 2.2 and 4.2 to 4.4), beside the engine on this machine.
//! * [`stopwatch`]: its clock, which those read.
//! * [`clock`]: the error of a coarse clock (appendix A).
//!
//! Conclusions from the units are in `reference/thesis.toml`.

pub mod calls;
pub mod clock;
mod ends;
pub mod exchange;
pub mod factors;
pub mod hand_off;
pub mod links;
pub mod machines;
pub mod nagle;
pub mod packets;
pub mod seam;
pub mod server;
pub mod sizes;
pub mod stopwatch;

use crate::paper::{Paper, Unit};
use core::time::Duration;
use exchange::How;
use machines::{Functions, I486, MIPS};
use nagle::Reader;

/// Throughput behind a switch is averaged from then on: where the receiver was overrun, losses have
/// to be repaired first.
const SOON: Duration = Duration::from_millis(500);
const LATER: Duration = Duration::from_millis(4500);

/// The paper as an experiment.
pub fn paper() -> Paper {
    let [tcp, no_error, _, neither] = Functions::ALL.map(|(_, functions)| functions);
    let units = vec![
        Unit::new("hand-off-uts", || hand_off::pauses(None)),
        Unit::new("hand-off-messages", hand_off::pauses_of_messages),
        Unit::new("hand-off-tahoe", || hand_off::pauses(Some("tcp-tahoe"))),
        Unit::new("hand-off-reno", || hand_off::pauses(Some("tcp-reno"))),
        Unit::new("hand-off-newreno", || hand_off::pauses(Some("tcp-newreno"))),
        Unit::new("keys-echoed", || nagle::keys(Reader::Echoes, true)),
        Unit::new("keys-silent", || nagle::keys(Reader::Silent, true)),
        Unit::new("keys-silent-off", || nagle::keys(Reader::Silent, false)),
        Unit::new("codes", || nagle::codes(true)),
        Unit::new("codes-off", || nagle::codes(false)),
        Unit::new("packets", factors::packets),
        Unit::new("bulk-i486", || factors::bulk(&I486, &I486, false)),
        Unit::new("bulk-mips", || factors::bulk(&MIPS, &MIPS, false)),
        Unit::new("bulk-mixed", || factors::bulk(&MIPS, &I486, true)),
        Unit::new("segments", factors::in_segments),
        Unit::new("line-sender", || factors::time_line(0)),
        Unit::new("line-receiver", || factors::time_line(1)),
        Unit::new("files-binary", || factors::files(false)),
        Unit::new("files-ascii", || factors::files(true)),
        Unit::new("switch-off", move || seam::switch(tcp, neither, SOON)),
        Unit::new("switch-on", move || seam::switch(neither, tcp, LATER)),
        Unit::new("switch-errors", move || seam::switch(tcp, no_error, SOON)),
        Unit::new("catch-up", factors::catch_up),
        Unit::new("lag", factors::lag_of_switch),
        Unit::new("explicit", || exchange::over_round_trips(How::Asked)),
        Unit::new("implicit", || exchange::over_round_trips(How::AtOnce)),
        Unit::new("refused", || exchange::over_round_trips(How::Refused)),
        Unit::new("rate-explicit", || exchange::rates(How::Asked)),
        Unit::new("rate-implicit", || exchange::rates(How::AtOnce)),
        Unit::new("random", exchange::at_random),
        Unit::new("clock", clock::readings),
        Unit::new("instructions", packets::published),
        Unit::timed("steps-checked", || packets::steps(false)),
        Unit::timed("steps-sealed", || packets::steps(true)),
        Unit::timed("calls", calls::kinds),
        Unit::timed("calls-figure", calls::figure),
        Unit::new("links-published", links::published),
        Unit::timed("instances", links::instances),
        Unit::timed("switches", links::switches),
        Unit::new("sizes-published", sizes::published),
        Unit::new("at-rest", sizes::at_rest),
    ];
    Paper::new("thesis", include_str!("../../reference/thesis.toml"), units)
}
