//! The user's file of settings, `config.toml`: what holds for which servers, and tunnels by their
//! names.
//!
//! A section `[host."PATTERN"]` holds for servers whose name, as it was given, matches the pattern
//! (`*` = any text, `?` = any character). As in ssh_config, of several sections that set the same
//! option the first counts. What the command line says counts more than all. Properties add up:
//! the first section that sets one counts.

use crate::args::{ReachArgs, WantedArgs};
use crate::target::Host;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use uts_engine::requirements::nearest;

/// The longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

const SECTIONS: [&str; 2] = ["host", "tunnel"];
const HOST_KEYS: [&str; 14] = [
    "address",
    "port",
    "key",
    "pin",
    "known_hosts",
    "accept_new",
    "ca",
    "server_name",
    "classical",
    "qlog",
    "properties",
    "profile",
    "dictionary",
    "adapt",
];
const TUNNEL_KEYS: [&str; 5] = ["host", "local", "remote", "dynamic", "property"];

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// In the order of the file.
    hosts: Vec<HostSettings>,
    /// By their names.
    pub tunnels: BTreeMap<String, Tunnel>,
}

/// A section about servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HostSettings {
    pattern: String,
    address: Option<String>,
    port: Option<u16>,
    reach: ReachArgs,
    properties: Vec<(String, String)>,
}

/// A section about a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tunnel {
    /// The server.
    pub host: Option<String>,
    /// Forwards to the server's side, as `-L` says it.
    pub local: Vec<String>,
    /// Forwards from the server's side, as `-R` says it.
    pub remote: Vec<String>,
    /// Where a proxy listens, as `-D` says it.
    pub dynamic: Vec<String>,
    /// Properties, as `--property` says them.
    pub property: Vec<String>,
}

/// The text of a file of settings.
///
/// # Errors
/// It cannot be read, others than its owner can write it, or it is longer than 1 MiB.
pub fn text_of(file: &Path) -> std::io::Result<String> {
    if std::fs::metadata(file)?.len() >= FILE_BYTES_MAX {
        return Err(std::io::Error::other("longer than 1 MiB, no settings are"));
    }
    uts::open_trusted(file).and_then(std::io::read_to_string)
}

impl Config {
    /// Reads the file that is named, or otherwise the user's own, if there is one.
    ///
    /// # Errors
    /// A line for each thing that is wrong: where, what, and what would be right.
    pub fn load(named: Option<&Path>) -> Result<Self, String> {
        let own = || uts::Identity::default_path().ok().map(|key| key.with_file_name("config.toml"));
        let Some(file) = named.map(Path::to_owned).or_else(own) else { return Ok(Config::default()) };
        let shown = file.display().to_string();
        match text_of(&file) {
            Ok(text) => Config::read(&shown, &text),
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Config::default())
            }
            Err(error) => Err(format!("{shown}: {error}")),
        }
    }

    /// Reads the text of a file, which is called `file` in errors.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn read(file: &str, text: &str) -> Result<Self, String> {
        let mut reader = Reader { file, text, wrong: Vec::new() };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            format!("{}: {}", reader.place(at), error.message().replace('\n', ", "))
        })?;
        let config = reader.config(table.get_ref());
        if reader.wrong.is_empty() { Ok(config) } else { Err(reader.wrong.join("\n")) }
    }

    /// Settings that hold for a server, under those of the command line: `reach`. The host is put
    /// right. Gives the properties that are asked before those of the command line.
    pub fn settle(&self, host: &mut Host, reach: &mut ReachArgs) -> Vec<(String, String)> {
        let given = host.name.clone();
        let says_trust = |reach: &ReachArgs| {
            let files = [&reach.ca, &reach.known_hosts];
            reach.pin.is_some() || reach.accept_new || files.iter().any(|file| file.is_some())
        };
        let (mut properties, mut address) = (Vec::<(String, String)>::new(), None);
        for section in self.hosts.iter().filter(|section| matches(&section.pattern, &given)) {
            let HostSettings { reach: theirs, .. } = section;
            address = address.or(section.address.clone());
            if let (Some(port), false) = (section.port, host.is_port_given) {
                (host.port, host.is_port_given) = (port, true);
            }
            // How a server is known is one option: parts of two would contradict each other.
            if !says_trust(reach) {
                reach.pin = theirs.pin.clone();
                reach.ca = theirs.ca.clone();
                reach.accept_new = theirs.accept_new;
                reach.known_hosts = theirs.known_hosts.clone();
            }
            reach.key = reach.key.take().or(theirs.key.clone());
            reach.server_name = reach.server_name.take().or(theirs.server_name.clone());
            reach.classical |= theirs.classical;
            reach.log.qlog = reach.log.dir().or(theirs.log.qlog.clone());
            // The last that is said counts: what was said first goes behind.
            properties.splice(0..0, section.properties.iter().cloned());
        }
        host.name = address.unwrap_or(given);
        properties
    }
}

