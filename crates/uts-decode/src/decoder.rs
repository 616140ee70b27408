//! From datagrams to rows: whose a packet is, what opens it, what it says.

use crate::capture::Datagram;
use crate::connection::{CLIENT, Connection, SERVER};
use crate::keylog::{KeyLog, KeyLogError};
use crate::row::{Kind, Row, Said};
use crate::words;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use uts_wire::packet::establishment::{LongPacket, Retry};
use uts_wire::packet::{FunctionHeader, Level, StatelessReset, is_long, parse_body, parse_header};
use uts_wire::{ConnectionId, Frame, FrameIter};

/// Connections that are known at a time; of more, the packets stay unread.
const CONNECTIONS_MAX: usize = 1 << 16;

/// Ids of one connection that are remembered.
const IDS_MAX: usize = 1 << 20;

/// The largest packet that is looked for in a datagram of several. A kernel that offloads
/// segmentation shows a capture many packets as one.
const SEGMENT_BYTES_MAX: usize = 9216;

/// The shortest that is: a tag, a sample before it, a first byte.
const SEGMENT_BYTES_MIN: usize = 21;

/// Follows connections through a capture.
#[derive(Default)]
pub struct Decoder {
    keys: KeyLog,
    connections: Vec<Connection>,
    /// By id: the connection, and the end that receives by it.
    ids: HashMap<ConnectionId, (usize, usize)>,
    id_lengths: BTreeSet<usize>,
    /// By sender's and receiver's address: the connection, and the end that sends.
    places: HashMap<(SocketAddr, SocketAddr), (usize, usize)>,
}

impl Decoder {
    /// A decoder with the secrets of a key log.
    pub fn new(keys: KeyLog) -> Self {
        Decoder { keys, ..Decoder::default() }
    }

    /// Adds secrets, such as those that a capture brings along.
    ///
    /// # Errors
    /// Those of [`KeyLog::parse`].
    pub fn add_keys(&mut self, text: &str) -> Result<(), KeyLogError> {
        self.keys.add(text)
    }

