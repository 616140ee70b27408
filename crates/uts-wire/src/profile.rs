//! A profile as it travels: one mechanism with its parameters for each function that it names.

use crate::error::{Problem, WireError};
use crate::varint::{Reader, Sink, emitters};
use smallvec::SmallVec;

/// The most choices in a profile: one for each function that has a number. [P-40]
pub const MAX_CHOICES: usize = 15;

/// The most parameters of a mechanism. [P-41]
pub const MAX_PARAMS: usize = 4;

/// A mechanism chosen for a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WireChoice {
    /// The function's number (`spec/functions.toml`).
    pub function: u8,
    /// The mechanism's number within the function.
    pub mechanism: u8,
    /// Parameters in the order of the mechanism's table. Zeros at the end are not sent, and absent
    /// ones are zero.
    pub params: [u32; MAX_PARAMS],
}

/// A profile: at most one choice for each function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WireProfile {
    choices: SmallVec<[WireChoice; MAX_CHOICES]>,
}

impl WireChoice {
    /// Reads a choice.
    pub fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let function = r.u8("function")?;
        let mechanism = r.u8("mechanism")?;
        let at = r.offset();
        let count = usize::from(r.u8("parameter count")?);
        if count > MAX_PARAMS {
            return Err(WireError::too_long("parameter count", at, count as u64, MAX_PARAMS as u64)); // P-41
        }
        let mut params = [0; MAX_PARAMS];
        for param in params.iter_mut().take(count) {
            *param = r.varint_u32("parameter")?;
        }
        Ok(WireChoice { function, mechanism, params })
    }

    pub(crate) fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        let count = self.params.iter().rposition(|p| *p != 0).map_or(0, |last| last + 1);
        out.put(&[self.function, self.mechanism, count as u8]);
        self.params.iter().take(count).for_each(|p| out.put_varint(u64::from(*p)));
    }
}

impl WireProfile {
    /// The profile that names no function.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a choice.
    ///
    /// # Errors
    /// `Duplicate` if the function has one already, `TooLong` over [`MAX_CHOICES`]. The error's
    /// place is the number of choices before it.
    pub fn push(&mut self, choice: WireChoice) -> Result<(), WireError> {
        let at = self.choices.len();
        if self.get(choice.function).is_some() {
            return Err(WireError::new("function in profile", at, Problem::Duplicate));
        }
        if at >= MAX_CHOICES {
            return Err(WireError::too_long("profile", at, at as u64 + 1, MAX_CHOICES as u64));
        }
        self.choices.push(choice);
        Ok(())
    }

    /// A profile of these choices.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn from_choices(choices: impl IntoIterator<Item = WireChoice>) -> Result<Self, WireError> {
        let mut profile = Self::new();
        choices.into_iter().try_for_each(|choice| profile.push(choice))?;
        Ok(profile)
    }

    /// The choices, in the order in which they travel.
    pub fn choices(&self) -> &[WireChoice] {
        &self.choices
    }

    /// The choice for a function.
    pub fn get(&self, function: u8) -> Option<&WireChoice> {
        self.choices.iter().find(|choice| choice.function == function)
    }

    /// Reads a profile.
    pub fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let at = r.offset();
        let count = usize::from(r.u8("choice count")?);
        if count > MAX_CHOICES {
            return Err(WireError::too_long("choice count", at, count as u64, MAX_CHOICES as u64)); // P-40
        }
        let mut profile = Self::new();
        for _ in 0..count {
            let at = r.offset();
            let choice = WireChoice::read(r)?;
            profile.push(choice).map_err(|error| WireError { at, ..error })?; // P-40
        }
        Ok(profile)
    }

    pub(crate) fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        out.put_u8(self.choices.len() as u8);
        self.choices.iter().for_each(|choice| choice.write(out));
    }
}

emitters!(WireChoice, WireProfile);
