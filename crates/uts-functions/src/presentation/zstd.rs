//! Zstandard compression (RFC 8878) of each message by itself, where that makes it smaller; with a
//! dictionary that both ends have, if one is named. Short messages that are much alike shrink with
//! a dictionary alone: there is too little in each for it to be compressed by itself.

use super::dictionary::{self, Dictionary, LEVELS};
use super::{Error, Presentation, plain, read_form};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Need, Param, Params, Promise, Unasked, Unit};
use core::cell::RefCell;
use std::borrow::Cow;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, compress_bound, get_frame_content_size};

/// Form byte: a frame without its magic number follows.
pub(super) const FORM: u8 = 4;
/// Form byte: the dictionary's number and a frame without its magic number follow.
pub(super) const FORM_WITH_DICTIONARY: u8 = 5;

/// Bytes at the beginning of each frame, which are not sent (RFC 8878 section 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// No frame expands by more: four bytes make a block of 128 KiB (RFC 8878 section 3.1.1.2).
const RATIO_MAX: usize = 128 * 1024 / 4;

thread_local! {
    static ENCODER: RefCell<CCtx<'static>> = RefCell::new(encoder());
    static DECODER: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

fn encoder() -> CCtx<'static> {
    let mut context = CCtx::create();
    // The form says which dictionary it is. Without this the frame does so again.
    let _ = context.set_parameter(CParameter::DictIdFlag(false));
    context
}

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Zstd {
    // Small, since each epoch of a connection at rest has one.
    threshold_bytes: u32,
    /// The dictionary's number; 0 = none.
    number: u32,
    level: u8,
}

impl Zstd {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Presentation,
        number: 4,
        name: "zstd",
        what: "messages are compressed by Zstandard, with a dictionary that both ends have",
        mandatory: false,
        consent: Consent::OfReceiver,
        params: &[
            Param {
                name: "threshold",
                unit: Unit::Bytes,
                default: 32,
                min: 0,
                max: 65_536,
                bold: Bold::Neither,
                what: "messages smaller than this are left alone",
            },
            Param {
                name: "level",
                unit: Unit::Count,
                default: 3,
                min: 1,
                max: LEVELS as u32,
                bold: Bold::Neither,
                what: "how much is tried: 1 = fast, 12 = small",
            },
            Param {
                name: "dictionary",
                unit: Unit::Count,
                default: 0,
                min: 0,
                max: u32::MAX,
                bold: Bold::Neither,
                what: "the number of a dictionary that both ends have registered; 0 = none",
            },
        ],
        needs: &[Need::Promise(Function::Segmentation, Promise::Boundaries)],
        facts: Facts {
            // presentation.md R-15: the size of a message tells of its content.
            unasked: Unasked::Never,
            forms: &[FORM, FORM_WITH_DICTIONARY],
            lacks: Some(lacks),
            ..Facts::PLAIN
        },
        // What it saves depends on the data, of which the path knows nothing. Costs for 1400 bytes,
        // both ends.
        predict: |params, facts, p| {
            p.header_bytes += if params.get(2) == 0 { 1.0 } else { 5.0 };
            p.cpu_ns += (12_000.0 + 6000.0 * f64::from(params.get(1))) * facts.mtu_bytes as f64 / 1400.0;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        Zstd { threshold_bytes: params.get(0), level: params.get(1) as u8, number: params.get(2) }
    }

    fn compress(&self, message: &[u8]) -> Option<Vec<u8>> {
        if message.len() < self.threshold_bytes as usize {
            return None;
        }
        let dictionary = dictionary::find(self.number);
        let head = match dictionary {
            Some(_) => [&[FORM_WITH_DICTIONARY][..], &self.number.to_be_bytes()].concat(),
            None => vec![FORM],
        };
        let mut frame = Vec::with_capacity(compress_bound(message.len()));
        ENCODER.with_borrow_mut(|encoder| {
            let prepared = match dictionary {
                Some(dictionary) => encoder.ref_cdict(dictionary.encoder(self.level)),
                None => encoder
                    .disable_dictionary()
                    .and_then(|_| encoder.set_parameter(CParameter::CompressionLevel(i32::from(self.level)))),
            };
            prepared.and_then(|_| encoder.compress2(&mut frame, message)).ok()
        })?;
        let rest = frame.strip_prefix(&MAGIC)?;
        // presentation.md R-12: a frame that saves nothing is not sent.
        (head.len() + rest.len() <= message.len()).then(|| [&head, rest].concat())
    }
}

/// Dictionary that parameters name and this end lacks, in words (presentation.md R-13).
fn lacks(params: &Params) -> Option<String> {
    let number = params.get(2);
    let is_there = number == 0 || dictionary::is_registered(number);
    (!is_there).then(|| format!("there is no dictionary {number} here"))
}

/// The message of a frame without its magic number (presentation.md R-11).
pub(super) fn read(rest: &[u8], max_bytes: usize) -> Result<Cow<'_, [u8]>, Error> {
    decompress(rest, None, max_bytes).map(Cow::Owned)
}

/// The message of a dictionary's number and a frame without its magic number.
pub(super) fn read_with_dictionary(data: &[u8], max_bytes: usize) -> Result<Cow<'_, [u8]>, Error> {
    let (number, rest) = data.split_first_chunk().ok_or(Error::Truncated)?;
    let number = u32::from_be_bytes(*number);
    let dictionary = dictionary::find(number).ok_or(Error::UnknownDictionary(number))?;
    decompress(rest, Some(dictionary), max_bytes).map(Cow::Owned)
}

