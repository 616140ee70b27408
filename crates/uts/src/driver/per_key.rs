//! How many connections each client's key has at a server, so that no client takes them all.

use crate::fingerprint::Fingerprint;
use crate::tls::OnRefused;
use crate::trust::RefusedClient;
use std::collections::BTreeMap;
use uts_engine::ConnectionHandle;

/// Connections by the key that their client has shown.
#[derive(Default)]
pub(crate) struct PerKey {
    /// `None` = any number, and nothing is counted.
    max: Option<usize>,
    on_refused: Option<OnRefused>,
    counts: BTreeMap<Fingerprint, usize>,
    keys: BTreeMap<ConnectionHandle, Fingerprint>,
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

    /// A client with this key has come. `Err` = it has as many connections as it may.
    pub fn join(&mut self, handle: ConnectionHandle, key: Fingerprint) -> Result<(), String> {
        let Some(max) = self.max else { return Ok(()) };
        let count = self.counts.get(&key).copied().unwrap_or(0);
        if count >= max {
            let why = format!("the key {key} has {max} connections to it, which is the most that it may");
            if let Some(told) = &self.on_refused {
                told(&RefusedClient { fingerprint: Some(key), why: why.clone() });
            }
            return Err(why);
        }
        self.counts.insert(key, count + 1);
        self.keys.insert(handle, key);
        Ok(())
    }

    /// A connection has ended.
    pub fn leave(&mut self, handle: ConnectionHandle) {
        let Some(key) = self.keys.remove(&handle) else { return };
        match self.counts.get_mut(&key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.counts.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_so_many_connections_and_may_come_again_when_one_has_ended() {
        let (a, b) = (Fingerprint::of_spki(b"a"), Fingerprint::of_spki(b"b"));
        let mut keys = PerKey::new(2, None);
        let handle = ConnectionHandle;
        assert_eq!((keys.join(handle(1), a), keys.join(handle(2), a)), (Ok(()), Ok(())));
        let why = keys.join(handle(3), a).expect_err("refused");
        assert!(why.contains(&a.to_string()) && why.contains("2 connections"), "{why}");
        assert_eq!(keys.join(handle(4), b), Ok(()));
        keys.leave(handle(3));
        assert!(keys.join(handle(3), a).is_err(), "one that was refused has not been counted");
        keys.leave(handle(1));
        keys.leave(handle(1));
        assert_eq!(keys.join(handle(3), a), Ok(()));
        assert!(keys.join(handle(5), a).is_err());
        [2, 3, 4].into_iter().for_each(|n| keys.leave(handle(n)));
        assert!(keys.counts.is_empty() && keys.keys.is_empty(), "nothing is kept of who is gone");
    }
}
