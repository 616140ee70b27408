//! The path of the demonstration and its changes.

use anyhow::{Context, Result};
use uts_path::{At, Buffer, Change, Direction, LinkConfig, Loss, PathConfig, Schedule, Scheduled, Target};

use uts_record::demo::LinkStep;
use uts_relay::default_link;

/// Length of the file that is made unless asked otherwise.
pub const FILE_BYTES: u64 = 64_000_000;
/// The same for a quick demonstration.
pub const QUICK_FILE_BYTES: u64 = 20_000_000;

const SETTINGS: &str = "rate=50mbit delay=20ms buffer=64p overhead=28";
const LOSS: &str = "loss=ge:0.05,4";
const SLOWER: &str = "loss=0 rate=20mbit";

// A third of 20 MB takes three seconds, more than a hundred round trips: time to see a change and
// to answer it.
const QUICK_SETTINGS: &str = "rate=20mbit delay=10ms buffer=64p overhead=28";
const QUICK_SLOWER: &str = "loss=0 rate=8mbit";

/// A path, and what happens to it while the file is on its way.
#[derive(Debug)]
pub(super) struct Plan {
    /// Both ways, at the start.
    pub settings: Change,
    pub link: LinkConfig,
    /// By bytes into the forward link, which carries the data.
    pub schedule: Schedule,
}

impl Plan {
    /// A third of the way in, losses in bursts begin; at two thirds they end, and the rate falls.
    pub(super) fn new(file_bytes: u64, quick: bool) -> Result<Self> {
        let (settings, slower) = if quick { (QUICK_SETTINGS, QUICK_SLOWER) } else { (SETTINGS, SLOWER) };
        let third = (file_bytes / 3).max(1);
        let two_thirds = third.saturating_mul(2);
        let change = |bytes, target, change: &str| -> Result<Scheduled> {
            let change = change.parse().context("a change of the path")?;
            Ok(Scheduled { at: At::Bytes(bytes), target, change })
        };
        let entries = vec![
            change(third, Target::One(Direction::Forward), LOSS)?,
            change(two_thirds, Target::Both, slower)?,
        ];
        let settings: Change = settings.parse().context("the path's settings")?;
        Ok(Plan {
            link: default_link().with(&settings).context("the path's settings")?,
            settings,
            schedule: Schedule { entries },
        })
    }

    pub(super) fn path_config(&self) -> PathConfig {
        PathConfig { schedule: self.schedule.clone(), ..PathConfig::both(self.link.clone()) }
    }

    pub(super) fn base_rtt_ms(&self) -> f64 {
        2.0 * self.link.delay_ns as f64 / 1e6
    }

    pub(super) fn buffer_packets(&self) -> Option<u64> {
        match self.link.buffer {
            Buffer::Packets(packets) => Some(packets),
            Buffer::Bytes(_) | Buffer::Unlimited => None,
        }
    }
}

/// Offer of the forward link over time, as changes are reported.
#[derive(Debug)]
pub(super) struct LinkHistory {
    link: LinkConfig,
    pub steps: Vec<LinkStep>,
}

impl LinkHistory {
    pub(super) fn new(link: LinkConfig, t_s: f64) -> Self {
        let steps = vec![step(&link, t_s)];
        LinkHistory { link, steps }
    }

    /// Notes a change; those of the backward link alone leave the data's way as it is.
    pub(super) fn change(&mut self, t_s: f64, target: Target, change: &Change) {
        if !target.directions().contains(&Direction::Forward) {
            return;
        }
        if let Ok(link) = self.link.clone().with(change) {
            self.link = link;
            self.steps.push(step(&self.link, t_s));
        }
    }
}

fn step(link: &LinkConfig, t_s: f64) -> LinkStep {
    let (loss, burst) = match link.loss {
        // Single packets make no rate.
        Loss::None | Loss::Places { .. } => (0.0, 1.0),
        Loss::Random { p } => (p, 1.0),
        Loss::GilbertElliott { loss, burst } => (loss, burst),
    };
    LinkStep { t_s, rate_bps: link.rate_bps, loss: if link.up { loss } else { 1.0 }, burst }
}

