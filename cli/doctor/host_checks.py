"""Checks of `gnomon doctor` that open no store: software, limits, the data directory, ports."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import resource
import shutil
import socket
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from gnomon.bookie.storage.page_walk import DAMAGED_FILE
from gnomon.broker.stores import BOOKIE_FOLDER, METADATA_FOLDER
from gnomon.cli.doctor.check import Check, CheckStatus
from gnomon.runtime.disk.data_directory import FORMAT, FORMAT_FILE, format_and_command, what_reads
from gnomon.runtime.settings.listeners import kafka_listeners
from gnomon.runtime.settings.settings import Settings

PYTHON_MIN = (3, 11)
GIB = 1 << 30
FREE_BYTES_FAIL, FREE_BYTES_WARN = GIB // 8, 5 * GIB
MAP_USE_WARN, MAP_USE_FAIL = 0.8, 0.95
SPARE_FILES = 100
DATA_FILE = "data.mdb"
DAMAGED_ADVICE = (
    "put a copy of the data directory back; a bookie of a cluster makes a new store of what can be read when it is"
    " restarted"
)
LOCK_FILE = "LOCK"
VOLATILE = {"tmpfs": "memory: all data is lost at a restart", "ramfs": "memory: all data is lost at a restart"}
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "glusterfs", "virtiofs"}
LAYERED = {"overlay", "aufs"}


def software() -> list[Check]:
    """Python and the packages that gnomon needs."""
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < PYTHON_MIN:
        checks = [Check("python", CheckStatus.FAIL, python, f"use Python {'.'.join(map(str, PYTHON_MIN))} or newer")]
    elif platform.system() != "Linux":
        checks = [Check("python", CheckStatus.WARN, python, "gnomon is tested on Linux")]
    else:
        checks = [Check("python", CheckStatus.OK, python)]
    try:
        names = [
            re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in requires("gnomon") or [] if "extra ==" not in need
        ]
        found = [f"gnomon {version('gnomon')}"]
    except PackageNotFoundError:
        return [*checks, Check("packages", CheckStatus.WARN, "gnomon runs from a checkout", "install it with pip")]
    missing = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return [
            *checks,
            Check("packages", CheckStatus.FAIL, f"missing: {', '.join(missing)}", "install gnomon with pip"),
        ]
    return [*checks, Check("packages", CheckStatus.OK, ", ".join(found))]


def open_files(connections_max: int) -> Check:
    """Whether the process may open as many files as it may have connections."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections_max + SPARE_FILES
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return Check("open files", CheckStatus.OK, f"limit {limit}")
    return Check(
        "open files",
        CheckStatus.WARN,
        f"limit {limit}, but broker.connections_max is {connections_max}",
        f"raise it (ulimit -n {needed}), or lower the setting",
    )


def directory(settings: Settings) -> list[Check]:
    """Checks the data directory, and the ports that a broker on it would use."""
    path = settings.data_dir
    if not path.exists():
        above = next(parent for parent in path.absolute().parents if parent.exists())
        if not os.access(above, os.W_OK):
            return [
                Check(
                    "data directory", CheckStatus.FAIL, f"{path}: {above} is not writable", "choose another --data-dir"
                )
            ]
        there = Check("data directory", CheckStatus.OK, f"{path} will be created")
        return [there, _file_system(above), _free(above), *_ports(settings, None)]
    if not path.is_dir() or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        found = f"{path} is no directory that this user may write to"
        return [Check("data directory", CheckStatus.FAIL, found, "change its owner, or choose another --data-dir")]
    held_by = holder(path)
    held = "not in use" if held_by is None else f"in use by process {held_by}"
    return [
        Check("data directory", CheckStatus.OK, f"{path}, {held}"),
        _format(path),
        _file_system(path),
        _free(path),
        _map_use(path / BOOKIE_FOLDER, settings.bookie.map_bytes, "bookie.map_bytes"),
        _map_use(path / METADATA_FOLDER, settings.metadata.map_bytes, "metadata.map_bytes"),
        *_damaged_pages(path / BOOKIE_FOLDER / DAMAGED_FILE),
        *_ports(settings, held_by),
    ]


def _damaged_pages(path: Path) -> list[Check]:
    """The damaged pages that the last run on the directory has found."""
    try:
        found = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        return [unreadable("pages", error)]
    if not found:
        return []
    text = f"{len(found)} pages of {path.with_name(DATA_FILE)} are damaged, first: {found[0]}"
    return [Check("pages", CheckStatus.FAIL, text, DAMAGED_ADVICE)]


