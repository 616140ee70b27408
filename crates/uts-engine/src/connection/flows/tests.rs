//! Flows alone, without a peer: who opens which, the order of sending, and limits.

use super::opening::FlowViolation;
use super::*;

fn config(flows_max: u32) -> Arc<ConnectionConfig> {
    Arc::new(ConnectionConfig { flows_max, ..ConnectionConfig::default() })
}

#[test]
fn flows_take_turns_and_the_important_go_first() {
    let mut flows = Flows::new(Side::Client, config(10), Stores::default());
    flows.opened_max = 10;
    flows.credit_initial_out = 1000;
    let ids: Vec<u32> =
        [100, 100, 5].iter().filter_map(|priority| flows.open(*priority)).map(|id| id.0).collect();
    assert_eq!(ids, [0, 2, 4]);
    for id in &ids {
        flows.get_mut(*id).expect("open").send.buffer.write(bytes::Bytes::from_static(b"data"));
        flows.update_order(*id, |send| send.limit);
    }
    assert_eq!(flows.next_to_send(None), Some(4));
    flows.get_mut(4).expect("open").send.buffer.next_chunk(100, 1000);
    flows.update_order(4, |send| send.limit);
    assert_eq!(flows.next_to_send(None), Some(0));
    flows.on_turn(0, 4);
    assert_eq!(flows.next_to_send(None), Some(2));
    flows.scheduler = Scheduler::Priority;
    [0, 2].into_iter().for_each(|id| flows.update_order(id, |send| send.limit));
    assert!(flows.set_priority(2, 150) && flows.set_priority(2, 150));
    assert_eq!(flows.in_order(None).collect::<Vec<_>>(), [0, 2]);
    assert!(flows.set_priority(2, 5) && !flows.set_priority(8, 5));
    assert_eq!(flows.in_order(None).collect::<Vec<_>>(), [2, 0]);
    flows.get_mut(2).expect("open").send.buffer.next_chunk(100, 1000);
    flows.update_order(2, |send| send.limit);
    assert_eq!(flows.in_order(None).collect::<Vec<_>>(), [0], "it has left its place behind");
}

#[test]
fn the_limit_is_said_seldom_while_others_stay_open_and_always_in_time() {
    for stay in [0, 1, 60, 98, 99] {
        let mut flows = Flows::new(Side::Client, config(100), Stores::default());
        let mut said = 0;
        for index in 0..5000 {
            let id = 2 * index + 1;
            assert!(flows.of_frame(id).is_ok(), "{stay} stay open: {index} is beyond the limit");
            if index >= stay {
                let flow = flows.get_mut(id).expect("open");
                (flow.send.is_done, flow.receive.is_done) = (true, true);
                flows.drop_if_done(id);
                flows.let_ride();
                said += u32::from(flows.signals.remove(&Signal::FlowLimit));
            }
        }
        let open = flows.table.len() as u32;
        assert!(open == stay && flows.accepted_max <= 5000 - stay + 100, "{open} of {stay}");
        let seldom = 5000 / ((100 - stay) / 6).max(1);
        assert!(said <= seldom, "{stay} stay open: said {said} times, {seldom} would do");
    }
}

