//! A small service by remote procedure calls, and its client: it keeps texts by name.
//!
//! ```text
//! cargo run --example calls -- serve [::]:4433
//! cargo run --example calls -- put localhost:4433 SHA256:… colour blue
//! cargo run --example calls -- get localhost:4433 SHA256:… colour
//! cargo run --example calls -- list localhost:4433 SHA256:…
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uts::call::{CallError, CallOptions, Caller, Failure, Methods, Served};
use uts::{ConnectOptions, Identity, Listener, ServerOptions, Services};

/// The name of the service in the handshake.
const SERVICE: &str = "texts";
/// The code of a failure: there is no text of this name.
pub const NO_SUCH_NAME: u32 = 1;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", addr] => {
            let listener = Listener::bind(addr.parse()?, ServerOptions::new(Identity::generate()?))?;
            println!("{} {}", listener.local_addr(), listener.fingerprint());
            serve(&listener).await;
        }
        ["put", target, fingerprint, name, text] => {
            Client::new(target, fingerprint)?.put(name, text).await?;
        }
        ["get", target, fingerprint, name] => {
            let text = Client::new(target, fingerprint)?.get(name).await?;
            println!("{}", uts::printable::lines(&text, 1000));
        }
        ["list", target, fingerprint] => {
            for name in Client::new(target, fingerprint)?.list().await? {
                println!("{}", uts::printable::lines(&name, 1000));
            }
        }
        _ => return Err("usage: calls serve ADDR:PORT | calls put|get|list HOST:PORT FINGERPRINT …".into()),
    }
    Ok(())
}

/// Serves the clients of a listener until it is closed.
pub async fn serve(listener: &Listener) {
    let methods = methods(Arc::default());
    Services::new().on(SERVICE, move |connection| methods.clone().serve(connection)).serve(listener).await;
}

fn methods(texts: Arc<Mutex<BTreeMap<String, String>>>) -> Methods {
    let (put, get, list) = (texts.clone(), texts.clone(), texts);
    Methods::new()
        .on_value("put", move |(name, text): (String, String)| {
            let before = put.lock().unwrap_or_else(PoisonError::into_inner).insert(name, text);
            async move { Ok(before) }
        })
        .on_value("get", move |name: String| {
            let found = get.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
            async move { found.ok_or_else(|| Failure::new(NO_SUCH_NAME, format!("no text is named `{name}`"))) }
        })
        // Answers as a stream: a message for each name. It waits where the client reads no more.
        .on("list", move |mut call: Served| {
            let names: Vec<String> =
                list.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
            async move {
                for name in names {
                    call.answer.send_value(&name).await?;
                }
                Ok(())
            }
        })
}

/// A client of the service. It connects when it is first asked for something, and again when the
/// connection is lost.
pub struct Client(Caller);

impl Client {
    /// A client of the server of this address and key.
    pub fn new(target: &str, fingerprint: &str) -> Result<Self, Box<dyn Error>> {
        let mut options = ConnectOptions::pinned(fingerprint.parse()?);
        options.connection.service = SERVICE.to_owned();
        Ok(Client(Caller::to(target, options)))
    }

    /// Keeps a text, and returns what had this name before. Runs at most once.
    pub async fn put(&self, name: &str, text: &str) -> Result<Option<String>, CallError> {
        self.0.call_value("put", &(name, text), &CallOptions::within(Duration::from_secs(10))).await
    }

    /// The text of a name. To ask twice does no harm: it is asked again if the answer is lost.
    pub async fn get(&self, name: &str) -> Result<String, CallError> {
        let options = CallOptions::within(Duration::from_secs(10)).idempotent();
        self.0.call_value("get", name, &options).await
    }

    /// All names.
    pub async fn list(&self) -> Result<Vec<String>, CallError> {
        let mut call = self.0.begin("list", &CallOptions::within(Duration::from_secs(10))).await?;
        call.request.finish().await?;
        let mut names = Vec::new();
        while let Some(name) = call.answer.recv_value().await? {
            names.push(name);
        }
        Ok(names)
    }
}
