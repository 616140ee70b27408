//! Common parts of tests of mechanisms.

use super::reassembly::Segment;
use bytes::Bytes;

/// A message of one byte, which takes two positions.
pub(super) fn message(number: u64) -> Segment {
    Segment {
        start: 2 * number,
        data: Bytes::from(vec![number as u8]),
        message: true,
        presented: false,
        begin: true,
        end: true,
        fin: false,
    }
}
