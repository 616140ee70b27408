//! uts-engine
#![forbid(unsafe_code)]

pub mod exchange;
pub mod policy;
pub mod requirements;
pub mod selector;
