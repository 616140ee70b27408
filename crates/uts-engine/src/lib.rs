//! uts-engine
#![forbid(unsafe_code)]

pub mod requirements;
