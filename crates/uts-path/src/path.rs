//! Two links and a schedule.

use crate::change::Change;
use crate::config::LinkConfig;
use crate::error::SpecError;
use crate::link::{Delivery, Link, Payload};
use crate::passage::{Fate, Passage};
use crate::schedule::{Pending, Schedule, Target};
use crate::stats::Stats;
use crate::trace::Trace;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Makes the backward link's seed differ from the forward one's.
const BACKWARD_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A direction of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the end that opens connections to the other.
    Forward,
    /// Back.
    Backward,
}

impl Direction {
    /// Both, forward first.
    pub const ALL: [Direction; 2] = [Direction::Forward, Direction::Backward];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Forward => "forward",
            Direction::Backward => "backward",
        })
    }
}

/// Settings of a path; its directions have nothing in common but the schedule. The default is
/// perfect in both.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathConfig {
    /// The forward link at the start.
    pub forward: LinkConfig,
    /// The backward link at the start.
    pub backward: LinkConfig,
    /// Changes to come.
    pub schedule: Schedule,
}

impl PathConfig {
    /// Has the traces read that it names, in its schedule too: `read` gets a file's name as in
    /// `rate=trace:NAME`. Those that have been read are left as they are.
    ///
    /// # Errors
    /// As `read` has it; the error names the trace.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use uts_path::{PathConfig, Trace};
    /// # let directory = std::env::temp_dir().join(format!("uts-path-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// # std::fs::write(directory.join("lte.down"), "1\n3\n")?;
    /// let mut config = PathConfig::both("rate=trace:lte.down".parse()?);
    /// config.resolve(|name| -> Result<Arc<Trace>, Box<dyn std::error::Error>> {
    ///     Ok(Arc::new(std::fs::read_to_string(directory.join(name))?.parse()?))
    /// })?;
    /// assert_eq!(config.forward.mean_rate_bps()?, Some(8_000_000));
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resolve<E: fmt::Display>(
        &mut self,
        mut read: impl FnMut(&str) -> Result<Arc<Trace>, E>,
    ) -> Result<(), SpecError> {
        self.forward.resolve(&mut read)?;
        self.backward.resolve(&mut read)?;
        self.schedule.entries.iter_mut().try_for_each(|entry| entry.change.resolve(&mut read))
    }

    /// The traces that it names and that have been read, with their names: its text has the names
    /// alone.
    pub fn traces(&self) -> impl Iterator<Item = (&str, &Arc<Trace>)> {
        let links = [&self.forward, &self.backward].into_iter();
        let of_links = links.filter_map(|link| link.opportunities.as_ref()?.file());
        of_links.chain(self.schedule.entries.iter().flat_map(|entry| entry.change.traces()))
    }

    /// The same link in both directions, and no changes.
    pub fn both(link: LinkConfig) -> Self {
        PathConfig { forward: link.clone(), backward: link, schedule: Schedule::default() }
    }
}

/// A change that has been made.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// When, on the caller's clock.
    pub at_ns: u64,
    /// To which link or links.
    pub target: Target,
    /// Change that was made.
    pub change: Change,
}

/// A two-way path. As with [`Link`], time never goes back.
#[derive(Debug)]
pub struct Path<T> {
    forward: Link<T>,
    backward: Link<T>,
    pending: Pending,
    applied: VecDeque<Applied>,
}

impl<T: Payload> Path<T> {
    /// Makes an idle path. Its random decisions follow from `seed`; the times of its schedule and
    /// its traces count from `origin_ns` on the caller's clock.
    ///
    /// # Errors
    /// A value of `config` is out of range, or a trace has not been [read](PathConfig::resolve).
    pub fn new(config: PathConfig, seed: u64, origin_ns: u64) -> Result<Self, SpecError> {
        let named = |direction: Direction| {
            move |e: SpecError| SpecError { at: format!("{direction} {}", e.at), reason: e.reason }
        };
        let forward =
            Link::starting_at(config.forward, seed, origin_ns).map_err(named(Direction::Forward))?;
        let backward = Link::starting_at(config.backward, seed ^ BACKWARD_SEED, origin_ns)
            .map_err(named(Direction::Backward))?;
        for entry in &config.schedule.entries {
            entry.change.check_resolved()?;
        }
        let pending = Pending::new(config.schedule, origin_ns);
        Ok(Path { forward, backward, pending, applied: VecDeque::new() })
    }

