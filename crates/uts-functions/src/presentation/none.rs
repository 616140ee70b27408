//! No presentation: messages travel as they are.

use super::{Error, Presentation};
use crate::mechanism::{Consent, Mechanism, Params};
use crate::profile::Function;
use std::borrow::Cow;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct None;

impl None {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Presentation,
        number: 0,
        name: "none",
        what: "messages travel as they are",
        mandatory: true,
        consent: Consent::NotNeeded,
        params: &[],
        needs: &[],
        predict: |_, _, _| {},
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        None
    }
}

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
