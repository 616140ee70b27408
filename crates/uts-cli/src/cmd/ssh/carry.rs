//! A login's end at the host: it carries bytes between the login's standard streams and the server
//! of the session, which it starts if it is told to.

use super::places;
use crate::args::{SshCarryArgs, SshServerArgs};
use crate::cmd::pipe::{copy_out, standard_input};
use crate::cmd::{Failure, ssh::login::MARK};
use crate::ui::lines;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::timeout;
use uts_end::output::words;

/// Time that the server has to be there.
const START_MAX: Duration = Duration::from_secs(20);

/// Time that the server has to end its direction once the login has ended its own.
const END_MAX: Duration = Duration::from_secs(2);

/// Carries until one end has gone.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: &SshCarryArgs) -> Result<(), Failure> {
    let client = args.server.client.as_ref().ok_or(Failure::Told)?;
    if args.start {
        lines::print(&start(&args.server).await?);
    }
    let path: PathBuf = places::directory().map_err(Failure::Failed)?.join(places::name(client));
    let server = match UnixStream::connect(&path).await {
        Ok(server) => server,
        Err(error) => {
            lines::print(&format!("{MARK}gone"));
            return Err(Failure::Failed(format!("{}: {}", path.display(), words(&error))));
        }
    };
    if !args.start {
        lines::print(&format!("{MARK}here"));
    }
    let (mut from, mut to) = server.into_split();
    let outward = async {
        let mut input = standard_input().await;
        while let Some(Ok(chunk)) = input.recv().await {
            if to.write_all(&chunk).await.is_err() {
                return;
            }
        }
        // It ends too, if it has not gone.
        let _ = to.shutdown().await;
    };
    let inward = copy_out(&mut from);
    tokio::pin!(outward, inward);
    // A stream that breaks is for both its ends to mend.
    tokio::select! {
        _ = &mut inward => {}
        () = &mut outward => drop(timeout(END_MAX, inward).await),
    }
    Ok(())
}

/// Starts a server, and returns what it says of its place.
async fn start(args: &SshServerArgs) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::Failed(words(&error));
    let (first, last) = args.udp_ports;
    let client = args.client.map(|client| client.to_string()).unwrap_or_default();
    let mut server = Command::new(std::env::current_exe().map_err(failed)?);
    server.args(["ssh-server", "--client", &client, "--udp-ports", &format!("{first}-{last}")]);
    server.args(["--linger", &format!("{}ms", args.linger.as_millis())]);
    server.args(["--silence", &format!("{}ms", args.silence.as_millis())]);
    let mut server = server.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let said = server.stdout.take().ok_or(Failure::Told)?;
    let mut line = String::new();
    // It leaves its outputs behind the line.
    let read = timeout(START_MAX, BufReader::new(said).read_line(&mut line)).await;
    match read {
        Ok(Ok(1..)) => Ok(line.trim_end().to_owned()),
        // It has said why.
        _ => Err(Failure::Told),
    }
}
