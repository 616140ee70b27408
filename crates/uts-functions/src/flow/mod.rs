//! Flow control: keeping the sender from overrunning the receiver.

use crate::mechanism::Described;
use crate::registry;
use crate::time::Time;
use auto_impl::auto_impl;
use core::time::Duration;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;

pub mod blast_buffer;
pub mod credit;
pub mod fixed_window;
pub mod none;
pub mod packet_group;
pub mod sending;
pub mod sliding_window;
pub mod stop_and_wait;

pub use sending::{Allowed, Outstanding, Sending};

/// The receiver's state for one flow: what it has granted and what has been consumed.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The sender may send positions below this.
    pub limit: u64,
    /// The application has taken everything below this, or it was skipped (flow.md R-2).
    pub consumed: u64,
    /// Number of those that no application took, because they were given up: they move the limit
    /// on, and enlarge no window.
    pub given_up: u64,
    /// Bytes that the sender may be ahead of `consumed` at present.
    pub window_bytes: u64,
    /// The most that `window_bytes` may become: memory set aside for the flow.
    pub window_bytes_max: u64,
    /// When the window was last found to be the brake.
    pub grown_at: Time,
}

impl Grant {
    /// At the start of a flow: the first window is granted.
    pub fn new(now: Time, window_bytes: u64, window_bytes_max: u64) -> Self {
        let window_bytes = window_bytes.min(window_bytes_max);
        Grant { limit: window_bytes, consumed: 0, given_up: 0, window_bytes, window_bytes_max, grown_at: now }
    }

    /// Number of positions that the application has taken.
    pub fn taken(&self) -> u64 {
        self.consumed.saturating_sub(self.given_up)
    }
}

/// A policy over [`Grant`] at the receiver, and over the limit at the sender.
#[enum_dispatch]
#[auto_impl(Box)]
pub trait FlowControl: Described + DynClone {
    /// Receiver's side: the window that a flow begins with, for [`Grant::new`]; `u64::MAX` = no
    /// bound but memory.
    fn window_bytes(&self) -> u64;
    /// Sender's side: the position up to which data may be sent, given the peer's `limit`.
    fn send_limit(&self, limit: u64) -> u64 {
        limit
    }
    /// Sender's side: what of that may be sent now, if this looks at what is outstanding (a fact of
    /// its entry: `windows`). `limit` is what [`FlowControl::send_limit`] says.
    fn allows(&self, limit: u64, _flow: &Outstanding) -> Allowed {
        Allowed::To(limit)
    }
    /// Receiver's side: the limit, which is new, waits for a packet that leaves anyway.
    fn rides(&self, _state: &Grant) -> bool {
        false
    }
    /// Receiver's side: the sender is told of this limit.
    fn on_told(&mut self, _limit: u64) {}
    /// Receiver's side: the application consumed data (or this mechanism has just taken over: call
    /// it once then); a new limit if one should be sent. May enlarge `state.window_bytes` up to its
    /// maximum. Sets `state.limit` to what it returns.
    fn on_consumed(&mut self, state: &mut Grant, now: Time, rtt: Duration) -> Option<u64>;
}

dyn_clone::clone_trait_object!(FlowControl);

/// Mechanism that is in place before any profile is agreed: nothing arrives then.
pub fn unlimited() -> Slot {
    Slot::None(none::None::build(&crate::mechanism::Params::default(), ()))
}

