//! The sender of a group over sockets.

use super::join::{HAS, VERSION, Welcome, emit_key};
use super::{SendError, SenderSettings, sockets};
use crate::clock::Clock;
use crate::random::random_bytes;
use crate::{Connection, RecvFlow, SendFlow};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use uts_functions::Time;
use uts_group::seal::{Key, SenderKeys, Shared};
use uts_group::{DATAGRAM_BYTES_MAX, Sender};
use zeroize::Zeroizing;

/// Options of a sender.
#[derive(Clone, Debug)]
pub struct GroupSenderOptions {
    /// Address and port of the group.
    pub group: SocketAddr,
    /// Address of this host whose network the group is in; unspecified = the system's choice.
    pub own: IpAddr,
    /// Routers that what is sent may pass, and one: 1 stays in the network.
    pub hops: u32,
    /// Time after which the key of the group is another, though nobody has left.
    pub renew: Duration,
    /// Members at the most.
    pub members_max: usize,
    /// Blocks, rate and repairs.
    pub sender: SenderSettings,
}

impl GroupSenderOptions {
    /// Options of a group in this host's network.
    pub fn new(group: SocketAddr) -> Self {
        GroupSenderOptions {
            group,
            own: Ipv4Addr::UNSPECIFIED.into(),
            hops: 1,
            renew: Duration::from_secs(3600),
            members_max: 10_000,
            sender: SenderSettings::default(),
        }
    }
}

/// Counts of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Members now.
    pub members: usize,
    /// Messages that were sent.
    pub messages: u64,
    /// Parities that were sent unasked.
    pub parities: u64,
    /// Repairs that were asked for.
    pub repairs: u64,
    /// Requests that came.
    pub requests: u64,
    /// Datagrams at the port for requests that were none.
    pub foreign: u64,
    /// Renewals of the key.
    pub renewals: u64,
    /// Round trip of the group.
    pub grtt: Duration,
}

/// The sender of a group. It ends when its handles are gone.
#[derive(Clone, Debug)]
pub struct GroupSender {
    shared: Arc<Group>,
    _task: Arc<JoinSet<()>>,
}

/// The longest time for which a renewal waits for members that do not say that they have the key.
/// (G-23)
const GRACE: Duration = Duration::from_secs(2);

/// Time for which those that leave are gathered, before the key is renewed for all of them.
const GATHER: Duration = Duration::from_millis(200);

/// The shortest time for which a key is in use: those that come and go cost the others no more.
/// (G-23)
const KEY_MIN: Duration = Duration::from_secs(1);

/// Time between two looks at the round trip of a member's connection.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Time that a member may take to say what it wants.
const JOIN_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Group {
    options: GroupSenderOptions,
    id: u32,
    clock: Clock,
    port: u16,
    state: Mutex<State>,
    changed: Notify,
    /// The key that members are to get.
    next_key: watch::Sender<Option<Key>>,
}

#[derive(Debug)]
struct State {
    core: Sender,
    keys: SenderKeys,
    members: BTreeMap<u32, Shared>,
    next_member: u32,
    renewal: Renewal,
    renewed: Time,
    renewals: u64,
    foreign: u64,
}

impl State {
    /// True if all has left, and all members have.
    fn is_over(&self) -> bool {
        self.core.is_drained() && self.members.is_empty()
    }
}

/// Course of a renewal of the key.
#[derive(Debug, Default)]
enum Renewal {
    #[default]
    None,
    /// Somebody has left; the key is made at this instant.
    At(Time),
    /// Members get the key.
    Given { key: Key, lack: BTreeSet<u32>, until: Time, again: bool },
}

