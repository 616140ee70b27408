//! `uts ssh --attach` at this end: a session of ssh whose command attaches to a shell that is held
//! at the host ([`super::shell`]), and the list of hosts where shells were begun from here.

use super::login::one_word;
use super::sessions::{self, Asking};
use super::{Called, Settings};
use crate::args::{SshArgs, to_hex};
use crate::cmd::Failure;
use crate::ui::lines;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::task::JoinSet;
use uts_units::show;

/// Options of ssh for a session that attaches: ssh_config may name a command for each session.
pub const OPTIONS: [&str; 2] = ["-o", "RemoteCommand=none"];

/// Hosts that are remembered. Chosen: more than people have.
const HOSTS_MAX: usize = 64;

/// Hosts that are asked at once.
const ASKED_MAX: usize = 8;

/// The longest command line that is remembered, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Script that is run at the host: see [`super::login`]. `@ELSE@` is what is run without `uts`.
const SCRIPT: &str = r#"
    go() {
      "$1" ssh-server --speaks @VERSION@ >/dev/null 2>&1 </dev/null || return 0;
      exec "$1" ssh-attach @OPTIONS@;
    };
    go uts;
    for f in "$HOME"/.cache/uts/uts-*; do go "$f"; done;
    @ELSE@
"#;

/// Ends of the script where there is no `uts`: a shell is one all the same.
const ELSE_SHELL: &str = r#"
    echo "uts: no uts of this version there: this shell ends with its session" >&2;
    exec "${SHELL:-/bin/sh}" -l
"#;
const ELSE_NONE: &str = r#"echo "uts: no uts of this version there, which would hold the shell" >&2; exit 1"#;

/// A shell that is wanted.
pub struct Wanted {
    called: Called,
    /// Its name, if one alone will do.
    name: Option<String>,
    command: Option<String>,
}

impl Wanted {
    /// Understands a command line.
    ///
    /// # Errors
    /// The command line is not one of a shell in a terminal.
    pub async fn new(args: &SshArgs, called: &Called, name: &str) -> Result<Wanted, Failure> {
        if let Some(letter) = called.without_terminal() {
            let why = format!("--attach is for a shell in a terminal, and ssh has none with -{letter}");
            return Err(Failure::Usage(why));
        }
        let command = match called.command() {
            Some(command) => Some(command),
            None => {
                let settings = Settings::of(&args.ssh, called).await;
                settings.and_then(|settings| settings.get("remotecommand").map(OsString::from))
            }
        };
        let command = command.map(|command| {
            command.into_string().map_err(|_| Failure::Usage("a command of --attach is text".to_owned()))
        });
        let command = command.transpose()?;
        let name = (!name.is_empty()).then(|| name.to_owned());
        Ok(Wanted { called: called.clone(), name, command })
    }

    /// The command line of ssh, by the session of this name if there is one.
    pub fn called(&self, by: Option<&str>) -> Called {
        let mut options = String::new();
        for (option, value) in [("--name", self.name.clone()), ("--run", self.command.as_deref().map(to_hex))]
        {
            if let Some(value) = value {
                options.push_str(&format!(" {option} {value}"));
            }
        }
        if let Some(by) = by {
            options.push_str(&format!(" --by {by}"));
        }
        let is_any_shell = self.name.is_none() && self.command.is_none();
        let script = SCRIPT.replace("@ELSE@", if is_any_shell { ELSE_SHELL } else { ELSE_NONE });
        self.called.in_terminal(&one_word(&script, &options))
    }

    /// Remembers the host, for [`list`].
    pub fn remember(&self) {
        if let Some(dir) = directory() {
            // Where that cannot be written, the shell is held all the same.
            let _ = remember(&dir, &self.called);
        }
    }

    /// Arguments of plain ssh.
    pub fn plain(&self) -> Vec<OsString> {
        OPTIONS.map(OsString::from).into_iter().chain(self.called(None).all()).collect()
    }
}

/// The directory for what is remembered.
fn directory() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let home = || std::env::home_dir().filter(|home| home.is_absolute());
    Some(state.or_else(|| Some(home()?.join(".local/state")))?.join("uts/shells"))
}

/// Remembers how a host is reached, in a file of its own. Of too many, those that were begun
/// longest ago are forgotten.
fn remember(dir: &Path, called: &Called) -> io::Result<()> {
    let words = called.reach().into_iter().map(|word| word.into_string().map_err(|_| io::Error::other("")));
    let text = serde_json::to_string(&words.collect::<io::Result<Vec<_>>>()?)?;
    fs::DirBuilder::new().mode(0o700).recursive(true).create(dir)?;
    let name = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let name: String = name.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let new = dir.join(format!("{name}.{}", std::process::id()));
    fs::write(&new, text)?;
    fs::rename(&new, dir.join(name))?;
    for (_, file) in remembered(dir).iter().skip(HOSTS_MAX) {
        let _ = fs::remove_file(file);
    }
    Ok(())
}

