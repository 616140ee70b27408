//! Peers: connections to one address share the path and, behind it, one socket's buffer, which
//! holds a few megabytes however many they are. Each keeps to its window; what all have waiting on
//! the way together is bounded here, and they take turns at that. With hundreds of windows the
//! buffer would overflow, or each would shrink to a packet or two. A connection that sends little,
//! less than its part, need not wait for all others (as in FQ-CoDel, RFC 8290 section 4.2): of two
//! turns one is for these.
//!
//! Bytes in flight beyond rate times shortest round trip are waiting. A path that is long holds
//! more in flight, and losses change nothing: how to answer them is each connection's congestion
//! control to say.
//!
//! A connection that is the only one is held to that where the peer is near: there what waits waits
//! in that buffer, which slow start would overflow by thousands of packets. Elsewhere the round
//! trip may have become longer.
//!
//! The rate of all together also tells whether lines or processors are the limit, which none of
//! many knows by itself.

use crate::connection::{Admission, Allowance, PROCESSORS_LIMIT, Polled};
use crate::event::ConnectionHandle;
use core::time::Duration;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use uts_functions::{Rate, Time};

/// Bytes that one connection sends in its turn, about: a batch for segmentation offload.
const BATCH_BYTES: u64 = 64 << 10;

/// Where more wait than this, the state of none is in cache when its turn comes, which costs both
/// ends some microseconds. So that each turn is worth that, it is several batches then, as long as
/// all have their turn within this time. Below this rate that is of no account, and short turns are
/// better for what is small.
const MANY: usize = 64;
const FAST: Rate = Rate::from_bits_per_sec(2_500_000_000);
const BATCHES_OF_MANY: u64 = 4;
const ALL_TURNS_MAX: Duration = Duration::from_millis(150);

/// Bytes sent since it had to wait, below which a connection takes less than others: as many as a
/// connection may begin with (RFC 6928).
const LITTLE_BYTES: u64 = 14_600;

/// A peer is near up to this round trip: on the same host, or behind a switch or two.
const NEAR: Duration = Duration::from_micros(500);

/// The shortest round trip is the shortest of the last one to two of these: paths change.
const RTT_MIN_WINDOW: Duration = Duration::from_secs(60);

/// A round trip shorter than this tells no rate: what arrives together is taken in together.
const ROUND_MIN: Duration = Duration::from_millis(1);

/// A connection's part in what is in flight to its peer.
#[derive(Debug)]
pub(super) struct Share {
    peer: u32,
    standing: Standing,
    in_flight: u64,
    /// Bytes sent since it had to wait.
    sent: u64,
}

impl Share {
    /// Number of batches that it may send in its turn; zero until that has come.
    fn batches(&self) -> u32 {
        if let Standing::Called(batches) = self.standing { batches } else { 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It wants nothing, or did not ask yet.
    Free,
    /// It waits until others' packets have arrived.
    Held,
    /// So does this one, which has sent little.
    Fresh,
    /// Its turn has come, to send so many batches.
    Called(u32),
}

/// All peers.
#[derive(Debug)]
pub(super) struct Peers {
    list: Slab<Peer>,
    by_address: HashMap<SocketAddr, u32>,
    /// Bytes that may wait on the way to one of them.
    waiting_max: u64,
}

#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    connections: u32,
    in_flight: u64,
    /// Bytes that may be in flight.
    limit: u64,
    /// Over the samples of all connections.
    rtt_smoothed: Option<Duration>,
    rtt_min: Duration,
    window_min: Duration,
    window_start: Time,
    /// Rates of the last two round trips, and what was done with in the one under way, lost packets
    /// included.
    rates: [Rate; 2],
    round_bytes: u64,
    round_start: Time,
    /// In the order in which their turns come.
    held: VecDeque<ConnectionHandle>,
    /// The same for connections that have sent little, which take turns with the others.
    fresh: VecDeque<ConnectionHandle>,
    /// The connection that was called last was one of these.
    was_fresh: bool,
    /// Batches of connections that were called and have not sent them yet.
    called: u32,
}

impl Peers {
    /// Up to `waiting_max` bytes may wait on the way to each.
    pub fn new(waiting_max: u64) -> Self {
        Peers { list: Slab::new(), by_address: HashMap::new(), waiting_max }
    }