fn decompress(
    rest: &[u8],
    dictionary: Option<&'static Dictionary>,
    max_bytes: usize,
) -> Result<Vec<u8>, Error> {
    let frame = [&MAGIC, rest].concat();
    // presentation.md R-14: both bounds hold before memory for the message is given.
    let Ok(Some(bytes)) = get_frame_content_size(&frame) else { return Err(Error::Corrupt) };
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes > max_bytes {
        return Err(Error::TooLarge { bytes, max_bytes });
    }
    if bytes > frame.len().saturating_mul(RATIO_MAX) {
        return Err(Error::Impossible { bytes, block_bytes: rest.len() });
    }
    let mut message = vec![0; bytes];
    let written = DECODER.with_borrow_mut(|decoder| match dictionary {
        Some(dictionary) => decoder.decompress_using_ddict(&mut message[..], &frame, dictionary.decoder()),
        None => decoder.decompress(&mut message[..], &frame),
    });
    match written {
        Ok(written) if written == bytes => Ok(message),
        _ => Err(Error::Corrupt),
    }
}

impl Presentation for Zstd {
    fn present<'a>(&self, message: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Owned(self.compress(message).unwrap_or_else(|| plain(message)))
    }

    fn unpresent<'a>(&self, data: &'a [u8], max_bytes: usize) -> Result<Cow<'a, [u8]>, Error> {
        read_form(data, max_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::ParamError;

    fn zstd(settings: &[(&str, u64)]) -> Zstd {
        Zstd::build(&Zstd::INFO.params_within(settings), ())
    }

    /// A reading of a sensor, as many programs send them.
    fn reading(number: u32) -> Vec<u8> {
        let value = number.wrapping_mul(2_654_435_761) % 1000;
        format!(r#"{{"sensor":"{}","temperature":{value},"unit":"celsius","quality":"good"}}"#, number % 50)
            .into_bytes()
    }

    #[test]
    fn a_trained_dictionary_makes_short_messages_shorter() {
        let samples: Vec<Vec<u8>> = (0..2000).map(reading).collect();
        let dictionary = dictionary::train(&samples, 4096).expect("enough samples");
        let number = dictionary::register(&dictionary).expect("a dictionary");
        let (alone, with) = (zstd(&[]), zstd(&[("dictionary", u64::from(number))]));
        let (mut bytes, mut bytes_alone, mut bytes_with) = (0, 0, 0);
        for message in (10_000..10_200).map(reading) {
            let (a, w) = (alone.present(&message), with.present(&message));
            assert_eq!(alone.unpresent(&w, message.len()).as_deref(), Ok(&message[..]), "by either");
            assert_eq!(with.unpresent(&a, message.len()).as_deref(), Ok(&message[..]));
            (bytes, bytes_alone, bytes_with) =
                (bytes + message.len(), bytes_alone + a.len(), bytes_with + w.len());
        }
        println!("{bytes} bytes: {bytes_alone} without a dictionary, {bytes_with} with one");
        assert!(bytes_with * 2 < bytes && bytes_with * 2 < bytes_alone);
    }

    #[test]
    fn any_bytes_serve_as_a_dictionary() {
        let common = reading(3).repeat(2);
        let number = dictionary::register(&common).expect("a dictionary");
        let with = zstd(&[("dictionary", u64::from(number)), ("level", 12)]);
        let data = with.present(&common[5..60]);
        assert!(data[0] == FORM_WITH_DICTIONARY && data.len() < 40, "{}", data.len());
        assert_eq!(with.unpresent(&data, 100).as_deref(), Ok(&common[5..60]));
    }

    #[test]
    fn a_dictionary_that_is_not_here_is_named() {
        let error = Zstd::INFO.choice_with(&[("dictionary", 77)]).expect_err("unknown");
        assert_eq!(error.to_string(), "zstd: there is no dictionary 77 here");
        assert!(matches!(error, ParamError::Absent { mechanism: "zstd", .. }));
        assert_eq!(
            zstd(&[]).unpresent(&[FORM_WITH_DICTIONARY, 0, 0, 0, 77, 1, 2], 100),
            Err(Error::UnknownDictionary(77))
        );
        assert_eq!(zstd(&[]).unpresent(&[FORM_WITH_DICTIONARY, 0, 0], 100), Err(Error::Truncated));
    }

    #[test]
    fn bombs_are_refused_before_anything_is_allocated() {
        let bomb = zstd(&[]).present(&vec![0; 10 << 20]).into_owned();
        assert!(bomb.len() < 2000, "{}", bomb.len());
        let too_large = Error::TooLarge { bytes: 10 << 20, max_bytes: 1 << 20 };
        assert_eq!(zstd(&[]).unpresent(&bomb, 1 << 20), Err(too_large));
        // A frame that claims 16 MiB, and has nothing of it: single segment, 4 bytes of size.
        let claim = [&[FORM, 0xa0][..], &(16u32 << 20).to_le_bytes(), &[1, 0, 0]].concat();
        let refused = zstd(&[]).unpresent(&claim, 16 << 20);
        assert!(matches!(refused, Err(Error::Impossible { .. })), "{refused:?}");
        // A size that is not said, and a frame that is cut off.
        assert_eq!(zstd(&[]).unpresent(&[FORM, 0x00, 0x58, 1, 0, 0], 100), Err(Error::Corrupt));
        let whole = zstd(&[]).present(&reading(3).repeat(4)).into_owned();
        assert_eq!(zstd(&[]).unpresent(&whole[..whole.len() - 9], 1000), Err(Error::Corrupt));
        assert_eq!(zstd(&[]).unpresent(&[FORM], 100), Err(Error::Corrupt));
    }
}
