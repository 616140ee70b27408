//! Sessions that are kept, here and at their host: listed, and ended.

use super::board::line;
use super::login::{Login, MARK, one_word};
use super::places::{self, CONTROL_HERE, CONTROL_THERE};
use super::{Called, Settings};
use crate::args::{SshArgs, SshSessionsArgs};
use crate::cmd::Failure;
use crate::control::{Request, ask};
use crate::ui::lines;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
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

/// Lists sessions, or ends one, for `uts ssh`.
///
/// # Errors
/// See [`Failure`].
pub async fn show(args: &SshArgs) -> Result<(), Failure> {
    let found = if args.arguments.is_empty() {
        here(CONTROL_HERE, args.end.as_deref()).await
    } else {
        there(args).await
    };
    let found = found?;
    if found.is_empty() {
        lines::tell("uts: no sessions are kept");
    }
    for session in found {
        lines::print(&session);
    }
    Ok(())
}

/// Lists sessions, or ends one, at their host.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: &SshSessionsArgs) -> Result<(), Failure> {
    match here(CONTROL_THERE, args.end.as_deref()).await {
        Ok(found) => found.iter().for_each(|session| lines::print(&format!("{MARK}session {session}"))),
        Err(failure) => lines::print(&format!("{MARK}failed {}", failure.line().unwrap_or_default())),
    }
    lines::print(&format!("{MARK}done"));
    Ok(())
}

/// Lines about sessions of one kind at this machine.
async fn here(kind: &str, end: Option<&str>) -> Result<Vec<String>, Failure> {
    let dir = places::directory().map_err(Failure::Failed)?;
    if let Some(name) = end {
        let file = dir.join(format!("{name}.{kind}"));
        let ended = ask(&file, &Request::End { id: 0 }).await;
        return match ended {
            Ok(_) => Ok(vec![format!("{name} is ended")]),
            Err(why) if !file.exists() => Err(Failure::Failed(format!("no session {name} ({why})"))),
            Err(why) => Err(Failure::Failed(why)),
        };
    }
    let controls = places::controls(&dir, kind).map_err(|error| Failure::Failed(words(&error)))?;
    let mut found = Vec::new();
    for file in controls {
        match ask(&file, &Request::List).await {
            Ok(said) => found.push(line(&said)),
            // One that was killed leaves its socket. Who removed it before has done the same.
            Err(_) => drop(std::fs::remove_file(&file)),
        }
    }
    Ok(found)
}

/// Lines about sessions at a host, by a login.
async fn there(args: &SshArgs) -> Result<Vec<String>, Failure> {
    let called = Called::read(&args.arguments);
    let called = called.ok_or_else(|| Failure::Usage("write the host as for ssh".to_owned()))?;
    let host = called.host.to_string_lossy().into_owned();
    let wrong = |why: &str| Failure::Failed(format!("{host}: {why}"));
    let settings =
        Settings::of(&args.ssh, &called).await.ok_or_else(|| wrong("ssh finds its settings wrong"))?;
    let options = args.end.as_ref().map_or_else(String::new, |name| format!("--end {name}"));
    let script = one_word(SCRIPT, &options);
    let mut ssh = Command::new(&args.ssh);
    ssh.args(Login::options(&settings, false)).args(called.login(&script));
    ssh.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut ssh = ssh.spawn().map_err(|error| wrong(&words(&error)))?;
    let said = ssh.stdout.take().ok_or_else(|| wrong("no pipe"))?;
    let mut said = BufReader::new(said.take(LIST_BYTES_MAX)).lines();
    let mut found = Vec::new();
    while let Ok(Some(text)) = said.next_line().await {
        let Some(text) = text.strip_prefix(MARK) else { continue };
        match text.split_once(' ').unwrap_or((text, "")) {
            ("session", session) => found.push(session.to_owned()),
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
