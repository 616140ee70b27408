//! The process that keeps a session here, beside ssh: the session's key, its login, its connection,
//! and the socket that ssh has for its own.

use super::board::Board;
use super::called::Called;
use super::login::{Login, Place, Wrong};
use super::places;
use super::ways::Ways;
use super::{ENDED, KEPT, PLAIN, Settings};
use crate::args::SshArgs;
use crate::cmd::{Failure, interrupted};
use crate::control::Control;
use crate::ui::lines;
use rustix::net::Shutdown;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep, timeout};
use uts::{Identity, Trust};
use uts_end::output::words;
use uts_tunnel::resumed::{How, Offers, Session, WINDOW_BYTES};

/// Time that ssh has to come for its connection, and how often it is looked whether it lives.
const COME_MAX: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Time for which a way to the server is looked for once ssh has gone, to say so there. Chosen.
const LEAVE_MAX: Duration = Duration::from_secs(600);

/// Time that the server has to hear that the session is ended here.
const END_MAX: Duration = Duration::from_secs(2);

/// Runs what keeps the session: says in one line what ssh is to do, and carries its session.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: &SshArgs) -> Result<(), Failure> {
    let say_plain = || {
        lines::print(PLAIN);
        Ok(())
    };
    let Some(called) = Called::read(&args.arguments) else { return say_plain() };
    // What it finds wrong it says itself.
    let Some(settings) = Settings::of(&args.ssh, &called).await else { return say_plain() };
    if settings.has_master(&args.ssh, &called).await {
        return say_plain();
    }
    let host = called.host.to_string_lossy().into_owned();
    let tell = |line: &str| {
        if !settings.is_quiet() {
            lines::tell(format_args!("uts: {host}: {line}"));
        }
    };
    let key = Identity::generate().map_err(|error| Failure::Failed(error.to_string()))?;
    let login = Login { args, called: &called, settings: &settings, client: key.fingerprint() };
    let kept = match login.run(&tell).await {
        Ok((place, pipe)) => match (Hatch::open(&key), address(args, &settings, &place)) {
            (Ok(hatch), Ok(at)) => Ok((place, pipe, hatch, at)),
            (Err(why), _) | (_, Err(why)) => Err(why),
        },
        Err(Wrong::NoLogin(status)) => {
            lines::print(&format!("{ENDED}{status}"));
            return Ok(());
        }
        Err(Wrong::NoServer(why)) => Err(format!("no UTS server there: {why}")),
        Err(Wrong::Gone | Wrong::Denied) => Err("no UTS server there".to_owned()),
    };
    let (place, pipe, hatch, at) = match kept {
        Ok(kept) => kept,
        Err(why) => {
            tell(&format!("{why}; this session goes by plain ssh"));
            return say_plain();
        }
    };
    let mut options = uts::ConnectOptions::new(Trust::Pin(vec![place.fingerprint]));
    options.identity = Some(key.clone());
    options.connection.service = uts_tunnel::pipe::SERVICE.to_owned();
    options.connection.requirements = uts::Requirements::bulk();
    options.connection.idle_timeout = args.silence;
    let session = Arc::new(Session::new(WINDOW_BYTES));
    let board = Board::new(places::name(&login.client), host.clone());
    board.on_begun(session.clone());
    let ways = Ways::new(session.clone(), &login, (at, options), board.clone());
    let (ways, offers) = ways.map_err(Failure::Failed)?;
    // A session that cannot be looked at is one all the same.
    let control = places::directory().and_then(|dir| {
        Control::bind(&dir.join(format!("{}.{}", places::name(&login.client), places::CONTROL_HERE)))
    });
    let control = control.ok().map(|control| tokio::spawn(control.serve(board.clone())));
    let carried = async {
        if let Err(why) = ways.by_udp_within(args.udp_wait).await {
            let wait = "this session goes over ssh's TCP connection, and over UDP once that works";
            tell(&format!("UDP does not get through: {why}; {wait}"));
        }
        lines::print(&format!("{KEPT}{} {}", places::name(&login.client), hatch.socket().display()));
        leave_terminal().map_err(|error| words(&error.into()))?;
        let (ssh, wrong) = match hatch.meet().await {
            Ok(ssh) => (ssh, None),
            // The server learns that the session ends.
            Err(why) => (UnixStream::pair().map_err(|error| words(&error))?.0, Some(why)),
        };
        carry(&session, ssh, offers, args, (&ways, &board)).await?;
        wrong.map_or(Ok(()), Err)
    };
    let carried = tokio::select! {
        carried = carried => carried,
        () = ways.find(pipe) => Ok(()),
    };
    ways.close().await;
    if let Some(control) = control {
        control.abort();
        // Its socket is removed with it.
        let _ = control.await;
    }
    if let Err(why) = carried {
        tell(&format!("the session is lost: {why}"));
    }
    Ok(())
}

