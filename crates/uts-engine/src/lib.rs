//! uts-engine
