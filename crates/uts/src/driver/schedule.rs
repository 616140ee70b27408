//! Which steps a turn takes: whether it receives before it sends, and whether it sends at all.

/// While more arrives, only every so many turns send: each brings up to 64 KiB, and an
/// acknowledgement may be of several.
const TURNS_PER_SEND: u32 = 8;

/// Record of earlier turns, as far as the next depends on it.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// The spin before this turn has received all that had arrived.
    has_received_all: bool,
    /// The last turn has sent a response without receiving before.
    has_sent_first: bool,
    /// Turns in a row that found that more arrives.
    turns_of_arrivals: u32,
}

impl Schedule {
    /// A spin has found something.
    pub fn on_spin_found(&mut self, may_be_more: bool) {
        self.has_received_all = !may_be_more;
    }

    /// True if this turn receives before it sends. It need not where a spin has just received all
    /// there was. It does not where a response waits to leave, for which the peer waits, but
    /// receives after each such turn. `is_watched` = the task is woken by what arrives only if it
    /// receives.
    pub fn receives(&mut self, has_response: bool, is_watched: bool) -> bool {
        let has_received_all = core::mem::take(&mut self.has_received_all);
        let may_wait = has_received_all || (has_response && !self.has_sent_first);
        let sends_first = may_wait && !is_watched;
        self.has_sent_first = sends_first && !has_received_all;
        !sends_first
    }

    /// True if this turn sends; `more_arrives` = what has arrived has not all been received.
    pub fn sends(&mut self, more_arrives: bool) -> bool {
        self.turns_of_arrivals = if more_arrives { self.turns_of_arrivals.wrapping_add(1) } else { 0 };
        self.turns_of_arrivals.is_multiple_of(TURNS_PER_SEND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_receives_first_but_after_a_spin_that_has_received_all() {
        let mut schedule = Schedule::default();
        for (found, is_watched, receives) in [
            (None, false, true),
            (Some(false), false, false),
            (None, false, true),
            (Some(true), false, true),
            (Some(false), true, true),
            (None, false, true),
        ] {
            if let Some(may_be_more) = found {
                schedule.on_spin_found(may_be_more);
            }
            assert_eq!(schedule.receives(false, is_watched), receives, "{found:?} {is_watched}");
        }
    }

    /// Else who is answered all the time would keep an endpoint from receiving.
    #[test]
    fn responses_leave_first_but_not_one_after_the_other() {
        let mut schedule = Schedule::default();
        let receives = [true, true, true, false, true].map(|response| schedule.receives(response, false));
        assert_eq!(receives, [false, true, false, true, false]);
        let watched = [true, true].map(|response| schedule.receives(response, true));
        assert_eq!(watched, [true, true]);
    }

    #[test]
    fn while_more_arrives_every_eighth_turn_sends() {
        let mut schedule = Schedule::default();
        let sends: Vec<_> = (0..17).map(|_| schedule.sends(true)).collect();
        assert_eq!(sends.iter().filter(|sends| **sends).count(), 2);
        assert_eq!([false, false, true].map(|more| schedule.sends(more)), [true, true, false]);
    }
}
