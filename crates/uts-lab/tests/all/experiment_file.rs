//! Meaning of experiment files, and the errors of broken ones: the line, the key, and what was
//! expected.

use std::path::Path;
use uts_lab::experiment::file::Experiment;
use uts_lab::experiment::plan::Plan;

const GOOD: &str = r#"title = "Loss"
world = ["sim", "relay"]
repetitions = 2
seed = 7

[path.wan]
forward = "rate=20mbit delay=10ms buffer=64p"

[workload.file]
kind = "bulk"
bytes = "2MB"

[transport.uts]
kind = "uts"

[transport.cubic]
kind = "tcp"
congestion = "cubic"
window = "48kB"

[[sweep]]
key = "path.wan.loss"
values = [0, 0.01, "ge:0.05,4"]

[[plot]]
kind = "sweep"
x = "loss"
y = "goodput_share"
"#;

fn read(text: &str) -> Experiment {
    Experiment::parse(Path::new("e.toml"), text).unwrap_or_else(|e| panic!("{e}"))
}

/// Message for a file in which a piece is replaced.
fn broken(piece: &str, by: &str) -> String {
    assert!(GOOD.contains(piece), "{piece}");
    said(&GOOD.replacen(piece, by, 1))
}

fn said(text: &str) -> String {
    match Experiment::parse(Path::new("e.toml"), text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn every_kind_of_mistake_is_named_with_its_line_and_key() {
    let more = |table: &str| said(&format!("{GOOD}{table}"));
    let cases = [
        // Not TOML.
        (broken("repetitions = 2", "repetitions = "), "e.toml:3:15: "),
        (broken("[path.wan]", "[path.wan"), "e.toml:6:"),
        (broken("seed = 7", "seed = 7\nseed = 8"), "e.toml:5:1: duplicate key"),
        // Keys.
        (
            broken("repetitions = 2", "repetitoins = 2"),
            "e.toml:3:1: repetitoins: there is no key `repetitoins`; did you mean `repetitions`?",
        ),
        (
            broken("forward =", "forwrad ="),
            "e.toml:7:1: path.wan.forwrad: there is no key `forwrad`; did you mean `forward`?",
        ),
        (broken("forward =", "forwrad ="), "e.toml:6:7: path.wan.forward: is missing; expected settings"),
        (broken("title = \"Loss\"", ""), "e.toml:1:1: title: is missing; expected a line that says"),
        (
            broken("[workload.file]\nkind = \"bulk\"\nbytes = \"2MB\"\n", ""),
            "workload: is missing; expected at least one table [workload.NAME]",
        ),
        (broken("kind = \"uts\"", ""), "e.toml:13:12: transport.uts.kind: is missing"),
        // Types and ranges.
        (
            broken("repetitions = 2", "repetitions = \"two\""),
            "e.toml:3:15: repetitions: expected a whole number between 1 and 10000, not a string",
        ),
        (
            broken("repetitions = 2", "repetitions = 0"),
            "e.toml:3:15: repetitions: 0 is not a whole number between 1 and 10000",
        ),
        (broken("seed = 7", "seed = -7"), "e.toml:4:8: seed: -7 is not a whole number"),
        (
            broken("seed = 7", "seed = 7\ntimeout = 20"),
            "e.toml:5:11: timeout: expected a time with its unit, as \"20ms\" or \"1.5s\", not an integer",
        ),
        (broken("seed = 7", "seed = 7\ntimeout = \"0s\""), "e.toml:5:11: timeout: must be more than 0"),
        (
            broken("seed = 7", "seed = 7\nalone = \"yes\""),
            "e.toml:5:9: alone: expected true or false, not a string",
        ),
        (
            broken("[path.wan]\nforward = \"rate=20mbit delay=10ms buffer=64p\"", "path = 3"),
            "e.toml:6:8: path: expected a table, written [path], not an integer",
        ),
        (
            broken("[path.wan]", "[path.\"a b\"]"),
            "e.toml:6:7: path.a b: a name has 1 to 40 letters, digits, - and _",
        ),
        // Worlds and topologies.
        (
            broken("\"relay\"", "\"rely\""),
            "e.toml:2:17: world: there is no world `rely`; did you mean `relay`?",
        ),
        (
            broken("[\"sim\", \"relay\"]", "[]"),
            "e.toml:2:9: world: expected \"sim\", \"relay\" or \"router\"",
        ),
        (
            more("[topology]\nkind = \"ring\"\n"),
            "topology.kind: there is no topology `ring`; there are point-to-point, dumbbell, chain",
        ),
        (
            more("[topology]\nkind = \"dumbbell\"\n"),
            "topology.pairs: is missing; expected the number of pairs of hosts",
        ),
        (
            more("[topology]\nkind = \"dumbbell\"\npairs = 65\n"),
            "topology.pairs: 65 is not a whole number between 1 and 64",
        ),
        (
            more("[topology]\nkind = \"chain\"\npaths = [\"wan\", \"lan\"]\n"),
            "topology.paths: there is no path `lan`; did you mean `wan`?",
        ),
        // Paths.
        (
            broken("buffer=64p", "bufer=64p"),
            "e.toml:7:11: path.wan.forward: bufer=64p: unknown setting; did you mean `buffer`?",
        ),
        (broken("rate=20mbit", "rate=fast"), "path.wan.forward: rate=fast: must be a rate"),
        (
            broken("rate=20mbit", "loss=1.5"),
            "path.wan.forward: loss=1.5: probability must be between 0 and 1",
        ),
        (
            broken("buffer=64p\"", "buffer=64p\"\nschedule = \"at=soon both down\""),
            "e.toml:8:13: path.wan.schedule: at=soon: must be a time",
        ),
        (
            broken("rate=20mbit", "rate=trace:nowhere"),
            "e.toml:7:11: path.wan.forward: rate=trace:nowhere: cannot read it",
        ),
        (
            broken("buffer=64p\"", "buffer=64p\"\nbackward = \"rate=trace:nowhere\""),
            "e.toml:8:12: path.wan.backward: rate=trace:nowhere: cannot read it",
        ),
        (
            broken(
                "buffer=64p\"",
                "buffer=64p\"\nschedule = \"\"\"\nat=1s both down\nat=2s both rate=trace:nowhere\n\"\"\"",
            ),
            "e.toml:10:12: path.wan.schedule: rate=trace:nowhere: cannot read it",
        ),
        (
            broken(
                "key = \"path.wan.loss\"\nvalues = [0, 0.01",
                "key = \"path.wan.rate\"\nvalues = [\"trace:no\"",
            ),
            "e.toml:23:11: sweep.values: rate=trace:no: cannot read it",
        ),
        // A schedule is in order; the line is that of the change.
        (
            broken("buffer=64p\"", "buffer=64p\"\nschedule = \"at=20s both down; at=10s both up\""),
            "e.toml:8:31: path.wan.schedule: at=10s both up: is due before at=20s, behind which it stands",
        ),
        (
            broken(
                "buffer=64p\"",
                "buffer=64p\"\nschedule = \"\"\"\nat=1s both down\nat=20s both up\nat=3s both down\n\"\"\"",
            ),
            "e.toml:11:1: path.wan.schedule: at=3s both down: is due before at=20s, behind which it stands",
        ),
        // Workloads and transports.
        (
            broken("kind = \"bulk\"", "kind = \"bluk\""),
            "e.toml:10:1: workload.file.kind: unknown variant `bluk`",
        ),
        (broken("kind = \"bulk\"", "kind = \"bluk\""), "did you mean `bulk`?"),
        (
            broken("bytes = \"2MB\"", "bytes = \"2 apples\""),
            "e.toml:11:1: workload.file.bytes: `2 apples` is not a size with its unit",
        ),
        (broken("bytes = \"2MB\"", "byts = \"2MB\""), "workload.file.byts: unknown field `byts`"),
        (broken("bytes = \"2MB\"", "bytes = 0"), "workload.file.bytes: 0 is less than 1"),
        (
            broken("kind = \"uts\"", "kind = \"utc\""),
            "transport.uts: there is no transport `utc`; did you mean `uts`?",
        ),
        (
            broken("congestion = \"cubic\"", "congestoin = \"cubic\""),
            "e.toml:18:1: transport.cubic.congestoin: tcp: unknown field `congestoin`",
        ),
        (
            broken("window = \"48kB\"", "window = \"wide\""),
            "e.toml:19:1: transport.cubic.window: tcp: window: `wide` is not a size",
        ),
        // Sweeps.
        (
            broken("key = \"path.wan.loss\"", "key = \"path.lan.loss\""),
            "e.toml:22:7: sweep.key: there is no path `lan`; did you mean `wan`?",
        ),
        (
            broken("key = \"path.wan.loss\"", "key = \"loss\""),
            "sweep.key: `loss` is nothing that can be varied; expected path.NAME.SETTING",
        ),
        (
            broken("key = \"path.wan.loss\"", "key = \"transport.ctcp.window\""),
            "sweep.key: there is no transport `ctcp`",
        ),
        (
            broken("key = \"path.wan.loss\"", "key = \"path.wan.los\""),
            "sweep.values: los=0: unknown setting; did you mean `loss`?",
        ),
        (
            broken("key = \"path.wan.loss\"", "key = \"transport.cubic.windw\""),
            "sweep.values: tcp: unknown field `windw`",
        ),
        (broken("key = \"path.wan.loss\"", "key = \"transport.*.congestion\""), "sweep.values: "),
        (
            broken("0.01, \"ge", "1.01, \"ge"),
            "e.toml:23:14: sweep.values: loss=1.01: probability must be between 0 and 1",
        ),
        (broken("0.01, \"ge", "0, \"ge"), "e.toml:23:14: sweep.values: 0 is here twice"),
        (
            broken("values = [0, 0.01, \"ge:0.05,4\"]", "values = []"),
            "e.toml:23:10: sweep.values: expected at least one value",
        ),
        (
            broken("values = [0, 0.01, \"ge:0.05,4\"]", ""),
            "sweep.values: is missing; expected a list of values",
        ),
        (
            broken("values = [0, 0.01, \"ge:0.05,4\"]", "range = { from = 1, to = 0, step = 1 }"),
            "expected a `step` above 0 with from <= to",
        ),
        (broken("values = [0, 0.01, \"ge:0.05,4\"]", "range = { from = 0, to = 1 }"), "or a `count`"),
        (
            broken("values = [0", "range = { from = 1, to = 2, count = 2 }\nvalues = [0"),
            "e.toml:23:9: sweep.range: a sweep has `values` or a `range`, not both",
        ),
        (
            more("[[sweep]]\nkey = \"path.wan.backward.loss\"\nvalues = [0]\n"),
            "sweep.name: there is a sweep `loss` already",
        ),
        (
            more("[[sweep]]\nname = \"flow\"\nkey = \"path.wan.rate\"\nvalues = [\"1mbit\"]\n"),
            "sweep.name: `flow` is a column already",
        ),
        // Mixtures.
        (
            more("[[mixture.two]]\ntransport = \"uts\"\nworkload = \"fiel\"\n"),
            "mixture.two.workload: there is no workload `fiel`; did you mean `file`?",
        ),
        (more("[[mixture.two]]\nworkload = \"file\"\n"), "mixture.two.transport: is missing"),
        (
            more("[[mixture.two]]\ntransport = \"uts\"\nworkload = \"file\"\nfrom = \"client3\"\n"),
            "mixture.two.from: there is no host `client3`; did you mean `client`?",
        ),
        (
            more("[[mixture.two]]\ntransport = \"uts\"\nworkload = \"file\"\nto = \"client\"\n"),
            "mixture.two.to: `client` and `client` are on the same side",
        ),
        // Background traffic.
        (
            more("[source.x]\nkind = \"poison\"\nrate = \"1mbit\"\n"),
            "e.toml:30:1: source.x.kind: unknown variant `poison`, expected one of `constant`, `poisson`, `on-off`, \
             `pareto`, `self-similar`; did you mean `poisson`?",
        ),
        (more("[source.x]\nrate = \"1mbit\"\n"), "source.x.kind: is missing"),
        (more("[source.x]\nkind = \"poisson\"\n"), "e.toml:29:9: source.x: missing field `rate`"),
        (
            more("[source.x]\nkind = \"poisson\"\nrate = \"fast\"\n"),
            "e.toml:31:1: source.x.rate: `fast` is not a rate with its unit",
        ),
        (
            more("[source.x]\nkind = \"poisson\"\nrate = \"1mbit\"\npakcet = 100\n"),
            "e.toml:32:1: source.x.pakcet: unknown field `pakcet`",
        ),
        (
            more("[source.x]\nkind = \"on-off\"\nrate = \"1mbit\"\non = \"1s\"\n"),
            "source.x: off: is missing; kind `on-off` wants it",
        ),
        (
            more("[source.x]\nkind = \"pareto\"\nrate = \"1mbit\"\non = \"1s\"\noff = \"1s\"\nshape = 1\n"),
            "e.toml:34:1: source.x.shape: 1 is not between 1.01 and 10",
        ),
        (
            more("[source.x]\nkind = \"poisson\"\nrate = \"1mbit\"\nfrom = \"clinet\"\n"),
            "e.toml:32:1: source.x.from: there is no node `clinet`; did you mean `client`?",
        ),
        (
            more("[source.x]\nkind = \"poisson\"\nrate = \"1mbit\"\nto = \"client\"\n"),
            "e.toml:32:1: source.x.to: `client` is where its packets enter, too",
        ),
        (
            more(
                "[source.x]\nkind = \"poisson\"\nrate = \"1mbit\"\n[[sweep]]\nkey = \"source.y.rate\"\nvalues = [1]\n",
            ),
            "sweep.key: there is no source `y`; there are x",
        ),
        (
            more(
                "[source.x]\nkind = \"poisson\"\nrate = \"1mbit\"\n[[sweep]]\nkey = \"source.x.rate\"\nvalues = [0]\n",
            ),
            "e.toml:34:11: sweep.values: must be above 0",
        ),
        // What is recorded and shown.
        (more("[record]\npcaps = true\n"), "record.pcaps: there is no key `pcaps`; did you mean `pcap`?"),
        (more("[hosts]\nmtu = 100\n"), "hosts.mtu: 100 is not a whole number between 576 and 65535"),
        (
            more("[hosts.costs]\nclients = \"latency=5us\"\n"),
            "hosts.costs.clients: there is no host `clients`; did you mean `client`?",
        ),
        (
            more("[hosts.costs]\nall = \"copy_on=5us\"\n"),
            "hosts.costs.all: copy_on=5us: unknown setting; there are copy_in,",
        ),
        (
            more("[hosts.costs]\nall = \"protection/aes-129-gcm=5us\"\n"),
            "hosts.costs.all: protection/aes-129-gcm=5us: there is no mechanism `protection/aes-129-gcm`; did you mean \
             `protection/aes-128-gcm`?",
        ),
        (more("[hosts.costs]\nserver = 5\n"), "hosts.costs.server: expected costs, as \"copy_in"),
        (broken("kind = \"sweep\"", "kind = \"sweeep\""), "unknown variant `sweeep`"),
        (
            broken("x = \"loss\"", "x = \"los\""),
            "e.toml:27:5: plot.x: there is no sweep `los`; did you mean `loss`?",
        ),
        (broken("y = \"goodput_share\"", "yy = 3"), "e.toml:28:6: plot.yy: unknown field `yy`"),
    ];
    let wrong = cases.iter().filter(|(said, wanted)| !said.contains(wanted));
    let wrong: Vec<String> = wrong.map(|(said, wanted)| format!("wanted: {wanted}\nsaid: {said}")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once_and_quoted() {
    let text = GOOD.replace("seed = 7", "seed = true").replace("buffer=64p", "buffer=many");
    let said = said(&text);
    assert!(said.contains("4 | seed = true\n  |        ^^^^"), "{said}");
    assert!(said.contains("e.toml:7:11: path.wan.forward: buffer=many: must be packets"), "{said}");
    assert!(said.find(":4:8").unwrap() < said.find(":7:11").unwrap(), "in order of place: {said}");
}

#[test]
fn all_mistakes_of_the_text_are_told_at_once() {
    let text = GOOD.replace("seed = 7", "seed = ").replace("bytes = \"2MB\"", "bytes = \"2MB");
    let said = said(&text);
    assert!(said.contains("e.toml:4:"), "{said}");
    let line = GOOD.lines().position(|line| line.starts_with("bytes = \"2MB")).unwrap() + 1;
    assert!(said.contains(&format!("e.toml:{line}:")), "{said}");
    // What a broken text means is not guessed.
    assert!(!said.contains("expected the"), "{said}");
}

/// Also those that are within one table, or one value, and nothing that is only wrong because of
/// another.
#[test]
fn all_mistakes_of_a_table_and_of_a_value_are_told_at_once() {
    let text = GOOD
        .replace("rate=20mbit delay=10ms", "rate=fast delay=ten")
        .replace("bytes = \"2MB\"", "bytes = \"many\"\nduration = 7\nsize = 3")
        .replace(
            "kind = \"uts\"",
            "kind = \"uts\"\nwindow = \"wide\"\nproperties = { reliabilty = \"require\", msgLifetime = \"soon\" }",
        )
        .replace("congestion = \"cubic\"\nwindow = \"48kB\"", "congestoin = \"cubic\"\nwindow = \"48\"");
    let said = said(&text);
    for part in [
        "path.wan.forward: rate=fast: ",
        "path.wan.forward: delay=ten: ",
        "workload.file.bytes: ",
        "workload.file.duration: ",
        "workload.file.size: unknown field `size`",
        "transport.uts.window: ",
        "transport.uts.properties: uts: properties: there is no property `reliabilty`",
        "transport.uts.properties: uts: properties: msgLifetime",
        "transport.cubic.congestoin: ",
        "transport.cubic.window: ",
    ] {
        assert!(said.contains(part), "no `{part}` in\n{said}");
    }
    assert_eq!(said.matches("e.toml:").count(), 10, "{said}");
    let once = broken("bytes = \"2MB\"", "bytes = \"many\"");
    assert_eq!(once.matches("e.toml:").count(), 1, "that there is no number is not another: {once}");
}

#[test]
fn a_plan_has_each_combination_once_and_all_first_repetitions_first() {
    let experiment = read(GOOD);
    let plan = Plan::new(&experiment, &[]).unwrap();
    assert_eq!(plan.cases.len(), 2 * 2 * 3 * 2, "worlds, transports, losses, repetitions");
    assert!(plan.cases[..12].iter().all(|case| (case.repetition, case.seed) == (1, 7)));
    assert!(plan.cases[12..].iter().all(|case| (case.repetition, case.seed) == (2, 8)));
    assert_eq!(plan.cases[1].sweep, [("loss".to_owned(), "0.01".to_owned())]);
    assert!(plan.cases[1].hops[0].forward.ends_with("loss=0.01"));
    assert_eq!(plan.cases[1].hops[0].backward, plan.cases[1].hops[0].forward);
    assert!(plan.ids[1].starts_with("sim.uts.file.wan.loss-0.01.r1."), "{}", plan.ids[1]);
    assert_eq!(Plan::new(&experiment, &[]).unwrap().ids, plan.ids, "names are always the same");
}

#[test]
fn a_run_has_another_name_when_anything_of_it_differs() {
    let plan = Plan::new(&read(GOOD), &[]).unwrap();
    for (piece, by) in
        [("delay=10ms", "delay=11ms"), ("2MB", "3MB"), ("48kB", "49kB"), ("seed = 7", "seed = 8")]
    {
        let other = Plan::new(&read(&GOOD.replacen(piece, by, 1)), &[]).unwrap();
        let same = plan.ids.iter().zip(&other.ids).filter(|(a, b)| a == b).count();
        let expected = if piece == "48kB" { plan.ids.len() / 2 } else { 0 };
        assert_eq!(same, expected, "{piece}");
    }
    let titled = Plan::new(&read(&GOOD.replacen("Loss", "Other", 1)), &[]).unwrap();
    assert_eq!(titled.ids, plan.ids, "a title is not part of a run");
}

#[test]
fn sweeps_concern_only_what_they_change() {
    let text = GOOD
        .replace("path.wan.loss", "transport.cubic.window")
        .replace("[0, 0.01, \"ge:0.05,4\"]", "[\"32kB\", \"48kB\"]");
    let text = text.replace("x = \"loss\"", "x = \"window\"");
    let plan = Plan::new(&read(&text), &[]).unwrap();
    let swept = plan.cases.iter().filter(|case| !case.sweep.is_empty()).count();
    assert_eq!((plan.cases.len(), swept), (2 * 2 * 3, 2 * 2 * 2), "uts runs once, cubic with both windows");

    // All that know the setting.
    let raw = format!(
        "{}[transport.udp]\nkind = \"udp\"\n",
        text.replace("transport.cubic.window", "transport.*.window")
    );
    let plan = Plan::new(&read(&raw), &[]).unwrap();
    let values = |name: &str| {
        let of = plan.cases.iter().filter(|case| case.transport_name() == name && case.repetition == 1);
        of.map(|case| case.flows[0].transport.settings.get("window").cloned()).collect::<Vec<_>>()
    };
    assert_eq!(values("cubic"), values("uts"));
    assert_eq!(values("cubic")[..2], [Some("32kB".into()), Some("48kB".into())]);
    assert_eq!(values("udp"), [None, None], "one for each world");
}

#[test]
fn ranges_are_exact_and_have_their_unit() {
    let swept = |range: &str, key: &str| {
        let text = GOOD.replace("values = [0, 0.01, \"ge:0.05,4\"]", range).replace("path.wan.loss", key);
        let experiment = read(&text.replace("x = \"loss\"", "x = \"transport\""));
        let sweep = &experiment.sweeps[0];
        let texts: Vec<String> = sweep.values.iter().map(|value| value.text.clone()).collect();
        let record = Plan::new(&experiment, &[]).unwrap().record(&experiment).unwrap();
        let columns: Vec<String> = texts.iter().map(|text| record.sweeps[0].column(text)).collect();
        (texts.join(" "), columns.join(" "))
    };
    let buffers = swept("range = { from = 1, to = 63, step = 31, unit = \"p\" }", "path.wan.buffer");
    assert_eq!(buffers, ("1p 32p 63p".into(), "1 32 63".into()));
    let tenths = swept("range = { from = 0, to = 0.3, step = 0.1 }", "path.wan.loss");
    assert_eq!(tenths.0, "0 0.1 0.2 0.3");
    let rates =
        swept("range = { from = 1, to = 100, count = 3, scale = \"log\", unit = \"mbit\" }", "path.wan.rate");
    assert_eq!(rates, ("1mbit 10mbit 100mbit".into(), "1000000 10000000 100000000".into()));
    let mixed = swept("values = [0, \"ge:0.05,4\"]", "path.wan.loss");
    assert_eq!(mixed.1, "0 ge:0.05,4", "what is no number stays as it is written");
}

#[test]
fn mixtures_run_in_place_of_single_flows_and_get_hosts_in_turn() {
    let mixture = "[topology]\nkind = \"dumbbell\"\npairs = 2\n\
                   [[mixture.both]]\ntransport = \"uts\"\nworkload = \"file\"\n\
                   [[mixture.both]]\ntransport = \"uts\"\nworkload = \"file\"\nstart = \"2s\"\n\
                   [[mixture.both]]\ntransport = \"cubic\"\nworkload = \"file\"\nfrom = \"server1\"\nto = \"client2\"\n";
    let plan = Plan::new(&read(&format!("{GOOD}{mixture}")), &[]).unwrap();
    assert_eq!(plan.cases.len(), 2 * 3 * 2);
    let case = &plan.cases[0];
    assert_eq!((case.mixture.as_deref(), case.transport_name().as_str()), (Some("both"), "uts+uts+cubic"));
    let flows: Vec<_> =
        case.flows.iter().map(|f| (f.name.as_str(), f.from.as_str(), f.to.as_str())).collect();
    assert_eq!(
        flows,
        [("uts", "client1", "server1"), ("uts-2", "client2", "server2"), ("cubic", "server1", "client2")]
    );
    assert_eq!(case.flows[1].start.as_secs(), 2);
    let alone = read(&format!("alone = true\n{GOOD}{mixture}"));
    assert_eq!(Plan::new(&alone, &[]).unwrap().cases.len(), 3 * (2 * 3 * 2));
}

#[test]
fn a_chain_is_one_way_and_other_topologies_one_for_each_path() {
    let paths = format!("{GOOD}[path.lan]\nforward = \"rate=1gbit\"\n");
    let plan = Plan::new(&read(&paths), &[]).unwrap();
    assert_eq!(plan.cases.len(), 2 * 2 * 2 * (3 + 1), "the loss is only of one");
    let chain = format!("{paths}[topology]\nkind = \"chain\"\npaths = [\"lan\", \"wan\", \"lan\"]\n");
    let plan = Plan::new(&read(&chain), &[]).unwrap();
    assert_eq!(plan.cases.len(), 2 * 2 * 2 * 3);
    assert_eq!(plan.cases[0].path_name(), "lan>wan>lan");
}

/// Sources are part of every case, and a case without any has the name that it had before.
#[test]
fn background_traffic_is_the_same_for_all_and_may_be_swept() {
    let with = |more: &str| {
        let text = format!("{GOOD}[source.x]\nkind = \"poisson\"\nrate = \"1mbit\"\n{more}");
        Plan::new(&read(&text), &[]).map_err(|e| format!("{e:#}"))
    };
    let plan = with("").unwrap();
    let plain = Plan::new(&read(GOOD), &[]).unwrap();
    assert_eq!(plan.cases.len(), plain.cases.len());
    let first = &plan.cases[0].sources[0];
    assert!(plan.cases.iter().all(|case| case.sources == [first.clone()]));
    assert_eq!((first.from.as_str(), first.to.as_str()), ("client", "server"));
    assert!(!serde_json::to_string(&plain.cases[0]).unwrap().contains("source"));

    let swept = with("[[sweep]]\nkey = \"source.*.rate\"\nvalues = [\"1mbit\", \"2mbit\"]\n").unwrap();
    assert_eq!(swept.cases.len(), 2 * plain.cases.len());
    assert!(swept.cases.iter().any(|case| case.sources[0].spec.rate_bps == 2_000_000));
    let chain = "[topology]\nkind = \"chain\"\npaths = [\"wan\", \"wan\"]\n";
    let crossing = with(&format!("from = \"router1\"\n{chain}")).unwrap();
    assert_eq!(crossing.cases[0].sources[0].from, "router1");

    let long = with("packet = \"4000B\"\n").unwrap_err();
    assert_eq!(
        long,
        "with path.wan.loss = 0: source.x.packet: 4000 bytes are more than the 1500 of hosts.mtu; expected fewer, or \
         fragments = true"
    );
    assert!(with("packet = \"4000B\"\nfragments = true\n").is_ok());
}

#[test]
fn the_experiments_of_this_repository_make_sense() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    assert!(!files.is_empty());
    for file in files {
        let experiment = Experiment::load(&file).unwrap_or_else(|e| panic!("{e:#}"));
        let plan = Plan::new(&experiment, &[]).unwrap_or_else(|e| panic!("{}: {e:#}", file.display()));
        assert!(!plan.cases.is_empty(), "{}", file.display());
    }
}
