//! Congestion control: how much may be in flight so that the path is used and not overrun.
//!
//! The function keeps what the network taught: what is in flight, what was delivered and at what
//! rate ([`Delivery`], after draft-cheng-iccrg-delivery-rate-estimation), and the neutral
//! [`Summary`] that any mechanism hands to any successor. Mechanisms say a window in bytes and, if
//! they have one, a rate; the rate is enforced by the rate function, never here.

use crate::mechanism::Described;
use crate::registry;
use crate::time::{Rate, Time};
use auto_impl::auto_impl;
use core::time::Duration;
use dyn_clone::DynClone;
use enum_dispatch::enum_dispatch;

pub mod bbr;
pub mod careful_resume;
pub mod cubic;
pub mod decbit;
pub mod ledbat_plus_plus;
pub mod new_reno;
pub mod none;
pub mod prague;
pub mod reno;
pub mod reno_linux_2_1;
pub mod tahoe;
pub mod vegas;

mod classic;
mod counted;
mod hystart;
mod learnt;
mod response;
mod window;

#[cfg(test)]
mod harness;
#[cfg(test)]
mod testing;

/// Knowledge of a congestion mechanism that any other can use: handed over at an exchange.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Bytes that may be in flight.
    pub window_bytes: u64,
    /// Slow-start threshold; `u64::MAX` while the path's limit has not been met.
    pub threshold_bytes: u64,
    /// Rate that the path delivers, if known.
    pub bandwidth: Option<Rate>,
    /// Smallest round trip, if known.
    pub rtt_min: Option<Duration>,
    /// Losses of packets below this number have been answered already.
    pub answered_below: Option<u64>,
}

/// Inputs that a mechanism is built from.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The instant of the exchange, or of the connection's start.
    pub now: Time,
    /// Bytes of UDP payload in a full packet.
    pub packet_bytes: u64,
    /// The predecessor's summary; at the start of a connection [`Summary::initial`].
    pub summary: Summary,
    /// Path as a connection before this one has learnt it, while that may still be of use.
    pub past: Option<Past>,
    /// Seed for mechanisms that spread their probing in time.
    pub seed: u64,
}

/// A path as the last connection knew it. It may be another by now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Past {
    /// Rate that it delivered.
    pub bandwidth: Rate,
    /// Its smallest round trip.
    pub rtt_min: Duration,
}

impl Summary {
    /// At the start of a connection: a window of 10 packets (RFC 6928, RFC 9002 section 7.2).
    pub fn initial(packet_bytes: u64) -> Self {
        Summary {
            window_bytes: (10 * packet_bytes).min((2 * packet_bytes).max(14_720)),
            threshold_bytes: u64::MAX,
            bandwidth: None,
            rtt_min: None,
            answered_below: None,
        }
    }
}

/// State of the delivery when a packet was sent; kept with it in the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// [`Delivery::delivered`] then.
    pub delivered: u64,
    /// When that count was last raised.
    pub delivered_at: Time,
    /// When the first packet of the flight was sent that this packet belongs to.
    pub first_sent_at: Time,
    /// When this packet was sent.
    pub sent_at: Time,
    /// Bytes in flight just after it was sent, itself included.
    pub in_flight: u64,
    /// [`Delivery::lost`] then.
    pub lost: u64,
    /// The sender had run out of data.
    pub app_limited: bool,
}

/// A sample of the delivery rate, from one acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateSample {
    /// Bytes delivered per second over the sample; zero if no sample could be taken.
    pub rate: Rate,
    /// Bytes delivered over the sample's interval.
    pub delivered: u64,
    /// [`Delivery::delivered`] when the sampled packet was sent.
    pub prior_delivered: u64,
    /// Bytes in flight just after the sampled packet was sent.
    pub tx_in_flight: u64,
    /// Bytes declared lost between sending and acknowledgement of the sampled packet.
    pub lost: u64,
    /// The sample's length.
    pub interval: Duration,
    /// The sender had run out of data: the path may be faster than the sample says.
    pub app_limited: bool,
}

/// The state of the function: what is in flight, what was delivered, when, and at what rate (C-1).
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Bytes sent and neither acknowledged nor declared lost.
    pub in_flight: u64,
    /// Bytes of these that have arrived, as the finding function knows, although no report names
    /// the packets yet.
    pub departed: u64,
    /// Bytes acknowledged since the start.
    pub delivered: u64,
    /// Bytes declared lost since the start.
    pub lost: u64,
    /// When `delivered` was last raised.
    pub delivered_at: Time,
    first_sent_at: Time,
    app_limited_until: u64,
    best: Option<Snapshot>,
    newly_delivered: u64,
}

