"""Profiles and choices (packets.md P-40, P-41), with the numbers of functions.toml."""

import os
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from .codec import WireError, varint


def spec():
    """The directory of the pages."""
    return Path(os.environ.get("UTS_SPEC", Path(__file__).resolve().parents[2] / "spec"))


class Mechanism:
    def __init__(self, function, function_name, table):
        self.function, self.function_name = function, function_name
        self.number, self.name = table["number"], table["name"]
        self.mandatory = table["mandatory"]
        self.params = table.get("params", [])
        self.consent = table.get("consent")
        self.positions = table.get("positions", False)
        self.needs = table.get("needs", [])

    def defaults(self):
        return [param["default"] for param in self.params]


def _load():
    functions, by_number = {}, {}
    for function in tomllib.loads((spec() / "functions.toml").read_text())["function"]:
        mechanisms = [Mechanism(function["number"], function["name"], m) for m in function["mechanism"]]
        functions[function["name"]] = {m.name: m for m in mechanisms}
        by_number.update({(m.function, m.number): m for m in mechanisms})
    return functions, by_number


FUNCTIONS, BY_NUMBER = _load()
#: Optional mechanisms that this implementation has, by function and name.
EXTRA = [("detection", "parity"), ("detection", "crc-32")]
OURS = [m for m in BY_NUMBER.values() if m.mandatory or (m.function_name, m.name) in EXTRA]


def choice(function, name, *parameters):
    """A choice, parameters that are not given being the defaults."""
    mechanism = FUNCTIONS[function][name]
    values = list(parameters) + mechanism.defaults()[len(parameters) :]
    return {"function": mechanism.function, "mechanism": mechanism.number, "parameters": (values + [0] * 4)[:4]}


def read_choice(reader):
    function, mechanism = reader.uint(1, "choice"), reader.uint(1, "choice")
    start = reader.at
    count = reader.uint(1, "parameter count")
    if count > 4:
        raise WireError("too-long", "parameter count", start)
    values = [reader.varint("parameter", 1 << 32) for _ in range(count)]
    return {"function": function, "mechanism": mechanism, "parameters": values + [0] * (4 - count)}


def write_choice(value):
    parameters = list(value["parameters"])
    while parameters and not parameters[-1]:
        parameters.pop()
    return bytes([value["function"], value["mechanism"], len(parameters)]) + b"".join(map(varint, parameters))


def read_profile(reader):
    start = reader.at
    count = reader.uint(1, "choice count")
    if count > 15:
        raise WireError("too-long", "choice count", start)
    profile = []
    for _ in range(count):
        start = reader.at
        value = read_choice(reader)
        if any(other["function"] == value["function"] for other in profile):
            raise WireError("duplicate", "function in profile", start)
        profile.append(value)
    return profile


def write_profile(choices):
    return bytes([len(choices)]) + b"".join(map(write_choice, choices))


class Refused(Exception):
    """A profile that cannot be performed: function and reason of a NAK-PF (P-26)."""

    def __init__(self, function, reason):
        super().__init__(f"function {function}: reason {reason}")
        self.function, self.reason = function, reason


class Profile:
    """A mechanism for each function, with its parameters by name; raises Refused unless it is asked of somebody else."""

    def __init__(self, choices=(), asked=False):
        self.choices = list(choices)
        self.mechanism, self.values = {}, {}
        for functions in FUNCTIONS.values():
            default = next(m for m in functions.values() if m.number == 0)  # P-40
            self._set(default, default.defaults())
        for value in choices:
            mechanism = BY_NUMBER.get((value["function"], value["mechanism"]))
            if asked and mechanism not in OURS:
                continue
            if mechanism not in OURS:
                raise Refused(value["function"], 1)
            for param, given in zip(mechanism.params, value["parameters"]):
                if not param["min"] <= given <= param["max"] and not asked:
                    raise Refused(value["function"], 2)
            if any(value["parameters"][len(mechanism.params) :]):
                raise Refused(value["function"], 2)
            self._set(mechanism, value["parameters"])
        for name, chosen in self.mechanism.items():
            needs = FUNCTIONS[name][chosen].needs
            if not asked and needs and not any(self.mechanism[f] == m for f, m in (need.split("/") for need in needs)):
                raise Refused(FUNCTIONS[name][chosen].function, 3)

    def counts_positions(self):  # P-62
        return any(FUNCTIONS[f][m].positions for f, m in self.mechanism.items())

    def _set(self, mechanism, parameters):
        self.mechanism[mechanism.function_name] = mechanism.name
        self.values[mechanism.function_name] = {p["name"]: v for p, v in zip(mechanism.params, parameters)}

    def __getitem__(self, function):
        return self.mechanism[function]

    def get(self, function, parameter, otherwise=0):
        return self.values[function].get(parameter, otherwise)

    def window(self):
        """The window that a flow begins with, in positions (flow.md R-24); None: no limit."""
        if self["flow"] == "none":
            return None
        return self.get("flow", "window", 1024) * 1024

    def replaced(self, *choices):
        """The choices of this profile with others in the place of those of the same functions."""
        changed = {c["function"] for c in choices}
        return [c for c in self.choices if c["function"] not in changed] + list(choices)


def standard():
    """The profile that this implementation begins with: every function named."""
    return [
        choice("segmentation", "bytes"), choice("sequencing", "ordered"), choice("fec", "none"),
        choice("retransmission", "selective"), choice("acknowledgement", "delayed"), choice("timing", "jacobson"),
        choice("flow", "credit"), choice("rate", "pacing-bucket"), choice("congestion", "cubic"),
        choice("detection", "none"), choice("protection", "aes-128-gcm"), choice("finding", "overtaken"),
    ]
