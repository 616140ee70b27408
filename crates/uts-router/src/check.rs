//! One finding of what a machine permits.

use serde::{Deserialize, Serialize};

/// One thing that a testbed needs, or is better with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What it is.
    pub name: String,
    /// Whether there is no testbed without it.
    pub required: bool,
    /// Whether it is there.
    pub ok: bool,
    /// What was found.
    pub why: String,
    /// The one command that would help; empty if all is well.
    pub remedy: String,
}
