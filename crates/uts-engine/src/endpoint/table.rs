//! The endpoint's connections: found by handle without a search, each beside what the endpoint's
//! lists say of it.
//!
//! A handle holds a place in the table and a serial number, so that it is never reused while the
//! endpoint lives.

use super::crowd::Held;
use super::peers::Share;
use super::routes::ResetKey;
use crate::connection::Connection;
use crate::event::ConnectionHandle;
use core::hash::{BuildHasherDefault, Hasher};
use slab::Slab;
use std::collections::HashMap;
use std::net::SocketAddr;
use uts_functions::Time;
use uts_wire::ConnectionId;

/// Connections by ids that this end drew at random. Nobody else chooses a key that is inserted, so
/// that nobody can make keys collide: a cheap hash does. Whatever is looked up meets chains as
/// short as chance makes them.
pub(super) type ByOwnId = HashMap<ConnectionId, ConnectionHandle, BuildHasherDefault<OwnIdHasher>>;

/// Connections that this end has opened, without an id of their own, by where it has connected to:
/// nobody else chooses a key that is inserted here either.
pub(super) type ByRemote = HashMap<SocketAddr, ConnectionHandle, BuildHasherDefault<OwnIdHasher>>;

/// A connection, and where it stands.
pub(super) struct Entry {
    pub connection: Connection,
    /// When something is due ([`Time::NEVER`] = nothing), as far as is known; out of date while
    /// `is_stale` or `is_ready`.
    pub deadline: Time,
    /// Where the endpoint's timers have it ([`Time::NEVER`] = nowhere): never later than
    /// `deadline`.
    pub timer: Time,
    /// Its part in what is in flight to its peer.
    pub share: Share,
    /// It is in the list of connections that may have something to send, to tell, or another
    /// deadline.
    pub is_ready: bool,
    pub is_telling: bool,
    pub is_stale: bool,
    /// Nobody reads it any more.
    pub is_released: bool,
    /// Where its peer was first.
    pub first_remote: SocketAddr,
    /// Place or handshake that it holds against that address, wherever the peer has gone since.
    pub held: Held,
    /// The key of its client was verified.
    pub is_vouched: bool,
    /// When it began, or took its place.
    pub since: Time,
    /// Under which word it is found, if its peer has given one.
    pub reset: Option<Box<ResetKey>>,
    serial: u32,
}

impl Entry {
    /// Notes that the timers have it at its deadline; says what they shall hold, if anything.
    pub fn set_timer(&mut self, handle: ConnectionHandle) -> Option<(Time, ConnectionHandle)> {
        self.timer = self.deadline;
        (self.timer != Time::NEVER).then_some((self.timer, handle))
    }
}

/// All connections.
#[derive(Default)]
pub(super) struct Table {
    slots: Slab<Box<Entry>>,
    next_serial: u32,
}

impl Table {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn handles(&self) -> impl Iterator<Item = ConnectionHandle> + '_ {
        self.slots.iter().map(|(place, entry)| handle(entry.serial, place))
    }

    /// Every so many of them, from this one on.
    pub fn entries(&self, start: usize, step: usize) -> impl Iterator<Item = (ConnectionHandle, &Entry)> {
        let at = |place| self.slots.get(place).map(|entry| (handle(entry.serial, place), &**entry));
        (start..self.slots.capacity()).step_by(step).filter_map(at)
    }

    pub fn insert(&mut self, connection: Connection, share: Share) -> ConnectionHandle {
        let serial = self.next_serial;
        self.next_serial = self.next_serial.wrapping_add(1);
        let (first_remote, since) = (connection.remote(), connection.heard_at());
        let place = self.slots.insert(Box::new(Entry {
            connection,
            deadline: Time::NEVER,
            timer: Time::NEVER,
            share,
            is_ready: false,
            is_telling: false,
            is_stale: false,
            is_released: false,
            first_remote,
            held: Held::Nothing,
            is_vouched: false,
            since,
            reset: None,
            serial,
        }));
        handle(serial, place)
    }

    pub fn get(&self, handle: ConnectionHandle) -> Option<&Entry> {
        let entry = self.slots.get((handle.0 & PLACE) as usize)?;
        (u64::from(entry.serial) == handle.0 >> 32).then_some(entry)
    }

    pub fn get_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Entry> {
        let entry = self.slots.get_mut((handle.0 & PLACE) as usize)?;
        (u64::from(entry.serial) == handle.0 >> 32).then_some(entry)
    }

    pub fn remove(&mut self, handle: ConnectionHandle) {
        if self.get(handle).is_some() {
            self.slots.remove((handle.0 & PLACE) as usize);
        }
    }
}

fn handle(serial: u32, place: usize) -> ConnectionHandle {
    ConnectionHandle(u64::from(serial) << 32 | place as u64 & PLACE)
}

/// The part of a handle that is its place.
const PLACE: u64 = u32::MAX as u64;

/// Folds the words of an id into one (the multiplier of Fibonacci hashing: 2^64 over the golden
/// ratio).
#[derive(Default)]
pub(super) struct OwnIdHasher(u64);

impl Hasher for OwnIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // The product's upper half is the well-mixed one; tables look at the lower bits.
        self.0.rotate_left(32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::hash::BuildHasher;
    use std::collections::HashSet;

    #[test]
    fn ids_spread_over_the_table_whatever_their_length() {
        let hash = |id: &ConnectionId| BuildHasherDefault::<OwnIdHasher>::default().hash_one(id);
        for len in [1, 2, 4, 8, 20] {
            let ids = (0..=255u8).map(|n| ConnectionId::new(&vec![n; len]).expect("short"));
            let hashes: Vec<u64> = ids.map(|id| hash(&id)).collect();
            // A table takes its place from the low bits and a first comparison from the top ones.
            for part in [|h: u64| h & 255, |h: u64| h >> 57] {
                let distinct: HashSet<u64> = hashes.iter().map(|h| part(*h)).collect();
                assert!(distinct.len() >= 100, "{len} bytes: {} of 256", distinct.len());
            }
        }
    }
}
