"""Runs `gnomon` as on a system that lacks Linux's own calls: they are removed before gnomon uses them."""

from __future__ import annotations

import os
import runpy
import select
import socket
import types

from gnomon.runtime.loop import poller

LINUX_ONLY = {
    os: ("eventfd", "eventfd_write", "EFD_CLOEXEC", "EFD_NONBLOCK", "posix_fallocate", "fdatasync", "pidfd_open"),
    socket: ("TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "TCP_QUICKACK"),
}

WITHOUT_EPOLL = types.SimpleNamespace(**{name: value for name, value in vars(select).items() if name != "epoll"})

if __name__ == "__main__":
    for module, names in LINUX_ONLY.items():
        for name in names:
            delattr(module, name)
    # Trio and `selectors` still need epoll here, in place of the kqueue of another system.
    setattr(poller, "select", WITHOUT_EPOLL)  # noqa: B010 - mypy refuses to assign a module
    runpy.run_module("gnomon.cli.child", run_name="__main__", alter_sys=True)
