//! From the passages of packets to a budget: how long each stage takes, and its share of the whole.

use super::published::{MACHINES, Machine};
use serde::Serialize;
use uts::{Passage, Point, Time};

/// Stages of a packet, from a point to the next: 18 of them. From point 10 to point 11 a packet is
/// with the system and on the wire, which is no stage of an end.
pub const STAGES: [Stage; 18] = [
    Stage(Point::Written, Point::Called, "to the call"),
    Stage(Point::Called, Point::Admitted, "wait for the endpoint"),
    Stage(Point::Admitted, Point::Taken, "into the flow"),
    Stage(Point::Taken, Point::Begun, "wait for the engine"),
    Stage(Point::Begun, Point::Filled, "frames"),
    Stage(Point::Filled, Point::Sealed, "checksum, cipher"),
    Stage(Point::Sealed, Point::Fetched, "engine to host"),
    Stage(Point::Fetched, Point::Sending, "wait for the socket"),
    Stage(Point::Sending, Point::Sent, "system call"),
    Stage(Point::Woken, Point::Receiving, "begin of a turn"),
    Stage(Point::Receiving, Point::Received, "system call"),
    Stage(Point::Received, Point::Handed, "wait for the endpoint"),
    Stage(Point::Handed, Point::Found, "find the connection"),
    Stage(Point::Found, Point::Opened, "decipher, check"),
    Stage(Point::Opened, Point::Placed, "frames"),
    Stage(Point::Placed, Point::Asked, "wait for the reader"),
    Stage(Point::Asked, Point::Read, "out of the flow"),
    Stage(Point::Read, Point::Delivered, "to the application"),
];

/// A stage: from a point to another, and what is done between them.
pub struct Stage(pub Point, pub Point, pub &'static str);

/// Kind of the packets of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data of so many bytes.
    Data(usize),
    /// Acknowledgements that carry nothing else.
    Acknowledgement,
}

impl Kind {
    fn points(self) -> core::ops::RangeInclusive<u8> {
        match self {
            Kind::Data(_) => Point::Written.number()..=Point::Delivered.number(),
            Kind::Acknowledgement => Point::Begun.number()..=Point::Placed.number(),
        }
    }
}

/// The instants at which one packet has passed its points, from both ends.
#[derive(Clone, Debug)]
pub struct Journey([Option<Time>; 20]);

impl Journey {
    /// The journey of a packet by the logs of its sender and its receiver. `None` unless it has
    /// passed each point of its kind once: then other packets went beside it, or it was repeated.
    pub fn of(kind: Kind, sender: &[Passage], receiver: &[Passage]) -> Option<Self> {
        let mut at = [None; 20];
        let sent = sender.iter().filter(|row| row.point <= Point::Sent);
        let received = receiver.iter().filter(|row| row.point > Point::Sent);
        for row in sent.chain(received).filter(|row| kind.points().contains(&row.point.number())) {
            let place = &mut at[usize::from(row.point.number()) - 1];
            if place.replace(row.at).is_some() {
                return None;
            }
        }
        let is_whole = kind.points().all(|number| at[usize::from(number) - 1].is_some());
        is_whole.then_some(Journey(at))
    }

    fn at(&self, point: Point) -> Option<Time> {
        self.0[usize::from(point.number()) - 1]
    }

    /// Time from one point to another, in us; `None` if it has not passed both.
    pub fn between_us(&self, from: Point, to: Point) -> Option<f64> {
        let (from, to) = (self.at(from)?.as_nanos(), self.at(to)?.as_nanos());
        Some((to as f64 - from as f64) / 1e3)
    }
}

/// Median of several values, and the quartiles around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// A quarter of the values is at most this.
    pub low: f64,
    /// A quarter of the values is at least this.
    pub high: f64,
}

impl Spread {
    /// `None` of no values.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let at = |part: f64| values.get(((values.len().max(1) - 1) as f64 * part).round() as usize).copied();
        Some(Spread { median: at(0.5)?, low: at(0.25)?, high: at(0.75)? })
    }
}

/// A published delay, and its share of all that the same machine has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Name of the machine.
    pub machine: &'static str,
    /// In us.
    pub us: f64,
    /// Of the sum of its stages, 0 to 1.
    pub share: f64,
}

/// A row of a budget.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Number of the point at which the stage begins.
    pub from: u8,
    /// Number of the point at which it ends.
    pub to: u8,
    /// Work between them.
    pub stage: &'static str,
    /// Time that it takes, in us.
    pub us: Spread,
    /// Median of the time, of the sum of the medians of all stages, 0 to 1.
    pub share: f64,
    /// The same in the thesis.
    pub thesis: Vec<Published>,
}

/// Budget of the packets of a kind.
#[derive(Clone, Debug, Serialize)]
pub struct Budget {
    /// `data` or `acknowledgement`.
    pub kind: &'static str,
    /// Bytes of data in each.
    pub bytes: usize,
    /// Packets that were measured.
    pub packets: usize,
    /// Packets that were left out, since other packets went beside them.
    pub left_out: usize,
    /// Stages, in their order: 18 of data, 11 of an acknowledgement.
    pub rows: Vec<Row>,
    /// Sum of the medians of the stages, in us.
    pub stages_us: f64,
    /// Time from the first point of the kind to its last, with what is between the points 10 and
    /// 11, in us.
    pub whole_us: Spread,
}

