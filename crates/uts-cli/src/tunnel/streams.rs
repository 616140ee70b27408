//! Streams that are carried, as the log, the account of a server and a list have them.

use super::audit::Audit;
use crate::ui::Ui;
use crate::ui::record::{Peer, Record};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tracing::Level;
use uts::Direction;
use uts_tunnel::live::{Carried, Event, Live, Observer};

/// The log, and the account of a server, that hear what becomes of streams.
pub struct Told {
    /// The log.
    pub ui: Arc<dyn Ui>,
    /// The other end of the connection that carries them.
    pub peer: Peer,
    /// Weight of a stream that has ended, or was refused.
    pub level: Level,
    /// The account of a server.
    pub audit: Option<Arc<Audit>>,
}

impl Observer for Told {
    fn on_stream(&self, place: &str, event: Event<'_>) {
        let record = Record { event: "stream", peer: Some(&self.peer), place, ..Record::default() };
        let level = self.level;
        let record = match event {
            Event::Opened => Record { level: Level::DEBUG, step: "opened", ..record },
            Event::Refused(line) => Record { level, step: "refused", line, ..record },
            Event::Closed { bytes, lasted, why: line } => {
                let (bytes, lasted) = (Some(bytes), Some(lasted));
                Record { level, step: "closed", bytes, lasted, line, ..record }
            }
        };
        if let Some(audit) = &self.audit {
            audit.note(&self.peer, place, event);
        }
        self.ui.record(&record);
    }
}

/// All that are carried, for a list, in the order in which they began.
pub fn list(live: &Live) -> Vec<Value> {
    live.all().iter().map(|(id, carried)| describe(*id, carried)).collect()
}

fn describe(id: u64, carried: &Carried) -> Value {
    let look = carried.flow.as_ref();
    let profile = |direction| {
        let found = look.and_then(|(of, flow)| of.inspect(|c| c.flow_profile(direction, *flow)).flatten());
        found.map_or(Value::Null, |profile| profile.to_string().into())
    };
    let priority = look.and_then(|(of, flow)| of.inspect(|c| c.flow_priority(*flow)).flatten());
    json!({
        "id": id, "priority": priority, "forward": carried.forward, "from": carried.from, "to": carried.to,
        "flow": look.map(|(_, flow)| flow.0), "seconds": carried.since.elapsed().as_secs(),
        "bytes_sent": carried.sent.load(Relaxed), "bytes_received": carried.received.load(Relaxed),
        "dropped": carried.dropped.load(Relaxed),
        "profile_out": profile(Direction::Out), "profile_in": profile(Direction::In),
    })
}
