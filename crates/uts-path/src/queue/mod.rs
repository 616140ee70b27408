//! The bottleneck: packets that wait, the discipline that decides which of them go, and the server.

mod codel;
mod drop_row;
mod drop_tail;
mod fq_codel;
mod pie;
mod police;
mod random_drop;
mod red;

pub use codel::CoDel;
pub use fq_codel::FqCoDel;
pub use pie::Pie;
pub use police::Police;
pub use red::Red;

use crate::error::SpecError;
use crate::line::Framed;
use crate::passage::{DropReason, Passage};
use crate::server::{Server, Supply};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

/// Ways in which a queue sheds packets. All but `fq_codel` serve first come, first served, and none
/// takes more than [`buffer`](crate::LinkConfig::buffer) holds.
///
/// Text form, in TOML too: `droptail`, `row:4`, `random`, `red:5p,15p,0.1`, `codel`, `fq_codel`,
/// `pie`, `police:10mbit,64kB`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Discipline {
    /// `droptail`: the packet that finds no room goes.
    #[default]
    DropTail,
    /// `row:N`: the packet that finds no room goes, and those that come behind it, N in all, at
    /// most 1000.
    DropRow(u32),
    /// `random`: one of those that wait or of the one that finds no room goes, each as likely
    /// (random drop for congestion recovery: RFC 1254; Mankin, SIGCOMM 1990). The packet in
    /// transmission stays.
    RandomDrop,
    /// `red:MIN,MAX,MAX_P[,WEIGHT][,gentle][,noecn]`: random early detection.
    Red(Red),
    /// `codel[:TARGET,INTERVAL][,noecn]`: controlled delay.
    CoDel(CoDel),
    /// `fq_codel[:TARGET,INTERVAL][,noecn]`: a queue for each flow, each with controlled delay.
    FqCoDel(FqCoDel),
    /// `pie[:TARGET][,noecn]`: proportional integral controller enhanced.
    Pie(Pie),
    /// `police:RATE,BURST`: what is beyond a rate goes at once, and nothing waits for it.
    Police(Police),
}

impl Discipline {
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        match self {
            Discipline::DropTail | Discipline::RandomDrop => Ok(()),
            Discipline::DropRow(row) if (1..=drop_row::ROW_MAX).contains(row) => Ok(()),
            Discipline::DropRow(_) => {
                Err(SpecError::new("queue", format!("row must be of 1 to {} packets", drop_row::ROW_MAX)))
            }
            Discipline::Red(red) => red.check(),
            Discipline::CoDel(codel) => codel.check(),
            Discipline::FqCoDel(fq) => fq.check(),
            Discipline::Pie(pie) => pie.check(),
            Discipline::Police(police) => police.check(),
        }
    }

    /// Makes one at work; it lives as long as the setting.
    pub(crate) fn build(&self) -> Box<dyn QueueDiscipline> {
        match self {
            Discipline::DropTail => Box::new(drop_tail::DropTailQueue),
            Discipline::DropRow(row) => Box::new(drop_row::DropRowQueue::new(*row)),
            Discipline::RandomDrop => Box::new(random_drop::RandomDropQueue),
            Discipline::Red(red) => Box::new(red::RedQueue::new(*red)),
            Discipline::CoDel(codel) => Box::new(codel::CoDelQueue::new(*codel)),
            Discipline::FqCoDel(fq) => Box::new(fq_codel::FqCoDelQueue::new(*fq)),
            Discipline::Pie(pie) => Box::new(pie::PieQueue::new(*pie)),
            Discipline::Police(police) => Box::new(police::PoliceQueue::new(*police)),
        }
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Discipline::DropTail => f.write_str("droptail"),
            Discipline::DropRow(row) => write!(f, "row:{row}"),
            Discipline::RandomDrop => f.write_str("random"),
            Discipline::Red(red) => red.fmt(f),
            Discipline::CoDel(codel) => codel.fmt(f),
            Discipline::FqCoDel(fq) => fq.fmt(f),
            Discipline::Pie(pie) => pie.fmt(f),
            Discipline::Police(police) => police.fmt(f),
        }
    }
}

