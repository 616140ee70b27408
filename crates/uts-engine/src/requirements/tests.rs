use super::*;

fn message(text: &str) -> String {
    let mut r = Requirements::bulk();
    let before = r.clone();
    let error = r.assign(text).expect_err(text).to_string();
    assert_eq!(r, before, "a refused `{text}` changed something");
    error
}

#[test]
fn defaults_are_those_of_the_rfc() {
    let r = Requirements::default();
    let value = |name: &str| property::find(name).map(|p| p.value(&r)).unwrap_or_default();
    for (name, default) in [
        ("reliability", "require"),
        ("preserveMsgBoundaries", "no-preference"),
        ("perMsgReliability", "no-preference"),
        ("preserveOrder", "require"),
        ("zeroRttMsg", "no-preference"),
        ("multistreaming", "prefer"),
        ("fullChecksumSend", "require"),
        ("fullChecksumRecv", "require"),
        ("congestionControl", "require"),
        ("keepAlive", "no-preference"),
        ("connPriority", "100"),
        ("connTimeout", "disabled"),
        ("connCapacityProfile", "default"),
        ("minSendRate", "unlimited"),
        ("msgLifetime", "infinite"),
        ("msgChecksumLen", "full-coverage"),
        ("recvChecksumLen", "full-coverage"),
    ] {
        assert_eq!(value(name), default, "{name}");
    }
}

