//! Abilities and limits of an endpoint, as the TLS handshake carries them (like QUIC's transport
//! parameters). [P-50]

use crate::cid::ConnectionId;
use crate::error::{Problem, WireError};
use crate::numbers::OwnNumbers;
use crate::profile::WireProfile;
use crate::varint::{Counter, Reader, Sink, emitters};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// The longest encoding that is read, in bytes. The largest that this version writes is a third of
/// it. [P-50]
pub const MAX_HELLO_BYTES: usize = 4096;

/// The most versions. [P-52]
pub const MAX_VERSIONS: usize = 16;

/// The most mechanisms. [P-52]
pub const MAX_MECHANISMS: usize = 256;

/// The longest service name, in bytes. [P-52]
pub const MAX_SERVICE_BYTES: usize = 64;

/// The least UDP payload that an endpoint takes, in bytes. [P-52]
pub const MIN_UDP_PAYLOAD_BYTES: u16 = 1200;

/// Item numbers. [P-52]
mod id {
    pub const VERSIONS: u64 = 1;
    pub const INITIAL_SCID: u64 = 2;
    pub const ORIGINAL_DCID: u64 = 3;
    pub const RETRY_SCID: u64 = 4;
    pub const MECHANISMS: u64 = 5;
    pub const MAX_FLOWS: u64 = 6;
    pub const INITIAL_CREDIT: u64 = 7;
    pub const IDLE_TIMEOUT: u64 = 8;
    pub const MAX_UDP_PAYLOAD: u64 = 9;
    pub const MAX_ACK_DELAY: u64 = 10;
    pub const FEC_MEMORY: u64 = 11;
    pub const RESET_TOKEN: u64 = 12;
    pub const PROFILE_OUT: u64 = 13;
    pub const PROFILE_IN: u64 = 14;
    pub const UNPROTECTED: u64 = 15;
    pub const SERVICE: u64 = 16;
    pub const READS_MESSAGES: u64 = 17;
    pub const SPARE_IDS: u64 = 18;
    pub const TAKES_EXPEDITED: u64 = 19;
    pub const CONNECTION_CREDIT: u64 = 20;
    pub const READS_USE: u64 = 21;
    pub const TICKET: u64 = 22;
    pub const NUMBERS: u64 = 23;
    /// Items below this number are checked for repetition.
    pub const CHECKED: u64 = 64;
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It asks for the connection.
    Client,
    /// It accepts it.
    Server,
}

/// An item of a Hello. [P-52]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its number.
    pub number: u64,
    /// Its name in errors.
    pub name: &'static str,
    /// The end that alone says it; `None`: both do.
    pub of: Option<End>,
    /// An end that may say it must say it.
    pub mandatory: bool,
}

const fn item(number: u64, name: &'static str, of: Option<End>, mandatory: bool) -> Item {
    Item { number, name, of, mandatory }
}

/// All items. [P-52]
pub const ITEMS: [Item; 23] = [
    item(id::VERSIONS, "versions", None, true),
    item(id::INITIAL_SCID, "initial source connection id", None, true),
    item(id::ORIGINAL_DCID, "original destination connection id", Some(End::Server), true),
    item(id::RETRY_SCID, "retry source connection id", Some(End::Server), false),
    item(id::MECHANISMS, "mechanisms", None, true),
    item(id::MAX_FLOWS, "flow limit", None, true),
    item(id::INITIAL_CREDIT, "initial credit", None, true),
    item(id::IDLE_TIMEOUT, "idle timeout", None, true),
    item(id::MAX_UDP_PAYLOAD, "largest UDP payload", None, true),
    item(id::MAX_ACK_DELAY, "largest ack delay", None, true),
    item(id::FEC_MEMORY, "FEC memory", None, true),
    item(id::RESET_TOKEN, "stateless reset token", Some(End::Server), false),
    item(id::PROFILE_OUT, "first profile out", Some(End::Client), true),
    item(id::PROFILE_IN, "first profile in", Some(End::Client), true),
    item(id::UNPROTECTED, "consent to no protection", None, false),
    item(id::SERVICE, "service", None, false),
    item(id::READS_MESSAGES, "messages of one length", None, false),
    item(id::SPARE_IDS, "spare connection ids", None, false),
    item(id::TAKES_EXPEDITED, "expedited messages", None, false),
    item(id::CONNECTION_CREDIT, "connection credit", None, false),
    item(id::READS_USE, "packets that carry a request", None, false),
    item(id::TICKET, "ticket", Some(End::Server), false),
    item(id::NUMBERS, "own numbers", None, false),
];

