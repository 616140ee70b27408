//! Two ends of a connection in one process, and calls that succeed.

use core::ffi::{CStr, c_char, c_int};
use core::ptr::{null, null_mut};
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use uts_c::*;

/// The table of handles is the process's: tests take turns.
static TURN: Mutex<()> = Mutex::new(());

pub(super) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn text_at(text: *const c_char) -> String {
    assert!(!text.is_null());
    unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8").to_owned()
}

fn c(text: &str) -> CString {
    CString::new(text).expect("no zero")
}

fn set<T>(handle: *mut T, name: &str, value: &str) {
    let code = unsafe { uts_set(handle.cast(), c(name).as_ptr(), c(value).as_ptr()) };
    assert_eq!(code, 0, "{name}={value}: {}", text_at(uts_error()));
}

pub(super) fn get<T>(handle: *mut T, name: &str) -> String {
    let mut room = [0; 4096];
    let code = unsafe { uts_get(handle.cast(), c(name).as_ptr(), room.as_mut_ptr(), room.len(), null_mut()) };
    assert_eq!(code, 0, "{name}: {}", text_at(uts_error()));
    text_at(room.as_ptr())
}

pub(super) fn given<T>(call: impl FnOnce(*mut *mut T) -> c_int) -> *mut T {
    let mut handle = null_mut();
    let code = call(&raw mut handle);
    assert_eq!(code, 0, "{}", text_at(uts_error()));
    handle
}

pub(super) const PATIENCE: c_int = 60_000;

/// Two ends of a connection, with a flow, in one process.
pub(super) struct Ends {
    pub context: *mut uts_context,
    pub listener: *mut uts_listener,
    pub client: *mut uts_connection,
    pub server: *mut uts_connection,
    pub out: *mut uts_flow,
    pub back: *mut uts_flow,
    pub options: *mut uts_options,
}

impl Ends {
    pub fn new(settings: &[(&str, &str)]) -> Self {
        let context = given(|out| unsafe { uts_context_new(out) });
        let options = given(|out| unsafe { uts_options_new(out) });
        for (name, value) in settings {
            set(options, name, value);
        }
        set(options, "identity", "ephemeral");
        let listener = given(|out| unsafe { uts_listen(context, c("127.0.0.1:0").as_ptr(), options, out) });
        set(options, "pin", &get(listener, "fingerprint"));
        let target = c(&get(listener, "localAddress"));
        let client = given(|out| unsafe { uts_connect(context, target.as_ptr(), options, out, PATIENCE) });
        let server = given(|out| unsafe { uts_accept(listener, out, PATIENCE) });
        let out = given(|out| unsafe { uts_open_flow(client, null(), out, PATIENCE) });
        assert_eq!(unsafe { uts_send(out, b"\x07".as_ptr().cast(), 1, null(), PATIENCE) }, 0);
        let back = given(|out| unsafe { uts_accept_flow(server, out, PATIENCE) });
        Ends { context, listener, client, server, out, back, options }
    }

    pub fn close(self) {
        uts_close(self.context.cast());
        uts_close(self.options.cast());
    }
}
