//! Published papers, done again: each table and figure is an experiment that is run here, drawn in
//! the manner of the paper, and judged against what was published.
//!
//! * [`reference`](mod@reference): what was published; [`judge`]: whether ours agrees.
//! * [`paper`]: what a paper consists of; [`run`]: carries it out, on all cores, and goes on with
//!   what was interrupted.
//! * [`blast`]: Zwaenepoel, "Protocols for Large Data Transfers over Local Networks", 1985.
//! * [`openlink`]: Guerrero and Frieder, "Tuning the Performance of a Commercial TCP", 1992.
//! * [`rx_hex`]: Bachmann, Honeyman and Huston, "The Rx Hex", 1993.
//! * [`thesis`]: Richards, "The Universal Transport System: An Adaptive End-to-End Protocol", 1995.
//! * [`tiger`]: Viswanath, "TCP Performance Evaluation Using TIGER Network Testbed", 1999.
//! * [`tcp`]: a TCP of the nineties; [`engine`]: the engine, as senders of their transfers.
//! * [`beside`]: measurements of the laboratory, to be drawn beside a paper's.
//! * [`data`]: what follows for a paper, as its file says; [`expression`]: how it says it.
//! * [`page`]: the report.
//!
//! Everything happens in virtual time, but for what is timed. The same seed gives the same bytes on
//! any machine.

#![forbid(unsafe_code)]

mod average;
pub mod beside;
pub mod blast;
pub mod data;
mod draw;
pub mod engine;
pub mod expression;
pub mod judge;
mod looks;
pub mod openlink;
pub mod page;
pub mod paper;
pub mod reference;
pub mod run;
pub mod rx_hex;
pub mod tcp;
pub mod thesis;
pub mod tiger;

/// All papers, in the order of their years.
pub fn papers() -> Vec<paper::Paper> {
    vec![blast::paper(), openlink::paper(), rx_hex::paper(), thesis::paper(), tiger::paper()]
}
