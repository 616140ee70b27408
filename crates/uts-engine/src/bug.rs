//! Faults of the program itself: what neither a peer nor an application can cause. They are loud
//! where it is tried, and counted where it runs.

use core::fmt;
use core::panic::Location;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

static COUNT: AtomicU64 = AtomicU64::new(0);
static FIRST: OnceLock<String> = OnceLock::new();

/// Notes that something happened that cannot happen, in words. Panics in tests, simulation and
/// fuzzing; a release counts it ([`bugs`]) and goes on, so the caller says how.
macro_rules! bug {
    ($($words:tt)+) => { $crate::bug::found(format_args!($($words)+)) };
}
pub(crate) use bug;

#[cold]
#[track_caller]
pub(crate) fn found(words: fmt::Arguments<'_>) {
    if cfg!(debug_assertions) {
        panic!("{words}");
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    FIRST.get_or_init(|| format!("{words} ({})", Location::caller()));
}

/// Faults of the program that this process has seen since it began: how many, and the first in
/// words, with its place in the source. Whoever sees one is asked to report it.
pub fn bugs() -> (u64, Option<&'static str>) {
    (COUNT.load(Ordering::Relaxed), FIRST.get().map(String::as_str))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_fault_is_loud_where_it_is_tried_and_counted_elsewhere() {
        let before = super::bugs().0;
        let told = std::panic::catch_unwind(|| bug!("flow {} is gone", 7));
        if cfg!(debug_assertions) {
            let words = told.expect_err("a panic");
            assert_eq!(words.downcast_ref::<String>().map(String::as_str), Some("flow 7 is gone"));
        } else {
            told.expect("it goes on");
            let (count, first) = super::bugs();
            assert!(count > before && first.is_some_and(|first| first.contains("bug.rs")));
        }
    }
}
