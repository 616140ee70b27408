//! A socket of this host by which the user looks at a tunnel or a server that runs, and changes it.
//!
//! A request is a line of JSON ([`Request`]), the answer another: an object with `error`, or with
//! what was asked for.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use uts::printable::words;
use uts_tunnel::forward;

/// Request of a program that wants to take the port of a server over. It is answered by the server
/// itself, with descriptors.
pub const TAKE_OVER: &str = r#"{"do":"take-over"}"#;

/// The longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 4096;

/// The longest answer that is read, in bytes: [`uts_tunnel::CONNECTIONS_MAX`] connections with
/// two profiles each are well below it.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Time that each side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// Programs that ask at once; others wait.
const ASKING_MAX: usize = 4;

/// Request of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// To list what there is.
    List,
    /// To ask a property from now on.
    Set {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// Of this forward alone; else of the connection.
        #[serde(default)]
        forward: Option<String>,
        /// Of the connection of this client, at a server.
        #[serde(default)]
        client: Option<u64>,
    },
    /// Of a server: the places to which clients were led.
    Audit,
    /// To end a connection that is carried.
    End {
        /// Its number.
        id: u64,
    },
}

/// A program that runs, as it can be looked at and changed.
pub trait Controlled: Send + Sync + 'static {
    /// Does what is asked. The error is why not, in one line.
    fn carry_out(&self, request: Request) -> impl Future<Output = Result<Value, String>> + Send;
}

/// A socket, which is removed when it is dropped.
pub struct Control {
    listener: UnixListener,
    file: PathBuf,
}

/// Faults of the program that it has seen while it ran, for a list: how many, and the first in
/// words.
pub fn bugs() -> Value {
    let (count, first) = uts::bugs();
    json!({"count": count, "first": first})
}

impl Drop for Control {
    fn drop(&mut self) {
        // Who removed it before has done the same.
        let _ = fs::remove_file(&self.file);
    }
}

impl Control {
    /// Makes the socket. One that another program has left behind is replaced.
    ///
    /// # Errors
    /// Why it cannot be made, in one line.
    pub fn bind(file: &Path) -> Result<Control, String> {
        let wrong = |why: String| format!("--control {}: {why}", file.display());
        fits(file).map_err(wrong)?;
        if let Ok(there) = fs::symlink_metadata(file) {
            if !there.file_type().is_socket() {
                return Err(wrong("is there and is no socket; name a file that does not exist".into()));
            }
            if std::os::unix::net::UnixStream::connect(file).is_ok() {
                return Err(wrong("another program uses it".into()));
            }
            fs::remove_file(file).map_err(|error| wrong(error.to_string()))?;
        }
        let listener = UnixListener::bind(file).map_err(|error| wrong(words(&error)))?;
        let control = Control { listener, file: file.to_owned() };
        // Until then who connects is found out by its user.
        let permitted = fs::set_permissions(file, fs::Permissions::from_mode(0o600));
        permitted.map_err(|error| wrong(error.to_string()))?;
        Ok(control)
    }

    /// Answers requests of this user, until it is given up.
    pub async fn serve(self, board: Arc<impl Controlled>) {
        self.serve_with(board, None).await;
    }

    /// Answers requests, and hands programs that want to take over to `successors`.
    pub async fn serve_with(self, board: Arc<impl Controlled>, successors: Option<mpsc::Sender<UnixStream>>) {
        let room = Arc::new(Semaphore::new(ASKING_MAX));
        let own = rustix::process::geteuid().as_raw();
        loop {
            let Ok(place) = room.clone().acquire_owned().await else { return };
            let Ok((socket, _)) = self.listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            if socket.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0) {
                let (board, successors) = (board.clone(), successors.clone());
                tokio::spawn(async move {
                    let _place = place;
                    // Who has gone needs no answer.
                    let _ = timeout(PATIENCE, attend(&*board, socket, successors)).await;
                });
            }
        }
    }
}

/// Attends to one request.
async fn attend(
    board: &impl Controlled,
    mut socket: UnixStream,
    successors: Option<mpsc::Sender<UnixStream>>,
) -> io::Result<()> {
    let line = request(&mut socket).await?;
    match successors.filter(|_| line.trim_end() == TAKE_OVER) {
        Some(successors) => {
            // A server that ends hands nothing over.
            let _ = successors.send(socket).await;
            Ok(())
        }
        None => answer_to(board, &line, socket).await,
    }
}

/// Answers one request, whatever came instead of one.
///
/// # Errors
/// Those of the socket, and that what came is no text.
pub async fn answer(
    board: &impl Controlled,
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let line = request(&mut socket).await?;
    answer_to(board, &line, socket).await
}

/// The line that was sent.
async fn request(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(socket.take(REQUEST_BYTES_MAX)).read_line(&mut line).await?;
    Ok(line)
}

async fn answer_to(
    board: &impl Controlled,
    line: &str,
    mut socket: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let answer = match serde_json::from_str(line) {
        Ok(request) => board.carry_out(request).await,
        Err(error) => Err(format!("a request that is none: {error}")),
    };
    let answer = answer.unwrap_or_else(|why| json!({"error": why}));
    socket.write_all(format!("{answer}\n").as_bytes()).await?;
    socket.shutdown().await
}

/// The longest path of a socket, in bytes (unix(7)).
const PATH_BYTES_MAX: usize = 107;

/// Checks that a path is short enough for a socket.
///
/// # Errors
/// How long it is and may be, in words.
fn fits(file: &Path) -> Result<(), String> {
    match file.as_os_str().len() {
        ..=PATH_BYTES_MAX => Ok(()),
        bytes => {
            Err(format!("the path of a socket has at most {PATH_BYTES_MAX} bytes, and this has {bytes}"))
        }
    }
}

/// Asks a tunnel or a server.
///
/// # Errors
/// What it says, or why it cannot be asked, in one line.
pub async fn ask(file: &Path, request: &Request) -> Result<Value, String> {
    fits(file).map_err(|why| format!("{}: {why}", file.display()))?;
    let wrong = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("{}: no such socket", file.display()),
        io::ErrorKind::ConnectionRefused => format!("{}: no program uses it any more", file.display()),
        _ => format!("{}: {}", file.display(), words(&error)),
    };
    let answered = timeout(PATIENCE, async {
        let mut socket = UnixStream::connect(file).await?;
        let request = serde_json::to_string(request).map_err(io::Error::other)?;
        socket.write_all(format!("{request}\n").as_bytes()).await?;
        let mut answer = String::new();
        socket.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).await?;
        io::Result::Ok(answer)
    });
    let Ok(answer) = answered.await else { return Err(format!("{}: no answer", file.display())) };
    let answer: Value = serde_json::from_str(&answer.map_err(wrong)?)
        .map_err(|_| format!("{}: what answers there is neither a tunnel nor a server", file.display()))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(why) => Err(why.to_owned()),
        None => Ok(answer),
    }
}

/// Reads `NAME=VALUE`.
///
/// # Errors
/// That it is none, in one line.
pub fn property(text: &str, forward: Option<String>, client: Option<u64>) -> Result<Request, String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text}: write NAME=VALUE"))?;
    let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
    match forward {
        Some(_) => forward::checked(&name, &value)?,
        None if crate::host::is_fact(&name) => {
            uts::host::HostFacts::default().set(&name, &value).map_err(|error| error.to_string())?;
        }
        None => uts::Requirements::default().set(&name, &value).map_err(|error| error.to_string())?,
    }
    Ok(Request::Set { name, value, forward, client })
}
