//! Lifetime of keys (protection.md ): an exchange to the same profile renews them in time,
//! and where the peer does not agree to one, the sender stops before the cipher's limit.

use crate::connection::CloseReason;
use crate::connection::agreement::exchanges::Reasons;
use crate::connection::stage::Open;
use crate::event::Direction;
use crate::synthesis::SendStack;
use core::time::Duration;
use uts_functions::Time;
use uts_functions::protection::Protection;

/// Bytes of packets under one key: whoever learns it learns no more than that.
const BYTES_MAX: u64 = 1 << 36;

/// Time for which one key is used, for the same reason.
const AGE_MAX: Duration = Duration::from_secs(3600);

/// Packets that are kept back under each key, for one batch of any size and for the packets that
/// close the connection.
const RESERVED_PACKETS: u64 = 2048;

/// A peer that refuses new keys is asked again after this time.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Use of an epoch's keys: what has been sealed with them, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyUse {
    pub packets: u64,
    pub bytes: u64,
    pub since: Time,
}

impl KeyUse {
    pub const fn new(now: Time) -> Self {
        KeyUse { packets: 0, bytes: 0, since: now }
    }

    /// Packets of `bytes` in all have been sealed.
    pub const fn add(&mut self, packets: u64, bytes: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Why new keys are due, in words, where the cipher allows `packets_max` packets under one key.
    fn due(&self, now: Time, packets_max: u64) -> Option<String> {
        if packets_max == u64::MAX {
            // Nothing is sealed.
            None
        } else if self.packets >= packets_max / 2 {
            Some(format!("{} packets under one key", self.packets))
        } else if self.bytes >= BYTES_MAX {
            Some(format!("{} bytes under one key", self.bytes))
        } else if now.since(self.since) >= AGE_MAX {
            Some(format!("one key for {} minutes", now.since(self.since).as_secs() / 60))
        } else {
            None
        }
    }

    /// True if the cipher's limit is so near that nothing more may be sealed but the connection's
    /// end.
    const fn is_spent(&self, packets_max: u64) -> bool {
        self.packets >= packets_max.saturating_sub(RESERVED_PACKETS)
    }
}

/// Packets that a stack's cipher allows under one key.
fn packets_max(stack: &SendStack) -> u64 {
    stack.protection.as_ref().map_or(u64::MAX, |p| p.packets_max())
}

impl Open {
    /// Keys in use are old: the same profile under a new epoch brings new ones (RFC 9001 section
    /// 6).
    pub(in crate::connection) fn renew_keys_if_due(&mut self, now: Time) {
        let outbound = &mut self.ways.outbound;
        if now < outbound.renew_after || !self.parts.exchanges.is_idle(Direction::Out) {
            return;
        }
        let in_use = |s: &&SendStack| outbound.stack(s.group).is_some_and(|newest| newest.epoch == s.epoch);
        let due = outbound.stacks.iter().filter(in_use).find_map(|stack| {
            let seen = stack.keys.due(now, packets_max(stack))?;
            Some((stack.group, seen))
        });
        let Some((group, seen)) = due else { return };
        outbound.renew_after = now + AGAIN_AFTER;
        let reasons = Reasons::new(seen, "new keys, the same profile");
        // What is refused now is asked for again.
        let _ = self.request_renewal(now, Direction::Out, group, reasons);
    }

    /// Ends the connection if a key is spent: the peer has agreed to no other in time.
    pub(in crate::connection) fn end_if_keys_are_spent(&mut self) {
        let outbound = &self.ways.outbound;
        let is_spent = outbound.stacks.iter().any(|stack| stack.keys.is_spent(packets_max(stack)));
        if is_spent {
            let why = "the cipher's limit is reached, and the peer agreed to no new keys";
            self.fail(CloseReason::Protocol(why.into()));
        }
    }

    pub(in crate::connection) fn age_keys(&mut self, packets: u64) {
        self.ways.outbound.stacks.iter_mut().for_each(|stack| stack.keys.add(packets, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_renewed_by_packets_bytes_and_time_and_never_used_beyond_the_limit() {
        let (start, max) = (Time::from_millis(5), 1 << 23);
        let mut keys = KeyUse::new(start);
        assert_eq!(keys.due(start, max), None);
        assert!(keys.due(start + AGE_MAX, max).expect("old").contains("60 minutes"));
        keys.add(max / 2, 0);
        assert!(keys.due(start, max).is_some() && !keys.is_spent(max));
        keys.add(max / 2 - RESERVED_PACKETS, 0);
        assert!(keys.is_spent(max));
        let mut keys = KeyUse::new(start);
        keys.add(3, BYTES_MAX);
        assert!(keys.due(start, 1 << 62).is_some());
        // Without protection there is no key.
        keys.add(u64::MAX, u64::MAX);
        assert_eq!(keys.due(start + AGE_MAX, u64::MAX), None);
    }
}
