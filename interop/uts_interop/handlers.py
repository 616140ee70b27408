"""What the frames of a peer do, and the place that it is at (packets.md, flows.md, migration.md)."""

import os

from .flows import Breach

PASSED_OVER = ("Padding", "Ping", "Poll")


def messages(frame):
    """The messages of a frame Messages (P-34)."""
    size = frame["length"]
    return [frame["bytes"][i * size : (i + 1) * size] for i in range(frame["count"])]


class Handlers:
    """The part of a connection that acts on frames."""

    def on_frame(self, frame, epoch, now):
        name = frame["frame"]
        if name in PASSED_OVER:
            return
        if name in ("Data", "Data, presented", "Messages"):
            self.on_data(frame, epoch)
        elif name.endswith("-PF"):
            # What the peer sends is what this end receives (P-25).
            direction = self.rx if frame["direction"] == 0 else self.tx
            direction.exchange.on_frame(frame, now, self.probe_timeout())
        else:
            self.FRAMES[name](self, frame, epoch, now)

    def on_data(self, frame, epoch):
        flow = self.flow_of(frame["flow"])
        if flow is None:
            return
        half = flow.recv
        if half.group is None:
            half.group = epoch.group
        elif half.group != epoch.group:
            raise Breach("X-28: data of a flow under another group's epoch")
        if self.rx.epochs and any(e.profile["flow"] == "none" for e in self.rx.epochs.values()):
            half.granted = None
        if frame["frame"] == "Data, presented":
            self.on_presented(frame)
        elif frame["offset"] is None and not epoch.profile.counts_positions():  # P-30
            self.on_loose(frame, half)
        elif frame["frame"] == "Messages":  # P-34
            at = frame["offset"] or 0
            for data in messages(frame):
                half.take({"bytes": data, "offset": at, "BEGIN": True, "END": True, "FIN": False, "MESSAGE": True})
                at += frame["length"] + 1
        else:
            half.take(frame)
        if half.granted is not None:
            self.check_connection_credit()
        self.deliver(flow)

    @staticmethod
    def on_loose(frame, half):
        if frame["frame"] == "Messages":
            half.loose += messages(frame)
        elif frame["BEGIN"] and frame["END"] and not frame["FIN"]:
            half.loose.append(frame["bytes"])
        else:
            raise Breach("P-30: a part of a message without a position")
        del half.loose[256:]  # sequencing.md R-10

    def on_presented(self, frame):
        # No mechanism of presentation but `none` was agreed to, and form 0 needs none; others are an error.
        raise Breach("presentation.md R-10: a form that was not agreed to")

    def deliver(self, flow):
        ordered = True
        for epoch in self.rx.epochs.values():
            if epoch.group == (flow.recv.group or 0) and epoch.number == self.rx.exchange.in_use.get(epoch.group):
                ordered = epoch.profile["sequencing"] == "ordered"
        flow.events += [event for event in flow.recv.read(ordered) if event[1] is not None or event[0] == "end"]
        self.say_credit(flow)

    def say_credit(self, flow):
        limit = flow.recv.credit()
        if limit is not None:
            self.control.append({"frame": "Credit", "flow": flow.id, "limit": limit})
        consumed = self.their_consumed_gone + sum(min(f.recv.consumed(), f.recv.got) for f in self.flows.values())
        window = self.config.connection_credit or 0
        if self.credit_counts and consumed + window >= self.said_connection + window // 4:  # flow.md R-34
            self.said_connection = self.connection_limit = consumed + window
            self.control.append({"frame": "ConnectionCredit", "limit": self.connection_limit})

    def check_connection_credit(self):
        got = self.their_got_gone + sum(f.recv.got for f in self.flows.values())
        if self.credit_counts and got > self.connection_limit:
            raise Breach("P-57: beyond the credit of the connection")

    def collect_control(self):
        """What has to be said anew: exchanges, limits, the bound of flows, what became of ended flows."""
        self.control += self.tx.exchange.take() + self.rx.exchange.take()
        if self.say_all_limits:
            self.say_all_limits = False
            for flow in self.flows.values():
                if flow.recv.granted is not None and not flow.recv.told_end and not flow.recv.stopped:
                    self.control.append({"frame": "Credit", "flow": flow.id, "limit": flow.recv.granted})
            if self.credit_counts:
                self.control.append({"frame": "ConnectionCredit", "limit": self.connection_limit})
            self.control.append({"frame": "FlowLimit", "bound": self.our_bound})
        for flow in list(self.flows.values()):
            if self.is_over(flow):
                self.forget(flow)
        self.last_words()

    def is_over(self, flow):  # F-11
        half = flow.recv
        known = half.fin is not None or half.reset is not None
        return flow.send.is_done() and known and (half.told_end or half.stopped) and not flow.events

    def forget(self, flow):
        del self.flows[flow.id]
        self.gone[flow.id & 1].add(flow.id >> 1, (flow.id >> 1) + 1)
        self.our_got += flow.send.got
        self.their_got_gone += flow.recv.got
        self.their_consumed_gone += flow.recv.got
        if not flow.ours:  # F-5
            bound = self.gone[flow.id & 1].total() + self.config.flows
            if bound - self.said_bound >= max(1, self.config.flows // 4):
                self.our_bound = self.said_bound = bound
                self.control.append({"frame": "FlowLimit", "bound": bound})

    def last_words(self):
        """Only the newest limit of each kind is said."""
        newest = {}
        for frame in self.control:
            if frame["frame"] in ("Credit", "ConnectionCredit", "FlowLimit"):
                newest[frame["frame"], frame.get("flow")] = frame
        self.control = [f for f in self.control if f["frame"] not in ("Credit", "ConnectionCredit", "FlowLimit")]
        self.control += newest.values()

    # Reports.

    def on_ack(self, frame, epoch, now):
        delay = min(frame["delay"] / 1e6, self.report_delay() or 0.025)
        acked, lost = self.ledger.on_report(frame["ranges"], delay, now, self.profile())
        for packet in acked:
            self.on_acked_packet(packet, now)
        if lost and all(p.asks for p in lost) and lost[-1].time - lost[0].time > 3 * self.probe_timeout():
            self.congestion.on_persistent()
        for packet in lost:
            self.on_lost_packet(packet, now)
        if self.ledger.in_flight < self.congestion.window / 2:
            self.held_up = False

    def on_repaired_report(self, frame, epoch, now):
        """Packets that did not arrive but were recovered: done, and a loss for congestion control (fec.md R-11)."""
        acked, lost = self.ledger.on_report(frame["ranges"], 0, now, self.profile())
        self.repaired += len(acked)
        for packet in acked:
            self.on_acked_packet(packet, now)
            self.congestion.on_lost(packet, self.ledger.next, now)
        for packet in lost:
            self.on_lost_packet(packet, now)

    # Flows.

    def on_credit(self, frame, epoch, now):
        flow = self.flow_of(frame["flow"])
        if flow and (flow.send.limit is None or frame["limit"] > flow.send.limit):  # flow.md R-1
            flow.send.limit = frame["limit"]

    def on_connection_credit(self, frame, epoch, now):
        if not self.credit_counts:
            raise Breach("P-57: credit of the connection was not agreed to")
        if self.peer_connection_limit is not None:
            self.peer_connection_limit = max(self.peer_connection_limit, frame["limit"])

    def on_flow_limit(self, frame, epoch, now):
        self.peer_bound = max(self.peer_bound, frame["bound"])  # F-4

    def on_skip(self, frame, epoch, now):
        flow = self.flow_of(frame["flow"])
        if flow:
            flow.recv.skip(frame["start"], frame["start"] + frame["length"])
            self.deliver(flow)

    def on_reset(self, frame, epoch, now):
        if self.credit_counts != ("sent_position" in frame):  # P-58
            raise Breach("P-58: the other kind of reset")
        flow = self.flow_of(frame["flow"])
        if flow:
            flow.recv.set_reset(frame)
            self.deliver(flow)

    def on_stop(self, frame, epoch, now):  # F-8
        flow = self.flow_of(frame["flow"])
        if flow and not flow.send.reset and not flow.send.is_done():
            self.reset_flow(flow, frame["code"])
            flow.events.append(("stopped", frame["code"]))

    def on_order(self, frame, epoch, now):
        self.flow_of(frame["flow"])  # partial-order was not agreed to; F-3 holds all the same

    def on_media_time(self, frame, epoch, now):
        self.flow_of(frame["flow"])  # playout was not agreed to; F-3 holds all the same

    def on_feedback(self, frame, epoch, now):
        """No mechanism that has words is performed here (P-35)."""

    def on_expedited(self, frame, epoch, now):
        raise Breach("P-55: expedited messages were not agreed to")

    def on_expedited_ack(self, frame, epoch, now):
        raise Breach("P-56: no expedited message was sent")

    def on_repair(self, frame, epoch, now):
        if epoch.decoder and frame["frame"] == "Repair":
            self.after_repair(epoch, epoch.decoder.repair(frame), now)

    def on_close(self, frame, epoch, now):
        self.peer_closed(frame["code"], frame["reason"])

    # Ids and places.

    def on_new_id(self, frame, epoch, now):  # P-37
        number = frame["number"]
        token = frame.get("token")
        known = self.peer_ids.get(number)
        if known and known != (frame["id"], token):
            raise Breach("P-37: a number with another id")
        if number not in self.retired:
            self.peer_ids[number] = (frame["id"], token)
        for old in [n for n in self.peer_ids if n < frame["retire_below"]]:
            self.retire(old)
        if len(self.peer_ids) > 1 + self.config.ids:
            raise Breach("P-37: more ids than are kept")
        if self.peer_number not in self.peer_ids:
            self.use_id(min(self.peer_ids))

    def retire(self, number):
        del self.peer_ids[number]
        self.retired.add(number)
        self.control.append({"frame": "RetireId", "number": number})

    def use_id(self, number):
        self.peer_number, self.remote_id = number, self.peer_ids[number][0]

    def on_retire_id(self, frame, epoch, now):  # P-38
        number = frame["number"]
        if number >= self.next_id:
            raise Breach("P-38: an id that was not given out")
        if number in self.issued:
            if len(self.issued) == 1:
                raise Breach("P-38: the last id")
            del self.issued[number]
            self.give_ids()

    def on_challenge(self, frame, epoch, now):  # M-5
        self.control.append({"frame": "PathResponse", "number": frame["number"]})

    def on_response(self, frame, epoch, now):  # M-4, M-12
        trial = self.path_trial
        if trial and frame["number"] == trial["number"]:
            self.path_trial, self.proved_address = None, None
        elif trial and frame["number"] == trial["old_number"]:
            self.trial_failed()

    def on_other_place(self, address, news, size, now):
        """An authentic packet came from elsewhere (M-2, M-3)."""
        if not news or not self.confirmed:
            return
        if self.proved_address == address:
            self.trial_failed()
            return
        if self.path_trial is None:
            self.proved_address = self.address
        self.path_trial = {"number": os.urandom(8), "old_number": os.urandom(8), "brought": size, "sent": 0, "tries": 1,
                           "next": now + self.probe_timeout(), "end": now + max(6 * self.probe_timeout(), 0.3)}
        self.address = address
        self.challenge()

    def challenge(self):
        trial = self.path_trial
        self.control.append({"frame": "PathChallenge", "number": trial["number"]})
        old = [{"frame": "PathChallenge", "number": trial["old_number"]}]
        self.outbox.append((self.seal(self.tx.current(), old, self.now), self.proved_address))

    def trial_failed(self):
        self.address, self.proved_address, self.path_trial = self.proved_address, None, None

    def on_trial_timer(self, now):
        trial = self.path_trial
        if trial and now >= trial["end"]:
            self.trial_failed()
        elif trial and now >= trial["next"]:
            trial["next"] = now + self.probe_timeout() * 2 ** trial["tries"]
            trial["tries"] += 1
            self.challenge()

    def moved(self):
        """This end has moved knowingly (M-9, M-10): another id, a challenge, and nothing is known of the path."""
        others = [n for n in self.peer_ids if n != self.peer_number]
        if others:
            old = self.peer_number
            self.use_id(min(others))
            self.retire(old)
        self.control.append({"frame": "PathChallenge", "number": os.urandom(8)})
        for packet in self.ledger.forget_all():
            self.again(packet)

    FRAMES = {
        "Ack": on_ack, "Ack with ECN": on_ack, "Repaired": on_repaired_report, "Credit": on_credit,
        "ConnectionCredit": on_connection_credit, "FlowLimit": on_flow_limit, "Skip": on_skip, "ResetFlow": on_reset,
        "ResetFlow with what was sent": on_reset, "StopFlow": on_stop, "Order": on_order, "MediaTime": on_media_time, "Feedback": on_feedback,
        "Expedited": on_expedited, "ExpeditedAck": on_expedited_ack, "Repair": on_repair, "Repair of a window": on_repair,
        "Close": on_close, "NewId": on_new_id, "NewId with a reset token": on_new_id, "RetireId": on_retire_id,
        "PathChallenge": on_challenge, "PathResponse": on_response,
    }

