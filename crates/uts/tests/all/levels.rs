//! Levels of an application, end to end: in virtual time over paths that narrow, lose, and are
//! shared with others; and for a connection over real sockets.

use crate::common::{pair, within};
use std::time::Duration;
use uts::levels::{Level, Levels, Look, Why, follow};
use uts::{ConnectionConfig, FlowId, FlowOptions, MessageOptions, Rate, Time};
use uts_engine::{ConnectionHandle, EndpointConfig, Event, Read};
use uts_sim::identity::Identities;
use uts_sim::{NodeId, World, WorldConfig};

const PICTURE: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(100);
const SERVER: NodeId = 0;

fn kbit(kbit: u64) -> Rate {
    Rate::from_bits_per_sec(kbit * 1000)
}

fn levels() -> Levels {
    let level = |name: &str, rate, loss| Level { name: name.into(), rate: kbit(rate), loss };
    Levels::new(vec![level("voice", 100, 0.3), level("small", 900, 0.3), level("large", 2500, 0.02)])
        .expect("levels")
}

/// A participant, who sends to the server at a level, by a connection.
struct Participant {
    node: NodeId,
    connection: ConnectionHandle,
    flow: FlowId,
    levels: Levels,
    next_at: Time,
    look_at: Time,
    /// Changes: when, to which, why.
    changes: Vec<(Duration, usize, Why)>,
    sent: u32,
}

struct Call {
    world: World,
    participants: Vec<Participant>,
    seed: u64,
}

fn media() -> ConnectionConfig {
    let mut config = ConnectionConfig::default();
    for property in [
        "preserveMsgBoundaries=require",
        "preserveOrder=avoid",
        "connCapacityProfile=low-latency-non-interactive",
        "reliability=prefer",
        "uts.degradation=reliability",
        "msgLifetime=200ms",
    ] {
        config.requirements.assign(property).expect(property);
    }
    config
}

impl Call {
    fn new(path: &str, clients: usize, seed: u64) -> Call {
        let server = EndpointConfig { accept: media(), ..EndpointConfig::default() };
        let config = WorldConfig { server, seed, clients, ..WorldConfig::default() };
        let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
        world.set_path(uts_path::Target::Both, path).expect("a valid path");
        Call { world, participants: Vec::new(), seed }
    }

    /// Somebody takes part from now on.
    fn enter(&mut self, node: NodeId, levels: Levels) {
        let connection = self.world.connect(node, media()).expect("the connection begins");
        let until = self.world.now() + Duration::from_secs(1);
        self.pass_until(until);
        let open = self.world.connection(node, connection).expect("it is open");
        let flow = open.open_flow(FlowOptions::default()).expect("a flow");
        let (next_at, look_at) = (self.world.now(), self.world.now());
        let (changes, sent) = (Vec::new(), 0);
        self.participants.push(Participant {
            node,
            connection,
            flow,
            levels,
            next_at,
            look_at,
            changes,
            sent,
        });
    }

    fn pass(&mut self, seconds: u64) {
        let until = self.world.now() + Duration::from_secs(seconds);
        self.pass_until(until);
    }

    fn pass_until(&mut self, until: Time) {
        while self.world.now() < until {
            let due = self.participants.iter().map(|one| one.next_at.min(one.look_at)).min();
            let happening = self.world.next(due.unwrap_or(until).min(until));
            let now = self.world.now();
            for one in &mut self.participants {
                one.act(now, &mut self.world);
            }
            match happening.map(|happening| (happening.node, happening.connection, happening.event)) {
                Some((SERVER, connection, Event::Readable(flow))) => {
                    while let Some(open) = self.world.connection(SERVER, connection)
                        && let Ok(Read::Message(_)) = open.read(now, flow, 1 << 20)
                    {}
                }
                Some((node, _, Event::Closed(reason))) => {
                    panic!("failing seed {}: at {node}: {reason}", self.seed)
                }
                _ => {}
            }
        }
    }

    fn level(&self, place: usize) -> usize {
        self.participants[place].levels.now()
    }

    /// Changes of one so far, for messages of failures.
    fn story(&self, place: usize) -> String {
        format!("failing seed {}: {:?}", self.seed, self.participants[place].changes)
    }
}

impl Participant {
    /// Sends the picture that is due, and looks.
    fn act(&mut self, now: Time, world: &mut World) {
        let Some(open) = world.connection(self.node, self.connection) else { return };
        if self.next_at <= now {
            self.next_at += PICTURE;
            let mut left = self.levels.level().rate.bytes_in(PICTURE) as usize;
            while left > 0 {
                let part = left.min(1000);
                // What there is no room for is what the level is about.
                if open.send_message(now, self.flow, vec![7; part].into(), MessageOptions::default()).is_ok()
                {
                    self.sent += 1;
                }
                left -= part;
            }
        }
        if self.look_at <= now {
            self.look_at += LOOK;
            if let Some(change) = self.levels.on_look(now, Look::of(open)) {
                self.changes.push((now.since(Time::ZERO), change.to, change.why));
            }
        }
    }
}

