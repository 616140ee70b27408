//! uts
#![forbid(unsafe_code)]

pub mod files;
