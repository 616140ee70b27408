//! Blast: data goes in units that are answered as a whole. When the last of a unit is there, the
//! receiver asks once for all that it lacks of it; what is then sent again is the strategy's to say
//! (Zwaenepoel, "Protocols for Large Data Transfers over Local Networks", 1985, section 3.2).

use super::demand::{self, Demand, Gaps, Received};
use super::{LostData, Response, Retransmission, SentData};
use crate::feedback::BadFeedback;
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Need, Param, Params, Unasked, Unit};
use crate::time::Time;
use core::ops::Range;
use core::time::Duration;

/// Part that is sent again of a unit that has not arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    /// All of it, after a time-out: the receiver says nothing of what is missing.
    FullAfterTimeout,
    /// All of it, once the receiver asks.
    Full,
    /// All from the first that is missing.
    FromFirst,
    /// The missing part.
    Selective,
}

/// Orders that are remembered. Where there are more at a time, the one of the fewest passes is
/// forgotten.
const ORDERS_MAX: usize = 64;

/// Orders of a whole unit that may bring nothing: each pass loses some of what had come before. A
/// path that loses a packet in three passes of four ends one unit in a hundred so, and a queue that
/// drops the same packets of each pass ends every one.
const VAIN_MAX: u8 = 16;

/// The sender's half. See the module's page.
#[derive(Clone, Debug)]
pub struct Blast {
    unit_bytes: u64,
    strategy: Strategy,
    /// In a box, so that the slot is not larger for them.
    orders: Option<Box<Orders>>,
}

/// Orders to send something again, the oldest first: one for each unit that they begin in.
#[derive(Clone, Debug, Default)]
struct Orders(Vec<Order>);

impl Orders {
    /// Takes out the order that begins in this unit, and makes room for another.
    fn take(&mut self, unit: u64) -> Option<Order> {
        if let Some(index) = self.0.iter().position(|order| order.unit == unit) {
            return Some(self.0.remove(index));
        }
        if self.0.len() >= ORDERS_MAX {
            let fewest = self.0.iter().enumerate().min_by_key(|(_, order)| order.passes);
            fewest.map(|(index, _)| index).map(|index| self.0.remove(index));
        }
        None
    }
}

/// Positions that were ordered to be sent again; packets below the number were sent before.
#[derive(Clone, Debug)]
struct Order {
    /// Start of the unit that it begins in.
    unit: u64,
    /// Orders that were given for this unit, this one included.
    passes: u64,
    /// Orders of them that brought nothing.
    vain: u8,
    /// Bytes that had arrived for the first time before it.
    brought: u64,
    range: Range<u64>,
    before_packet: u64,
    /// All of it had left before this packet.
    left_before: u64,
}

impl Order {
    fn covers(&self, range: &Range<u64>) -> bool {
        self.range.start <= range.start && range.end <= self.range.end
    }

    /// True if packets behind it are reported, and nothing has arrived since that had not arrived
    /// before.
    fn was_in_vain(&self, flow: &SentData) -> bool {
        self.left_before < flow.acked_to && flow.brought == self.brought
    }

    /// True while some of it waits to be sent.
    fn waits(&self, flow: &SentData) -> bool {
        flow.repeats_from < self.range.end.min(flow.repeats_to) && self.range.start < flow.repeats_to
    }
}

impl Blast {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Retransmission,
        number: 4,
        name: "blast",
        what: "the receiver answers a unit of data as a whole, and the strategy says what is sent again of it",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[
            Param {
                name: "unit",
                unit: Unit::Kibibytes,
                default: 64,
                min: 1,
                max: 65_536,
                bold: Bold::Neither,
                what: "data that is answered as a whole",
            },
            Param {
                name: "strategy",
                unit: Unit::Count,
                default: 4,
                min: 1,
                max: 4,
                bold: Bold::Neither,
                what: "what is repeated: 1 = the unit, after a time-out; 2 = the unit; 3 = from the first missing; \
                       4 = what is missing",
            },
        ],
        needs: &[Need::Present(Function::Acknowledgement)],
        facts: Facts { speaks: true, unasked: Unasked::Never, ..super::REPEATS },
        predict: |params, facts, p| {
            let packets = (f64::from(params.get(0)) * 1024.0 / facts.mtu_bytes.max(1) as f64).max(1.0);
            // Packets that a lost one repeats: its unit, the half of it behind the loss, or itself.
            let repeats = match params.get(1) {
                1 | 2 => packets,
                3 => packets / 2.0,
                _ => 1.0,
            };
            p.expansion *= 1.0 + p.loss * (repeats - 1.0);
            // The answer waits for the end of the unit.
            p.delay_s += p.loss * facts.packet_time().as_secs_f64() * packets / 2.0;
            super::predict_repeats(facts, p);
            p.cpu_ns += 15.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        let strategy = match params.get(1) {
            1 => Strategy::FullAfterTimeout,
            2 => Strategy::Full,
            3 => Strategy::FromFirst,
            _ => Strategy::Selective,
        };
        Blast { unit_bytes: unit_bytes(params), strategy, orders: None }
    }

