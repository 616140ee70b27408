//! The login that starts the server: the user's ssh runs a few lines of shell, which find `uts` or
//! take it, and start it. What is said goes over ssh's standard output, in lines that begin with
//! [`MARK`]; all others are left alone, as those of files that a shell reads at first. Then the
//! login leads to the server: it is a [`Pipe`]. A later login leads to the same server.

use super::{Called, Settings, VERSION};
use crate::args::SshArgs;
use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use uts::Fingerprint;
use uts_end::output::{self, Output};
use uts_units::show;

/// The beginning of each line that is meant for us.
pub const MARK: &str = "uts-ssh ";

/// Time that the host has for an answer once ssh has logged in. A shell may read much at first.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Time that ssh has to end once all is said.
const END_MAX: Duration = Duration::from_secs(2);

/// The longest line that is read, in bytes, and what is kept of the host's standard error.
const LINE_BYTES_MAX: usize = 4096;

/// Script that is run at the host. Nothing in it is special to another shell within `'…'`.
/// `@PLACEHOLDERS@` stand for words that are plain in any shell.
const SCRIPT: &str = r#"
    go() {
      "$1" ssh-server --speaks @VERSION@ >/dev/null 2>&1 </dev/null || return 0;
      exec "$1" ssh-carry --client @CLIENT@ @OPTIONS@;
    };
    clean() { rm -f "$t"; };
    go uts;
    echo "uts-ssh none $(uname -sm)";
    read -r n s h || exit 0;
    d="$HOME/.cache/uts"; f="$d/$n"; t="$f.$$";
    go "$f";
    umask 077;
    trap clean EXIT;
    mkdir -p "$d" && : >"$t" || { echo "uts-ssh failed $d cannot be written"; exit 0; };
    echo "uts-ssh send";
    head -c "$s" >"$t";
    case "$( (sha256sum || shasum -a 256) 2>/dev/null <"$t")" in
      "$h "*) chmod 700 "$t" && mv -f "$t" "$f" && trap - EXIT && go "$f"; echo "uts-ssh failed it does not run there";;
      *) echo "uts-ssh failed it has not arrived whole";;
    esac
"#;

/// A server that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its UDP port.
    pub port: u16,
    pub fingerprint: Fingerprint,
    /// The host's address, as the host sees it.
    pub address: String,
}

/// Why there is no server.
pub enum Wrong {
    /// ssh did not log in, has said why, and ended so.
    NoLogin(u8),
    /// ssh logs in, but there is no server, in words.
    NoServer(String),
    /// There is the host, and no server of this session any more.
    Gone,
    /// The host lets nobody in who is not asked.
    Denied,
}

/// True if ssh says that another try would end as this one. Hosts count such tries, and lock
/// out who has many.
fn is_denied(said: &str) -> bool {
    ["Permission denied", "Too many authentication failures", "Host key verification failed"]
        .iter()
        .any(|words| said.contains(words))
}

/// Words of a host that has no server of the session.
const GONE: &str = "the session is not there any more";

/// Time that a later login may take. Chosen: much longer than one takes.
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// A login.
pub struct Login<'a> {
    pub args: &'a SshArgs,
    pub called: &'a Called,
    pub settings: &'a Settings,
    /// The key of the server's only client.
    pub client: Fingerprint,
}

/// Purpose of a login.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    /// To start a server.
    Start,
    /// To come to the one that was started. Nobody is asked anything.
    Again,
}

