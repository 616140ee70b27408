//! Numbers in network byte order: a message is an array of words, each of which travels with its
//! most significant byte first (RFC 1700; what XDR and NDR settle, for arrays of one type). At
//! hosts of the same order both ends do the same work for nothing, at unlike ones nobody has to
//! think of it.

use super::{Error, Presentation, read_form};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Need, Param, Params, Promise, Unasked, Unit};
use std::borrow::Cow;

/// Form byte: the bytes of a word, and words in the network's order, follow.
pub(super) const FORM: u8 = 3;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct ByteOrder {
    word_bytes: u8,
}

impl ByteOrder {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Presentation,
        number: 3,
        name: "byte-order",
        what: "words of a message travel with their most significant byte first",
        mandatory: false,
        consent: Consent::NotNeeded,
        params: &[Param {
            name: "word",
            unit: Unit::Bytes,
            default: 4,
            min: 2,
            max: 16,
            bold: Bold::Neither,
            what: "bytes of a word",
        }],
        needs: &[Need::Promise(Function::Segmentation, Promise::Boundaries)],
        facts: Facts { forms: &[FORM], unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |_, facts, p| p.cpu_ns += 2.0 * 0.2 * facts.mtu_bytes as f64,
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        // In range: the table says so.
        ByteOrder { word_bytes: u8::try_from(params.get(0)).unwrap_or(u8::MAX) }
    }
}

/// Words of this host in the network's order, or back: the same. What is left at the end is no word
/// (presentation.md R-9).
fn turn(words: &mut [u8], word_bytes: u8, is_little: bool) {
    if is_little {
        words.chunks_exact_mut(usize::from(word_bytes).max(1)).for_each(<[u8]>::reverse);
    }
}

const IS_LITTLE: bool = cfg!(target_endian = "little");

/// A message of words in the network's order.
pub(super) fn read(data: &[u8], max_bytes: usize) -> Result<Cow<'_, [u8]>, Error> {
    let (word_bytes, words) = data.split_first().ok_or(Error::Truncated)?;
    if words.len() > max_bytes {
        return Err(Error::TooLarge { bytes: words.len(), max_bytes });
    }
    let mut message = words.to_vec();
    turn(&mut message, *word_bytes, IS_LITTLE);
    Ok(Cow::Owned(message))
}

impl Presentation for ByteOrder {
    fn present<'a>(&self, message: &'a [u8]) -> Cow<'a, [u8]> {
        let mut out = Vec::with_capacity(message.len().saturating_add(2));
        out.extend_from_slice(&[FORM, self.word_bytes]);
        out.extend_from_slice(message);
        if let Some(words) = out.get_mut(2..) {
            turn(words, self.word_bytes, IS_LITTLE);
        }
        Cow::Owned(out)
    }

    fn unpresent<'a>(&self, data: &'a [u8], max_bytes: usize) -> Result<Cow<'a, [u8]>, Error> {
        read_form(data, max_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_turn_and_what_is_left_does_not() {
        let mut words: Vec<u8> =
            [0x0102_0304_u32, 5].iter().flat_map(|w| w.to_le_bytes()).chain([9]).collect();
        let message = words.clone();
        turn(&mut words, 4, true);
        assert_eq!(words, [1, 2, 3, 4, 0, 0, 0, 5, 9]);
        turn(&mut words, 4, false);
        assert_eq!(words, [1, 2, 3, 4, 0, 0, 0, 5, 9], "a host of the network's order");
        turn(&mut words, 4, true);
        assert_eq!(words, message);
    }

    #[test]
    fn this_host_sends_the_networks_order() {
        let two = ByteOrder::build(&ByteOrder::INFO.params_within(&[("word", 2)]), ());
        assert_eq!(two.present(&0x0102_u16.to_ne_bytes())[..], [FORM, 2, 1, 2]);
        // The word's length travels: a receiver needs no parameter.
        let four = ByteOrder::build(&ByteOrder::INFO.choice().params, ());
        assert_eq!(four.unpresent(&[FORM, 2, 1, 2], 9).as_deref(), Ok(&0x0102_u16.to_ne_bytes()[..]));
        assert_eq!(four.unpresent(&[FORM], 9), Err(Error::Truncated));
    }
}
