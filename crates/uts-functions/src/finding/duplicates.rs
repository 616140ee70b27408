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

/// What of the packets that left before a loss was found is lost besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partial {
    /// None, until reports are counted again.
    Nothing,
    /// The oldest, if the repeat arrives before it.
    NextLoss,
    /// All of them.
    All,
}

#[derive(Clone, Debug)]
struct State {
    reports: u32,
    partial: Partial,
    /// The oldest in flight behind the last report, and how many reports have left it so.
    oldest: Option<u64>,
    count: u32,
    /// Packets below this are lost.
    below: u64,
    /// Packets from this number on left after the last loss was found. While none of them is
    /// acknowledged no other is looked for.
    recovers_at: Option<u64>,
    progress_at: Time,
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
                max: 2,
                bold: Bold::Neither,
                what: "a repeat that arrives: 0 = shows nothing, 1 = the next loss (NewReno); 2 = all is lost at once (Tahoe)",
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
                _ => Partial::All,
            },
            oldest: None,
            count: 0,
            below: 0,
            recovers_at: None,
            progress_at: Time::ZERO,
        }))
    }
}

impl Finding for Duplicates {
    fn on_report(&mut self, report: &Reported) {
        self.0.on_report(report);
    }

    fn rule(&self, _: &Flight) -> Rule {
        Rule { below: self.0.below, cause: Cause::Overtaken, within: 0, age: Age::Any }
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
    fn find(&mut self, oldest: u64, next_packet: u64) {
        // finding.md R-9.
        self.below = if self.partial == Partial::All { next_packet } else { oldest.saturating_add(1) };
        self.count = 0;
        self.recovers_at = Some(next_packet);
    }

    fn on_report(&mut self, report: &Reported) {
        if report.newest.is_some() {
            self.progress_at = report.now;
        }
        let before = core::mem::replace(&mut self.oldest, report.oldest);
        let Some(oldest) = report.oldest else {
            (self.count, self.recovers_at) = (0, None);
            return;
        };
        if let Some(from) = self.recovers_at {
            // finding.md R-8: one loss in a round trip.
            if report.newest.is_none_or(|newest| newest < from) {
                return;
            }
            self.recovers_at = None;
            // finding.md R-9.
            if self.partial == Partial::NextLoss && oldest < from {
                self.find(oldest, report.next_packet);
                return;
            }
        }
        // finding.md R-7.
        self.count = if before == Some(oldest) || oldest == 0 { self.count + 1 } else { 0 };
        if self.count >= self.reports {
            self.find(oldest, report.next_packet);
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
        let now = Time::from_millis(5);
        d.on_report(&Reported { now, newest, answers: false, oldest: Some(oldest), next_packet });
        d.0.below
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
}
