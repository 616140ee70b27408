//! The rate that the peer may send at most (`maxRecvRate`): it is given credit at that rate,
//! whatever flow control alone would grant (flow.md ).

use crate::connection::Ways;
use crate::connection::parts::Signal;
use crate::event::Event;
use core::time::Duration;
use uts_functions::{Rate, Time};

/// Time at the rate for which credit is granted at once. If it were shorter, the way back would be
/// full of credit.
const GRANT_TIME: Duration = Duration::from_millis(20);

/// Bytes that are granted at once at the least: two packets of the base size, so that the peer can
/// fill them.
const GRANT_BYTES_MIN: u64 = 2400;

/// Grants that are saved up at the most: late ones, as clocks wake up, are made up for.
const GRANTS_SAVED: u64 = 3;

/// Credit that the peer has and does not use, in time at the rate, beyond round trips: what the
/// grants need on their way, and the peer to wake up.
const SLACK: Duration = Duration::from_millis(250);

/// Round trips for which it has credit: one for the grant and the data, the others for what is lost
/// meanwhile, and its repair.
const SLACK_ROUNDS: u32 = 4;

/// Credit that a rate has granted.
#[derive(Debug)]
pub(in crate::connection) struct ReceiveRate {
    rate: Rate,
    /// Bytes that the peer may have sent by `counted_at`, counted like `data_bytes_received`; what
    /// is earned while it sends nothing is lost.
    earned: u64,
    counted_at: Time,
    /// Of that, what may be granted now; negative = more was granted.
    left: i64,
    /// Some flow waits for credit that time will bring.
    is_wanted: bool,
    /// More flows were to be allowed while credit was overdrawn.
    holds_limit: bool,
    /// The application was told that there is data that no credit holds back.
    is_told: bool,
    /// The flow that was served last: the next one is the first.
    last: u32,
}

impl ReceiveRate {
    fn grant_bytes(&self) -> u64 {
        self.rate.bytes_in(GRANT_TIME).max(GRANT_BYTES_MIN)
    }

    /// Counts what has been earned since the last time, at most some grants beyond what is
    /// `granted`, whether used or not.
    fn earn(&mut self, now: Time, granted: u64) {
        let earned = self.rate.bytes_in(now.since(self.counted_at));
        if earned > 0 {
            // What is left of a byte is kept as time.
            self.counted_at = now.min(self.counted_at + self.rate.time_for(earned));
            let most = granted.saturating_add(GRANTS_SAVED.saturating_mul(self.grant_bytes()));
            self.earned = self.earned.saturating_add(earned).min(most.max(self.earned));
        }
    }
}

/// The first credit of a flow where what is received is to keep a rate: no more than comes in that
/// time.
pub(crate) fn first_credit(own: u64, rate: Option<Rate>) -> u64 {
    rate.map_or(own, |rate| own.min(rate.bytes_in(GRANT_TIME).max(GRANT_BYTES_MIN)))
}

impl Ways {
    /// Another rate, or none. What the peer may send already is not taken back.
    pub(in crate::connection) fn set_receive_rate(&mut self, now: Time, rate: Option<Rate>) {
        match (rate, &mut self.receive_rate) {
            (Some(rate), Some(state)) => state.rate = rate,
            (Some(rate), None) => {
                self.flows
                    .iter_mut()
                    .for_each(|(_, flow)| flow.receive.told_limit = flow.receive.grant.limit);
                self.receive_rate = Some(Box::new(ReceiveRate {
                    rate,
                    earned: self.stats.data_bytes_received,
                    counted_at: now,
                    left: 0,
                    is_wanted: true,
                    holds_limit: false,
                    is_told: false,
                    last: 0,
                }));
            }
            (None, Some(_)) => {
                self.receive_rate = None;
                self.flows.iter_mut().for_each(|(_, flow)| flow.receive.told_limit = u64::MAX);
                let all: Vec<u32> = self.flows.iter().map(|(id, _)| id).collect();
                self.flows.signals.extend(all.into_iter().map(Signal::Credit));
                self.flows.signals.insert(Signal::FlowLimit);
            }
            (None, None) => {}
        }
        self.flows.is_rated = rate.is_some();
        self.tell_if_receiving_is_free();
        self.grant_at_rate(now);
    }