/// Files of hosts, and their times, the last first.
fn remembered(dir: &Path) -> Vec<(SystemTime, PathBuf)> {
    let all = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<_> =
        all.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    all.sort_by(|one, other| other.cmp(one));
    all
}

/// The command line of a host that is remembered.
fn recall(file: &Path) -> Option<Called> {
    if fs::metadata(file).ok()?.len() > LINE_BYTES_MAX {
        return None;
    }
    let words: Vec<OsString> = serde_json::from_slice::<Vec<String>>(&fs::read(file).ok()?)
        .ok()?
        .into_iter()
        .map(OsString::from)
        .collect();
    Called::read(&words)
}

/// Prints the shells that are held at hosts where some were begun from here. Each host is asked, by
/// a login that asks nobody. One that holds none any more is forgotten.
///
/// # Errors
/// See [`Failure`].
pub async fn list(args: &SshArgs) -> Result<(), Failure> {
    if !args.arguments.is_empty() {
        return Err(Failure::Usage("write the host as for ssh".to_owned()));
    }
    let mut waiting = directory().map(|dir| remembered(&dir)).unwrap_or_default().into_iter();
    let (mut asked, mut found) = (JoinSet::new(), false);
    loop {
        while asked.len() < ASKED_MAX
            && let Some((began, file)) = waiting.next()
        {
            let Some(called) = recall(&file) else {
                let _ = fs::remove_file(&file);
                continue;
            };
            let ssh = args.ssh.clone();
            asked.spawn(async move {
                let said = sessions::there(&ssh, &called, None, Asking::Nobody).await;
                (called.host.to_string_lossy().into_owned(), began, file, said)
            });
        }
        let Some(Ok((host, began, file, said))) = asked.join_next().await else { break };
        match said {
            Ok(said) => {
                let shells: Vec<_> = said.iter().filter(|line| line.is_shell).collect();
                if shells.is_empty() {
                    let _ = fs::remove_file(&file);
                }
                found |= !shells.is_empty();
                shells.iter().for_each(|shell| lines::print(&format!("{host}  {}", shell.text)));
            }
            Err(why) => {
                found = true;
                let since = show::span(began.elapsed().unwrap_or_default());
                let why = why.line().unwrap_or("no answer");
                lines::print(&format!("{host}  not known: {why}; last attached from here {since} ago"));
            }
        }
    }
    if !found {
        lines::tell("uts: no shells are held");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(line: &str) -> Called {
        Called::read(&line.split(' ').map(OsString::from).collect::<Vec<_>>()).expect("a session")
    }

    #[test]
    fn hosts_are_remembered_as_they_are_reached() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().join("a/b");
        remember(&dir, &called("-p 22 -L 1:a:2 -A me@host make")).expect("written");
        remember(&dir, &called("-p 22 me@host")).expect("written");
        let all = remembered(&dir);
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(recall(&all[0].1), Some(called("-p 22 me@host")));
        for n in 0..HOSTS_MAX + 5 {
            remember(&dir, &called(&format!("host{n}"))).expect("written");
        }
        assert_eq!(remembered(&dir).len(), HOSTS_MAX);
        fs::write(&all[0].1, "[1]").expect("written");
        assert_eq!(recall(&all[0].1), None);
    }

    #[test]
    fn the_script_is_one_word_of_any_shell_and_names_what_is_wanted() {
        for (name, command) in [(None, None), (Some("2".to_owned()), Some("make 'a b'".to_owned()))] {
            let wanted = Wanted { called: called("-A host ls"), name: name.clone(), command };
            let all = wanted.called(Some("abc")).all();
            let script = all.last().and_then(|word| word.to_str()).expect("text");
            let inner = script.strip_prefix("exec sh -c '").and_then(|rest| rest.strip_suffix('\''));
            let inner = inner.expect("quoted");
            assert!(!inner.contains(['\'', '\\', '!', '@']), "special within quotes in some shell: {inner}");
            assert!(inner.contains("--by abc") && inner.contains("--name 2") == name.is_some(), "{inner}");
            let checked = std::process::Command::new("sh").arg("-nc").arg(inner).status();
            assert!(checked.expect("a shell").success());
        }
    }
}