    /// A connection to `address` begins.
    pub fn join(&mut self, address: SocketAddr) -> Share {
        let list = &mut self.list;
        let peer = *self.by_address.entry(address).or_insert_with(|| list.insert(Peer::new(address)) as u32);
        if let Some(peer) = list.get_mut(peer as usize) {
            peer.connections += 1;
        }
        Share { peer, standing: Standing::Free, in_flight: 0, sent: 0 }
    }

    /// Where the peer of a connection is.
    pub fn address(&self, share: &Share) -> Option<SocketAddr> {
        self.list.get(share.peer as usize).map(|peer| peer.address)
    }

    /// A connection is gone.
    pub fn leave(&mut self, share: &mut Share) {
        let Some(peer) = self.list.get_mut(share.peer as usize) else { return };
        peer.count(share, 0);
        peer.called -= share.batches();
        share.standing = Standing::Free;
        peer.connections -= 1;
        if peer.connections == 0 {
            let address = peer.address;
            self.by_address.remove(&address);
            self.list.remove(share.peer as usize);
        }
    }

    /// Allowance of a connection at present, as far as others are concerned.
    pub fn allowance_of(&self, share: &Share) -> Allowance {
        let is_bounded = |peer: &&Peer| peer.connections > 1 || peer.rtt_min <= NEAR;
        let Some(peer) = self.list.get(share.peer as usize).filter(is_bounded) else {
            return Allowance::default();
        };
        let others_wait = !peer.held.is_empty() || !peer.fresh.is_empty();
        let is_full = others_wait || peer.in_flight >= peer.limit;
        let admission = match share.batches() {
            0 if is_full => Admission::Waits,
            0 => Admission::Free,
            _ => Admission::Called,
        };
        Allowance { admission, is_fast: peer.rate() >= PROCESSORS_LIMIT }
    }

    /// A connection was asked what it sends.
    pub fn on_polled(&mut self, handle: ConnectionHandle, share: &mut Share, in_flight: u64, polled: Polled) {
        let Polled { has_waited, has_more, .. } = polled;
        let Some(peer) = self.list.get_mut(share.peer as usize) else { return };
        let sent = in_flight.saturating_sub(share.in_flight);
        share.sent = share.sent.saturating_add(sent);
        peer.count(share, in_flight);
        if let Standing::Called(batches) = share.standing {
            let left = if sent > 0 && has_more { batches - 1 } else { 0 };
            peer.called -= batches - left;
            share.standing = if left > 0 { Standing::Called(left) } else { Standing::Free };
        }
        if has_waited && share.standing == Standing::Free {
            let (standing, queue) = if share.sent < LITTLE_BYTES {
                (Standing::Fresh, &mut peer.fresh)
            } else {
                (Standing::Held, &mut peer.held)
            };
            (share.standing, share.sent) = (standing, 0);
            queue.push_back(handle);
        }
    }

    /// Something has become of a connection's packets. `rtt` = its latest round trip.
    pub fn on_news(&mut self, now: Time, share: &mut Share, in_flight: u64, rtt: Option<Duration>) {
        let Some(peer) = self.list.get_mut(share.peer as usize) else { return };
        peer.count(share, in_flight);
        if let Some(rtt) = rtt {
            peer.on_round_trip(now, rtt, self.waiting_max);
        }
    }

    /// Next connection whose turn has come among all that share a peer with `share`;
    /// [`Peers::call`] it.
    pub fn next_turn(&mut self, share: &Share) -> Option<ConnectionHandle> {
        let peer = self.list.get_mut(share.peer as usize)?;
        let promised = u64::from(peer.called) * BATCH_BYTES;
        let has_room = peer.in_flight + promised < peer.limit;
        if !has_room {
            return None;
        }
        peer.was_fresh = peer.held.is_empty() || (!peer.was_fresh && !peer.fresh.is_empty());
        let queue = if peer.was_fresh { &mut peer.fresh } else { &mut peer.held };
        queue.pop_front()
    }

