//! Memory that C hands over: the only place where its addresses are followed.

use crate::code::{Failure, Result, uts_code};
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;

/// Longest text that is taken from C, in bytes: so much that nothing which means something is left
/// out, and little enough that a text without an end is found out.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Text of C. `name` says which argument it is.
///
/// # Safety
/// `text` is NULL or leads to bytes up to a zero, which nobody changes meanwhile.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(Failure::argument(format_args!("`{name}` is NULL")));
    }
    // SAFETY: as promised.
    let text = unsafe { CStr::from_ptr(text) };
    if text.count_bytes() > TEXT_BYTES_MAX {
        return Err(Failure::argument(format_args!("`{name}` has more than {TEXT_BYTES_MAX} bytes")));
    }
    text.to_str().map_err(|error| Failure::argument(format_args!("`{name}` is not UTF-8: {error}")))
}

/// The same where NULL says that there is none.
///
/// # Safety
/// As of [`text`].
pub(crate) unsafe fn text_if_any<'a>(given: *const c_char, name: &str) -> Result<Option<&'a str>> {
    // SAFETY: as promised.
    if given.is_null() { Ok(None) } else { unsafe { text(given, name) }.map(Some) }
}

/// Bytes that C hands over. None may be at NULL.
///
/// # Safety
/// `data` is NULL or leads to `size` bytes, which nobody changes meanwhile.
pub(crate) unsafe fn bytes<'a>(data: *const u8, size: usize, name: &str) -> Result<&'a [u8]> {
    if size == 0 {
        return Ok(&[]);
    }
    check_size(data.is_null(), size, name)?;
    // SAFETY: as promised, and looked at.
    Ok(unsafe { core::slice::from_raw_parts(data, size) })
}

/// Memory that C wants filled. Of none, the address may be NULL. Nothing is read of what it holds.
///
/// # Safety
/// `data` is NULL or leads to `size` bytes, which nobody else reads or changes meanwhile.
pub(crate) unsafe fn room<'a>(data: *mut u8, size: usize, name: &str) -> Result<&'a mut [MaybeUninit<u8>]> {
    if size == 0 {
        return Ok(&mut []);
    }
    check_size(data.is_null(), size, name)?;
    // SAFETY: as promised, and looked at. It need not be initialised.
    Ok(unsafe { core::slice::from_raw_parts_mut(data.cast(), size) })
}

fn check_size(is_null: bool, size: usize, name: &str) -> Result<()> {
    if is_null {
        return Err(Failure::argument(format_args!("`{name}` is NULL, and is to have {size} bytes")));
    }
    if isize::try_from(size).is_err() {
        return Err(Failure::argument(format_args!("`{name}` cannot have {size} bytes")));
    }
    Ok(())
}

/// Place for a result that C must give.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Takes the place, and writes `first` there: a value for what follows if it fails.
    ///
    /// # Safety
    /// `place` is NULL, or nobody else reads or changes what is there until the call returns.
    pub unsafe fn new(place: *mut T, first: T, name: &str) -> Result<Self> {
        if place.is_null() {
            return Err(Failure::argument(format_args!(
                "`{name}` is NULL: there is no place for the result"
            )));
        }
        if !place.is_aligned() {
            return Err(Failure::argument(format_args!("`{name}` is not aligned as its type is")));
        }
        // SAFETY: as promised, and looked at.
        unsafe { place.write(first) };
        Ok(Out(place))
    }

    /// The same where C may do without.
    ///
    /// # Safety
    /// As of [`Out::new`].
    pub unsafe fn if_any(place: *mut T, first: T, name: &str) -> Result<Option<Self>> {
        // SAFETY: as promised.
        if place.is_null() { Ok(None) } else { unsafe { Self::new(place, first, name) }.map(Some) }
    }

    /// Writes the result.
    pub fn set(&mut self, value: T) {
        // SAFETY: it was looked at, and is C's for the time of the call.
        unsafe { self.0.write(value) };
    }
}

/// Value that C hands over in a place of its own; `None` = NULL.
///
/// # Safety
/// `place` is NULL or leads to a value, which nobody changes meanwhile. All of its bits may be
/// anything: it has no field that minds.
pub(crate) unsafe fn value<T: Copy>(place: *const T, name: &str) -> Result<Option<T>> {
    if place.is_null() {
        return Ok(None);
    }
    if !place.is_aligned() {
        return Err(Failure::argument(format_args!("`{name}` is not aligned as its type is")));
    }
    // SAFETY: as promised, and looked at.
    Ok(Some(unsafe { place.read() }))
}

/// Writes text with a zero behind it, and its length in bytes (without the zero) to `needed`.
///
/// # Safety
/// `to` as in [`room`], `needed` as in [`Out::new`].
pub(crate) unsafe fn put_text(text: &str, to: *mut c_char, size: usize, needed: *mut usize) -> Result<()> {
    // SAFETY: as promised.
    let needed = unsafe { Out::if_any(needed, text.len(), "needed") }?;
    // SAFETY: as promised.
    let room = unsafe { room(to.cast(), size, "text") }?;
    if needed.is_some() && size == 0 {
        // Asked for the length alone.
        return Ok(());
    }
    let Some(place) = room.get_mut(..text.len()).filter(|_| text.len() < size) else {
        let needs = text.len() + 1;
        return Err(Failure::new(
            uts_code::UTS_ETOOSMALL,
            format_args!("the text needs {needs} bytes of room, and has {size}"),
        ));
    };
    for (to, from) in place.iter_mut().zip(text.bytes()) {
        // What a peer says may hold a zero.
        to.write(if from == 0 { b' ' } else { from });
    }
    if let Some(end) = room.get_mut(text.len()) {
        end.write(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    #[test]
    fn text_is_put_whole_or_not_at_all() {
        let mut room = [b'x'; 6];
        let mut needed = 9;
        let mut put = |size: usize| {
            // SAFETY: all of it is here.
            let done = unsafe { put_text("fünf", room.as_mut_ptr().cast(), size, &mut needed) };
            (done.map_err(|failure| failure.code), room, needed)
        };
        assert_eq!(put(6), (Ok(()), *b"f\xc3\xbcnf\0", 5));
        assert_eq!(put(5).0, Err(uts_code::UTS_ETOOSMALL));
        assert_eq!(put(0).0, Ok(()));
    }

    #[test]
    fn addresses_that_cannot_be_are_refused() {
        let odd = ptr::without_provenance_mut::<u64>(9);
        // SAFETY: none of these is followed.
        unsafe {
            assert!(text(ptr::null(), "t").is_err() && bytes(ptr::null(), 1, "b").is_err());
            assert!(bytes(ptr::null(), 0, "b").is_ok() && room(ptr::null_mut(), 0, "r").is_ok());
            assert!(room(ptr::without_provenance_mut(8), usize::MAX, "r").is_err());
            assert!(Out::new(odd, 0, "o").is_err() && value(odd.cast_const(), "v").is_err());
            assert!(Out::new(ptr::null_mut::<u64>(), 0, "o").is_err());
        }
    }
}
