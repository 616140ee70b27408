//! Where things are: `uts://host[:port]/path`, or a local path.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use uts::zone;
use uts_end::output::{self, Output};
use uts_files::ServerPath;

/// The port of a server unless another is given.
pub const PORT: u16 = 4433;
const SCHEME: &[u8] = b"uts://";

/// A server.
#[derive(Clone, Debug)]
pub struct Host {
    /// A name or an address, without brackets.
    pub name: String,
    /// UDP port.
    pub port: u16,
    /// True if the port was named, and is not only the usual one.
    pub is_port_given: bool,
}

impl PartialEq for Host {
    fn eq(&self, other: &Host) -> bool {
        (&self.name, self.port) == (&other.name, other.port)
    }
}

impl Eq for Host {}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// One source or destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// On this machine.
    Local(PathBuf),
    /// At a server.
    Remote(Host, ServerPath),
}

/// A source or destination of what is copied as it comes: it has neither length nor place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Standard input or output, written `-`.
    Standard,
    /// A pipe or device.
    Special(PathBuf),
}

impl Outside {
    /// The one that a path on this machine stands for, if it is no file or directory.
    fn of(path: &Path) -> Option<Outside> {
        if path.as_os_str() == "-" {
            return Some(Outside::Standard);
        }
        // What stands for a file that is open already is not to be replaced, whatever it is.
        let is_open = ["/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd", "/proc/self/fd"]
            .iter()
            .any(|open| path.starts_with(open));
        let is_special = || std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir());
        (is_open || is_special()).then(|| Outside::Special(path.to_owned()))
    }

    /// Opens it for reading. That of a pipe waits until somebody writes to it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open_to_read(&self) -> io::Result<File> {
        match self {
            Outside::Standard => Ok(output::input_handle()?.into()),
            Outside::Special(path) => File::open(path),
        }
    }

    /// Opens it for writing. That of a pipe waits until somebody reads from it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open_to_write(&self) -> io::Result<File> {
        match self {
            Outside::Standard => Ok(Output::Out.handle()?.into()),
            Outside::Special(path) => File::options().write(true).open(path),
        }
    }

    /// Its name for people; `standard` is what it is if it is written `-`.
    pub fn name(&self, standard: &str) -> Vec<u8> {
        match self {
            Outside::Standard => standard.as_bytes().to_vec(),
            Outside::Special(path) => path.as_os_str().as_bytes().to_vec(),
        }
    }
}

/// A copy to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// To the server.
    Put {
        /// The server.
        host: Host,
        /// Here.
        sources: Vec<PathBuf>,
        /// There.
        destination: ServerPath,
    },
    /// From the server.
    Get {
        /// The server.
        host: Host,
        /// There.
        sources: Vec<ServerPath>,
        /// Here.
        destination: PathBuf,
    },
    /// A stream, to the server.
    PutStream {
        /// The server.
        host: Host,
        /// Here.
        source: Outside,
        /// There.
        destination: ServerPath,
    },
    /// One file of the server, to where it only goes.
    GetStream {
        /// The server.
        host: Host,
        /// There.
        source: ServerPath,
        /// Here.
        destination: Outside,
    },
}

impl Job {
    /// Reads sources and destination.
    ///
    /// # Errors
    /// What is wrong with them, in one line.
    pub fn parse(paths: &[OsString]) -> Result<Job, String> {
        let Some((last, sources)) = paths.split_last().filter(|(_, sources)| !sources.is_empty()) else {
            return Err("a source and a destination are needed".into());
        };
        let as_scp_has_it = paths.iter().find_map(|path| as_scp_has_it(path));
        let sources = sources.iter().map(|path| Target::parse(path)).collect::<Result<Vec<_>, _>>()?;
        if let (Some(meant), Target::Local(_)) = (as_scp_has_it, Target::parse(last)?)
            && sources.iter().all(|source| matches!(source, Target::Local(_)))
        {
            return Err(format!("{NOWHERE}; did you mean {meant}?"));
        }
        match Target::parse(last)? {
            Target::Remote(host, destination) => Job::put(host, sources, destination),
            Target::Local(destination) => Job::get(sources, destination),
        }
    }

    fn put(host: Host, sources: Vec<Target>, destination: ServerPath) -> Result<Job, String> {
        let local = sources.into_iter().map(|source| match source {
            Target::Local(path) => Ok(path),
            Target::Remote(..) => Err("both sides are at a server; copy to this machine first".to_owned()),
        });
        let sources = local.collect::<Result<Vec<_>, _>>()?;
        if let [only] = &sources[..]
            && let Some(source) = Outside::of(only)
        {
            return Ok(Job::PutStream { host, source, destination });
        }
        if sources.iter().any(|source| source.as_os_str() == "-") {
            return Err("-: standard input is copied alone".into());
        }
        Ok(Job::Put { host, sources, destination })
    }

