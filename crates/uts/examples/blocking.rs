//! The same by threads that wait, without a runtime (on Unix).
//!
//! ```text
//! cargo run --example blocking
//! ```

use std::error::Error;
use std::io::Write;

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout())
}

/// On Windows there are no connections of threads.
#[cfg(not(unix))]
pub fn run(_: &mut impl Write) -> Result<(), Box<dyn Error>> {
    Err("uts::blocking is for Unix".into())
}

/// The server in a thread, the client in this one.
#[cfg(unix)]
pub fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    use std::io::Read;
    use uts::blocking::connect;
    use uts::{ConnectOptions, FlowOptions};

    let (at, told) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || serve(&at).map_err(|error| error.to_string()));
    let (target, fingerprint): (std::net::SocketAddr, uts::Fingerprint) = told.recv()?;
    let connection = connect(&target.to_string(), ConnectOptions::pinned(fingerprint))?;
    let (mut send, mut recv) = connection.open_flow(FlowOptions::default())?.split();
    send.write_all(b"hello")?;
    send.finish()?;
    let mut answer = String::new();
    recv.read_to_string(&mut answer)?;
    writeln!(out, "{}", uts::printable::lines(&answer, 1000))?;
    connection.close(0, "done");
    server.join().map_err(|_| "the server panicked")??;
    Ok(())
}

#[cfg(unix)]
fn serve(
    at: &std::sync::mpsc::Sender<(std::net::SocketAddr, uts::Fingerprint)>,
) -> Result<(), Box<dyn Error>> {
    use uts::blocking::Listener;
    use uts::{Identity, ServerOptions};

    // What a thread opens stays with it: the listener is made where it is used.
    let listener = Listener::bind("127.0.0.1:0".parse()?, ServerOptions::new(Identity::generate()?))?;
    at.send((listener.local_addr(), listener.fingerprint()))?;
    let connection = listener.accept().ok_or("the listener was closed")?;
    let mut flow = connection.accept_flow().ok_or("the connection ended")?;
    let bytes = std::io::copy(flow.recv_half(), &mut std::io::sink())?;
    write!(flow, "took {bytes} bytes")?;
    // A connection is carried only while its thread is in a call. This call waits for the
    // acknowledgement.
    flow.send_half().finished()?;
    Ok(())
}
