//! uts
#![forbid(unsafe_code)]

mod authorized_keys;
mod fingerprint;
mod identity;
mod known_hosts;
mod tls;
mod trust;
pub use authorized_keys::*;
pub use fingerprint::*;
pub use identity::*;
pub use known_hosts::*;
pub use trust::*;
