//! Options of `uts ssh`, and of the server that it starts.

use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::time::Duration;

/// Options of `uts ssh`.
#[derive(Clone, Debug, ClapArgs)]
#[command(
    override_usage = "uts ssh [OPTIONS] [SSH'S OPTIONS] <HOST> [COMMAND…]",
    after_help = "Examples:
  uts ssh host
  uts ssh -p 2222 -L 8080:127.0.0.1:80 me@host
  alias ssh='uts ssh'
  GIT_SSH_COMMAND='uts ssh' git clone host:repository
  rsync -e 'uts ssh' -a src host:dst
  ln -s $(which uts) ~/bin/uts-ssh; scp -S uts-ssh file host:
  uts ssh --list host
  uts ssh --attach host

The session is ssh's own, with all options of ssh and the settings of
ssh_config. It goes over UDP, and on when this host goes to another network. A
first login by ssh starts a server at the host for this session; uts is put
into ~/.cache/uts there if it is not in PATH. Where UDP is blocked the session
goes over the TCP connection of that login, and over UDP once it works. Where
there can be no server, plain ssh is run. Two logins ask for a password twice:
use a key or an agent.

--attach is for a shell that lives on when this end does not: its terminal is
closed, or the machine is switched off. The shell is held at the host. The same
line attaches to it again, from any machine. ~. leaves it.

~? is ssh's own. What carries a session, and how fast its keys are, is said by
uts ssh --list, typed elsewhere."
)]
pub struct SshArgs {
    /// UDP ports of which the server takes the first that is free
    #[arg(long, value_name = "FIRST-LAST", default_value = "60000-61000", value_parser = ports)]
    pub udp_ports: (u16, u16),
    /// Host or address at which the server's UDP ports are reached [default: that of ssh]
    #[arg(long, value_name = "HOST")]
    pub udp_host: Option<String>,
    /// Try UDP for so long before the session begins over ssh's TCP connection, as 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::given::lasting)]
    pub udp_wait: Duration,
    /// Have the server end when no session has begun for so long, as 1min
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = crate::given::lasting)]
    pub linger: Duration,
    /// Keep the session for so long while nothing is heard of the other end, as 12h
    #[arg(long, value_name = "TIME", default_value = crate::given::SILENCE, value_parser = crate::given::silence)]
    pub silence: Duration,
    /// Attach to a shell that is held at HOST and that nobody is attached to, or begin one; without
    /// HOST print those that are held at hosts where this user has begun some from here
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_parser = name_or_any,
        conflicts_with_all = ["list", "end"]
    )]
    pub attach: Option<String>,
    /// Print the sessions and shells that are kept at HOST for this user, or without HOST the
    /// sessions of this host
    #[arg(long, conflicts_with = "end")]
    pub list: bool,
    /// End the session or shell of this name at HOST, or without HOST here; --list names them
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub end: Option<String>,
    /// Put no program at the server: use the one that is there, or plain ssh
    #[arg(long)]
    pub no_install: bool,
    /// Program that is ssh
    #[arg(long, value_name = "PROGRAM", default_value = "ssh")]
    pub ssh: OsString,
    /// Options of ssh, the host, and what is run there
    #[arg(value_name = "HOST", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Options of the server that `uts ssh` starts.
#[derive(Clone, Debug, ClapArgs)]
pub struct SshServerArgs {
    /// Only say whether this program speaks with a `uts ssh` of this version
    #[arg(long, value_name = "VERSION")]
    pub speaks: Option<u32>,
    /// Key of the only client
    #[arg(long, value_name = "FINGERPRINT", required_unless_present = "speaks")]
    pub client: Option<uts::Fingerprint>,
    /// UDP ports of which the first that is free is taken
    #[arg(long, value_name = "FIRST-LAST", default_value = "60000-61000", value_parser = ports)]
    pub udp_ports: (u16, u16),
    /// Time without a session after which the server ends
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = crate::given::lasting)]
    pub linger: Duration,
    /// Time for which a session is kept whose client is not heard
    #[arg(long, value_name = "TIME", default_value = crate::given::SILENCE, value_parser = crate::given::silence)]
    pub silence: Duration,
}

/// Options of what carries a session between a login and its server.
#[derive(Clone, Debug, ClapArgs)]
pub struct SshCarryArgs {
    /// Start the server first
    #[arg(long)]
    pub start: bool,
    /// The server
    #[command(flatten)]
    pub server: SshServerArgs,
}