/// True if a name matches a pattern, in any case.
fn matches(pattern: &str, name: &str) -> bool {
    let lower = |text: &str| text.to_lowercase().chars().collect::<Vec<char>>();
    let (pattern, name) = (lower(pattern), lower(name));
    // Whether the pattern so far matches the first so many characters of the name.
    let mut fits = vec![false; name.len() + 1];
    fits[0] = true;
    for sign in pattern {
        let mut next = vec![false; name.len() + 1];
        next[0] = sign == '*' && fits[0];
        for at in 1..=name.len() {
            next[at] = match sign {
                '*' => fits[at] || next[at - 1],
                '?' => fits[at - 1],
                letter => fits[at - 1] && letter == name[at - 1],
            };
        }
        fits = next;
    }
    fits[name.len()]
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    wrong: Vec<String>,
}

type Entry<'t> = (&'t str, Range<usize>, &'t Spanned<DeValue<'t>>);

/// The entries of a table, in the order of the file.
fn entries<'t>(table: &'t DeTable<'t>) -> Vec<Entry<'t>> {
    let mut all: Vec<Entry<'t>> =
        table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value)).collect();
    all.sort_by_key(|(_, span, _)| span.start);
    all
}

impl Reader<'_> {
    fn place(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or(self.text);
        format!("{}:{}", self.file, before.matches('\n').count() + 1)
    }

    fn wrong(&mut self, span: &Range<usize>, why: impl fmt::Display) {
        self.wrong.push(format!("{}: {why}", self.place(span.start)));
    }

    fn unknown(&mut self, span: &Range<usize>, what: &str, name: &str, known: &[&str]) {
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are: {}", known.join(", ")),
        };
        self.wrong(span, format_args!("there is no {what} `{name}`; {hint}"));
    }

    fn config(&mut self, table: &DeTable<'_>) -> Config {
        let mut config = Config::default();
        for (name, span, value) in entries(table) {
            if !SECTIONS.contains(&name) {
                self.unknown(&span, "section", name, &SECTIONS);
                continue;
            }
            let Some(sections) = self.table(name, value) else { continue };
            for (key, _, value) in entries(sections) {
                let Some(section) = self.table(key, value) else { continue };
                if name == "host" {
                    let host = self.host(key, section);
                    config.hosts.push(host);
                } else {
                    let tunnel = self.tunnel(section);
                    config.tunnels.insert(key.to_owned(), tunnel);
                }
            }
        }
        config
    }

    fn host(&mut self, pattern: &str, table: &DeTable<'_>) -> HostSettings {
        let mut host = HostSettings { pattern: pattern.to_owned(), ..HostSettings::default() };
        let mut wanted = WantedArgs::default();
        let mut seen = None;
        for (key, span, value) in entries(table) {
            match key {
                "address" => {
                    host.address = self.text(key, value);
                    let is_sound = |name: &str| Host::parse(&bracketed(name)).is_ok_and(|h| !h.is_port_given);
                    if host.address.as_deref().is_some_and(|name| !is_sound(name)) {
                        self.wrong(&span, "`address` is neither an address nor a host name without a port");
                    }
                }
                "port" => {
                    let number = value.get_ref().as_integer().and_then(|n| n.as_str().parse::<u16>().ok());
                    host.port = number.filter(|port| *port > 0);
                    if host.port.is_none() {
                        self.wrong(&span, "`port` is not a number from 1 to 65535");
                    }
                }
                "key" => host.reach.key = self.path(key, value),
                "pin" => {
                    host.reach.pin = self.text(key, value);
                    let parsed = host.reach.pin.as_ref().map(|pin| pin.parse::<uts::Fingerprint>());
                    if let Some(Err(error)) = parsed {
                        self.wrong(&span, format_args!("`pin`: {error}"));
                    }
                }
                "known_hosts" => host.reach.known_hosts = self.path(key, value),
                "ca" => host.reach.ca = self.path(key, value),
                "accept_new" => host.reach.accept_new = self.flag(key, value) == Some(true),
                "server_name" => host.reach.server_name = self.text(key, value),
                "classical" => host.reach.classical = self.flag(key, value) == Some(true),
                "qlog" => host.reach.log.qlog = self.path(key, value),
                "adapt" => wanted.no_adapt = self.flag(key, value) == Some(false),
                "profile" => wanted.profile = self.texts(key, value),
                "dictionary" => wanted.dictionaries = self.paths(key, value),
                "properties" => {
                    let Some(table) = self.table(key, value) else { continue };
                    for (name, span, value) in entries(table) {
                        let Some(text) = self.scalar(name, value) else { continue };
                        if let Err(error) = uts::Requirements::bulk().set(name, &text) {
                            self.wrong(&span, error);
                        }
                        wanted.properties.push(format!("{name}={text}"));
                    }
                }
                unknown => self.unknown(&span, "key", unknown, &HOST_KEYS),
            }
            seen.get_or_insert(span);
        }
        let span = seen.unwrap_or_default();
        let ReachArgs { pin, ca, accept_new, known_hosts, .. } = &host.reach;
        let is_known_by_keys = *accept_new || known_hosts.is_some();
        if [pin.is_some(), ca.is_some(), is_known_by_keys].into_iter().filter(|is| *is).count() > 1 {
            let why =
                "only one of `pin`, `ca` and the pair `known_hosts`, `accept_new` says how a server is known";
            self.wrong(&span, why);
        }
        match wanted.properties() {
            Ok(properties) => {
                let mut requirements = uts::Requirements::bulk();
                for (name, value) in properties.iter().filter(|(name, _)| name.starts_with("uts.profile.")) {
                    if let Err(error) = requirements.set(name, value) {
                        self.wrong(&span, error);
                    }
                }
                host.properties = properties;
            }
            Err(why) => self.wrong(&span, why),
        }
        host
    }

    fn tunnel(&mut self, table: &DeTable<'_>) -> Tunnel {
        let mut tunnel = Tunnel::default();
        for (key, span, value) in entries(table) {
            match key {
                "host" => tunnel.host = self.text(key, value),
                "local" => tunnel.local = self.texts(key, value),
                "remote" => tunnel.remote = self.texts(key, value),
                "dynamic" => tunnel.dynamic = self.texts(key, value),
                "property" => tunnel.property = self.texts(key, value),
                unknown => self.unknown(&span, "key", unknown, &TUNNEL_KEYS),
            }
        }
        tunnel
    }

    fn table<'t>(&mut self, key: &str, value: &'t Spanned<DeValue<'t>>) -> Option<&'t DeTable<'t>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.wrong(&value.span(), format_args!("`{key}` is not a section"));
        }
        table
    }

    fn text(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let text = value.get_ref().as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong(&value.span(), format_args!("`{key}` is not a text in quotation marks"));
        }
        text
    }

    /// A path; `~/` is the user's home.
    fn path(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<PathBuf> {
        self.text(key, value).map(|text| path_of(&text))
    }

    /// A path, or a list of paths.
    fn paths(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<PathBuf> {
        self.texts(key, value).iter().map(|text| path_of(text)).collect()
    }

    fn flag(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.wrong(&value.span(), format_args!("`{key}` is neither true nor false"));
        }
        flag
    }

    /// A text, a number or a flag, as text.
    fn scalar(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => Some(number.as_str().to_owned()),
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            DeValue::Boolean(flag) => Some(flag.to_string()),
            _ => {
                self.wrong(&value.span(), format_args!("`{key}` is neither a text nor a number"));
                None
            }
        }
    }

    /// A text, or a list of texts.
    fn texts(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<String> {
        if let Some(text) = value.get_ref().as_str() {
            return vec![text.to_owned()];
        }
        let list = value.get_ref().as_array().map(|list| {
            let texts = list.iter().map(|text| text.get_ref().as_str().map(str::to_owned));
            texts.collect::<Option<Vec<String>>>()
        });
        list.flatten().unwrap_or_else(|| {
            self.wrong(&value.span(), format_args!("`{key}` is not a list of texts"));
            Vec::new()
        })
    }
}