#[test]
fn every_property_reads_what_it_writes() {
    let samples = [
        ("reliability", "avoid"),
        ("connCapacityProfile", "low-latency-interactive"),
        ("connPriority", "3"),
        ("connTimeout", "12.5"),
        ("minSendRate", "1.5Mbit/s"),
        ("maxSendRate", "64001 bit/s"),
        ("msgLifetime", "2s"),
        ("msgChecksumLen", "20"),
        ("recvChecksumLen", "0"),
        ("uts.maxDelay", "50"),
        ("uts.maxJitter", "100ns"),
        ("uts.degradation", "order,reliability"),
        ("uts.security", "unprotected"),
        ("uts.adapt", "off"),
        ("uts.expedited", "on"),
        ("direction", "unidirectional-send"),
    ];
    let mut r = Requirements::default();
    for (name, value) in samples {
        r.set(name, value).unwrap_or_else(|e| panic!("{e}"));
    }
    let mut again = Requirements::default();
    for (name, value) in r.settings() {
        again.set(&name, &value).unwrap_or_else(|e| panic!("{e}"));
    }
    assert_eq!(again, r);
    assert_eq!(r.max_delay, Some(Duration::from_millis(50)));
    assert_eq!(r.conn_timeout, Some(Duration::from_millis(12_500)));
    assert_eq!(r.min_send_rate, Some(Rate::from_bits_per_sec(1_500_000)));
    for property in PROPERTIES {
        let text = property.value(&Requirements::default());
        let mut fresh = Requirements::default();
        fresh.set(property.name, &text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(fresh, Requirements::default(), "{}", property.name);
    }
}

#[test]
fn words_are_read_as_the_rfc_writes_them() {
    let mut r = Requirements::default();
    for (text, value) in [
        ("Low Latency/Interactive", CapacityProfile::LowLatencyInteractive),
        ("lowLatencyNonInteractive", CapacityProfile::LowLatencyNonInteractive),
        ("Capacity-Seeking", CapacityProfile::CapacitySeeking),
    ] {
        r.set("connCapacityProfile", text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(r.conn_capacity_profile, value);
    }
    r.set("keepAlive", "No Preference").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(r.keep_alive, Preference::NoPreference);
}

#[test]
fn errors_name_property_value_and_what_was_expected() {
    assert_eq!(message("reliability"), "`reliability` is not a property: write name=value");
    assert_eq!(
        message("relability=require"),
        "there is no property `relability`; did you mean `reliability`?"
    );
    assert_eq!(message("zzz=1"), "there is no property `zzz`");
    assert_eq!(
        message("reliability=requir"),
        "reliability: `requir` is not a preference (require, prefer, no-preference, avoid, prohibit): \
         did you mean `require`?"
    );
    assert_eq!(
        message("uts.maxDelay=50 furlongs"),
        "uts.maxDelay: `50 furlongs` is not a time in milliseconds (or with a unit: us, ms, s, min, h, d), \
         or `infinite`: `furlongs` is no unit of time (ns, us, ms, s, min, h, d)"
    );
    assert!(message("uts.maxDelay=0").ends_with("must be above zero"));
    assert!(message("uts.maxDelay=-5").contains("is not a time"));
    assert!(message("minSendRate=1e400").contains("is not a rate"));
    assert!(message("minSendRate=99999999999999999999999999999G").ends_with("too large"));
    assert_eq!(
        message("minSendRate=5mb/s"),
        "minSendRate: `5mb/s` is not a rate in bit/s (or with a unit: kbit/s, Mbit/s, MB/s), or `unlimited`: \
         `5mb/s` can be read as 5 Mbit/s and as 5 MB/s; write which"
    );
    assert!(message("connPriority=-1").contains("whole number from 0"));
    assert!(message("uts.degradation=order,order").ends_with("`order` is named twice"));
    assert!(message("uts.degradation=ordr").contains("did you mean `order`?"));
    assert!(message("zeroRttMsg=require").contains("is not offered: UTS sends no application data before"));
    assert!(message("interface=wlan0").contains("is not offered"));
    assert!(message("multipath=active").contains("one path at a time"));
}

#[test]
fn pins_are_read_and_refused() {
    let mut r = Requirements::bulk();
    r.assign("uts.profile.congestion=bbr(loss-threshold=100)").unwrap_or_else(|e| panic!("{e}"));
    r.assign("uts.profile.detection = crc-32c").unwrap_or_else(|e| panic!("{e}"));
    r.assign("uts.profile.congestion=cubic").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(r.pins.len(), 2);
    assert_eq!(r.pinned(Function::Congestion).map(|p| p.choice.number), Some(2));
    assert_eq!(
        r.settings().into_iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>(),
        [
            "connCapacityProfile=capacity-seeking",
            "uts.profile.congestion=cubic",
            "uts.profile.detection=crc-32c"
        ]
    );
    r.unpin(Function::Detection);
    assert_eq!(r.pins.len(), 1);
    assert_eq!(
        message("uts.profile.congeston=bbr"),
        "there is no property `uts.profile.congeston`; did you mean `uts.profile.congestion`?"
    );
    assert!(message("uts.profile.congestion=bbbr").contains("did you mean `bbr`?"));
    assert!(message("uts.profile.congestion=bbr(loss-threshold=9999999)").contains("outside"));
    assert!(message("uts.profile.congestion=bbr(los=1)").contains("no parameter `los`"));
    assert!(message("uts.profile.congestion=bbr(loss-threshold=1").contains("`)` is missing"));
    assert!(message("uts.profile.congestion=bbr(loss-threshold)").contains("is not param=value"));
    assert!(message("uts.profile.congestion=bbr(loss-threshold=1,loss-threshold=2)").contains("set twice"));
    assert!(
        message("uts.profile.congestion=bbr(loss-threshold=99999999999999999999)").contains("whole number")
    );
    assert!(message("uts.profile.congestion=").contains("a mechanism is missing"));
}

#[test]
fn distance_counts_edits() {
    let chars = |s: &str| s.chars().collect::<Vec<_>>();
    assert_eq!(distance(&chars("kitten"), &chars("sitting")), 3);
    assert_eq!(distance(&chars(""), &chars("abc")), 3);
    assert_eq!(distance(&chars("same"), &chars("same")), 0);
}

/// Whatever a peer asks for, what is owed to others stays as this end has it.
#[test]
fn no_request_of_a_peer_changes_what_is_owed_to_others() {
    use crate::selector::{self, Library};
    use uts_functions::PathFacts;
    use uts_functions::mechanism::Promise;
    const OWED: [Function; 6] = [
        Function::Congestion,
        Function::Rate,
        Function::Timing,
        Function::Finding,
        Function::Protection,
        Function::Detection,
    ];
    let words = [
        "require",
        "prefer",
        "no-preference",
        "avoid",
        "prohibit",
        "default",
        "scavenger",
        "low-latency-interactive",
        "low-latency-non-interactive",
        "constant-rate",
        "capacity-seeking",
        "weighted-fair-queueing",
        "fair-capacity",
        "priority",
        "earliest-deadline",
        "bidirectional",
        "unidirectional-send",
        "unidirectional-receive",
        "disabled",
        "passive",
        "infinite",
        "unlimited",
        "full-coverage",
        "required",
        "unprotected",
        "on",
        "off",
        "all",
        "none",
        "congestion/none,rate/none,timing/fixed,protection/none,flow/none",
        "delay,jitter,rate,order,reliability",
        "0",
        "1",
        "20",
        "1ms",
        "1us",
        "100ms",
        "10s",
        "1bit/s",
        "1Mbit/s",
        "100Gbit/s",
    ];
    let operators: [&[&str]; 6] = [
        &[],
        &["connCapacityProfile=scavenger"],
        &["uts.profile.congestion=bbr", "uts.profile.timing=fixed(timeout=500)"],
        &["maxSendRate=2Mbit/s", "maxRecvRate=3Mbit/s"],
        &["congestionControl=avoid", "reliability=avoid"],
        &["uts.maxDelay=100ms", "preserveMsgBoundaries=require"],
    ];
    let names = PROPERTIES.iter().map(|property| property.name.to_owned());
    let pins = Function::ALL.iter().map(|function| format!("{PREFIX}{}", function.name()));
    let names: Vec<String> = names.chain(pins).chain([NAMED.to_owned()]).collect();
    let path = PathFacts::default();
    let chosen =
        |r: &Requirements| selector::select(r, &path, &Library::offered(r), None).ok().map(|s| s.profile);
    let mut taken = 0;
    for operator in operators {
        let mut own = Requirements::default();
        operator.iter().for_each(|text| own.assign(text).expect("offered"));
        let as_it_is = chosen(&own).expect("they go together");
        for name in &names {
            let mechanisms = uts_functions::library::all().map(|m| m.name);
            for value in words.into_iter().chain(mechanisms) {
                // As it is written, and as a parser may still take it.
                for spelled in [name.clone(), format!(" {name} ")] {
                    let mut asked = own.clone();
                    if asked.set_for_peer(&own, &spelled, value).is_err() {
                        assert_eq!(asked, own, "{name}={value} was refused");
                        continue;
                    }
                    taken += 1;
                    assert!(is_for_peers(name), "{name}={value} was taken");
                    for (kept, own) in [
                        (asked.congestion_control.to_string(), own.congestion_control.to_string()),
                        (asked.keep_alive.to_string(), own.keep_alive.to_string()),
                        (asked.consents.to_string(), own.consents.to_string()),
                        (format!("{:?}", asked.pins), format!("{:?}", own.pins)),
                        (format!("{:?}", asked.min_send_rate), format!("{:?}", own.min_send_rate)),
                        (format!("{:?}", asked.keep_alive_timeout), format!("{:?}", own.keep_alive_timeout)),
                        (
                            format!("{:?}", (asked.security, asked.adapt)),
                            format!("{:?}", (own.security, own.adapt)),
                        ),
                    ] {
                        assert_eq!(kept, own, "{name}={value}");
                    }
                    for (asked, own) in
                        [(asked.max_send_rate, own.max_send_rate), (asked.max_recv_rate, own.max_recv_rate)]
                    {
                        assert!(
                            own.is_none_or(|own| asked.is_some_and(|asked| asked <= own)),
                            "{name}={value}"
                        );
                    }
                    let Some(profile) = chosen(&asked) else { continue };
                    for function in OWED {
                        let (asked, own) = (profile.get(function), as_it_is.get(function));
                        if asked == own {
                            continue;
                        }
                        // What is as restrained, or keeps a lower rate, is no worse for others.
                        let is_restrained = match function {
                            Function::Congestion => {
                                profile.promises(function, Promise::Restraint)
                                    || !as_it_is.promises(function, Promise::Restraint)
                            }
                            Function::Rate => {
                                name == "maxSendRate" && profile.promises(function, Promise::Rate)
                            }
                            _ => false,
                        };
                        assert!(is_restrained, "{operator:?}, {name}={value}: {asked:?} instead of {own:?}");
                    }
                }
            }
        }
    }
    assert!(taken > 500, "{taken} requests were taken: the list is empty");
    let mut r = Requirements::default();
    let error =
        r.set_for_peer(&Requirements::default(), "congestionControl", "prohibit").expect_err("refused");
    assert_eq!(error.to_string(), "congestionControl is for each end to choose for itself");
    let own = Requirements { conn_capacity_profile: CapacityProfile::Scavenger, ..Requirements::default() };
    assert!(own.clone().set_for_peer(&own, "connCapacityProfile", "default").is_err(), "it was set here");
    assert!(own.clone().set_for_peer(&own, "connCapacityProfile", "scavenger").is_ok());
}
