//! What this machine permits, and the one command that would permit the rest.

use super::{Testbed, TestbedConfig};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};

/// One thing that a testbed needs, or is better with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What it is.
    pub name: String,
    /// Whether a testbed cannot be without it.
    pub required: bool,
    /// Whether it is there.
    pub ok: bool,
    /// What was found.
    pub why: String,
    /// The one command that would help; empty if all is well.
    pub remedy: String,
}
/// Tries.
pub fn doctor() -> Vec<Check> {
    let _ = (Testbed::start as fn(TestbedConfig) -> _, Command::new("true"), Stdio::null());
    Vec::new()
}
