//! No protection: anyone on the path can read and forge. Only where both ends asked for it by name
//! (protection.md R-10).

use super::{Forged, MASK_BYTES, Protection, SAMPLE_BYTES, Secret};
use crate::macros::inert;
use crate::mechanism::Consent;

inert!(
    Protection,
    "packets in clear; only where both ends asked for it by name",
    context: &Secret,
    consent: Consent::OfBoth,
    mandatory: false,
);

impl Protection for None {
    fn tag_bytes(&self) -> usize {
        0
    }

    fn sample_bytes(&self) -> usize {
        0
    }

    fn seal(&self, _: u64, _: &[u8], _: &mut [u8], _: &mut [u8]) {}

    fn open(&self, _: u64, _: &[u8], payload_and_tag: &mut [u8]) -> Result<usize, Forged> {
        Ok(payload_and_tag.len())
    }

    fn header_mask(&self, _: &[u8; SAMPLE_BYTES]) -> [u8; MASK_BYTES] {
        [0; MASK_BYTES]
    }

    fn packets_max(&self) -> u64 {
        u64::MAX
    }

    fn forgeries_max(&self) -> u64 {
        u64::MAX
    }
}