/// Bytes that the link could carry from 0 to `end_s`, headers included; less its mean loss if
/// `after_loss`. `None` if its rate is unlimited at any time.
pub(super) fn capacity_bytes(steps: &[LinkStep], end_s: f64, after_loss: bool) -> Option<f64> {
    let ends = steps.iter().skip(1).map(|s| s.t_s).chain([end_s]);
    let carried = steps.iter().zip(ends).map(|(step, next_s)| {
        let duration_s = (next_s.min(end_s) - step.t_s.max(0.0)).max(0.0);
        let passing = if after_loss { 1.0 - step.loss } else { 1.0 };
        Some(step.rate_bps? as f64 / 8.0 * duration_s * passing)
    });
    carried.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_engine::{ConnectionConfig, ExchangeEvent};
    use uts_functions::{Function, Time};
    use uts_sim::identity::Identities;
    use uts_sim::transfer::Transfers;
    use uts_sim::{World, WorldConfig};

    #[test]
    fn changes_come_at_the_thirds() {
        let plan = Plan::new(60_000, false).unwrap();
        let entries: Vec<String> = plan.schedule.entries.iter().map(ToString::to_string).collect();
        assert_eq!(entries, ["at=20kB fwd loss=ge:0.05,4", "at=40kB both loss=0 rate=20mbit"]);
        assert_eq!((plan.base_rtt_ms(), plan.buffer_packets()), (40.0, Some(64)));
        assert!(Plan::new(1, true).is_ok() && Plan::new(u64::MAX, false).is_ok());
    }

    /// The real demonstration shows this if the machine keeps up: CUBIC is replaced when losses
    /// begin, and comes back when they end.
    #[test]
    fn both_changes_of_a_quick_copy_are_answered() {
        let plan = Plan::new(QUICK_FILE_BYTES, true).unwrap();
        for seed in 1..=12 {
            let config = WorldConfig { path: plan.path_config(), seed, ..WorldConfig::default() };
            let mut world = World::new(config, Identities::new().unwrap()).unwrap();
            let clients = [(1, ConnectionConfig::default())];
            let mut transfers = Transfers::start(&mut world, &clients, QUICK_FILE_BYTES);
            transfers.run(&mut world, Time::from_millis(120_000));
            let progress = &transfers.progress[&1];
            let taken = progress.exchanges.iter().filter_map(|(_, event)| match event {
                ExchangeEvent::Completed { profile, .. } => Some(profile.name(Function::Congestion)),
                _ => None,
            });
            let taken: Vec<&str> = taken.collect();
            assert!(progress.done_at.is_some(), "seed {seed}");
            assert!(taken.contains(&"bbr") && taken.ends_with(&["cubic"]), "seed {seed}: {taken:?}");
        }
    }

    #[test]
    fn capacity_is_the_integral_of_the_rate() {
        let plan = Plan::new(60_000, false).unwrap();
        let mut history = LinkHistory::new(plan.link.clone(), -0.5);
        let changes = &plan.schedule.entries;
        history.change(2.0, changes[0].target, &changes[0].change);
        history.change(3.0, Target::One(Direction::Backward), &"rate=1mbit".parse().unwrap());
        history.change(4.0, changes[1].target, &changes[1].change);
        assert_eq!(history.steps.len(), 3);
        let megabits = |after_loss| capacity_bytes(&history.steps, 5.0, after_loss).unwrap() * 8.0 / 1e6;
        assert!((megabits(false) - (4.0 * 50.0 + 20.0)).abs() < 1e-6);
        assert!((megabits(true) - (2.0 * 50.0 + 2.0 * 50.0 * 0.95 + 20.0)).abs() < 1e-6);
        // A copy that ended before the last change has nothing of it.
        assert!((capacity_bytes(&history.steps, 1.0, false).unwrap() * 8.0 / 1e6 - 50.0).abs() < 1e-6);
    }

    #[test]
    fn an_unlimited_link_has_no_capacity() {
        let history = LinkHistory::new(default_link(), 0.0);
        assert_eq!(capacity_bytes(&history.steps, 5.0, false), None);
    }
}