    /// Offers a packet of `len` bytes to a link at `now_ns`; see [`Link::send`].
    pub fn send(&mut self, now_ns: u64, direction: Direction, payload: T, len: usize) -> Fate {
        self.advance(now_ns);
        let fate = self.link_mut(direction).send(now_ns, payload, len);
        if direction == Direction::Forward {
            let entered = self.forward.bytes_entered();
            while let Some(due) = self.pending.pop_by_bytes(entered) {
                self.apply(now_ns, due.target, due.change);
            }
        }
        fate
    }

    /// The next packet that has arrived by `now_ns`; see [`Link::poll`].
    pub fn poll(&mut self, now_ns: u64, direction: Direction) -> Option<T> {
        self.poll_delivery(now_ns, direction).map(|d| d.payload)
    }

    /// As [`poll`](Self::poll), with the instant of arrival.
    pub fn poll_delivery(&mut self, now_ns: u64, direction: Direction) -> Option<Delivery<T>> {
        self.advance(now_ns);
        self.link_mut(direction).poll_delivery(now_ns)
    }

    /// Turns the record of passages of both links, for [`poll_passage`](Self::poll_passage), on or
    /// off; see [`Link::record_passages`].
    pub fn record_passages(&mut self, record: bool) {
        for direction in Direction::ALL {
            self.link_mut(direction).record_passages(record);
        }
    }

    /// The next packet that has left a link's queue and was not yet reported; see
    /// [`Link::poll_passage`].
    pub fn poll_passage(&mut self, direction: Direction) -> Option<Passage> {
        self.link_mut(direction).poll_passage()
    }

    /// When to poll or advance next: nothing happens before; see [`Link::next_ns`].
    pub fn next_ns(&self) -> Option<u64> {
        let times = [self.forward.next_ns(), self.backward.next_ns(), self.pending.next_ns()];
        times.into_iter().flatten().min()
    }

    /// Makes a change at `now_ns`, beside the schedule; see [`Link::set`].
    ///
    /// # Errors
    /// A value is out of range, or a trace has not been read; then nothing is changed.
    pub fn set(&mut self, now_ns: u64, target: Target, change: &Change) -> Result<(), SpecError> {
        self.advance(now_ns);
        for &direction in target.directions() {
            self.link_mut(direction).set(now_ns, change)?;
        }
        self.applied.push_back(Applied { at_ns: now_ns, target, change: change.clone() });
        Ok(())
    }

    /// Moves everything on to `now_ns`, making the changes that are due, each at its own instant.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some((due_ns, due)) = self.pending.pop_by_time(now_ns) {
            self.apply(due_ns, due.target, due.change);
        }
        self.forward.advance(now_ns);
        self.backward.advance(now_ns);
    }

    /// The next change that was made and not yet reported, scheduled or [set](Self::set).
    pub fn poll_applied(&mut self) -> Option<Applied> {
        self.applied.pop_front()
    }

    /// A link's settings now.
    pub fn config(&self, direction: Direction) -> &LinkConfig {
        self.link(direction).config()
    }

    /// A link's counters, as of the last call that told the time.
    pub fn stats(&self, direction: Direction) -> Stats {
        self.link(direction).stats()
    }

    fn apply(&mut self, at_ns: u64, target: Target, change: Change) {
        for &direction in target.directions() {
            // A change holds only settings that were found valid when it was made, they are valid
            // independently of each other, and its traces were looked at when the path was made.
            let set = self.link_mut(direction).set(at_ns, &change);
            debug_assert_eq!(set, Ok(()));
        }
        self.applied.push_back(Applied { at_ns, target, change });
    }

    fn link(&self, direction: Direction) -> &Link<T> {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Backward => &self.backward,
        }
    }

    fn link_mut(&mut self, direction: Direction) -> &mut Link<T> {
        match direction {
            Direction::Forward => &mut self.forward,
            Direction::Backward => &mut self.backward,
        }
    }
}
