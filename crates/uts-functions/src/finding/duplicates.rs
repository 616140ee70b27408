//! Reports that bring the sender no further: the oldest packet in flight is lost once so many of
//! them have left it the oldest, one in a round trip. If nothing comes for a time-out, all is lost
//! (RFC 5681 section 3.2, RFC 6582, RFC 6298).

use super::{Age, Alarm, Finding, Flight, Reported, Rule};
use crate::congestion::Cause;
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit};
use crate::time::Time;

/// See the module's page. In a box, so that the slot is not larger for it.
#[derive(Clone, Debug)]
pub struct Duplicates(Box<State>);

/// Conclusion from a repeat that arrives, if a packet that left before the recovery is then the
/// oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partial {
    /// Nothing, and the recovery ends: reports are counted again (Reno).
    Nothing,
    /// The packet is lost as well (NewReno).
    NextLoss,
    /// There is none: all was lost together with the first (Tahoe).
    All,
    /// The packet is lost as well, and the recovery ends (Linux 2.1).
    LastLoss,
}

#[derive(Clone, Debug)]
struct State {
    reports: u32,
    partial: Partial,
    /// The oldest in flight behind the last report.
    oldest: Option<u64>,
    /// Number of reports that have left this packet the oldest.
    count: u32,
    /// Number of these reports that have acknowledged nothing.
    silent: u32,
    /// Packets below this are lost.
    below: u64,
    cause: Cause,
    recovery: Option<Recovery>,
    progress_at: Time,
}

/// From a loss that was found to the arrival of its repeat, or of the last of several.
#[derive(Clone, Debug)]
struct Recovery {
    /// Packets below this number left before it began (RFC 6582: recover).
    until: u64,
    /// The last repeat has this number, or a later one. While none from it on is acknowledged no
    /// further loss is looked for.
    repeat: u64,
    /// Packets in flight that have arrived, though no report names them.
    departed: u64,
    /// Reports that count as one of these, at the most.
    left: u64,
    /// A repeat that arrives shows nothing more.
    is_over: bool,
}

impl Recovery {
    /// Nothing is looked for until the next packet is acknowledged, or a later one.
    const fn over(next_packet: u64) -> Self {
        Recovery { until: next_packet, repeat: next_packet, departed: 0, left: 0, is_over: true }
    }
}

impl Duplicates {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Finding,
        number: 1,
        name: "duplicates",
        what: "a packet that three reports in a row leave the oldest is lost; after a time-out all is",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "reports",
                unit: Unit::Count,
                default: 3,
                min: 1,
                max: 16,
                bold: Bold::Below,
                what: "how many reports in a row leave the oldest packet where it is",
            },
            Param {
                name: "partial",
                unit: Unit::Count,
                default: 1,
                min: 0,
                max: 3,
                bold: Bold::Neither,
                what: "a repeat that arrives shows 0 = nothing (Reno), 1 = the next loss (NewReno), 3 = the next, once (Linux 2.1); 2 = all is lost at once (Tahoe)",
            },
        ],
        needs: &[],
        facts: Facts { uniform: true, unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |_, facts, p| {
            // Of several losses in a round trip one is found in each.
            let rtt_s = facts.rtt_smoothed.as_secs_f64();
            let per_round = (p.loss * facts.bdp_packets()).min(32.0);
            p.delay_p99_s += per_round * rtt_s;
            p.cpu_ns += 5.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Duplicates(Box::new(State {
            reports: params.get(0).max(1),
            partial: match params.get(1) {
                0 => Partial::Nothing,
                1 => Partial::NextLoss,
                2 => Partial::All,
                _ => Partial::LastLoss,
            },
            oldest: None,
            count: 0,
            silent: 0,
            below: 0,
            cause: Cause::Duplicates,
            recovery: None,
            progress_at: Time::ZERO,
        }))
    }
}

impl Finding for Duplicates {
    fn on_report(&mut self, report: &Reported) -> u64 {
        self.0.on_report(report);
        // finding.md R-17.
        let departed = self.0.recovery.as_ref().map_or(0, |recovery| recovery.departed);
        departed.min(report.in_flight.saturating_sub(1))
    }

    fn on_all_lost(&mut self, next_packet: u64) {
        // finding.md R-18: what was in flight may still bring duplicates.
        (self.0.count, self.0.silent) = (0, 0);
        self.0.recovery = Some(Recovery::over(next_packet));
    }

    fn rule(&self, _: &Flight) -> Rule {
        Rule { below: self.0.below, cause: self.0.cause, within: 0, age: Age::Any }
    }

    fn repeats_at_once(&self) -> bool {
        true
    }

