//! Tests of the wire format, as one program.

mod common;
mod described;

mod exhaustive;
mod hostile;
mod round_trip;
mod tables;
mod vectors;