    /// Number of connections whose handshake was seen to begin.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Rows of a datagram, one for each packet in it.
    pub fn decode(&mut self, datagram: &Datagram) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut rest = &datagram.bytes[..];
        while let Some(first) = rest.first() {
            if !is_long(*first) {
                self.short(datagram, rest, &mut rows);
                break;
            }
            let Some(end) = self.long(datagram, rest, &mut rows) else { break };
            rest = rest.get(end..).unwrap_or_default();
        }
        rows
    }

    /// A long packet at the start of `bytes`; says where it ends, if anything may follow it.
    fn long(&mut self, datagram: &Datagram, bytes: &[u8], rows: &mut Vec<Row>) -> Option<usize> {
        let mut row = row_of(datagram, Kind::Other, bytes.len());
        let end = match parse_header(bytes) {
            Err(error) => {
                row.unread = Some(if datagram.is_cut { CUT.to_owned() } else { error.to_string() });
                None
            }
            Ok(LongPacket::VersionRefusal(refusal)) => {
                row.kind = Kind::VersionRefusal;
                let versions: Vec<String> = refusal.versions.iter().map(|v| format!("{v:#010x}")).collect();
                row.say("versions", versions.join(", "));
                self.name(&mut row, datagram);
                None
            }
            Ok(LongPacket::OtherVersion(other)) => {
                row.kind = Kind::OtherVersion;
                row.unread = Some(format!("version {:#010x}", other.version));
                None
            }
            Ok(LongPacket::Retry(retry)) => {
                row.kind = Kind::Retry;
                self.name(&mut row, datagram);
                self.on_retry(&mut row, datagram, &retry);
                None
            }
            Ok(LongPacket::Establishment(packet)) => {
                row.bytes = packet.range.end;
                row.kind = match packet.header.level {
                    Level::Initial => Kind::Initial,
                    Level::Handshake => Kind::Handshake,
                    Level::Early => Kind::Early,
                };
                self.establishment(&mut row, datagram, bytes, &packet);
                Some(packet.range.end)
            }
        };
        rows.push(row);
        end
    }

    fn establishment(
        &mut self,
        row: &mut Row,
        datagram: &Datagram,
        bytes: &[u8],
        packet: &uts_wire::packet::EstablishmentPacket<'_>,
    ) {
        let (dcid, scid) = (packet.header.dcid, packet.header.scid);
        let known = self.whose(datagram, &dcid);
        let mut fresh = Connection::default();
        let (index, sender) = match known {
            Some(known) => known,
            None if packet.header.level == Level::Initial => {
                fresh.set_initial(&dcid);
                (self.connections.len(), CLIENT)
            }
            None => {
                row.unread = Some(UNKNOWN.to_owned());
                return;
            }
        };
        let mut plain = bytes[..packet.range.end].to_vec();
        let opened = self.connections.get(index).unwrap_or(&fresh).open_long(sender, packet, &mut plain);
        let (number, body) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                let why = if known.is_none() { UNKNOWN } else { why };
                row.unread = Some(if datagram.is_cut { CUT.to_owned() } else { why.to_owned() });
                if known.is_some() {
                    self.name(row, datagram);
                }
                return;
            }
        };
        if known.is_none() {
            if index >= CONNECTIONS_MAX {
                row.unread = Some(format!("more than {CONNECTIONS_MAX} connections"));
                return;
            }
            self.connections.push(fresh);
            self.learn_id(dcid, index, SERVER);
        }
        self.learn_id(scid, index, sender);
        self.learn_place(datagram, index, sender);
        row.number = Some(number.into());
        self.name(row, datagram);
        let body = match parse_body(&plain[body]) {
            Ok(body) => body,
            Err(error) => {
                row.unread = Some(error.to_string());
                return;
            }
        };
        for header in body.chain.headers() {
            row.said.push(words::header(header));
            if let FunctionHeader::Establishment { crypto_offset, crypto } = header {
                let level = packet.header.level;
                let connection = &mut self.connections[index];
                let learnt = connection.on_handshake(&self.keys, sender, level, *crypto_offset, crypto);
                row.said.extend(learnt.iter().map(words::learnt));
            }
        }
        if body.padding > 0 {
            row.say("padding", body.padding.to_string());
        }
    }

    fn on_retry(&mut self, row: &mut Row, datagram: &Datagram, retry: &Retry<'_>) {
        row.say("token", format!("of {} bytes", retry.token.len()));
        if let Some((index, SERVER)) = self.whose(datagram, &retry.dcid) {
            // K-13, K-21: the client begins again with this id.
            self.connections[index].set_initial(&retry.scid);
            self.learn_id(retry.scid, index, SERVER);
        }
    }

    /// A short packet, to the end of its datagram, or several of one size.
    fn short(&mut self, datagram: &Datagram, bytes: &[u8], rows: &mut Vec<Row>) {
        let Some((index, sender, dcid)) = self.whose_short(datagram, bytes) else {
            let mut row = row_of(datagram, Kind::Other, bytes.len());
            row.unread = Some(UNKNOWN.to_owned());
            rows.push(row);
            return;
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut row = row_of(datagram, Kind::Adaptive, rest.len());
            let taken = self.adaptive(&mut row, datagram, rest, (index, sender), &dcid);
            rows.push(row);
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// An adaptive packet at the start of `bytes`; says how many of them it takes.
    fn adaptive(
        &mut self,
        row: &mut Row,
        datagram: &Datagram,
        bytes: &[u8],
        (index, sender): (usize, usize),
        dcid: &ConnectionId,
    ) -> usize {
        (row.connection, row.is_from_client) = (Some(index + 1), Some(sender == CLIENT));
        let way = &mut self.connections[index].ways[sender];
        let mut opened = way.open(dcid, bytes);
        let mut taken = bytes.len();
        if opened.is_err() && !datagram.is_cut {
            if let Some((size, first)) = first_segment(way, dcid, bytes) {
                (taken, opened) = (size, Ok(first));
            } else if self.is_reset(index, bytes) {
                row.kind = Kind::StatelessReset;
                return taken;
            }
        }
        row.bytes = taken;
        let opened = match opened {
            Ok(opened) => opened,
            Err(why) => {
                row.unread = Some(if datagram.is_cut { CUT.to_owned() } else { why.to_owned() });
                return taken;
            }
        };
        self.learn_place(datagram, index, sender);
        (row.epoch, row.number) = (Some(opened.epoch), Some(opened.number));
        if opened.is_damaged {
            row.unread = Some("it came damaged".to_owned());
        }
        self.frames(row, (index, sender), dcid, &opened.frames, true);
        if !opened.is_known && row.unread.is_some() {
            row.unread = Some(NO_PROFILE.to_owned());
        }
        taken
    }

    fn frames(
        &mut self,
        row: &mut Row,
        (index, sender): (usize, usize),
        dcid: &ConnectionId,
        payload: &[u8],
        is_outer: bool,
    ) {
        for frame in FrameIter::new(payload) {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    row.unread = Some(error.to_string());
                    return;
                }
            };
            row.said.push(words::frame(&frame, &mut self.connections[index].ways, sender));
            match &frame {
                Frame::NewId(new) => {
                    self.learn_id(new.id, index, sender);
                    let tokens = &mut self.connections[index].reset_tokens;
                    if tokens.len() < IDS_MAX {
                        tokens.extend(new.reset_token);
                    }
                }
                Frame::UsePf(envelope) if is_outer => {
                    let opened = self.connections[index].ways[sender].open(dcid, envelope.packet);
                    match opened {
                        Ok(opened) => {
                            row.say("of epoch", format!("{}:", opened.epoch));
                            self.frames(row, (index, sender), dcid, &opened.frames, false);
                        }
                        Err(why) => row.unread = Some(format!("the packet within: {why}")),
                    }
                }
                _ => {}
            }
        }
    }

    fn is_reset(&self, index: usize, bytes: &[u8]) -> bool {
        let reset = StatelessReset::parse(bytes);
        reset.is_ok_and(|reset| self.connections[index].reset_tokens.contains(&reset.token))
    }

    /// The connection of a long packet, and the end that sends it.
    fn whose(&self, datagram: &Datagram, dcid: &ConnectionId) -> Option<(usize, usize)> {
        if dcid.is_empty() {
            return self.places.get(&(datagram.from, datagram.to)).copied();
        }
        self.ids.get(dcid).map(|(index, receiver)| (*index, 1 - receiver))
    }

    /// The same of a short packet, whose id has a length that the receiver knows, and the id.
    fn whose_short(&self, datagram: &Datagram, bytes: &[u8]) -> Option<(usize, usize, ConnectionId)> {
        for length in self.id_lengths.iter().rev() {
            let id = bytes.get(1..1 + length).and_then(ConnectionId::new);
            if let Some((id, (index, receiver))) = id.and_then(|id| Some((id, self.ids.get(&id)?))) {
                return Some((*index, 1 - receiver, id));
            }
        }
        let (index, sender) = self.places.get(&(datagram.from, datagram.to))?;
        Some((*index, *sender, ConnectionId::EMPTY))
    }

    fn learn_id(&mut self, id: ConnectionId, index: usize, receiver: usize) {
        if !id.is_empty() && self.ids.len() < IDS_MAX {
            self.id_lengths.insert(id.len());
            self.ids.insert(id, (index, receiver));
        }
    }

    fn learn_place(&mut self, datagram: &Datagram, index: usize, sender: usize) {
        if self.places.len() < IDS_MAX {
            self.places.insert((datagram.from, datagram.to), (index, sender));
            self.places.insert((datagram.to, datagram.from), (index, 1 - sender));
        }
    }

    /// Names the connection of a row by its addresses.
    fn name(&self, row: &mut Row, datagram: &Datagram) {
        if let Some((index, sender)) = self.places.get(&(datagram.from, datagram.to)) {
            (row.connection, row.is_from_client) = (Some(index + 1), Some(*sender == CLIENT));
        }
    }
}

