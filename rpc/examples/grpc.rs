//! A gRPC service over UTS, and its client.
//!
//! ```text
//! cargo run --manifest-path rpc/Cargo.toml --example grpc -- serve [::]:4433
//! cargo run --manifest-path rpc/Cargo.toml --example grpc -- square localhost:4433 SHA256:… 12
//! ```

use futures_util::StreamExt as _;
use std::error::Error;
use std::pin::Pin;
use std::time::Duration;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use uts::{ConnectOptions, Identity, Listener, ServerOptions};
use uts_rpc::grpc::{Channels, Peer, incoming};

/// Code that the compiler has made of the .proto file.
#[allow(missing_docs, reason = "it is made")]
pub mod proto {
    tonic::include_proto!("numbers");
}

use proto::Number;
use proto::numbers_client::NumbersClient;
use proto::numbers_server::{Numbers, NumbersServer};

/// The service. But for who asks, nothing in it knows what carries it.
#[derive(Debug, Default)]
pub struct Squares {
    /// Streams that are being served.
    pub streams: std::sync::Arc<()>,
}

type Stream = Pin<Box<dyn futures_util::Stream<Item = Result<Number, Status>> + Send>>;

#[tonic::async_trait]
impl Numbers for Squares {
    async fn square(&self, request: Request<Number>) -> Result<Response<Number>, Status> {
        // Who asks, UTS has proved.
        let from = request.extensions().get::<Peer>().and_then(|peer| peer.addr);
        let value = request.get_ref().value;
        let square = value.checked_mul(value);
        let square =
            square.ok_or_else(|| Status::out_of_range(format!("{value} of {from:?} is too large")))?;
        Ok(Response::new(Number { value: square }))
    }

    type FromStream = Stream;

    async fn from(&self, request: Request<Number>) -> Result<Response<Stream>, Status> {
        let (first, served) = (request.get_ref().value, self.streams.clone());
        let numbers = futures_util::stream::iter(first..).then(move |value| {
            let _served = served.clone();
            async move { Ok(Number { value }) }
        });
        Ok(Response::new(Box::pin(numbers)))
    }

    async fn after(&self, request: Request<Number>) -> Result<Response<Number>, Status> {
        let value = request.get_ref().value;
        tokio::time::sleep(Duration::from_millis(value)).await;
        Ok(Response::new(Number { value }))
    }
}

/// Serves all who connect, until the listener is closed.
pub async fn serve(listener: Listener, service: Squares) -> Result<(), tonic::transport::Error> {
    Server::builder().add_service(NumbersServer::new(service)).serve_with_incoming(incoming(listener)).await
}

/// A client of the server of this address and key.
pub fn client(target: &str, fingerprint: &str) -> Result<NumbersClient<Channel>, Box<dyn Error>> {
    let options = ConnectOptions::pinned(fingerprint.parse()?);
    Ok(NumbersClient::new(Channels::to(target, options).open()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", addr] => {
            let listener = Listener::bind(addr.parse()?, ServerOptions::new(Identity::generate()?))?;
            println!("{} {}", listener.local_addr(), listener.fingerprint());
            serve(listener, Squares::default()).await?;
        }
        ["square", target, fingerprint, number] => {
            let mut request = Request::new(Number { value: number.parse()? });
            request.set_timeout(Duration::from_secs(10));
            let answer = client(target, fingerprint)?.square(request).await?;
            println!("{}", answer.get_ref().value);
        }
        _ => return Err("usage: grpc serve ADDR:PORT | grpc square HOST:PORT FINGERPRINT NUMBER".into()),
    }
    Ok(())
}
