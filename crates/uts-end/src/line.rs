//! Lines of JSON that an end prints and writes.

use crate::Role;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::Path;
use uts_traffic::measure::{Measure, Sample};

/// A server can be connected to: the one line that it prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Where.
    pub address: SocketAddr,
    /// Identity by which clients know it; to be given to them as it is.
    pub identity: Option<String>,
}

/// A line of an end's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A point of a picture.
    Sample(Sample),
    /// A figure.
    Measure(Measure),
    /// The end's last words.
    End(End),
}

/// Last line of an end: how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// `server` or `client`.
    pub role: String,
    /// Outcome of the run.
    pub status: Status,
    /// Why, if it is not [`Status::Ok`].
    pub why: Option<String>,
    /// Seconds that it took a client to connect.
    pub connect_s: Option<f64>,
    /// Seconds from the beginning of the workload until its end.
    pub wall_s: f64,
    /// CPU seconds (user and system) of the process in that time.
    pub cpu_s: f64,
    /// Packets that the transport sent, if it says.
    pub sent_packets: Option<u64>,
    /// Packets that the transport sent again, if it says.
    pub repeated_packets: Option<u64>,
}

/// Outcome of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The workload was done.
    Ok,
    /// It gave up, or the transport failed on the way; its figures are of what did arrive.
    CutShort,
    /// There was no session, or what arrived was wrong: it has no figures.
    Failed,
}

impl Role {
    /// In text.
    pub fn name(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Client => "client",
        }
    }
}

/// Reads an end's file.
///
/// # Errors
/// If it cannot be read, a line is no [`Line`], or the last is not [`Line::End`] (the end was
/// killed).
pub fn read(file: &Path) -> Result<Vec<Line>> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let mut lines = Vec::new();
    for (n, line) in (1..).zip(text.lines()) {
        lines.push(serde_json::from_str(line).with_context(|| format!("{shown}, line {n}"))?);
    }
    if !matches!(lines.last(), Some(Line::End(_))) {
        bail!("{shown} does not tell how its end ended: that was killed, or still runs");
    }
    Ok(lines)
}
