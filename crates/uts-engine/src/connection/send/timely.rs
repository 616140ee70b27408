//! Messages that are worthless after a while: which of them can still arrive in time, and how much
//! may be on the way so that what is sent does (segmentation.md ).

use super::fates::{Fates, Message};
use crate::config::PACKET_BYTES_LEAST;
use crate::connection::{Outbound, Ways};
use core::ops::Range;
use core::time::Duration;
use uts_functions::congestion::RateSample;
use uts_functions::{Rate, Time};

/// For how long after the last message with a lifetime the way is kept clear for the next one.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// The rate is measured over so many round trips and so much time at least, and anew after a pause.
const STRETCH_ROUNDS: u32 = 2;
const STRETCH_ROUNDS_MAX: u32 = 8;
const STRETCH_MIN: Duration = Duration::from_millis(200);

/// It falls by no more than to such a share at a time.
const DECREASE_MAX: f64 = 0.9;

/// The round trip without a queue is measured again after so long (draft-ietf-ccwg-bbr:
/// ProbeRTTInterval is 5 s).
const EMPTY_AFTER: Duration = Duration::from_secs(10);

/// Of the time that a message has beyond that which the way takes, such a part may be spent in the
/// queue on the way. The rest is for the wait for its turn here.
const QUEUE_PART: u32 = 2;

/// Share of messages in time below which it is tried if less on the way brings more. A trial beside
/// others that fill the queue costs more than it can bring, unless nearly all is late (measured in
/// `uts-sim/tests/all/timely.rs`: at a half it did harm).
const SHARE_MIN: f64 = 0.25;

/// Part of the best share below which the path is another than the one that was tried.
const PART_OF_BEST: f64 = 0.5;

/// After a trial that brought nothing the next one comes so much later, each time twice as much.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Where less on the way brings more, it is seen after so long what would be without, each time
/// after twice as long.
const LOOK_AFTER: Duration = Duration::from_secs(30);

/// Either becomes no longer than this.
const AFTER_MAX: Duration = Duration::from_secs(160);

/// Bytes of a packet around a message, about.
const AROUND_BYTES: usize = 48;

/// Data that has arrived since an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    since: Time,
    bytes: u64,
    /// Packets have waited for each other all the while.
    busy: bool,
}

/// Average of shares, the last of which counts most, after one more.
fn average(of: Option<f64>, share: f64) -> f64 {
    of.map_or(share, |of| of + (share - of) / 4.0)
}

/// State of keeping less on the way than congestion control allows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keeping {
    /// No, and not before this instant.
    Not(Time),
    /// Yes. The average share that is in time, and the best so far. At `until` it is seen what
    /// would be without.
    Yes { share: Option<f64>, best: f64, until: Time },
}

/// Knowledge of a path over which messages are to arrive in time.
#[derive(Debug)]
pub(crate) struct Timely {
    /// The shortest lifetime of messages that were handed over lately, and until when that counts.
    lifetime: Duration,
    until: Time,
    /// Bytes of the longest of them.
    message_bytes: usize,
    /// Bytes of the packets that arrived, about.
    packet_bytes: u64,
    /// The smallest round trip, and when it was measured.
    empty: Option<(Duration, Time)>,
    /// Nothing leaves before the way is empty, so that the round trip without a queue is seen.
    empties: bool,
    /// The round trip that was the smallest before less was kept on the way.
    empty_before: Duration,
    /// Rate that the path delivers, as far as it was asked to.
    rate: Rate,
    /// Stretch from which the rate is measured.
    stretch: Stretch,
    /// It was measured while packets waited for each other.
    is_busy: bool,
    /// Time that the newest packet that was acknowledged was on its way.
    way: Duration,
    fates: Fates,
    /// The average share that was in time while no less was kept on the way.
    without: Option<f64>,
    /// The last share with less on the way, if that brought something; else 0.
    with: f64,
    keeping: Keeping,
    again_after: Duration,
    look_after: Duration,
    /// Something has waited for it, or was given up.
    holds: bool,
    /// Bytes that may be in flight.
    limit_bytes: u64,
}

