//! A path of an experiment: its text, and what is wrong with it.

use crate::names::nearest;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use uts_path::{LinkConfig, Schedule, SpecError};

/// A path: settings in the text form of [`LinkConfig`], and changes to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSpec {
    /// Its name in the file.
    pub name: String,
    /// From the client's side to the server's.
    pub forward: String,
    /// Back.
    pub backward: String,
    /// Changes, in the text form of [`uts_path::Schedule`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schedule: String,
    /// Where the files of traces are: beside the experiment file.
    #[serde(skip)]
    pub base: PathBuf,
}

impl PathSpec {
    /// The settings of both directions, which differ from those of `perfect`, and the schedule.
    ///
    /// # Errors
    /// A setting is not one, or out of range; a trace cannot be read.
    pub fn config(&self, perfect: &LinkConfig) -> Result<uts_path::PathConfig, SpecError> {
        let link = |text: &str| match text.trim() {
            "" => Ok(perfect.clone()),
            text => perfect.clone().with(&text.parse()?),
        };
        let mut config = uts_path::PathConfig {
            forward: link(&self.forward)?,
            backward: link(&self.backward)?,
            schedule: self.schedule.parse()?,
        };
        config.resolve(|name: &str| uts_relay::traces::read(self.base.join(name)))?;
        Ok(config)
    }
}

/// Everything that is wrong with settings: with single ones, or with all of them together.
pub(super) fn link_problems(text: &str, base: &Path) -> Vec<String> {
    let problem = |text: &str| link_problem(text, base).err();
    let mut single: Vec<_> = text.split_whitespace().filter_map(problem).collect();
    if single.is_empty() {
        single.extend(problem(text));
    }
    single
}

/// Everything that is wrong with changes: with single ones, or with their order.
pub(super) fn schedule_problems(text: &str, base: &Path) -> Vec<SpecError> {
    let problem = |text: &str| schedule_problem(text, base).err();
    let mut single: Vec<_> = text.split([';', '\n']).filter_map(problem).collect();
    if single.is_empty() {
        single.extend(problem(text));
    }
    single
}

/// Checks changes of a path. A trace that cannot be read is an error, too.
pub(super) fn schedule_problem(text: &str, base: &Path) -> Result<(), SpecError> {
    let mut schedule: Schedule = text.parse()?;
    let read = |name: &str| uts_relay::traces::read(base.join(name));
    schedule.entries.iter_mut().try_for_each(|entry| entry.change.resolve(read))
}

/// Checks settings of a link. The error suggests the setting that was meant if a name is unknown.
pub(super) fn link_problem(text: &str, base: &Path) -> Result<(), String> {
    let error: SpecError = match text.parse::<LinkConfig>() {
        Ok(mut link) => {
            let read = |name: &str| uts_relay::traces::read(base.join(name));
            return link.resolve(read).map_err(|error| error.to_string());
        }
        Err(error) => error,
    };
    let message = error.to_string();
    let Some((_, names)) = message.split_once("unknown setting; there are ") else { return Err(message) };
    let wrong = error.at.split('=').next().unwrap_or_default();
    match nearest(wrong, names.split([',', ' ']).filter(|name| !name.is_empty() && *name != "or")) {
        Some(name) => Err(format!("{}: unknown setting; did you mean `{name}`?", error.at)),
        None => Err(message),
    }
}
