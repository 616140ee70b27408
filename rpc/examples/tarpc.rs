//! A service of tarpc over UTS, and its client, in one process.

use futures_util::StreamExt as _;
use std::error::Error;
use std::time::Duration;
use tarpc::context::{self, Context};
use tarpc::server::{BaseChannel, Channel as _};
use uts::{ConnectOptions, Connection, FlowOptions, Identity, Listener, ServerOptions};
use uts_rpc::tarpc::transport;

/// The service.
#[tarpc::service]
pub trait Numbers {
    /// The square of a number; none if it is too large.
    async fn square(value: u64) -> Option<u64>;
    /// The same number, after so many milliseconds.
    async fn after(value: u64) -> u64;
}

/// Its server. Nothing in it knows what carries it.
#[derive(Clone, Debug, Default)]
pub struct Squares {
    /// Calls that are being served.
    pub calls: std::sync::Arc<()>,
}

impl Numbers for Squares {
    async fn square(self, _: Context, value: u64) -> Option<u64> {
        value.checked_mul(value)
    }

    async fn after(self, _: Context, value: u64) -> u64 {
        tokio::time::sleep(Duration::from_millis(value)).await;
        value
    }
}

/// Serves all who connect: each of their flows is a channel of tarpc.
pub async fn serve(listener: Listener, service: Squares) {
    while let Some(connection) = listener.accept().await {
        let service = service.clone();
        tokio::spawn(async move {
            while let Some(flow) = connection.accept_flow().await {
                let calls = BaseChannel::with_defaults(transport(flow)).execute(service.clone().serve());
                tokio::spawn(calls.for_each(|call| async move {
                    tokio::spawn(call);
                }));
            }
        });
    }
}

/// A client over a flow of its own.
pub async fn client(connection: &Connection) -> Result<NumbersClient, uts::FlowError> {
    let flow = connection.open_flow(FlowOptions::default()).await?;
    Ok(NumbersClient::new(tarpc::client::Config::default(), transport(flow)).spawn())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0".parse()?, ServerOptions::new(Identity::generate()?))?;
    let (target, options) =
        (listener.local_addr().to_string(), ConnectOptions::pinned(listener.fingerprint()));
    tokio::spawn(serve(listener, Squares::default()));
    let connection = uts::connect(&target, options).await?;
    println!("{:?}", client(&connection).await?.square(context::current(), 12).await?);
    Ok(())
}
