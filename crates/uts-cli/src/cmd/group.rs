//! `uts group`: a stream of datagrams by multicast, from one sender to all members.

use super::media::{Input, Sink};
use super::patience::Patience;
use super::serve::listen;
use super::tunnel::server;
use super::{Failure, bounded_log, interrupted, reach};
use crate::args::{GroupArgs, GroupCommand, GroupRecvArgs, GroupSendArgs};
use crate::link::{
    Broken, Carrying, ConnectOptions, Limits, Link, ListenOptions, Listener, ServerIdentity, Transport,
    key_exchange,
};
use crate::media::board::Board;
use crate::media::split;
use crate::media::wire::Role;
use crate::target::Host;
use crate::ui::Ui;
use crate::ui::record::Peer;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use uts::group::{Event, GroupReceiver, GroupSender, GroupSenderOptions, SERVICE, SendError, SenderSettings};
use uts::printable::words;
use uts::{NO_SUCH_SERVICE, Rate};

/// Members from one address at the most: those behind a router of a house share one.
const PER_ADDRESS_MAX: usize = 256;

/// Time that members get for repairs behind the end: as many round trips as a request, its answer
/// and both again may take of the longest that counts.
const LAST_REPAIRS: Duration = Duration::from_secs(5);

/// Runs `uts group` until what is sent has ended, or it is interrupted.
///
/// # Errors
/// See [`Failure`].
pub async fn run<T: Transport>(transport: &T, args: &GroupArgs) -> Result<(), Failure> {
    match &args.command {
        GroupCommand::Send(args) => send(transport, args).await,
        GroupCommand::Recv(args) => recv(transport, args).await,
    }
}

async fn send<T: Transport>(transport: &T, args: &GroupSendArgs) -> Result<(), Failure> {
    let log = bounded_log(args.more.verbose, args.quiet)?;
    let mut interrupt = pin!(interrupted());
    let options = GroupSenderOptions {
        own: args.interface,
        hops: args.hops,
        renew: args.renew,
        sender: SenderSettings {
            sources: args.block.into(),
            parities: args.parities.into(),
            rate: Rate::from_bits_per_sec(args.rate),
            ..SenderSettings::default()
        },
        ..GroupSenderOptions::new(args.group)
    };
    let members_max = options.members_max;
    let group = GroupSender::new(options).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Failure::Usage(error.to_string()),
        _ => Failure::Failed(format!("{}: {}", args.group, words(&error))),
    })?;
    let listener =
        transport.listen(&listen_options(args, members_max).await?, None).await.map_err(Failure::Failed)?;
    let (at, key) = (listener.local_addr(), listener.fingerprint());
    log.notice(
        None,
        "group",
        &format!("{} is sent to {}; members join at {at}, key {key}", args.from, args.group),
    );
    let board = Arc::new(Board::new(
        args.group.to_string(),
        String::new(),
        Role::Send,
        args.from.clone(),
        SenderSettings::default().history,
    ));
    let input = Input::open(board.clone(), log.clone()).await?;
    let ended = tokio::select! {
        ended = carry(&group, &board, &log) => ended,
        () = serve(listener, &group, &log) => Err(Failure::Failed("the port for members was closed".into())),
        () = &mut interrupt => Err(Failure::interrupted()),
    };
    let stats = group.stats();
    log.notice(
        None,
        "group",
        &format!(
            "{} datagrams sent, {} dropped; {} parities, {} repairs for {} requests; {} renewals of the key",
            stats.messages,
            board.queue.dropped(),
            stats.parities,
            stats.repairs,
            stats.requests,
            stats.renewals,
        ),
    );
    input.failure().map_or(ended, Err)
}

async fn listen_options(args: &GroupSendArgs, members_max: usize) -> Result<ListenOptions, Failure> {
    let addresses = listen::addresses(args.listen.as_deref()).await.map_err(|wrong| match wrong {
        listen::Wrong::Text(why) => Failure::Usage(format!("--listen: {why}")),
        listen::Wrong::Name(why) => Failure::Failed(format!("--listen {why}")),
    })?;
    Ok(ListenOptions {
        addresses,
        identity: ServerIdentity::Key(args.key.clone()),
        key_exchange: key_exchange(false),
        authorized_keys: args.authorized_keys.clone(),
        limits: Limits { all: members_max, per_address: PER_ADDRESS_MAX, per_key: PER_ADDRESS_MAX },
        workers: 1,
        properties: Vec::new(),
        silence_max: Duration::ZERO,
        flows_max: None,
        qlog: None,
    })
}

/// Sends what comes, to its end.
async fn carry(group: &GroupSender, board: &Board, log: &Arc<dyn Ui>) -> Result<(), Failure> {
    let mut was_told = false;
    while let Some(waiting) = board.queue.next(|| SenderSettings::default().history).await {
        let Some((_, datagram)) = split(&waiting.message) else { continue };
        match group.send(&datagram) {
            Ok(()) => {}
            Err(SendError::Ended) => break,
            Err(error) if !std::mem::replace(&mut was_told, true) => {
                log.warning(&format!("{}: {error}; such are dropped, which is told once", board.place));
            }
            Err(_) => {}
        }
    }
    group.finish(LAST_REPAIRS).await;
    Ok(())
}

