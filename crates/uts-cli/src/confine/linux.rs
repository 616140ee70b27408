//! Landlock and seccomp.

use super::Limits;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::collections::BTreeMap;

/// Newest interface of Landlock that is made use of. On older kernels, what they have is.
const LANDLOCK: ABI = ABI::V6;

/// System calls that a server never makes. Each gives power over other programs, the kernel, or
/// files beyond those that were opened.
const REFUSED: [libc::c_long; 38] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
];

/// Confines files, and TCP if it is not used. Says whether the kernel could.
pub(super) fn confine_files(limits: &Limits) -> Result<bool, landlock::RulesetError> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::MakeSym
        | AccessFs::MakeSock
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .scope(Scope::Signal)?;
    if !limits.uses_tcp {
        rules = rules.handle_access(AccessNet::from_all(LANDLOCK))?;
    }
    let status = rules
        .create()?
        .add_rules(path_beneath_rules(&limits.reads, read))?
        .add_rules(path_beneath_rules(&limits.writes, write))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Refuses system calls that a server never makes. Says whether the kernel could.
pub(super) fn confine_calls() -> Result<bool, seccompiler::Error> {
    let Ok(machine) = std::env::consts::ARCH.try_into() else { return Ok(false) };
    let refused: BTreeMap<i64, Vec<_>> = REFUSED.into_iter().map(|call| (call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter: BpfProgram =
        SeccompFilter::new(refused, SeccompAction::Allow, refuse, machine)?.try_into()?;
    match seccompiler::apply_filter(&filter) {
        Ok(()) => Ok(true),
        // A kernel without it.
        Err(seccompiler::Error::Seccomp(error)) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}
