//! The command line of ssh, read as ssh reads it: options in groups or alone, also behind the host.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Options of ssh with a value (OpenSSH 9.9; before 9.4, -P had none and did nothing).
const VALUED: &[u8] = b"BbcDEeFIiJLlmOoPpQRSWw";

/// Options of ssh without a value.
const FLAGS: &[u8] = b"1246AaCfGgKkMNnqsTtVvXxYy";

/// Options with which ssh opens no session.
const NO_SESSION: &[u8] = b"GOQV";

/// Options about the session, or about what goes beside it. A login that only starts a server takes
/// none of them.
const OF_SESSION: &[u8] = b"AaDefgLMNnRsTtWwXxYy";

/// Options of ssh with which a session has no terminal, or is not for one.
const NO_TERMINAL: &[u8] = b"fNnsTW";

/// An option of ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    letter: u8,
    value: Option<OsString>,
}

/// A command line that opens a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    options: Vec<Given>,
    /// The host as it was written: `host`, `user@host` or `ssh://…`.
    pub host: OsString,
    command: Vec<OsString>,
}

impl Called {
    /// Reads a command line. `None` if it opens no session, or is none that is understood: both are
    /// for ssh itself.
    pub fn read(arguments: &[OsString]) -> Option<Called> {
        let mut options = Vec::new();
        let mut host = None;
        let mut rest = arguments.iter();
        let command = loop {
            let Some(argument) = rest.next() else { break Vec::new() };
            let mut letters = match argument.as_bytes() {
                b"--" => {
                    host = host.or_else(|| rest.next().cloned());
                    break rest.cloned().collect();
                }
                [b'-', letters @ ..] if !letters.is_empty() => letters,
                _ if host.is_none() => {
                    host = Some(argument.clone());
                    continue;
                }
                _ => break std::iter::once(argument).chain(rest).cloned().collect(),
            };
            while let [letter, after @ ..] = letters {
                let value = match after {
                    _ if FLAGS.contains(letter) => None,
                    _ if !VALUED.contains(letter) => return None,
                    [] => Some(rest.next()?.clone()),
                    value => Some(OsString::from_vec(value.to_vec())),
                };
                letters = if value.is_some() { &[] } else { after };
                options.push(Given { letter: *letter, value });
            }
        };
        let has_session = !options.iter().any(|option| NO_SESSION.contains(&option.letter));
        Some(Called { options, host: host?, command }).filter(|_| has_session)
    }

    /// Arguments of ssh without the options that `leaves_out`, and with this command.
    fn arguments<'a>(
        &'a self,
        leaves_out: impl Fn(u8) -> bool,
        command: impl IntoIterator<Item = &'a OsStr>,
    ) -> Vec<OsString> {
        let mut all = Vec::new();
        for Given { letter, value } in self.options.iter().filter(|option| !leaves_out(option.letter)) {
            all.push(OsString::from_vec(vec![b'-', *letter]));
            all.extend(value.clone());
        }
        all.push("--".into());
        all.push(self.host.clone());
        all.extend(command.into_iter().map(OsStr::to_owned));
        all
    }

    /// All that was given.
    pub fn all(&self) -> Vec<OsString> {
        self.arguments(|_| false, self.command.iter().map(OsString::as_os_str))
    }

    /// The session by another way than hosts in between (-J).
    pub fn session(&self) -> Vec<OsString> {
        self.arguments(|letter| letter == b'J', self.command.iter().map(OsString::as_os_str))
    }

    /// The first option with which there is no terminal.
    pub fn without_terminal(&self) -> Option<char> {
        let found = self.options.iter().find(|option| NO_TERMINAL.contains(&option.letter));
        found.map(|option| char::from(option.letter))
    }

    /// The command, as ssh hands it over. `None`: there is none, and so a login shell.
    pub fn command(&self) -> Option<OsString> {
        let all: Vec<&OsStr> = self.command.iter().map(OsString::as_os_str).collect();
        (!all.is_empty()).then(|| all.join(OsStr::new(" ")))
    }

    /// The same in a terminal, with another command.
    pub fn in_terminal(&self, command: &str) -> Called {
        let mut all = self.clone();
        all.options.insert(0, Given { letter: b't', value: None });
        all.command = vec![command.into()];
        all
    }

    /// The host, and what leads there.
    pub fn reach(&self) -> Vec<OsString> {
        self.arguments(|letter| OF_SESSION.contains(&letter), [])
    }

    /// The login alone, with another command.
    pub fn login(&self, command: &str) -> Vec<OsString> {
        self.arguments(|letter| OF_SESSION.contains(&letter), [OsStr::new(command)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn read(line: &str) -> Option<Called> {
        Called::read(&words(line))
    }

    #[test]
    fn host_and_command_are_found_wherever_options_are() {
        for (line, all) in [
            ("host", "-- host"),
            ("me@host ls -l", "-- me@host ls -l"),
            ("-p 22 host", "-p 22 -- host"),
            ("-vvp22 -4 host ls", "-v -v -p 22 -4 -- host ls"),
            ("host -p 22 -A ls -p 3", "-p 22 -A -- host ls -p 3"),
            ("-oBatchMode=yes -o X=y host -- -x", "-o BatchMode=yes -o X=y -- host -x"),
            ("-x -oForwardAgent=no -s -- host sftp", "-x -o ForwardAgent=no -s -- host sftp"),
            ("-tt -L 1:a:2 -NfD 3 host", "-t -t -L 1:a:2 -N -f -D 3 -- host"),
            (
                "-o SendEnv=GIT_PROTOCOL host git-upload-pack",
                "-o SendEnv=GIT_PROTOCOL -- host git-upload-pack",
            ),
        ] {
            assert_eq!(read(line).expect(line).all(), words(all), "{line}");
        }
    }

    #[test]
    fn what_opens_no_session_is_for_ssh_itself() {
        for line in
            ["", "-V", "-Q cipher", "-G host", "-O check host", "-p", "-Z host", "-p 22", "--", "--x host"]
        {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn a_login_takes_what_leads_there_and_nothing_of_the_session() {
        let called = read("-tXAf -L 1:a:2 -J jump -p 22 -i key -l me -oUser=x host ls").expect("a session");
        assert_eq!(called.login("true"), words("-J jump -p 22 -i key -l me -o User=x -- host true"));
        assert_eq!(called.session(), words("-t -X -A -f -L 1:a:2 -p 22 -i key -l me -o User=x -- host ls"));
    }

    #[test]
    fn another_command_has_the_terminal() {
        let called = read("-A host make -j 2").expect("a session");
        assert_eq!(called.command(), Some("make -j 2".into()));
        assert_eq!(called.in_terminal("true").all(), words("-t -A -- host true"));
        assert_eq!(read("host").expect("a session").command(), None);
        for (line, found) in [("-A host", None), ("-AN host", Some('N')), ("-W a:1 host", Some('W'))] {
            assert_eq!(read(line).expect("a session").without_terminal(), found, "{line}");
        }
    }
}