    fn alarm(&self) -> Alarm {
        // finding.md R-10.
        Alarm::LoseAll { since: self.0.progress_at }
    }
}

impl State {
    /// The oldest packet is lost, and all in flight with it if it is to be so.
    fn find(&mut self, cause: Cause, oldest: u64, next_packet: u64) {
        self.cause = cause;
        self.below = if self.partial == Partial::All { next_packet } else { oldest.saturating_add(1) };
    }

    /// A recovery begins with a repeat that is the next packet (finding.md R-17).
    fn recover(&mut self, report: &Reported) {
        let counts = self.partial != Partial::All;
        self.recovery = Some(Recovery {
            until: report.next_packet,
            repeat: report.next_packet,
            departed: if counts { self.silent.into() } else { 0 },
            left: if counts { report.in_flight } else { 0 },
            is_over: false,
        });
        (self.count, self.silent) = (0, 0);
    }

    fn on_report(&mut self, report: &Reported) {
        let is_silent = report.newest.is_none();
        if !is_silent {
            self.progress_at = report.now;
        }
        let before = core::mem::replace(&mut self.oldest, report.oldest);
        let Some(oldest) = report.oldest else {
            (self.count, self.silent, self.recovery) = (0, 0, None);
            return;
        };
        if self.recovery.is_some() {
            self.on_report_in_recovery(report, oldest);
            return;
        }
        // finding.md R-7.
        if before == Some(oldest) || oldest == 0 {
            (self.count, self.silent) = (self.count + 1, self.silent + u32::from(is_silent));
        } else {
            (self.count, self.silent) = (0, 0);
        }
        if self.count >= self.reports {
            self.find(Cause::Duplicates, oldest, report.next_packet);
            self.recover(report);
        }
    }

