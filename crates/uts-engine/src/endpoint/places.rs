//! Places of an endpoint: connections that have one, and connections that give theirs up when
//! places are short.
//!
//! A connection whose handshake is done takes a place. Handshakes under way take as many again at
//! the most, and memory of their own. When there is none left for a newcomer, a connection that
//! holds a place gives it up. The order is
//!
//! 1. connections that have asked for nothing, or have nothing under way, by how much is held where
//!    they come from, then by how long they have been silent. The newcomer must not hold more than
//!    they;
//! 2. connections that have something under way, if more than twice as much is held where they come
//!    from as where the newcomer does, itself included.
//!
//! If none has to, the connection that has been silent longest is asked whether its peer is there,
//! and loses its place if it does not answer: so the connections of a client that has died make
//! room for its next. Part of the places is for clients whose keys TLS has verified; others do not
//! push these out.

use super::Endpoint;
use super::crowd::{Held, Network, SCALE};
use super::table::Entry;
use crate::connection::{Connection, Side};
use crate::event::ConnectionHandle;
use core::time::Duration;
use rand::RngExt;
use std::net::IpAddr;
use uts_functions::Time;

/// Words for a client whose address has as many connections as it may.
pub(super) const TOO_MANY_OF_ADDRESS: &str = "this address has as many connections to it as it may";
const TOO_MANY_OF_NETWORK: &str = "this network has as many connections to it as it may";
const TOO_MANY: &str = "it has as many connections as it may";

/// Words for connections that give up their place.
const GIVEN_UP: &str = "it needs the place of this connection for others";

/// For so long after it came, and after it was heard last, a client is not told to go because it
/// asks for nothing: its request may be on the way.
const GRACE: Duration = Duration::from_secs(2);

/// A peer that was heard within this time is not asked if it is there.
const ASKED_AFTER: Duration = Duration::from_secs(1);

/// A connection under way ends only for those from where a part so many times smaller is held.
const PART_MIN: u64 = 2;

/// Connections that are looked at for each newcomer, at the most: what it costs is bounded.
const LOOKED_AT_MAX: usize = 2048;

/// The least handshakes that may be under way.
const HALF_OPEN_MIN: usize = 16;

/// Client that wants a place.
#[derive(Clone, Copy, Debug)]
struct Newcomer {
    from: IpAddr,
    is_vouched: bool,
}

/// Of what there is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shortage {
    Places,
    Of(Network),
}

impl Shortage {
    fn has(self, from: IpAddr) -> bool {
        match self {
            Shortage::Places => true,
            Shortage::Of(network) => network.has(from),
        }
    }

    fn why(self) -> &'static str {
        match self {
            Shortage::Places => TOO_MANY,
            Shortage::Of(network) if network.is_host() => TOO_MANY_OF_ADDRESS,
            Shortage::Of(_) => TOO_MANY_OF_NETWORK,
        }
    }
}

/// Measure of how little would be lost with a connection: the greatest gives up its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Spare {
    is_nobodys: bool,
    need: Need,
    load: u64,
    silence: Duration,
}

/// Use that a connection has of its place, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    UnderWay,
    Nothing,
    HasAskedNothing,
}

/// The key of the client was verified by TLS.
fn is_vouched(connection: &Connection) -> bool {
    connection.peer_certificates().is_some_and(|chain| !chain.is_empty())
}

fn need(now: Time, entry: &Entry) -> Need {
    let connection = &entry.connection;
    let is_new = now.since(entry.since) < GRACE || now.since(connection.heard_at()) < GRACE;
    match (connection.has_asked(), connection.has_under_way()) {
        (_, true) => Need::UnderWay,
        (false, false) if now.since(entry.since) >= GRACE => Need::HasAskedNothing,
        (_, false) if is_new => Need::UnderWay,
        (_, false) => Need::Nothing,
    }
}

impl Endpoint {
    /// Handshakes that may be under way.
    pub(super) fn half_open_max(&self) -> usize {
        self.config.connections_max.max(HALF_OPEN_MIN)
    }

    /// True if clients that come have to show first that they are at their address.
    pub(super) fn wants_proof(&self, from: IpAddr) -> bool {
        self.door.handshakes >= self.config.handshakes_before_retry.min(self.half_open_max() / 2)
            || self.door.counts().crowd.wants_proof(from)
            || self.shortage(Newcomer { from, is_vouched: false }).is_some()
    }

