//! uts-path
