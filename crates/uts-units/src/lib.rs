//! Amounts as people write them: `5Mbit/s`, `64kB`, `20ms`, `5%`, `63p`. All of UTS reads and
//! writes them here. Beside them, [`printable`]: text of any origin that may be shown.
//!
//! * **Bits and bytes differ by case**, as everyone writes them: `Mbit/s`, `mbit`, `Mb/s`, `Mbps`
//!   are bits, `MB/s`, `MBps`, `MiB/s` are bytes. `bit` may have any case. A number of bits without
//!   `/s` is a rate, as with `tc`.
//! * **An amount that can be read in two ways is refused**, with both readings: `5mb/s`, `5M` as a
//!   rate, `64kb` as a size.
//! * `k`, `M`, `G`, `T`, `P`, `E` are powers of 1000; `Ki`, `Mi`, … of 1024.
//! * Times have `ns`, `us` (`µs`), `ms`, `s`, `m` or `min`, `h`, `d`.
//! * Values are computed in whole numbers of the smallest unit and rounded to the nearest, halves
//!   up.
//!
//! The reader says what a number without a unit counts: see [`rate`], [`size`], [`time`],
//! [`time_in`].

pub mod printable;
mod quantity;
mod read;
pub mod show;
#[cfg(feature = "serde")]
pub mod text;
mod unit;

pub use quantity::{Unit, quantity};
pub use read::{rate, share, size, time, time_in};

/// Why a text is no amount of the kind asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// It does not begin with a number, or has no unit where one is needed.
    #[error("is not a number with its unit")]
    Form,
    /// Its unit is unknown, or counts something else.
    #[error("`{0}` is no unit of it")]
    Unit(String),
    /// It is above 2^64 - 1 of the smallest unit.
    #[error("is too large")]
    TooLarge,
    /// It can be read in two ways.
    #[error("`{text}` can be read as {} and as {}; write which", readings[0], readings[1])]
    Ambiguous {
        /// Text as written.
        text: String,
        /// The two readings, as they would be written.
        readings: [String; 2],
    },
}

impl AmountError {
    /// The error: `wanted` if the text does not have the form or the unit, otherwise what is wrong
    /// with it.
    pub fn or(self, wanted: &str) -> String {
        match self {
            AmountError::Form | AmountError::Unit(_) => wanted.to_owned(),
            other => other.to_string(),
        }
    }

    /// A sentence about `text`: that it is not `wanted`, or what else is wrong with it.
    pub fn about(self, text: &str, wanted: &str) -> String {
        match self {
            AmountError::Form | AmountError::Unit(_) => format!("`{text}` is not {wanted}"),
            AmountError::TooLarge => format!("`{text}` is too large"),
            ambiguous @ AmountError::Ambiguous { .. } => ambiguous.to_string(),
        }
    }
}
