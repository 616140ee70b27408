//! Sessions that are kept, here and at their host, and shells that are held there: listed, and
//! ended.

use super::board::line;
use super::login::{Login, MARK, one_word};
use super::places::{self, CONTROL_HERE, CONTROL_THERE};
use super::shell::SHELL;
use super::{Called, Settings};
use crate::args::{SshArgs, SshSessionsArgs};
use crate::cmd::Failure;
use crate::control::{Request, ask};
use crate::ui::lines;
use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use uts_end::output::words;

/// Script that is run at the host: see [`super::login`].
pub(super) const SCRIPT: &str = r#"
    go() {
      "$1" ssh-server --speaks @VERSION@ >/dev/null 2>&1 </dev/null || return 0;
      exec "$1" ssh-sessions @OPTIONS@;
    };
    go uts;
    for f in "$HOME"/.cache/uts/uts-*; do go "$f"; done;
    echo "uts-ssh failed there is no uts of this version";
"#;

/// The most that is read of a host's list, in bytes.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// Time that a host has for its list when nobody is asked anything. Chosen: longer than ssh takes
/// to connect, and a shell to read its files.
const LIST_MAX: Duration = Duration::from_secs(20);

/// A session or a shell, in words.
pub struct Line {
    pub is_shell: bool,
    pub text: String,
}

impl Line {
    fn of_session(text: String) -> Line {
        Line { is_shell: false, text }
    }

    fn of_shell(text: String) -> Line {
        Line { is_shell: true, text }
    }
}

/// Permission of a login to ask for passwords.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// Whoever is there.
    People,
    /// Nobody: it goes by itself, or not at all. ssh says nothing.
    Nobody,
}

/// Lists sessions, or ends one, for `uts ssh`.
///
/// # Errors
/// See [`Failure`].
pub async fn show(args: &SshArgs) -> Result<(), Failure> {
    let end = args.end.as_deref();
    let found = if args.arguments.is_empty() {
        here(&[CONTROL_HERE], end).await
    } else {
        let called = Called::read(&args.arguments);
        let called = called.ok_or_else(|| Failure::Usage("write the host as for ssh".to_owned()))?;
        there(&args.ssh, &called, end, Asking::People).await
    };
    let found = found?;
    if found.is_empty() {
        lines::tell("uts: no sessions are kept");
    }
    for session in found {
        lines::print(&session.text);
    }
    Ok(())
}

/// Lists sessions and shells, or ends one, at their host.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: &SshSessionsArgs) -> Result<(), Failure> {
    match here(&[CONTROL_THERE, SHELL], args.end.as_deref()).await {
        Ok(found) => {
            for Line { is_shell, text } in found {
                let what = if is_shell { "shell" } else { "session" };
                lines::print(&format!("{MARK}{what} {text}"));
            }
        }
        Err(failure) => lines::print(&format!("{MARK}failed {}", failure.line().unwrap_or_default())),
    }
    lines::print(&format!("{MARK}done"));
    Ok(())
}

/// Lines about what is kept at this machine, of these kinds.
async fn here(kinds: &[&str], end: Option<&str>) -> Result<Vec<Line>, Failure> {
    let dir = places::directory().map_err(Failure::Failed)?;
    if let Some(name) = end {
        let files = kinds.iter().map(|kind| dir.join(format!("{name}.{kind}")));
        let Some(file) = files.into_iter().find(|file| file.exists()) else {
            return Err(Failure::Failed(format!("no session {name} is kept")));
        };
        let ended = ask(&file, &Request::End { id: 0 }).await;
        return ended.map(|_| vec![Line::of_session(format!("{name} is ended"))]).map_err(Failure::Failed);
    }
    let mut found = Vec::new();
    for kind in kinds {
        let controls = places::controls(&dir, kind).map_err(|error| Failure::Failed(words(&error)))?;
        for file in controls {
            match ask(&file, &Request::List).await {
                Ok(said) if *kind == SHELL => found.push(Line::of_shell(line(&said))),
                Ok(said) => found.push(Line::of_session(line(&said))),
                // One that was killed leaves its socket. Who removed it before has done the same.
                Err(_) => drop(std::fs::remove_file(&file)),
            }
        }
    }
    Ok(found)
}

/// Lines about sessions and shells at a host, by a login.
///
/// # Errors
/// See [`Failure`].
pub async fn there(
    ssh: &OsStr,
    called: &Called,
    end: Option<&str>,
    asking: Asking,
) -> Result<Vec<Line>, Failure> {
    let host = called.host.to_string_lossy().into_owned();
    let host = if asking == Asking::People { format!("{host}: ") } else { String::new() };
    let wrong = |why: &str| Failure::Failed(format!("{host}{why}"));
    let settings = Settings::of(ssh, called).await.ok_or_else(|| wrong("ssh finds its settings wrong"))?;
    let options = end.map_or_else(String::new, |name| format!("--end {name}"));
    let script = one_word(SCRIPT, &options);
    let mut login = Command::new(ssh);
    login.args(Login::options(&settings, asking == Asking::Nobody)).args(called.login(&script));
    login.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    if asking == Asking::People {
        let mut login = login.spawn().map_err(|error| wrong(&words(&error)))?;
        return listen(&mut login, wrong).await;
    }
    let mut login = login.stderr(Stdio::piped()).spawn().map_err(|error| wrong(&words(&error)))?;
    let said = login.stderr.take();
    match timeout(LIST_MAX, listen(&mut login, wrong)).await {
        Err(_) => Err(wrong("it does not answer")),
        Ok(Err(Failure::Ended(_))) => {
            let mut errors = Vec::new();
            if let Some(said) = said {
                // Without its words it is no less wrong.
                let _ = said.take(LIST_BYTES_MAX).read_to_end(&mut errors).await;
            }
            let errors = String::from_utf8_lossy(&errors).into_owned();
            let last = errors.lines().map(str::trim).rfind(|line| !line.is_empty());
            Err(wrong(last.unwrap_or("ssh does not get there")))
        }
        Ok(listed) => listed,
    }
}

/// Hears what a host says.
async fn listen(ssh: &mut Child, wrong: impl Fn(&str) -> Failure) -> Result<Vec<Line>, Failure> {
    let said = ssh.stdout.take().ok_or_else(|| wrong("no pipe"))?;
    let mut said = BufReader::new(said.take(LIST_BYTES_MAX)).lines();
    let mut found = Vec::new();
    while let Ok(Some(text)) = said.next_line().await {
        let Some(text) = text.strip_prefix(MARK) else { continue };
        match text.split_once(' ').unwrap_or((text, "")) {
            ("session", session) => found.push(Line::of_session(session.to_owned())),
            ("shell", shell) => found.push(Line::of_shell(shell.to_owned())),
            ("failed", why) => return Err(wrong(why)),
            ("done", _) => return Ok(found),
            _ => {}
        }
    }
    let status = ssh.wait().await.ok().and_then(|status| status.code());
    match status {
        // It has said why.
        Some(255) => Err(Failure::Ended(255)),
        _ => Err(wrong("it does not answer")),
    }
}
