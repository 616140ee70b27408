//! A. Richards, "The Universal Transport System: An Adaptive End-to-End Protocol", 1995: questions
//! that it left open, answered by the engine.
//!
//! * [`exchange`]: a three-way exchange of profiles beside implicit use (sections 4.4, 5.2.3, 6.2).
//!
//! Conclusions from the units are in `reference/thesis.toml`.

pub mod exchange;

use crate::data;
use crate::paper::{Conclusion, Paper, Results, Unit};
use anyhow::Result;
use exchange::How;

const REFERENCE: &str = include_str!("../../reference/thesis.toml");

/// The paper as an experiment.
pub fn paper() -> Paper {
    let units = vec![
        Unit::new("explicit", [], || exchange::over_round_trips(How::Asked)),
        Unit::new("implicit", [], || exchange::over_round_trips(How::AtOnce)),
        Unit::new("refused", [], || exchange::over_round_trips(How::Refused)),
        Unit::new("rate-explicit", [], || exchange::rates(How::Asked)),
        Unit::new("rate-implicit", [], || exchange::rates(How::AtOnce)),
        Unit::new("random", [], exchange::at_random),
    ];
    // A file that cannot be read is told as the paper is judged.
    let units = data::place(units, REFERENCE).unwrap_or_default();
    Paper { name: "thesis", reference: REFERENCE, units, conclude }
}

fn conclude(results: &Results) -> Result<Conclusion> {
    data::conclude(results, REFERENCE)
}
