//! Undoes the presentation of messages that arrive: only forms that this end has agreed to are read
//! (presentation.md ).

use crate::synthesis::ReceiveStack;
use bytes::Bytes;
use smallvec::SmallVec;
use std::borrow::Cow;
use uts_functions::presentation::{self, Presentation as _};

/// First byte of a message that follows as it is (presentation.md R-10).
const AS_IT_IS: u8 = 0;

/// Forms by which a group's messages are read. They keep their form when the profile changes.
#[derive(Clone, Debug)]
pub(in crate::connection) struct Presentations {
    pub group: u8,
    newest: presentation::Slot,
    /// Forms of all mechanisms that were agreed to.
    forms: SmallVec<[u8; 8]>,
}

impl Presentations {
    /// Under the profile of a stack; `None` if messages are sent as they are.
    pub fn new(stack: &ReceiveStack) -> Option<Self> {
        let facts = &stack.presentation.info().facts;
        let forms = SmallVec::from_slice(facts.forms);
        (!facts.inert).then(|| Presentations {
            group: stack.group,
            newest: stack.presentation.clone(),
            forms,
        })
    }

    /// The profile of another stack of the group follows.
    pub fn follow(&mut self, next: Presentations) {
        self.forms
            .extend(next.forms.into_iter().filter(|form| !self.forms.contains(form)).collect::<Vec<_>>());
        self.newest = next.newest;
    }

    /// The message of what has arrived, of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn read(&self, data: &Bytes, bytes_max: usize) -> Result<Bytes, String> {
        // Mechanisms that a program has registered have forms of their own.
        let is_own = self.newest.info().facts.forms.is_empty();
        let form = data.first().copied().unwrap_or(AS_IT_IS);
        if !(is_own || form == AS_IT_IS || self.forms.contains(&form)) {
            return Err(format!("presentation form {form} was not agreed"));
        }
        match self.newest.unpresent(data, bytes_max) {
            Ok(Cow::Owned(plain)) => Ok(Bytes::from(plain)),
            Ok(Cow::Borrowed(plain)) => Ok(data.slice_ref(plain)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A message in the form in which it came, which whoever reads it turns back: what is compressed
/// takes time and memory, which need not be the endpoint's.
#[derive(Clone, Debug)]
pub struct Presented {
    data: Bytes,
    presentations: Presentations,
    bytes_max: usize,
}

impl Presented {
    pub(in crate::connection) fn new(data: Bytes, presentations: Presentations, bytes_max: usize) -> Self {
        Presented { data, presentations, bytes_max }
    }

    /// Bytes as it came.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// True if nothing came.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The message, of at most as many bytes as one of its flow may have.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn open(&self) -> Result<Bytes, String> {
        self.presentations.read(&self.data, self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::testing;
    use uts_functions::Function;

    /// An end that has agreed to the order of bytes alone is not made to run a decompressor.
    #[test]
    fn what_was_not_agreed_is_read_by_nobody() {
        let message = vec![7; 10_000];
        let slot = |name: &str| {
            let mut ways = testing::ways_with(&[(Function::Presentation, name)]);
            ways.inbound.stacks.remove(0)
        };
        let formed = |name: &str| Bytes::from(slot(name).presentation.present(&message).into_owned());
        let mut agreed = Presentations::new(&slot("byte-order")).expect("it has a form");
        assert_eq!(agreed.read(&formed("byte-order"), 1 << 20).as_deref(), Ok(&message[..]));
        for name in ["zstd", "lz4"] {
            assert!(
                agreed.read(&formed(name), 1 << 20).is_err_and(|why| why.contains("not agreed")),
                "{name}"
            );
        }
        // Once it is agreed it is read, and so is what came before.
        agreed.follow(Presentations::new(&slot("lz4")).expect("it has a form"));
        assert_eq!(agreed.read(&formed("lz4"), 1 << 20).as_deref(), Ok(&message[..]));
        assert_eq!(agreed.read(&formed("byte-order"), 1 << 20).as_deref(), Ok(&message[..]));
        assert!(agreed.read(&formed("zstd"), 1 << 20).is_err());
        assert!(agreed.read(&formed("lz4"), 9_999).is_err(), "longer than a message may be");
    }
}