#[test]
fn a_path_that_carries_it_brings_the_highest_level_and_keeps_it() {
    for seed in 0..5 {
        for path in ["rate=10mbit delay=20ms", "rate=6mbit delay=60ms", "rate=20mbit delay=20ms jitter=10ms"]
        {
            let mut call = Call::new(path, 1, seed);
            call.enter(1, levels());
            call.pass(15);
            assert_eq!(call.level(0), 2, "{path}: {}", call.story(0));
            let before = call.participants[0].changes.len();
            call.pass(60);
            assert_eq!(call.participants[0].changes.len(), before, "{path}: {}", call.story(0));
        }
    }
}

#[test]
fn a_path_that_narrows_is_followed_down_and_up() {
    for seed in 0..5 {
        let mut call = Call::new("rate=10mbit delay=20ms buffer=64p", 1, seed);
        call.enter(1, levels());
        call.pass(15);
        assert_eq!(call.level(0), 2, "{}", call.story(0));
        call.world.set_path(uts_path::Target::Both, "rate=1500kbit").expect("a path");
        call.pass(10);
        assert_eq!(call.level(0), 1, "{}", call.story(0));
        call.world.set_path(uts_path::Target::Both, "rate=400kbit").expect("a path");
        call.pass(10);
        assert_eq!(call.level(0), 0, "{}", call.story(0));
        call.world.set_path(uts_path::Target::Both, "rate=10mbit").expect("a path");
        call.pass(40);
        assert_eq!(call.level(0), 2, "{}", call.story(0));
    }
}

/// By force: a third participant makes the levels fall, and they return when it has left (Richards
/// 1995, section 4.1.2).
#[test]
fn a_third_participant_makes_levels_fall_and_they_return() {
    for seed in 0..5 {
        let mut call = Call::new("rate=3500kbit delay=20ms buffer=64p", 2, seed);
        call.enter(1, levels());
        call.pass(15);
        assert_eq!(call.level(0), 2, "{}", call.story(0));
        call.enter(2, levels());
        call.pass(10);
        let (mut too_much, mut too_little) = (0, 0);
        for _ in 0..20 {
            call.pass(1);
            let both = [call.level(0), call.level(1)];
            // 3.5 Mbit/s carry one large and one small picture at the most. More is tried now and
            // then.
            too_much += u32::from(both.iter().sum::<usize>() > 3);
            too_little += u32::from(both.contains(&0));
        }
        assert!(
            too_much <= 4 && too_little <= 4,
            "{too_much} and {too_little} of 20 s: {} {}",
            call.story(0),
            call.story(1)
        );
        // It says nothing more.
        call.participants.pop();
        call.pass(60);
        assert_eq!(call.level(0), 2, "{}", call.story(0));
    }
}

/// By wish: to save what the path costs (Richards 1995, section 4.1.4).
#[test]
fn a_wish_is_kept_whatever_the_path_carries() {
    let mut call = Call::new("rate=10mbit delay=20ms", 1, 7);
    call.enter(1, levels());
    call.pass(15);
    call.participants[0].levels.wish(1);
    let before = call.participants[0].sent;
    call.pass(30);
    let (_, to, why) = *call.participants[0].changes.last().expect("a change");
    assert_eq!((to, why, call.level(0)), (1, Why::Wish, 1));
    let sent = call.participants[0].sent - before;
    assert!(sent < 30 * 50 * 4, "{sent} messages of 900 kbit/s");
    call.participants[0].levels.wish(2);
    call.pass(20);
    assert_eq!(call.level(0), 2, "{}", call.story(0));
}

/// An hour beside a path that never carries the highest level: it is tried seldom.
#[test]
fn a_path_that_is_too_narrow_is_tried_seldom() {
    let mut call = Call::new("rate=2mbit delay=30ms buffer=64p", 1, 3);
    call.enter(1, levels());
    call.pass(600);
    let tries = call.participants[0].changes.iter().filter(|(_, to, _)| *to == 2).count();
    assert!(tries <= 25, "{tries} tries: {}", call.story(0));
    let seconds_high: Duration = call.participants[0]
        .changes
        .windows(2)
        .filter(|pair| pair[0].1 == 2)
        .map(|pair| pair[1].0 - pair[0].0)
        .sum();
    assert!(seconds_high < Duration::from_secs(60), "{seconds_high:?} beyond the path: {}", call.story(0));
}

#[tokio::test]
async fn levels_of_a_connection_are_followed_until_its_end() {
    let (_listener, client, server) = pair().await;
    let mut follower = follow(&client, levels());
    let sending = {
        let client = client.clone();
        tokio::spawn(async move {
            let (mut send, _recv) = client.open_flow(FlowOptions::default()).await.expect("opened").split();
            loop {
                let message = vec![7; 2000];
                if tokio::io::AsyncWriteExt::write_all(&mut send, &message).await.is_err() {
                    return;
                }
                tokio::time::sleep(PICTURE).await;
            }
        })
    };
    let reading = tokio::spawn(async move {
        let mut flow = server.accept_flow().await.expect("a flow");
        let mut bytes = vec![0; 1 << 16];
        while tokio::io::AsyncReadExt::read(&mut flow, &mut bytes).await.is_ok_and(|read| read > 0) {}
    });
    let change = within(follower.next()).await.expect("a change");
    assert_eq!((change.from, change.to, change.why), (0, 1, Why::Room));
    follower.wish(0);
    let change = within(follower.next()).await.expect("a change");
    assert_eq!((change.to, change.why), (0, Why::Wish));
    client.close(0, "done").await;
    assert_eq!(within(follower.next()).await, None);
    within(sending).await.expect("ran");
    within(reading).await.expect("ran");
}