impl Timely {
    fn new(lifetime: Duration) -> Self {
        Timely {
            lifetime,
            until: Time::ZERO,
            message_bytes: 0,
            packet_bytes: 0,
            empty: None,
            empties: false,
            empty_before: Duration::ZERO,
            rate: Rate::default(),
            stretch: Stretch::default(),
            is_busy: false,
            way: Duration::ZERO,
            fates: Fates::default(),
            without: None,
            with: 0.0,
            keeping: Keeping::Not(Time::ZERO),
            again_after: AGAIN_AFTER,
            look_after: LOOK_AFTER,
            holds: false,
            limit_bytes: u64::MAX,
        }
    }

    /// A message of so many bytes is handed over.
    fn on_message(&mut self, now: Time, lifetime: Duration, bytes: usize) {
        self.message_bytes = if now >= self.until { bytes } else { self.message_bytes.max(bytes) };
        if lifetime <= self.lifetime || now >= self.until {
            (self.lifetime, self.until) = (lifetime, now + lifetime.max(KEPT_FOR));
        }
    }

    fn empty(&self) -> Duration {
        self.empty.map_or(Duration::ZERO, |(empty, _)| empty)
    }

    /// Time that a packet may wait on the way.
    fn allowed(&self) -> Duration {
        self.lifetime.saturating_sub(self.empty() / 2) / QUEUE_PART
    }

    /// Time that a packet takes to leave.
    fn own(&self) -> Duration {
        self.time_for(self.packet_bytes)
    }

    /// Time that so many bytes take to leave; zero where that is not known.
    fn time_for(&self, bytes: u64) -> Duration {
        if self.rate == Rate::default() { Duration::ZERO } else { self.rate.time_for(bytes) }
    }

    /// Packets were acknowledged, the newest of which took `rtt` for its round trip.
    fn on_acknowledged(
        &mut self,
        now: Time,
        rtt: Duration,
        (packets, bytes): (u64, u64),
        sample: &RateSample,
    ) {
        self.packet_bytes = match self.packet_bytes {
            0 => bytes / packets.max(1),
            known => (known * 7 + bytes / packets.max(1)) / 8,
        };
        let was_alone = sample.tx_in_flight <= bytes;
        if self.empty.is_none_or(|(empty, _)| rtt <= empty) || (self.empties && was_alone) {
            self.empty = Some((rtt, now));
            if self.empties && was_alone {
                // What was handed over before is late, whatever is done.
                self.empties = false;
                self.fates.begin(now);
            }
        }
        let queue = rtt.saturating_sub(self.empty());
        // The smaller of both: behind the queue of others a packet alone meets a queue as well.
        let empty = if self.keeps() { self.empty().min(self.empty_before) } else { self.empty() };
        self.way = rtt.saturating_sub(empty / 2);
        self.measure(now, rtt, queue, bytes);
        self.fates.on_missed(now, rtt);
        self.keep(now);
        self.limit_bytes = match self.keeping {
            Keeping::Not(_) => u64::MAX,
            Keeping::Yes { .. } => {
                self.rate.bytes_in(self.empty() + self.allowed()).max(2 * self.packet_bytes)
            }
        };
    }

