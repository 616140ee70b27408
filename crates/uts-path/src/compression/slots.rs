//! Slots of both ends.

use super::Discard;

/// Slots of the sending end. Connections have them in the order in which they came, and then the
/// place of the one that was used least recently.
#[derive(Debug)]
pub(super) struct Sending<S> {
    slots: Vec<(S, u64)>,
    max: usize,
    uses: u64,
    /// The slot of the last frame.
    last: Option<u8>,
}

impl<S> Sending<S> {
    pub(super) fn new(max: u16) -> Self {
        Sending { slots: Vec::new(), max: usize::from(max).clamp(1, 256), uses: 0, last: None }
    }

    /// The slot of a connection, which is in use from now on.
    pub(super) fn find(&mut self, is_it: impl Fn(&S) -> bool) -> Option<(u8, &mut S)> {
        let place = self.slots.iter().position(|(slot, _)| is_it(slot))?;
        self.uses += 1;
        let (slot, used) = self.slots.get_mut(place)?;
        *used = self.uses;
        Some((place as u8, slot))
    }

    /// All that are in use.
    pub(super) fn iter(&self) -> impl Iterator<Item = &S> {
        self.slots.iter().map(|(slot, _)| slot)
    }

    /// Gives a connection a slot that has none. Returns its number.
    pub(super) fn add(&mut self, slot: S) -> u8 {
        self.uses += 1;
        if self.slots.len() < self.max {
            self.slots.push((slot, self.uses));
            return (self.slots.len() - 1) as u8;
        }
        let oldest = self.slots.iter().enumerate().min_by_key(|(_, (_, used))| *used);
        let place = oldest.map_or(0, |(place, _)| place);
        self.slots[place] = (slot, self.uses);
        place as u8
    }

    /// A frame of this slot is sent: returns its number if the frame has to say it.
    pub(super) fn on_sent(&mut self, number: u8) -> Option<u8> {
        (self.last.replace(number) != Some(number)).then_some(number)
    }
}

/// Slots of the receiving end.
#[derive(Debug)]
pub(super) struct Receiving<S> {
    slots: Vec<Option<S>>,
    last: Option<u8>,
}

impl<S> Receiving<S> {
    pub(super) fn new(max: u16) -> Self {
        let count = usize::from(max).clamp(1, 256);
        Receiving { slots: core::iter::repeat_with(|| None).take(count).collect(), last: None }
    }

    /// Fills a slot.
    pub(super) fn fill(&mut self, number: u8, slot: S) -> Result<(), Discard> {
        let place = self.slots.get_mut(usize::from(number)).ok_or(Discard("there is no such slot"))?;
        *place = Some(slot);
        self.last = Some(number);
        Ok(())
    }

    /// The slot of a frame: the one that it says, or that of the frame before.
    pub(super) fn of_frame(&mut self, said: Option<u8>) -> Result<&mut S, Discard> {
        let number = said.or(self.last).ok_or(Discard("the frame does not say its slot"))?;
        self.last = Some(number);
        let place = self.slots.get_mut(usize::from(number)).ok_or(Discard("there is no such slot"))?;
        place.as_mut().ok_or(Discard("nothing is known of the slot"))
    }

    /// The next frame has to say its slot.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }
}
