//! Dictionaries for compression: what messages have in common, which both ends have before the
//! first message. A dictionary goes by its hash, and is registered for as long as the process runs.

use std::sync::{OnceLock, PoisonError, RwLock};
use twox_hash::XxHash3_64;
use zstd::zstd_safe::{CDict, DDict};

/// Dictionaries that a process may have.
pub const DICTIONARIES_MAX: usize = 16;
/// The smallest dictionary, in bytes.
pub const DICTIONARY_BYTES_MIN: usize = 8;
/// The largest dictionary, in bytes.
pub const DICTIONARY_BYTES_MAX: usize = 1 << 20;
/// Levels of compression, from 1 on.
pub(super) const LEVELS: usize = 12;

/// Why a dictionary cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DictionaryError {
    /// Too small or too large.
    #[error(
        "a dictionary of {bytes} bytes (expected {DICTIONARY_BYTES_MIN} to {DICTIONARY_BYTES_MAX} bytes)"
    )]
    Size {
        /// Its size.
        bytes: usize,
    },
    /// There are as many as there may be.
    #[error("{DICTIONARIES_MAX} dictionaries are registered, which is the most that a process can have")]
    TooMany,
    /// Another has the same hash.
    #[error("another dictionary has the number {0} too: add a byte to one of them")]
    Taken(u32),
    /// Zstandard cannot read it: it begins as a trained dictionary does, and is none.
    #[error("the dictionary is damaged: it begins like a trained one, and cannot be read as one")]
    Damaged,
    /// The samples are too few or too small to be trained from.
    #[error("{samples} samples of {bytes} bytes are too few for a dictionary ({why})")]
    Samples {
        /// Number of samples.
        samples: usize,
        /// Bytes of all.
        bytes: usize,
        /// Reason that Zstandard gives.
        why: String,
    },
}

/// A dictionary, prepared for compression and decompression. It is never given back.
pub(super) struct Dictionary {
    number: u32,
    bytes: &'static [u8],
    /// For each level, once it is used.
    encode: [OnceLock<CDict<'static>>; LEVELS],
    decode: DDict<'static>,
}

impl Dictionary {
    /// For compression at a level, 1 to [`LEVELS`].
    pub fn encoder(&'static self, level: u8) -> &'static CDict<'static> {
        let level = level.clamp(1, LEVELS as u8);
        self.encode[usize::from(level) - 1].get_or_init(|| CDict::create(self.bytes, i32::from(level)))
    }

    /// For decompression.
    pub fn decoder(&'static self) -> &'static DDict<'static> {
        &self.decode
    }
}

static REGISTERED: RwLock<Vec<&'static Dictionary>> = RwLock::new(Vec::new());

/// The number that a dictionary goes by: the lower half of its XXH3 (64 bits, seed 0), or 1 if that
/// is 0 (presentation.md R-13).
pub fn number_of(dictionary: &[u8]) -> u32 {
    (XxHash3_64::oneshot(dictionary) as u32).max(1)
}

/// Registers a dictionary, trained ([`train`]) or any bytes that messages have in common. Returns
/// the number that it goes by: `uts.profile.presentation=zstd(dictionary=NUMBER)`. To register one
/// again changes nothing.
///
/// # Errors
/// [`DictionaryError`]; nothing is registered then.
pub fn register(dictionary: &[u8]) -> Result<u32, DictionaryError> {
    let bytes = dictionary.len();
    if !(DICTIONARY_BYTES_MIN..=DICTIONARY_BYTES_MAX).contains(&bytes) {
        return Err(DictionaryError::Size { bytes });
    }
    let number = number_of(dictionary);
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = registered.iter().find(|known| known.number == number) {
        return if known.bytes == dictionary { Ok(number) } else { Err(DictionaryError::Taken(number)) };
    }
    if registered.len() >= DICTIONARIES_MAX {
        return Err(DictionaryError::TooMany);
    }
    // Both ways are tried before anything is kept.
    let decode = DDict::try_create(dictionary).ok_or(DictionaryError::Damaged)?;
    CDict::try_create(dictionary, 1).ok_or(DictionaryError::Damaged)?;
    let bytes = Box::leak(Box::<[u8]>::from(dictionary));
    let encode = [const { OnceLock::new() }; LEVELS];
    registered.push(Box::leak(Box::new(Dictionary { number, bytes, encode, decode })));
    Ok(number)
}

/// True if this process has the dictionary with that number.
pub fn is_registered(number: u32) -> bool {
    find(number).is_some()
}

/// The numbers of the dictionaries that this process has, in the order in which they were
/// registered.
pub fn registered() -> Vec<u32> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    registered.iter().map(|dictionary| dictionary.number).collect()
}

/// The dictionary with that number.
pub(super) fn find(number: u32) -> Option<&'static Dictionary> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    registered.iter().copied().find(|dictionary| dictionary.number == number)
}

/// Makes a dictionary of at most `bytes_max` bytes from samples of messages: a hundred times its
/// size of samples serves well.
///
/// # Errors
/// [`DictionaryError::Size`], [`DictionaryError::Samples`].
pub fn train<S: AsRef<[u8]>>(samples: &[S], bytes_max: usize) -> Result<Vec<u8>, DictionaryError> {
    if !(DICTIONARY_BYTES_MIN..=DICTIONARY_BYTES_MAX).contains(&bytes_max) {
        return Err(DictionaryError::Size { bytes: bytes_max });
    }
    zstd::dict::from_samples(samples, bytes_max).map_err(|error| DictionaryError::Samples {
        samples: samples.len(),
        bytes: samples.iter().map(|sample| sample.as_ref().len()).sum(),
        why: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_dictionary_is_refused() {
        assert_eq!(register(b"short"), Err(DictionaryError::Size { bytes: 5 }));
        let large = vec![7; DICTIONARY_BYTES_MAX + 1];
        assert_eq!(register(&large), Err(DictionaryError::Size { bytes: large.len() }));
        // The magic number of a trained one, and nothing that it has.
        let broken = [&[0x37, 0xa4, 0x30, 0xec][..], &[0xff; 60]].concat();
        assert_eq!(register(&broken), Err(DictionaryError::Damaged));
        assert!(!is_registered(number_of(&broken)));
        let error = train(&[b"one", b"two"], 1000).expect_err("too few").to_string();
        assert!(error.starts_with("2 samples of 6 bytes are too few"), "{error}");
    }

    #[test]
    fn a_dictionary_goes_by_its_hash() {
        let number = register(b"what messages have in common").expect("a dictionary");
        assert_eq!(number, number_of(b"what messages have in common"));
        assert_eq!(register(b"what messages have in common"), Ok(number), "again");
        assert!(is_registered(number) && !is_registered(number.wrapping_add(1)) && !is_registered(0));
    }
}