    /// Measures the rate of the path: bytes that are delivered while packets wait for each other
    /// show what it can deliver, other bytes what it can deliver at least. (segmentation.md R-16)
    fn measure(&mut self, now: Time, rtt: Duration, queue: Duration, bytes: u64) {
        let took = now.since(self.stretch.since);
        if self.stretch.since == Time::ZERO || took > (rtt * STRETCH_ROUNDS_MAX).max(STRETCH_MIN * 4) {
            self.stretch = Stretch { since: now, bytes: 0, busy: true };
            return;
        }
        self.stretch.bytes += bytes;
        self.stretch.busy &= queue > self.own() / 2;
        if took >= (self.empty() * STRETCH_ROUNDS).max(STRETCH_MIN) {
            let rate = Rate::from_delivery(self.stretch.bytes, took);
            self.is_busy = self.stretch.busy;
            // A stretch in which packets were lost, or were too few, gives less.
            let least = if self.is_busy { self.rate.mul_f64(DECREASE_MAX) } else { self.rate };
            self.rate = least.max(rate);
            self.stretch = Stretch { since: now, bytes: 0, busy: true };
        }
    }

    /// Begins to keep less on the way where nearly all messages are late, and ends that where it
    /// brings nothing.
    fn keep(&mut self, now: Time) {
        if now >= self.until {
            self.keep_no_more(now, Duration::ZERO);
            return;
        }
        // segmentation.md.
        let Some(share) = (!self.empties).then(|| self.fates.take_share()).flatten() else { return };
        match self.keeping {
            Keeping::Not(until) => self.keep_if_late(now, until, share),
            Keeping::Yes { share: last, best, until } => {
                let with = average(last, share);
                if self.without.is_some_and(|without| with <= without) {
                    self.give_up_keeping(now);
                } else if now >= until {
                    (self.with, self.without) = (with, None);
                    self.keep_no_more(now, Duration::ZERO);
                    self.look_after = (self.look_after * 2).min(AFTER_MAX);
                } else if !self.holds || with < best * PART_OF_BEST {
                    self.keep_no_more(now, Duration::ZERO);
                } else {
                    self.keeping = Keeping::Yes { share: Some(with), best: best.max(with), until };
                    self.holds = false;
                    self.again_after = AGAIN_AFTER;
                    self.empties |= self.empty.is_some_and(|(_, at)| now.since(at) > EMPTY_AFTER);
                }
            }
        }
    }

    /// Begins to keep less on the way if this share is too small, but not before `until`.
    fn keep_if_late(&mut self, now: Time, until: Time, share: f64) {
        let without = average(self.without, share);
        self.without = Some(without);
        if without < self.with.max(SHARE_MIN) && self.is_busy && now >= until {
            self.keeping = Keeping::Yes { share: None, best: 0.0, until: now + self.look_after };
            (self.empties, self.holds) = (true, false);
            self.empty_before = self.empty();
        } else if now >= until + LOOK_AFTER {
            (self.look_after, self.with) = (LOOK_AFTER, 0.0);
        }
    }

    /// Less on the way has brought nothing.
    fn give_up_keeping(&mut self, now: Time) {
        // What was seen behind the queue of others is not the way without a queue.
        self.empty = self.empty.map(|(rtt, at)| (rtt.min(self.empty_before), at));
        self.keep_no_more(now, self.again_after);
        self.again_after = (self.again_after * 2).min(AFTER_MAX);
        self.with = 0.0;
    }

    /// Keeps as much on the way as congestion control allows, for so long at the least.
    fn keep_no_more(&mut self, now: Time, at_least: Duration) {
        if self.keeps() || self.empties {
            self.fates.begin(now);
        }
        (self.keeping, self.empties) = (Keeping::Not(now + at_least), false);
    }

    fn keeps(&self) -> bool {
        self.limit_bytes != u64::MAX
    }

    /// True if another packet may leave while so much is in flight.
    fn admits(&self, in_flight: u64) -> bool {
        if self.empties { in_flight == 0 } else { in_flight + self.packet_bytes <= self.limit_bytes }
    }

    /// Time that a packet which leaves now is on its way, as far as that is known: half of the
    /// round trip, and where packets wait for each other, the time for those before it and for
    /// itself.
    fn takes(&self, in_flight: u64) -> Duration {
        // segmentation.md R-15.
        let half = self.empty() / 2;
        if !self.keeps() {
            return half;
        }
        let ahead = self.time_for(in_flight + self.packet_bytes).saturating_sub(self.empty());
        half + self.own() + ahead
    }

