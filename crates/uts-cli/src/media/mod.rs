//! Media over UTS: a client gives a stream of datagrams a name at a server, and any number of
//! clients receive what has that name.
//!
//! A client asks for the service `media` in the handshake. The first flow that it opens is for
//! requests ([`wire`]); what is sent goes through a flow of messages of its own, a datagram each,
//! with a number before it ([`head`]). (V-9, V-10)
//!
//! The time from the making of a datagram to its handing over is one budget for all of its way. To
//! the server it goes with its media time and is not held up there. The server hands it on with the
//! same media time ([`timeline`]), and the receiver holds it until it has the age that was asked
//! for. So a datagram that was repeated on the first part of its way has less time on the second,
//! none waits twice, and the last restores the order.
//!
//! What waits anywhere is bounded, and the oldest makes room ([`queue`]).

pub mod board;
pub mod cutter;
pub mod format;
pub mod hub;
pub mod numbers;
pub mod pacer;
pub mod place;
pub mod queue;
pub mod server;
pub mod timeline;
pub mod wire;

use bytes::{BufMut, Bytes, BytesMut};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use uts::{Connection, ConnectionEvent, Direction, ExchangeEvent, Function, Requirements};
use uts_functions::Choice;
use uts_tunnel::stream::REQUEST_MAX;

/// Service that a client asks for in the handshake.
pub const SERVICE: &str = "media";

/// The longest name of a stream, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Age at which a datagram is handed over unless another is asked for: that of SRT
/// (draft-sharabayko-srt section 4.6).
pub const LATENCY: Duration = Duration::from_millis(120);

/// Property by which a receiver asks for the age at which datagrams are handed over.
pub const DELAY: &str = "uts.playoutDelay";

/// Property by which an end says when a datagram is worth nothing any more.
pub const LIFETIME: &str = "msgLifetime";

/// The largest UDP payload (RFC 768, less the IPv4 header).
pub const DATAGRAM_BYTES_MAX: usize = 65_507;

/// Bytes that may wait at one end for one stream: a second of 16 Mbit/s.
pub const WAITING_BYTES: usize = 2 << 20;

/// Bytes that wait in a flow to leave. What has to wait for longer waits in a queue, where the
/// oldest makes room.
pub const AHEAD_BYTES: u64 = 64 << 10;

/// Time between two looks at what a latency depends on.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Bytes of the number before each datagram.
const NUMBER_BYTES: usize = 4;

/// A message: the number of a datagram, and the datagram. (V-10)
pub fn head(number: u32, datagram: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(NUMBER_BYTES + datagram.len());
    message.put_u32(number);
    message.put_slice(datagram);
    message.freeze()
}

/// The number and the datagram of a message; `None` of what has none.
pub fn split(message: &Bytes) -> Option<(u32, Bytes)> {
    let number = message.first_chunk::<NUMBER_BYTES>()?;
    Some((u32::from_be_bytes(*number), message.slice(NUMBER_BYTES..)))
}

