//! Places that are taken back from who moves nothing, when somebody else needs them.

use super::{Charge, Handle, Ledger, Payer, Resource};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// A peer that moves fewer bytes in a second than this while others wait loses its places. A modem
/// of 9600 bit/s moves more.
pub const LEAST_RATE: u64 = 1000;

/// Time that somebody waits before another's place is taken back, and over which rates are taken.
pub const GRACE: Duration = Duration::from_secs(10);

/// Progress of a peer, as those see it who read from it and write to it.
#[derive(Debug, Default)]
pub struct Pulse {
    moved: AtomicU64,
    waits: AtomicBool,
    is_taken_back: AtomicBool,
    told: Notify,
}

/// A charge that is taken back where its peer moves nothing and somebody waits for it.
#[must_use]
#[derive(Debug)]
pub struct Place {
    charge: Charge,
    number: u64,
    pulse: Arc<Pulse>,
}

/// A place, as the ledger knows it.
pub(super) struct Held {
    resource: Resource,
    name: Arc<str>,
    pulse: Arc<Pulse>,
    /// When it was looked at, and what had moved by then.
    seen: (Instant, u64),
}

impl Pulse {
    /// So many bytes came, or went.
    pub fn moved(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Relaxed);
        self.waits.store(false, Relaxed);
    }

    /// Notes if this end waits for the peer now.
    pub fn waits(&self, waits: bool) {
        self.waits.store(waits, Relaxed);
    }

    /// Waits until a place is taken back.
    pub async fn taken_back(&self) {
        loop {
            let mut told = std::pin::pin!(self.told.notified());
            told.as_mut().enable();
            if self.is_taken_back.load(Relaxed) {
                return;
            }
            told.await;
        }
    }
}

impl Payer {
    /// Waits for one of a resource. One who has waited for [`GRACE`] has another's place taken
    /// back, if there is one that does not get on and is no poorer than this.
    pub async fn place(&self, resource: Resource, pulse: &Arc<Pulse>) -> Place {
        let mut waiting = std::pin::pin!(self.wait(resource, 1, 1));
        let charge = loop {
            match timeout(GRACE, &mut waiting).await {
                Ok(charge) => break charge,
                Err(_) => self.take_back(resource),
            }
        };
        let mut books = self.ledger().lock();
        let number = books.number();
        let seen = (Instant::now(), pulse.moved.load(Relaxed));
        let held = Held { resource, name: self.0.name.clone(), pulse: pulse.clone(), seen };
        books.places.insert(number, held);
        drop(books);
        Place { charge, number, pulse: pulse.clone() }
    }

    /// Takes one place back: of who moves the least, those first who hold the most.
    fn take_back(&self, resource: Resource) {
        let Handle { ledger, name, .. } = &*self.0;
        let mut books = ledger.lock();
        let own = books.held_by(name, resource);
        let now = Instant::now();
        let mut slowest: Option<((usize, u64), u64)> = None;
        let mut places = std::mem::take(&mut books.places);
        for (number, place) in &mut places {
            let since = now.saturating_duration_since(place.seen.0);
            if place.resource != resource || since < GRACE {
                continue;
            }
            let moved = place.pulse.moved.load(Relaxed);
            let rate = moved.saturating_sub(place.seen.1) / since.as_secs().max(1);
            place.seen = (now, moved);
            let held = books.held_by(&place.name, resource);
            let is_poorer = held <= own && place.name != *name;
            let is_gone = place.pulse.is_taken_back.load(Relaxed);
            if rate >= LEAST_RATE || is_poorer || is_gone || !place.pulse.waits.load(Relaxed) {
                continue;
            }
            let rank = (held, u64::MAX - rate);
            if slowest.is_none_or(|(least, _)| rank > least) {
                slowest = Some((rank, *number));
            }
        }
        if let Some(place) = slowest.and_then(|(_, number)| places.get(&number)) {
            place.pulse.is_taken_back.store(true, Relaxed);
            place.pulse.told.notify_waiters();
        }
        books.places = places;
    }
}

impl Place {
    /// Pulse of its peer: how it is getting on.
    pub fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let ledger: &Ledger = self.charge.payer.ledger();
        ledger.lock().places.remove(&self.number);
    }
}