    /// Bytes of a packet at the most: where a packet takes long, what is in it waits for all of it.
    fn packet_bytes_max(&self) -> usize {
        if !self.keeps() {
            return usize::MAX;
        }
        let short = self.rate.bytes_in(self.allowed() / 2) as usize;
        short.max(self.message_bytes + AROUND_BYTES).max(PACKET_BYTES_LEAST)
    }
}

impl Outbound {
    /// Messages of so many bytes were written that are worthless after `lifetime`, up to a position
    /// of their flow.
    pub fn on_message_with_lifetime(
        &mut self,
        now: Time,
        lifetime: Duration,
        bytes: usize,
        (flow, written): (u32, u64),
    ) {
        let timely = self.timely.get_or_insert_with(|| Box::new(Timely::new(lifetime)));
        timely.on_message(now, lifetime, bytes);
        timely.fates.follow(Message { flow, end: written - 1, handed_at: now, expires: now + lifetime });
    }

    /// Positions of a flow are acknowledged that left then.
    #[inline]
    pub fn see_arrived(&mut self, sent_at: Time, flow: u32, range: &Range<u64>) {
        if let Some(timely) = &mut self.timely {
            timely.fates.on_arrived(sent_at + timely.way, flow, range);
        }
    }

    /// Packets were acknowledged, of so many bytes in all.
    #[inline]
    pub fn see_timely(&mut self, now: Time, rtt: Option<Duration>, acked: (u64, u64), sample: &RateSample) {
        if let (Some(timely), Some(rtt)) = (&mut self.timely, rtt) {
            timely.on_acknowledged(now, rtt, acked, sample);
        }
    }

    /// True if a packet that leaves now is in time, as far as bytes in flight are concerned.
    #[inline]
    pub fn is_timely(&mut self) -> bool {
        let in_flight = self.delivery.in_flight;
        self.timely.as_mut().is_none_or(|timely| {
            let admits = timely.admits(in_flight);
            timely.holds |= !admits;
            admits
        })
    }

    /// True if packets wait for each other on the way for so long that messages may be late.
    #[inline]
    pub fn is_late(&self) -> bool {
        self.timely.as_ref().is_some_and(|timely| timely.keeps())
    }

    /// Bytes of a packet at the most, for what is in it to be in time.
    #[inline]
    pub fn timely_packet_bytes(&self) -> usize {
        self.timely.as_ref().map_or(usize::MAX, |timely| timely.packet_bytes_max())
    }
}

impl Ways {
    /// Gives up messages that are next to be sent and cannot arrive in time. Says whether there
    /// were any.
    #[inline]
    pub fn drop_late(&mut self, now: Time) -> bool {
        let may_be_late = self.outbound.timely.is_some();
        may_be_late && self.drop_late_messages(now)
    }

    fn drop_late_messages(&mut self, now: Time) -> bool {
        let outbound = &self.outbound;
        let in_flight = outbound.delivery.in_flight;
        // What has to wait may have less before it when its turn comes.
        let Some(timely) = outbound.timely.as_ref().filter(|timely| timely.admits(in_flight)) else {
            return false;
        };
        let by = now + timely.takes(in_flight);
        let mut any = false;
        while let Some(id) = self.flows.next_to_send(None) {
            // Where nothing is on the way the last goes in any case: it shows how the way is.
            let Some(flow) = self.flows.get_mut(id) else { break };
            let expired = flow.send.buffer.expire_waiting(by, in_flight == 0);
            if expired.messages == 0 {
                break;
            }
            any = true;
            self.note_expired(id, expired);
            self.after_send_change(id);
        }
        if let Some(timely) = self.outbound.timely.as_mut() {
            timely.holds |= any;
        }
        any
    }
}
