//! Epochs that a data receiver holds open, and epochs of which a data sender has packets under way.

use uts_functions::Time;

/// One open epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Slot {
    epoch: u32,
    group: u8,
    /// When to close it; `None` while the sender may yet use it.
    retire_at: Option<Time>,
    /// At the sender: the epoch that the envelopes of its first packets are of.
    envelopes_of: Option<u32>,
}

/// Open epochs in ascending order. There are at most [`super::EPOCH_SPAN`], because they are
/// distinct and less than that apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct OpenEpochs(Vec<Slot>);

impl OpenEpochs {
    /// Opens `epoch`. All but one are higher than any opened before: what a packet carries may
    /// cross the receiver's own request.
    pub(super) fn open(&mut self, epoch: u32, group: u8) {
        let at = self.0.partition_point(|slot| slot.epoch < epoch);
        self.0.insert(at, Slot { epoch, group, retire_at: None, envelopes_of: None });
    }

    /// Opens `epoch`, the first packets of which travel in envelopes of another.
    pub(super) fn open_in_envelopes(&mut self, epoch: u32, group: u8, of: Option<u32>) {
        self.open(epoch, group);
        if let Some(slot) = self.0.iter_mut().find(|slot| slot.epoch == epoch) {
            slot.envelopes_of = of;
        }
    }

    /// Their number.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
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

    /// Closes one epoch that is `span` or more below `epoch`.
    pub(super) fn close_far_below(&mut self, epoch: u32, span: u32) -> Option<u32> {
        self.close_where(|slot| epoch.saturating_sub(slot.epoch) >= span)
    }

    /// Forgets epochs that were replaced and of which nothing is under way, envelopes of theirs
    /// included.
    pub(super) fn settle(&mut self, is_under_way: impl Fn(u32) -> bool) {
        let is_live = |slot: &Slot| slot.retire_at.is_none() || is_under_way(slot.epoch);
        let enveloped = self.0.iter().filter(|slot| is_live(slot)).filter_map(|slot| slot.envelopes_of);
        let needed: Vec<u32> = enveloped.collect();
        self.0.retain(|slot| is_live(slot) || needed.contains(&slot.epoch));
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
