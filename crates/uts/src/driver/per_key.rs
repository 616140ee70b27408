//! Number of connections that each client's key has at a server, so that no client takes them all.
//!
//! A client that was killed leaves connections behind, which would keep it out until their idle
//! time-out. Where a key has as many as it may, all of them at this worker are asked whether their
//! clients are there. The new one waits meanwhile. It takes the place of one that does not answer
//! in time, and is refused if all answer.

use crate::fingerprint::Fingerprint;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uts_engine::{ConnectionHandle, Endpoint};
use uts_functions::Time;

/// Connections by the key that their client has shown.
#[derive(Default)]
pub(crate) struct PerKey {
    /// `None` = any number, and nothing is counted.
    max: Option<usize>,
    /// Number of connections of each key, at all workers of the server.
    counts: Arc<Mutex<BTreeMap<Fingerprint, usize>>>,
    /// Connections of this worker, by key.
    of: BTreeMap<Fingerprint, Vec<ConnectionHandle>>,
    keys: BTreeMap<ConnectionHandle, Fingerprint>,
    waiting: Vec<Waiting>,
}

/// A connection that waits for others to answer, or not.
#[derive(Clone, Debug)]
struct Waiting {
    new: ConnectionHandle,
    key: Fingerprint,
    /// Connections that have yet to answer.
    asked: Vec<ConnectionHandle>,
}

/// Fate of a new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// It is taken.
    Yes,
    /// Others are asked whether they are there: see [`PerKey::settled`].
    Waits,
    /// Its key has as many as it may.
    Refused(String),
}

impl PerKey {
    /// At most `max` of one key, at all workers of a server together.
    pub fn of_workers(max: usize, workers: usize) -> Vec<Self> {
        let counts = Arc::default();
        let max = (max < usize::MAX).then_some(max);
        (0..workers).map(|_| PerKey { max, counts: Arc::clone(&counts), ..PerKey::default() }).collect()
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Fingerprint, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At most so many of one key from now on. Where keys were not counted they are not.
    pub fn set_max(&mut self, max: usize) {
        self.max = self.max.map(|_| max);
    }

    /// True if there is a limit, and connections are counted.
    pub fn is_bounded(&self) -> bool {
        self.max.is_some()
    }

    /// True if anything waits.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A client with this key has come. `ask` asks a connection whether it is there, and says
    /// whether that could be done.
    pub fn join(
        &mut self,
        handle: ConnectionHandle,
        key: Fingerprint,
        ask: impl FnMut(&ConnectionHandle) -> bool,
    ) -> Joined {
        if self.take(handle, key) {
            return Joined::Yes;
        }
        let mut asked = self.of.get(&key).cloned().unwrap_or_default();
        asked.retain(ask);
        if asked.is_empty() {
            return Joined::Refused(self.refuse(key));
        }
        self.waiting.push(Waiting { new: handle, key, asked });
        Joined::Waits
    }

    /// Counts a connection, if its key may have one more.
    fn take(&mut self, handle: ConnectionHandle, key: Fingerprint) -> bool {
        let Some(max) = self.max else { return true };
        let mut counts = self.counts();
        let has_room = counts.get(&key).is_none_or(|count| *count < max) && max > 0;
        if has_room {
            *counts.entry(key).or_default() += 1;
        }
        drop(counts);
        if has_room {
            self.of.entry(key).or_default().push(handle);
            self.keys.insert(handle, key);
        }
        has_room
    }

    fn refuse(&self, key: Fingerprint) -> String {
        let max = self.max.unwrap_or(usize::MAX);
        format!("the key {key} has {max} connections to it, which is the most that it may")
    }

    /// Connections that waited and wait no more, and what becomes of each. `answers` says whether
    /// one has still to answer.
    pub fn settled(&mut self, answers: impl Fn(ConnectionHandle) -> bool) -> Vec<(ConnectionHandle, Joined)> {
        let mut settled = Vec::new();
        for mut waiting in core::mem::take(&mut self.waiting) {
            waiting.asked.retain(|asked| answers(*asked));
            if self.take(waiting.new, waiting.key) {
                settled.push((waiting.new, Joined::Yes));
            } else if waiting.asked.is_empty() {
                settled.push((waiting.new, Joined::Refused(self.refuse(waiting.key))));
            } else {
                self.waiting.push(waiting);
            }
        }
        settled
    }

    /// A connection has ended.
    pub fn leave(&mut self, handle: ConnectionHandle) {
        self.waiting.retain(|waiting| waiting.new != handle);
        let Some(key) = self.keys.remove(&handle) else { return };
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&key);
            }
        }
        drop(counts);
        if let Some(all) = self.of.get_mut(&key) {
            all.retain(|one| *one != handle);
            if all.is_empty() {
                self.of.remove(&key);
            }
        }
    }
}

