use super::*;
use crate::requirements::{PROPERTIES, Preference, Requirements};
use crate::selector::{Library, select};
use uts_functions::PathFacts;

fn requirements(named: &Named) -> Requirements {
    let mut requirements = Requirements::bulk();
    requirements.set("uts.profile", &named.name).unwrap_or_else(|e| panic!("{}: {e}", named.name));
    requirements
}

#[test]
fn every_file_is_read() {
    for (name, text) in FILES {
        let read = Named::read(name, name, text).unwrap_or_else(|error| panic!("{error}"));
        assert!(!read.what.is_empty() && !read.settings.is_empty(), "{name}");
        assert_eq!(read.kind == Kind::Classic, read.pinned().len() >= 10, "{name}");
        // How a protocol finds its losses tells it from others.
        let names = |function| read.pinned().iter().any(|(f, _)| *f == function);
        assert!(read.kind != Kind::Classic || names(Function::Finding), "{name} names no finding");
    }
    assert_eq!(all().len(), FILES.len());
    let of = |kind| all().iter().filter(|n| n.kind == kind).count();
    assert_eq!((of(Kind::Classic), of(Kind::Modern), of(Kind::ServiceClass)), (17, 11, 9));
}

/// Each leads to a profile that has what it names, and that can be put together.
#[test]
fn every_one_is_chosen_as_it_is_named() {
    for named in all() {
        let requirements = requirements(named);
        let selection = select(&requirements, &PathFacts::default(), &Library::local(), None)
            .unwrap_or_else(|error| panic!("{}: {error}", named.name));
        for (function, mechanism) in named.pinned() {
            let pinned = requirements.pinned(function).map(|pin| pin.choice);
            assert_eq!(Some(*selection.profile.get(function)), pinned, "{}: {mechanism}", named.name);
        }
        assert_eq!(selection.profile.check(), Ok(()), "{}", named.name);
    }
}

/// Functions that a service class must have (table 3.2) are in its profile.
#[test]
fn service_classes_have_what_is_mandatory() {
    for named in all().iter().filter(|n| n.kind == Kind::ServiceClass) {
        let class = named.reliability_class.as_deref().unwrap_or_default();
        let column = CLASS_NAMES.iter().position(|name| *name == class).expect("one of the four");
        let selection = select(&requirements(named), &PathFacts::default(), &Library::local(), None)
            .unwrap_or_else(|error| panic!("{}: {error}", named.name));
        let has = |function| !selection.profile.is_inert(function);
        for (what, marks) in CLASSES {
            let is_there = match what {
                // Whatever comes late is held back for it, or passed over.
                "ordered delivery" => {
                    let sequencing = selection.profile.mechanism(Function::Sequencing);
                    sequencing.is_some_and(|mechanism| mechanism.name != "unordered")
                }
                "loss management" => has(Function::Retransmission) || has(Function::Fec),
                "congestion management" => has(Function::Congestion),
                "data flow management" => has(Function::Flow),
                "segmentation and reassembly" => true,
                _ => panic!("table 3.2 has no row {what}"),
            };
            assert!(is_there || marks[column] == 'O', "{}: {what}", named.name);
        }
    }
}

/// Table 4.1: the transport class of each, and whether it asks for order, priority and multicast.
#[test]
fn service_classes_are_those_of_the_table() {
    const ISOCHRONOUS: [&str; 2] = ["interactive isochronous", "distributional isochronous"];
    const OTHERS: [&str; 2] = ["real-time non-isochronous", "non-real-time non-isochronous"];
    for (name, class, column, has_priority, is_multicast) in [
        ("voice-conversation", ISOCHRONOUS[0], "RT-U", false, false),
        ("teleconferencing", ISOCHRONOUS[0], "RT-U", true, true),
        ("video-compressed", ISOCHRONOUS[1], "RT-U", true, true),
        ("video-raw", ISOCHRONOUS[1], "RT-U", true, true),
        ("manufacturing-control", OTHERS[0], "RT-R", true, true),
        ("file-transfer", OTHERS[1], "NRT-R", false, false),
        ("telnet", OTHERS[1], "NRT-R", true, false),
        ("transaction-processing", OTHERS[1], "NRT-R", false, false),
        ("remote-file-service", OTHERS[1], "NRT-R", false, true),
    ] {
        let named = find(name).expect("listed");
        assert_eq!(named.transport_class.as_deref(), Some(class), "{name}");
        assert_eq!(named.reliability_class.as_deref(), Some(column), "{name}");
        let has = |property: &str| named.settings.iter().any(|(name, _)| name == property);
        assert_eq!(has("connPriority"), has_priority, "{name}");
        assert_eq!(named.lacks.iter().any(|lack| lack.contains("multicast")), is_multicast, "{name}");
    }
    // Of two that set the same, one says so.
    let classes: Vec<&Named> = all().iter().filter(|n| n.kind == Kind::ServiceClass).collect();
    for (n, a) in classes.iter().enumerate() {
        for b in &classes[n + 1..] {
            let says = |one: &Named, other: &Named| one.lacks.iter().any(|lack| lack.contains(&other.name));
            assert!(a.settings != b.settings || says(a, b) || says(b, a), "{} and {}", a.name, b.name);
        }
    }
}