    /// The unit that a position is in, as far as it has been sent.
    fn unit_of(&self, position: u64, flow: &SentData) -> Range<u64> {
        let start = position - position % self.unit_bytes;
        start..start.saturating_add(self.unit_bytes).min(flow.sent_to)
    }

    fn is_covered(&self, by: impl Fn(&Order) -> bool) -> bool {
        self.orders.as_deref().is_some_and(|orders| orders.0.iter().any(by))
    }

    /// Positions to send again because these are missing (retransmission.md R-18).
    fn order(&mut self, missing: &Range<u64>, flow: &SentData) -> Range<u64> {
        // What ends in another unit is as good as missing there, too.
        let (first, last) =
            (self.unit_of(missing.start, flow), self.unit_of(missing.end.saturating_sub(1), flow));
        let whole = match self.strategy {
            Strategy::FullAfterTimeout | Strategy::Full => first.start..last.end,
            Strategy::FromFirst => missing.start..last.end,
            Strategy::Selective => missing.clone(),
        };
        let orders = self.orders.get_or_insert_default();
        let last_order = orders.take(first.start);
        let vain = last_order.as_ref().map_or(0, |order| order.vain + u8::from(order.was_in_vain(flow)));
        let range = if vain < VAIN_MAX { whole } else { missing.clone() };
        orders.0.push(Order {
            unit: first.start,
            passes: last_order.map_or(0, |order| order.passes) + 1,
            vain: vain.min(VAIN_MAX),
            brought: flow.brought,
            range: range.clone(),
            before_packet: flow.next_packet,
            left_before: flow.next_packet,
        });
        range
    }
}

fn unit_bytes(params: &Params) -> u64 {
    u64::from(params.get(0)).max(1) * 1024
}

impl Retransmission for Blast {
    fn on_lost(&mut self, lost: &LostData) -> Response {
        let SentData { now, timeout, heard_to, .. } = lost.flow;
        // retransmission.md R-19.
        if self.is_covered(|order| lost.packet < order.before_packet && order.covers(&lost.range)) {
            return Response::Covered;
        }
        // retransmission.md R-17: the answer to the unit is waited for, if one can come.
        let is_silent = self.strategy == Strategy::FullAfterTimeout;
        if !lost.has_waited && (is_silent || lost.range.end <= heard_to) {
            return Response::Wait(now + timeout);
        }
        Response::Repeat(self.order(&lost.range, &lost.flow))
    }

    fn unit(&self) -> Option<u64> {
        // retransmission.md R-18.
        (self.strategy != Strategy::Selective).then_some(self.unit_bytes)
    }

    fn demand(&self) -> Option<Box<dyn Demand>> {
        let unit_bytes = self.unit_bytes;
        (self.strategy != Strategy::FullAfterTimeout)
            .then(|| Box::new(Answer { unit_bytes, gaps: Gaps::default() }) as Box<dyn Demand>)
    }

    fn on_feedback(&mut self, words: &[u8], flow: &SentData) -> Result<Vec<Range<u64>>, BadFeedback> {
        let missing = demand::read_ranges(words).ok_or(BadFeedback { mechanism: Self::INFO.name })?;
        // Where an order takes long to leave, its first packets are reported before its last are
        // sent: it would begin again for ever.
        let orders = self.orders.iter_mut().flat_map(|orders| &mut orders.0);
        orders.filter(|order| order.waits(flow)).for_each(|order| order.left_before = flow.next_packet);
        let sent = missing.iter().filter(|range| range.end <= flow.sent_to);
        let mut orders: Vec<Range<u64>> = Vec::new();
        for range in sent {
            // retransmission.md R-19: it asks again before what it asked for can be there.
            let is_unanswered = |order: &Order| flow.acked_to <= order.left_before && order.covers(range);
            if self.strategy != Strategy::Selective && self.is_covered(is_unanswered) {
                continue;
            }
            // One order for a unit is enough, unless each asks for itself.
            if orders.last().is_none_or(|order| range.end > order.end) {
                orders.push(self.order(range, flow));
            }
        }
        Ok(orders)
    }
}

/// The receiver's half: answers units, once their last data is there.
#[derive(Clone, Debug)]
struct Answer {
    unit_bytes: u64,
    gaps: Gaps,
}

