//! Reports of what has arrived. What there is to report is the acknowledgement function's to say ([`Arrivals`]).

use super::super::Ways;
use super::super::packet::{Packet, Reason};
use super::{Part, Token};
use core::time::Duration;
use uts_functions::Time;
use uts_functions::acknowledgement::Arrivals;
use uts_wire::frame::{self, Frame, emit_ack, emit_repaired};

/// With more ranges than this to report, an acknowledgement asks to be acknowledged now and then, so that the peer's
/// answer shortens the list (RFC 9000 section 13.2.4).
const RANGES_BEFORE_PING: usize = 6;
const REPORTS_BEFORE_PING: u32 = 12;

/// What is said of arrivals.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Packets with nothing but a report since the last one that asked to be acknowledged.
    alone: u32,
}

impl Part for Report {
    fn write(&mut self, packet: &mut Packet<'_>, ways: &mut Ways) {
        let Some(inbound) = &mut ways.inbound else { return };
        let measured = ways.outbound.as_ref().map(|o| &o.rtt).filter(|rtt| rtt.samples > 0);
        let round_trip = measured.map_or(Duration::ZERO, |rtt| rtt.smoothed);
        let arrivals = &mut inbound.arrivals;
        // Under poll/status only a poll is answered: then nothing is due, however much is unreported.
        let is_due = arrivals.due.is_some_and(|due| due <= packet.now || arrivals.unreported > 0);
        if is_due && let Some(largest) = emit_report(arrivals, packet.now, packet.left(), packet.out) {
            packet.tokens.push(Token::Report(largest));
            arrivals.round_trip = round_trip;
            ways.stats.reports_sent += 1;
        }
        if packet.reason == Reason::Report {
            self.alone += 1;
            if arrivals.received.len() > RANGES_BEFORE_PING
                && self.alone >= REPORTS_BEFORE_PING
            {
                self.alone = 0;
                packet.put(&Frame::Ping);
            }
            packet.is_complete = true;
        }
    }

    fn acked(&mut self, _now: Time, token: &Token, ways: &mut Ways) {
        if let (Token::Report(largest), Some(inbound)) = (token, &mut ways.inbound) {
            inbound.arrivals.forget_through(*largest);
        }
    }

    /// When a report is due. It then is a reason to send a packet.
    fn timeout(&self, ways: &Ways) -> Option<Time> {
        ways.inbound.as_ref()?.arrivals.due
    }
}

/// Acknowledges what arrived, in at most `budget` bytes. Says up to which packet, if there was anything, and room.
pub(in crate::connection) fn emit_report(
    arrivals: &mut Arrivals,
    now: Time,
    budget: usize,
    out: &mut Vec<u8>,
) -> Option<u64> {
    let (end, (largest, at)) = (out.len() + budget, arrivals.largest?);
    let delay_us = u64::try_from(now.since(at).as_micros()).unwrap_or(u64::MAX);
    let [ect0, ect1, ce] = arrivals.ecn;
    let ecn = (ect0 + ect1 + ce > 0).then_some(frame::EcnCounts { ect0, ect1, ce });
    if emit_ack(out, arrivals.received.iter().rev(), delay_us, ecn, budget) == 0 {
        return None;
    }
    if !arrivals.repaired.is_empty() {
        emit_repaired(out, arrivals.repaired.iter().rev(), end.saturating_sub(out.len()) / 2);
    }
    arrivals.on_reported(now);
    Some(largest)
}
