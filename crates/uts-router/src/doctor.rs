//! Abilities of this machine, and the command that would permit each that is missing.

use super::check::Check;
use super::config::TestbedConfig;
use super::host::{ip_command, tc_command, veth_waits};
use super::tcp_probe;
use super::testbed::Testbed;
use rustix::process::{Resource, geteuid, getrlimit};
use std::path::Path;

/// Receive buffer that carries a gigabit per second over a pause of 20 ms.
const RECEIVE_BUFFER_BYTES: u64 = 4 << 20;
const INSTALL_IPROUTE2: &str = "sudo apt install iproute2";
const REAL_TIME_PRIORITY: u64 = 10;

/// Tries what a testbed needs. Takes some hundredths of a second, and leaves nothing behind.
pub fn doctor() -> Vec<Check> {
    doctor_with(&TestbedConfig::default())
}

/// As [`doctor()`], trying a testbed with these settings.
pub fn doctor_with(config: &TestbedConfig) -> Vec<Check> {
    vec![
        ip_program(),
        testbed(config),
        processors(),
        fast_paths(),
        receive_buffer(),
        real_time(),
        tcp_probe::check(),
    ]
}

fn check(name: &str, required: bool, found: Result<String, (String, String)>) -> Check {
    let name = name.into();
    match found {
        Ok(why) => Check { name, required, ok: true, why, remedy: String::new() },
        Err((why, remedy)) => Check { name, required, ok: false, why, remedy },
    }
}

fn ip_program() -> Check {
    let found = match ip_command() {
        Ok(command) => Ok(command.get_program().to_string_lossy().into_owned()),
        Err(e) => Err((e.to_string(), INSTALL_IPROUTE2.into())),
    };
    check("ip (iproute2)", true, found)
}

fn fast_paths() -> Check {
    let found = match (veth_waits(), tc_command()) {
        (true, Ok(_)) => Ok("above 500 Mbit/s hosts receive in threads of their own".into()),
        (true, Err(e)) => Err((e.to_string(), INSTALL_IPROUTE2.into())),
        (false, _) => Err((
            "RouterPC does the hosts' work of receiving, which costs half of the packets per second".into(),
            "boot Linux 6.16 or newer".into(),
        )),
    };
    check("fast paths", false, found)
}

/// The real thing, with nothing on it.
fn testbed(config: &TestbedConfig) -> Check {
    let found = match Testbed::start(config.clone()).and_then(Testbed::finish) {
        Ok(_) if geteuid().is_root() => Ok("hosts can be made".into()),
        Ok(_) => Ok("hosts can be made, without privileges".into()),
        Err(e) => {
            let why = e.to_string();
            let remedy = remedy(&why);
            Err((why, remedy))
        }
    };
    check("hosts in namespaces", true, found)
}

/// Command that would make namespaces possible, from what stands in their way.
fn remedy(why: &str) -> String {
    let setting = |file: &str| std::fs::read_to_string(Path::new("/proc/sys").join(file)).unwrap_or_default();
    let is = |file: &str, value: &str| setting(file).trim() == value;
    if why.contains("run `ip`") {
        return INSTALL_IPROUTE2.into();
    }
    if why.contains("packet socket") {
        return "sudo modprobe af_packet".into();
    }
    if why.contains("ip link add") {
        return "sudo modprobe veth".into();
    }
    if is("user/max_user_namespaces", "0") {
        return "sudo sysctl -w user.max_user_namespaces=15000".into();
    }
    if is("kernel/unprivileged_userns_clone", "0") {
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1".into();
    }
    if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0".into();
    }
    if Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists() {
        return "start the container with: --privileged".into();
    }
    "run it as root, with: sudo".into()
}

fn processors() -> Check {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let why = format!("{count} to run on");
    let remedy = "give the machine another processor: RouterPC and the hosts share this one";
    check("processors", false, if count > 1 { Ok(why) } else { Err((why, remedy.into())) })
}

fn receive_buffer() -> Check {
    let text = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    let bytes: u64 = text.trim().parse().unwrap_or(0);
    let found = if geteuid().is_root() {
        Ok("of any size".into())
    } else if bytes >= RECEIVE_BUFFER_BYTES {
        Ok(format!("{bytes} bytes"))
    } else {
        let why = format!("{bytes} bytes: at high rates, packets are lost while RouterPC is kept waiting");
        Err((why, format!("sudo sysctl -w net.core.rmem_max={RECEIVE_BUFFER_BYTES}")))
    };
    check("receive buffer", false, found)
}

fn real_time() -> Check {
    // None is no limit.
    let limit = getrlimit(Resource::Rtprio).current.unwrap_or(u64::MAX);
    let found = if geteuid().is_root() || limit >= REAL_TIME_PRIORITY {
        Ok("RouterPC goes before other programs".into())
    } else {
        let why = "none: RouterPC is late when other programs are busy";
        let command = "echo \"$USER - rtprio 10\" | sudo tee /etc/security/limits.d/uts-lab.conf";
        Err((why.into(), format!("{command}; then log in again")))
    };
    check("real-time priority", false, found)
}
