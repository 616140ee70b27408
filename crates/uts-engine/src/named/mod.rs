//! Named profiles: protocols of old, uses of today and service classes, each as a short list of
//! properties and mechanisms. The files are in `profiles/`; an application's own are read alike.
//!
//! A named profile is a shorthand: setting it sets what it lists, and whatever is set later counts
//! more.

mod read;

pub use read::BadProfile;

use crate::requirements::{PREFIX, nearest};
use std::sync::LazyLock;
use uts_functions::Function;

/// Kind of a named profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A protocol that has been described elsewhere.
    Classic,
    /// A use of today.
    Modern,
    /// A service class of Richards, "The Universal Transport System" (1995), table 4.1.
    ServiceClass,
    /// An application's own.
    Own,
}

impl Kind {
    /// All, in the order in which they are listed.
    pub const ALL: [Kind; 4] = [Kind::Classic, Kind::Modern, Kind::ServiceClass, Kind::Own];

    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Classic => "classic",
            Kind::Modern => "modern",
            Kind::ServiceClass => "service class",
            Kind::Own => "own",
        }
    }
}

/// A named profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Kind of the profile.
    pub kind: Kind,
    /// Description of what it does, in one line.
    pub what: String,
    /// Where it is described.
    pub source: Option<String>,
    /// Features of its source that it does not have, a clause for each.
    pub lacks: Vec<String>,
    /// Its transport service class (thesis, section 4.2), if it is a service class.
    pub transport_class: Option<String>,
    /// Its column of [`CLASSES`], if it is a service class.
    pub reliability_class: Option<String>,
    /// The properties that it sets, with their values.
    pub settings: Vec<(String, String)>,
}

impl Named {
    /// The mechanisms that it names; every other function is left to the selector.
    pub fn pinned<'s>(&'s self) -> Vec<(Function, &'s str)> {
        let of = |(name, mechanism): &'s (String, String)| {
            let function = name.strip_prefix(PREFIX).and_then(Function::from_name)?;
            Some((function, mechanism.as_str()))
        };
        self.settings.iter().filter_map(of).collect()
    }
}

/// The functions that a transport class must have (`M`) or may have (`O`): real time or not,
/// unreliable or reliable (thesis, table 3.2).
pub const CLASSES: [(&str, [char; 4]); 5] = [
    ("segmentation and reassembly", ['O', 'O', 'O', 'O']),
    ("ordered delivery", ['M', 'M', 'O', 'M']),
    ("loss management", ['O', 'M', 'O', 'M']),
    ("congestion management", ['O', 'M', 'O', 'M']),
    ("data flow management", ['O', 'M', 'O', 'M']),
];

/// The columns of [`CLASSES`].
pub const CLASS_NAMES: [&str; 4] = ["RT-U", "RT-R", "NRT-U", "NRT-R"];

macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../../profiles/", $name, ".toml")))
    };
}

const FILES: &[(&str, &str)] = &[
    file!("tcp-tahoe"),
    file!("tcp-reno"),
    file!("tcp-newreno"),
    file!("tcp-reno-2.1"),
    file!("tp4"),
    file!("hdlc"),
    file!("xtp"),
    file!("netblt"),
    file!("vmtp"),
    file!("rx-3.1"),
    file!("rx-hex"),
    file!("v-blast-1"),
    file!("v-blast-2"),
    file!("v-blast-3"),
    file!("v-blast-4"),
    file!("udp"),
    file!("sctp-pr"),
    file!("bulk"),
    file!("interactive"),
    file!("transaction"),
    file!("messages"),
    file!("datagrams"),
    file!("timely"),
    file!("media"),
    file!("voice"),
    file!("video"),
    file!("control"),
    file!("scavenger"),
    file!("voice-conversation"),
    file!("teleconferencing"),
    file!("video-compressed"),
    file!("video-raw"),
    file!("manufacturing-control"),
    file!("file-transfer"),
    file!("telnet"),
    file!("transaction-processing"),
    file!("remote-file-service"),
];

static ALL: LazyLock<Vec<Named>> = LazyLock::new(|| {
    // Tests read them all: none is left out.
    FILES.iter().filter_map(|(name, text)| Named::read(name, name, text).ok()).collect()
});

/// All that this library has, in the order in which they are listed.
pub fn all() -> &'static [Named] {
    &ALL
}

/// One of this library, for itself: no other file is read.
pub(crate) fn own(name: &str) -> Option<Named> {
    let (_, text) = FILES.iter().find(|(file, _)| *file == name)?;
    Named::read(name, name, text).ok()
}

/// The named profile of that name.
///
/// # Errors
/// A line that says what there is.
pub fn find(name: &str) -> Result<&'static Named, String> {
    all().iter().find(|named| named.name == name).ok_or_else(|| {
        let names = || all().iter().map(|named| named.name.as_str());
        match nearest(name, names()) {
            Some(near) => format!("there is no profile `{name}`; did you mean `{near}`?"),
            None => format!(
                "there is no profile `{name}` (there are: {})",
                names().collect::<Vec<_>>().join(", ")
            ),
        }
    })
}

#[cfg(test)]
mod tests;
