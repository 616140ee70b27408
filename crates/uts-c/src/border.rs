//! The border that every function for C passes: panics stay inside, errors become a code and text.

use crate::code::{Failure, Result, uts_code};
use core::cell::{Cell, RefCell};
use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
    static PLANTED: Cell<bool> = const { Cell::new(false) };
}

/// Text in place of one that could not be kept.
const NO_TEXT: &CStr = c"";

/// Runs what a function does. Returns its code; the text of an error is kept for [`uts_error`].
///
/// All that a function does is in `run`, so that no panic of it goes further. State that it leaves
/// half changed is behind locks that are taken all the same (`PoisonError::into_inner`): the
/// library is as sound afterwards as after a panic of a task.
pub(crate) fn border(run: impl FnOnce() -> Result<()>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(|| {
        assert!(!PLANTED.replace(false), "a panic was planted");
        run()
    }));
    let failure = match done {
        Ok(Ok(())) => return uts_code::UTS_OK as c_int,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(uts_code::UTS_EPANIC, words_of(&*panic)),
    };
    let code = failure.code as c_int;
    if code < 0 {
        keep(failure.text);
    }
    code
}

/// The same for functions that return something else, `failed` in case of an error.
pub(crate) fn border_or<T>(failed: T, run: impl FnOnce() -> Result<T>) -> T {
    let mut result = None;
    border(|| {
        result = Some(run()?);
        Ok(())
    });
    result.unwrap_or(failed)
}

/// Has the next function that this thread calls panic: for tests of the border.
#[doc(hidden)]
pub fn plant_panic() {
    PLANTED.set(true);
}

fn words_of(panic: &(dyn core::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a fault of the library: {}", words.unwrap_or("a panic without words"))
}

fn keep(text: String) {
    // A peer's words may hold anything. C's end where a zero is.
    let kept = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // While the thread ends there is no place any more, and nobody to read it.
    let _ = ERROR.try_with(|error| error.replace(kept));
}

/// Text of the last error that a function has returned in this thread. Empty if there was none.
/// It stays valid until another call in this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn uts_error() -> *const c_char {
    border_or(NO_TEXT.as_ptr(), || {
        Ok(ERROR.try_with(|error| error.borrow().as_ptr()).unwrap_or(NO_TEXT.as_ptr()))
    })
}

/// Name of a code, as in this header; "unknown" for numbers that are none.
#[unsafe(no_mangle)]
pub extern "C" fn uts_code_name(code: c_int) -> *const c_char {
    border_or(NO_TEXT.as_ptr(), || {
        let found = uts_code::ALL.into_iter().find(|known| *known as c_int == code);
        Ok(found.map_or(c"unknown", uts_code::name).as_ptr())
    })
}

/// Version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn uts_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    border_or(NO_TEXT.as_ptr(), || {
        Ok(CStr::from_bytes_with_nul(VERSION.as_bytes()).unwrap_or(NO_TEXT).as_ptr())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> String {
        let text = uts_error();
        // SAFETY: it is a string of the library's, and no other call is made meanwhile.
        unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8").to_owned()
    }

    #[test]
    fn a_panic_becomes_a_code_and_words() {
        assert_eq!(border(|| panic!("of {}", 7)), uts_code::UTS_EPANIC as c_int);
        assert_eq!(error(), "a fault of the library: of 7");
        assert_eq!(border(|| std::panic::panic_any(7)), uts_code::UTS_EPANIC as c_int);
        assert_eq!(error(), "a fault of the library: a panic without words");
    }

    #[test]
    fn the_text_of_an_error_is_kept_until_the_next() {
        let fail = |text: &str| border(|| Err(Failure::argument(text)));
        assert_eq!(fail("first\0and more"), uts_code::UTS_EINVAL as c_int);
        assert_eq!(border(|| Ok(())), 0);
        assert_eq!(border(|| Err(Failure::again())), 1);
        assert_eq!(error(), "first and more");
        fail("second");
        assert_eq!(error(), "second");
    }

    #[test]
    fn codes_have_their_names() {
        for code in uts_code::ALL {
            assert_eq!(code.name().to_str(), Ok(format!("{code:?}").as_str()));
        }
    }
}
