//! Text forms: whatever can be set prints as a text that reads as the same.

use proptest::prelude::*;
use uts_path::{
    At, Buffer, Cellular, Change, CoDel, Compression, Corruption, Direction, Discipline, FqCoDel, Framing,
    Jitter, JitterShape, LinkConfig, Loss, Opportunities, PathConfig, Pie, Police, Receive, Red, Reordering,
    Schedule, Scheduled, Setting, Target,
};

const HOUR_NS: u64 = 3_600_000_000_000;

/// Numbers of all sizes, round ones among them.
fn amounts(low: u64, high: u64) -> impl Strategy<Value = u64> {
    let round = (0u32..14, 1u64..2000).prop_map(|(zeros, digits)| digits * 10u64.pow(zeros));
    prop_oneof![low..=high, low..=high.min(low + 5000), round.prop_map(move |n| n.clamp(low, high))]
}

fn buffers(low: u64) -> impl Strategy<Value = Buffer> {
    prop_oneof![
        amounts(low, 1 << 40).prop_map(Buffer::Packets),
        amounts(low, 1 << 40).prop_map(Buffer::Bytes),
        Just(Buffer::Unlimited),
    ]
}

fn losses() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        (f64::MIN_POSITIVE..=1.0).prop_map(|p| Loss::Random { p }),
        (0.0..0.5, 1.0..1e6).prop_map(|(loss, burst)| Loss::GilbertElliott { loss, burst }),
        (1u64..).prop_map(|bits| Loss::Places { bits }),
    ]
}

fn opportunities() -> impl Strategy<Value = Opportunities> {
    prop_oneof![
        "[-a-zA-Z0-9_./:,=é]{1,30}".prop_map(|name| Opportunities::File { name, trace: None }),
        (amounts(100_000, 1_000_000_000), any::<u64>())
            .prop_map(|(max_bps, seed)| Opportunities::Cellular(Cellular { max_bps, seed })),
    ]
}

fn disciplines() -> impl Strategy<Value = Discipline> {
    let red = (amounts(1, 1 << 30), amounts(1, 1 << 30), any::<[bool; 3]>());
    let red = (red, 1e-9..=1.0, prop_oneof![Just(0.002), 1e-9..=1.0]).prop_map(
        |((min, above, [bytes, gentle, ecn]), max_p, weight)| {
            let unit = if bytes { Buffer::Bytes } else { Buffer::Packets };
            Discipline::Red(Red { min: unit(min), max: unit(min + above), max_p, weight, gentle, ecn })
        },
    );
    let codel = (amounts(1, HOUR_NS / 2), amounts(0, HOUR_NS / 2), any::<bool>()).prop_map(
        |(target_ns, more, ecn)| Discipline::CoDel(CoDel { target_ns, interval_ns: target_ns + more, ecn }),
    );
    let usual = any::<bool>().prop_map(|ecn| Discipline::CoDel(CoDel { ecn, ..CoDel::default() }));
    let fq = (amounts(1, HOUR_NS), any::<bool>())
        .prop_map(|(ns, ecn)| Discipline::FqCoDel(FqCoDel(CoDel { target_ns: ns, interval_ns: ns, ecn })));
    let pie = (amounts(1, HOUR_NS), any::<bool>())
        .prop_map(|(target_ns, ecn)| Discipline::Pie(Pie { target_ns, ecn }));
    let police = (amounts(1, 1 << 40), amounts(1, 1 << 30))
        .prop_map(|(rate_bps, burst_bytes)| Discipline::Police(Police { rate_bps, burst_bytes }));
    let plain = prop_oneof![Just(Discipline::DropTail), Just(Discipline::RandomDrop)];
    prop_oneof![plain, red, codel, usual, fq, pie, police]
}

fn framings() -> impl Strategy<Value = Framing> {
    prop_oneof![
        Just(Framing::None),
        Just(Framing::Ethernet),
        Just(Framing::Slip),
        Just(Framing::Aal5),
        prop_oneof![Just(0), any::<u32>()].prop_map(|accm| Framing::Ppp { accm }),
    ]
}

fn compressions() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::Off),
        (1u16..=256).prop_map(|slots| Compression::Vj { slots }),
        (1u16..=256, any::<bool>()).prop_map(|(slots, typed)| Compression::Rx { slots, typed }),
    ]
}

