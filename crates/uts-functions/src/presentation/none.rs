//! No presentation: messages travel as they are.

use super::{Error, Presentation};
use crate::macros::inert;
use std::borrow::Cow;

inert!(Presentation, "messages travel as they are", context: ());

impl Presentation for None {
    fn present<'a>(&self, message: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(message)
    }

    fn unpresent<'a>(&self, data: &'a [u8], max_bytes: usize) -> Result<Cow<'a, [u8]>, Error> {
        if data.len() > max_bytes {
            return Err(Error::TooLarge { bytes: data.len(), max_bytes });
        }
        Ok(Cow::Borrowed(data))
    }
}