/// An endpoint's description of itself in the handshake, which authenticates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions that it speaks, best first: 1 to [`MAX_VERSIONS`].
    pub versions: SmallVec<[u32; 4]>,
    /// The source connection id of its first packet.
    pub initial_scid: ConnectionId,
    /// From a server: the id that the client's first packet was sent to.
    pub original_dcid: Option<ConnectionId>,
    /// From a server that asked for a retry: the id that the retry gave.
    pub retry_scid: Option<ConnectionId>,
    /// Its library: numbers of function and mechanism, at most [`MAX_MECHANISMS`].
    pub mechanisms: BTreeSet<(u8, u8)>,
    /// Limits for the peer.
    pub limits: Limits,
    /// From a server: the token at the end of a stateless reset of this connection.
    pub reset_token: Option<[u8; 16]>,
    /// From a client: the first profile of what it sends.
    pub profile_out: Option<WireProfile>,
    /// From a client: the first profile of what it receives.
    pub profile_in: Option<WireProfile>,
    /// It agrees to profiles without protection.
    pub allows_unprotected: bool,
    /// The service that a client asks for, or that a server is; at most [`MAX_SERVICE_BYTES`].
    pub service: String,
    /// It reads frames of messages of one length. [P-34]
    pub reads_messages: bool,
    /// It takes expedited messages. [P-55]
    pub takes_expedited: bool,
    /// The sender of the item reads packets with the request for their profile. [P-63]
    pub reads_use: bool,
    /// From a server: leave to send an early request with a later connection. [P-66]
    pub ticket: Option<Ticket>,
    /// Numbers by which it writes functions and mechanisms in frames, where they are its own, and
    /// that it reads such numbers of the peer's. [P-67]
    pub numbers: Option<Box<OwnNumbers>>,
}

/// The longest ticket, in bytes. [P-66]
pub const MAX_TICKET_BYTES: usize = crate::frame::MAX_TOKEN_BYTES;

/// Leave to send an early request with a later connection, once. [P-66]
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Time for which it is good, in seconds.
    pub lifetime_s: u32,
    /// The secret from which the keys of the level Early follow.
    pub secret: [u8; 32],
    /// Words that the server recognizes it by: 1 to [`MAX_TICKET_BYTES`].
    pub words: SmallVec<[u8; 24]>,
}

impl core::fmt::Debug for Ticket {
    /// Without the secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ticket").field("lifetime_s", &self.lifetime_s).finish_non_exhaustive()
    }
}

impl Ticket {
    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (lifetime_s, secret) = (r.u32("lifetime of a ticket")?, r.array("secret of a ticket")?);
        let (at, words) = (r.offset(), r.rest());
        if words.is_empty() {
            return Err(WireError::new("ticket", at, Problem::Missing)); // P-66
        }
        if words.len() > MAX_TICKET_BYTES {
            return Err(WireError::too_long("ticket", at, words.len() as u64, MAX_TICKET_BYTES as u64));
        }
        Ok(Ticket { lifetime_s, secret, words: SmallVec::from_slice(words) })
    }

    fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        out.put(&self.lifetime_s.to_be_bytes());
        out.put(&self.secret);
        out.put(&self.words);
    }
}