fn settings() -> impl Strategy<Value = Setting> {
    let jitter = (amounts(0, HOUR_NS), any::<bool>(), any::<bool>()).prop_map(|(max_ns, bell, reorder)| {
        let shape = if bell { JitterShape::Bell } else { JitterShape::Uniform };
        Setting::Jitter(Jitter { max_ns, shape, reorder })
    });
    prop_oneof![
        prop::option::of(amounts(1, 10_000_000_000_000)).prop_map(Setting::Rate),
        opportunities().prop_map(Setting::Opportunities),
        prop::option::of((1u32..=65_536, amounts(0, HOUR_NS))).prop_map(|receive| Setting::Receive(
            receive.map(|(buffers, time_ns)| Receive { buffers, time_ns })
        )),
        buffers(1).prop_map(Setting::Buffer),
        disciplines().prop_map(Setting::Queue),
        amounts(0, HOUR_NS).prop_map(Setting::Delay),
        jitter,
        losses().prop_map(Setting::Loss),
        (0.0..=1.0).prop_map(Setting::Duplicate),
        (0.0..=1.0, amounts(0, HOUR_NS))
            .prop_map(|(p, extra_ns)| Setting::Reorder(Reordering { p, extra_ns })),
        (0.0..=1.0, 1u32..=64).prop_map(|(p, max_bits)| Setting::Corrupt(Corruption { p, max_bits })),
        (0u32..=65_535).prop_map(Setting::Overhead),
        framings().prop_map(Setting::Framing),
        compressions().prop_map(Setting::Compression),
        prop::option::of(1..=u32::MAX).prop_map(Setting::Mtu),
        buffers(0).prop_map(Setting::EcnThreshold),
        any::<bool>().prop_map(Setting::Up),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    prop::collection::vec(settings(), 1..6).prop_map(|settings| Change::new(settings).expect("in range"))
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let at = prop_oneof![amounts(0, 1 << 52).prop_map(At::Time), amounts(0, 1 << 52).prop_map(At::Bytes)];
    let target = prop::sample::select(vec![
        Target::One(Direction::Forward),
        Target::One(Direction::Backward),
        Target::Both,
    ]);
    let scheduled = (at, target, changes()).prop_map(|(at, target, change)| Scheduled { at, target, change });
    prop::collection::vec(scheduled, 0..4).prop_map(|mut entries| {
        // In order, as a schedule is written.
        entries.sort_by_key(|entry| match entry.at {
            At::Time(at) => (false, at),
            At::Bytes(at) => (true, at),
        });
        Schedule { entries }
    })
}

fn links() -> impl Strategy<Value = LinkConfig> {
    prop::collection::vec(settings(), 0..12).prop_map(|settings| {
        let change = Change::new(settings).expect("in range");
        LinkConfig::default().with(&change).expect("in range")
    })
}

proptest! {
    #[test]
    fn a_change_reads_as_it_was_printed(change in changes()) {
        prop_assert_eq!(change.to_string().parse::<Change>(), Ok(change));
    }

    #[test]
    fn a_schedule_reads_as_it_was_printed(schedule in schedules()) {
        let printed: Vec<String> = schedule.entries.iter().map(ToString::to_string).collect();
        prop_assert_eq!(printed.join("; ").parse::<Schedule>(), Ok(schedule));
    }

    #[test]
    fn a_path_comes_back_from_toml(forward in links(), backward in links(), schedule in schedules()) {
        let config = PathConfig { forward, backward, schedule };
        let text = toml::to_string(&config).unwrap();
        prop_assert_eq!(toml::from_str::<PathConfig>(&text).unwrap(), config, "{}", text);
    }

    #[test]
    fn any_text_is_a_change_or_an_error(
        text in "\\PC{0,40}",
        key in "(rate|queue|framing|buffer|loss)=",
        rest in "[a-z0-9:,.px-]{0,20}",
    ) {
        let _ = text.parse::<Schedule>();
        for text in [text, format!("{key}{rest}")] {
            if let Ok(change) = text.parse::<Change>() {
                prop_assert_eq!(change.to_string().parse::<Change>(), Ok(change));
            }
        }
    }
}

#[test]
fn toml_takes_the_text_forms() {
    let text = "opportunities = 'cellular:12mbit,7'\nqueue = 'red:5p,15p,0.1'\nframing = 'ppp'\n\
                buffer = { packets = 9 }\n";
    let link: LinkConfig = toml::from_str(text).unwrap();
    assert_eq!(Ok(link), "rate=cellular:12mbit,7 queue=red:5p,15p,0.1 framing=ppp buffer=9p".parse());
    for (text, wanted) in [
        (
            "queue = 'fifo'",
            "queue: must be droptail, row:N, random, red:MIN,MAX,MAX_P as in red:5p,15p,0.1, codel, fq_codel, \
             pie, or police:RATE,BURST as in police:10mbit,64kB",
        ),
        (
            "framing = 'atm'",
            "framing: must be none, ethernet, slip, aal5, ppp or ppp:ACCM as in ppp:0xffffffff",
        ),
        (
            "opportunities = 'x'",
            "opportunities: must be trace:FILE or cellular:MAX_RATE,SEED as in cellular:12mbit,7",
        ),
    ] {
        let error = toml::from_str::<LinkConfig>(text).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains("line 1"), "{error}");
    }
}

#[test]
fn every_setting_can_change_while_the_link_runs() {
    let all = "rate=cellular:12mbit,7 buffer=9p queue=codel delay=5ms jitter=1ms loss=0.1 duplicate=0.1 \
               reorder=0.1,1ms corrupt=0.1 overhead=8 framing=slip mtu=700 ecn=5p down";
    let mut link = uts_path::Link::new(LinkConfig::default(), 1).unwrap();
    link.send(0, vec![0u8; 100], 100);
    link.set(1, &all.parse().unwrap()).unwrap();
    assert_eq!(*link.config(), all.parse::<LinkConfig>().unwrap());
    link.set(2, &"rate=inf".parse().unwrap()).unwrap();
    assert_eq!((link.config().rate_bps, &link.config().opportunities), (None, &None));
}
