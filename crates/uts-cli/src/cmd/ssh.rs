//! `uts ssh`: a session of ssh that goes over UDP. The user's own ssh logs in once and starts a
//! server for this session alone ([`login`], [`server`]). Then it runs again, in place of this
//! process, with `uts pipe` to that server as its connection. Where there is no server, or UDP
//! does not get through, it runs as it would have without us.

mod called;
mod login;
pub mod server;

use super::Failure;
use crate::args::SshArgs;
use crate::link::Link;
use crate::pipe;
use crate::ui::lines;
use called::Called;
use login::{Login, Place, Wrong};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;
use tokio::time::timeout;
use uts::{Identity, Trust};
use uts_end::output::words;
use uts_units::show;

/// The version of what is said between `uts ssh` and the server that it starts.
const VERSION: u32 = 2;

/// The service of that server.
const SERVICE: &str = "ssh";

/// Runs `uts ssh`. It returns only if ssh has not been run in its place.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: &SshArgs) -> Result<(), Failure> {
    let Some(called) = Called::read(&args.arguments) else { return Err(become_ssh(args, &args.arguments)) };
    // What it finds wrong it says itself.
    let Some(settings) = Settings::of(&args.ssh, &called).await else {
        return Err(become_ssh(args, &args.arguments));
    };
    if settings.has_master(&args.ssh, &called).await {
        return Err(become_ssh(args, &args.arguments));
    }
    let host = called.host.to_string_lossy().into_owned();
    let tell = |line: &str| {
        if !settings.is_quiet() {
            lines::tell(format_args!("uts: {host}: {line}"));
        }
    };
    let key = Identity::generate().map_err(|error| Failure::Failed(error.to_string()))?;
    let login = Login { args, called: &called, settings: &settings, client: key.fingerprint() };
    let reached = match login.run(&tell).await {
        Ok(place) => reach(args, &settings, &place, &key).await.map(|at| (place, at)),
        Err(Wrong::NoLogin(status)) => return Err(Failure::Ended(status)),
        Err(Wrong::NoServer(why)) => Err(format!("no UTS server there: {why}")),
    };
    let session = reached.and_then(|(place, at)| session(args, &called, &place, &at, &key));
    match session {
        Ok((session, kept)) => {
            let failure = become_ssh(args, &session);
            kept.remove();
            Err(failure)
        }
        Err(why) => {
            tell(&format!("{why}; this session goes by plain ssh"));
            Err(become_ssh(args, &called.all()))
        }
    }
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

/// Looks whether UDP gets through to the server. Says where it is reached.
async fn reach(args: &SshArgs, settings: &Settings, place: &Place, key: &Identity) -> Result<String, String> {
    let through_others = settings.has_proxy().then_some(place.address.as_str());
    let host = args.udp_host.as_deref().or(through_others).or(settings.get("hostname"));
    let host = host.ok_or("ssh does not say where its host is")?;
    let at = match host.contains(':') {
        true => format!("[{host}]:{}", place.port),
        false => format!("{host}:{}", place.port),
    };
    let mut options = uts::ConnectOptions::new(Trust::Pin(vec![place.fingerprint]));
    options.identity = Some(key.clone());
    options.connection.service = pipe::SERVICE.to_owned();
    match timeout(args.udp_wait, uts::connect(&at, options)).await {
        Ok(Ok(connection)) => {
            crate::udp::UdpLink::new(connection).close(0, "done").await;
            Ok(at)
        }
        Ok(Err(error)) => Err(format!("UDP does not get through: {error}")),
        Err(_) => {
            let waited = show::seconds(args.udp_wait.as_secs_f64());
            Err(format!("UDP does not get through: no answer from {at} in {waited}"))
        }
    }
}

/// Arguments of ssh for the session through the server, and the file of the session's key. `uts
/// pipe` removes it.
fn session(
    args: &SshArgs,
    called: &Called,
    place: &Place,
    at: &str,
    key: &Identity,
) -> Result<(Vec<OsString>, Kept), String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find uts: {}", words(&error)))?;
    let program = program.to_str().ok_or("the path of uts is not UTF-8")?;
    let kept = Kept::make(key)?;
    let file = kept.file();
    let file = file.to_str().ok_or("the directory for temporary files is not UTF-8")?;
    let fingerprint = place.fingerprint.to_string();
    let silence = format!("{}ms", args.silence.as_millis());
    let words = [
        program,
        "pipe",
        "-q",
        "--config",
        "/dev/null",
        "--pin",
        &fingerprint,
        "--key",
        file,
        "--key-once",
        "--silence",
        &silence,
        at,
        SERVICE,
    ];
    let proxy = words.map(quoted).join(" ").replace('%', "%%");
    let mut arguments = Vec::new();
    // What was said first counts. UTS tells by itself when nothing is heard any more.
    for option in [&format!("ProxyCommand={proxy}"), "ProxyUseFdpass=no", "ServerAliveInterval=0"] {
        arguments.extend(["-o".into(), option.into()]);
    }
    arguments.extend(called.session());
    Ok((arguments, kept))
}

/// A word for any shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The session's key in a file, in a directory of its own.
struct Kept(PathBuf);

impl Kept {
    fn make(key: &Identity) -> Result<Kept, String> {
        // The first is memory, as a rule, and not there for all users.
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let made = runtime.and_then(|dir| Self::make_in(&dir, key).ok());
        made.map_or_else(|| Self::make_in(&std::env::temp_dir(), key), Ok)
    }

    fn make_in(dir: &Path, key: &Identity) -> Result<Kept, String> {
        let name: String =
            key.fingerprint().to_string().chars().filter(char::is_ascii_alphanumeric).collect();
        let dir = dir.join(format!("uts-ssh-{name}"));
        let failed = |error: io::Error| format!("{}: {}", dir.display(), words(&error));
        // It fails if there is something of this name.
        std::fs::DirBuilder::new().mode(0o700).create(&dir).map_err(failed)?;
        let kept = Kept(dir);
        if let Err(error) = key.save(&kept.file()) {
            kept.remove();
            return Err(error.to_string());
        }
        Ok(kept)
    }

    fn file(&self) -> PathBuf {
        self.0.join("key")
    }

    fn remove(&self) {
        remove_key(&self.file());
    }
}

/// Removes the file of a key that is for one connection, and its directory if that is all in it.
pub fn remove_key(file: &Path) {
    // Where it is gone already, it is gone.
    let _ = std::fs::remove_file(file);
    if let Some(dir) = file.parent() {
        let _ = std::fs::remove_dir(dir);
    }
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

    #[test]
    fn the_file_of_a_key_is_private_and_leaves_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let key = Identity::generate().expect("a key");
        let kept = Kept::make(&key).expect("made");
        assert_eq!(std::fs::metadata(kept.file()).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(&kept.0).expect("there").permissions().mode() & 0o777, 0o700);
        let dir = kept.0.parent().expect("a directory");
        assert!(Kept::make_in(dir, &key).is_err(), "it is there");
        kept.remove();
        assert!(!kept.0.exists());
    }
}