/// Limits that an endpoint sets for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Flows that the peer may open, those that are gone included: their ids halved are below it.
    /// [F-4]
    pub max_flows: u32,
    /// Bytes that the peer may send in a flow before it gets more credit.
    pub initial_credit_bytes: u64,
    /// Silence after which this end forgets the connection, in milliseconds; 0: never.
    pub idle_timeout_ms: u32,
    /// The largest UDP payload that it takes, at least [`MIN_UDP_PAYLOAD_BYTES`].
    pub max_udp_payload_bytes: u16,
    /// The longest that it withholds an acknowledgement, in milliseconds.
    pub max_ack_delay_ms: u16,
    /// Memory for blocks that wait for their repair, in bytes.
    pub fec_memory_bytes: u32,
    /// Positions that the peer may send in all flows together before it gets more credit; `None`:
    /// this end does not bound the connection, and does not keep to such a bound. [P-57]
    pub connection_credit_bytes: Option<u64>,
    /// Connection ids of the peer's that it keeps beside the one in use; 0: the peer gives none.
    /// [P-37]
    pub spare_ids: u8,
}

/// Items that have been read so far.
#[derive(Default)]
struct Partial {
    hello: Hello,
    seen: u64,
}

impl Hello {
    /// Reads an encoding, all of `bytes`, that an end has sent.
    pub fn parse(bytes: &[u8], from: End) -> Result<Self, WireError> {
        if bytes.len() > MAX_HELLO_BYTES {
            return Err(WireError::too_long("hello", 0, bytes.len() as u64, MAX_HELLO_BYTES as u64));
        }
        let is_for = |item: &Item| item.of.is_none_or(|end| end == from);
        let mut r = Reader::new(bytes);
        let mut partial = Partial::default();
        while !r.is_empty() {
            let at = r.offset();
            let number = r.varint("item number")?;
            if number < id::CHECKED {
                if partial.seen >> number & 1 == 1 {
                    return Err(WireError::new("item", at, Problem::Duplicate)); // P-51
                }
                partial.seen |= 1 << number;
            }
            if let Some(item) = ITEMS.iter().find(|item| item.number == number && !is_for(item)) {
                return Err(WireError::new(item.name, at, Problem::Misplaced)); // P-51
            }
            let value = r.prefixed(MAX_HELLO_BYTES, "item")?;
            let value_at = r.offset().saturating_sub(value.len());
            partial.take(number, Reader::at(value, value_at))?;
        }
        let mut due = ITEMS.iter().filter(|item| item.mandatory && is_for(item));
        match due.find(|item| partial.seen >> item.number & 1 == 0) {
            Some(item) => Err(WireError::new(item.name, bytes.len(), Problem::Missing)), // P-51
            None => Ok(partial.hello),
        }
    }

    fn write<S: Sink>(&self, out: &mut S) {
        let limits = &self.limits;
        debug_assert!((1..=MAX_VERSIONS).contains(&self.versions.len()));
        debug_assert!(self.mechanisms.len() <= MAX_MECHANISMS && self.service.len() <= MAX_SERVICE_BYTES);
        put_item(out, id::VERSIONS, |s| self.versions.iter().for_each(|v| s.put(&v.to_be_bytes())));
        put_item(out, id::INITIAL_SCID, |s| s.put(self.initial_scid.as_slice()));
        for (item, cid) in [(id::ORIGINAL_DCID, self.original_dcid), (id::RETRY_SCID, self.retry_scid)] {
            if let Some(cid) = cid {
                put_item(out, item, |s| s.put(cid.as_slice()));
            }
        }
        put_item(out, id::MECHANISMS, |s| self.mechanisms.iter().for_each(|(f, m)| s.put(&[*f, *m])));
        for (item, value) in [
            (id::MAX_FLOWS, u64::from(limits.max_flows)),
            (id::INITIAL_CREDIT, limits.initial_credit_bytes),
            (id::IDLE_TIMEOUT, u64::from(limits.idle_timeout_ms)),
            (id::MAX_UDP_PAYLOAD, u64::from(limits.max_udp_payload_bytes)),
            (id::MAX_ACK_DELAY, u64::from(limits.max_ack_delay_ms)),
            (id::FEC_MEMORY, u64::from(limits.fec_memory_bytes)),
        ] {
            put_item(out, item, |s| s.put_varint(value));
        }
        if let Some(token) = &self.reset_token {
            put_item(out, id::RESET_TOKEN, |s| s.put(token));
        }
        for (item, profile) in [(id::PROFILE_OUT, &self.profile_out), (id::PROFILE_IN, &self.profile_in)] {
            if let Some(profile) = profile {
                put_item(out, item, |s| profile.write(s));
            }
        }
        if self.allows_unprotected {
            put_item(out, id::UNPROTECTED, |_| ());
        }
        if !self.service.is_empty() {
            put_item(out, id::SERVICE, |s| s.put(self.service.as_bytes()));
        }
        if self.reads_messages {
            put_item(out, id::READS_MESSAGES, |_| ());
        }
        if limits.spare_ids > 0 {
            put_item(out, id::SPARE_IDS, |s| s.put_varint(u64::from(limits.spare_ids)));
        }
        if self.takes_expedited {
            put_item(out, id::TAKES_EXPEDITED, |_| ());
        }
        if let Some(bytes) = limits.connection_credit_bytes {
            put_item(out, id::CONNECTION_CREDIT, |s| s.put_varint(bytes));
        }
        if self.reads_use {
            put_item(out, id::READS_USE, |_| ());
        }
        if let Some(ticket) = &self.ticket {
            put_item(out, id::TICKET, |s| ticket.write(s));
        }
        if let Some(numbers) = &self.numbers {
            put_item(out, id::NUMBERS, |s| numbers.write(s));
        }
    }
}

