//! The live demonstration: a page on which a path is changed while UTS and TCP carry the same.
//!
//! Two sides carry a file, a voice and keystrokes at once, each over an emulated path of its own
//! with the same settings: UTS, and the kernel's TCP. [`Live`] starts both, and one page on
//! loopback that moves both paths and shows what follows.
//!
//! * [`knobs`]: the path as positions of sliders.
//! * [`explain`]: the selector's choice for such a path.
//! * [`end`]: an end as a process, and [`word`], what it prints.
//! * `bed`: where the ends are: hosts behind RouterPC, or loopback and a relay.
//! * `side`: keeps the two ends of a side alive.
//! * `hub`: all that is known now, for all who look.
//! * `web`: the page, and who may see it.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the demonstration faces the world: real processes, real time"
)]

mod bed;
pub mod end;
pub mod explain;
mod hub;
pub mod knobs;
mod live;
mod side;
mod web;
pub mod word;

pub use live::{Live, LiveConfig, World};
pub use web::CLIENTS_MAX;
