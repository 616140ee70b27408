//! Repairs that members may cause: sources earn them, so that repairs stay a share of what is sent.

/// Repairs that a source earns for all members together, in parts of [`WHOLE`]: repairs are at most
/// half of the sources.
const ALL: u32 = 32;

/// Repairs that a source earns for one member: it may lose a quarter of what is sent.
const ONE: u32 = 16;

const WHOLE: u32 = 64;

/// Blocks of which all may be repeated at once.
const BLOCKS: u32 = 8;

/// Repairs that may still be caused. (G-17)
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    parts: u32,
    parts_max: u32,
    share: u32,
}

impl Credit {
    pub(super) fn of_all(sources: usize) -> Self {
        Self::new(sources, ALL, BLOCKS * 2)
    }

    pub(super) fn of_member(sources: usize) -> Self {
        Self::new(sources, ONE, BLOCKS)
    }

    fn new(sources: usize, share: u32, blocks: u32) -> Self {
        let parts = sources as u32 * blocks * WHOLE;
        Credit { parts, parts_max: parts, share }
    }

    pub(super) fn left(&self) -> usize {
        (self.parts / WHOLE) as usize
    }

    pub(super) fn spend(&mut self, repairs: usize) {
        self.parts = self.parts.saturating_sub(repairs as u32 * WHOLE);
    }

    pub(super) fn earn(&mut self) {
        self.parts = (self.parts + self.share).min(self.parts_max);
    }
}
