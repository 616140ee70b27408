//! uts-functions
