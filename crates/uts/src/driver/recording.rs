//! Records of connections, written as qlog while they are alive: a file for each.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use uts_engine::{ConnectionHandle, Endpoint, Event, Side};
use uts_functions::Time;
use uts_qlog::{Qlog, Vantage};

/// Tells logs of one process apart.
static LOGS: AtomicU64 = AtomicU64::new(0);

type Log = Qlog<BufWriter<File>>;

/// The logs of an endpoint's connections.
pub(crate) struct Recording {
    dir: PathBuf,
    /// Of connections that are not over. A log that cannot be written is `None`.
    logs: BTreeMap<ConnectionHandle, Option<Log>>,
}

impl Recording {
    /// Logs go to a directory, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(dir: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).create(&dir)?;
        Ok(Recording { dir, logs: BTreeMap::new() })
    }

    /// Logs what a connection tells its application. The log begins when a handshake is done, or
    /// has failed at its client: what others begin with a server costs it no file.
    pub fn on_event(&mut self, now: Time, engine: &mut Endpoint, handle: ConnectionHandle, event: &Event) {
        let is_client = engine.peek(handle).is_some_and(|connection| connection.side() == Side::Client);
        let is_end = matches!(event, Event::Closed(_));
        let begins = *event == Event::Connected || (is_end && is_client);
        if begins && !self.logs.contains_key(&handle) {
            let log = self.begin(if is_client { Vantage::Client } else { Vantage::Server });
            let log = log.inspect_err(|error| tracing::warn!(dir = %self.dir.display(), %error, "no qlog"));
            self.logs.insert(handle, log.ok());
        }
        self.drain(engine, handle);
        if let Some(Some(log)) = self.logs.get_mut(&handle) {
            log.on_event(now, engine, handle, event);
        }
        if is_end && let Some(Some(log)) = self.logs.remove(&handle) {
            Self::end(log);
        }
    }

    /// Logs what packets of all connections have done.
    pub fn on_turn(&mut self, engine: &mut Endpoint) {
        let handles: Vec<ConnectionHandle> = self.logs.keys().copied().collect();
        for handle in handles {
            if engine.peek(handle).is_some() {
                self.drain(engine, handle);
            } else if let Some(Some(log)) = self.logs.remove(&handle) {
                Self::end(log);
            }
        }
    }

    fn drain(&mut self, engine: &mut Endpoint, handle: ConnectionHandle) {
        let Some(Some(log)) = self.logs.get_mut(&handle) else { return };
        let Some(trace) = engine.trace(handle) else { return };
        let (handshake, rows) = (trace.take_handshake(), trace.take().collect::<Vec<_>>());
        if !handshake.is_empty() || !rows.is_empty() {
            log.on_packets(engine, handle, &handshake, &rows);
        }
    }

    /// The name says when it began, in milliseconds of the Unix epoch, so that logs are listed in
    /// the order of time.
    fn begin(&self, vantage: Vantage) -> io::Result<Log> {
        #[expect(clippy::disallowed_methods, reason = "only the file's name tells the time of day")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let role = match vantage {
            Vantage::Client => "client",
            Vantage::Server => "server",
        };
        let (process, n) = (process::id(), LOGS.fetch_add(1, Ordering::Relaxed));
        let name = format!("{:013}-{process}-{n}.{role}", now.as_millis());
        let path = self.dir.join(format!("{name}.sqlog"));
        // Nothing that is there is written over.
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        // Who talks to whom, and when, is for this user to know.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        Qlog::new(BufWriter::new(file), "a connection of UTS", &name, vantage)
    }

    fn end(log: Log) {
        if let Err(error) = log.finish() {
            tracing::warn!(%error, "a qlog is not whole");
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        core::mem::take(&mut self.logs).into_values().flatten().for_each(Self::end);
    }
}
