//! Values in messages, in the form of postcard (its wire format, version 1).

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a message and a value do not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The value cannot be encoded.
    #[error("the value cannot be encoded: {0}")]
    Encode(postcard::Error),
    /// The message is no value of the type that was expected.
    #[error("the message is no {expected}: {source}")]
    Decode {
        /// The type's name.
        expected: &'static str,
        /// Where it fails.
        source: postcard::Error,
    },
    /// Something is behind the value.
    #[error("{bytes} bytes follow the {expected} in a message")]
    Longer {
        /// The type's name.
        expected: &'static str,
        /// Their number.
        bytes: usize,
    },
}

/// Encodes a value.
///
/// # Errors
/// [`ValueError::Encode`]: its type has what postcard cannot carry.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, ValueError> {
    postcard::to_stdvec(value).map(Bytes::from).map_err(ValueError::Encode)
}

/// Decodes a value, which is the whole message.
///
/// # Errors
/// [`ValueError`].
pub fn decode<T: DeserializeOwned>(message: &[u8]) -> Result<T, ValueError> {
    let expected = core::any::type_name::<T>();
    let (value, rest) =
        postcard::take_from_bytes(message).map_err(|source| ValueError::Decode { expected, source })?;
    match rest.len() {
        0 => Ok(value),
        bytes => Err(ValueError::Longer { expected, bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_whole_message() {
        let value = (7_u32, "seven".to_owned(), vec![Some(true), None]);
        let message = encode(&value).expect("encoded");
        assert_eq!(decode::<(u32, String, Vec<Option<bool>>)>(&message), Ok(value));
        let short = decode::<(u32, String)>(&message[..3]).expect_err("cut off");
        assert!(matches!(short, ValueError::Decode { .. }), "{short}");
        let long = decode::<u32>(&message).expect_err("more follows");
        assert!(long.to_string().contains("follow the u32"), "{long}");
    }
}
