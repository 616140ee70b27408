//! Runs a target over mutations of its corpus, without a nightly toolchain and without knowledge of
//! what is covered. Of inputs that break something the shortest is told. `soak TARGET RUNS [SEED]`.

#[path = "../tests/mutation/mod.rs"]
mod mutation;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("a target and a number of runs are needed")?;
    let target = uts_fuzz::find(&name).ok_or_else(|| format!("there is no target `{name}`"))?;
    let runs: u64 = args.next().ok_or("a number of runs is needed")?.parse()?;
    let seed = args.next().map_or(Ok(0), |seed| seed.parse())?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(&name);
    let mut corpus = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        corpus.push(std::fs::read(entry?.path())?);
    }
    let (mut rng, mut shortest) = (ChaCha8Rng::seed_from_u64(seed), None::<Vec<u8>>);
    for _ in 0..runs {
        let mut data = corpus[rng.random_range(0..corpus.len())].clone();
        // Two inputs in one now and then.
        if rng.random_range(0..8) == 0 {
            let other = &corpus[rng.random_range(0..corpus.len())];
            let at = rng.random_range(0..=data.len());
            data.splice(at..at, other[rng.random_range(0..=other.len())..].iter().copied());
        }
        for _ in 0..rng.random_range(1..=6) {
            mutation::mutate(&mut rng, &mut data);
        }
        let is_broken = catch_unwind(AssertUnwindSafe(|| (target.run)(&data))).is_err();
        if is_broken && shortest.as_ref().is_none_or(|before| data.len() < before.len()) {
            shortest = Some(data);
        }
    }
    println!("{name}: {runs} runs");
    match shortest {
        None => Ok(()),
        Some(data) => Err(format!("{name}: broken by {}", data.escape_ascii()).into()),
    }
}
