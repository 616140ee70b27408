//! The segmentation function.

use crate::mechanism::Mechanism;

/// The mechanisms of this function, in the order of their numbers.
pub static MECHANISMS: &[&Mechanism] = &[];