/// Asks a connection whether it is there. False if it has ended.
pub(crate) fn ask(engine: &mut Endpoint, now: Time, handle: ConnectionHandle) -> bool {
    let Some(connection) = engine.connection(handle).filter(|connection| connection.is_open()) else {
        return false;
    };
    connection.ask_for_answer(now);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(max: usize) -> PerKey {
        PerKey::of_workers(max, 1).remove(0)
    }

    /// Wherever they are, and whoever ends.
    #[test]
    fn a_keys_connections_count_at_all_workers() {
        let a = Fingerprint::of_spki(b"a");
        let mut workers = PerKey::of_workers(3, 2);
        let mut join =
            |worker: usize, n| workers[worker].join(ConnectionHandle(n), a, |_| false) == Joined::Yes;
        assert!(join(0, 1) && join(1, 1) && join(1, 2));
        assert!(!join(0, 3) && !join(1, 3));
        workers[1].leave(ConnectionHandle(1));
        assert_eq!(workers[0].join(ConnectionHandle(3), a, |_| false), Joined::Yes);
        workers[1].leave(ConnectionHandle(2));
        [1, 3].into_iter().for_each(|n| workers[0].leave(ConnectionHandle(n)));
        assert!(workers[0].counts().is_empty(), "nothing is kept of who is gone");
    }

    #[test]
    fn a_key_has_so_many_connections_and_may_come_again_when_one_has_ended() {
        let (a, b) = (Fingerprint::of_spki(b"a"), Fingerprint::of_spki(b"b"));
        let mut keys = alone(2);
        let join = |keys: &mut PerKey, n, key| keys.join(ConnectionHandle(n), key, |_| false);
        assert_eq!((join(&mut keys, 1, a), join(&mut keys, 2, a)), (Joined::Yes, Joined::Yes));
        let Joined::Refused(why) = join(&mut keys, 3, a) else { panic!("it is taken") };
        assert!(why.contains(&a.to_string()) && why.contains("2 connections"), "{why}");
        assert_eq!(join(&mut keys, 4, b), Joined::Yes);
        keys.leave(ConnectionHandle(3));
        assert_ne!(join(&mut keys, 3, a), Joined::Yes, "one that was refused has not been counted");
        keys.leave(ConnectionHandle(1));
        keys.leave(ConnectionHandle(1));
        assert_eq!(join(&mut keys, 3, a), Joined::Yes);
        assert_ne!(join(&mut keys, 5, a), Joined::Yes);
        [2, 3, 4].into_iter().for_each(|n| keys.leave(ConnectionHandle(n)));
        assert!(keys.of.is_empty() && keys.keys.is_empty(), "nothing is kept of who is gone");
    }

    #[test]
    fn who_does_not_answer_makes_room_and_who_does_keeps_it() {
        let a = Fingerprint::of_spki(b"a");
        let mut keys = alone(2);
        let handle = ConnectionHandle;
        for n in [1, 2] {
            assert_eq!(keys.join(handle(n), a, |_| true), Joined::Yes);
        }
        for n in [3, 4, 5] {
            assert_eq!(keys.join(handle(n), a, |_| true), Joined::Waits);
        }
        assert_eq!(keys.settled(|_| true), []);
        // One is gone: who came first has its place. The others wait for the other one.
        keys.leave(handle(1));
        assert_eq!(keys.settled(|asked| asked == handle(2)), [(handle(3), Joined::Yes)]);
        assert_eq!(keys.settled(|asked| asked == handle(2)), []);
        // It answers.
        let settled = keys.settled(|_| false);
        let is_refused = |(_, joined): &(_, Joined)| matches!(joined, Joined::Refused(_));
        assert!(settled.len() == 2 && settled.iter().all(is_refused), "{settled:?}");
        assert!(!keys.has_waiting());
        // One that goes while it waits is forgotten. None waits for who cannot be asked.
        assert_eq!(keys.join(handle(6), a, |_| true), Joined::Waits);
        keys.leave(handle(6));
        assert_eq!(keys.settled(|_| false), []);
        assert!(matches!(keys.join(handle(7), a, |_| false), Joined::Refused(_)));
    }
}
