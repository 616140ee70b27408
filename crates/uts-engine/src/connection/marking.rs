//! Marks for the network: packets are marked as capable of ECN until the path is found to take the
//! marks off (RFC 9000 section 13.4.2), or to drop what carries them. Reports alone carry none:
//! nobody would notice that they do not arrive.

/// Time-outs in a row, while no packet with a mark has ever been answered, after which it is tried
/// without (congestion.md C-50).
const TIMEOUTS_UNPROVED: u32 = 2;

/// The same where some were: most likely the path is out, and probes go without a mark as long as
/// that lasts.
const TIMEOUTS_PROVED: u32 = 4;

/// State of the marks on packets that leave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marking {
    state: State,
    /// A packet with a mark has been answered since marks were last begun with.
    is_proved: bool,
    /// The first packet that was sent in this state.
    first: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Marked,
    /// None is, to see whether one without a mark is answered.
    Tried,
    /// None is any more.
    Never,
}

impl Marking {
    /// The path is another one from this packet on: its marks are to be tried.
    pub fn restart(&mut self, next_packet: u64) {
        *self = Marking { first: next_packet, ..Marking::default() };
    }

    /// True if packets that leave now are marked.
    pub fn is_on(&self) -> bool {
        self.state == State::Marked
    }

    /// Nothing has been answered for as long as the timing function waits, so many times in a row.
    pub fn on_timeout(&mut self, in_a_row: u32, next_packet: u64) {
        let enough = if self.is_proved { TIMEOUTS_PROVED } else { TIMEOUTS_UNPROVED };
        if self.is_on() && in_a_row >= enough {
            (self.state, self.first) = (State::Tried, next_packet);
        }
    }

    /// Packets up to `newest` have arrived. `has_counts` = the report tells how many marks have.
    pub fn on_report(&mut self, newest: u64, has_counts: bool, next_packet: u64) {
        match self.state {
            State::Marked if newest >= self.first => {
                self.is_proved = true;
                if !has_counts {
                    self.state = State::Never;
                }
            }
            // It had only taken longer.
            State::Tried if newest < self.first => self.state = State::Marked,
            // congestion.md C-50: the path was out, and marks are tried again; or none has passed
            // twice in a row.
            State::Tried if self.is_proved => {
                *self = Marking { state: State::Marked, is_proved: false, first: next_packet };
            }
            State::Tried => self.state = State::Never,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_are_never_answered_are_given_up() {
        let mut marking = Marking::default();
        marking.on_timeout(1, 10);
        assert!(marking.is_on());
        marking.on_timeout(2, 12);
        assert!(!marking.is_on(), "it is tried without");
        marking.on_report(12, false, 20);
        assert!(!marking.is_on(), "which is answered");
        marking.on_report(20, true, 30);
        assert!(!marking.is_on(), "for good");
    }

    #[test]
    fn an_outage_costs_no_marks() {
        let mut marking = Marking::default();
        marking.on_report(5, true, 10);
        for outage in 1..5 {
            (1..30).for_each(|in_a_row| marking.on_timeout(in_a_row, 100 * outage + u64::from(in_a_row)));
            assert!(!marking.is_on());
            marking.on_report(100 * outage + 29, true, 100 * outage + 30);
            assert!(marking.is_on());
            marking.on_report(100 * outage + 30, true, 100 * outage + 40);
        }
    }

    #[test]
    fn a_path_that_begins_to_drop_marked_packets_is_found_out() {
        let mut marking = Marking::default();
        marking.on_report(5, true, 10);
        (1..=4).for_each(|in_a_row| marking.on_timeout(in_a_row, 20));
        marking.on_report(20, true, 30);
        assert!(marking.is_on(), "it may have been an outage");
        (1..=2).for_each(|in_a_row| marking.on_timeout(in_a_row, 40));
        marking.on_report(40, true, 50);
        assert!(!marking.is_on());
    }

    #[test]
    fn what_comes_late_and_what_takes_marks_off_are_told_apart() {
        let mut marking = Marking::default();
        marking.on_timeout(2, 10);
        marking.on_report(9, true, 12);
        assert!(marking.is_on(), "a packet with a mark had only taken longer");
        marking.on_report(12, false, 13);
        assert!(!marking.is_on(), "the path takes marks off");
    }
}
