//! One finding of what a machine permits.

use serde::{Deserialize, Serialize};

/// One thing that a testbed needs, or is better with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the thing.
    pub name: String,
    /// There is no testbed without it.
    pub required: bool,
    /// The machine has it.
    pub ok: bool,
    /// Finding in words.
    pub why: String,
    /// The one command that would help; empty if all is well.
    pub remedy: String,
}
