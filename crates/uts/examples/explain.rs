//! Choice of the selector for a path, and its reasons. Nothing is sent.
//!
//! ```text
//! cargo run --example explain
//! ```

use std::error::Error;
use std::io::Write;
use std::time::Duration;
use uts::{Library, PathFacts, Rate, Requirements};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout())
}

/// Explains twice: for a path that loses nothing, and for one that loses 2 % of its packets.
pub fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let requirements = Requirements::media(Duration::from_millis(100));
    for loss in [0.0, 0.02] {
        let rtt = Duration::from_millis(150);
        let facts = PathFacts {
            rtt_min: rtt,
            rtt_smoothed: rtt,
            capacity: Rate::from_bits_per_sec(5_000_000),
            loss,
            // Figures that rest on few packets count for little.
            samples: 1000,
            ..PathFacts::default()
        };
        // `None`: the peer is taken to have what this end has.
        let explained = uts::explain(&requirements, &facts, &Library::local(), None)?;
        writeln!(out, "loss {loss}:")?;
        for line in &explained.lines {
            writeln!(out, "  {}: {} ({})", line.function.name(), line.mechanism, line.why)?;
        }
    }
    Ok(())
}
