//! Tests of the papers, as one program.

mod blast;
mod done;
mod openlink;
mod rx_hex;
mod thesis;
mod tiger;
