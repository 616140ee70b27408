//! How many connections each client's key has at a server, so that no client takes them all.
//!
//! A client that was killed leaves connections behind, which would keep it out until their idle
//! time-out. Where a key has as many as it may, the one of them that has been silent longest is
//! asked whether its client is there. The new one waits meanwhile. It takes the place if no answer
//! comes in time, and is refused if one does.

use crate::fingerprint::Fingerprint;
use crate::tls::OnRefused;
use crate::trust::RefusedClient;
use core::time::Duration;
use std::collections::BTreeMap;
use uts_engine::{ConnectionHandle, Endpoint};
use uts_functions::Time;

/// A client that was heard within this is there.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// Connections by the key that their client has shown.
#[derive(Default)]
pub(crate) struct PerKey {
    /// `None` = any number, and nothing is counted.
    max: Option<usize>,
    on_refused: Option<OnRefused>,
    of: BTreeMap<Fingerprint, Vec<ConnectionHandle>>,
    keys: BTreeMap<ConnectionHandle, Fingerprint>,
    waiting: Vec<Waiting>,
}

/// A connection that waits for another to answer, or not.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    new: ConnectionHandle,
    key: Fingerprint,
    asked: ConnectionHandle,
}

/// Fate of a new connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// It is taken.
    Yes,
    /// Another is asked whether it is there: see [`PerKey::settled`].
    Waits,
    /// Its key has as many as it may.
    Refused(String),
}

impl PerKey {
    /// At most `max` of one key; who keeps to more is told to `on_refused`.
    pub fn new(max: usize, on_refused: Option<OnRefused>) -> Self {
        PerKey { max: (max < usize::MAX).then_some(max), on_refused, ..PerKey::default() }
    }

    /// Whether anything is counted.
    pub fn counts(&self) -> bool {
        self.max.is_some()
    }

    /// True if anything waits.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A client with this key has come. `ask` asks one of the connections given whether it is
    /// there, and says which.
    pub fn join(
        &mut self,
        handle: ConnectionHandle,
        key: Fingerprint,
        ask: impl FnOnce(&[ConnectionHandle]) -> Option<ConnectionHandle>,
    ) -> Joined {
        let Some(max) = self.max else { return Joined::Yes };
        let all = self.of.entry(key).or_default();
        if all.len() < max {
            all.push(handle);
            self.keys.insert(handle, key);
            return Joined::Yes;
        }
        let is_asked = |one: &&ConnectionHandle| self.waiting.iter().any(|waiting| waiting.asked == **one);
        let others: Vec<_> = all.iter().filter(|one| !is_asked(one)).copied().collect();
        if let Some(asked) = ask(&others) {
            self.waiting.push(Waiting { new: handle, key, asked });
            return Joined::Waits;
        }
        Joined::Refused(self.refuse(key))
    }

    fn refuse(&self, key: Fingerprint) -> String {
        let max = self.max.unwrap_or(usize::MAX);
        let why = format!("the key {key} has {max} connections to it, which is the most that it may");
        if let Some(told) = &self.on_refused {
            told(&RefusedClient { fingerprint: Some(key), why: why.clone() });
        }
        why
    }

    /// Connections that waited and wait no more, and what becomes of each. `answers` says whether
    /// one has still to answer.
    pub fn settled(&mut self, answers: impl Fn(ConnectionHandle) -> bool) -> Vec<(ConnectionHandle, Joined)> {
        let (waiting, settled): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.waiting).into_iter().partition(|waiting| answers(waiting.asked));
        self.waiting = waiting;
        let settle = |Waiting { new, key, .. }| (new, self.join(new, key, |_| None));
        settled.into_iter().map(settle).collect()
    }

    /// A connection has ended.
    pub fn leave(&mut self, handle: ConnectionHandle) {
        self.waiting.retain(|waiting| waiting.new != handle);
        let Some(key) = self.keys.remove(&handle) else { return };
        if let Some(all) = self.of.get_mut(&key) {
            all.retain(|one| *one != handle);
            if all.is_empty() {
                self.of.remove(&key);
            }
        }
    }
}

/// Asks the one that has been silent longest whether it is there.
pub(crate) fn ask_silent(
    engine: &mut Endpoint,
    now: Time,
    among: &[ConnectionHandle],
) -> Option<ConnectionHandle> {
    let heard =
        |handle: &ConnectionHandle| engine.peek(*handle).filter(|c| c.is_open()).map(|c| c.heard_at());
    let all = among.iter().filter_map(|handle| Some((heard(handle)?, *handle)));
    let (_, handle) = all.min().filter(|(at, _)| now.since(*at) >= HEARD_WITHIN)?;
    engine.connection(handle)?.ask_for_answer(now);
    Some(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_so_many_connections_and_may_come_again_when_one_has_ended() {
        let (a, b) = (Fingerprint::of_spki(b"a"), Fingerprint::of_spki(b"b"));
        let mut keys = PerKey::new(2, None);
        let join = |keys: &mut PerKey, n, key| keys.join(ConnectionHandle(n), key, |_| None);
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
        let mut keys = PerKey::new(2, None);
        let handle = ConnectionHandle;
        for n in [1, 2] {
            assert_eq!(keys.join(handle(n), a, |_| None), Joined::Yes);
        }
        assert_eq!(keys.join(handle(3), a, |all| all.first().copied()), Joined::Waits);
        assert_eq!(keys.join(handle(4), a, |all| all.first().copied()), Joined::Waits);
        assert!(
            matches!(keys.join(handle(5), a, |all| all.first().copied()), Joined::Refused(_)),
            "all are asked"
        );
        assert_eq!(keys.settled(|_| true), []);
        // The first is gone, the second answers.
        keys.leave(handle(1));
        assert_eq!(keys.settled(|asked| asked == handle(2)), [(handle(3), Joined::Yes)]);
        let settled = keys.settled(|_| false);
        assert!(matches!(&settled[..], [(new, Joined::Refused(_))] if *new == handle(4)), "{settled:?}");
        assert!(!keys.has_waiting());
        // One that goes while it waits is forgotten.
        assert_eq!(keys.join(handle(6), a, |all| all.first().copied()), Joined::Waits);
        keys.leave(handle(6));
        assert_eq!(keys.settled(|_| false), []);
    }
}
