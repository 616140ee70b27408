//! Epochs in use, as flows see them, and profiles on the wire.

use super::*;
use crate::connection::receive::contents::Contents;
use crate::connection::receive::inbound::Arrived;
use crate::connection::testing;
use uts_functions::flow;

/// A flow whose group nothing has told yet takes part in an exchange of group 0: what it is
/// granted by that is good for the group that its first data then names (flow.md R-1).
#[test]
fn what_was_granted_before_the_group_is_known_stays_granted() {
    for name in ["credit", "stop-and-wait", "sliding-window"] {
        let mut ways = testing::ways();
        assert!(ways.flows.of_frame(1).is_ok_and(|found| found.is_some()));
        let receive = &mut ways.flows.get_mut(1).expect("open").receive;
        let granted = receive.free_limit + 100_000;
        receive.grant.limit = granted;
        let flow = profile().with_named(Function::Flow, name).expect("it exists");
        let flow = flow::Slot::build(flow.get(Function::Flow), ()).expect("in range");
        receive.begin_with(&flow, 8192);
        assert!(receive.limit() >= granted, "{name}: {} of {granted}", receive.limit());
    }
}

fn profile() -> Profile {
    Profile::bare().with_named(Function::Protection, "aes-128-gcm").expect("it exists")
}

/// A sender without a limit has lost data, repeats it under one that it was granted since, and
/// nothing of the flow came before: it has broken no rule (flow.md R-39).
#[test]
fn what_may_have_left_without_a_limit_is_dropped_beyond_one() {
    for has_come_free in [false, true] {
        let mut ways = testing::ways();
        ways.flows.has_come_free = has_come_free;
        ways.adopt_flow_control(Time::ZERO, 0);
        // Whether anything of the flow has come makes no difference.
        let unknown = frame::Data {
            flow: 3,
            offset: Some(ways.config.first_credit()),
            flags: frame::DataFlags::default(),
            has_len: false,
            bytes: b"data",
        };
        assert_eq!(ways.overruns(0, &Contents::Data(unknown)), has_come_free);
        assert!(ways.flows.of_frame(1).is_ok_and(|found| found.is_some()));
        let limit = ways.flows.get(1).expect("open").receive.limit();
        let data = |offset, bytes| frame::Data {
            flow: 1,
            offset: Some(offset),
            flags: frame::DataFlags::default(),
            has_len: false,
            bytes,
        };
        let (within, beyond) = (data(0, b"data"), data(limit, b"data"));
        assert!(!ways.overruns(0, &Contents::Data(within)));
        assert_eq!(ways.overruns(0, &Contents::Data(beyond)), has_come_free);
    }
}

/// The first data of a flow that comes is not its first: packets were too large, and nothing is
/// repeated. Its epoch grants nothing, though the flow began with credit (flow.md R-39).
#[test]
fn first_data_of_an_epoch_that_grants_nothing_has_no_limit() {
    let mut ways = testing::ways_with(&[(Function::Flow, "none")]);
    ways.flows.has_come_free = true;
    assert!(ways.flows.of_frame(1).is_ok_and(|found| found.is_some()));
    let receive = &mut ways.flows.get_mut(1).expect("open").receive;
    let credit = profile().with_named(Function::Flow, "credit").expect("it exists");
    let credit = flow::Slot::build(credit.get(Function::Flow), ()).expect("in range");
    receive.begin_with(&credit, 8192);
    assert!(!receive.is_free());
    let offset = receive.limit() + 1000;
    let flags = frame::DataFlags::default();
    let data = frame::Data { flow: 1, offset: Some(offset), flags, has_len: false, bytes: b"data" };
    assert!(!ways.overruns(0, &Contents::Data(data)));
    let at = Arrived::of(Time::ZERO, None, 0, 0);
    assert_eq!(ways.on_data(&at, &data), Ok(()));
    assert!(ways.flows.get(1).expect("open").receive.data.held_bytes() > 0);
}

#[test]
fn profiles_pass_over_the_wire_as_they_are() {
    let mut profile = profile();
    for (function, name) in [(Function::Fec, "reed-solomon"), (Function::Congestion, "bbr")] {
        profile = profile.with_named(function, name).expect("it exists");
    }
    assert_eq!(from_wire(&to_wire(&profile, None), None), (profile, None));
}