    fn get(sources: Vec<Target>, destination: PathBuf) -> Result<Job, String> {
        let mut host = None;
        let mut remote = Vec::new();
        for source in sources {
            let Target::Remote(at, path) = source else {
                return Err(NOWHERE.to_owned());
            };
            if host.get_or_insert_with(|| at.clone()) != &at {
                return Err("all sources must be at the same server".into());
            }
            remote.push(path);
        }
        let host = host.ok_or("a source is needed")?;
        let Some(outside) = Outside::of(&destination) else {
            return Ok(Job::Get { host, sources: remote, destination });
        };
        match <[ServerPath; 1]>::try_from(remote) {
            Ok([source]) => Ok(Job::GetStream { host, source, destination: outside }),
            Err(_) => Err(format!("{}: only one file can be copied there", destination.display())),
        }
    }

    /// The server.
    pub fn host(&self) -> &Host {
        match self {
            Job::Put { host, .. }
            | Job::Get { host, .. }
            | Job::PutStream { host, .. }
            | Job::GetStream { host, .. } => host,
        }
    }

    /// The server, to be changed.
    pub fn host_mut(&mut self) -> &mut Host {
        match self {
            Job::Put { host, .. }
            | Job::Get { host, .. }
            | Job::PutStream { host, .. }
            | Job::GetStream { host, .. } => host,
        }
    }

    /// True if it can be done again from where it stopped.
    pub fn can_go_on(&self) -> bool {
        matches!(self, Job::Put { .. } | Job::Get { .. })
    }

    /// True if standard output is for the file that is copied.
    pub fn takes_output(&self) -> bool {
        matches!(self, Job::GetStream { .. })
    }

    /// Its work, in words.
    pub fn describe(&self) -> String {
        let count = |n| if n == 1 { "1 source".to_owned() } else { format!("{n} sources") };
        match self {
            Job::Put { sources, host, .. } => format!("{} to {host}", count(sources.len())),
            Job::Get { sources, host, .. } => format!("{} from {host}", count(sources.len())),
            Job::PutStream { host, .. } => format!("a stream to {host}"),
            Job::GetStream { host, .. } => format!("a stream from {host}"),
        }
    }
}

const NOWHERE: &str = "no side is at a server; write one as uts://host/path";

/// The URL that `host:path` and `user@host:path` of scp are here, unless there is such a file.
fn as_scp_has_it(path: &OsStr) -> Option<String> {
    let text = path.to_str()?;
    let (host, beneath) = text.split_once(':')?;
    let host = host.rsplit('@').next().unwrap_or(host);
    let is_host = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    let is_local = beneath.starts_with("//") || Path::new(path).exists();
    (is_host && !is_local).then(|| format!("uts://{host}/{}", beneath.trim_start_matches('/')))
}

impl Target {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn parse(text: &OsStr) -> Result<Target, String> {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err("a path is empty".into());
        }
        let shown = text.to_string_lossy();
        let Some(rest) = bytes.strip_prefix(SCHEME) else {
            if let Some((scheme, _)) =
                shown.split_once("://").filter(|(s, _)| s.bytes().all(|b| b.is_ascii_alphanumeric()))
            {
                return Err(format!(
                    "{shown}: `{scheme}://` is not understood; a server is written uts://host/path"
                ));
            }
            return Ok(Target::Local(PathBuf::from(text)));
        };
        let at = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let authority =
            std::str::from_utf8(authority).map_err(|_| format!("{shown}: the host is not UTF-8"))?;
        let host = Host::parse(authority).map_err(|why| format!("{shown}: {why}"))?;
        let path = decode_percent(path).map_err(|why| format!("{shown}: {why}"))?;
        let path = ServerPath::from_user(&path).map_err(|fault| format!("{shown}: {}", fault.why))?;
        Ok(Target::Remote(host, path))
    }
}