impl Delivery {
    /// At the start of a connection.
    pub fn new(now: Time) -> Self {
        Delivery {
            in_flight: 0,
            departed: 0,
            delivered: 0,
            lost: 0,
            delivered_at: now,
            first_sent_at: now,
            app_limited_until: 0,
            best: None,
            newly_delivered: 0,
        }
    }

    /// Bytes that are still under way, as far as is known (C-2).
    pub fn under_way(&self) -> u64 {
        self.in_flight.saturating_sub(self.departed)
    }

    /// Counts packets of `bytes` in all as sent at once; the snapshot is kept with the last.
    pub fn on_sent(&mut self, now: Time, bytes: u64) -> Snapshot {
        if self.in_flight == 0 {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        self.in_flight += bytes;
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            sent_at: now,
            in_flight: self.in_flight,
            lost: self.lost,
            app_limited: self.app_limited_until != 0,
        }
    }

    /// Says that the sender has run out of data while the window had room.
    pub fn set_app_limited(&mut self) {
        self.app_limited_until = (self.delivered + self.in_flight).max(1);
    }

    /// The window is smaller than it was: what had room in the larger one says nothing of the data
    /// that waits for this one.
    pub fn on_reduction(&mut self) {
        self.app_limited_until = 0;
    }

    /// True if the sender ran out of data within the last round.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until != 0
    }

    /// Counts acknowledged packets, one or several that were sent at once: `bytes` of them all, and
    /// the snapshot of the last. Once all packets of an acknowledgement are counted,
    /// [`Delivery::sample`] gives the rate.
    pub fn on_acknowledged(&mut self, now: Time, bytes: u64, sent: &Snapshot) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.delivered += bytes;
        self.delivered_at = now;
        self.newly_delivered += bytes;
        if self.best.is_none_or(|b| (sent.delivered, sent.sent_at) >= (b.delivered, b.sent_at)) {
            self.best = Some(*sent);
            self.first_sent_at = sent.sent_at;
        }
        if self.app_limited_until != 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
    }

    /// Counts one packet as lost.
    pub fn on_lost(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.lost += bytes;
    }

    /// Takes a packet out of flight that is neither lost nor delivered (its keys were discarded).
    pub fn forget(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// The sample over the packets acknowledged since the last call, and their bytes.
    pub fn sample(&mut self, rtt_min: Duration) -> (RateSample, u64) {
        let newly = core::mem::take(&mut self.newly_delivered);
        let Some(p) = self.best.take() else { return (RateSample::default(), newly) };
        let send_elapsed = p.sent_at.since(p.first_sent_at);
        let ack_elapsed = self.delivered_at.since(p.delivered_at);
        let interval = send_elapsed.max(ack_elapsed);
        let mut sample = RateSample {
            rate: Rate::default(),
            delivered: self.delivered.saturating_sub(p.delivered),
            prior_delivered: p.delivered,
            tx_in_flight: p.in_flight,
            lost: self.lost.saturating_sub(p.lost),
            interval,
            app_limited: p.app_limited,
        };
        // An interval shorter than a round trip means compressed ACKs, not a faster path.
        if interval >= rtt_min && !interval.is_zero() {
            sample.rate = Rate::from_delivery(sample.delivered, interval);
        }
        (sample, newly)
    }
}

/// One acknowledgement that newly acknowledged something.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// When it arrived.
    pub now: Time,
    /// Bytes that it newly acknowledged.
    pub bytes: u64,
    /// Largest packet number that it newly acknowledged.
    pub largest: u64,
    /// When that packet was sent.
    pub sent_at: Time,
    /// The round trip of that packet, if it gave a sample.
    pub rtt: Option<Duration>,
    /// Smoothed round trip after the sample.
    pub rtt_smoothed: Duration,
    /// Smallest round trip known.
    pub rtt_min: Duration,
    /// Bytes in flight before this acknowledgement.
    pub prior_in_flight: u64,
    /// The delivery rate.
    pub sample: RateSample,
    /// Packets newly reported as marked by the network (ECN CE).
    pub ecn_marked: u64,
    /// The next packet number to be sent: an acknowledgement of it or a later one ends the round
    /// that starts now.
    pub next_packet: u64,
}

