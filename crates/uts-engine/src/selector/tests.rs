use super::*;
use crate::appraisal::testing::path;
use crate::requirements::{CapacityProfile, Preference, Quality, Security};
use core::time::Duration;

fn asked(settings: &[&str]) -> Requirements {
    let mut r = Requirements::default();
    for text in settings {
        r.assign(text).unwrap_or_else(|e| panic!("{e}"));
    }
    r
}

fn selected(r: &Requirements, facts: &PathFacts) -> Selection {
    select(r, facts, &Library::local(), None).unwrap_or_else(|e| panic!("{r}: {e}"))
}

fn refusal(settings: &[&str], facts: &PathFacts) -> Contradiction {
    let r = asked(settings);
    match select(&r, facts, &Library::local(), None) {
        Err(contradiction) => contradiction,
        Ok(s) => panic!("{r} led to {}", s.profile),
    }
}

#[test]
fn first_profile_of_a_bulk_transfer() {
    let s = selected(&Requirements::bulk(), &PathFacts::default());
    assert_eq!(
        s.profile.to_string(),
        "establishment=three-way segmentation=bytes sequencing=ordered retransmission=selective \
         acknowledgement=delayed timing=jacobson flow=credit rate=pacing-bucket congestion=cubic \
         protection=aes-128-gcm finding=overtaken"
    );
    assert_eq!(s.reasons.len(), Function::COUNT);
    assert!(s.reasons.windows(2).all(|w| w[0].function < w[1].function));
    assert!(s.reasons.iter().all(|r| !r.why.is_empty() && r.chosen == s.profile.name(r.function)));
}

#[test]
fn presets_lead_to_their_profiles() {
    let name = |r: &Requirements, f| selected(r, &PathFacts::default()).profile.name(f);
    let media = Requirements::media(Duration::from_millis(200));
    assert_eq!(name(&media, Function::Segmentation), "messages");
    assert_eq!(name(&media, Function::Sequencing), "unordered");
    assert_eq!(name(&media, Function::Retransmission), "none");
    assert_eq!(name(&media, Function::Congestion), "bbr");
    let interactive = Requirements::interactive();
    assert_eq!(name(&interactive, Function::Acknowledgement), "piggybacked");
    assert_eq!(name(&interactive, Function::Congestion), "bbr");
    let messages = Requirements::messages();
    assert_eq!(name(&messages, Function::Segmentation), "messages");
    assert_eq!(name(&messages, Function::Sequencing), "ordered");
    assert_eq!(name(&messages, Function::Retransmission), "selective");
    assert_eq!(name(&messages, Function::Congestion), "cubic");
}

#[test]
fn requirements_steer_their_functions() {
    for (settings, function, mechanism, source) in [
        (
            &["connCapacityProfile=scavenger"][..],
            Function::Congestion,
            "ledbat-plus-plus",
            "connCapacityProfile",
        ),
        (&["uts.maxDelay=80"], Function::Congestion, "bbr", "uts.maxDelay"),
        (&["congestionControl=prohibit"], Function::Congestion, "none", "congestionControl"),
        (&["congestionControl=prohibit"], Function::Rate, "none", "congestionControl"),
        (
            &["congestionControl=prohibit", "maxSendRate=5Mbit"],
            Function::Rate,
            "pacing-bucket",
            "maxSendRate",
        ),
        (&["uts.security=unprotected"], Function::Protection, "none", "uts.security"),
        (&["uts.security=unprotected"], Function::Detection, "crc-32c", "fullChecksumSend"),
        (&["uts.security=required"], Function::Detection, "none", "protection"),
        (&["preserveOrder=avoid"], Function::Segmentation, "messages", "preserveOrder"),
        (
            &["perMsgReliability=require", "preserveMsgBoundaries=avoid"],
            Function::Segmentation,
            "messages",
            "perMsgReliability",
        ),
        (
            &["perMsgReliability=prefer", "preserveMsgBoundaries=avoid"],
            Function::Segmentation,
            "bytes",
            "preserveMsgBoundaries",
        ),
        (&["preserveOrder=no-preference"], Function::Sequencing, "ordered", "segmentation"),
        (&["reliability=no-preference"], Function::Retransmission, "selective", "default"),
        (
            &["reliability=prohibit", "perMsgReliability=prefer"],
            Function::Retransmission,
            "selective",
            "perMsgReliability",
        ),
        (&["uts.profile.fec=xor(data=4)"], Function::Fec, "xor", "pinned"),
        (&["uts.profile.presentation=lz4"], Function::Segmentation, "messages", "presentation"),
    ] {
        let s = selected(&asked(settings), &PathFacts::default());
        let reason = s.reasons.iter().find(|r| r.function == function).unwrap_or_else(|| panic!("no reason"));
        assert_eq!((reason.chosen, reason.source.to_string().as_str()), (mechanism, source), "{settings:?}");
    }
}

