//! Figures that a file of published figures describes, of columns that units leave.

use crate::expression::Expression;
use crate::looks::{Curve, Points, Stretch, Transfer, Words, curves, sequence, time_line};
use crate::paper::Results;
use crate::reference::{Drawn, DrawnCurve, Kind};
use anyhow::{Result, ensure};
use uts_plot::svg::Picture;

/// The columns that a curve takes, in an order that its figure's kind has.
///
/// # Errors
/// It names what is none.
pub(crate) fn columns(drawn: &Drawn, curve: &DrawnCurve) -> Result<Vec<Expression>> {
    let Some(of) = &curve.of else {
        let all = [&curve.x, &curve.y, &curve.error].into_iter().flatten();
        return all.map(|text| Expression::parse(text)).collect();
    };
    let all: &[&str] = match (drawn.kind, drawn.timeouts) {
        (Kind::Curves, _) => &[],
        (Kind::Sequence, false) => &["at", "packet", "repeats"],
        (Kind::Sequence, true) => {
            &["at", "packet", "repeats", "sample-at", "sample", "timeout-at", "timeout", "done"]
        }
        (Kind::TimeLine, _) => &["lane", "begin", "end"],
    };
    all.iter().map(|what| Expression::parse(&format!("{of}-{what}"))).collect()
}

/// A curve with what it has taken.
pub(crate) struct Taken<'a> {
    curve: &'a DrawnCurve,
    look: usize,
    rows: Vec<Vec<f64>>,
}

impl<'a> Taken<'a> {
    /// The n-th curve of a figure; `None` if a unit was not done that it needs.
    ///
    /// # Errors
    /// A unit has no such column.
    pub(crate) fn of(drawn: &'a Drawn, n: usize, results: &Results) -> Result<Option<Self>> {
        let curve = &drawn.curve[n];
        let columns = columns(drawn, curve)?;
        if !columns.iter().all(|column| column.is_done(results)) {
            return Ok(None);
        }
        let rows = columns.iter().map(|column| column.rows(results)).collect::<Result<Vec<_>>>()?;
        let is_even = drawn.kind != Kind::Curves || rows.iter().all(|column| column.len() == rows[0].len());
        ensure!(is_even, "the curve {}: its columns have not as many rows", curve.name);
        Ok(Some(Taken { curve, look: curve.look.unwrap_or(n), rows }))
    }

    fn curve(&self) -> Curve {
        let (mut points, mut errors) = (Points::new(), Vec::new());
        if let [x, y, halves @ ..] = &self.rows[..] {
            for n in (0..x.len()).filter(|n| x[*n].is_finite() && y[*n].is_finite()) {
                points.push((x[n], y[n]));
                errors.extend(halves.iter().map(|halves| halves[n]));
            }
        }
        points.extend(self.curve.points.iter().map(|[x, y]| (*x, *y)));
        let DrawnCurve { name, line, marks, .. } = self.curve;
        Curve { name: name.clone(), look: self.look, points, errors, has_line: *line, has_marks: *marks }
    }

    fn transfer(&self, end: f64) -> Transfer {
        let pairs =
            |at: usize, what: usize| self.rows[at].iter().copied().zip(self.rows[what].iter().copied());
        let repeats = || self.rows[2].iter().map(|repeats| *repeats > 0.0);
        let packets = |again: bool| -> Points {
            let all = pairs(0, 1).zip(repeats()).filter(|((at, _), repeats)| *repeats == again && *at <= end);
            all.map(|(packet, _)| packet).collect()
        };
        let times = (self.rows.len() > 3).then(|| {
            let samples = pairs(3, 4).filter(|(at, _)| *at <= end).collect();
            let mut timeouts: Points = pairs(5, 6).filter(|(at, _)| *at <= end).collect();
            // The last holds until the transfer is done, or the picture ends.
            let until = self.rows[7].first().map_or(end, |done| done.min(end));
            let last = timeouts.last().map(|(_, timeout)| (until, *timeout));
            timeouts.extend(last.filter(|_| until.is_finite()));
            [samples, timeouts]
        });
        Transfer { name: self.curve.name.clone(), packets: [packets(false), packets(true)], times }
    }

    fn stretches(&self) -> impl Iterator<Item = Stretch> {
        let all = self.rows[0].iter().zip(&self.rows[1]).zip(&self.rows[2]);
        all.map(|((lane, begin), end)| Stretch {
            lane: *lane as usize,
            look: self.look,
            begin: *begin,
            end: *end,
        })
    }
}

/// A figure with these curves.
pub(crate) fn picture(drawn: &Drawn, subtitle: &str, taken: &[Taken<'_>]) -> Picture {
    let words = Words { title: &drawn.title, subtitle, x: &drawn.x, y: &drawn.y };
    match drawn.kind {
        Kind::Curves => {
            let all: Vec<Curve> = taken.iter().map(Taken::curve).collect();
            curves(&words, drawn.log, drawn.y_max, &all)
        }
        Kind::Sequence => {
            let end = drawn.x_max.unwrap_or(f64::INFINITY);
            let all: Vec<Transfer> = taken.iter().map(|taken| taken.transfer(end)).collect();
            sequence(&words, drawn.x_max, &all)
        }
        Kind::TimeLine => {
            let kinds: Vec<&str> = taken.iter().map(|taken| taken.curve.name.as_str()).collect();
            let all: Vec<Stretch> = taken.iter().flat_map(Taken::stretches).collect();
            time_line(&words, &drawn.lane, &kinds, &all)
        }
    }
}
