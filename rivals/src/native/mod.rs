//! The C libraries, made safe to call. The only unsafe code is here: there is no maintained crate
//! for either library.
#![allow(unsafe_code)]

#[cfg(has_enet)]
pub mod enet;
#[cfg(has_srt)]
pub mod srt;
