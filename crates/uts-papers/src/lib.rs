//! Published papers, done again: each table and figure is an experiment that is run here, drawn in
//! the manner of the paper, and judged against what was published.
//!
//! * [`reference`](mod@reference): what was published; [`judge`]: whether ours agrees.
//! * [`paper`]: what a paper consists of; [`run`]: carries it out, on all cores, and goes on with
//!   what was interrupted.
//! * [`blast`]: Zwaenepoel, "Protocols for Large Data Transfers over Local Networks", 1985.
//! * [`rx_hex`]: Bachmann, Honeyman and Huston, "The Rx Hex", 1993.
//! * [`engine`]: the engine as the sender of their transfers.
//! * [`page`]: the report.
//!
//! Everything happens in virtual time. The same seed gives the same bytes on any machine.

#![forbid(unsafe_code)]

pub mod blast;
pub mod engine;
pub mod judge;
mod looks;
pub mod page;
pub mod paper;
pub mod reference;
pub mod run;
pub mod rx_hex;

/// All papers, in the order of their years.
pub fn papers() -> Vec<paper::Paper> {
    vec![blast::paper(), rx_hex::paper()]
}
