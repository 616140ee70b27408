//! LZ4 compression of each message by itself, where that makes it smaller.
//!
//! Form: a byte 0 and the message; or a byte 1, the message's length as a big-endian `u32`, and an
//! LZ4 block.

use super::{Error, Presentation, plain, read_form};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Need, Param, Params, Promise, Unasked, Unit};
use std::borrow::Cow;

/// Form byte: length and LZ4 block follow.
pub(super) const FORM: u8 = 1;
/// Bytes before the block.
const BLOCK_HEADER: usize = 5;
/// No LZ4 block expands by more: a match length grows by at most 255 per byte.
const RATIO_MAX: usize = 255;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Lz4 {
    threshold_bytes: usize,
}

impl Lz4 {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Presentation,
        number: 1,
        name: "lz4",
        what: "messages are compressed where that makes them smaller",
        mandatory: false,
        consent: Consent::OfReceiver,
        params: &[Param {
            name: "threshold",
            unit: Unit::Bytes,
            default: 64,
            min: 0,
            max: 65_536,
            bold: Bold::Neither,
            what: "messages smaller than this are left alone",
        }],
        needs: &[Need::Promise(Function::Segmentation, Promise::Boundaries)],
        // presentation.md R-6: the size of a message tells of its content.
        facts: Facts { unasked: Unasked::Never, forms: &[FORM], ..Facts::PLAIN },
        // What it saves depends on the data, of which the path knows nothing. Costs for 1400 bytes,
        // both ends.
        predict: |_, facts, p| {
            p.header_bytes += 1.0;
            p.cpu_ns += 2400.0 * facts.mtu_bytes as f64 / 1400.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Lz4 { threshold_bytes: params.get(0) as usize }
    }

    fn compress(&self, message: &[u8]) -> Option<Vec<u8>> {
        if message.len() < self.threshold_bytes {
            return None;
        }
        let length = u32::try_from(message.len()).ok()?;
        let mut out = vec![0; BLOCK_HEADER + lz4_flex::block::get_maximum_output_size(message.len())];
        let (header, block) = out.split_at_mut(BLOCK_HEADER);
        let written = lz4_flex::block::compress_into(message, block).ok()?;
        header[0] = FORM;
        header[1..].copy_from_slice(&length.to_be_bytes());
        // presentation.md R-4: a block that saves nothing is not sent.
        if BLOCK_HEADER + written > message.len() {
            return None;
        }
        out.truncate(BLOCK_HEADER + written);
        Some(out)
    }
}

/// The message of a block.
pub(super) fn read(block: &[u8], max_bytes: usize) -> Result<Cow<'_, [u8]>, Error> {
    decompress(block, max_bytes).map(Cow::Owned)
}

fn decompress(data: &[u8], max_bytes: usize) -> Result<Vec<u8>, Error> {
    let (length, block) = data.split_first_chunk::<4>().ok_or(Error::Truncated)?;
    let bytes = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    // presentation.md R-5: both bounds hold before anything is allocated.
    if bytes > max_bytes {
        return Err(Error::TooLarge { bytes, max_bytes });
    }
    if bytes > block.len().saturating_mul(RATIO_MAX) {
        return Err(Error::Impossible { bytes, block_bytes: block.len() });
    }
    let mut message = vec![0; bytes];
    match lz4_flex::block::decompress_into(block, &mut message) {
        Ok(written) if written == bytes => Ok(message),
        _ => Err(Error::Corrupt),
    }
}

impl Presentation for Lz4 {
    fn present<'a>(&self, message: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Owned(self.compress(message).unwrap_or_else(|| plain(message)))
    }

    fn unpresent<'a>(&self, data: &'a [u8], max_bytes: usize) -> Result<Cow<'a, [u8]>, Error> {
        read_form(data, max_bytes)
    }
}
