//! The library of protocol functions.
//!
//! Each *function* is a duty that a transport may have, and a folder here: its `mod.rs` holds the
//! trait, the state that outlives every mechanism, and the registry. Each *mechanism* is one way to
//! perform it, and a file in that folder. A function owns the state; a mechanism is a policy over
//! it, so that exchanging one for another moves no data and forgets nothing that the network
//! taught.
//!
//! Nothing here reads a clock, opens a socket or draws a random number: time and seeds are handed
//! in.
#![forbid(unsafe_code)]

pub mod dependencies;
pub mod external;
pub mod facts;
pub mod feedback;
pub mod function;
pub mod library;
mod macros;
pub mod mechanism;
pub mod numbering;
pub mod profile;
pub mod range;
pub mod time;

pub mod acknowledgement;
pub mod congestion;
pub mod detection;
pub mod establishment;
pub mod fec;
pub mod finding;
pub mod flow;
pub mod playout;
pub mod presentation;
pub mod protection;
pub mod rate;
pub mod retransmission;
pub mod segmentation;
pub mod sequencing;
pub mod timing;

pub use facts::PathFacts;
pub use function::Function;
pub use mechanism::{Choice, Mechanism, Param, Params, Prediction, Unit};
pub use numbering::Numbering;
pub use profile::Profile;
pub use range::RangeSet;
pub use sequencing::MessageRow;
pub use time::{Rate, Time};
