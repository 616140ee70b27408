//! Tests of the wire format, as one program.

mod common;

mod exhaustive;
mod hostile;
mod round_trip;
mod vectors;
