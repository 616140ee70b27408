//! The file of settings of a server (`--config FILE`): a key for each option, of the same name
//! with `_` for `-`. There is no second list: the file becomes words of a command line, in front of
//! those that were typed, which count more.
//!
//! A flag is true or false, an option that may be repeated is a text or a list of texts, any other
//! a text or a number.

use crate::args::ServeArgs;
use crate::config::{path_of, text_of};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args as _, Command, FromArgMatches};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use uts_engine::requirements::nearest;

/// Options that have no key: where the file is, and what has an end at once.
const NO_KEYS: [&str; 3] = ["config", "help", "version"];

/// Options of a server, by its file and by its command line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// All of it.
    pub args: ServeArgs,
    /// The values of each option, as they were given.
    given: BTreeMap<String, Vec<OsString>>,
}

/// The options, without the program around them.
fn command() -> Command {
    ServeArgs::augment_args(Command::new("serve")).no_binary_name(true).args_override_self(true)
}

impl Settings {
    /// Reads words of a command line, and in front of them the file that they name, if they do.
    ///
    /// # Errors
    /// A line for each thing that is wrong: where, what, and what would be right.
    pub fn read(words: &[OsString]) -> Result<Settings, String> {
        let typed =
            command().ignore_errors(true).try_get_matches_from(words).map_err(|error| said(&error))?;
        let Some(file) = typed.get_one::<std::path::PathBuf>("config") else { return Settings::of(words) };
        let shown = file.display().to_string();
        let mut all = of_file(&shown, &text_of(file).map_err(|why| format!("{shown}: {why}"))?)?;
        all.extend(words.iter().cloned());
        Settings::of(&all).map_err(|why| format!("{shown}: {why}"))
    }

    fn of(words: &[OsString]) -> Result<Settings, String> {
        let matches = command().try_get_matches_from(words).map_err(|error| said(&error))?;
        let args = ServeArgs::from_arg_matches(&matches).map_err(|error| said(&error))?;
        let values = |id: &str| {
            let raw = matches.get_raw(id).into_iter().flatten();
            raw.map(|value| value.to_owned()).collect::<Vec<_>>()
        };
        let options = command();
        let ids = options.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg.get_id().as_str())));
        let given = ids.map(|(long, id)| (long.to_owned(), values(id))).collect();
        Ok(Settings { args, given })
    }

    /// The options that have other values in `next`, by their names.
    pub fn changed(&self, next: &Settings) -> BTreeSet<String> {
        let differs = |name: &&String| self.given.get(*name) != next.given.get(*name);
        self.given.keys().filter(differs).cloned().collect()
    }

    /// Takes an option over from others.
    pub fn take(&mut self, name: &str, next: &Settings) {
        let values = next.given.get(name).cloned().unwrap_or_default();
        self.given.insert(name.to_owned(), values);
    }
}

/// Words of clap, in a line, without the usage.
fn said(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// A file, which is called `file` in errors, as words of a command line.
///
/// # Errors
/// As [`Settings::read`].
fn of_file(file: &str, text: &str) -> Result<Vec<OsString>, String> {
    let place = |at: usize| {
        let before = text.get(..at).unwrap_or(text);
        format!("{file}:{}", before.matches('\n').count() + 1)
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        format!("{}: {}", place(at), error.message().replace('\n', ", "))
    })?;
    let options = command();
    let keys: Vec<String> = options.get_arguments().filter_map(key_of).collect();
    let (mut words, mut wrong) = (Vec::new(), Vec::new());
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let name = key.get_ref().as_ref();
        let option = options.get_arguments().find(|arg| key_of(arg).as_deref() == Some(name));
        let read = match option {
            Some(option) => words_of(option, value).and_then(checked),
            None => Err(match nearest(name, keys.iter().map(String::as_str)) {
                Some(near) => format!("there is no key `{name}`; did you mean `{near}`?"),
                None => format!("there is no key `{name}`; keys are the options of uts serve"),
            }),
        };
        match read {
            Ok(of_key) => words.extend(of_key),
            Err(why) => wrong.push(format!("{}: {why}", place(key.span().start))),
        }
    }
    if wrong.is_empty() { Ok(words) } else { Err(wrong.join("\n")) }
}

/// The key of an option, if it has one.
fn key_of(option: &Arg) -> Option<String> {
    let name = option.get_long().filter(|name| !NO_KEYS.contains(name))?;
    Some(name.replace('-', "_"))
}

/// The value of a key as words of a command line.
fn words_of(option: &Arg, value: &Spanned<DeValue<'_>>) -> Result<Vec<OsString>, String> {
    let (long, key) = (option.get_long().unwrap_or_default(), key_of(option).unwrap_or_default());
    let is_path =
        option.get_value_names().unwrap_or_default().iter().any(|name| *name == "FILE" || *name == "DIR");
    let word = |text: &str| {
        let text = if is_path { path_of(text).into_os_string() } else { text.into() };
        let mut word = OsString::from(format!("--{long}="));
        word.push(text);
        word
    };
    let scalar = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(word(text)),
        DeValue::Integer(number) => Some(word(number.as_str())),
        DeValue::Float(number) => Some(word(number.as_str())),
        _ => None,
    };
    let (found, expected) = match (option.get_action(), value.get_ref()) {
        (ArgAction::SetTrue, value) => {
            let flag = |is| if is { vec![OsString::from(format!("--{long}"))] } else { Vec::new() };
            (value.as_bool().map(flag), "neither true nor false")
        }
        (ArgAction::Count, value) => {
            let times = value.as_integer().and_then(|number| number.as_str().parse::<u8>().ok());
            (times.map(|times| vec![OsString::from(format!("--{long}")); times.into()]), "not a small number")
        }
        (ArgAction::Append, DeValue::Array(list)) => {
            (list.iter().map(|value| scalar(value.get_ref())).collect(), "not a list of texts")
        }
        (ArgAction::Append, value) => (scalar(value).map(|word| vec![word]), "not a list of texts"),
        (_, value) => (scalar(value).map(|word| vec![word]), "neither a text nor a number"),
    };
    found.ok_or_else(|| format!("`{key}` is {expected}"))
}

