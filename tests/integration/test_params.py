# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a user sees of the parameters and rules: the banner of a preloaded program, warnings, libvma.conf, the man
pages; and that the table says the truth about which parameters are read. The details are in tests/unit."""

import os
import re
import shutil
import subprocess

import pytest

from netns import ROOT
from test_why import TEXT

DASHES = "-" * 75
SOCKET = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"


def table():
    """{field: (variable, whether its entry says that there is nothing to set)} as parameters.def has it."""
    text = (ROOT / "lib/config/parameters.def").read_text()
    rows = re.findall(r'^PARAM_\w+\((\w+), "(\w+)",(.*?)"\)$', text, re.M | re.S)
    return {field: (variable, "NO_OBJECT" in rest) for field, variable, rest in rows}


def log_of(net, code=SOCKET, **env):
    return net.a.run(["/usr/bin/python3", "-c", code], preload=True, env=env).text


def test_banner_has_the_form_of_the_original(unet):
    log = log_of(unet, VMA_RX_POLL="7", VMA_STATS_SHMEM_DIR="/tmp/")
    print(log)
    lines = log.splitlines()
    first = lines.index(f" VMA INFO: {DASHES}")
    expected = [
        DASHES,
        r"VMA_VERSION: \d+\.\d+\.\d+-\d+ Release built on \w{3} [ \d]\d \d{4} \d\d:\d\d:\d\d",
        r"Cmd Line: /usr/bin/python3 -c .*",
        r"Current Time: \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}",
        r"Pid: +\d+",
        r"Architecture: \w+",
        r"Node: .+",
        DASHES,
        r"Log Level                      INFO                       \[VMA_TRACELEVEL\]",
        r"Rx Poll Loops                  7                          \[VMA_RX_POLL\]",
        DASHES,
    ]
    lines = [line for line in lines[first:] if "VMA INFO: Git: " not in line]
    for line, pattern in zip(lines, expected):
        assert re.fullmatch(" VMA INFO: " + pattern, line), f"{line!r} is not {pattern!r}"


def test_the_system_is_named_at_debug(unet):
    assert "System: " not in log_of(unet)
    log = log_of(unet, VMA_TRACELEVEL="DEBUG")
    assert re.search(rf"VMA DEBUG\s*: System: {re.escape(os.uname().release)}$", log, re.M), log


def test_nothing_is_said_before_the_first_socket(unet):
    assert log_of(unet, "print('no socket')") == "no socket\n"


def test_warnings_at_start(unet):
    log = log_of(unet, VMA_RX_POLL="many", VMA_STATS_FD_NUM="2000", VMA_THREADMODE="0", VMA_CONFIG_FILE="/nowhere")
    assert ' VMA WARNING: VMA_RX_POLL="many" is neither a number nor "adaptive", which is used\n' in log
    assert " VMA WARNING: VMA_STATS_FD_NUM=2000 is outside its range (0 to 1024); 1024 is used\n" in log
    assert "VMA_THREADMODE is not a parameter of this library; the nearest is VMA_THREAD_MODE\n" in log
    assert " VMA WARNING: VMA_CONFIG_FILE: cannot read /nowhere: No such file or directory" in log
    assert log_of(unet, VMA_RX_POLL="many", VMA_TRACELEVEL="none") == ""


TCP = ["VMA_TCP_MAX_SYN_RATE", "VMA_TX_SEGS_TCP", "VMA_RX_POLL_ON_TX_TCP", "VMA_RX_CQ_DRAIN_RATE_NSEC", "VMA_GRO_STREAMS_MAX", "VMA_TCP_3T_RULES",
       "VMA_TIMER_RESOLUTION_MSEC", "VMA_TCP_TIMER_RESOLUTION_MSEC", "VMA_TCP_CTL_THREAD", "VMA_TCP_TIMESTAMP_OPTION", "VMA_TCP_NODELAY",
       "VMA_TCP_QUICKACK", "VMA_AVOID_SYS_CALLS_ON_TCP_FD", "VMA_MTU", "VMA_MSS", "VMA_TCP_CC_ALGO", "VMA_DEFERRED_CLOSE"]


@pytest.mark.parametrize("value", ["many", "", "1x", "-7", "99999999999999999999", "1.5"])
def test_a_bad_value_of_a_tcp_parameter_is_one_line(unet, value):
    log = log_of(unet, **{name: value for name in TCP})
    for name in TCP:
        lines = [line for line in log.splitlines() if "WARNING" in line and re.search(rf"{name}\b", line)]
        print(*lines, sep="\n")
        assert value in lines[0]
        assert len(lines) == 1 and re.search(r"; \d+ is used$|; ignored$", lines[0]), (name, lines)


@pytest.mark.parametrize("spec", ["latency", "ultra-latency", "multi_ring_latency", "7750", "29west", "mcd-irq"])
def test_profiles_start_without_a_warning_about_themselves(unet, spec):
    log = log_of(unet, VMA_SPEC=spec)
    assert not re.search(r"WARNING: .*VMA_[A-Z_]+=", log), log


def test_log_file_with_the_pid(unet, tmp_path):
    code = "import os, socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM); print(os.getpid())"
    out = log_of(unet, code, VMA_LOG_FILE=f"{tmp_path}/log.%d")
    assert "VMA INFO" not in out
    text = (tmp_path / f"log.{out.strip()}").read_text()
    assert text.startswith(f" VMA INFO: {DASHES}\n") and "\033" not in text
    assert re.search(rf"^ VMA INFO: Log File  +{tmp_path}/log\.\S+ +\[VMA_LOG_FILE\]$", text, re.M), text
    assert "VMA_LOG_FILE" not in log_of(unet, code)


def test_conf_file_errors_name_file_and_line(unet, tmp_path):
    conf = tmp_path / "my.conf"
    conf.write_text("# mine\nuse os tcp_server *:80\nuse os udp_conect *:53\n")
    log = log_of(unet, VMA_CONFIG_FILE=str(conf))
    assert f' VMA WARNING: {conf}:3: "udp_conect" is not a role' in log
    assert log.count("my.conf:") == 1


def test_the_rules_of_etc_are_read_without_being_asked_for(unet, tmp_path):
    """In a mount namespace of its own the program has another /etc, with little else in it."""
    etc = tmp_path / "etc"
    etc.mkdir()
    for name in filter(os.path.exists, ("/etc/ld.so.cache", "/etc/ld.so.conf")):
        shutil.copy(name, etc)
    (etc / "libvma.conf").write_text("use os udp_sender *:7200\nuse os udp_conect *:53\n")
    code = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n" \
           f"for port in (7200, 7201): s.sendto(b'x', ('{unet.b.ip4}', port))"
    own_etc = ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', etc]
    log = unet.a.run([*own_etc, "/usr/bin/python3", "-c", code], preload=True, env={"VMA_TRACELEVEL": "DETAILS"}).text
    print(*[line for line in log.splitlines() if "libvma.conf" in line or "through the kernel" in line], sep="\n")
    assert ' VMA WARNING: /etc/libvma.conf:2: "udp_conect" is not a role' in log
    assert re.search(rf"fd \d+ sends through the kernel: {TEXT['rule']}$", log, re.M), log


def test_the_table_says_the_truth_about_what_is_read():
    """NO_OBJECT exactly where no source outside the table's own files names the field."""
    own = {"params.c", "params.h", "config/params_table.c", "config/params_table.h", "spec.c", "banner.c"}
    # Read by params.c itself: the log's, the profile's, and the one that only sets two others.
    read = {"tracelevel", "log_details", "log_colors", "log_file", "spec", "select_poll_os_force"}
    for source in (ROOT / "lib").rglob("*.[ch]"):
        if source.name not in own:
            read.update(re.findall(r"\bparams\.(\w+)", source.read_text()))
    rows = table()
    assert len(rows) > 90
    pretending = [v for f, (v, idle) in rows.items() if not idle and f not in read]
    too_modest = [v for f, (v, idle) in rows.items() if idle and f in read]
    assert not pretending, f"READ in parameters.def, but nothing reads {pretending}"
    assert not too_modest, f"not read in parameters.def, but something reads {too_modest}"


@pytest.mark.parametrize("page", ["libvma.7", "libvma.conf.5"])
def test_man_pages_are_clean_and_complete(library, page):
    path = library.build / page if page == "libvma.7" else ROOT / "docs" / page
    text = path.read_text()
    # groff's man macros are the test; without groff (it is no build dependency) the text alone is looked at.
    if any(os.access(f"{d}/groff", os.X_OK) for d in os.environ["PATH"].split(":")):
        done = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-z", path], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    if page == "libvma.7":
        for variable, idle in table().values():
            entry = text.split(f"\n.TP\n.B {variable}\n")[1].split("\n.TP\n")[0]
            assert ("nothing to set here" in entry) == idle, variable
            assert "Default: " in entry