impl FromStr for Discipline {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, arguments) = match text.split_once(':') {
            Some((name, arguments)) => (name, Some(arguments)),
            None => (text, None),
        };
        let read = match (name, arguments) {
            ("droptail", None) => Ok(Discipline::DropTail),
            ("row", Some(row)) => match row.parse() {
                Ok(row) => Ok(Discipline::DropRow(row)),
                Err(_) => Err("row must be a number of packets, as in row:4".into()),
            },
            ("random", None) => Ok(Discipline::RandomDrop),
            ("red", Some(arguments)) => Red::parse(arguments).map(Discipline::Red),
            ("codel", _) => CoDel::parse(arguments).map(Discipline::CoDel),
            ("fq_codel", _) => CoDel::parse(arguments).map(|codel| Discipline::FqCoDel(FqCoDel(codel))),
            ("pie", _) => Pie::parse(arguments).map(Discipline::Pie),
            ("police", Some(arguments)) => Police::parse(arguments).map(Discipline::Police),
            _ => Err("must be droptail, row:N, random, red:MIN,MAX,MAX_P as in red:5p,15p,0.1, codel, \
                          fq_codel, pie, or police:RATE,BURST as in police:10mbit,64kB"
                .into()),
        };
        read.map_err(|reason| SpecError::new("queue", reason))
    }
}

impl From<Discipline> for String {
    fn from(discipline: Discipline) -> String {
        discipline.to_string()
    }
}

impl TryFrom<String> for Discipline {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

/// Decision of a discipline about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass { marked: bool },
    Drop(DropReason),
}

impl Verdict {
    pub(crate) const PASS: Verdict = Verdict::Pass { marked: false };
}

/// A packet that comes, and what it finds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub now_ns: u64,
    /// Bytes of the packet, overhead included.
    pub bytes: u64,
    /// Packets in the queue without it, the one in transmission included.
    pub queue_packets: u64,
    /// Their bytes.
    pub queue_bytes: u64,
    /// The link's rate; `None` is infinite.
    pub rate_bps: Option<u64>,
}

/// Packets that wait, by their flows.
pub(crate) type Waiting<'w> = dyn ExactSizeIterator<Item = u64> + 'w;

/// A discipline at work. `mark` marks the packet in question if it can be, and says whether it is.
pub(crate) trait QueueDiscipline: fmt::Debug + Send {
    /// A packet comes; whether there is room for it is not asked here.
    fn on_arrival(
        &mut self,
        _arrival: &Arrival,
        _mark: &mut dyn FnMut() -> bool,
        _rng: &mut ChaCha8Rng,
    ) -> Verdict {
        Verdict::PASS
    }

    /// There is no room: which of `waiting` packets, given by their flows in the order in which
    /// they came, goes; `None` is the one that comes.
    fn victim(&mut self, _waiting: &mut Waiting<'_>, _rng: &mut ChaCha8Rng) -> Option<usize> {
        None
    }

    /// True if it tells flows apart. Otherwise all packets count as of one.
    fn is_by_flow(&self) -> bool {
        false
    }

    /// A packet of this flow has been taken in.
    fn on_push(&mut self, _flow: u64, _bytes: u64) {}

    /// A transmission may begin: which of `waiting` packets, given by their flows in the order in
    /// which they came, is the head. There is one.
    fn choose(&mut self, _waiting: &mut Waiting<'_>) -> usize {
        0
    }

    /// A packet of this flow has gone, transmitted or dropped.
    fn on_leave(&mut self, _flow: u64, _bytes: u64) {}

    /// The head's transmission would begin, `sojourn_ns` after its arrival; it has `head_bytes`,
    /// and `bytes` wait behind it.
    fn on_start(
        &mut self,
        _now_ns: u64,
        _sojourn_ns: u64,
        _head_bytes: u64,
        _bytes: u64,
        _mark: &mut dyn FnMut() -> bool,
    ) -> Verdict {
        Verdict::PASS
    }

    /// The last packet has left.
    fn on_empty(&mut self, _now_ns: u64) {}
}

/// A packet that waits or is being transmitted.
#[derive(Debug, Clone)]
pub(crate) struct Queued<T> {
    pub payload: T,
    /// The frame that stands for it on a line with compression, from when its transmission begins.
    pub frame: Option<Box<Framed>>,
    /// Its flow; the transmitter fills it in if its discipline asks.
    pub flow: u64,
    /// Bytes that it takes in the buffer.
    pub cost_bytes: u64,
    /// Bits that it takes on the wire.
    pub wire_bits: u64,
    /// Its way so far; the transmitter fills in when it starts and leaves.
    pub passage: Passage,
}

/// The queue and its server.
///
/// The head packet waits until its transmission starts; from then on it cannot be dropped.
#[derive(Debug)]
pub(crate) struct Transmitter<T> {
    server: Server,
    discipline: Box<dyn QueueDiscipline>,
    packets: VecDeque<Queued<T>>,
    bytes: u64,
    /// The head packet is being transmitted.
    started: bool,
}

impl<T: crate::Payload> Transmitter<T> {
    pub(crate) fn new(supply: Supply, discipline: &Discipline) -> Self {
        Transmitter {
            server: Server::new(supply),
            discipline: discipline.build(),
            packets: VecDeque::new(),
            bytes: 0,
            started: false,
        }
    }