/// Lets members in, for as long as the port is there.
async fn serve<L: Listener>(mut listener: L, group: &GroupSender, log: &Arc<dyn Ui>) {
    let mut members = JoinSet::new();
    while let Some(client) = listener.accept().await {
        while members.try_join_next().is_some() {}
        match client {
            Ok(link) => {
                members.spawn(member(link, group.clone(), log.clone()));
            }
            Err(away) => log.notice(away.peer.as_ref(), "group", &format!("not let in: {}", away.why)),
        }
    }
}

/// Serves somebody until it leaves.
async fn member<L: Link>(link: L, group: GroupSender, log: Arc<dyn Ui>) {
    let (address, key) = link.peer();
    let peer = Peer { address, key, service: Some(SERVICE.to_owned()) };
    let tell = |line: &str| log.notice(Some(&peer), "group", line);
    let (Some(connection), SERVICE) = (link.connection(), &*link.service()) else {
        return link.close(NO_SUCH_SERVICE, "there is a group here, and nothing else: uts group recv").await;
    };
    tell("joins");
    let served = group.serve(&connection).await;
    match &served {
        Ok(()) => tell("has left"),
        Err(error) => tell(&format!("has left: {}", words(error))),
    }
    // The reason is for the member, too.
    let why = served.err().map_or_else(|| "done".to_owned(), |error| words(&error));
    link.close(0, &why).await;
}

async fn recv<T: Transport>(transport: &T, args: &GroupRecvArgs) -> Result<(), Failure> {
    let mut host = reach::host(&args.host)?;
    let mut options = args.reach.options(&mut host, Vec::new(), true)?;
    options.service = SERVICE;
    let log = bounded_log(args.more.verbose, args.quiet)?;
    let mut interrupt = pin!(interrupted());
    let mut sink = Sink::open(&args.to).await?;
    let mut member = Member { transport, host, options, args, log, counts: Counts::default() };
    let ended = tokio::select! {
        ended = member.go(&mut sink) => ended,
        () = &mut interrupt => Err(Failure::interrupted()),
    };
    member.tell(&member.counts.words());
    sink.finish().await;
    ended
}

/// Counts of a member, over all its connections.
#[derive(Default)]
struct Counts {
    datagrams: u64,
    bytes: u64,
    missing: u64,
}

impl Counts {
    fn words(&self) -> String {
        let bytes = uts_units::show::bytes(self.bytes);
        format!("{} datagrams, {bytes} received, {} missing", self.datagrams, self.missing)
    }
}

struct Member<'a, T: Transport> {
    transport: &'a T,
    host: Host,
    options: ConnectOptions,
    args: &'a GroupRecvArgs,
    log: Arc<dyn Ui>,
    counts: Counts,
}

impl<T: Transport> Member<'_, T> {
    /// Is a member for as long as there is patience with the way to the sender.
    async fn go(&mut self, sink: &mut Sink) -> Result<(), Failure> {
        let mut lost = None;
        loop {
            let link = self.connect(lost.take()).await?;
            let received = self.receive(&link, sink).await;
            let broken = link.broken();
            link.close(0, "done").await;
            let why = match received {
                Ok(()) => return Ok(()),
                Err(error) => broken.map_or_else(|| words(&error), |broken| broken.why),
            };
            if self.args.retry == Some(Duration::ZERO) {
                return Err(Failure::Failed(format!("{}: {why}", self.host)));
            }
            lost = Some(why);
        }
    }

    /// Connects, for the first time or again.
    async fn connect(&self, lost: Option<String>) -> Result<T::Link, Failure> {
        let mut patience = Patience::new(self.args.retry.unwrap_or(Duration::MAX));
        let is_again = lost.is_some();
        let told = |why: &str| {
            let before = if is_again { "no member any more" } else { "not connected" };
            self.tell(&format!("{before}: {why}; trying again"));
        };
        let attempt = async || self.transport.connect(&self.host, &self.options).await;
        let link = patience.connect(lost, attempt, told).await;
        link.map_err(|Broken { why, .. }| Failure::Failed(why))
    }

    /// Receives what is sent, to its end.
    async fn receive(&mut self, link: &T::Link, sink: &mut Sink) -> io::Result<()> {
        let connection = link.connection().ok_or_else(|| io::Error::other("this transport has no groups"))?;
        let mut group = GroupReceiver::join(&connection, Some(self.args.latency)).await?;
        self.tell(&format!("a member of the group at {}, for {}", group.group(), self.args.to));
        loop {
            match group.next().await? {
                Event::Message(datagram) => {
                    self.counts.datagrams += 1;
                    self.counts.bytes += datagram.len() as u64;
                    if sink.put(datagram).await.is_err() {
                        return Ok(());
                    }
                }
                Event::Missing(count) => self.counts.missing += count,
                Event::Ended => return Ok(()),
            }
        }
    }

    fn tell(&self, line: &str) {
        self.log.notice(Some(&server(&self.host)), "group", line);
    }
}
