//! One source, a player and an editor (Richards 1995, section 1.4): where the path does not carry
//! all in time, a player gives up pictures and keeps the time, and an editor gives up time and
//! keeps the pictures.

use crate::one_client::{CLIENT, OneClient, SERVER, message, with};
use core::time::Duration;
use uts_engine::{ConnectionConfig, Event, FlowOptions, MessageOptions, Read};
use uts_functions::Time;

const EVERY: Duration = Duration::from_millis(40);
const PICTURES: u32 = 500;
const PICTURE_BYTES: usize = 4000;
const DELAY: Duration = Duration::from_millis(150);

const PLAYER: [&str; 5] = [
    "reliability=prefer",
    "preserveOrder=avoid",
    "msgLifetime=150ms",
    "uts.degradation=reliability",
    "uts.profile.playout=fixed(delay=150)",
];
const EDITOR: [&str; 2] = ["reliability=require", "preserveOrder=require"];

/// Pictures that came: their numbers, and the time since each was made.
type Shown = Vec<(u32, Duration)>;

/// Sends the same pictures to both, over a path that stands still for a second now and then.
fn show(seed: u64) -> [Shown; 2] {
    let consent = ["uts.consent=playout/fixed,playout/adaptive", "preserveMsgBoundaries=require"];
    let config = with(ConnectionConfig::default(), &consent, &[]);
    let mut ends = OneClient::connected("rate=8mbit delay=30ms", config.clone(), config.clone(), seed);
    ends.set_path("loss=ge:0.03,4");
    let flows = [&PLAYER[..], &EDITOR[..]].map(|properties| {
        let requirements = with(config.clone(), properties, &[]).requirements;
        ends.at(CLIENT).open_flow(FlowOptions::requiring(requirements)).expect("a flow")
    });
    let begun = ends.world.now();
    let due = |picture: u32| begun + EVERY * picture;
    let (mut next, mut shown, mut is_down) = (0, [Shown::new(), Shown::new()], false);
    let until = due(PICTURES) + Duration::from_secs(20);
    while ends.world.now() < until {
        let now = ends.world.now();
        let pause = (150..175).contains(&next) || (350..375).contains(&next);
        if pause != is_down {
            is_down = pause;
            ends.set_path(if pause { "down" } else { "up" });
        }
        if next < PICTURES && now >= due(next) {
            for flow in flows {
                let picture = message(next, PICTURE_BYTES);
                let _ = ends.at(CLIENT).send_message(now, flow, picture, MessageOptions::default());
            }
            next += 1;
        }
        let wake = if next < PICTURES { due(next) } else { until };
        let Some(happening) = ends.next(wake) else { continue };
        let Event::Readable(flow) = happening.event else { continue };
        let Some(place) = flows.iter().position(|known| *known == flow && happening.node == SERVER) else {
            continue;
        };
        read(&mut ends, flow, due, &mut shown[place]);
    }
    shown
}

fn read(ends: &mut OneClient, flow: uts_engine::FlowId, due: impl Fn(u32) -> Time, shown: &mut Shown) {
    let now = ends.world.now();
    while let Ok(read) = ends.at(SERVER).read(now, flow, 1 << 20) {
        let (Read::Message(data) | Read::Timed { message: data, .. }) = read else { continue };
        let number = u32::from_be_bytes([data[0], data[1], data[2], data[3]]);
        shown.push((number, now.since(due(number))));
    }
}

#[test]
fn a_player_gives_up_pictures_and_an_editor_time() {
    for seed in 0..5 {
        let [player, editor] = show(seed);
        let latest = |shown: &Shown| shown.iter().map(|(_, age)| *age).max().unwrap_or_default();
        println!(
            "seed {seed}: player {} of {PICTURES}, at the latest after {:?}; editor {}, {:?}",
            player.len(),
            latest(&player),
            editor.len(),
            latest(&editor)
        );
        // The editor has them all, in order, however long that takes.
        let numbers: Vec<u32> = editor.iter().map(|(number, _)| *number).collect();
        assert!(
            numbers.iter().copied().eq(0..PICTURES),
            "failing seed {seed}: {} of {PICTURES}",
            numbers.len()
        );
        assert!(latest(&editor) > Duration::from_millis(900), "failing seed {seed}: {:?}", latest(&editor));
        // The player has none twice, none late, and most.
        assert!(
            latest(&player) <= DELAY + Duration::from_millis(60),
            "failing seed {seed}: {:?}",
            latest(&player)
        );
        let mut numbers: Vec<u32> = player.iter().map(|(number, _)| *number).collect();
        let count = numbers.len();
        numbers.dedup();
        assert!(numbers.is_sorted() && numbers.len() == count, "failing seed {seed}");
        assert!(
            (250..=450).contains(&count),
            "failing seed {seed}: {count} of {PICTURES}, 50 of them in pauses"
        );
    }
}
