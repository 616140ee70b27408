//! Services of gRPC (tonic) and of tarpc over flows of UTS.
//!
//! A [`Flow`](uts::Flow) is a stream of bytes both ways, as a TCP connection is. What speaks over
//! one speaks over the other: [`grpc`] hands flows to tonic in the place of TCP connections, and
//! [`tarpc`] to tarpc. The services, their code and their calls stay as they are. Encryption, keys
//! and changes of the network are the connection's business.
//!
//! All calls of a channel go over its one flow, and keep its order: what is lost holds them all up,
//! as over TCP. Several channels are several flows of one connection, which do not wait for each
//! other. `uts::call`, the calls of UTS itself, gives each call a flow.

pub mod grpc;
pub mod tarpc;
