//! Transports under test, by their names.
