//! uts-engine
#![forbid(unsafe_code)]

pub mod exchange;
pub mod requirements;
