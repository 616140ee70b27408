//! uts-wire