    /// A connection may send what it has waited with.
    pub fn call(&mut self, share: &mut Share) {
        if let Some(peer) = self.list.get_mut(share.peer as usize) {
            let batches = if share.standing == Standing::Fresh { 1 } else { peer.batches_per_turn() };
            peer.called += batches - share.batches().min(batches);
            share.standing = Standing::Called(batches.max(share.batches()));
        }
    }
}

impl Peer {
    fn new(address: SocketAddr) -> Self {
        Peer {
            address,
            connections: 0,
            in_flight: 0,
            limit: u64::MAX,
            rtt_smoothed: None,
            rtt_min: Duration::MAX,
            window_min: Duration::MAX,
            window_start: Time::ZERO,
            rates: [Rate::default(); 2],
            round_bytes: 0,
            round_start: Time::ZERO,
            held: VecDeque::new(),
            fresh: VecDeque::new(),
            was_fresh: false,
            called: 0,
        }
    }

    /// Rate that all connections to it bring together.
    fn rate(&self) -> Rate {
        self.rates[0].max(self.rates[1])
    }

    /// Number of batches that each connection that waits may send in its turn.
    fn batches_per_turn(&self) -> u32 {
        let (waiting, rate) = (self.held.len(), self.rate());
        if waiting <= MANY || rate < FAST {
            return 1;
        }
        (rate.bytes_in(ALL_TURNS_MAX) / (BATCH_BYTES * waiting as u64)).clamp(1, BATCHES_OF_MANY) as u32
    }

    fn count(&mut self, share: &mut Share, in_flight: u64) {
        self.in_flight = self.in_flight.saturating_sub(share.in_flight).saturating_add(in_flight);
        self.round_bytes += share.in_flight.saturating_sub(in_flight);
        share.in_flight = in_flight;
    }

    fn on_round_trip(&mut self, now: Time, rtt: Duration, waiting_max: u64) {
        if now.since(self.window_start) >= RTT_MIN_WINDOW {
            self.rtt_min = self.window_min;
            self.window_min = Duration::MAX;
            self.window_start = now;
        }
        self.window_min = self.window_min.min(rtt);
        self.rtt_min = self.rtt_min.min(rtt);
        let smoothed = self.rtt_smoothed.map_or(rtt, |smoothed| (7 * smoothed + rtt) / 8);
        self.rtt_smoothed = Some(smoothed);
        if now.since(self.round_start) >= smoothed.max(ROUND_MIN) {
            let rate = Rate::from_delivery(self.round_bytes, now.since(self.round_start));
            self.rates = [self.rates[1], rate];
            (self.round_start, self.round_bytes) = (now, 0);
        }
        self.limit = self.limit_at(self.rate(), smoothed, waiting_max);
    }