/// Properties of a connection that carries media, of which nothing is worth anything after its
/// lifetime.
pub fn properties(latency: Duration) -> Vec<(String, String)> {
    let fixed = [
        ("connCapacityProfile", "low-latency-non-interactive"),
        ("preserveMsgBoundaries", "require"),
        ("preserveOrder", "avoid"),
        ("reliability", "prefer"),
        ("uts.degradation", "reliability"),
    ];
    let lifetime = (LIFETIME, &*millis(latency));
    fixed.into_iter().chain([lifetime]).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A latency as the value of a property.
pub fn millis(latency: Duration) -> String {
    format!("{}ms", latency.as_millis().max(1))
}

/// Properties of the flow of requests: a stream of bytes, whatever the rest of the connection is.
pub fn requests() -> Requirements {
    Requirements::bulk()
}

/// The way to the far end of a connection: a latency counts from what the quickest datagram takes.
/// A datagram that leaves later than its latency allows comes in time no more.
pub struct Way {
    connection: Connection,
    looked: Option<Instant>,
    last: Duration,
}

impl Way {
    /// The way of a connection.
    pub fn of(connection: &Connection) -> Self {
        Way { connection: connection.clone(), looked: None, last: Duration::ZERO }
    }

    /// Lifetime of what is sent now, from its making until it arrives, for a latency.
    pub fn lifetime(&mut self, latency: Duration) -> Duration {
        if self.looked.is_none_or(|looked| looked.elapsed() > LOOK_EVERY) {
            self.looked = Some(Instant::now());
            self.last = self.connection.facts().rtt_min / 2;
        }
        latency + self.last
    }
}

/// Has a connection carry media in what this end sends, as its peer asks it. What the end was told
/// by its own user stays.
///
/// # Errors
/// Which property cannot be had, and why.
pub fn prepare(connection: &Connection, asked: &[(String, String)]) -> Result<(), String> {
    let own = connection.requirements_at_first();
    let usual = Requirements::bulk().settings();
    let said: Vec<_> = own.settings().into_iter().filter(|setting| !usual.contains(setting)).collect();
    let mut requirements = connection.requirements();
    let delay = (DELAY.to_owned(), millis(LATENCY));
    for (name, value) in properties(LATENCY).into_iter().chain([delay]) {
        if !said.iter().any(|(own, _)| *own == name) {
            requirements.set(&name, &value).map_err(|error| error.to_string())?;
        }
    }
    change(connection, requirements, asked)
}

/// Changes properties of what this end sends in a connection, all or none, as its peer asks it.
///
/// # Errors
/// Which cannot be changed, and why.
pub fn change(
    connection: &Connection,
    mut requirements: Requirements,
    asked: &[(String, String)],
) -> Result<(), String> {
    for (name, value) in asked {
        let set = requirements.set_for_peer(connection.requirements_at_first(), name, value);
        set.map_err(|error| error.to_string())?;
    }
    // What a receiver calls a latency counts from the quickest way, a lifetime does not.
    if let Some(delay) = requirements.playout_delay.filter(|_| asked.iter().any(|(name, _)| name == DELAY)) {
        requirements.msg_lifetime = Some(Way::of(connection).lifetime(delay));
    }
    connection.set_requirements(requirements).map_err(|error| error.to_string())
}

/// Waits until what this end sends in a connection has a mechanism for a function.
///
/// # Errors
/// The peer does not agree, or not in time, in one line.
pub async fn agreed(connection: &Connection, function: Function) -> Result<(), String> {
    let mut events = connection.events();
    let none = Choice::default();
    let agreed = async {
        while connection.profile(Direction::Out).is_none_or(|profile| *profile.get(function) == none) {
            match events.next().await {
                Some(ConnectionEvent::Exchange(step)) => {
                    if let ExchangeEvent::Refused { direction: Direction::Out, group: 0, why, .. } = *step {
                        return Err(format!("the peer takes no media: {why}"));
                    }
                }
                Some(ConnectionEvent::Closed(reason)) => return Err(reason.to_string()),
                Some(_) => {}
                None => return Err("the connection has ended".to_owned()),
            }
        }
        Ok(())
    };
    let in_time = timeout(REQUEST_MAX, agreed).await;
    in_time.unwrap_or_else(|_| Err("no profile for media was agreed in time".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_number_and_a_datagram() {
        let message = head(7, b"datagram");
        assert_eq!(split(&message), Some((7, Bytes::from_static(b"datagram"))));
        assert_eq!(split(&head(u32::MAX, b"")), Some((u32::MAX, Bytes::new())));
        assert_eq!(split(&Bytes::from_static(b"abc")), None);
    }

    /// Properties that the program asks by itself can be asked.
    #[test]
    fn the_properties_of_media_go_together() {
        let mut requirements = Requirements::bulk();
        for (name, value) in properties(LATENCY) {
            requirements.set(&name, &value).expect(&name);
        }
        requirements.set(DELAY, "120ms").expect("a property");
        assert_eq!(requirements.msg_lifetime, Some(LATENCY));
        let explained = uts::explain(&requirements, &uts::PathFacts::default(), &uts::Library::local(), None);
        assert!(explained.is_ok(), "{explained:?}");
    }
}