/// The path that a text stands for.
pub fn path_of(text: &str) -> PathBuf {
    match (text.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(text),
    }
}

/// An address of IPv6 as hosts have it.
fn bracketed(name: &str) -> String {
    if uts::zone::is_ipv6(name) { format!("[{name}]") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Config {
        Config::read("c", text).unwrap_or_else(|why| panic!("{why}"))
    }

    /// A key says what the option of that name says.
    #[test]
    fn keys_are_called_as_options() {
        let command = <crate::args::Args as clap::CommandFactory>::command();
        let has = |of: &str, key: &str| {
            let command = command.find_subcommand(of).expect("a command");
            let option = key.replace('_', "-");
            command.get_arguments().any(|argument| argument.get_long() == Some(option.as_str()))
        };
        let others: Vec<&str> = HOST_KEYS.into_iter().filter(|key| !has("cp", key)).collect();
        // Where it is; the table of --property; the contrary of --no-adapt.
        assert_eq!(others, ["address", "port", "properties", "adapt"]);
        let others: Vec<&str> = TUNNEL_KEYS.into_iter().filter(|key| !has("tunnel", key)).collect();
        assert_eq!(others, ["host"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, says) in [
            ("[host.a]\n\nadress = 3\n", "c:3: there is no key `adress`; did you mean `address`?"),
            ("[hosts.a]\n", "c:1: there is no section `hosts`; did you mean `host`?"),
            ("[tunnel.a]\nlocals = []\n", "c:2: there is no key `locals`; did you mean `local`?"),
            ("[tunnel.a]\nlocal = [1]\n", "c:2: `local` is not a list of texts"),
            ("[host.a]\nport = 70000\n", "c:2: `port` is not a number from 1 to 65535"),
            ("[host.a]\nport = '1'\n", "c:2: `port` is not a number"),
            ("[host.a]\nkey = 1\n", "c:2: `key` is not a text in quotation marks"),
            ("[host.a]\naddress = 'a:5'\n", "c:2: `address` is neither"),
            ("[host.a]\npin = 'x'\n", "c:2: `pin`:"),
            ("[host.a]\naccept_new = 'yes'\n", "c:2: `accept_new` is neither true nor false"),
            ("[host.a.properties]\nreliabilty = 'require'\n", "c:2: there is no property `reliabilty`"),
            ("[host.a]\nprofile = 'congestion=cubik'\n", "did you mean `cubic`?"),
            ("[host.a]\nprofile = 'tcp-tahoo'\n", "did you mean `tcp-tahoe`?"),
            ("host = 3\n", "c:1: `host` is not a section"),
            ("[host.a\n", "c:1: "),
        ] {
            let why = Config::read("c", text).expect_err(text);
            assert!(why.contains(says), "{text}: {why}");
        }
        let two = Config::read("c", "[host.a]\nx = 1\ny = 2\n").expect_err("both are wrong");
        assert_eq!(two.lines().count(), 2, "{two}");
    }

    #[test]
    fn the_first_section_that_matches_counts_and_the_command_line_before_all() {
        let config = read(
            "[host.'*.example']\nport = 5000\nkey = '/a'\nproperties = { msgLifetime = '80ms' }\n\
             [host.'*']\nport = 6000\nkey = '/b'\naccept_new = true\nadapt = false\n\
             properties = { msgLifetime = '90ms', connPriority = 3 }\n\
             [host.short]\naddress = 'long.example'\nserver_name = 'n'\n",
        );
        let settle = |name: &str, mut reach: ReachArgs| {
            let mut host = Host::parse(name).expect(name);
            let properties = config.settle(&mut host, &mut reach);
            (host, reach, properties)
        };
        let (host, reach, properties) = settle("a.EXAMPLE", ReachArgs::default());
        assert_eq!(
            (host.to_string().as_str(), reach.key.as_deref()),
            ("a.EXAMPLE:5000", Some(Path::new("/a")))
        );
        assert!(reach.accept_new);
        let last = |name: &str| properties.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        assert_eq!(last("msgLifetime"), Some("80ms"), "{properties:?}");
        assert_eq!((last("connPriority"), last("uts.adapt")), (Some("3"), Some("false")));
        let (host, reach, _) = settle("short", ReachArgs::default());
        assert_eq!(host.to_string(), "long.example:6000");
        assert_eq!(reach.server_name.as_deref(), Some("n"));
        let given = ReachArgs { key: Some("/c".into()), pin: Some("p".into()), ..ReachArgs::default() };
        let (host, reach, _) = settle("b:4433", given);
        assert_eq!((host.port, reach.accept_new), (4433, false));
        assert_eq!((reach.key, reach.pin.as_deref()), (Some("/c".into()), Some("p")));
    }

    #[test]
    fn patterns_match_as_those_of_ssh() {
        for (pattern, name, fits) in [
            ("*", "a", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("?b", "ab", true),
            ("?b", "b", false),
            ("A", "a", true),
            ("", "a", false),
            ("*.x.*", "a.x.b", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn tunnels_are_read() {
        let config = read(
            "[tunnel.db]\nhost = 'h'\nlocal = ['5432:db:5432']\nremote = []\ndynamic = '1080'\n\
             property = ['connPriority=3']\n",
        );
        let tunnel = &config.tunnels["db"];
        assert_eq!(
            (tunnel.host.as_deref(), &tunnel.local[..]),
            (Some("h"), &["5432:db:5432".to_owned()][..])
        );
        assert_eq!((&tunnel.dynamic[..], tunnel.property.len()), (&["1080".to_owned()][..], 1));
    }
}
