//! A part of an experiment that outgrows a machine.

use crate::experiment::file::WorldKind;
use crate::experiment::plan::Plan;
use anyhow::{Result, ensure};
use std::fmt;
use std::str::FromStr;

/// Each N-th run of a plan, beginning with the I-th: `I/N`, with I from 1 to N.
///
/// Runs are dealt in turns, so that each shard has some of every repetition. The place in the whole
/// plan decides, whatever else limits what is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    nth: u32,
    of: u32,
}

impl Shard {
    /// True if it has the run at this place of the plan, counted from 0.
    pub fn takes(self, place: usize) -> bool {
        place % self.of as usize == self.nth as usize - 1
    }

    /// Checks that its runs may be done apart from the others: in virtual time alone, figures are
    /// the same on any machine.
    ///
    /// # Errors
    /// The plan has runs in another world.
    pub fn check(self, plan: &Plan) -> Result<()> {
        let other = plan.cases.iter().map(|case| case.world).find(|world| *world != WorldKind::Sim);
        ensure!(
            other.is_none(),
            "--shard {self}: the experiment has runs in the world {}, and only runs in virtual time can be shared \
             out; --world sim runs it there",
            other.map_or("", WorldKind::name)
        );
        Ok(())
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(nth, of)| Some((nth.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((nth, of)) if nth >= 1 && nth <= of => Ok(Shard { nth, of }),
            _ => Err("expected I/N, two whole numbers with I from 1 to N, as 2/8".into()),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.nth, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_each_run_once() {
        for of in 1..=9 {
            let shards: Vec<Shard> = (1..=of).map(|nth| format!("{nth}/{of}").parse().unwrap()).collect();
            for place in 0..20 {
                assert_eq!(shards.iter().filter(|shard| shard.takes(place)).count(), 1, "{place} of {of}");
            }
            let counts = shards.iter().map(|shard| (0..20).filter(|place| shard.takes(*place)).count());
            let counts: Vec<usize> = counts.collect();
            assert!(counts[0] - counts[counts.len() - 1] <= 1, "{counts:?}");
        }
    }

    #[test]
    fn what_is_no_shard_is_refused() {
        for text in ["", "1", "0/0", "0/4", "5/4", "-1/4", "a/b", "1/2/3", "1.5/2", "1/4294967296"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
        let shard: Shard = "4/4".parse().unwrap();
        assert!(shard.takes(3) && !shard.takes(0) && shard.to_string() == "4/4");
    }
}
