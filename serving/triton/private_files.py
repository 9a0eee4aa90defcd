"""Keeps what a process writes from other users of the machine: files, and regions of shared memory.

A umask alone does not do it. Triton's Python backend makes its regions by Boost, which calls `fchmod(region, 0644)`
after `shm_open`, and no option of Triton changes that. Whoever opens a region before it could be changed back reads
questions and answers. So the kernel skips that call: a seccomp filter lets each `fchmod` that would
give rights to others return 0 and do nothing.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

OTHERS = 0o077
_LIBC = ctypes.CDLL(None)
_PR_SET_NO_NEW_PRIVS, _SET_MODE_FILTER, _SPEC_ALLOW = 38, 1, 4  # of linux/prctl.h and linux/seccomp.h
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ANY, _RETURN = 0x20, 0x15, 0x45, 0x06  # of linux/bpf_common.h
_SKIP, _ALLOW = 0x00050000, 0x7FFF0000  # SECCOMP_RET_ERRNO with 0, SECCOMP_RET_ALLOW
_CALLS = {"x86_64": (0xC000003E, 317, 91), "aarch64": (0xC00000B7, 277, 52)}  # AUDIT_ARCH, seccomp, fchmod


def _write_program(architecture: int, fchmod: int) -> bytes:
    """The filter: one (operation, jump if true, jump if false, operand) a line, over `struct seccomp_data`."""
    lines = [
        (_LOAD, 0, 0, 4),  # its architecture
        (_JUMP_IF_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, 0),  # the number of the call
        (_JUMP_IF_EQUAL, 0, 3, fchmod),
        (_LOAD, 0, 0, 24),  # the second argument: the mode
        (_JUMP_IF_ANY, 0, 1, OTHERS),
        (_RETURN, 0, 0, _SKIP),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


_architecture, _seccomp, _fchmod = _CALLS.get(platform.machine(), (0, 0, 0))
_PROGRAM = ctypes.create_string_buffer(_write_program(_architecture, _fchmod))
_FILTER = ctypes.create_string_buffer(struct.pack("@HP", len(_PROGRAM) // 8, ctypes.addressof(_PROGRAM)))


def keep_files_private() -> bool:
    """Gives others no right to what this process and its children make from now on. Call it between fork and exec:
    there is no way back.

    A process without CAP_SYS_ADMIN also gives up setuid programs, as the kernel asks for. Returns False where the
    kernel refuses the filter, has no seccomp, or runs on another processor: the umask alone holds, and a later `fchmod`
    can give rights to others.
    """
    os.umask(OTHERS)
    if not _seccomp:
        return False
    if _install():
        return True
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return _install()


def _install() -> bool:
    # without SPEC_ALLOW, which gVisor does not know, older kernels slow a filtered process down by some percent
    return any(_LIBC.syscall(_seccomp, _SET_MODE_FILTER, flags, _FILTER) == 0 for flags in (_SPEC_ALLOW, 0))
