//! The subcommands.

mod beside;
pub mod cp;
pub mod ctl;
pub mod decode;
pub mod explain;
pub mod functions;
pub mod group;
pub mod hosts;
pub mod keygen;
pub mod lab;
pub mod ls;
pub mod manual;
pub mod media;
mod meter;
pub mod parts;
mod patience;
pub mod perf;
pub mod pipe;
pub mod properties;
mod reach;
pub mod serve;
pub mod ssh;
mod ticks;
pub mod top;
pub mod tunnel;

use crate::args::WantedArgs;
use crate::ui::Ui;
use crate::ui::bounded::{Bounded, LINES_MAX};
use crate::ui::log::{Filter, Log};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use uts_end::{output, signals};

/// A log on standard error, bounded in the lines that peers can cause. Within a runtime.
///
/// # Errors
/// The environment asks for words that are no filter.
fn bounded_log(verbose: u8, quiet: bool) -> Result<Arc<dyn Ui>, Failure> {
    let log = Arc::new(Log::new(false, Filter::new(verbose, quiet).map_err(Failure::Usage)?));
    let bounded = Bounded::alone(log.clone(), LINES_MAX);
    log.listen(bounded.clone());
    Ok(bounded)
}

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
    /// Nobody reads what it writes any more.
    Unread,
    /// Another program has failed, has told why, and has ended with this status.
    Ended(u8),
}

impl Failure {
    /// The user interrupted it, which left nothing that has to be told.
    fn interrupted() -> Self {
        Failure::Interrupted("interrupted".into())
    }

    /// The line that is still to be told.
    pub fn line(&self) -> Option<&str> {
        match self {
            Failure::Usage(line) | Failure::Failed(line) | Failure::Interrupted(line) => Some(line),
            Failure::Told | Failure::Unread | Failure::Ended(_) => None,
        }
    }

    /// The exit status.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Failed(_) | Failure::Told => 1,
            Failure::Usage(_) => 2,
            Failure::Interrupted(_) => signals::INTERRUPTED,
            Failure::Unread => output::READER_GONE,
            Failure::Ended(status) => *status,
        }
    }
}

/// Properties asked of the transport.
///
/// # Errors
/// [`Failure::Usage`] for properties that do not exist, or not with such values. Contradictions
/// between them are found later.
fn properties(wanted: &WantedArgs) -> Result<Vec<(String, String)>, Failure> {
    let properties = wanted.properties().map_err(Failure::Usage)?;
    let mut requirements = uts::Requirements::bulk();
    for (name, value) in &properties {
        requirements.set(name, value).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    Ok(properties)
}

/// The limit that an option is short for: its value, for each of these properties.
///
/// # Errors
/// [`Failure::Usage`] if it is no such value.
fn limits(option: &str, names: &[&str], value: Option<&str>) -> Result<Vec<(String, String)>, Failure> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let limit = |name: &&str| {
        let set = uts::Requirements::bulk().set(name, value);
        set.map_err(|error| Failure::Usage(format!("{option}: {error}")))?;
        Ok(((*name).to_owned(), value.to_owned()))
    };
    names.iter().map(limit).collect()
}

/// Waits for Ctrl-C, a request to end, or the end of the terminal. A second signal ends the process
/// at once.
pub async fn interrupted() {
    interrupted_or(None).await
}

/// The same; but if there is somebody to be told of it, SIGHUP tells that settings are to be read
/// again. Signals are caught from now on, before it is waited.
pub fn interrupted_or(reload: Option<mpsc::Sender<()>>) -> impl Future<Output = ()> {
    let (end, ends) = oneshot::channel();
    let end = move || {
        // If nobody waits any more, the command is ending already.
        let _ = end.send(());
    };
    let caught = match reload {
        None => signals::on_end(end),
        // One that waits is enough.
        Some(reload) => signals::on_end_or_reload(end, move || {
            let _ = reload.try_send(());
        }),
    };
    async move {
        // Where signals cannot be caught they end the process by themselves.
        if caught.is_err() || ends.await.is_err() {
            std::future::pending().await
        }
    }
}