registry! {
    /// The flow-control mechanism in use.
    #[derive(Clone, Debug)]
    Slot: FlowControl, context: ();
    None => none::None,
    Credit => credit::Credit,
    StopAndWait => stop_and_wait::StopAndWait,
    FixedWindow => fixed_window::FixedWindow,
    SlidingWindow => sliding_window::SlidingWindow,
    PacketGroup => packet_group::PacketGroup,
    BlastBuffer => blast_buffer::BlastBuffer,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const KIB: u64 = 1024;

    fn credit(kib: u64) -> Slot {
        Slot::build(&MECHANISMS[1].choice_with(&[("window", kib)]).expect("in range"), ()).expect("in range")
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_quarter_of_the_window_brings_a_new_limit() {
        let mut slot = credit(64);
        let mut state = Grant::new(Time::ZERO, slot.window_bytes(), 1 << 30);
        assert_eq!(state.limit, 64 * KIB);
        state.consumed = 16 * KIB - 1;
        assert_eq!(slot.on_consumed(&mut state, Time::from_millis(1), ms(0)), None);
        state.consumed = 16 * KIB;
        assert_eq!(slot.on_consumed(&mut state, Time::from_millis(2), ms(0)), Some(80 * KIB));
        assert_eq!(slot.on_consumed(&mut state, Time::from_millis(2), ms(0)), None, "said once");
        assert_eq!(slot.send_limit(state.limit), 80 * KIB);
    }

    #[test]
    fn the_window_doubles_only_when_consumed_within_four_round_trips() {
        for (millis, grown) in [(80, true), (81, false)] {
            let mut slot = credit(64);
            let mut state = Grant::new(Time::ZERO, slot.window_bytes(), 1 << 30);
            state.consumed = 64 * KIB;
            let limit = slot.on_consumed(&mut state, Time::from_millis(millis), ms(20));
            assert_eq!(state.window_bytes, if grown { 128 * KIB } else { 64 * KIB });
            assert_eq!(limit, Some(state.consumed + state.window_bytes));
        }
    }

    /// A sender that fills whatever window it is given, over a path of 20 ms and `bytes_per_ms`.
    fn tuned_window(bytes_per_ms: u64, max: u64) -> u64 {
        let mut slot = credit(16);
        let mut state = Grant::new(Time::ZERO, slot.window_bytes(), max);
        let mut limits = std::collections::VecDeque::from([(0, state.limit)]);
        let (mut allowed, mut sent) = (0, 0);
        let mut arriving = std::collections::VecDeque::new();
        for now in 0..5_000 {
            while limits.front().is_some_and(|(at, _)| *at <= now) {
                allowed = slot.send_limit(limits.pop_front().map_or(0, |(_, limit)| limit));
            }
            let step = bytes_per_ms.min(allowed - sent);
            sent += step;
            arriving.push_back((now + 10, step));
            while arriving.front().is_some_and(|(at, _)| *at <= now) {
                state.consumed += arriving.pop_front().map_or(0, |(_, bytes)| bytes);
                if let Some(limit) = slot.on_consumed(&mut state, Time::from_millis(now), ms(20)) {
                    limits.push_back((now + 10, limit));
                }
            }
            assert!(state.consumed <= state.limit && state.window_bytes <= max);
        }
        state.window_bytes
    }

    #[test]
    fn a_window_whose_consumption_loss_has_stopped_still_grows() {
        // Two round trips for the repair of a repair, one for what was under way behind it.
        let mut slot = credit(64);
        let mut state = Grant::new(Time::ZERO, slot.window_bytes(), 1 << 30);
        for (at, consumed) in [(15, 16), (75, 64)] {
            state.consumed = consumed * KIB;
            slot.on_consumed(&mut state, Time::from_millis(at), ms(20));
        }
        assert_eq!(state.window_bytes, 128 * KIB);
    }

    /// A sender that begins with ten packets and doubles what it sends in each of these long round
    /// trips: the window must not be what it waits for.
    #[test]
    fn the_window_keeps_ahead_of_a_sender_that_doubles() {
        let (mut slot, rtt) = (credit(1024), ms(600));
        let mut state = Grant::new(Time::ZERO, slot.window_bytes(), 1 << 30);
        let (mut consumed, mut in_round) = (0.0, 14_000.0);
        for round in 0..10u64 {
            for part in 0..50u64 {
                consumed += in_round / 50.0;
                state.consumed = consumed as u64;
                let now = Time::from_millis(600 * round + 12 * part);
                slot.on_consumed(&mut state, now, rtt);
            }
            in_round *= 2.0;
            // What is under way, and what the next round trip brings before a new limit has got
            // there.
            let wanted = in_round as u64;
            assert!(state.window_bytes >= wanted, "{} of {wanted} in round {round}", state.window_bytes);
        }
        let before = state.window_bytes;
        state.consumed += before / 2;
        slot.on_consumed(&mut state, Time::from_millis(20_000), rtt);
        assert_eq!(state.window_bytes, before, "a pause tells nothing");
    }

    #[test]
    fn the_window_grows_to_the_path_and_stops() {
        let bdp = 12_500 * 20;
        let window = tuned_window(12_500, 1 << 30);
        assert!(window >= bdp && window <= 5 * bdp, "{window} for a bandwidth-delay product of {bdp}");
        assert_eq!(tuned_window(12_500, 100 * KIB), 100 * KIB, "memory bounds it");
    }

    #[test]
    fn an_exchange_to_credit_unblocks_a_sender_behind_an_old_limit() {
        let mut none = Slot::build(&MECHANISMS[0].choice(), ()).expect("mandatory");
        let mut state = Grant::new(Time::ZERO, none.window_bytes(), 1 << 20);
        state.limit = 0;
        state.consumed = 1 << 30;
        assert_eq!(none.on_consumed(&mut state, Time::ZERO, ms(20)), None);
        assert_eq!(none.send_limit(0), u64::MAX);
        let limit = credit(64).on_consumed(&mut state, Time::from_millis(9), ms(20));
        assert!(limit.is_some_and(|l| l >= state.consumed + 64 * KIB), "{limit:?}");
    }

    /// Conformance: limits only rise, are never beyond the memory set aside, and an empty window is
    /// never left shut.
    #[test]
    fn limits_rise_within_memory_and_never_shut_for_good() {
        for seed in 0..300 {
            for m in MECHANISMS {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let mut slot = Slot::build(&m.choice(), ()).expect(m.name);
                let max = rng.random_range(1..1 << 24);
                let mut state = Grant::new(Time::ZERO, slot.window_bytes(), max);
                let mut now = Time::ZERO;
                for _ in 0..200 {
                    now += Duration::from_micros(rng.random_range(0..50_000));
                    let before = state.limit;
                    let most = slot.send_limit(state.limit).min(state.consumed + max);
                    state.consumed = rng.random_range(state.consumed..=most);
                    let limit = slot.on_consumed(&mut state, now, ms(rng.random_range(0..100)));
                    let at = format!("{}, seed {seed}: {state:?}", m.name);
                    assert!(limit.is_none_or(|l| l > before && l == state.limit), "{at}");
                    assert!(!m.facts.grants || state.limit <= state.consumed + max, "{at}");
                    assert!(slot.send_limit(state.limit) > state.consumed, "{at}");
                }
            }
        }
    }

    /// Conformance: a sender that has something to send and nothing outstanding is let send, at
    /// once or after a while; and what is let out is within the peer's limit.
    #[test]
    fn senders_keep_to_the_limit_and_never_stand_still() {
        for seed in 0..200 {
            for m in MECHANISMS {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let slot = Slot::build(&m.choice(), ()).expect(m.name);
                let (mut sending, mut done_to, mut sent_to) = (Sending::default(), 0u64, 0u64);
                let (mut limit, written_to) = (rng.random_range(1..20_000), 200_000);
                for step in 0.. {
                    let at = format!("{}, seed {seed}, step {step}: {sent_to} of {limit}", m.name);
                    if done_to == written_to {
                        break;
                    }
                    assert!(step < 400_000, "{at}: no end");
                    let fixed = Outstanding {
                        done_to,
                        sent_to,
                        written_to,
                        packets: 0,
                        in_group: 0,
                        packet_bytes: 1000,
                        window_max: 0,
                    };
                    let most = slot.send_limit(limit);
                    let to = match slot.allows(most, &sending.outstanding(most, fixed)) {
                        Allowed::Hold if done_to == sent_to || sending.is_released => most,
                        Allowed::Hold => sent_to,
                        Allowed::To(to) => to,
                    };
                    assert!(to <= most.max(sent_to), "{at}: let up to {to}");
                    if to > sent_to && sent_to < written_to {
                        sent_to = to.min(written_to).min(sent_to + 1000);
                        sending.on_sent(sent_to);
                        continue;
                    }
                    assert!(sent_to > done_to || sent_to == limit, "{at}: stands still");
                    done_to = rng.random_range(done_to..=sent_to).max((done_to + 1).min(sent_to));
                    limit = limit.max(done_to + rng.random_range(1..20_000));
                }
            }
        }
    }

    #[test]
    fn windows_of_packets_open_as_they_are_said_to() {
        let slot = |name: &str, settings: &[(&str, u64)]| {
            let m = MECHANISMS.iter().find(|m| m.name == name).expect("registered");
            Slot::build(&m.choice_with(settings).expect("in range"), ()).expect("in range")
        };
        // Packets of 100 positions are sent as they are let; says how many are outstanding, before
        // and after the first is acknowledged, and after all are.
        let counts = |slot: &Slot| {
            let (mut sending, mut sent_to) = (Sending::default(), 0);
            let mut fill = |done_to: u64| {
                loop {
                    let fixed = Outstanding {
                        done_to,
                        sent_to,
                        written_to: 1 << 20,
                        packets: 0,
                        in_group: 0,
                        packet_bytes: 100,
                        window_max: 0,
                    };
                    let allowed = slot.allows(1 << 20, &sending.outstanding(1 << 20, fixed));
                    if allowed == Allowed::To(sent_to) {
                        return (sent_to - done_to) / 100;
                    }
                    sent_to += 100;
                    sending.on_sent(sent_to);
                }
            };
            let before = fill(0);
            [before, fill(100), fill(100 * before.max(2))]
        };
        assert_eq!(counts(&slot("stop-and-wait", &[])), [1, 1, 1]);
        assert_eq!(counts(&slot("fixed-window", &[("packets", 4)])), [4, 4, 4]);
        assert_eq!(counts(&slot("packet-group", &[("packets", 4)])), [4, 3, 4]);
        assert_eq!(counts(&slot("blast-buffer", &[("unit", 400)])), [4, 3, 4]);
    }
}
