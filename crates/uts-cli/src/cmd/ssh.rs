//! `uts ssh`: a session of ssh that outlives what carries it. The user's own ssh runs in place of
//! this process, over a socket of a process beside it, which keeps the session ([`keeper`]). That
//! one logs in once by ssh and starts a server for this session alone ([`login`], [`server`]). Then
//! it carries the session there over UDP, or over the login where UDP is blocked ([`ways`]). Where
//! there is no server, ssh runs as it would have without us.

mod attach;
mod board;
mod called;
pub mod carry;
pub mod join;
pub mod keeper;
mod login;
mod places;
pub mod server;
pub mod sessions;
pub mod shell;
mod ways;

use super::Failure;
use crate::args::SshArgs;
use crate::words_of_command;
pub use board::line;
use called::Called;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use tokio::process::Command;
use uts_end::output::words;

/// The version of what is said between `uts ssh` and the server that it starts.
const VERSION: u32 = 5;

/// The service of that server.
const SERVICE: &str = "ssh";

/// Names of the ways that carry a session.
const UDP: &str = "UDP";
const TCP: &str = "TCP";

/// Words of the keeper to this process, in one line: ssh is to run with the session's socket, and
/// both are named; ssh has not logged in and has ended so; ssh is to run without us.
const KEPT: &str = "kept ";
const ENDED: &str = "ended ";
const PLAIN: &str = "plain";

/// Runs `uts ssh`. It returns only if ssh has not been run in its place.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: &SshArgs) -> Result<(), Failure> {
    if args.list || args.end.is_some() {
        return sessions::show(args).await;
    }
    let Some(called) = Called::read(&args.arguments) else {
        return match args.attach {
            Some(_) => attach::list(args).await,
            None => Err(become_ssh(args, &args.arguments)),
        };
    };
    let attach = match &args.attach {
        Some(name) => Some(attach::Wanted::new(args, &called, name).await?),
        None => None,
    };
    // What runs there, by the session of this name if there is one.
    let run = |by: Option<&str>| attach.as_ref().map_or_else(|| called.clone(), |wanted| wanted.called(by));
    let plain = || match &attach {
        Some(wanted) => {
            wanted.remember();
            become_ssh(args, &wanted.plain())
        }
        None => become_ssh(args, &args.arguments),
    };
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|program| program.to_str());
    let Some(program) = program else { return Err(plain()) };
    let mut keeper = std::process::Command::new(program);
    keeper.arg("ssh-keep").args(words_of_command()).stdin(Stdio::null()).stdout(Stdio::piped());
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot run uts: {}", words(&error)));
    let mut keeper = keeper.spawn().map_err(failed)?;
    let mut said = String::new();
    if let Some(out) = keeper.stdout.take() {
        // One that says nothing has failed: then there is no session but ssh's own.
        let _ = BufReader::new(out).read_line(&mut said);
    }
    let said = said.trim_end();
    if let Some((name, socket)) = said.strip_prefix(KEPT).and_then(|said| said.split_once(' ')) {
        let mut arguments = session(&run(Some(name)), program, socket);
        if let Some(wanted) = &attach {
            wanted.remember();
            arguments.splice(0..0, attach::OPTIONS.map(OsString::from));
        }
        return Err(become_ssh(args, &arguments));
    }
    match said.strip_prefix(ENDED).and_then(|status| status.parse().ok()) {
        Some(status) => Err(Failure::Ended(status)),
        None => Err(plain()),
    }
}

/// Arguments of ssh for a session over a socket.
fn session(called: &Called, program: &str, socket: &str) -> Vec<OsString> {
    let proxy = [program, "ssh-join", socket].map(quoted).join(" ").replace('%', "%%");
    let mut arguments = Vec::new();
    // What was said first counts. UTS tells by itself when nothing is heard any more.
    for option in [&format!("ProxyCommand={proxy}"), "ProxyUseFdpass=yes", "ServerAliveInterval=0"] {
        arguments.extend(["-o".into(), option.into()]);
    }
    arguments.extend(called.session());
    arguments
}

/// Runs ssh in place of this process; returns only if that fails.
fn become_ssh(args: &SshArgs, arguments: &[OsString]) -> Failure {
    let error = std::process::Command::new(&args.ssh).args(arguments).exec();
    Failure::Failed(format!("cannot run {}: {}", args.ssh.display(), words(&error)))
}

/// Settings of ssh for this session, as `ssh -G` says them.
struct Settings(String);

impl Settings {
    /// Asks ssh; `None` if it finds something wrong.
    async fn of(ssh: &OsStr, called: &Called) -> Option<Settings> {
        let mut command = Command::new(ssh);
        command.arg("-G").args(called.all()).stdin(Stdio::null()).stderr(Stdio::null());
        let asked = command.output().await.ok().filter(|asked| asked.status.success())?;
        String::from_utf8(asked.stdout).ok().map(Settings)
    }

    /// The value of a setting, if it has one.
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.filter(|value| *value != "none")
    }

    /// True if ssh does not connect to the host itself.
    fn has_proxy(&self) -> bool {
        self.get("proxyjump").is_some() || self.get("proxycommand").is_some()
    }

    /// True if only errors are to be told.
    fn is_quiet(&self) -> bool {
        self.get("loglevel").is_some_and(|level| ["QUIET", "SILENT", "FATAL"].contains(&level))
    }

    /// True if another ssh shares its connection with this one: there is none to be made.
    async fn has_master(&self, ssh: &OsStr, called: &Called) -> bool {
        if self.get("controlpath").is_none() {
            return false;
        }
        let mut command = Command::new(ssh);
        // With -M it would become one.
        command.args(["-o", "ControlMaster=no", "-O", "check"]).args(called.login("true"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().await.is_ok_and(|status| status.success())
    }
}

/// A word for any shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_what_ssh_says() {
        let settings =
            Settings("host a\nhostname b\nproxyjump none\ncontrolpath /x y\nloglevel SILENT\n".into());
        assert_eq!(settings.get("hostname"), Some("b"));
        assert_eq!(settings.get("controlpath"), Some("/x y"));
        assert_eq!(settings.get("proxycommand"), None);
        assert!(!settings.has_proxy() && settings.is_quiet());
        assert!(Settings("proxycommand nc %h\n".into()).has_proxy());
    }

    #[test]
    fn a_word_is_one_word_for_a_shell() {
        let mut shell = std::process::Command::new("sh");
        shell.arg("-c").arg(format!("printf %s {}", quoted("a 'b' $c\"")));
        let said = shell.output().expect("a shell");
        assert_eq!(said.stdout, b"a 'b' $c\"");
    }
}
