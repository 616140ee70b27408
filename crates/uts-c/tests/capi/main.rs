//! Tests of what C sees.
#![allow(unsafe_code, reason = "these call what C calls")]

mod calls;
mod header;
#[cfg(target_os = "linux")]
mod programs;
