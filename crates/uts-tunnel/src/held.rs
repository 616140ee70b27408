//! Places at which a server listens for its clients, each for as long as its client is there.
//!
//! A client that is killed says nothing of it, and its connection is kept for a long time. Its port
//! is freed much sooner, when the client does not answer. One that was only out of reach asks for
//! the port again.

use crate::forward::Protocol;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;
use uts::{Connection, Fingerprint};

/// Interval at which a client that has said nothing is asked if it is there; and the interval while
/// another connection of its key wants its place.
const ASKED_EVERY: &str = "15s";
const DOUBTED_EVERY: &str = "1s";

/// A client that has not answered for so long has gone; and while another connection of its key
/// wants its place.
const GONE_AFTER: Duration = Duration::from_secs(20);
const DOUBTED_AFTER: Duration = Duration::from_secs(3);

/// For so long a connection waits for a place that another one of its key holds: a client that is
/// there has answered by then.
pub const DOUBT_MAX: Duration = Duration::from_secs(8);

/// Interval at which a client is looked after, and a place that is held is tried again.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);

/// All places of a server at which it listens for clients.
#[derive(Default)]
pub struct Places(Mutex<Vec<Arc<Place>>>);

struct Place {
    protocol: Protocol,
    address: SocketAddr,
    key: Option<Fingerprint>,
    connection: Connection,
    doubts: AtomicUsize,
}

impl Places {
    /// A place is held from now on, for the client of this connection.
    pub fn hold(
        self: &Arc<Self>,
        protocol: Protocol,
        address: SocketAddr,
        key: Option<Fingerprint>,
        connection: &Connection,
    ) -> Holding {
        let doubts = AtomicUsize::new(0);
        let place = Arc::new(Place { protocol, address, key, connection: connection.clone(), doubts });
        place.ask_every(ASKED_EVERY);
        self.lock().push(place.clone());
        Holding { places: self.clone(), place }
    }

    /// Asks clients with this key that hold one of these places whether they are there, and waits
    /// less for their answers as long as the result is kept. `None` if there are none.
    pub fn doubt(
        &self,
        protocol: Protocol,
        addresses: &[SocketAddr],
        key: Option<Fingerprint>,
    ) -> Option<Doubt> {
        let is_one = |place: &&Arc<Place>| {
            place.protocol == protocol
                && place.key.is_some()
                && place.key == key
                && addresses.iter().any(|address| address.port() == place.address.port())
        };
        let places: Vec<Arc<Place>> = self.lock().iter().filter(is_one).cloned().collect();
        for place in &places {
            place.doubts.fetch_add(1, Relaxed);
            place.ask_every(DOUBTED_EVERY);
        }
        (!places.is_empty()).then_some(Doubt(places))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Place>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn ask_every(&self, time: &str) {
        for (name, value) in [("keepAlive", "prefer"), ("keepAliveTimeout", time)] {
            // A server that was told not to ask (`--property`) finds it out later.
            let _ = self.connection.set_property(name, value);
        }
    }
}

/// A place that is held until this is dropped.
pub struct Holding {
    places: Arc<Places>,
    place: Arc<Place>,
}

impl Holding {
    /// Waits until the client has not answered for long.
    pub async fn gone(&self) {
        loop {
            let most = if self.place.doubts.load(Relaxed) > 0 { DOUBTED_AFTER } else { GONE_AFTER };
            if self.place.connection.silence().is_some_and(|silent| silent >= most) {
                return;
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.places.lock().retain(|place| !Arc::ptr_eq(place, &self.place));
    }
}

/// A doubt whether clients are there.
pub struct Doubt(Vec<Arc<Place>>);

impl Drop for Doubt {
    fn drop(&mut self) {
        for place in &self.0 {
            if place.doubts.fetch_sub(1, Relaxed) == 1 {
                place.ask_every(ASKED_EVERY);
            }
        }
    }
}