    /// Tells the application, once, if there is data that no credit holds back.
    pub(in crate::connection) fn tell_if_receiving_is_free(&mut self) {
        let Some(state) = &mut self.receive_rate else { return };
        if !state.is_told && self.inbound.stacks.iter().any(|stack| !stack.flow.info().facts.grants) {
            state.is_told = true;
            self.events.push_back(Event::NoEffect("maxRecvRate"));
        }
    }

    /// Grants what has been earned to the flows that wait for it, in turns (flow.md ).
    pub(in crate::connection) fn grant_at_rate(&mut self, now: Time) {
        let rtt = self.outbound.rtt.smoothed;
        let Some(state) = &mut self.receive_rate else { return };
        let open = |(_, flow): &(u32, &crate::connection::flows::halves::Flow)| flow.receive.is_credited();
        let unused: u64 = self.flows.iter().filter(open).map(|(_, flow)| flow.receive.unused_credit()).sum();
        let granted = self.stats.data_bytes_received.saturating_add(unused);
        state.earn(now, granted);
        let mut left = state.earned.saturating_sub(granted);
        let grant_bytes = state.grant_bytes();
        let slack = state.rate.bytes_in(rtt * SLACK_ROUNDS + SLACK).max(grant_bytes);
        let mut room = slack.saturating_sub(unused);
        let wanting: Vec<u32> = self
            .flows
            .iter()
            .filter(open)
            .filter(|(_, flow)| flow.receive.told_limit < flow.receive.grant.limit)
            .map(|(id, _)| id)
            .collect();
        let after = wanting.partition_point(|id| *id <= state.last);
        for id in wanting[after..].iter().chain(&wanting[..after]) {
            let Some(flow) = self.flows.get_mut(*id).filter(|_| left >= GRANT_BYTES_MIN.min(grant_bytes))
            else {
                break;
            };
            let receive = &mut flow.receive;
            // Who has no credit at all gets some, whoever has the rest of it.
            let room_of_flow = if receive.unused_credit() == 0 { room.max(GRANT_BYTES_MIN) } else { room };
            let wanted = receive.grant.limit.saturating_sub(receive.told_limit);
            let more = wanted.min(left).min(room_of_flow).min(grant_bytes);
            if more == 0 {
                continue;
            }
            receive.told_limit += more;
            (left, room) = (left - more, room.saturating_sub(more));
            state.last = *id;
            self.flows.signals.insert(Signal::Credit(*id));
        }
        state.left = signed(left).saturating_sub(signed(granted.saturating_sub(state.earned)));
        // Who has as much as may be unused waits for data, not for time.
        let is_wanting = |flow: &crate::connection::flows::halves::Flow| {
            flow.receive.told_limit < flow.receive.grant.limit
                && (room > 0 || flow.receive.unused_credit() == 0)
        };
        state.is_wanted = wanting.iter().filter_map(|id| self.flows.get(*id)).any(is_wanting);
        // flow.md R-11
        let is_overdrawn = granted > state.earned;
        if is_overdrawn {
            state.holds_limit |= self.flows.signals.remove(&Signal::FlowLimit);
        } else if core::mem::take(&mut state.holds_limit) {
            self.flows.signals.insert(Signal::FlowLimit);
        }
    }

    /// Holds back that the peer may open more flows, if it is to be told so and has been granted
    /// too much. (flow.md R-11)
    pub(in crate::connection) fn hold_limit(&mut self, now: Time) {
        if self.receive_rate.is_some() && self.flows.signals.contains(&Signal::FlowLimit) {
            self.grant_at_rate(now);
        }
    }

    /// When more may be granted.
    pub(in crate::connection) fn receive_rate_timeout(&self) -> Option<Time> {
        let state = self.receive_rate.as_ref().filter(|state| state.is_wanted || state.holds_limit)?;
        let missing = signed(state.grant_bytes()).saturating_sub(state.left).max(0).unsigned_abs();
        Some(state.counted_at + state.rate.time_for(missing))
    }

    pub(in crate::connection) fn on_receive_rate_timeout(&mut self, now: Time) {
        if self.receive_rate_timeout().is_some_and(|at| at <= now) {
            self.grant_at_rate(now);
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
