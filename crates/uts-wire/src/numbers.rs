//! Numbers of an end's own, where they are not those of `spec/functions.toml`. [P-67]

use crate::error::{Problem, WireError};
use crate::varint::{Reader, Sink};
use std::collections::{BTreeMap, BTreeSet};

/// The longest name of a mechanism, in bytes. [P-67]
pub const MAX_NAME_BYTES: usize = 32;

/// The most mechanisms that are named. [P-67]
pub const MAX_NAMED: usize = 256;

/// The most functions, and the most mechanisms, that are renumbered: what a byte counts. [P-67]
pub const MAX_RENUMBERED: usize = 255;

/// Numbers by which an end writes functions and mechanisms in frames. What is not in it has the
/// number of `spec/functions.toml`. [P-67]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnNumbers {
    /// Own numbers of functions, by their numbers in `spec/functions.toml`.
    pub functions: BTreeMap<u8, u8>,
    /// Own numbers of mechanisms, by their function's number and their own in that file.
    pub mechanisms: BTreeMap<(u8, u8), u8>,
    /// Names of mechanisms that are not in that file, by their function's number there, and their
    /// own number.
    pub named: BTreeMap<(u8, u8), String>,
}

impl OwnNumbers {
    /// True if a mechanism can have this name: 1 to [`MAX_NAME_BYTES`] lower-case letters, digits
    /// and hyphens. [P-67]
    pub fn is_name(name: &str) -> bool {
        (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed)
    }

    /// Bytes that a named mechanism takes.
    pub const fn named_bytes(name: &str) -> usize {
        3 + name.len()
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut numbers = OwnNumbers::default();
        let mut taken = BTreeSet::new();
        for _ in 0..r.u8("count of functions")? {
            let at = r.offset();
            let (function, own) = (r.u8("function")?, r.u8("number of a function")?);
            if numbers.functions.insert(function, own).is_some() || !taken.insert(own) {
                return Err(twice("number of a function", at));
            }
        }
        let mut taken = BTreeSet::new();
        for _ in 0..r.u8("count of mechanisms")? {
            let at = r.offset();
            let key = (r.u8("function")?, r.u8("mechanism")?);
            let own = r.u8("number of a mechanism")?;
            if numbers.mechanisms.insert(key, own).is_some() || !taken.insert((key.0, own)) {
                return Err(twice("number of a mechanism", at));
            }
        }
        let mut names = BTreeSet::new();
        while !r.is_empty() {
            let at = r.offset();
            if numbers.named.len() >= MAX_NAMED {
                let found = MAX_NAMED as u64 + 1;
                return Err(WireError::too_long("named mechanisms", at, found, MAX_NAMED as u64));
            }
            let key = (r.u8("function")?, r.u8("number of a mechanism")?);
            let name = read_name(r)?;
            if !taken.insert(key) || !names.insert((key.0, name.clone())) {
                return Err(twice("named mechanism", at));
            }
            numbers.named.insert(key, name);
        }
        Ok(numbers)
    }

    pub(crate) fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        debug_assert!(self.functions.len().max(self.mechanisms.len()) <= MAX_RENUMBERED);
        debug_assert!(self.named.len() <= MAX_NAMED && self.named.values().all(|name| Self::is_name(name)));
        out.put_u8(self.functions.len() as u8);
        self.functions.iter().for_each(|(function, own)| out.put(&[*function, *own]));
        out.put_u8(self.mechanisms.len() as u8);
        self.mechanisms.iter().for_each(|((f, m), own)| out.put(&[*f, *m, *own]));
        for ((function, own), name) in &self.named {
            out.put(&[*function, *own, name.len() as u8]);
            out.put(name.as_bytes());
        }
    }
}

fn twice(what: &'static str, at: usize) -> WireError {
    WireError::new(what, at, Problem::Duplicate)
}

fn read_name(r: &mut Reader<'_>) -> Result<String, WireError> {
    let at = r.offset();
    let bytes = r.u8("length of a name")?;
    if bytes == 0 {
        return Err(WireError::new("name of a mechanism", at, Problem::Missing));
    }
    if usize::from(bytes) > MAX_NAME_BYTES {
        return Err(WireError::too_long("name of a mechanism", at, u64::from(bytes), MAX_NAME_BYTES as u64));
    }
    let at = r.offset();
    let bytes = r.bytes(u64::from(bytes), "name of a mechanism")?;
    if let Some(first) = bytes.iter().position(|b| !is_allowed(*b)) {
        let (found, expected) = (u64::from(bytes[first]), "a to z, 0 to 9 or -");
        return Err(WireError::value("name of a mechanism", at + first, found, expected));
    }
    Ok(bytes.iter().map(|b| char::from(*b)).collect())
}

const fn is_allowed(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'
}