/// Options of the program that gives ssh its connection.
#[derive(Clone, Debug, ClapArgs)]
pub struct SshJoinArgs {
    /// Socket of the session
    #[arg(value_name = "SOCKET")]
    pub socket: std::path::PathBuf,
}

/// Options of what lists sessions at their host.
#[derive(Clone, Debug, ClapArgs)]
pub struct SshSessionsArgs {
    /// End the session of this name
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub end: Option<String>,
}

/// Options of what attaches to a shell at its host.
#[derive(Clone, Debug, ClapArgs)]
pub struct SshAttachArgs {
    /// Attach to the shell of this name, whoever else is attached to it
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,
    /// Command that is the shell, in hexadecimal digits [default: a login shell]
    #[arg(long, value_name = "HEX", value_parser = from_hex)]
    pub run: Option<String>,
    /// Session of `uts ssh` by which this is run
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub by: Option<String>,
}

/// Options of what holds a shell.
#[derive(Clone, Debug, ClapArgs)]
pub struct SshShellArgs {
    /// Command that is the shell, in hexadecimal digits [default: a login shell]
    #[arg(long, value_name = "HEX", value_parser = from_hex)]
    pub run: Option<String>,
}

/// A command as one word for any shell.
pub fn to_hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads what [`to_hex`] writes.
fn from_hex(text: &str) -> Result<String, String> {
    let wrong = || "write text in hexadecimal digits".to_owned();
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(wrong());
    }
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let bytes = digits.chunks(2).map(|pair| Some(value(pair[0])? * 16 + value(pair[1])?));
    String::from_utf8(bytes.collect::<Option<_>>().ok_or_else(wrong)?).map_err(|_| wrong())
}

/// Reads the name of a shell, or nothing.
fn name_or_any(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { name(text) }
}

/// Reads the name of a session, which is a word for any shell.
fn name(text: &str) -> Result<String, String> {
    let is_one = (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric());
    if is_one { Ok(text.to_owned()) } else { Err("write a name as --list prints it".to_owned()) }
}

/// Reads a range of ports, or one port.
fn ports(text: &str) -> Result<(u16, u16), String> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        _ => Err("write FIRST-LAST, ports from 1 to 65535, as 60000-61000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    #[test]
    fn a_command_is_one_word_and_comes_back() {
        for command in ["", "ls -l 'a b'", "echo \"$HOME\" ü\n"] {
            let word = to_hex(command);
            assert!(word.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{word}");
            assert_eq!(from_hex(&word).as_deref(), Ok(command));
        }
        for wrong in ["a", "0g", "ff", "é"] {
            assert!(from_hex(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_sshs_is_left_as_it_is() {
        for (line, own, of_ssh) in [
            ("uts ssh host", (60000, 61000), "host"),
            (
                "uts ssh -p 22 -vA me@host ls --no-install -h",
                (60000, 61000),
                "-p 22 -vA me@host ls --no-install -h",
            ),
            ("uts ssh --udp-ports 7-9 -V", (7, 9), "-V"),
            ("uts ssh -s -- host sftp", (60000, 61000), "-s -- host sftp"),
            ("uts ssh --udp-ports=7 host -- -x", (7, 7), "host -- -x"),
        ] {
            let Ok(Args { command: Command::Ssh(ssh) }) = Args::try_parse_from(line.split(' ')) else {
                panic!("{line}");
            };
            assert_eq!(ssh.udp_ports, own, "{line}");
            let rest: Vec<OsString> = of_ssh.split(' ').map(OsString::from).collect();
            assert_eq!(ssh.arguments, rest, "{line}");
            assert!(!ssh.no_install);
        }
        for wrong in ["", "a b", "../a", "'"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
        for (line, attach) in [
            ("uts ssh host", None),
            ("uts ssh --attach host", Some("")),
            ("uts ssh --attach=2 host", Some("2")),
            ("uts ssh --attach", Some("")),
        ] {
            let Ok(Args { command: Command::Ssh(ssh) }) = Args::try_parse_from(line.split(' ')) else {
                panic!("{line}");
            };
            assert_eq!(ssh.attach.as_deref(), attach, "{line}");
        }
        assert!(Args::try_parse_from(["uts", "ssh", "--attach=../1", "host"]).is_err());
        for wrong in ["9-7", "0-9", "a", "1-65536", ""] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
    }
}
