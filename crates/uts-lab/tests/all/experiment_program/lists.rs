//! Lists of what can be done, and of what was.

use super::*;

#[test]
fn the_doctor_says_what_can_be_done_and_what_would_allow_the_rest() {
    let bench = Bench::new(VOICE);
    let output = bench.lab(&["doctor", "--json"]).env("UTS_RIVALS", "/nowhere").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let findings: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for area in ["sim", "relay", "router", "machine", "transports", "programs"] {
        assert!(findings.iter().any(|finding| finding["area"] == area), "{area}: {text}");
    }
    let lacking = findings.iter().any(|f| f["needed"] == true && f["can"] == false);
    assert_eq!(output.status.code(), Some(i32::from(lacking)), "{text}");
    let rivals = findings.iter().find(|f| f["what"].as_str().unwrap().starts_with("rivals")).unwrap();
    assert!(rivals["found"].as_str().unwrap().contains("UTS_RIVALS names /nowhere"), "{rivals}");
    let (_, plain) = bench.output(&["doctor"]);
    assert!(plain.contains("yes sim        virtual time: "), "{plain}");
    for finding in findings.iter().filter(|f| f["can"] == true) {
        assert!(finding["command"].is_null(), "what can be done needs no command: {finding}");
    }
}

#[test]
fn lists_show_experiments_and_results() {
    let bench = Bench::new(&VOICE.replace("relay", "sim"));
    fs::write(bench.path("broken.toml"), "title = 3\n").unwrap();
    let (status, said) = bench.run(&["--only", "transport=udp"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("3 ok, 3 not run"), "{said}");
    let (_, folder) = bench.output(&["list", "."]);
    assert!(folder.contains("6 runs in sim     Voice"), "{folder}");
    assert!(
        folder.starts_with("./broken.toml:1:1: transport: is missing; expected at least one table"),
        "{folder}"
    );
    assert!(folder.contains("3 ok, 3 not run of 6: Voice"), "{folder}");
    let (_, file) = bench.output(&["list", "e.toml"]);
    assert_eq!(file.matches("sim.udp.voice.wan.r").count(), 3, "{file}");
    let (status, said) = bench.run(&["--only", "transport=utp"]);
    assert!(
        status == Some(1) && said.contains("--only transport=utp: no run of the experiment is so"),
        "{said}"
    );
    let (status, said) = bench.output(&["run", "nowhere.toml"]);
    assert!(status == Some(1) && said.contains("cannot read nowhere.toml"), "{said}");
    let (status, said) = bench.output(&["run", "broken.toml"]);
    assert!(status == Some(1) && said.contains("uts-lab: broken.toml:1:1: "), "{said}");
    assert!(!bench.path("lab-out").exists(), "a broken file leaves nothing");
}
