//! Tests of paths, as one program.

mod link;
mod passage;
mod path;
mod queue;
mod text;
mod trace;