    fn on_report_in_recovery(&mut self, report: &Reported, oldest: u64) {
        let Some(recovery) = &mut self.recovery else { return };
        let Some(newest) = report.newest else {
            // finding.md R-17.
            let counts = u64::from(recovery.left > 0);
            (recovery.left, recovery.departed) = (recovery.left - counts, recovery.departed + counts);
            return;
        };
        // finding.md R-8: one loss in a round trip.
        let has_arrived = newest >= recovery.repeat;
        // Of what is acknowledged the repeat alone was not counted before (RFC 6582 section 3.2).
        let counted = report.acknowledged.saturating_sub(u64::from(has_arrived));
        recovery.departed = recovery.departed.saturating_sub(counted);
        if !has_arrived {
            return;
        }
        // finding.md R-9.
        let is_partial = oldest < recovery.until && !recovery.is_over;
        match self.partial {
            Partial::NextLoss if is_partial => {
                (recovery.repeat, recovery.left) = (report.next_packet, report.in_flight);
                self.find(Cause::Partial, oldest, report.next_packet);
            }
            Partial::LastLoss if is_partial => {
                *recovery = Recovery::over(report.next_packet);
                self.find(Cause::Partial, oldest, report.next_packet);
            }
            _ => self.recovery = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duplicates(partial: u32) -> Duplicates {
        Duplicates::build(&Params([3, partial, 0, 0]), ())
    }

    /// A report that acknowledges `newest` and leaves `oldest`; says below which number all is
    /// lost.
    fn report(d: &mut Duplicates, newest: Option<u64>, oldest: u64, next_packet: u64) -> u64 {
        hear(d, newest, u64::from(newest.is_some()), oldest, next_packet);
        d.0.below
    }

    /// A report that acknowledges so many packets up to `newest`, in a flight of 20; says how many
    /// of it have left.
    fn hear(
        d: &mut Duplicates,
        newest: Option<u64>,
        acknowledged: u64,
        oldest: u64,
        next_packet: u64,
    ) -> u64 {
        let now = Time::from_millis(5);
        let (answers, in_flight, oldest) = (false, 20, Some(oldest));
        d.on_report(&Reported { now, newest, acknowledged, answers, oldest, in_flight, next_packet })
    }

    #[test]
    fn three_reports_that_leave_a_packet_the_oldest_show_that_it_is_lost() {
        for newest in [[2, 3, 4].map(Some), [None; 3]] {
            let mut d = duplicates(1);
            let below = [report(&mut d, Some(0), 1, 9)]
                .into_iter()
                .chain(newest.map(|newest| report(&mut d, newest, 1, 9)))
                .collect::<Vec<_>>();
            assert_eq!(below, [0, 0, 0, 2], "reports that say nothing new count, too");
        }
        // Progress in between begins anew.
        let mut d = duplicates(1);
        report(&mut d, Some(0), 1, 9);
        report(&mut d, Some(2), 1, 9);
        report(&mut d, Some(3), 1, 9);
        assert_eq!(report(&mut d, Some(1), 4, 9), 0);
        assert_eq!(report(&mut d, Some(5), 4, 9), 0);
    }

    #[test]
    fn tahoe_begins_again_at_the_first_loss() {
        let mut d = duplicates(2);
        let below: Vec<_> = (1..5).map(|newest| report(&mut d, Some(newest), 1, 9)).collect();
        assert_eq!(below, [0, 0, 0, 9]);
        assert_eq!(report(&mut d, Some(9), 10, 12), 9, "the repeats are in flight");
    }

    #[test]
    fn one_loss_is_found_in_a_round_trip() {
        for (partial, next) in [(1, 4), (0, 2)] {
            let mut d = duplicates(partial);
            report(&mut d, Some(0), 1, 9);
            (2..5).for_each(|newest| {
                report(&mut d, Some(newest), 1, 9);
            });
            assert_eq!(d.0.below, 2);
            // 3 is lost as well. What was sent before says nothing of it, the repeat does.
            for newest in 5..9 {
                assert_eq!(report(&mut d, Some(newest), 3, 10), 2);
            }
            assert_eq!(report(&mut d, Some(9), 3, 10), next.max(2), "partial {partial}");
        }
    }

    /// Packets 1 and 5 of 1 to 20 are lost. Reports name nothing behind 0 until the repeat, 21, has
    /// come.
    #[test]
    fn a_duplicate_tells_that_a_packet_has_left() {
        for (partial, after_repeat) in [(0, 0), (1, 15), (2, 0), (3, 0)] {
            let mut d = duplicates(partial);
            hear(&mut d, Some(0), 1, 1, 21);
            let before: Vec<_> = (0..3).map(|_| hear(&mut d, None, 0, 1, 21)).collect();
            let more: Vec<_> = (0..15).map(|_| hear(&mut d, None, 0, 2, 22)).collect();
            if partial == 2 {
                assert_eq!((before[2], more[14]), (0, 0), "Tahoe counts nothing");
                continue;
            }
            assert_eq!((before, more[0], more[14]), (vec![0, 0, 3], 4, 18), "partial {partial}");
            // 2, 3, 4 and the repeat.
            assert_eq!(hear(&mut d, Some(21), 4, 5, 22), after_repeat, "partial {partial}");
            let (below, next) = (d.0.below, if partial == 0 { 2 } else { 6 });
            assert_eq!(below, next, "partial {partial}");
        }
    }

    /// A receiver that repeats itself for ever lets no more go than was in flight.
    #[test]
    fn duplicates_are_believed_up_to_what_was_in_flight() {
        let mut d = duplicates(1);
        hear(&mut d, Some(0), 1, 1, 21);
        let most = (0..1000).map(|_| hear(&mut d, None, 0, 1, 21)).max();
        assert_eq!(most, Some(19));
    }

    /// Packets in flight at a time-out still bring reports, which show nothing.
    #[test]
    fn after_a_time_out_nothing_is_found_before_something_new_arrives() {
        let mut d = duplicates(0);
        hear(&mut d, Some(0), 1, 1, 21);
        d.on_all_lost(21);
        let left: u64 = (0..10).map(|_| hear(&mut d, None, 0, 21, 22)).sum();
        assert_eq!((left, d.0.below), (0, 0));
        hear(&mut d, Some(21), 1, 22, 24);
        (0..3).for_each(|_| {
            hear(&mut d, None, 0, 22, 24);
        });
        assert_eq!(d.0.below, 23);
    }

    /// Linux 2.1: the second loss of a flight is repeated at once, the third wants three reports.
    #[test]
    fn one_partial_acknowledgement_ends_the_recovery() {
        let mut d = duplicates(3);
        let losses: Vec<_> = [(Some(0), 1), (None, 1), (None, 1), (None, 1), (Some(21), 5)]
            .into_iter()
            .map(|(newest, oldest)| report(&mut d, newest, oldest, 21))
            .collect();
        assert_eq!((losses, d.0.cause), (vec![0, 0, 0, 2, 6], Cause::Partial));
        // The second repeat is waited for.
        (0..5).for_each(|_| assert_eq!(report(&mut d, None, 9, 24), 6));
        let losses: Vec<_> = [(Some(24), 9), (None, 9), (None, 9), (None, 9)]
            .into_iter()
            .map(|(newest, oldest)| report(&mut d, newest, oldest, 25))
            .collect();
        assert_eq!((losses, d.0.cause), (vec![6, 6, 6, 10], Cause::Duplicates));
    }
}
