//! Reports of what has arrived. What there is to report is the acknowledgement function's to say
//! ([`Arrivals`]).

use super::super::Ways;
use super::super::packet::{Packet, Reason};
use super::super::receive::inbound::Arrived;
use super::{Effect, Part, Reading, Token};
use crate::synthesis::SendStack;
use core::time::Duration;
use uts_functions::Time;
use uts_functions::acknowledgement::{Acknowledgement as _, Arrivals};
use uts_functions::timing::RoundTrip;
use uts_wire::frame::{self, Frame, emit_ack, emit_repaired};

/// With more ranges than this to report, an acknowledgement asks to be acknowledged now and then,
/// so that the peer's answer shortens the list (RFC 9000 section 13.2.4; acknowledgement.md R-13).
const RANGES_BEFORE_PING: usize = 6;
const REPORTS_BEFORE_PING: u32 = 12;

/// Part that reports arrivals.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Packets with nothing but a report since the last one that asked to be acknowledged.
    alone: u32,
    /// When that one was sent, in milliseconds, which wrap. One in a round trip is enough to keep
    /// the list short, and leaves the window to others.
    asked_at_ms: u32,
}

impl Part for Report {
    fn read<'f>(&mut self, _at: &Arrived, frame: &'f Frame<'f>, _ways: &mut Ways) -> Reading<'f> {
        Ok(match frame {
            Frame::Ack(ack) => Effect::Arrived(ack),
            Frame::Repaired(ranges) => Effect::Repaired(ranges),
            _ => Effect::Nothing,
        })
    }

    fn write(&mut self, packet: &mut Packet<'_>, ways: &mut Ways) {
        let Ways { inbound, outbound, stats, flows, .. } = ways;
        if inbound.arrivals.holds_back() {
            let is_cumulative = inbound.is_cumulative();
            inbound.arrivals.let_go(|held| !is_cumulative || flows.has_all_below(held.flow, held.end));
            if !is_cumulative {
                flows.iter_mut().for_each(|(_, flow)| flow.receive.data.confirm_all());
            }
        }
        // acknowledgement.md R-20
        let stack = outbound.stacks.get(packet.stack);
        let is_whole = stack.is_some_and(|stack| stack.acknowledgement.is_cumulative());
        let repeats = |id| flows.get(id).is_some_and(|flow| flow.send.buffer.wants_to_send(0));
        if is_whole && packet.reason != Reason::Report && flows.next_to_send(None).is_some_and(repeats) {
            return;
        }
        let arrivals = &mut inbound.arrivals;
        let rtt = Some(&outbound.rtt).filter(|rtt| rtt.samples > 0);
        // Under poll/status only a poll is answered: then nothing is due, however much is
        // unreported.
        let is_due = arrivals.due.is_some_and(|due| due <= packet.now || arrivals.unreported > 0);
        let further = arrivals.reports_due() - 1;
        if is_due && let Some(largest) = emit_report(arrivals, packet.now, packet.left(), packet.out) {
            packet.tokens.push(Token::Report(largest));
            let apart = rtt.map_or(Duration::ZERO, apart);
            arrivals.apart_us = micros(apart);
            arrivals.round_trip_us = rtt.map_or(0, |rtt| micros(rtt.min));
            stats.reports_sent += 1;
            for _ in 0..further {
                // acknowledgement.md R-17: packets that came together are told apart.
                if emit_report(arrivals, packet.now, packet.left(), packet.out).is_none() {
                    break;
                }
            }
        }
        if packet.reason == Reason::Report {
            self.alone = self.alone.saturating_add(1);
            if self.asks(packet.now, arrivals, rtt) {
                packet.put(&Frame::Ping);
                // Who polls gets no answer otherwise, and would wait for it with each such packet.
                let stack = outbound.stacks.get(packet.stack);
                if stack.is_some_and(SendStack::polls) {
                    packet.put(&Frame::Poll);
                    packet.polls = true;
                }
            }
            packet.is_complete = true;
        }
    }

    fn acked(&mut self, _now: Time, token: &Token, ways: &mut Ways) {
        if let Token::Report(largest) = token {
            ways.inbound.arrivals.forget_through(*largest);
        }
    }

    /// When a report is due. It then is a reason to send a packet.
    fn timeout(&self, ways: &Ways) -> Option<Time> {
        ways.inbound.arrivals.due
    }
}