    /// Bytes that the path itself holds at `rate`, and `waiting_max` besides.
    fn limit_at(&self, rate: Rate, rtt: Duration, waiting_max: u64) -> u64 {
        let waiting = rtt.saturating_sub(self.rtt_min);
        let held = rate.bytes_in(self.rtt_min);
        let by_rate = held.saturating_add(waiting_max);
        if self.rtt_min <= NEAR {
            // Round trips tell more of the two hosts than of what is between them, which holds next
            // to nothing.
            by_rate
        } else if waiting > self.rtt_min {
            // Most of it waits, whatever the rate, which takes a round trip to be known.
            let by_share = waiting_max as f64 * (rtt.as_secs_f64() / waiting.as_secs_f64());
            by_rate.max(by_share as u64)
        } else if rate.bytes_in(waiting) >= waiting_max / 2 {
            by_rate
        } else {
            // Little waits: the path may hold more. It may be twice as much in the next round trip,
            // as in slow start, but not all that hundreds of windows allow: how much that was too
            // much is known a round trip later.
            by_rate.saturating_add(held)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It has sent something, and perhaps waited with more.
    fn polled(has_waited: bool) -> Polled {
        Polled { segment_bytes: Some(1), has_waited, has_more: true, is_aside: false }
    }

    const WAITING_MAX: u64 = 1 << 20;

    fn peers(connections: u64) -> (Peers, Vec<(ConnectionHandle, Share)>) {
        let mut peers = Peers::new(WAITING_MAX);
        let address = SocketAddr::from(([10, 0, 0, 1], 1));
        let shares = (0..connections).map(|n| (ConnectionHandle(n), peers.join(address))).collect();
        (peers, shares)
    }

    /// Connections of which one has `in_flight` bytes under way in each round trip of so many
    /// milliseconds.
    fn pass(peers: &mut Peers, now: &mut Time, share: &mut Share, in_flight: u64, rtts_ms: &[u64]) {
        let rtts: Vec<_> = rtts_ms.iter().copied().map(Duration::from_millis).collect();
        pass_in(peers, now, share, in_flight, &rtts);
    }

    fn pass_in(peers: &mut Peers, now: &mut Time, share: &mut Share, in_flight: u64, rtts: &[Duration]) {
        for &rtt in rtts {
            *now += rtt;
            peers.on_news(*now, share, 0, Some(rtt));
            peers.on_news(*now, share, in_flight, None);
        }
    }

    /// A connection has to wait that has sent so much, which has arrived.
    fn hold(peers: &mut Peers, (handle, share): &mut (ConnectionHandle, Share), sent: u64) {
        peers.on_polled(*handle, share, sent, polled(true));
        // To be asked again, for acknowledgements, does not give a second place.
        peers.on_polled(*handle, share, sent, polled(true));
        peers.on_news(Time::ZERO, share, 0, None);
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_on_its_way_is_not() {
        let (mut peers, mut shares) = peers(2);
        let (share, mut now) = (&mut shares[0].1, Time::ZERO);
        pass(&mut peers, &mut now, share, 100 << 20, &[100; 20]);
        assert_eq!(peers.allowance_of(share).admission, Admission::Free, "a long path without a queue");
        // 100 MiB in 104 ms: 4 wait where 1 may.
        pass(&mut peers, &mut now, share, 100 << 20, &[104; 50]);
        assert_eq!(peers.allowance_of(share).admission, Admission::Waits);
        peers.on_news(now, share, 96 << 20, None);
        assert_ne!(peers.allowance_of(share).admission, Admission::Waits, "the path itself holds 96");
        peers.on_news(now, share, 100 << 20, None);
        assert_eq!(peers.allowance_of(share).admission, Admission::Waits);
        // Alone, a connection is its congestion control's business.
        let (_, other) = &mut shares[1];
        peers.leave(other);
        assert_ne!(peers.allowance_of(&shares[0].1).admission, Admission::Waits);
    }

    /// A peer that is near has nothing but a buffer for what waits; a path that is no longer short
    /// may hold it.
    #[test]
    fn who_is_alone_is_held_back_where_the_peer_is_near() {
        for (rtt_us, is_held) in [(100, true), (500, true), (600, false)] {
            let (mut peers, mut shares) = peers(1);
            let (share, mut now) = (&mut shares[0].1, Time::ZERO);
            let rtts = [rtt_us, 10_000, 10_000].map(Duration::from_micros);
            pass_in(&mut peers, &mut now, share, 2 << 20, &rtts);
            assert_eq!(peers.allowance_of(share).admission == Admission::Waits, is_held, "{rtt_us} us");
        }
    }

    /// Bytes in flight to a peer may grow as in slow start, not by all windows at once; to a peer
    /// that is near, not even so.
    #[test]
    fn where_nothing_waits_what_is_in_flight_may_double() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        for (rtts, in_flight, limit) in [
            ([ms(100), ms(101)], 8 * WAITING_MAX, 17 * WAITING_MAX),
            ([us(200), us(200)], WAITING_MAX / 8, WAITING_MAX * 9 / 8),
            // Who waits here, for a processor, is one of the hosts.
            ([us(200), us(500)], WAITING_MAX / 8, WAITING_MAX * 9 / 8),
        ] {
            let (mut peers, mut shares) = peers(2);
            let (share, mut now) = (&mut shares[0].1, Time::ZERO);
            pass_in(&mut peers, &mut now, share, in_flight, &[rtts[0]]);
            pass_in(&mut peers, &mut now, share, in_flight, &[rtts[1]; 50]);
            let reached = peers.list[0].limit as f64 / limit as f64;
            assert!((0.8..1.1).contains(&reached), "{rtts:?}: {reached} of {limit}");
        }
    }

    #[test]
    fn whoever_waits_is_called_in_turn_and_nobody_goes_before() {
        let (mut peers, mut shares) = peers(5);
        let mut now = Time::ZERO;
        pass(&mut peers, &mut now, &mut shares[0].1, 1, &[1]);
        pass(&mut peers, &mut now, &mut shares[0].1, WAITING_MAX, &[1_000; 50]);
        let full = WAITING_MAX + BATCH_BYTES;
        let (handle, share) = &mut shares[0];
        peers.on_polled(*handle, share, full, polled(false));
        for one in &mut shares[1..4] {
            assert_eq!(peers.allowance_of(&one.1).admission, Admission::Waits);
            hold(&mut peers, one, LITTLE_BYTES);
        }
        assert_eq!(peers.next_turn(&shares[0].1), None);
        // Room for a batch and a half: two are called.
        peers.on_news(now, &mut shares[0].1, full - BATCH_BYTES * 5 / 2, None);
        for n in [1, 2] {
            assert_eq!(peers.next_turn(&shares[0].1), Some(ConnectionHandle(n)));
            peers.call(&mut shares[n as usize].1);
        }
        assert_eq!(peers.next_turn(&shares[0].1), None);
        assert_ne!(peers.allowance_of(&shares[1].1).admission, Admission::Waits);
        assert_eq!(
            peers.allowance_of(&shares[4].1).admission,
            Admission::Waits,
            "who comes later waits behind the third"
        );
        peers.on_polled(ConnectionHandle(1), &mut shares[1].1, BATCH_BYTES, polled(true));
        assert_eq!(peers.allowance_of(&shares[1].1).admission, Admission::Waits, "one turn is one batch");
        for (_, share) in &mut shares {
            peers.leave(share);
        }
        assert!(peers.list.is_empty() && peers.by_address.is_empty());
    }

    /// Of two turns one is for connections that have sent little, and short.
    #[test]
    fn who_has_sent_little_need_not_wait_for_all_others() {
        let (mut peers, mut shares) = peers(3 * MANY as u64);
        let mut now = Time::ZERO;
        pass(&mut peers, &mut now, &mut shares[0].1, 1, &[1]);
        pass(&mut peers, &mut now, &mut shares[0].1, WAITING_MAX, &[1_000; 50]);
        peers.on_polled(ConnectionHandle(0), &mut shares[0].1, 2 * WAITING_MAX, polled(false));
        peers.list.iter_mut().for_each(|(_, peer)| peer.rates[1] = FAST);
        // The first hundred have sent more than the others.
        for one in &mut shares[1..] {
            let sent = LITTLE_BYTES - u64::from(one.0.0 >= 100);
            hold(&mut peers, one, sent);
        }
        peers.on_news(now, &mut shares[0].1, 0, None);
        for (next, batches) in [(100, 1), (1, 4), (101, 1), (2, 4), (102, 1)] {
            assert_eq!(peers.next_turn(&shares[0].1), Some(ConnectionHandle(next)));
            let share = &mut shares[next as usize].1;
            peers.call(share);
            assert_eq!(share.batches(), batches, "{next}");
            // Whatever has become of what it sent, it counts.
            let (sent, standing) = match next {
                100 => (LITTLE_BYTES - 1, Standing::Fresh),
                _ => (LITTLE_BYTES, Standing::Held),
            };
            peers.on_polled(ConnectionHandle(next), share, sent, polled(false));
            peers.on_polled(ConnectionHandle(next), share, sent, polled(false));
            peers.on_news(now, share, 0, None);
            peers.on_polled(ConnectionHandle(next), share, 0, polled(true));
            assert_eq!(share.standing, standing, "{next}");
        }
        // Both go on when the others are through.
        peers.list.iter_mut().for_each(|(_, peer)| peer.fresh.clear());
        assert_eq!([(); 3].map(|()| peers.next_turn(&shares[0].1).map(|h| h.0)), [3, 4, 5].map(Some));
        let mut late = peers.join(SocketAddr::from(([10, 0, 0, 1], 1)));
        assert_eq!(peers.allowance_of(&late).admission, Admission::Waits);
        peers.on_polled(ConnectionHandle(999), &mut late, 0, polled(true));
        peers.list.iter_mut().for_each(|(_, peer)| peer.held.clear());
        assert_eq!(peers.allowance_of(&late).admission, Admission::Waits, "it waits itself");
        assert_eq!(peers.next_turn(&late), Some(ConnectionHandle(999)));
        assert_eq!(peers.next_turn(&late), None);
    }

    #[test]
    fn processors_are_the_limit_by_what_all_bring_together() {
        let (mut peers, mut shares) = peers(2);
        let mut now = Time::ZERO;
        let a_millisecond_of = |part| PROCESSORS_LIMIT.bytes_in(Duration::from_millis(1)) / 10 * part;
        for (tenths, is_fast) in [(9, false), (11, true), (9, false)] {
            pass(&mut peers, &mut now, &mut shares[0].1, a_millisecond_of(tenths), &[1]);
            pass(&mut peers, &mut now, &mut shares[0].1, 0, &[1]);
            let are_fast = [0, 1].map(|n| peers.allowance_of(&shares[n].1).is_fast);
            assert_eq!(are_fast, [is_fast; 2], "{tenths} tenths");
        }
    }

    /// Where many wait, each has a longer turn if the way is fast; one that has nothing more to
    /// send ends it.
    #[test]
    fn the_turn_of_one_of_many_is_several_batches() {
        let (mut peers, mut shares) = peers(2 * MANY as u64);
        let mut now = Time::ZERO;
        pass(&mut peers, &mut now, &mut shares[0].1, 1, &[1]);
        pass(&mut peers, &mut now, &mut shares[0].1, WAITING_MAX, &[1_000; 50]);
        peers.on_polled(ConnectionHandle(0), &mut shares[0].1, 2 * WAITING_MAX, polled(false));
        shares[1..].iter_mut().for_each(|one| hold(&mut peers, one, LITTLE_BYTES));
        peers.on_news(now, &mut shares[0].1, 0, None);
        assert_eq!(peers.next_turn(&shares[0].1), Some(ConnectionHandle(1)));
        peers.call(&mut shares[1].1);
        assert_eq!(shares[1].1.batches(), 1, "1 MiB a second");
        // At half of what is fast there is time for two of each; at 1.5 times of it, for more than
        // a turn may be.
        for (n, tenths) in [(2, 5), (3, 15), (4, 15), (5, 15)] {
            let rate = Rate::from_bytes_per_sec(FAST.bytes_per_sec() / 10 * tenths);
            peers.list.iter_mut().for_each(|(_, peer)| peer.rates[1] = rate);
            assert_eq!(peers.next_turn(&shares[0].1), Some(ConnectionHandle(n)));
            peers.call(&mut shares[n as usize].1);
        }
        assert_eq!([2, 3, 4, 5].map(|n| shares[n].1.batches()), [1, 4, 4, 4]);
        for n in 1..=BATCHES_OF_MANY {
            assert_ne!(peers.allowance_of(&shares[3].1).admission, Admission::Waits, "batch {n}");
            peers.on_polled(
                ConnectionHandle(3),
                &mut shares[3].1,
                n * BATCH_BYTES,
                polled(n == BATCHES_OF_MANY),
            );
        }
        assert_eq!(peers.allowance_of(&shares[3].1).admission, Admission::Waits, "it has had its turn");
        // The next have little to say, of which one is asked twice, and the first two are gone:
        // nothing is promised to anybody then.
        peers.on_polled(ConnectionHandle(4), &mut shares[4].1, 1000, polled(false));
        peers.on_polled(ConnectionHandle(4), &mut shares[4].1, 1000, polled(false));
        peers.on_polled(ConnectionHandle(5), &mut shares[5].1, 1000, polled(false));
        peers.on_polled(ConnectionHandle(5), &mut shares[5].1, 1000, Polled::default());
        shares[1..3].iter_mut().for_each(|(_, share)| peers.leave(share));
        assert_eq!(peers.list.iter().map(|(_, peer)| peer.called).collect::<Vec<_>>(), [0]);
    }
}
