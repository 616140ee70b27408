//! Order of sending among the flows of a connection (RFC 8260 section 3, RFC 9622 section 8.1.5).
//!
//! Each flow has a tag, a virtual time. What it sends moves its tag on, by the more the smaller its
//! share is, and the flow with the smallest tag is next (start-time fair queueing: P. Goyal,
//! H. Vin and H. Cheng, "Start-time Fair Queueing", SIGCOMM 1996).

use crate::requirements::Scheduler;
use std::collections::BTreeSet;
use uts_functions::Time;

/// A flow's place in the order of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// When its next data is due in virtual time. It is kept while the flow has nothing to send, so
    /// that pauses earn nothing.
    tag: u64,
    /// Its rank, if it is in the order: smaller ones go first, whatever their tags are.
    rank: Option<u64>,
}

impl Turn {
    /// True if the flow is in the order.
    pub const fn is_on(self) -> bool {
        self.rank.is_some()
    }
}

/// The flows of a connection that have something to send.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Rank, tag, priority, id: the first is next.
    places: BTreeSet<(u64, u64, u8, u32)>,
    /// Virtual time: the tag of the flow that was served last.
    now: u64,
}

impl Order {
    /// A flow has something to send. `deadline` = when the first of its messages will be given up.
    pub fn enter(
        &mut self,
        scheduler: Scheduler,
        (id, priority): (u32, u8),
        turn: &mut Turn,
        deadline: impl FnOnce() -> Option<Time>,
    ) {
        let rank = match scheduler {
            Scheduler::WeightedFairQueueing | Scheduler::FairCapacity => 0,
            Scheduler::Priority => priority.into(),
            Scheduler::EarliestDeadline => {
                deadline().map_or(u64::MAX, |at| at.since(Time::ZERO).as_nanos() as u64)
            }
        };
        if turn.rank == Some(rank) {
            return;
        }
        self.leave((id, priority), turn);
        *turn = Turn { tag: turn.tag.max(self.now), rank: Some(rank) };
        self.places.insert((rank, turn.tag, priority, id));
    }

    /// A flow has nothing to send.
    pub fn leave(&mut self, (id, priority): (u32, u8), turn: &mut Turn) {
        if let Some(rank) = turn.rank.take() {
            self.places.remove(&(rank, turn.tag, priority, id));
        }
    }

    /// A flow has had its turn, and sent so many bytes. If it sent none it goes behind the others.
    pub fn serve(&mut self, scheduler: Scheduler, (id, priority): (u32, u8), turn: &mut Turn, bytes: u64) {
        if self.places.len() < 2 && turn.rank.is_some() {
            return;
        }
        // What a byte costs is the reciprocal of a flow's share.
        let cost = match scheduler {
            Scheduler::WeightedFairQueueing | Scheduler::EarliestDeadline => u64::from(priority) + 1,
            Scheduler::FairCapacity | Scheduler::Priority => 1,
        };
        let rank = turn.rank;
        self.leave((id, priority), turn);
        self.now = self.now.max(turn.tag);
        turn.tag = turn.tag.saturating_add(bytes.saturating_mul(cost));
        if bytes == 0
            && let Some((_, last, ..)) = self.places.last()
        {
            turn.tag = turn.tag.max(last.saturating_add(1));
        }
        if let Some(rank) = rank {
            turn.rank = Some(rank);
            self.places.insert((rank, turn.tag, priority, id));
        }
    }

