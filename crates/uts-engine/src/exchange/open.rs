//! The epochs that a data receiver holds open.

use uts_functions::Time;

/// One open epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    epoch: u32,
    group: u8,
    /// When to close it; `None` while the sender may yet use it.
    retire_at: Option<Time>,
}

/// Open epochs in ascending order. There are at most [`super::EPOCH_SPAN`], because they are
/// distinct and less than that apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct OpenEpochs(Vec<Slot>);

impl OpenEpochs {
    /// Opens `epoch`, which is higher than any opened before.
    pub(super) fn open(&mut self, epoch: u32, group: u8) {
        self.0.push(Slot { epoch, group, retire_at: None });
    }

    /// The group of an open epoch.
    pub(super) fn group_of(&self, epoch: u32) -> Option<u8> {
        self.0.iter().find(|slot| slot.epoch == epoch).map(|slot| slot.group)
    }

    /// The oldest open epoch and its group.
    pub(super) fn oldest(&self) -> Option<(u32, u8)> {
        self.0.first().map(|slot| (slot.epoch, slot.group))
    }

    /// Schedules the group's epochs below `epoch` to close at `at`, unless already scheduled.
    pub(super) fn retire_below(&mut self, group: u8, epoch: u32, at: Time) {
        for slot in self.0.iter_mut().filter(|slot| slot.group == group && slot.epoch < epoch) {
            slot.retire_at.get_or_insert(at);
        }
    }

    /// When the next epoch closes.
    pub(super) fn next_retirement(&self) -> Option<Time> {
        self.0.iter().filter_map(|slot| slot.retire_at).min()
    }

    /// Closes one epoch that is due.
    pub(super) fn close_due(&mut self, now: Time) -> Option<u32> {
        self.close_where(|slot| slot.retire_at.is_some_and(|at| at <= now))
    }

    /// Closes one epoch of `group` between `above` (`None`: from the first) and `below`, both
    /// exclusive, that was never in use. Epochs that were in use have their time to retire.
    pub(super) fn close_between(&mut self, group: u8, above: Option<u32>, below: u32) -> Option<u32> {
        self.close_where(|slot| {
            slot.group == group
                && slot.epoch < below
                && above.is_none_or(|above| slot.epoch > above)
                && slot.retire_at.is_none()
        })
    }

    /// Closes `epoch`; whether it was open.
    pub(super) fn close(&mut self, epoch: u32) -> bool {
        self.close_where(|slot| slot.epoch == epoch).is_some()
    }

    fn close_where(&mut self, wanted: impl Fn(&Slot) -> bool) -> Option<u32> {
        let index = self.0.iter().position(wanted)?;
        Some(self.0.remove(index).epoch)
    }
}