/// Evidence by which losses were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// So many later packets were acknowledged that these are taken for lost (RFC 9002 section
    /// 6.1.1).
    Overtaken,
    /// So many reports have left it the oldest: a fast retransmit (RFC 5681 section 3.2).
    Duplicates,
    /// The repeat of the loss before has arrived, and left this the oldest (RFC 6582 section 3.2).
    Partial,
    /// A later packet was acknowledged, and these not long after (RFC 9002 section 6.1.2).
    Expired,
    /// The receiver said that they are missing.
    Reported,
}

/// Nothing was acknowledged for as long as the timing function waits.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// When the time was over.
    pub now: Time,
    /// Packets that have timed out count as lost, as by TCP's retransmission timer. Else they are
    /// probed.
    pub is_loss: bool,
    /// Time-outs since something was acknowledged last, this one included.
    pub in_a_row: u32,
    /// The next packet number to be sent.
    pub next_packet: u64,
}

/// Packets declared lost at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When they were declared lost.
    pub now: Time,
    /// Their bytes.
    pub bytes: u64,
    /// Number of lost packets.
    pub packets: u64,
    /// Evidence by which they were found; of several kinds, the first of [`Cause`].
    pub cause: Cause,
    /// The largest of their numbers.
    pub largest: u64,
    /// When that packet was sent.
    pub sent_at: Time,
    /// State of the delivery when that packet was sent.
    pub snapshot: Snapshot,
    /// Everything sent over more than three probe time-outs is lost (RFC 9002 section 7.6).
    pub persistent: bool,
    /// The next packet number to be sent.
    pub next_packet: u64,
}

/// A policy over [`Delivery`]: the window, and a rate if it has one.
///
/// `now` and sizes are handed in with each event; windows are in bytes of UDP payload.
#[enum_dispatch]
#[auto_impl(Box)]
pub trait Congestion: Described + DynClone {
    /// Packets of `bytes` in all were sent at once, mostly one; `delivery` counts them already.
    fn on_sent(&mut self, now: Time, bytes: u64, delivery: &Delivery);
    /// Something was newly acknowledged; `delivery` counts it already.
    fn on_ack(&mut self, ack: &Ack, delivery: &Delivery);
    /// Something was declared lost; `delivery` counts it already. Called before `on_ack` of the
    /// same datagram.
    fn on_loss(&mut self, loss: &Loss, delivery: &Delivery);
    /// Nothing was acknowledged for a time-out; `delivery` still counts what has timed out as in
    /// flight. Where that counts as lost, one packet is the window (C-43), and
    /// [`Congestion::on_loss`] follows. Else a mechanism may reduce all the same.
    fn on_timeout(&mut self, _timeout: &Timeout, _delivery: &Delivery) {}
    /// Packets that were declared lost arrived after all: `bytes` of them. A mechanism may undo its
    /// last reduction.
    fn on_spurious_loss(&mut self, bytes: u64);
    /// True if marks are answered by their share, so that packets may ask for the treatment of L4S
    /// (the codepoint ECT(1), RFC 9331).
    fn is_scalable(&self) -> bool {
        false
    }
    /// The size of a full packet has changed.
    fn set_packet_bytes(&mut self, packet_bytes: u64);
    /// Bytes that may be in flight.
    fn window_bytes(&self) -> u64;
    /// The rate at which to send, if this mechanism has one. Without one, the rate function spaces
    /// a window over a round trip.
    fn pacing_rate(&self) -> Option<Rate>;
    /// Bytes that may leave in one burst under `pacing_rate`, if this mechanism says.
    fn burst_bytes(&self) -> Option<u64>;
    /// Summary for a successor.
    fn summary(&self) -> Summary;
    /// Where it is, for people: `slow start`, `probe bandwidth (up)` …
    fn phase(&self) -> &'static str;
}

dyn_clone::clone_trait_object!(Congestion);

registry! {
    /// The congestion mechanism in use.
    #[derive(Clone, Debug)]
    Slot: Congestion, context: &Context;
    None => none::None,
    NewReno => new_reno::NewReno,
    Cubic => cubic::Cubic,
    Bbr => bbr::Bbr,
    Tahoe => tahoe::Tahoe,
    Reno => reno::Reno,
    RenoLinux21 => reno_linux_2_1::RenoLinux21,
    Vegas => vegas::Vegas,
    LedbatPlusPlus => ledbat_plus_plus::LedbatPlusPlus,
    Decbit => decbit::Decbit,
    Prague => prague::Prague,
    CarefulResume => careful_resume::CarefulResume,
}