    /// Why a client that has shown to be at its address gets no place, as things stand.
    pub(super) fn has_no_place(&mut self, now: Time, from: IpAddr) -> Option<&'static str> {
        let who = Newcomer { from, is_vouched: false };
        let shortage = self.shortage(who)?;
        if self.spare(now, who, shortage).is_some() {
            return None;
        }
        self.ask_silent(now, shortage);
        // It may have a key that is known.
        (self.config.connections_of_keys == 0).then(|| shortage.why())
    }

    /// Makes room for another handshake. `false` = there is none.
    pub(super) fn make_half_open_room(&mut self, now: Time, from: IpAddr, is_proved: bool) -> bool {
        let full = self.door.counts().crowd.full(from, Held::HalfOpen).filter(|_| is_proved);
        let shortage = match full {
            Some(network) => Shortage::Of(network),
            None if self.door.handshakes >= self.half_open_max() => Shortage::Places,
            None => return true,
        };
        let own = |of: IpAddr| self.door.counts().crowd.load(from, Held::HalfOpen, Some(of));
        let mut found = None;
        for (handle, entry) in self.looked_at() {
            let of = entry.first_remote.ip();
            let spare = match entry.held {
                Held::Claimed if shortage == Shortage::Places => (true, 0),
                Held::HalfOpen if is_proved && shortage.has(of) => {
                    let load = self.door.counts().crowd.load(of, Held::HalfOpen, Some(from));
                    if load.is_some() && load <= own(of) {
                        continue;
                    }
                    (false, load.unwrap_or(0))
                }
                _ => continue,
            };
            let spare = (spare, now.since(entry.since));
            if found.is_none_or(|(most, _)| spare > most) {
                found = Some((spare, handle));
            }
        }
        let Some((_, handle)) = found else { return false };
        self.give_up(now, handle);
        true
    }

    /// Takes a place for a connection whose handshake is done, if there is one, or one that gives
    /// its own up; else it is refused.
    pub(super) fn take_place(&mut self, now: Time, handle: ConnectionHandle) {
        let Some(entry) = self.connections.get_mut(handle) else { return };
        let who = Newcomer { from: entry.first_remote.ip(), is_vouched: is_vouched(&entry.connection) };
        self.door.worker.counts().crowd.leave(who.from, &mut entry.held);
        if let Some(shortage) = self.shortage(who) {
            let Some(spare) = self.spare(now, who, shortage) else {
                self.ask_silent(now, shortage);
                self.door.refused += 1;
                if let Some(entry) = self.connections.get_mut(handle) {
                    entry.connection.refuse(now, shortage.why());
                }
                return;
            };
            self.give_up(now, spare);
        }
        let mut counts = self.door.worker.counts();
        counts.crowd.join(who.from, Held::Place);
        counts.places += 1;
        counts.places_of_keys += usize::from(who.is_vouched);
        drop(counts);
        if let Some(entry) = self.connections.get_mut(handle) {
            (entry.held, entry.is_vouched, entry.since) = (Held::Place, who.is_vouched, now);
        }
    }

    /// A connection is gone, or gives up what it held.
    pub(super) fn leave_place(&mut self, handle: ConnectionHandle) {
        let Some(entry) = self.connections.get_mut(handle) else { return };
        let mut counts = self.door.worker.counts();
        if entry.held == Held::Place {
            counts.places = counts.places.saturating_sub(1);
            counts.places_of_keys = counts.places_of_keys.saturating_sub(usize::from(entry.is_vouched));
        }
        counts.crowd.leave(entry.first_remote.ip(), &mut entry.held);
    }

    /// Of what there is too little for a newcomer.
    fn shortage(&self, who: Newcomer) -> Option<Shortage> {
        let counts = self.door.counts();
        if let Some(network) = counts.crowd.full(who.from, Held::Place) {
            return Some(Shortage::Of(network));
        }
        let kept = self.config.connections_of_keys.saturating_sub(counts.places_of_keys);
        let max = self.config.connections_max.saturating_sub(if who.is_vouched { 0 } else { kept });
        (counts.own + counts.places >= max).then_some(Shortage::Places)
    }

    /// The connections that are looked at: all of them, or some by chance.
    fn looked_at(&self) -> impl Iterator<Item = (ConnectionHandle, &Entry)> {
        let step = self.connections.len() / LOOKED_AT_MAX + 1;
        let start = if step == 1 { 0 } else { self.rng.clone().random_range(0..step) };
        self.connections.entries(start, step)
    }

    /// The connection that gives up its place for a newcomer.
    fn spare(&self, now: Time, who: Newcomer, shortage: Shortage) -> Option<ConnectionHandle> {
        let counts = self.door.counts();
        let has_claim = who.is_vouched && counts.places_of_keys < self.config.connections_of_keys;
        let candidates = self.looked_at().filter_map(|(handle, entry)| {
            let of = entry.first_remote.ip();
            let is_candidate = entry.held == Held::Place
                && entry.connection.is_open()
                && (who.is_vouched || !entry.is_vouched)
                && shortage.has(of);
            if !is_candidate {
                return None;
            }
            let need = need(now, entry);
            // `None` = both are of one host.
            let theirs = counts.crowd.load(of, Held::Place, Some(who.from));
            let own = counts.crowd.load(who.from, Held::Place, Some(of)).unwrap_or(0);
            let gives_way = match need {
                _ if has_claim && !entry.is_vouched => true,
                Need::UnderWay => theirs.is_some_and(|theirs| theirs > PART_MIN * (own + SCALE)),
                _ => theirs.is_none_or(|theirs| theirs > own),
            };
            let load = counts.crowd.load(of, Held::Place, None).unwrap_or(0);
            let silence = now.since(entry.connection.heard_at());
            gives_way.then_some((Spare { is_nobodys: !entry.is_vouched, need, load, silence }, handle))
        });
        candidates.max().map(|(_, handle)| handle)
    }

    /// Asks the connection that has been silent longest whether its peer is there.
    fn ask_silent(&mut self, now: Time, shortage: Shortage) {
        let asked = self.looked_at().filter(|(_, entry)| {
            entry.held == Held::Place
                && entry.connection.is_open()
                && shortage.has(entry.first_remote.ip())
                && now.since(entry.connection.heard_at()) >= ASKED_AFTER
        });
        let asked = asked.min_by_key(|(_, entry)| entry.connection.heard_at()).map(|(handle, _)| handle);
        if let Some(entry) = asked.and_then(|handle| self.connections.get_mut(handle)) {
            entry.connection.ask_for_answer(now);
        }
        if let Some(handle) = asked {
            self.touch(handle);
        }
    }

    /// A connection gives up what it holds.
    fn give_up(&mut self, now: Time, handle: ConnectionHandle) {
        self.leave_place(handle);
        if let Some(entry) = self.connections.get_mut(handle) {
            let was_handshaking = entry.connection.is_handshaking();
            entry.connection.give_up(now, GIVEN_UP);
            self.door.handshakes -= usize::from(was_handshaking && entry.connection.side() == Side::Server);
        }
        self.touch(handle);
    }
}
