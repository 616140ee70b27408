//! Texts that people write: properties, experiments, paths. What is read is shown, and read again
//! as the same.

use std::path::Path;
use std::str::FromStr;
use uts_engine::requirements::Requirements;
use uts_lab::experiment::file::Experiment;
use uts_path::{Change, Discipline, Framing, LinkConfig, Schedule, Trace};

pub fn properties(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut requirements = Requirements::default();
    for line in text.lines() {
        let before = requirements.clone();
        if let Err(error) = requirements.assign(line) {
            assert_eq!(requirements, before, "{line:?} was refused ({error}) and left something behind");
        }
    }
    // The form in which it is shown can be read. Numbers are shown with three decimals. Shown again
    // they are the same.
    let shown = requirements.settings();
    let mut again = Requirements::default();
    for (name, value) in &shown {
        again.set(name, value).unwrap_or_else(|error| panic!("{name}={value}: {error}"));
    }
    assert_eq!(again.settings(), shown);
}

pub fn experiment(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Experiment::parse(Path::new("any.toml"), text) {
        Ok(experiment) => assert_eq!(experiment.text, text),
        Err(problems) => {
            assert!(!problems.list().is_empty());
            assert!(problems.to_string().contains("any.toml"), "{problems}");
        }
    }
}

/// Checks that a text that can be read can be shown, and is then read as the same.
fn round_trip<T: FromStr + ToString + PartialEq + std::fmt::Debug>(text: &str)
where
    T::Err: std::fmt::Display,
{
    match text.parse::<T>() {
        Ok(value) => match value.to_string().parse::<T>() {
            Ok(again) => assert_eq!(again, value, "{value:?} is shown as {:?}", value.to_string()),
            Err(error) => panic!("{value:?} is shown as {:?}: {error}", value.to_string()),
        },
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    round_trip::<Change>(text);
    round_trip::<Discipline>(text);
    round_trip::<Framing>(text);
    round_trip::<Trace>(text);
    if let Ok(link) = text.parse::<LinkConfig>() {
        link.validate().unwrap_or_else(|error| panic!("{text:?} is read, and {error}"));
    }
    if let Ok(schedule) = text.parse::<Schedule>() {
        let shown: Vec<String> = schedule.entries.iter().map(ToString::to_string).collect();
        assert_eq!(shown.join("; ").parse::<Schedule>().as_ref(), Ok(&schedule), "{shown:?}");
    }
}