/// Words of one key, whose values are such as the option takes. What the option needs beside it is
/// for the whole to say.
fn checked(words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    match command().try_get_matches_from(&words) {
        Err(error) if matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) => {
            Err(said(&error))
        }
        _ => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn with_file(text: &str, typed: &str) -> Result<Settings, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        Settings::read(&words(&format!("--config {} {typed}", file.path().display())))
    }

    /// A value for each kind of option, by the name that its value has in the help.
    fn example(option: &Arg) -> String {
        let name = option.get_value_names().unwrap_or_default().first().map_or("", |name| name.as_str());
        let value = match (option.get_action(), name) {
            (ArgAction::Count, _) => "1",
            (ArgAction::SetTrue, _) => "true",
            (_, name) => value_of(name),
        };
        value.to_owned()
    }

    fn value_of(name: &str) -> &'static str {
        match name {
            "COUNT" => "7",
            "TIME" => "'1h'",
            "NAME=HOST:PORT" => "['a=22', 'b=23']",
            "[udp/][HOST:]PORT[@KEY]" | "[udp/][ADDR:]PORT[@KEY]" => "['80', 'udp/53']",
            "NAME=VALUE" => "['connPriority=3']",
            "[ADDR:]PORT" => "'9433'",
            _ => "'/x'",
        }
    }

    /// Each option has its key, which says what the option says, whatever there will be.
    #[test]
    fn each_option_has_its_key() {
        let options = command();
        let mut keys = 0;
        for option in options.get_arguments().filter(|option| key_of(option).is_some()) {
            let key = key_of(option).expect("it has one");
            let of = of_file("f", &format!("{key} = {}\n", example(option)));
            let of = of.unwrap_or_else(|why| panic!("{why}"));
            assert!(!of.is_empty(), "{key} says nothing");
            let matches = command().ignore_errors(true).try_get_matches_from(&of).expect("words");
            let id = option.get_id().as_str();
            let source = matches.value_source(id);
            assert_eq!(source, Some(clap::parser::ValueSource::CommandLine), "{key}");
            keys += 1;
        }
        assert!(keys > 25, "{keys} keys");
    }

    /// The file that the package has, and what it proposes.
    #[test]
    fn the_file_of_the_package_is_read() {
        let text = include_str!("../../../../../packaging/debian/serve.toml");
        assert_eq!(of_file("f", text), Ok(vec![OsString::from("--dir=/srv/uts")]));
        let proposed =
            text.lines().filter_map(|line| line.strip_prefix('#').filter(|line| line.contains(" = ")));
        let words = of_file("f", &proposed.collect::<Vec<_>>().join("\n")).expect("all of it");
        assert!(words.len() > 4 && Settings::of(&words).is_ok(), "{words:?}");
    }

    #[test]
    fn the_command_line_counts_more_and_lists_add_up() {
        let file = "dir = '/a'\nmax_connections = 9\nforward = ['80', '81']\nauthorized_keys = '/k'\nsilence = '1h'\n";
        let settings = with_file(file, "--dir /b --forward 82").expect("settings");
        assert_eq!(settings.args.dir.as_deref(), Some(Path::new("/b")));
        assert_eq!((settings.args.max_connections, settings.args.forward.len()), (9, 3));
        let other = with_file(&file.replace('9', "10").replace("'80', ", ""), "--dir /b --forward 82");
        let changed = settings.changed(&other.expect("settings"));
        let expected = ["config", "forward", "max-connections"].map(str::to_owned);
        assert_eq!(changed, BTreeSet::from(expected));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, says) in [
            ("\ndirr = '/a'\n", ":2: there is no key `dirr`; did you mean `dir`?"),
            ("dir = true\n", ":1: `dir` is neither a text nor a number"),
            ("writable = 'yes'\n", ":1: `writable` is neither true nor false"),
            ("forward = [1.5, []]\n", ":1: `forward` is not a list of texts"),
            ("dir = '/a'\nforward = 'x'\n", ":2: invalid value 'x' for '--forward"),
            ("max_connections = 0\n", ":1: invalid value '0' for '--max-connections"),
            ("verbose = 999\n", ":1: `verbose` is not a small number"),
            ("config = 'x'\n", ":1: there is no key `config`"),
            ("dir = \n", ":1: "),
            ("dir = '/a'\nwritable = true\nread_only = true\n", "cannot be used with"),
        ] {
            let why = with_file(text, "").expect_err(text);
            assert!(why.contains(says) && why.lines().count() == 1, "{text}: {why}");
        }
        let two = with_file("x = 1\ny = 2\n", "").expect_err("both are wrong");
        assert_eq!(two.lines().count(), 2, "{two}");
        assert!(Settings::read(&words("--config /nowhere/x")).expect_err("none").contains("No such file"));
    }
}