impl Host {
    /// Reads `host`, `host:port` or `[v6]:port`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Host, String> {
        let (name, port) = if let Some(rest) = text.strip_prefix('[') {
            let (name, after) = rest.split_once(']').ok_or("a `]` is missing after the address")?;
            if !zone::is_ipv6(&zone::of_url(name)) {
                return Err(format!("`{name}` is not an IPv6 address"));
            }
            let port = match after {
                "" => None,
                after => Some(after.strip_prefix(':').ok_or("after `]` only :port may follow")?),
            };
            (name, port)
        } else {
            match text.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err("write an IPv6 address in brackets, as [::1]".into());
                }
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            }
        };
        if name.is_empty() {
            return Err("the host is missing".into());
        }
        if let Some((_, host)) = name.split_once('@') {
            return Err(format!(
                "write `{host}` alone: servers know clients by their keys, not by user names"
            ));
        }
        if name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '@') {
            return Err(format!("`{name}` is not a host name"));
        }
        let is_port_given = port.is_some();
        let port = match port {
            None => PORT,
            Some(port) => match port.parse() {
                Ok(port) if port != 0 => port,
                _ => return Err(format!("`{port}` is not a port (1 to 65535)")),
            },
        };
        let name = if text.starts_with('[') { zone::of_url(name) } else { name.to_owned() };
        Ok(Host { name, port, is_port_given })
    }
}

/// `%41` is `A`. Names can be written that way if a shell or a URL would not take them. A `%` that
/// begins no such triple stands for itself.
fn decode_percent(path: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|d| byte == b'%' && d.iter().all(u8::is_ascii_hexdigit));
        match digits.and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u8::from_str_radix(d, 16).ok()) {
            Some(b'/') => return Err("a name cannot contain a `/`".into()),
            Some(decoded) => {
                out.push(decoded);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(paths: &[&str]) -> Result<Job, String> {
        Job::parse(&paths.iter().map(OsString::from).collect::<Vec<_>>())
    }

    fn at(path: &str) -> ServerPath {
        ServerPath::from_user(path.as_bytes()).unwrap()
    }

    #[test]
    fn servers_and_paths_are_read() {
        let host = |name: &str, port| Host { name: name.into(), port, is_port_given: port != PORT };
        for (text, expected, path) in [
            ("uts://h", host("h", PORT), ""),
            ("uts://h:5000/a/b/", host("h", 5000), "a/b/"),
            ("uts://[::1]:7/x", host("::1", 7), "x"),
            ("uts://[fe80::1%eth0]:7/x", host("fe80::1%eth0", 7), "x"),
            ("uts://[fe80::1%25eth0]", host("fe80::1%eth0", PORT), ""),
            ("uts://192.0.2.1//a%20b%zz", host("192.0.2.1", PORT), "a b%zz"),
        ] {
            assert_eq!(Target::parse(OsStr::new(text)), Ok(Target::Remote(expected, at(path))), "{text}");
        }
        assert_eq!(host("::1", 7).to_string(), "[::1]:7");
        assert_eq!(Target::parse(OsStr::new("a:b")), Ok(Target::Local("a:b".into())));
    }

    #[test]
    fn one_side_is_at_a_server() {
        assert!(matches!(job(&["a", "b", "uts://h/d"]), Ok(Job::Put { sources, .. }) if sources.len() == 2));
        assert!(
            matches!(job(&["uts://h/a", "uts://h:4433/b", "."]), Ok(Job::Get { sources, .. }) if sources.len() == 2)
        );
    }

    #[test]
    fn what_has_no_place_is_copied_as_it_comes() {
        for (path, is_outside) in
            [("-", true), ("/dev/null", true), ("/dev/stdout", true), ("./-", false), ("/", false)]
        {
            let put = job(&[path, "uts://h/f"]).unwrap();
            assert_eq!(matches!(put, Job::PutStream { .. }), is_outside, "{path}");
            let get = job(&["uts://h/f", path]).unwrap();
            assert_eq!(matches!(get, Job::GetStream { .. }), is_outside, "{path}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        for (paths, words) in [
            (&["a", "b"][..], "no side is at a server"),
            (&["a", "me@h.example:/tmp/"], "did you mean uts://h.example/tmp/?"),
            (&["h:a", "."], "did you mean uts://h/a?"),
            (&["uts://h/a", "uts://h/b"], "both sides"),
            (&["uts://h/a", "uts://i/b", "."], "same server"),
            (&["a"], "destination"),
            (&["a", "http://h/x"], "`http://` is not understood"),
            (&["a", "uts:///x"], "host is missing"),
            (&["a", "uts://h:0/x"], "not a port"),
            (&["a", "uts://h:x/"], "not a port"),
            (&["a", "uts://::1/x"], "in brackets"),
            (&["a", "uts://[::1/x"], "`]` is missing"),
            (&["a", "uts://h/../x"], "contains `..`"),
            (&["a", "uts://h/a%2fb"], "cannot contain"),
            (&["a", "uts://h/%00"], "NUL"),
            (&["a", ""], "empty"),
            (&["-", "a", "uts://h/"], "alone"),
            (&["uts://h/a", "uts://h/b", "-"], "only one file"),
        ] {
            let error = job(paths).unwrap_err();
            assert!(error.contains(words), "{paths:?}: {error}");
        }
    }
}