    pub(crate) fn packets(&self) -> u64 {
        self.packets.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Packets and bytes that no discipline can drop: those of the packet in transmission.
    pub(crate) fn fixed(&self) -> (u64, u64) {
        self.packets.front().filter(|_| self.started).map_or((0, 0), |head| (1, head.cost_bytes))
    }

    /// Asks the discipline about an arriving packet. All that is due by `now_ns` must have been
    /// taken.
    pub(crate) fn judge(
        &mut self,
        now_ns: u64,
        bytes: u64,
        mark: &mut dyn FnMut() -> bool,
        rng: &mut ChaCha8Rng,
    ) -> Verdict {
        let arrival = Arrival {
            now_ns,
            bytes,
            queue_packets: self.packets(),
            queue_bytes: self.bytes,
            rate_bps: self.server.rate_bps(),
        };
        self.discipline.on_arrival(&arrival, mark, rng)
    }

    /// Takes out the packet that is to make room; `None` if it is the one that comes.
    pub(crate) fn make_room(&mut self, now_ns: u64, rng: &mut ChaCha8Rng) -> Option<Queued<T>> {
        let fixed = usize::from(self.started);
        let waiting = &mut self.packets.range(fixed..).map(|packet| packet.flow);
        let chosen = self.discipline.victim(waiting, rng)?;
        let mut packet = self.packets.remove(fixed + chosen)?;
        self.bytes -= packet.cost_bytes;
        self.discipline.on_leave(packet.flow, packet.cost_bytes);
        packet.passage.started_ns = now_ns;
        packet.passage.left_ns = now_ns;
        Some(packet)
    }

    /// Appends a packet. All that is due by `now_ns` must have been taken.
    pub(crate) fn push(&mut self, now_ns: u64, mut packet: Queued<T>) {
        if self.packets.is_empty() {
            self.server.wake(now_ns);
        }
        self.bytes += packet.cost_bytes;
        enter(&mut *self.discipline, &mut packet);
        self.packets.push_back(packet);
    }

    /// Before when no packet is transmitted, if there is one.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let head = self.packets.front()?;
        // One that has not started may yet be dropped, and the next be a short one.
        Some(if self.started { self.server.finish_ns(head.wire_bits) } else { self.server.start_ns() })
    }

    /// The next packet to leave the queue by `now_ns`: transmitted, or dropped as its passage says.
    /// `start` is told of each whose transmission begins. It may drop it, and may change what it
    /// takes on the wire.
    pub(crate) fn pop(
        &mut self,
        now_ns: u64,
        start: &mut dyn FnMut(&mut Queued<T>) -> Result<(), DropReason>,
    ) -> Option<Queued<T>> {
        if !self.started {
            let start_ns = self.server.start_ns();
            if self.packets.is_empty() || start_ns > now_ns {
                return None;
            }
            self.server.serve_to(start_ns);
            self.bring_forward();
            let head = self.packets.front_mut()?;
            let Queued { payload, cost_bytes, passage, .. } = head;
            passage.started_ns = start_ns;
            let waiting = self.bytes - *cost_bytes;
            let mut mark = || passage.marked || payload.mark_ce();
            let sojourn_ns = start_ns - passage.arrived_ns;
            let dropped =
                match self.discipline.on_start(start_ns, sojourn_ns, *cost_bytes, waiting, &mut mark) {
                    Verdict::Pass { marked } => {
                        passage.marked |= marked;
                        start(head).err()
                    }
                    Verdict::Drop(reason) => Some(reason),
                };
            if dropped.is_some() {
                head.passage.dropped = dropped;
                return self.leave(start_ns);
            }
            self.started = true;
        }
        let head = self.packets.front()?;
        let finish_ns = self.server.finish_ns(head.wire_bits);
        if finish_ns > now_ns {
            return None;
        }
        self.server.finish(finish_ns, head.wire_bits);
        self.leave(finish_ns)
    }

    /// Brings the packet to the front that the discipline chooses to go next.
    fn bring_forward(&mut self) {
        let chosen = self.discipline.choose(&mut self.packets.iter().map(|packet| packet.flow));
        if chosen > 0
            && let Some(head) = self.packets.remove(chosen)
        {
            self.packets.push_front(head);
        }
    }

    /// Changes the server at `now_ns`; the packet in transmission keeps what it has left.
    /// All that is due by `now_ns` must have been taken.
    pub(crate) fn set_supply(&mut self, now_ns: u64, supply: Supply) {
        if self.packets.is_empty() {
            self.server.wake(now_ns);
        }
        self.server.set_supply(now_ns, supply);
    }