const NO_PROFILE: &str = "the request for its profile is not in the capture: a trailer may end it";
const CUT: &str = "the capture has not all of it";
const UNKNOWN: &str = "of no connection that is known: the capture may begin behind its handshake";

impl Row {
    pub(crate) fn say(&mut self, frame: &'static str, text: String) {
        self.said.push(Said { frame, text });
    }
}

fn row_of(datagram: &Datagram, kind: Kind, bytes: usize) -> Row {
    Row {
        at_s: datagram.at.as_secs_f64(),
        from: datagram.from,
        to: datagram.to,
        connection: None,
        is_from_client: None,
        kind,
        bytes,
        number: None,
        epoch: None,
        said: Vec::new(),
        unread: None,
    }
}

/// The first of several packets of one size, which a kernel showed as one datagram. A size that was
/// found before is tried first.
fn first_segment(
    way: &mut crate::connection::Way,
    dcid: &ConnectionId,
    bytes: &[u8],
) -> Option<(usize, crate::connection::Opened)> {
    if !way.has_keys() {
        return None;
    }
    let longest = SEGMENT_BYTES_MAX.min(bytes.len().saturating_sub(1));
    let known = way.sizes.clone();
    let sizes = known.into_iter().chain((SEGMENT_BYTES_MIN..=longest).rev());
    for size in sizes.filter(|size| *size <= longest) {
        if let Ok(opened) = way.open(dcid, &bytes[..size]) {
            if !way.sizes.contains(&size) {
                way.sizes.push(size);
            }
            return Some((size, opened));
        }
    }
    None
}
