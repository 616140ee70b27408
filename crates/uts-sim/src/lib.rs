//! uts-sim
