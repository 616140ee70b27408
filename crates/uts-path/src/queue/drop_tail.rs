//! Drop-tail: the packet that finds no room goes.

use super::QueueDiscipline;

/// All of it is in the trait's defaults: nothing is dropped early, and an overflow's victim is the
/// one that comes.
#[derive(Debug)]
pub(super) struct DropTailQueue;

impl QueueDiscipline for DropTailQueue {}
