//! tarpc: transports over flows, with messages in JSON behind their length.
//!
//! ```no_run
//! # async fn example(connection: uts::Connection) -> Result<(), Box<dyn std::error::Error>> {
//! use uts_rpc::tarpc::transport;
//!
//! #[tarpc::service]
//! trait Sums {
//!     async fn add(a: u32, b: u32) -> u32;
//! }
//!
//! let flow = connection.open_flow(uts::FlowOptions::default()).await?;
//! let client = SumsClient::new(tarpc::client::Config::default(), transport(flow)).spawn();
//! assert_eq!(client.add(tarpc::context::current(), 3, 4).await?, 7);
//! # Ok(())
//! # }
//! ```

use serde::{Deserialize, Serialize};
use tarpc::serde_transport::{self, Transport};
use tokio_serde::formats::Json;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use uts::Flow;

/// A transport of tarpc over a flow, for either end: a client's channel, or a server's.
pub fn transport<Item, SinkItem>(flow: Flow) -> Transport<Flow, Item, SinkItem, Json<Item, SinkItem>>
where
    Item: for<'de> Deserialize<'de>,
    SinkItem: Serialize,
{
    serde_transport::new(Framed::new(flow, LengthDelimitedCodec::new()), Json::default())
}