    /// Flows in the order in which they may send.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.places.iter().map(|(.., id)| *id)
    }

    /// The flow that has something to send, if it is one alone.
    pub fn only(&self) -> Option<u32> {
        if self.places.len() == 1 { self.iter().next() } else { None }
    }

    /// Number of flows that have something to send.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Gives back memory that nothing is in: a tree that has become empty keeps a node.
    pub fn shrink(&mut self) {
        if self.places.is_empty() {
            self.places = BTreeSet::new();
        }
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.places.len() * size_of::<(u64, u64, u8, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flows of these priorities that always have something to send, and how many bytes each sent.
    struct Flows {
        scheduler: Scheduler,
        order: Order,
        flows: Vec<(u8, Turn, u64)>,
    }

    impl Flows {
        fn new(scheduler: Scheduler, priorities: &[u8]) -> Self {
            let flows = priorities.iter().map(|priority| (*priority, Turn::default(), 0)).collect();
            let mut flows = Flows { scheduler, order: Order::default(), flows };
            (0..priorities.len()).for_each(|id| flows.enter(id, None));
            flows
        }

        fn enter(&mut self, id: usize, deadline_ms: Option<u64>) {
            let (priority, turn, _) = &mut self.flows[id];
            self.order
                .enter(self.scheduler, (id as u32, *priority), turn, || deadline_ms.map(Time::from_millis));
        }

        fn leave(&mut self, id: usize) {
            let (priority, turn, _) = &mut self.flows[id];
            self.order.leave((id as u32, *priority), turn);
        }

        /// The next flow sends so many bytes.
        fn send(&mut self, bytes: u64) -> usize {
            let id = self.order.iter().next().expect("one has something to send");
            let (priority, turn, sent) = &mut self.flows[id as usize];
            *sent += bytes;
            self.order.serve(self.scheduler, (id, *priority), turn, bytes);
            id as usize
        }

        fn shares(&self) -> Vec<f64> {
            let all: u64 = self.flows.iter().map(|(_, _, sent)| sent).sum();
            self.flows.iter().map(|(_, _, sent)| *sent as f64 / all as f64).collect()
        }
    }

    fn assert_shares(flows: &Flows, expected: &[f64]) {
        let shares = flows.shares();
        let near = shares.iter().zip(expected).all(|(share, expected)| (share / expected - 1.0).abs() < 0.02);
        assert!(near, "{shares:?}, not {expected:?}");
    }

    #[test]
    fn shares_are_as_the_weights_whatever_the_packets_are() {
        let mut flows = Flows::new(Scheduler::WeightedFairQueueing, &[0, 1, 3]);
        let mut seed = 7_u64;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            flows.send(40 + (seed >> 33) % 1400);
        }
        assert_shares(&flows, &[4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0]);
        let mut flows = Flows::new(Scheduler::FairCapacity, &[0, 1, 3]);
        (0..9000).for_each(|n| {
            flows.send(100 + n % 7 * 200);
        });
        assert_shares(&flows, &[1.0 / 3.0; 3]);
    }

    #[test]
    fn a_flow_that_pauses_neither_earns_nor_loses_by_it() {
        let mut flows = Flows::new(Scheduler::WeightedFairQueueing, &[100, 100]);
        flows.leave(1);
        (0..500).for_each(|_| {
            flows.send(1000);
        });
        flows.enter(1, None);
        let next: Vec<usize> = (0..10).map(|_| flows.send(1000)).collect();
        assert!(next.iter().filter(|id| **id == 1).count().abs_diff(5) <= 1, "{next:?}");
        // One that has little to send has its turn at once each time.
        for _ in 0..100 {
            flows.leave(1);
            (0..5).for_each(|_| {
                flows.send(1000);
            });
            flows.enter(1, None);
            assert!((0..2).any(|_| flows.send(100) == 1));
        }
    }

    #[test]
    fn the_most_important_go_first_or_those_that_will_be_given_up_first() {
        let mut flows = Flows::new(Scheduler::Priority, &[5, 1, 1]);
        let first: Vec<usize> = (0..4).map(|_| flows.send(1000)).collect();
        assert_eq!(first, [1, 2, 1, 2]);
        let mut flows = Flows::new(Scheduler::EarliestDeadline, &[0, 100, 100]);
        flows.enter(1, Some(70));
        flows.enter(2, Some(50));
        assert_eq!(flows.send(1000), 2);
        flows.enter(2, Some(90));
        assert_eq!([flows.send(1000), flows.send(1000)], [1, 1]);
        flows.leave(1);
        flows.leave(2);
        assert_eq!(flows.send(1000), 0, "what has no deadline goes last");
    }

    #[test]
    fn a_flow_that_can_send_nothing_holds_up_no_other() {
        let mut flows = Flows::new(Scheduler::WeightedFairQueueing, &[0, 255, 255]);
        let next: Vec<usize> = [0, 1200, 1200].iter().map(|bytes| flows.send(*bytes)).collect();
        assert_eq!(next, [0, 1, 2]);
    }
}
