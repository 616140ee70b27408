//! Remote procedure calls by threads that wait, without a runtime (on Unix).
//!
//! ```text
//! cargo run --example blocking_calls
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
    use std::time::Duration;
    use uts::ConnectOptions;
    use uts::blocking::call::Caller;
    use uts::call::CallOptions;

    let (at, told) = std::sync::mpsc::channel();
    // It serves as long as the process lives.
    std::thread::spawn(move || serve(&at).map_err(|error| error.to_string()));
    let (target, fingerprint): (std::net::SocketAddr, uts::Fingerprint) = told.recv()?;
    let caller = Caller::to(target.to_string(), ConnectOptions::pinned(fingerprint));
    let options = CallOptions::within(Duration::from_secs(10));
    let sum: u32 = caller.call_value("add", &(3_u32, 4_u32), &options)?;
    writeln!(out, "3 and 4 are {sum}")?;
    // An answer that is a stream.
    let mut call = caller.begin("words", &options)?;
    call.request.send_last("calls that wait".into())?;
    while let Some(word) = call.answer.recv_value::<String>()? {
        writeln!(out, "{}", uts::printable::lines(&word, 1000))?;
    }
    if let Err(error) = caller.call_value::<_, u32>("add", &(u32::MAX, 1_u32), &options) {
        writeln!(out, "{error}")?;
    }
    Ok(())
}

#[cfg(unix)]
fn serve(
    at: &std::sync::mpsc::Sender<(std::net::SocketAddr, uts::Fingerprint)>,
) -> Result<(), Box<dyn Error>> {
    use uts::blocking::Listener;
    use uts::blocking::call::{Methods, Served};
    use uts::call::Failure;
    use uts::{Identity, ServerOptions};

    let methods = Methods::new()
        .on_value("add", |(a, b): (u32, u32)| {
            a.checked_add(b).ok_or_else(|| Failure::new(1, "the sum does not fit"))
        })
        .on("words", |mut call: Served| {
            while let Some(text) = call.request.recv()? {
                for word in String::from_utf8_lossy(&text).split_whitespace() {
                    call.answer.send_value(word)?;
                }
            }
            Ok(())
        });
    // What a thread opens stays with it: the listener is made where it is used.
    let listener = Listener::bind("127.0.0.1:0".parse()?, ServerOptions::new(Identity::generate()?))?;
    at.send((listener.local_addr(), listener.fingerprint()))?;
    methods.serve_clients(&listener);
    Ok(())
}