emitters!(Hello);

impl Default for Hello {
    /// Our version, no mechanisms, default limits; a start for struct update.
    fn default() -> Self {
        Hello {
            versions: SmallVec::from_slice(&[crate::VERSION]),
            initial_scid: ConnectionId::EMPTY,
            original_dcid: None,
            retry_scid: None,
            mechanisms: BTreeSet::new(),
            limits: Limits::default(),
            reset_token: None,
            profile_out: None,
            profile_in: None,
            allows_unprotected: false,
            service: String::new(),
            reads_messages: false,
            takes_expedited: false,
            reads_use: false,
            ticket: None,
            numbers: None,
        }
    }
}

impl Default for Limits {
    /// 256 flows, 1 MiB of credit each, 30 s of silence, any UDP payload, acknowledgements within
    /// 25 ms, 4 MiB for FEC, no credit of the connection, no spare ids.
    fn default() -> Self {
        Limits {
            max_flows: 256,
            initial_credit_bytes: 1 << 20,
            idle_timeout_ms: 30_000,
            max_udp_payload_bytes: 65_527,
            max_ack_delay_ms: 25,
            fec_memory_bytes: 4 << 20,
            connection_credit_bytes: None,
            spare_ids: 0,
        }
    }
}

impl Partial {
    fn take(&mut self, item: u64, mut r: Reader<'_>) -> Result<(), WireError> {
        let hello = &mut self.hello;
        let limits = &mut hello.limits;
        match item {
            id::VERSIONS => hello.versions = read_versions(&mut r)?,
            id::INITIAL_SCID => hello.initial_scid = read_cid(&mut r, "initial source connection id")?,
            id::ORIGINAL_DCID => {
                hello.original_dcid = Some(read_cid(&mut r, "original destination connection id")?);
            }
            id::RETRY_SCID => hello.retry_scid = Some(read_cid(&mut r, "retry source connection id")?),
            id::MECHANISMS => hello.mechanisms = read_mechanisms(&mut r)?,
            id::MAX_FLOWS => limits.max_flows = r.varint_u32("flow limit")?,
            id::INITIAL_CREDIT => limits.initial_credit_bytes = r.varint("initial credit")?,
            id::IDLE_TIMEOUT => limits.idle_timeout_ms = r.varint_u32("idle timeout")?,
            id::MAX_UDP_PAYLOAD => {
                limits.max_udp_payload_bytes =
                    read_u16(&mut r, "largest UDP payload", MIN_UDP_PAYLOAD_BYTES, "1200 to 65535")?;
            }
            id::MAX_ACK_DELAY => {
                limits.max_ack_delay_ms = read_u16(&mut r, "largest ack delay", 0, "less than 2^16")?;
            }
            id::FEC_MEMORY => limits.fec_memory_bytes = r.varint_u32("FEC memory")?,
            id::RESET_TOKEN => hello.reset_token = Some(r.array("stateless reset token")?),
            id::PROFILE_OUT => hello.profile_out = Some(WireProfile::read(&mut r)?),
            id::PROFILE_IN => hello.profile_in = Some(WireProfile::read(&mut r)?),
            id::UNPROTECTED => hello.allows_unprotected = true,
            id::SERVICE => hello.service = read_service(&mut r)?,
            id::READS_MESSAGES => hello.reads_messages = true,
            id::TAKES_EXPEDITED => hello.takes_expedited = true,
            id::READS_USE => hello.reads_use = true,
            id::TICKET => hello.ticket = Some(Ticket::read(&mut r)?),
            id::NUMBERS => hello.numbers = Some(Box::new(OwnNumbers::read(&mut r)?)),
            id::CONNECTION_CREDIT => {
                limits.connection_credit_bytes = Some(r.varint("connection credit")?);
            }
            id::SPARE_IDS => {
                let at = r.offset();
                let found = r.varint("spare connection ids")?;
                limits.spare_ids = u8::try_from(found)
                    .map_err(|_| WireError::value("spare connection ids", at, found, "less than 256"))?;
            }
            _ => return Ok(()), // P-51
        }
        r.finish("item")
    }
}