#[test]
fn contradictions_name_both_sides() {
    let unknown = PathFacts::default();
    for (settings, rule, start) in [
        (
            &["uts.profile.retransmission=none"][..],
            "S-30",
            "`reliability=require` and `uts.profile.retransmission=none` contradict: without retransmission",
        ),
        (
            &["uts.profile.sequencing=unordered"],
            "S-31",
            "`preserveOrder=require` and `uts.profile.sequencing=unordered` contradict",
        ),
        (
            &["preserveMsgBoundaries=require", "uts.profile.segmentation=bytes"],
            "S-32",
            "`preserveMsgBoundaries=require` and `uts.profile.segmentation=bytes` contradict",
        ),
        (
            &["uts.profile.congestion=none"],
            "S-33",
            "`congestionControl=require` and `uts.profile.congestion=none` contradict",
        ),
        (
            &["congestionControl=prohibit", "uts.profile.congestion=cubic"],
            "S-33",
            "`congestionControl=prohibit` and `uts.profile.congestion=cubic` contradict",
        ),
        (
            &["uts.profile.protection=none"],
            "S-34",
            "`uts.security=required` and `uts.profile.protection=none` contradict",
        ),
        (
            &["maxSendRate=1Mbit", "uts.profile.rate=none"],
            "S-35",
            "`maxSendRate=1 Mbit/s` and `uts.profile.rate=none` contradict",
        ),
        (
            &["maxSendRate=1Mbit", "minSendRate=2Mbit"],
            "S-21",
            "`minSendRate=2 Mbit/s` and `maxSendRate=1 Mbit/s` contradict",
        ),
        (&["msgLifetime=200"], "S-22", "`reliability=require` and `msgLifetime=200 ms` contradict"),
        (
            &["reliability=prefer", "msgLifetime=200", "preserveMsgBoundaries=prohibit"],
            "S-23",
            "`preserveMsgBoundaries=prohibit` and `msgLifetime=200 ms` contradict",
        ),
        (
            &["preserveOrder=prohibit", "preserveMsgBoundaries=prohibit"],
            "S-23",
            "`preserveMsgBoundaries=prohibit` and `preserveOrder=prohibit` contradict",
        ),
        (
            &["fullChecksumSend=prohibit"],
            "S-24",
            "`fullChecksumSend=prohibit` and `uts.security=required` contradict",
        ),
        (
            &["keepAlive=prohibit", "keepAliveTimeout=5"],
            "S-25",
            "`keepAlive=prohibit` and `keepAliveTimeout=5000 ms` contradict",
        ),
        (
            &["preserveMsgBoundaries=prohibit", "uts.profile.presentation=lz4"],
            "S-5",
            "`uts.profile.presentation=lz4` and `preserveMsgBoundaries=prohibit` contradict",
        ),
        (
            &["uts.profile.segmentation=bytes", "uts.profile.presentation=lz4"],
            "S-5",
            "`uts.profile.presentation=lz4` and `uts.profile.segmentation=bytes` contradict",
        ),
    ] {
        let c = refusal(settings, &unknown);
        assert_eq!(c.rule, rule, "{c}");
        assert!(c.to_string().starts_with(start), "{settings:?}: {c}");
    }
    let direct = Requirements { zero_rtt_msg: Preference::Require, ..Requirements::default() };
    let c = select(&direct, &unknown, &Library::local(), None).expect_err("not offered");
    assert!(c.to_string().starts_with("`zeroRttMsg=require` and what UTS offers contradict"), "{c}");
}

