//! A queue for each flow, each with controlled delay.
//!
//! FQ-CoDel as RFC 8290 specifies it (section 4): deficit round robin among the flows, those that
//! begin first, and CoDel on each. Each flow has a queue of its own here (the RFC hashes them into
//! 1024). A full buffer drops from the head of the flow that has most bytes.

use super::codel::{CoDel, CoDelQueue};
use super::{Arrival, QueueDiscipline, Verdict, Waiting};
use crate::error::SpecError;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Bytes that a flow may send in its turn (section 5.2.4).
const QUANTUM_BYTES: i64 = 1514;

/// Settings of FQ-CoDel: those of each flow's CoDel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FqCoDel(pub CoDel);

impl FqCoDel {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        self.0.check()
    }
}

impl fmt::Display for FqCoDel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fq_codel")?;
        self.0.write_arguments(f)
    }
}

/// A flow with packets in the queue. It is forgotten when its turn comes and nothing waits.
#[derive(Debug)]
struct Flow {
    codel: CoDelQueue,
    deficit_bytes: i64,
    packets: u64,
    bytes: u64,
}

#[derive(Debug)]
pub(super) struct FqCoDelQueue {
    settings: CoDel,
    flows: BTreeMap<u64, Flow>,
    /// Flows in the order of their turns: those that have begun, and the others.
    new_flows: VecDeque<u64>,
    old_flows: VecDeque<u64>,
    /// The flow of the head.
    chosen: u64,
    /// The biggest packet seen, which stands for the MTU.
    biggest_bytes: u64,
}

impl FqCoDelQueue {
    pub(super) fn new(settings: FqCoDel) -> Self {
        FqCoDelQueue {
            settings: settings.0,
            flows: BTreeMap::new(),
            new_flows: VecDeque::new(),
            old_flows: VecDeque::new(),
            chosen: 0,
            biggest_bytes: 0,
        }
    }

    /// The flow whose turn it is (section 4.2); `None` if nothing waits.
    fn turn(&mut self) -> Option<u64> {
        loop {
            let is_new = !self.new_flows.is_empty();
            let list = if is_new { &mut self.new_flows } else { &mut self.old_flows };
            let number = *list.front()?;
            let Some(flow) = self.flows.get_mut(&number) else {
                list.pop_front();
                continue;
            };
            if flow.deficit_bytes <= 0 {
                flow.deficit_bytes += QUANTUM_BYTES;
                list.pop_front();
                self.old_flows.push_back(number);
            } else if flow.packets > 0 {
                return Some(number);
            } else {
                list.pop_front();
                // One that begins again and again is not to overtake the others for ever.
                if is_new && !self.old_flows.is_empty() {
                    self.old_flows.push_back(number);
                } else {
                    self.flows.remove(&number);
                }
            }
        }
    }
}

impl QueueDiscipline for FqCoDelQueue {
    fn on_arrival(&mut self, arrival: &Arrival, _: &mut dyn FnMut() -> bool, _: &mut ChaCha8Rng) -> Verdict {
        self.biggest_bytes = self.biggest_bytes.max(arrival.bytes);
        Verdict::PASS
    }

    fn victim(&mut self, waiting: &mut Waiting<'_>, _: &mut ChaCha8Rng) -> Option<usize> {
        let (fattest, _) = self.flows.iter().max_by_key(|(_, flow)| flow.bytes)?;
        position(waiting, *fattest)
    }

    fn is_by_flow(&self) -> bool {
        true
    }

    fn on_push(&mut self, number: u64, bytes: u64) {
        let (settings, new_flows) = (self.settings, &mut self.new_flows);
        let flow = self.flows.entry(number).or_insert_with(|| {
            new_flows.push_back(number);
            Flow { codel: CoDelQueue::new(settings), deficit_bytes: QUANTUM_BYTES, packets: 0, bytes: 0 }
        });
        flow.packets += 1;
        flow.bytes += bytes;
        flow.codel.note_packet(self.biggest_bytes);
    }

    fn choose(&mut self, waiting: &mut Waiting<'_>) -> usize {
        let Some(chosen) = self.turn() else { return 0 };
        self.chosen = chosen;
        position(waiting, chosen).unwrap_or(0)
    }

