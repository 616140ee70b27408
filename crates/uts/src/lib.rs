//! uts