impl Budget {
    /// The budget of several journeys. `None` if there is none.
    pub fn of(kind: Kind, journeys: &[Journey], left_out: usize) -> Option<Self> {
        let points = kind.points();
        let stages = STAGES.iter().enumerate().filter(|(_, Stage(from, to, _))| {
            points.contains(&from.number()) && points.contains(&to.number())
        });
        let spread = |from, to| {
            Spread::of(journeys.iter().filter_map(|journey| journey.between_us(from, to)).collect())
        };
        let mut rows = Vec::new();
        for (n, Stage(from, to, stage)) in stages {
            let us = spread(*from, *to)?;
            let thesis = MACHINES.iter().filter_map(|machine| published(machine, kind, n)).collect();
            rows.push(Row { from: from.number(), to: to.number(), stage, us, share: 0.0, thesis });
        }
        let stages_us: f64 = rows.iter().map(|row| row.us.median).sum();
        rows.iter_mut().for_each(|row| row.share = row.us.median / stages_us);
        let end = |number: u8| Point::of_number(number);
        Some(Budget {
            kind: if kind == Kind::Acknowledgement { "acknowledgement" } else { "data" },
            bytes: if let Kind::Data(bytes) = kind { bytes } else { 0 },
            packets: journeys.len(),
            left_out,
            rows,
            stages_us,
            whole_us: spread(end(*points.start())?, end(*points.end())?)?,
        })
    }
}

/// Time that a machine of the thesis took for a stage, if its table says.
fn published(machine: &Machine, kind: Kind, stage: usize) -> Option<Published> {
    let delay = |(small, large, acknowledgement): (f64, f64, Option<f64>)| match kind {
        Kind::Data(bytes) if bytes < 700 => Some(small),
        Kind::Data(_) => Some(large),
        Kind::Acknowledgement => acknowledgement,
    };
    let us = delay(*machine.delays.get(stage)?)?;
    let sum: f64 = machine.delays.iter().filter_map(|delays| delay(*delays)).sum();
    Some(Published { machine: machine.name, us, share: us / sum })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts::Time;

    fn log(points: core::ops::RangeInclusive<u8>, step_ns: u64) -> Vec<Passage> {
        let row = |number: u8| Passage {
            at: Time::from_nanos(u64::from(number) * step_ns),
            point: Point::of_number(number).expect("one of twenty"),
            bytes: 1,
        };
        points.map(row).collect()
    }

    #[test]
    fn stages_follow_each_other_without_the_wire() {
        for pair in STAGES.windows(2) {
            let gap = pair[1].0.number() - pair[0].1.number();
            assert_eq!(gap, u8::from(pair[0].1 == Point::Sent), "behind {}", pair[0].2);
        }
        assert_eq!((STAGES[0].0, STAGES[17].1), (Point::Written, Point::Delivered));
    }

    #[test]
    fn what_does_not_pass_each_point_once_is_left_out() {
        let (sender, receiver) = (log(1..=10, 1000), log(11..=20, 1000));
        let of = |sender: &[Passage], receiver: &[Passage]| Journey::of(Kind::Data(1), sender, receiver);
        let journey = of(&sender, &receiver).expect("whole");
        assert_eq!(journey.between_us(Point::Written, Point::Delivered), Some(19.0));
        assert!(of(&sender[1..], &receiver).is_none());
        assert!(of(&sender, &receiver[..9]).is_none());
        assert!(of(&[sender.clone(), log(7..=7, 1000)].concat(), &receiver).is_none());
        // The acknowledgement of the other way is no packet beside it.
        let with_answer = [sender.clone(), log(11..=17, 2000)].concat();
        assert!(of(&with_answer, &[receiver.clone(), log(5..=10, 2000)].concat()).is_some());
        let answer = Journey::of(Kind::Acknowledgement, &log(5..=10, 2000), &with_answer).expect("whole");
        assert_eq!(answer.between_us(Point::Begun, Point::Placed), Some(24.0));
    }

    #[test]
    fn a_budget_has_18_rows_whose_shares_are_one() {
        let journey = Journey::of(Kind::Data(1), &log(1..=10, 500), &log(11..=20, 500)).expect("whole");
        let budget = Budget::of(Kind::Data(1), &[journey.clone(), journey], 3).expect("some");
        assert_eq!((budget.rows.len(), budget.packets, budget.left_out), (18, 2, 3));
        assert!((budget.rows.iter().map(|row| row.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((budget.stages_us - 9.0).abs() < 1e-9 && (budget.whole_us.median - 9.5).abs() < 1e-9);
        for machine in 0..MACHINES.len() {
            let sum: f64 = budget.rows.iter().map(|row| row.thesis[machine].share).sum();
            assert!((sum - 1.0).abs() < 1e-9);
        }
        assert!(Budget::of(Kind::Acknowledgement, &[], 0).is_none());
    }

    /// The published tables, added up by hand: 18 delays of data, 11 of acknowledgements.
    #[test]
    fn published_delays_are_those_of_the_tables() {
        let sums = MACHINES.map(|machine| {
            let mut sums = (0.0, 0.0, 0.0, 0);
            for (small, large, acknowledgement) in machine.delays {
                sums.0 += small;
                sums.1 += large;
                sums.2 += acknowledgement.unwrap_or(0.0);
                sums.3 += usize::from(acknowledgement.is_some());
            }
            sums
        });
        for ((small, large, acknowledgement, count), expected) in
            sums.into_iter().zip([(4690.53, 5943.99, 1202.37), (3211.09, 4230.39, 929.98)])
        {
            let found = [small, large, acknowledgement];
            let wanted: [f64; 3] = expected.into();
            assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 0.01), "{found:?}");
            assert_eq!(count, 11);
        }
    }
}