impl Report {
    /// True if a packet with nothing but a report asks for an answer now.
    fn asks(&mut self, now: Time, arrivals: &Arrivals, rtt: Option<&RoundTrip>) -> bool {
        let asks = arrivals.received.len() > RANGES_BEFORE_PING
            && self.alone >= REPORTS_BEFORE_PING
            && now.since_wrapped(self.asked_at_ms) >= rtt.map_or(Duration::ZERO, |rtt| rtt.smoothed);
        if asks {
            (self.alone, self.asked_at_ms) = (0, now.wrapping_millis());
        }
        asks
    }
}

/// So many reports in a round trip are as many as RFC 9406 wants samples of it.
const REPORTS_PER_ROUND_TRIP: u32 = 8;

/// Time between reports. Where they wait for each other on a narrow way back, round trips are
/// longer than they need be. The longer these are, the farther apart reports leave, but no farther
/// than a sender has use for (acknowledgement.md R-14).
fn apart(rtt: &RoundTrip) -> Duration {
    let queueing = rtt.smoothed.saturating_sub(rtt.min);
    (queueing / 2).min(rtt.smoothed / REPORTS_PER_ROUND_TRIP)
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// Acknowledges what arrived, in at most `budget` bytes. Says up to which packet, if there was
/// anything, and room.
pub(in crate::connection) fn emit_report(
    arrivals: &mut Arrivals,
    now: Time,
    budget: usize,
    out: &mut Vec<u8>,
) -> Option<u64> {
    let (end, (_, at)) = (out.len() + budget, arrivals.largest?);
    let delay_us = u64::try_from(now.since(at).as_micros()).unwrap_or(u64::MAX);
    let [ect0, ect1, ce] = arrivals.ecn;
    let ecn = (ect0 + ect1 + ce > 0).then_some(frame::EcnCounts { ect0, ect1, ce });
    // acknowledgement.md.
    let unheld = arrivals.unheld();
    let ranges = unheld.as_ref().unwrap_or(&arrivals.received);
    let Some(largest) = ranges.last().map(|last| last.end - 1) else {
        // All is held back or was given up: nothing can be said yet, nor is due.
        arrivals.on_reported(now);
        return None;
    };
    if emit_ack(out, ranges.iter().rev(), delay_us, ecn, budget) == 0 {
        return None;
    }
    if !arrivals.repaired.is_empty() {
        emit_repaired(out, arrivals.repaired.iter().rev(), end.saturating_sub(out.len()) / 2);
    }
    arrivals.on_reported(now);
    Some(largest)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;
    use uts_functions::Function;
    use uts_functions::acknowledgement::Arrival;

    /// With many gaps to tell of, a report now and then asks for an answer: one in a round trip,
    /// however many there are. It owes pacing nothing, for which what follows would have to wait.
    #[test]
    fn reports_ask_for_one_answer_in_a_round_trip() {
        let (mut report, mut ways) = (Report::default(), testing::ways());
        let rtt = &mut ways.outbound.rtt;
        (rtt.samples, rtt.smoothed) = (1, Duration::from_millis(600));
        let mut asked = 0;
        for number in 0..1000 {
            let arrivals = &mut ways.inbound.arrivals;
            let now = Time::from_millis(2 * number);
            arrivals.insert(&Arrival {
                number: 2 * number,
                now,
                eliciting: true,
                polled: false,
                marked: false,
            });
            arrivals.report_by(now);
            let (frames, _) = testing::packet_of(&mut ways, Reason::Report, 1000, |packet, ways| {
                packet.now = now;
                report.write(packet, ways);
            });
            asked += u32::from(frames.contains(&Frame::Ping));
        }
        assert!((3..=4).contains(&asked), "{asked} in 2 s");
    }

    /// A long list asks for an answer in the way that gets one: where the sender polls nobody would
    /// answer a ping, and what is never answered holds up the time-out for ever.
    #[test]
    fn where_only_polls_are_answered_a_report_polls() {
        for (acknowledgement, asked) in
            [("delayed", &[Frame::Ping][..]), ("poll-status", &[Frame::Ping, Frame::Poll])]
        {
            let mut ways = testing::ways_with(&[(Function::Acknowledgement, acknowledgement)]);
            let mut report = Report { alone: REPORTS_BEFORE_PING, asked_at_ms: 0 };
            let arrivals = &mut ways.inbound.arrivals;
            for number in (0..40).step_by(2) {
                let (now, marked) = (Time::ZERO, false);
                arrivals.insert(&Arrival { number, now, eliciting: true, polled: false, marked });
            }
            arrivals.report_by(Time::ZERO);
            let (frames, _) = testing::packet_of(&mut ways, Reason::Report, 1000, |packet, ways| {
                report.write(packet, ways)
            });
            assert!(matches!(frames[0], Frame::Ack(_)), "{frames:?}");
            assert_eq!(&frames[1..], asked, "{acknowledgement}");
        }
    }
}
