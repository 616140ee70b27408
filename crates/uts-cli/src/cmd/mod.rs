//! The subcommands.

pub mod cp;
pub mod explain;
pub mod keygen;
mod meter;
pub mod serve;

use crate::args::WantedArgs;

/// Why a command did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// Something failed.
    Failed(String),
    /// Something failed, and was told already.
    Told,
    /// The user interrupted it.
    Interrupted(String),
}

impl Failure {
    /// What is still to be told.
    pub fn line(&self) -> Option<&str> {
        match self {
            Failure::Usage(line) | Failure::Failed(line) | Failure::Interrupted(line) => Some(line),
            Failure::Told => None,
        }
    }

    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Failed(_) | Failure::Told => 1,
            Failure::Usage(_) => 2,
            Failure::Interrupted(_) => 130,
        }
    }
}

/// What is asked of the transport.
///
/// # Errors
/// [`Failure::Usage`] for properties that there are not, or not with such values. Whether they contradict each other is
/// found out later.
fn properties(wanted: &WantedArgs) -> Result<Vec<(String, String)>, Failure> {
    let properties = wanted.properties().map_err(Failure::Usage)?;
    let mut requirements = uts::Requirements::bulk();
    for (name, value) in &properties {
        requirements.set(name, value).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    Ok(properties)
}

/// Waits for Ctrl-C or a request to end.
pub async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                terminate.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        // Without a handler, Ctrl-C ends the process by itself.
        Ok(()) = tokio::signal::ctrl_c() => {}
        () = terminate => {}
    }
}