/// Flows that end one behind the other cost no packets of their own; the peer is told all the
/// same before it is at the bound that it knows.
#[test]
fn the_limit_waits_for_a_packet_but_not_for_long() {
    for (flows_max, stay) in [(1, 0), (2, 0), (3, 1), (8, 0), (100, 0), (100, 40), (100, 60), (1000, 0)] {
        let mut flows = Flows::new(Side::Client, config(flows_max), Stores::default());
        let (mut known, mut alone) = (flows_max, 0);
        for index in 0..5000 {
            assert!(index < known, "{flows_max}, {stay}: stuck at {known}");
            let id = 2 * index + 1;
            assert!(flows.of_frame(id).is_ok(), "{flows_max}, {stay}: {index} is beyond the limit");
            if index >= stay {
                let flow = flows.get_mut(id).expect("open");
                (flow.send.is_done, flow.receive.is_done) = (true, true);
                flows.drop_if_done(id);
            }
            // No packet leaves but for this.
            if flows.signals.remove(&Signal::FlowLimit) {
                (known, alone) = (flows.accepted_max, alone + 1);
            }
        }
        let free = flows_max - stay;
        assert!(alone <= 5000 / (free / 6).max(1), "{flows_max}, {stay}: {alone}");
        // Where packets leave all the time, none is about this.
        let mut flows = Flows::new(Side::Client, config(flows_max), Stores::default());
        let mut alone = 0;
        for index in 0..5000 {
            let id = 2 * index + 1;
            assert!(flows.of_frame(id).is_ok());
            let flow = flows.get_mut(id).expect("open");
            (flow.send.is_done, flow.receive.is_done) = (true, true);
            flows.drop_if_done(id);
            alone += u32::from(flows.signals.remove(&Signal::FlowLimit));
            flows.let_ride();
            flows.signals.remove(&Signal::FlowLimit);
        }
        assert!(alone == 0 || flows_max <= 2, "{flows_max}: {alone}");
    }
}

#[test]
fn no_flow_has_the_number_of_another() {
    for side in [Side::Client, Side::Server] {
        let mut flows = Flows::new(side, config(10), Stores::default());
        flows.opened_max = u32::MAX;
        flows.next_id += u32::MAX - 5;
        let mut ids = Vec::from_iter(core::iter::from_fn(|| flows.open(100)).map(|id| id.0));
        assert!(ids.len() == 2 && ids.iter().all(|id| side.opens(*id)), "{ids:?}");
        ids.dedup();
        assert!(ids.len() == 2 && !flows.may_open());
    }
}

#[test]
fn the_flow_whose_message_expires_first_is_known() {
    let mut flows = Flows::new(Side::Client, config(10), Stores::default());
    flows.opened_max = 10;
    let ids = [5, 3, 3].map(|ms| {
        let id = flows.open(100).expect("granted").0;
        let message = bytes::Bytes::from_static(b"data");
        let buffer = &mut flows.get_mut(id).expect("open").send.buffer;
        buffer.write_message(message, Some(Time::from_millis(ms)));
        flows.update_alarm(id);
        id
    });
    let mut seen = Vec::new();
    while let Some((at, id)) = flows.next_alarm() {
        let flow = flows.get_mut(id).expect("open");
        assert_eq!(flow.send.buffer.expire(at).messages, 1);
        seen.push((at.as_nanos() / 1_000_000, id));
        if id == ids[2] {
            flows.update_alarm(id);
        } else {
            // Who is gone is not listed.
            (flow.send.is_done, flow.receive.is_done) = (true, true);
            flows.drop_if_done(id);
        }
    }
    assert_eq!(seen, [(3, ids[1]), (3, ids[2]), (5, ids[0])]);
    flows.shrink();
    assert!(flows.alarms.is_none());
}

#[test]
fn the_peer_opens_only_its_own_flows_and_only_as_many_as_granted() {
    let mut flows = Flows::new(Side::Client, config(2), Stores::default());
    assert_eq!(flows.of_frame(0).err(), Some(FlowViolation::NeverOpened(0)));
    assert!(flows.of_frame(1).expect("the server's").is_some_and(|(_, new)| new));
    assert!(flows.of_frame(1).expect("the server's").is_some_and(|(_, new)| !new));
    assert_eq!(flows.of_frame(5).err(), Some(FlowViolation::BeyondLimit(5, 2)));
    let flow = flows.get_mut(1).expect("open");
    (flow.send.is_done, flow.receive.is_done) = (true, true);
    flows.drop_if_done(1);
    assert!(flows.of_frame(1).expect("was there").is_none());
    assert!(flows.accepted_max == 3 && flows.signals.contains(&Signal::FlowLimit));
}
