//! uts-lab
