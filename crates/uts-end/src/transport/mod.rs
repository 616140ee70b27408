//! Transports under test, by their names.
//!
//! * [`tcp`] has kernel TCP and MPTCP.
//! * [`udp`] has raw UDP, the floor: nothing is repeated, ordered or held back.
//! * [`universal`] has UTS.

mod sockopt;
pub mod tcp;
pub mod udp;
pub mod universal;

use crate::{Context, TransportSpec};
use std::io;
use std::rc::Rc;
use uts_traffic::transport::{Transport, TransportError};

type Make = fn(&TransportSpec, &Context<'_>) -> Result<Rc<dyn Transport>, String>;

/// Each kind of transport, and what makes it.
const REGISTRY: [(&str, Make); 4] = [
    ("tcp", |spec, _| Ok(Rc::new(tcp::Tcp::single(spec.read()?)?))),
    ("mptcp", |spec, _| Ok(Rc::new(tcp::Tcp::multipath(spec.read()?)?))),
    ("udp", |spec, _| Ok(Rc::new(udp::Udp::new(spec.read()?)?))),
    ("uts", |spec, context| Ok(Rc::new(universal::Universal::new(spec.read()?, context)?))),
];

/// The kinds of transport that [`by_spec`] makes.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    REGISTRY.into_iter().map(|(kind, _)| kind)
}

/// Makes a transport under test. Nothing is opened before it is used.
///
/// # Errors
/// One line for people: no such kind, or a setting that is wrong, with its key.
pub fn by_spec(spec: &TransportSpec, context: &Context<'_>) -> Result<Rc<dyn Transport>, String> {
    match REGISTRY.iter().find(|(kind, _)| *kind == spec.kind) {
        Some((_, make)) => make(spec, context),
        None => {
            let known: Vec<&str> = kinds().collect();
            Err(format!("there is no transport `{}`; there are {}", spec.kind, known.join(", ")))
        }
    }
}

/// An error of the system, after what was tried.
fn failed(what: &str) -> impl FnOnce(io::Error) -> TransportError + '_ {
    move |error| TransportError::Failed(format!("{what}: {error}"))
}
