//! Logs and tables of UTS, as the readers of others see them: the tests of this crate. A run of the
//! laboratory in virtual time leaves what they read.