def holder(path: Path) -> str | None:
    """The process that has the directory open."""
    try:
        with open(path / LOCK_FILE) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip() or "unknown"
    except OSError:
        pass
    return None


def unreadable(name: str, error: OSError) -> Check:
    """The check for a path that this user may not read."""
    found = f"{error.filename} cannot be read: {error.strerror}"
    return Check(name, CheckStatus.FAIL, found, "change its owner or mode, or run this as the broker's user")


def _format(path: Path) -> Check:
    try:
        number, command = format_and_command((path / FORMAT_FILE).read_bytes())
    except FileNotFoundError:
        return Check("format", CheckStatus.OK, "none yet: nothing was stored here")
    except OSError as error:
        return unreadable("format", error)
    if number == FORMAT:
        return Check("format", CheckStatus.OK, f"{number}, of `gnomon {command}`")
    return Check("format", CheckStatus.FAIL, f"{number!r}, this gnomon reads {FORMAT}", what_reads(number))


def _file_system(path: Path) -> Check:
    kind = _file_system_type(path.resolve())
    if kind in VOLATILE:
        return Check("file system", CheckStatus.WARN, f"{kind} is {VOLATILE[kind]}", "choose a directory on a disk")
    if kind in NETWORK or kind.startswith("fuse"):
        found = f"{kind}: syncs and locks may mean less than on a disk"
        return Check("file system", CheckStatus.WARN, found, "choose a directory on a local disk")
    if kind in LAYERED:
        return Check("file system", CheckStatus.WARN, f"{kind}: goes with its container", "mount a volume there")
    return Check("file system", CheckStatus.OK, kind)


def _file_system_type(path: Path) -> str:
    best, kind = "", "unknown"
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return kind
    for line in lines:
        fields = line.split()
        at = fields[1].replace("\\040", " ")
        if path.is_relative_to(at) and len(at) >= len(best):
            best, kind = at, fields[2]
    return kind


def _free(path: Path) -> Check:
    usage = shutil.disk_usage(path)
    found = f"{usage.free / GIB:.1f} of {usage.total / GIB:.1f} GiB"
    if usage.free < FREE_BYTES_FAIL:
        return Check("free space", CheckStatus.FAIL, found, "free some: a broker without room takes no records")
    if usage.free < FREE_BYTES_WARN:
        return Check("free space", CheckStatus.WARN, found, "free some, or shorten the topics' retention")
    return Check("free space", CheckStatus.OK, found)


def _map_use(folder: Path, map_bytes: int, setting: str) -> Check:
    name = f"{folder.name} store"
    try:
        used = (folder / DATA_FILE).stat().st_size
    except FileNotFoundError:
        return Check(name, CheckStatus.OK, "empty")
    except OSError as error:
        return unreadable(name, error)
    share = used / map_bytes
    found = f"{used / (1 << 20):.1f} MiB, {share:.1%} of {setting}"
    if share < MAP_USE_WARN:
        return Check(name, CheckStatus.OK, found)
    return Check(
        name, CheckStatus.FAIL if share >= MAP_USE_FAIL else CheckStatus.WARN, found, f"raise {setting} and restart"
    )


def _ports(settings: Settings, held_by: str | None) -> list[Check]:
    listeners = kafka_listeners(settings.broker, settings.kafka)
    return [
        *(_port("kafka port", one.host, one.port, held_by) for one in listeners),
        _port("native port", settings.broker.native_host, settings.broker.native_port, held_by),
        _port("admin port", settings.broker.admin_host, settings.broker.admin_port, held_by),
    ]


def _port(name: str, host: str, port: int, held_by: str | None) -> Check:
    """Whether the port is free; a broker that has the directory open may be the one that uses the port."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except UnicodeError:
        return Check(name, CheckStatus.WARN, f"{host!r} is no host name", "give an address of this machine")
    except OSError as error:
        status = CheckStatus.WARN if held_by is None else CheckStatus.OK
        advice = "" if held_by is not None else "stop the program that uses it, or choose another port"
        return Check(name, status, f"{host}:{port}: {error.strerror or error}", advice)
    return Check(name, CheckStatus.OK, f"{host}:{port} is free")