impl GroupSender {
    /// A sender to a group, of which nobody is a member yet. In a runtime of tokio.
    ///
    /// # Errors
    /// The address is of no group, or the system gives no socket or random numbers.
    pub fn new(options: GroupSenderOptions) -> io::Result<GroupSender> {
        if !options.group.ip().is_multicast() || options.group.port() == 0 {
            let why = format!("{} is no group: expected an address of multicast, and a port", options.group);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let socket = sockets::sending(options.group, options.own, options.hops)?;
        let clock = Clock::start();
        let (secret, seed) = (random_bytes()?, Zeroizing::new(random_bytes()?));
        let id = u32::from_be_bytes(random_bytes()?);
        let key = Key { generation: 0, step: 0, secret };
        let state = State {
            core: Sender::new(options.sender.clone(), clock.now()),
            keys: SenderKeys::new(id, key, &seed),
            members: BTreeMap::new(),
            next_member: 1,
            renewal: Renewal::None,
            renewed: clock.now(),
            renewals: 0,
            foreign: 0,
        };
        let shared = Arc::new(Group {
            id,
            clock,
            port: socket.local_addr()?.port(),
            state: Mutex::new(state),
            changed: Notify::new(),
            next_key: watch::Sender::new(None),
            options,
        });
        let mut task = JoinSet::new();
        let group = shared.clone();
        task.spawn(async move { group.run(&socket).await });
        Ok(GroupSender { shared, _task: Arc::new(task) })
    }

    /// Sends a message to all members.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.shared.state().core.send(self.shared.clock.now(), message)?;
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Nothing more is sent. Waits until all has left, and members have got it and gone, for
    /// `patience` at the most.
    pub async fn finish(&self, patience: Duration) {
        self.shared.state().core.end();
        self.shared.changed.notify_one();
        let gone = async {
            while !self.shared.state().is_over() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(patience, gone).await;
    }

    /// Counts so far.
    pub fn stats(&self) -> GroupStats {
        let state = self.shared.state();
        let core = state.core.stats();
        GroupStats {
            members: state.members.len(),
            messages: core.sources,
            parities: core.unasked,
            repairs: core.repairs,
            requests: core.requests,
            foreign: state.foreign,
            renewals: state.renewals,
            grtt: state.core.grtt(),
        }
    }

    /// Serves the connection of somebody who wants to be a member, until it leaves or its
    /// connection ends. The caller has decided that it may.
    ///
    /// # Errors
    /// It breaks the rules, or there are as many members as may be.
    pub async fn serve(&self, connection: &Connection) -> io::Result<()> {
        let Some(flow) = connection.accept_flow().await else { return Ok(()) };
        let (send, mut recv) = flow.split();
        let version = timeout(JOIN_MAX, recv.read_u8()).await;
        let version = version.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        if version != VERSION {
            let why = format!("a member speaks version {version}, expected {VERSION}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let (welcome, keys) = self.shared.admit()?;
        let member = welcome.member;
        // It leaves whatever ends this.
        let _leaves = Leaves { group: &self.shared, member };
        self.shared.attend(connection, &welcome, keys, (send, recv)).await
    }
}

/// A member, which leaves when this is gone.
struct Leaves<'a> {
    group: &'a Group,
    member: u32,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.group.dismiss(self.member);
    }
}

impl Group {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes somebody a member. (G-18, G-22)
    fn admit(&self) -> io::Result<(Welcome, watch::Receiver<Option<Key>>)> {
        let secret = Zeroizing::new(random_bytes()?);
        let mut state = self.state();
        if state.members.len() >= self.options.members_max {
            let why = format!("the group has {} members, as many as it may", state.members.len());
            return Err(io::Error::other(why));
        }
        let member = state.next_member;
        let next = member.checked_add(1);
        state.next_member = next.ok_or_else(|| io::Error::other("the group has had too many members"))?;
        state.keys.step();
        let first = state.core.join(member);
        state.members.insert(member, Shared::new(&secret));
        let settings = state.core.settings();
        let welcome = Welcome {
            group: self.id,
            member,
            secret,
            public: state.keys.public_key(),
            key: state.keys.key().clone(),
            first,
            sources: settings.sources as u8,
            answers: settings.answers,
            address: self.options.group,
            requests: self.port,
        };
        let mut keys = self.next_key.subscribe();
        // A key that others are getting now is for this one as well.
        if let Renewal::Given { lack, .. } = &mut state.renewal {
            lack.insert(member);
            keys.mark_changed();
        }
        Ok((welcome, keys))
    }

    /// A member has left: the key that it has is used no longer than it takes to give the others
    /// another. (G-23)
    fn dismiss(&self, member: u32) {
        let mut state = self.state();
        state.members.remove(&member);
        state.core.leave(member);
        match &mut state.renewal {
            Renewal::None => {
                let at = (self.clock.now() + GATHER).max(state.renewed + KEY_MIN);
                state.renewal = Renewal::At(at);
            }
            Renewal::At(_) => {}
            Renewal::Given { lack, again, .. } => {
                lack.remove(&member);
                *again = true;
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Gives a member the keys of the group, for as long as it stays.
    async fn attend(
        &self,
        connection: &Connection,
        welcome: &Welcome,
        mut keys: watch::Receiver<Option<Key>>,
        (mut send, mut recv): (SendFlow, RecvFlow),
    ) -> io::Result<()> {
        send.write_all(&welcome.emit()).await?;
        send.flush().await?;
        let mut looks = interval(LOOK_EVERY);
        let mut said = [0; 3];
        let mut has = 0;
        loop {
            tokio::select! {
                changed = keys.changed() => {
                    let key = keys.borrow_and_update().clone();
                    let (Ok(()), Some(key)) = (changed, key) else { return Ok(()) };
                    send.write_all(&emit_key(&key)).await?;
                    send.flush().await?;
                }
                read = recv.read(&mut said[has..]) => {
                    has += match read? {
                        0 => return Ok(()),
                        bytes => bytes,
                    };
                    if has == said.len() {
                        has = 0;
                        self.on_has(welcome.member, said)?;
                    }
                }
                _ = looks.tick() => {
                    let facts = connection.facts();
                    if facts.samples > 0 {
                        self.state().core.on_round_trip(welcome.member, facts.rtt_smoothed);
                    }
                }
                _ = connection.closed() => return Ok(()),
            }
        }
    }

    /// A member says that it has a key. (G-24)
    fn on_has(&self, member: u32, said: [u8; 3]) -> io::Result<()> {
        let [kind, high, low] = said;
        if kind != HAS {
            let why = format!("a member says kind {kind}, expected {HAS} (has a key)");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if let Renewal::Given { key, lack, .. } = &mut self.state().renewal
            && key.generation == u16::from_be_bytes([high, low])
        {
            lack.remove(&member);
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Sends what is due, and takes what comes, for ever.
    async fn run(&self, socket: &UdpSocket) {
        let mut datagram = [0; DATAGRAM_BYTES_MAX + 1];
        loop {
            let next = self.transmit(socket);
            let wait = next.since(self.clock.now()).min(Duration::from_secs(1));
            tokio::select! {
                came = socket.recv_from(&mut datagram) => {
                    // That nobody is at a port, to which was sent, is no matter here.
                    if let Ok((bytes, _)) = came {
                        self.on_datagram(&datagram[..bytes]);
                    }
                }
                () = self.changed.notified() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Sends all that may leave now. Returns when the next may.
    fn transmit(&self, socket: &UdpSocket) -> Time {
        let now = self.clock.now();
        let mut state = self.state();
        let renewal = self.renew(&mut state, now);
        while let Some((number, packet)) = state.core.poll_transmit(now) {
            let sealed = state.keys.seal(number, &packet);
            // What the system does not take is lost, as on the way.
            let _ = socket.try_send_to(&sealed, self.options.group);
        }
        state.core.next_timeout().min(renewal)
    }

    fn on_datagram(&self, datagram: &[u8]) {
        let mut state = self.state();
        let state = &mut *state;
        let request = Shared::member(self.id, datagram).ok().and_then(|member| {
            let shared = state.members.get_mut(&member)?;
            Some((member, shared.open(self.id, datagram).ok()?))
        });
        match request {
            Some((member, request)) => state.core.handle_request(self.clock.now(), member, &request),
            None => state.foreign += 1,
        }
    }

    /// Renews the key, step by step. Returns when the next step is due. (G-19, G-23)
    fn renew(&self, state: &mut State, now: Time) -> Time {
        let regular = state.renewed + self.options.renew;
        let begins = match &state.renewal {
            Renewal::None => (now >= regular).then_some(now),
            Renewal::At(at) => Some(*at),
            Renewal::Given { lack, until, again, key } => {
                if !lack.is_empty() && now < *until {
                    return *until;
                }
                let (key, again) = (key.clone(), *again);
                state.keys.use_key(key);
                state.renewals += 1;
                state.renewed = now;
                state.renewal = if again { Renewal::At(now + KEY_MIN) } else { Renewal::None };
                return now + if again { KEY_MIN } else { self.options.renew };
            }
        };
        let Some(at) = begins else { return regular };
        if now < at {
            return at;
        }
        // Without random numbers the old key stays until there are some.
        let Ok(secret) = random_bytes() else { return now + GATHER };
        let key = Key { generation: state.keys.key().generation.wrapping_add(1), step: 0, secret };
        let lack = state.members.keys().copied().collect();
        state.renewal = Renewal::Given { key: key.clone(), lack, until: now + GRACE, again: false };
        self.next_key.send_replace(Some(key));
        now + GATHER
    }
}