    /// Puts another discipline in the place of this one.
    pub(crate) fn set_discipline(&mut self, discipline: &Discipline) {
        self.discipline = discipline.build();
        self.packets.iter_mut().for_each(|packet| enter(&mut *self.discipline, packet));
    }

    fn leave(&mut self, at_ns: u64) -> Option<Queued<T>> {
        let mut packet = self.packets.pop_front()?;
        self.bytes -= packet.cost_bytes;
        self.discipline.on_leave(packet.flow, packet.cost_bytes);
        packet.passage.left_ns = at_ns;
        self.started = false;
        if self.packets.is_empty() {
            self.discipline.on_empty(at_ns);
        }
        Some(packet)
    }
}

/// Tells a discipline of a packet that is to wait.
fn enter<T: crate::Payload>(discipline: &mut dyn QueueDiscipline, packet: &mut Queued<T>) {
    packet.flow = if discipline.is_by_flow() { packet.payload.flow() } else { 0 };
    discipline.on_push(packet.flow, packet.cost_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_ns(server: &mut Transmitter<Vec<u8>>, now_ns: u64) -> Option<u64> {
        server.pop(now_ns, &mut |_| Ok(())).map(|p| p.passage.left_ns)
    }

    fn transmitter(supply: Supply) -> Transmitter<Vec<u8>> {
        Transmitter::new(supply, &Discipline::DropTail)
    }

    fn packet(now_ns: u64, cost_bytes: u64) -> Queued<Vec<u8>> {
        let passage = Passage::arriving(0, 0, now_ns, 0, 0);
        Queued { payload: Vec::new(), frame: None, flow: 0, cost_bytes, wire_bits: 8 * cost_bytes, passage }
    }

    #[test]
    fn a_rate_that_divides_badly_is_exact_in_the_long_run() {
        // 1000 bytes at 7 bit/s x 10^6: 1142857.142... ns each. A byte at 10 Tbit/s: 0.0008 ns.
        for (rate_bps, bytes, wanted_ns) in
            [(7_000_000, 1000, 8_000_000_000), (10_000_000_000_000, 1, 6), (3, 1, 18_666_666_666_667)]
        {
            let mut server = transmitter(Supply::Rate(rate_bps));
            for _ in 0..7000 {
                server.push(0, packet(0, bytes));
            }
            let mut last = 0;
            while let Some(at_ns) = left_ns(&mut server, u64::MAX) {
                last = at_ns;
            }
            assert_eq!(last, wanted_ns, "{rate_bps}");
            assert_eq!((server.packets(), server.bytes()), (0, 0));
        }
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut server = transmitter(Supply::Rate(8_000_000));
        server.push(0, packet(0, 1000));
        assert_eq!(left_ns(&mut server, 999_999), None);
        assert_eq!(left_ns(&mut server, 5_000_000), Some(1_000_000));
        server.push(5_000_000, packet(5_000_000, 1000));
        assert_eq!(left_ns(&mut server, 5_000_000), None);
        assert_eq!(server.next_ns(), Some(6_000_000));
    }

    #[test]
    fn a_rate_change_keeps_the_remaining_bits() {
        let mut server = transmitter(Supply::Rate(8_000_000));
        server.push(0, packet(0, 1000)); // 1 ms
        server.push(0, packet(0, 1000));
        assert_eq!(left_ns(&mut server, 250_000), None);
        server.set_supply(250_000, Supply::Rate(4_000_000)); // 750 bytes left: 1.5 ms
        assert_eq!(server.next_ns(), Some(1_750_000));
        assert_eq!(left_ns(&mut server, 1_750_000), Some(1_750_000));
        assert_eq!(left_ns(&mut server, 2_000_000), None);
        server.set_supply(2_000_000, Supply::Infinite);
        assert_eq!(left_ns(&mut server, 2_000_000), Some(2_000_000));
    }

    #[test]
    fn an_infinite_rate_takes_no_time() {
        let mut server = transmitter(Supply::Infinite);
        server.push(3, packet(3, u64::from(u32::MAX)));
        assert_eq!(left_ns(&mut server, 3), Some(3));
    }

    #[test]
    fn disciplines_print_as_they_are_read() {
        for text in [
            "droptail",
            "random",
            "red:5p,15p,0.1",
            "red:7500B,30kB,0.02,0.005,gentle,noecn",
            "red:5p,15p,0.1,noecn",
            "codel",
            "codel:noecn",
            "codel:20ms,500ms",
            "codel:1ms,10ms,noecn",
            "fq_codel",
            "fq_codel:1ms,10ms,noecn",
            "pie",
            "pie:noecn",
            "pie:20ms,noecn",
            "police:10mbit,64kB",
        ] {
            assert_eq!(text.parse::<Discipline>().unwrap().to_string(), text);
        }
    }
}