impl Login<'_> {
    /// Logs in and starts a server.
    ///
    /// # Errors
    /// See [`Wrong`].
    pub async fn run(&self, tell: &impl Fn(&str)) -> Result<(Place, Pipe), Wrong> {
        let mut ssh = self.begin(For::Start)?;
        match self.talk(&mut ssh, For::Start, tell).await {
            Ok(Some(place)) => Ok((place, ssh.into_pipe().ok_or_else(|| Wrong::NoServer("no pipe".into()))?)),
            Ok(None) => Err(ssh.end("it starts none".into()).await),
            Err(why) => Err(ssh.end(why).await),
        }
    }

    /// Logs in again, to the server that was started. Nothing is told, and nobody is asked.
    ///
    /// # Errors
    /// See [`Wrong`].
    pub async fn again(&self) -> Result<Pipe, Wrong> {
        let mut ssh = self.begin(For::Again)?;
        // What is wrong with it is not for the session's terminal.
        ssh.is_in.store(true, Ordering::Relaxed);
        match timeout(AGAIN_MAX, self.talk(&mut ssh, For::Again, &|_| {})).await {
            Ok(Ok(_)) => ssh.into_pipe().ok_or_else(|| Wrong::NoServer("no pipe".into())),
            Ok(Err(why)) if why == GONE => Err(Wrong::Gone),
            Ok(Err(why)) => Err(match ssh.end(why).await {
                Wrong::NoServer(why) if is_denied(&why) => Wrong::Denied,
                wrong => wrong,
            }),
            Err(_) => Err(Wrong::NoServer("no answer".into())),
        }
    }

    fn begin(&self, what_for: For) -> Result<Talk, Wrong> {
        let mut command = Command::new(&self.args.ssh);
        command
            .args(Self::options(self.settings, what_for == For::Again))
            .args(self.called.login(&self.script(what_for)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let child = command.spawn().map_err(|error| Wrong::NoServer(output::words(&error)))?;
        Talk::new(child).ok_or_else(|| Wrong::NoServer("no pipes".into()))
    }

    /// Options that make it a login alone, and if it `is_again`, one that asks nobody. Only those
    /// that this ssh knows.
    pub fn options(settings: &Settings, is_again: bool) -> Vec<String> {
        // It says that it is in: what goes wrong later is not of the login.
        let always = [
            "PermitLocalCommand=yes",
            "LocalCommand=echo uts-ssh in",
            "ClearAllForwardings=yes",
            "ForwardAgent=no",
            "ForwardX11=no",
            "RequestTTY=no",
            "ControlMaster=no",
            "ControlPath=none",
            "Tunnel=no",
        ];
        let known =
            ["RemoteCommand=none", "SessionType=default", "StdinNull=no", "ForkAfterAuthentication=no"];
        let is_known = |option: &&str| {
            let name = option.split('=').next().unwrap_or_default().to_ascii_lowercase();
            settings.get(&name).is_some()
        };
        let quiet: &[&str] =
            if is_again { &["BatchMode=yes", "ConnectTimeout=10", "ConnectionAttempts=1"] } else { &[] };
        let options = quiet.iter().copied().chain(always).chain(known.into_iter().filter(is_known));
        options.flat_map(|option| ["-o".to_owned(), option.to_owned()]).collect()
    }

    /// Script that is run at the host, as one word in one line.
    fn script(&self, what_for: For) -> String {
        let (first, last) = self.args.udp_ports;
        let (silence, linger) = (self.args.silence.as_millis(), self.args.linger.as_millis());
        let options = match what_for {
            For::Start => {
                format!("--start --udp-ports {first}-{last} --linger {linger}ms --silence {silence}ms")
            }
            For::Again => String::new(),
        };
        one_word(&SCRIPT.replace("@CLIENT@", &self.client.to_string()), &options)
    }

    /// Listens until the login leads to the server. Returns its place if it was started.
    async fn talk(
        &self,
        ssh: &mut Talk,
        what_for: For,
        tell: &impl Fn(&str),
    ) -> Result<Option<Place>, String> {
        let mut limit = None;
        loop {
            let said = ssh.next(limit).await?;
            let (word, rest) = said.split_once(' ').unwrap_or((&said, ""));
            limit = Some(ANSWER_MAX);
            match word {
                "in" => ssh.is_in.store(true, Ordering::Relaxed),
                "none" if self.args.no_install => {
                    return Err("uts is not in PATH there (--no-install)".into());
                }
                "none" => ssh.offer(rest).await?,
                "send" => {
                    let bytes = ssh.program.len() as u64;
                    tell(&format!("putting uts into ~/.cache/uts there ({})", show::bytes(bytes)));
                    ssh.send().await?;
                }
                "at" if what_for == For::Start => {
                    return place(rest).map(Some).ok_or_else(|| format!("it says `{rest}`"));
                }
                "here" if what_for == For::Again => return Ok(None),
                "gone" => return Err(GONE.to_owned()),
                "failed" => return Err(rest.to_owned()),
                _ => {}
            }
        }
    }
}

/// A script for the host, for this version and with these options, as one word in one line.
pub fn one_word(script: &str, options: &str) -> String {
    let script = script.replace("@VERSION@", &VERSION.to_string()).replace("@OPTIONS@", options);
    format!("exec sh -c '{}'", script.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A login that leads to the server: both ways of it. It ends when this is dropped.
pub struct Pipe {
    /// The program, which is ended with this.
    pub child: Child,
    pub send: ChildStdin,
    pub recv: BufReader<tokio::io::Take<ChildStdout>>,
}

/// Place of a server, as it says it.
fn place(said: &str) -> Option<Place> {
    let mut words = said.split(' ');
    let port = words.next()?.parse().ok().filter(|port| *port > 0)?;
    let fingerprint = words.next()?.parse().ok()?;
    // An address, of which a hostile server can make nothing else.
    let address = words.next()?;
    address.parse::<std::net::IpAddr>().ok()?;
    Some(Place { port, fingerprint, address: address.to_owned() })
}

/// An ssh that logs in.
struct Talk {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<tokio::io::Take<ChildStdout>>>,
    is_in: Arc<AtomicBool>,
    /// Text that the host has written to standard error.
    errors: Arc<Mutex<VecDeque<u8>>>,
    passing: JoinHandle<()>,
    /// This program, once it is wanted.
    program: Vec<u8>,
}

impl Talk {
    /// The most that is read of the host's output.
    const BYTES_MAX: u64 = 1 << 20;

    fn new(mut child: Child) -> Option<Talk> {
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take()?, child.stderr.take()?);
        let (is_in, errors) = (Arc::default(), Arc::default());
        let passing = tokio::spawn(pass_on(stderr, Arc::clone(&is_in), Arc::clone(&errors)));
        let lines = BufReader::new(stdout.take(Self::BYTES_MAX)).lines();
        Some(Talk { child, stdin, lines, is_in, errors, passing, program: Vec::new() })
    }

    /// The next line that is meant for us; without a limit while people may be asked for passwords.
    async fn next(&mut self, limit: Option<Duration>) -> Result<String, String> {
        let lines = &mut self.lines;
        let next = async {
            loop {
                match lines.next_line().await {
                    Ok(Some(line)) => {
                        if let Some(said) = line.strip_prefix(MARK) {
                            return Some(said.trim_end().to_owned());
                        }
                    }
                    // Text that is none is not for us.
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {}
                    Ok(None) | Err(_) => return None,
                }
            }
        };
        let said = match limit {
            None => next.await,
            Some(limit) => timeout(limit, next).await.map_err(|_| "it does not answer".to_owned())?,
        };
        said.ok_or_else(|| "it starts none".to_owned())
    }

    /// Offers this program to a system of the same kind.
    async fn offer(&mut self, system: &str) -> Result<(), String> {
        let own = Command::new("uname").arg("-sm").output().await.map_err(|error| output::words(&error))?;
        let own = String::from_utf8_lossy(&own.stdout).trim().to_owned();
        if own != system {
            return Err(format!("uts is not in PATH there, and this one is for {own}, not {system}"));
        }
        let read = |path: &Path| std::fs::read(path);
        let program = std::env::current_exe().and_then(|path| read(&path));
        self.program = program.map_err(|error| format!("cannot read uts: {}", output::words(&error)))?;
        let hash = ring::digest::digest(&ring::digest::SHA256, &self.program);
        let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("uts-{}-{}", env!("CARGO_PKG_VERSION"), &hash[..16]);
        let line = format!("{name} {} {hash}\n", self.program.len());
        self.write(line.as_bytes()).await
    }

    async fn send(&mut self) -> Result<(), String> {
        let program = std::mem::take(&mut self.program);
        self.write(&program).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let stdin = self.stdin.as_mut().ok_or("no pipe")?;
        let written = async {
            stdin.write_all(bytes).await?;
            stdin.flush().await
        };
        written.await.map_err(|error| output::words(&error))
    }

    /// The login as a way to the server: no line is for us any more.
    fn into_pipe(self) -> Option<Pipe> {
        let mut recv = self.lines.into_inner();
        recv.get_mut().set_limit(u64::MAX);
        Some(Pipe { child: self.child, send: self.stdin?, recv })
    }

    /// Waits for the end of ssh, and says what was wrong.
    async fn end(mut self, why: String) -> Wrong {
        // At the end of its input, what is run at the host ends.
        drop(self.stdin.take());
        let status = timeout(END_MAX, self.child.wait()).await;
        if status.is_err() {
            let _ = self.child.kill().await;
        }
        // What it has said last is on its way.
        let _ = timeout(END_MAX, &mut self.passing).await;
        let status = status.ok().and_then(Result::ok).and_then(|status| status.code());
        if status == Some(255) && !self.is_in.load(Ordering::Relaxed) {
            return Wrong::NoLogin(255);
        }
        Wrong::NoServer(self.last_error().map_or(why.clone(), |last| format!("{why} ({last})")))
    }

    /// The last line of the host's standard error.
    fn last_error(&self) -> Option<String> {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(errors.make_contiguous()).into_owned();
        text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(ToOwned::to_owned)
    }
}

/// Passes on what ssh says until it has logged in. What the host says later is kept.
async fn pass_on(mut stderr: ChildStderr, is_in: Arc<AtomicBool>, errors: Arc<Mutex<VecDeque<u8>>>) {
    let mut chunk = [0; LINE_BYTES_MAX];
    while let Ok(bytes @ 1..) = stderr.read(&mut chunk).await {
        if !is_in.load(Ordering::Relaxed) {
            // Where nobody reads it, nobody does.
            let _ = Output::Err.bytes(&chunk[..bytes]);
            continue;
        }
        let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.extend(&chunk[..bytes]);
        let excess = errors.len().saturating_sub(LINE_BYTES_MAX);
        errors.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_are_one_word_of_any_shell() {
        for script in [SCRIPT, super::super::sessions::SCRIPT] {
            assert!(!script.contains(['\'', '\\', '!']), "special within quotes in some shell");
            let mut shell = std::process::Command::new("sh");
            let checked = shell.arg("-nc").arg(script.split_whitespace().collect::<Vec<_>>().join(" "));
            assert!(checked.status().expect("a shell").success());
        }
    }

    #[test]
    fn who_is_not_let_in_is_told_from_who_finds_no_way() {
        assert!(is_denied("it starts none (me@host: Permission denied (publickey,password).)"));
        assert!(!is_denied("it starts none (ssh: connect to host a port 22: Connection timed out)"));
    }

    #[test]
    fn what_a_host_says_is_a_place_or_nothing() {
        let key = Fingerprint::of_spki(b"a");
        let said = place(&format!("60001 {key} 192.0.2.1")).expect("a place");
        assert_eq!((said.port, said.fingerprint, said.address.as_str()), (60001, key, "192.0.2.1"));
        for wrong in [
            format!("0 {key} ::1"),
            format!("60001 {key}"),
            format!("60001 {key} -oProxyCommand=x"),
            "60001 SHA256:x ::1".to_owned(),
            String::new(),
        ] {
            assert_eq!(place(&wrong), None, "{wrong}");
        }
    }
}
