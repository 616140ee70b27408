//! Every file of the corpus, and seeded mutations of each: what was found once is not found again.

mod mutation;

use mutation::mutate;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use uts_fuzz::{TARGETS, Target};

/// Bytes of the corpus at most: it is part of the repository.
const CORPUS_BYTES_MAX: u64 = 1 << 20;

/// Threads that replay at once.
const THREADS: usize = 4;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn corpus(target: &Target) -> Vec<PathBuf> {
    let folder = folder().join("corpus").join(target.name);
    let listed = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = listed.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Runs a target; says what it panicked with.
fn fault(target: &Target, data: &[u8]) -> Option<String> {
    let panicked = catch_unwind(AssertUnwindSafe(|| (target.run)(data))).err()?;
    let words = panicked.downcast_ref::<String>().cloned();
    Some(words.or_else(|| panicked.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
}

/// Faults of a file and of its mutations.
fn replay(target: &Target, file: &Path) -> Vec<String> {
    let data = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut faults: Vec<String> =
        fault(target, &data).map(|why| format!("{}/{name}: {why}", target.name)).into_iter().collect();
    for seed in 0..target.mutations as u64 {
        let mut mutated = data.clone();
        mutate(&mut ChaCha8Rng::seed_from_u64(seed), &mut mutated);
        if let Some(why) = fault(target, &mutated) {
            faults.push(format!("{}/{name}, mutation {seed}: {why}: {mutated:02x?}", target.name));
        }
    }
    faults
}

#[test]
fn nothing_in_the_corpus_breaks_anything() {
    let work: Vec<(&Target, PathBuf)> = TARGETS
        .iter()
        .flat_map(|target| corpus(target).into_iter().map(move |file| (target, file)))
        .collect();
    assert!(work.len() > 3 * TARGETS.len(), "{} files", work.len());
    let next = AtomicUsize::new(0);
    let faults: Vec<String> = std::thread::scope(|scope| {
        let replaying = || {
            let mut faults = Vec::new();
            while let Some((target, file)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                faults.extend(replay(target, file));
            }
            faults
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(replaying)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("panics are caught")).collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_corpus_stays_small() {
    let bytes: u64 = TARGETS
        .iter()
        .flat_map(corpus)
        .map(|file| fs::metadata(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).len())
        .sum();
    assert!(bytes <= CORPUS_BYTES_MAX, "{bytes} bytes: run `cargo fuzz cmin TARGET`");
}

/// `fuzz/` has a program for each target, and none for anything else.
#[test]
fn every_target_is_a_program_of_libfuzzer() {
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).expect("read");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let bins = manifest["bin"].as_array().expect("programs");
    let listed: BTreeSet<&str> = bins.iter().filter_map(|bin| bin["name"].as_str()).collect();
    assert_eq!(listed, TARGETS.iter().map(|target| target.name).collect());
    for target in TARGETS {
        let source = folder().join("fuzz_targets").join(target.name).with_extension("rs");
        let text =
            fs::read_to_string(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        assert!(text.contains(&format!("uts_fuzz::{}(data)", target.name)), "{}", source.display());
        assert!(uts_fuzz::find(target.name).is_some());
    }
    let folders = fs::read_dir(folder().join("corpus")).expect("listed");
    for folder in folders.map(|entry| entry.expect("an entry").file_name()) {
        let name = folder.to_string_lossy();
        assert!(uts_fuzz::find(&name).is_some(), "fuzz/corpus/{name} belongs to no target");
    }
}