/// Number, length, value.
fn put_item<S: Sink>(out: &mut S, item: u64, value: impl Fn(&mut dyn Sink)) {
    let mut counter = Counter::default();
    value(&mut counter);
    out.put_varint(item);
    out.put_varint(counter.0 as u64);
    value(out);
}

fn read_versions(r: &mut Reader<'_>) -> Result<SmallVec<[u32; 4]>, WireError> {
    let mut versions = SmallVec::new();
    while versions.is_empty() || !r.is_empty() {
        if versions.len() >= MAX_VERSIONS {
            let found = versions.len() as u64 + 1;
            return Err(WireError::too_long("versions", r.offset(), found, MAX_VERSIONS as u64));
        }
        versions.push(r.u32("versions")?);
    }
    Ok(versions)
}

fn read_cid(r: &mut Reader<'_>, what: &'static str) -> Result<ConnectionId, WireError> {
    ConnectionId::read(r, r.remaining(), what)
}

fn read_mechanisms(r: &mut Reader<'_>) -> Result<BTreeSet<(u8, u8)>, WireError> {
    let mut mechanisms = BTreeSet::new();
    while !r.is_empty() {
        let at = r.offset();
        if mechanisms.len() >= MAX_MECHANISMS {
            let found = mechanisms.len() as u64 + 1;
            return Err(WireError::too_long("mechanisms", at, found, MAX_MECHANISMS as u64));
        }
        if !mechanisms.insert((r.u8("mechanisms")?, r.u8("mechanisms")?)) {
            return Err(WireError::new("mechanisms", at, Problem::Duplicate));
        }
    }
    Ok(mechanisms)
}

fn read_u16(
    r: &mut Reader<'_>,
    what: &'static str,
    min: u16,
    expected: &'static str,
) -> Result<u16, WireError> {
    let at = r.offset();
    let value = r.varint(what)?;
    let fits = u16::try_from(value).ok().filter(|value| *value >= min);
    fits.ok_or(WireError::value(what, at, value, expected))
}

fn read_service(r: &mut Reader<'_>) -> Result<String, WireError> {
    let at = r.offset();
    let bytes = r.rest();
    if bytes.len() > MAX_SERVICE_BYTES {
        return Err(WireError::too_long("service", at, bytes.len() as u64, MAX_SERVICE_BYTES as u64));
    }
    let text = core::str::from_utf8(bytes).map_err(|_| WireError::new("service", at, Problem::NotText))?;
    Ok(text.to_owned())
}