/// Carries the session until it is over. If this process is told to end, the session ends first.
async fn carry(
    session: &Session,
    mut ssh: UnixStream,
    mut offers: Offers,
    args: &SshArgs,
    (ways, board): (&Ways<'_>, &Board),
) -> Result<(), String> {
    let end = ssh.as_fd().try_clone_to_owned().map_err(|error| words(&error))?;
    let (from, to) = ssh.split();
    let running = session.run(from, to, &mut offers, args.silence, |news| ways.on_news(news));
    tokio::pin!(running);
    let ended = tokio::select! {
        ended = &mut running => ended,
        // Nobody waits for it any more; its server keeps it for a while.
        () = async { session.left().await; sleep(LEAVE_MAX).await } => return Ok(()),
        () = async { tokio::select! { () = interrupted() => {}, () = board.ended() => {} } } => {
            // ssh hears it too, and nothing of ssh is heard any more.
            let _ = rustix::net::shutdown(&end, Shutdown::Both);
            match timeout(END_MAX, running).await {
                Ok(ended) => ended,
                Err(_) => return Err("it was ended here, and its server does not know yet".into()),
            }
        }
    };
    ended.map(|_: How| ()).map_err(|lost| lost.0)
}

/// Address at which the server is reached.
fn address(args: &SshArgs, settings: &Settings, place: &Place) -> Result<String, String> {
    let through_others = settings.has_proxy().then_some(place.address.as_str());
    let host = args.udp_host.as_deref().or(through_others).or(settings.get("hostname"));
    let host = host.ok_or("ssh does not say where its host is")?;
    Ok(match host.contains(':') {
        true => format!("[{host}]:{}", place.port),
        false => format!("{host}:{}", place.port),
    })
}

/// Leaves the terminal, whose signals are for ssh, and the line to `uts ssh`. Standard error stays:
/// why a session is lost is told.
fn leave_terminal() -> rustix::io::Result<()> {
    // It leads no process group: `uts ssh` has begun it.
    let _ = rustix::process::setsid();
    let null = File::options().read(true).write(true).open("/dev/null");
    let null =
        null.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))?;
    rustix::stdio::dup2_stdout(&null)
}

/// A socket at which ssh fetches its connection, in a directory of its own that only this user can
/// enter. Both are removed with this.
struct Hatch {
    listener: UnixListener,
    dir: PathBuf,
}

impl Hatch {
    fn open(key: &Identity) -> Result<Hatch, String> {
        // The first is memory, as a rule, and not there for all users.
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let made = runtime.and_then(|dir| Self::open_in(&dir, key).ok());
        made.map_or_else(|| Self::open_in(&std::env::temp_dir(), key), Ok)
    }

    fn open_in(dir: &Path, key: &Identity) -> Result<Hatch, String> {
        let dir = dir.join(format!("uts-ssh-{}", places::name(&key.fingerprint())));
        let failed = |error: io::Error| format!("{}: {}", dir.display(), words(&error));
        // It fails if there is something of this name.
        std::fs::DirBuilder::new().mode(0o700).create(&dir).map_err(failed)?;
        let bound = UnixListener::bind(Self::socket_in(&dir));
        let listener = bound.inspect_err(|_| drop(std::fs::remove_dir(&dir))).map_err(failed)?;
        Ok(Hatch { listener, dir })
    }

    fn socket_in(dir: &Path) -> PathBuf {
        dir.join("ssh")
    }

    fn socket(&self) -> PathBuf {
        Self::socket_in(&self.dir)
    }

    /// Waits for ssh, as long as it lives.
    async fn meet(&self) -> Result<UnixStream, String> {
        let parent = rustix::process::getppid();
        let deadline = Instant::now() + COME_MAX;
        loop {
            tokio::select! {
                come = self.listener.accept() => {
                    let (ssh, _) = come.map_err(|error| words(&error))?;
                    // Nobody else is to come.
                    self.remove();
                    return Ok(ssh);
                }
                () = sleep(LOOK_AGAIN) => {
                    if rustix::process::getppid() != parent || Instant::now() >= deadline {
                        return Err("ssh has not come for its connection".to_owned());
                    }
                }
            }
        }
    }

    fn remove(&self) {
        // What is gone already is gone.
        let _ = std::fs::remove_file(self.socket());
        let _ = std::fs::remove_dir(&self.dir);
    }
}

impl Drop for Hatch {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn the_socket_is_private_and_leaves_nothing() {
        let above = tempfile::tempdir().expect("a folder");
        let key = Identity::generate().expect("a key");
        let hatch = Hatch::open_in(above.path(), &key).expect("made");
        assert_eq!(std::fs::metadata(&hatch.dir).expect("there").permissions().mode() & 0o777, 0o700);
        assert!(Hatch::open_in(above.path(), &key).is_err(), "it is there");
        let (come, met) = tokio::join!(UnixStream::connect(hatch.socket()), hatch.meet());
        assert!(come.is_ok() && met.is_ok());
        assert!(!hatch.dir.exists());
    }
}