#[test]
fn what_is_set_later_counts_more() {
    let mut requirements = Requirements::default();
    for text in ["uts.profile=tcp-tahoe", "uts.profile.congestion=reno", "uts.adapt=on"] {
        requirements.assign(text).expect("known");
    }
    assert!(requirements.adapt);
    let pin = requirements.pinned(Function::Congestion).expect("set").to_string();
    assert_eq!(pin, "uts.profile.congestion=reno");
    assert!(requirements.pinned(Function::Detection).is_some());
}

#[test]
fn an_unknown_name_is_answered_with_the_nearest() {
    let mut requirements = Requirements::default();
    let error = requirements.assign("uts.profile=tcp-tahoo").expect_err("unknown").to_string();
    assert_eq!(error, "there is no profile `tcp-tahoo`; did you mean `tcp-tahoe`?");
    assert_eq!(requirements, Requirements::default());
}

/// Whatever is wrong is said in one line: file, line, what, and what would be right.
#[test]
fn a_wrong_file_is_told_where_it_is_wrong() {
    let cases = [
        ("what = \"x\"\n[profil]\n", "own.toml:2: there is no key `profil`; did you mean `profile`?"),
        (
            "[profile]\ncongestoin = \"reno\"\n",
            "own.toml:2: there is no function `congestoin`; did you mean `congestion`?",
        ),
        ("[profile]\n\ncongestion = \"renoo\"\n", "did you mean `reno`?"),
        ("[profile]\ncongestion = \"reno(initial=11)\"\n", "reno: initial = 11 is outside 1..=10 packets"),
        (
            "[profile]\ncongestion = \"reno(start=1)\"\n",
            "reno has no parameter `start` (it has: initial, count, burst)",
        ),
        (
            "[properties]\nreliabilty = \"require\"\n",
            "own.toml:2: there is no property `reliabilty`; did you mean `reliability`?",
        ),
        ("[properties]\nreliability = 3\n", "own.toml:2: `reliability` is not a text in quotation marks"),
        (
            "kind = \"clasic\"\n",
            "own.toml:1: no kind `clasic` (there are: classic, modern, service class, own)",
        ),
        ("what = \n", "own.toml:1: "),
    ];
    for (text, expected) in cases {
        let error = Named::read("own", "own.toml", text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.starts_with("own.toml:") && !error.contains('\n'), "{error}");
    }
}

/// The requirements of a profile over the defaults.
fn by_name(named: &Named) -> Requirements {
    let mut requirements = Requirements::default();
    for (property, value) in &named.settings {
        requirements.set(property, value).expect("a valid setting");
    }
    requirements
}

/// One name says one thing: a profile that is called as a value of a property is that value and
/// nothing else, whatever the property.
#[test]
fn a_profile_that_is_called_as_a_value_is_that_value() {
    let mut pairs = Vec::new();
    for (named, property) in all().iter().flat_map(|named| PROPERTIES.iter().map(move |p| (named, p))) {
        let mut by_property = Requirements::default();
        if by_property.set(property.name, &named.name).is_ok() {
            pairs.push((property.name, named.name.as_str()));
            assert_eq!(by_name(named), by_property, "{}={}", property.name, named.name);
        }
    }
    assert_eq!(pairs, [("connCapacityProfile", "scavenger")]);
}

/// The library builds by a name what the profile of that name sets.
#[test]
fn what_the_library_builds_is_the_profile_of_that_name() {
    let lifetime = core::time::Duration::from_millis(150);
    for (name, built) in [
        ("bulk", Requirements::bulk()),
        ("interactive", Requirements::interactive()),
        ("messages", Requirements::messages()),
        ("datagrams", Requirements::datagrams()),
        ("media", Requirements::media(lifetime)),
        ("timely", Requirements::timely(lifetime)),
    ] {
        assert_eq!(by_name(find(name).expect("it exists")), built, "{name}");
    }
    let [media, timely, voice] = ["media", "timely", "voice"].map(|n| by_name(find(n).expect("it exists")));
    assert_eq!(timely, Requirements { reliability: Preference::NoPreference, ..media.clone() });
    // Speech asks for an answer, of which media says nothing.
    let interactive = Requirements::interactive().conn_capacity_profile;
    assert_eq!(voice, Requirements { conn_capacity_profile: interactive, ..media });
}