    fn on_start(
        &mut self,
        now_ns: u64,
        sojourn_ns: u64,
        head_bytes: u64,
        _: u64,
        mark: &mut dyn FnMut() -> bool,
    ) -> Verdict {
        let Some(flow) = self.flows.get_mut(&self.chosen) else { return Verdict::PASS };
        let behind_bytes = flow.bytes.saturating_sub(head_bytes);
        let verdict = flow.codel.on_start(now_ns, sojourn_ns, head_bytes, behind_bytes, mark);
        if let Verdict::Pass { .. } = verdict {
            flow.deficit_bytes = flow.deficit_bytes.saturating_sub(head_bytes.min(u32::MAX.into()) as i64);
        }
        verdict
    }

    fn on_leave(&mut self, number: u64, bytes: u64) {
        let Some(flow) = self.flows.get_mut(&number) else { return };
        flow.packets = flow.packets.saturating_sub(1);
        flow.bytes = flow.bytes.saturating_sub(bytes);
        if flow.packets == 0 {
            flow.codel.on_empty(0);
        }
    }
}

/// The first packet of a flow.
fn position(waiting: &mut Waiting<'_>, flow: u64) -> Option<usize> {
    waiting.enumerate().find(|(_, other)| *other == flow).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// Flows of packets that wait, and their bytes, as the transmitter has them.
    struct Line {
        queue: FqCoDelQueue,
        packets: Vec<(u64, u64)>,
    }

    impl Line {
        fn new() -> Self {
            Line { queue: FqCoDelQueue::new(FqCoDel::default()), packets: Vec::new() }
        }

        fn push(&mut self, flow: u64, bytes: u64) {
            self.queue.on_push(flow, bytes);
            self.packets.push((flow, bytes));
        }

        fn take(&mut self) -> Option<u64> {
            if self.packets.is_empty() {
                return None;
            }
            let flows: Vec<u64> = self.packets.iter().map(|(flow, _)| *flow).collect();
            let chosen = self.queue.choose(&mut flows.into_iter());
            let (flow, bytes) = self.packets.remove(chosen);
            assert_eq!(self.queue.on_start(0, 0, bytes, 0, &mut || false), Verdict::PASS);
            self.queue.on_leave(flow, bytes);
            Some(flow)
        }

        fn take_all(&mut self) -> Vec<u64> {
            std::iter::from_fn(|| self.take()).collect()
        }
    }

    #[test]
    fn flows_take_turns_by_bytes_and_new_ones_go_first() {
        let mut line = Line::new();
        for _ in 0..4 {
            line.push(1, 1514);
        }
        for _ in 0..8 {
            line.push(2, 757);
        }
        // A quantum each: one of the big ones, two of the small.
        assert_eq!(line.take_all(), [1, 2, 2, 1, 2, 2, 1, 2, 2, 1, 2, 2]);
        for _ in 0..4 {
            line.push(1, 1514);
        }
        assert_eq!([line.take(), line.take()], [Some(1), Some(1)]);
        line.push(3, 100);
        assert_eq!(line.take(), Some(3), "one that begins does not wait");
        assert_eq!(line.take_all(), [1, 1]);
        assert!(line.queue.turn().is_none() && line.queue.flows.is_empty(), "what is over is forgotten");
    }

    #[test]
    fn one_that_begins_again_and_again_does_not_starve_others() {
        let mut line = Line::new();
        for _ in 0..100 {
            line.push(1, 1514);
        }
        let mut served = Vec::new();
        for _ in 0..50 {
            line.push(2, 1514);
            served.extend(line.take());
        }
        let share = served.iter().filter(|flow| **flow == 1).count();
        assert!((20..=30).contains(&share), "{share} of 50");
    }

    #[test]
    fn the_fattest_flow_makes_room() {
        let mut line = Line::new();
        line.push(7, 100);
        line.push(8, 1000);
        line.push(7, 100);
        line.push(8, 1000);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        assert_eq!(line.queue.victim(&mut [7, 8, 7, 8].into_iter(), &mut rng), Some(1));
        // Its packet is being transmitted: the one that comes goes.
        assert_eq!(line.queue.victim(&mut [7, 7].into_iter(), &mut rng), None);
    }
}
