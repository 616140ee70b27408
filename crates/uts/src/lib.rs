//! The Universal Transport System for async Rust.
#![forbid(unsafe_code)]

pub mod files;