impl Demand for Answer {
    fn look(&mut self, flow: &mut Received<'_>) {
        // retransmission.md R-16.
        let over = if flow.is_ended { flow.reaches } else { flow.reaches - flow.reaches % self.unit_bytes };
        let missing = flow.missing.map_while(|gap| {
            let end = gap.end.min(over);
            (gap.start < end).then_some(gap.start..end)
        });
        self.gaps.update(flow.now, missing, Duration::ZERO);
    }

    fn take(&mut self, now: Time, rtt: Duration) -> Vec<Range<u64>> {
        self.gaps.take_due(now, rtt)
    }

    fn due(&self) -> Option<Time> {
        self.gaps.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 4096;
    const TIMEOUT: Duration = Duration::from_millis(100);

    fn blast(strategy: u32) -> Blast {
        Blast::build(&Params([4, strategy, 0, 0]), ())
    }

    fn flow(next_packet: u64) -> SentData {
        SentData {
            now: Time::from_millis(1000),
            timeout: TIMEOUT,
            sent_to: 3 * UNIT,
            heard_to: 3 * UNIT,
            next_packet,
            acked_to: next_packet,
            repeats_from: 0,
            repeats_to: 0,
            brought: 0,
        }
    }

    fn words(ranges: &[Range<u64>]) -> Vec<u8> {
        let mut words = Vec::new();
        demand::emit_ranges(ranges, 255, &mut words);
        words
    }

    /// Two packets of the second unit are missing.
    const MISSING: [Range<u64>; 2] = [UNIT + 1000..UNIT + 2000, UNIT + 3000..UNIT + 4000];

    #[test]
    fn each_strategy_sends_again_what_it_says() {
        let unit = UNIT..2 * UNIT;
        let orders =
            |strategy: u32| blast(strategy).on_feedback(&words(&MISSING), &flow(50)).expect("ranges");
        assert_eq!(orders(2), core::slice::from_ref(&unit));
        assert_eq!(orders(3), [MISSING[0].start..unit.end]);
        assert_eq!(orders(4), MISSING);
        // Nobody asks under the first: the sender waits for a time-out.
        let mut silent = blast(1);
        assert!(silent.demand().is_none());
        let mut lost = LostData {
            range: MISSING[0].clone(),
            packet: 7,
            has_waited: false,
            losses: 1,
            age: Duration::ZERO,
            flow: flow(50),
        };
        assert_eq!(silent.on_lost(&lost), Response::Wait(Time::from_millis(1000) + TIMEOUT));
        lost.has_waited = true;
        assert_eq!(silent.on_lost(&lost), Response::Repeat(unit));
        lost.range = MISSING[1].clone();
        assert_eq!(silent.on_lost(&lost), Response::Covered, "the unit is under way again");
        lost.packet = 60;
        assert_eq!(silent.on_lost(&lost), Response::Repeat(UNIT..2 * UNIT), "that was lost again");
    }

    /// A queue that is shorter than the unit drops the end of each pass.
    #[test]
    fn a_unit_is_repeated_whole_as_long_as_that_brings_something() {
        for (strategy, whole) in [(1, UNIT..2 * UNIT), (2, UNIT..2 * UNIT), (3, UNIT + 1000..2 * UNIT)] {
            let mut blast = blast(strategy);
            let missing = UNIT + 1000..UNIT + 1512;
            let mut order = |packet, brought| {
                let flow = SentData { brought, acked_to: packet, ..flow(packet + 1) };
                let (range, losses, age) = (missing.clone(), 1, Duration::ZERO);
                blast.on_lost(&LostData { range, packet, has_waited: true, losses, age, flow })
            };
            for pass in 0..1000 {
                let ordered = order(100 * pass, pass);
                assert_eq!(ordered, Response::Repeat(whole.clone()), "strategy {strategy}, {pass}");
            }
            for pass in 1..u64::from(VAIN_MAX) {
                let ordered = order(100_000 + 100 * pass, 999);
                assert_eq!(ordered, Response::Repeat(whole.clone()), "strategy {strategy}, {pass} in vain");
            }
            assert_eq!(order(200_000, 999), Response::Repeat(missing.clone()), "strategy {strategy}");
            assert_eq!(order(200_100, 1000), Response::Repeat(missing.clone()), "strategy {strategy}");
        }
    }

    #[test]
    fn orders_are_bounded_and_the_worst_are_kept() {
        let mut blast = blast(2);
        let mut order = |unit: u64, packet| {
            let flow = SentData { sent_to: 1 << 30, acked_to: packet, ..flow(packet) };
            blast.order(&(unit * UNIT..unit * UNIT + 2048), &flow)
        };
        let mut packets = 1..;
        for pass in packets.by_ref().take(usize::from(VAIN_MAX)) {
            assert_eq!(order(0, pass), 0..UNIT);
        }
        for (unit, packet) in (1..3 * ORDERS_MAX as u64).zip(packets) {
            assert_eq!(order(unit, packet), unit * UNIT..(unit + 1) * UNIT);
        }
        assert_eq!(order(0, 1000), 0..2048);
        assert_eq!(blast.orders.map(|orders| orders.0.len()), Some(ORDERS_MAX));
    }

    #[test]
    fn an_ask_orders_nothing_again_until_what_it_ordered_is_reported() {
        for strategy in [2, 3] {
            let mut blast = blast(strategy);
            let mut ask = |acked_to| {
                let flow = SentData { acked_to, brought: acked_to, ..flow(50) };
                blast.on_feedback(&words(&MISSING), &flow).expect("ranges").len()
            };
            assert_eq!([ask(40), ask(40), ask(50), ask(51)], [1, 0, 0, 1], "strategy {strategy}");
        }
        assert_eq!([1, 2, 3, 4].map(|n| blast(n).unit()), [Some(UNIT), Some(UNIT), Some(UNIT), None]);
    }

    /// Units fail side by side, where several are under way at once.
    #[test]
    fn an_ask_for_two_units_orders_each_of_them_once() {
        for strategy in [2, 3] {
            let mut blast = blast(strategy);
            let both = [100..200, UNIT + 100..UNIT + 200];
            let mut ask = |missing: &[Range<u64>], next_packet, acked_to| {
                let flow = SentData { acked_to, brought: acked_to, ..flow(next_packet) };
                blast.on_feedback(&words(missing), &flow).expect("ranges").len()
            };
            assert_eq!(ask(&both[..1], 50, 40), 1, "strategy {strategy}");
            assert_eq!(ask(&both, 54, 41), 1, "strategy {strategy}: the first is under way");
            assert_eq!(ask(&both, 58, 42), 0, "strategy {strategy}: both are");
            assert_eq!(ask(&both, 58, 52), 1, "strategy {strategy}: the first has come, and not whole");
            assert_eq!(ask(&both, 62, 56), 1, "strategy {strategy}: the second, too");
        }
    }

    /// A window of one packet: the receiver asks again while the order leaves packet by packet.
    #[test]
    fn an_ask_orders_nothing_again_while_the_order_leaves() {
        for strategy in [2, 3] {
            let mut blast = blast(strategy);
            let mut ask = |next_packet, acked_to, repeats_from| {
                let (repeats_to, brought) = (2 * UNIT, acked_to);
                let flow = SentData { acked_to, repeats_from, repeats_to, brought, ..flow(next_packet) };
                blast.on_feedback(&words(&MISSING), &flow).expect("ranges").len()
            };
            assert_eq!(ask(50, 50, 2 * UNIT), 1, "strategy {strategy}");
            for sent in 1..4 {
                assert_eq!(ask(50 + sent, 50 + sent, UNIT + sent * 1000), 0, "strategy {strategy}");
            }
            assert_eq!(ask(54, 53, 2 * UNIT), 0, "strategy {strategy}: the last is under way");
            assert_eq!(ask(54, 54, 2 * UNIT), 1, "strategy {strategy}: the last is reported");
        }
    }

    #[test]
    fn the_receiver_answers_a_unit_when_its_last_data_is_there() {
        let mut answer = blast(4).demand().expect("it answers");
        let mut ask = |reaches: u64, is_ended: bool| {
            let mut missing = MISSING.into_iter().chain([2 * UNIT + 500..2 * UNIT + 600]);
            let (now, rtt) = (Time::from_millis(5), Duration::from_millis(40));
            answer.look(&mut Received { now, reaches, is_ended, missing: &mut missing, rtt });
            answer.take(now, rtt)
        };
        assert!(ask(2 * UNIT - 1, false).is_empty(), "the unit is not over");
        assert_eq!(ask(2 * UNIT + 700, false), MISSING);
        assert!(ask(2 * UNIT + 900, false).is_empty(), "it was asked for a moment ago");
        assert_eq!(ask(2 * UNIT + 900, true), [2 * UNIT + 500..2 * UNIT + 600], "nothing more comes");
    }

    #[test]
    fn words_about_data_that_was_never_sent_order_nothing() {
        let mut blast = blast(3);
        assert_eq!(blast.on_feedback(&words(&[0..1, 9 * UNIT..10 * UNIT]), &flow(1)), Ok(vec![0..UNIT]));
        assert!(blast.on_feedback(&[0x80], &flow(1)).is_err());
    }
}
