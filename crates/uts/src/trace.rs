//! The record of what each packet of a connection did.

use crate::connection::Connection;
use uts_engine::TraceRow;
use uts_functions::Time;

impl Connection {
    /// Begins to record packets. Returns the time that rows count from. Rows must be taken, or the
    /// oldest are dropped.
    pub fn start_trace(&self) -> Time {
        self.shared().act(|inner, now| {
            if let Some(connection) = inner.connection(self.handle()) {
                connection.trace().start();
            }
            now
        })
    }

    /// Takes the rows that were recorded since the last call.
    pub fn take_trace(&self) -> Vec<TraceRow> {
        self.shared().act(|inner, _| match inner.connection(self.handle()) {
            Some(connection) => connection.trace().take().collect(),
            None => Vec::new(),
        })
    }
}