#[test]
fn a_known_path_can_contradict() {
    let far = path(50, 100, 0.02, 1.0, 0.0);
    let c = refusal(&["uts.maxDelay=40"], &far);
    assert_eq!(
        c.to_string(),
        "`uts.maxDelay=40 ms` and this path contradict: propagation alone takes 50.0 ms one way"
    );
    let c = refusal(&["uts.maxDelay=120"], &far);
    assert!(c.to_string().starts_with("`preserveOrder=require` and `uts.maxDelay=120 ms` contradict"), "{c}");
    assert!(c.to_string().contains("comes, repeated, 150.0 ms after"), "{c}");
    let c = refusal(&["uts.maxDelay=120", "preserveOrder=prefer"], &far);
    assert!(c.to_string().starts_with("`reliability=require` and `uts.maxDelay=120 ms` contradict"), "{c}");
    let c = refusal(&["minSendRate=80Mbit"], &far);
    assert_eq!(c.to_string(), "`minSendRate=80 Mbit/s` and this path contradict: it delivers 50.0 Mbit/s");
    // The same where nothing is lost, or where something may yield, is possible.
    selected(&asked(&["uts.maxDelay=120"]), &path(50, 100, 0.0, 1.0, 0.0));
    let r = asked(&[
        "uts.maxDelay=120",
        "uts.degradation=order,reliability,delay",
        "preserveMsgBoundaries=require",
    ]);
    let s = selected(&r, &far);
    assert_eq!(s.profile.name(Function::Retransmission), "none");
    assert_eq!(s.profile.name(Function::Sequencing), "unordered");
    assert!(r.yields_before(Quality::Reliability, Quality::Delay));
}

#[test]
fn a_peer_that_lacks_something() {
    let mut peer = Library::local();
    peer.remove(Function::Congestion, 2);
    peer.remove(Function::Protection, 1);
    peer.remove(Function::Rate, 1);
    let s = select(&Requirements::bulk(), &PathFacts::default(), &Library::local(), Some(&peer))
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(peer.has_all(&s.profile));
    let reason = |f| s.reasons.iter().find(|r| r.function == f).map(|r| (r.chosen, r.source, r.why.clone()));
    assert_eq!(
        reason(Function::Congestion),
        Some(("new-reno", Source::Library, "the peer's library has no cubic".to_owned()))
    );
    assert_eq!(reason(Function::Protection).map(|r| r.0), Some("chacha20-poly1305"));
    assert_eq!(reason(Function::Rate).map(|r| r.0), Some("none"));
    let r = asked(&["uts.profile.congestion=cubic"]);
    let c = select(&r, &PathFacts::default(), &Library::local(), Some(&peer)).expect_err("pinned");
    assert_eq!(
        c.to_string(),
        "`uts.profile.congestion=cubic` and the peer's library contradict: it has no cubic"
    );
    peer.remove(Function::Protection, 2);
    let c = select(&Requirements::bulk(), &PathFacts::default(), &Library::local(), Some(&peer))
        .expect_err("no protection");
    assert!(c.to_string().starts_with("`uts.security=required` and the peer's library contradict"), "{c}");
}

#[test]
fn unprotected_needs_both_ends() {
    let r = Requirements { security: Security::Unprotected, ..Requirements::bulk() };
    let peer = Library::offered(&Requirements::bulk());
    let s = select(&r, &PathFacts::default(), &Library::offered(&r), Some(&peer))
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(s.profile.name(Function::Protection), "aes-128-gcm");
    assert_eq!(s.profile.name(Function::Detection), "none");
}

#[test]
fn a_known_path_is_fitted_at_once() {
    let s = selected(&Requirements::bulk(), &path(50, 40, 0.05, 4.0, 0.0));
    assert_eq!(s.profile.name(Function::Congestion), "bbr");
    assert!(s.reasons.iter().any(|r| r.function == Function::Congestion && r.source == Source::Path));
    let s = selected(&Requirements::bulk(), &path(50, 40, 0.0, 1.0, 0.0));
    assert_eq!(s.profile.name(Function::Congestion), "cubic");
    let scavenger =
        Requirements { conn_capacity_profile: CapacityProfile::Scavenger, ..Requirements::default() };
    assert_eq!(
        selected(&scavenger, &path(50, 40, 0.05, 4.0, 0.0)).profile.name(Function::Congestion),
        "ledbat-plus-plus"
    );
}

#[test]
fn explanation_is_a_table_that_adds_up() {
    let e = explain(&Requirements::bulk(), &path(50, 40, 0.05, 4.0, 0.0), &Library::local(), None)
        .unwrap_or_else(|e| panic!("{e}"));
    let p = &e.selection.prediction;
    let sum = |of: fn(&Line) -> f64| e.lines.iter().map(of).sum::<f64>();
    assert!((sum(|l| l.header_bytes) - p.header_bytes).abs() < 1e-9);
    assert!((sum(|l| l.cpu_ns) - p.cpu_ns).abs() < 1e-6);
    let text = e.to_string();
    for function in Function::ALL {
        assert!(text.contains(function.name()), "{text}");
    }
    let table: Vec<&str> = text.lines().skip(3).take(Function::COUNT + 2).collect();
    let column = table[0].find("because").unwrap_or_default();
    assert!(table.iter().all(|l| l.is_char_boundary(column) && l.as_bytes()[column - 1] == b' '), "{text}");
    assert!(text.contains("expected      goodput"), "{text}");
    let unknown = explain(&Requirements::bulk(), &PathFacts::default(), &Library::local(), None)
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(unknown.delay(), None);
    assert!(unknown.to_string().contains("unknown"), "{unknown}");
}

#[test]
fn what_has_no_effect_is_said() {
    let explained = |settings: &[&str]| {
        let facts = path(50, 40, 0.0, 1.0, 0.0);
        explain(&asked(settings), &facts, &Library::local(), None).unwrap_or_else(|e| panic!("{e}"))
    };
    let free = explained(&["maxRecvRate=1Mbit/s", "uts.profile.flow=none"]);
    assert_eq!(free.notes.len(), 1);
    assert!(free.to_string().contains("note          maxRecvRate has no effect"), "{free}");
    for settings in [&["maxRecvRate=1Mbit/s"][..], &["uts.profile.flow=none"], &["maxSendRate=1Mbit/s"]] {
        assert!(explained(settings).notes.is_empty(), "{settings:?}");
    }
}

/// A deadline that cannot be kept is told with what is missing, one that is kept with the share.
#[test]
fn a_deadline_is_told_as_kept_or_missed() {
    let told = |settings: &[&str], facts: &PathFacts| {
        let explained = explain(&asked(settings), facts, &Library::local(), None);
        explained.unwrap_or_else(|e| panic!("{e}"))
    };
    let media = ["reliability=prohibit", "preserveOrder=no-preference", "msgLifetime=100ms"];
    let kept = told(&media, &path(5, 40, 0.02, 1.0, 0.0));
    let timely = kept.timeliness.expect("a deadline on a known path");
    assert!(!timely.is_missed() && timely.in_time_best >= timely.in_time, "{timely:?}");
    assert!(kept.to_string().contains("\ndeadline      9"), "{kept}");
    // The way alone takes longer.
    let far = told(&media, &path(5, 300, 0.02, 1.0, 0.0));
    let text = far.to_string();
    assert!(far.timeliness.is_some_and(|timely| timely.is_missed() && timely.in_time < 0.001), "{far}");
    assert!(
        text.contains("\nmissed        0.0 % arrive within 100 ms; the path alone takes 150 ms one way"),
        "{text}"
    );
    assert!(text.contains("no profile that these requirements permit does better"), "{text}");
    // What is in order waits for what is late.
    let ordered =
        told(&["reliability=prohibit", "msgLifetime=100ms"], &path(5, 150, 0.02, 1.0, 0.0)).to_string();
    assert!(ordered.contains("\nmissed        ") && ordered.contains(" ms too late"), "{ordered}");
    for (settings, facts) in [(&[][..], path(5, 40, 0.02, 1.0, 0.0)), (&media[..], PathFacts::default())] {
        assert_eq!(told(settings, &facts).timeliness, None, "nothing is asked, or nothing is known");
    }
}

/// A profile is chosen for the host that it runs on, and figures are those of that host.
#[test]
fn what_the_host_can_do_is_reckoned_with() {
    let (requirements, facts) = (Requirements::bulk(), path(500, 20, 0.03, 1.0, 0.0));
    let on = |processor| {
        let host = HostFacts { processor, ..HostFacts::default() };
        let told =
            explain_on(&requirements, (&facts, &host), &Library::local(), None).expect("it can be had");
        (told.selection.prediction.goodput(&facts), told.to_string())
    };
    let [(free, unsaid), (busy, said)] = [None, Some(0.01)].map(on);
    assert!(busy < free / 10.0, "{busy} of {free}");
    assert!(said.contains("host          host.processor=1%") && !unsaid.contains("host.processor"), "{said}");
}
