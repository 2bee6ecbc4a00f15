# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vma_stats against a process with known statistics (stats_writer.c): exact text of every view, and bad files."""

import contextlib
import getpass
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile

import pytest

import schema
from netns import PATIENCE, wait_for
from stats_tool import (HEADER_SIZE, MAGIC, MAX_SOCKETS, PID, RELEASE, ROOT, SOCKET_SIZE, VERSION, Writer, directory, popen, programs,  # noqa: F401
                        scribble, tool, writer)

RULE = "=" * 54 + "\n"
DASHES = "-" * 79 + "\n"


def body(result, pid):
    """The output behind the first line, which names the process."""
    first, rest = result.stdout.split("\n", 1)
    assert first == f"vmastat: stats for application: stats_writer with pid: {pid}"
    return rest


BASIC = (
    " fd      ------------ total offloaded -------------   --------- total os ----------\n"
    "                pkt   Kbyte   eagain   error  poll%     pkt   Kbyte  eagain   error\n"
    " 14  Rx:     786133 1128530        1       2   75.0       3       4       5       6\n"
    "     Tx:         10      20        0       0              0       0       0       0\n"
    " 15  Rx:          0       0        0       0    0.0       0       0       0       0\n"
    "     Tx: 5000000000 5000000000        0       0              0       0       0       0\n"
    " 16  Rx:          0       0        0       0    0.0       0       0       0       0\n"
    "     Tx:          0       0        0       0              0       0       0       0\n"
    "select     Rx Ready:15185/30372 [os/offload] Timeouts:0     Errors:0    Poll:100.00%   Polling CPU:70%\n"
    "epoll[7]   Rx Ready:0/5 [os/offload] Timeouts:2     Errors:1    Poll:25.00%   Polling CPU:0%\n"
    + DASHES)

MEDIUM = (
    " fd      ----------------------- total offloaded -------------------------   --------- total os ----------\n"
    "                pkt   Kbyte   eagain   error  poll%   ---- queue pkt -----     pkt   Kbyte  eagain   error\n"
    "                                                       cur     max    drop \n"
    " 14  Rx:     786133 1128530        1       2   75.0      1      16       7       3       4       5       6\n"
    "     Tx:         10      20        0       0                                     0       0       0       0\n"
    + DASHES)

UDP_FULL = (
    RULE +
    "\tFd=[14]\n"
    "- UDP, Blocked, MC Loop Enabled \n"
    "- Local Address   = [0.0.0.0:11111]\n"
    "- Member of = [224.7.7.7]\n"
    "- Member of = [224.4.1.3]\n"
    "- Thread Id Rx:    77, Tx:    78\n"
    "- RX: Ring User ID = 4000000000\n"
    "- TX: Ring User ID = 5\n"
    "Tx Offload: 20 / 10 / 0 / 0 [kilobytes/packets/eagains/errors]\n"
    "Rx Offload: 1128530 / 786133 / 1 / 2 [kilobytes/packets/eagains/errors]\n"
    "Rx OS info: 4 / 3 / 5 / 6 [kilobytes/packets/eagains/errors]\n"
    "Rx byte: cur 1470 / max 23520 / dropped 700 / limit 16777216\n"
    "Rx pkt : cur 1 / max 16 / dropped 7\n"
    "Rx poll: 100 / 300 (75.00%) [miss/hit]\n"
    "Waits: 290 / 30 / 100 [spun/in vain/slept] (window 30, quota 70)\n"
    + RULE)

FULL = (
    UDP_FULL + RULE +
    "\tFd=[15]\n"
    "- TCP, Non-blocked\n"
    "- Local Address   = [[2001:db8::1]:44522]\n"
    "- Foreign Address = [[2001:db8::2]:6666]\n"
    "- By the kernel = [sends: a flag of the call that user space does not have (0x40)]\n"
    "Tx Offload: 5000000000 / 5000000000 / 0 / 0 [kilobytes/packets/eagains/errors]\n"
    "Retransmissions: 9\n" + RULE + RULE +
    "\tFd=[16]\n"
    "- UDP, Non-blocked, MC Loop Disabled, MC IF = [10.0.0.1]\n"
    "- Member of = [224.7.7.7]\n"
    "Rx and Tx where not active\n" + RULE + RULE +
    "\tselect\n"
    "Polling CPU:70%\n"
    "Rx fds ready: 15185 / 30372 [os/offload]\n"
    "Polls [miss/hit]: 0 / 10 (100.00%)\n" + RULE + RULE +
    "\tepoll[7]\n"
    "Polling CPU:0%\n"
    "- Thread Id:    79\n"
    "Rx fds ready: 0 / 5 [os/offload]\n"
    "Polls [miss/hit]: 3 / 1 (25.00%)\n"
    "Timeouts: 2\n"
    "Errors: 1\n" + RULE + RULE +
    "\tCQ=[0]\n"
    "Packets dropped:     0    \n"
    "Packets queue len:   0\n"
    "Drained max:         511\n"
    "Buffer pool size:    500\n" + RULE + RULE +
    "\tRING_XDP=[0]\n"
    "Interface:           veth0\n"
    "Mode:                native\n"
    "Rx Offload:          1192953 / 786133 [kilobytes/packets]    \n"
    "Interrupts:          786137 / 78613 [requests/received]    \n"
    "Moderation:          10 / 181 [frames/usec period]    \n"
    "Dev Mem Alloc:       16384\n"
    "Dev Mem Stats:       3 / 12 / 2 [kilobytes/packets/oob]    \n"
    "Rx checksum error:   4    \n" + RULE + RULE +
    "\tBUFFER_POOL(RX)=[0]\n"
    "Size:                168000\n"
    "No buffers error:    0    \n" + RULE + RULE +
    "\tBUFFER_POOL(TX)=[1]\n"
    "Size:                199488\n"
    "No buffers error:    3    \n" + RULE)

NETSTAT_HEADING = ("Proto Offloaded Recv-Q               Send-Q               Local Address          "
                   "Foreign Address       State       Inode      PID/Program name     By the kernel\n")


def netstat_rows(pid):
    return (f"udp   Yes       1470                 0                    0.0.0.0:11111          "
            f"0.0.0.0:*                         1001       {pid}/stats_writer\n"
            f"tcp   Yes       0                    55                   [2001:db8::1]:44522    "
            f"[2001:db8::2]:6666    ESTABLISHED 1002       {f'{pid}/stats_writer':20} flags\n")


@pytest.mark.parametrize("args", [(), ("-f",), ("-p", 1, "--find_pid"), ("-d", 1)], ids=str)
def test_view_1_is_the_reference_text(writer, tool, args):
    """Of the one process that there is, and in totals, whether that is said or not."""
    assert body(tool("-c", 1, *args), writer.pid) == BASIC


def test_view_2_is_the_reference_text(writer, tool):
    out = body(tool("-c", 1, "-v", 2, "-s", 14), writer.pid)
    assert [l for l in out.splitlines(True) if "Rx Ready" not in l] == MEDIUM.splitlines(True)


@pytest.mark.parametrize("asked, shown", [("14,16", [14, 16]), ("15-16", [15, 16]), ("0-14,16-2147483647", [14, 16]), ("17", []),
                                          pytest.param(",".join(map(str, range(16, 80))), [16], id="64")])
def test_sockets_by_list_and_range(writer, tool, asked, shown):
    assert [int(fd) for fd in re.findall(r"Fd=\[(\d+)\]", tool("-c", 1, "-v", 3, "-s", asked).stdout)] == shown
    assert [s["fd"] for s in json_of(tool("--json", "-c", 1, "--sockets", asked))[0]["sockets"]] == shown


def test_view_3_is_the_reference_text(writer, tool):
    assert body(tool("-c", 1, "-v", 3), writer.pid) == FULL


def test_view_4_is_the_reference_text(writer, tool):
    assert body(tool("-v", 4), writer.pid) == (
        "\nVMA Group Memberships Information\n"
        "Group                fd number\n"
        "------------------------------\n"
        "[224.7.7.7]           14 16 \n"
        "[224.4.1.3]           14 \n")


def test_view_5_shows_several_processes(writer, programs, directory, tool):
    other = Writer(programs, directory)
    pids = sorted((writer.pid, other.pid))
    assert tool("-v", 5).stdout == NETSTAT_HEADING + netstat_rows(pids[0]) + netstat_rows(pids[1])
    assert tool("-v", 5, "-p", other.pid).stdout == NETSTAT_HEADING + netstat_rows(other.pid)
    r = tool("-c", 1, rc=1)
    assert r.stderr.startswith("vmastat: Failed to identify process please provide pid of active proccess...\n")
    assert f"running: {writer.pid}\n" in r.stderr and f"running: {other.pid}\n" in r.stderr
    other.end()


def test_view_6_has_a_line_for_each_process_and_interface(writer, programs, directory, tool):
    other = Writer(programs, directory)
    pids = sorted((writer.pid, other.pid))
    netns = os.stat("/proc/self/ns/net").st_ino
    heading, *lines = tool("-v", 6).stdout.splitlines()
    print("\n".join([heading, *lines]))
    assert heading.split() == ["Interface", "Netns", "User", "Rings", "Rx", "packets", "Tx", "packets", "PID/Program", "name"]
    rings = json_of(tool("--json", "-c", 1, "-p", writer.pid))[0]["rings"]
    assert lines and [line.split() for line in lines] == [
        [name, str(netns), getpass.getuser(), str(len(of)), str(sum(r["rx_packets"] for r in of)), str(sum(r["tx_packets"] for r in of)),
         f"{pid}/stats_writer"]
        for name, of in sorted((name, [r for r in rings if r["ifname"] == name]) for name in {r["ifname"] for r in rings}) for pid in pids]
    assert len(tool("-v", 6, "-p", other.pid).stdout.splitlines()) == 1 + len(lines) / 2
    other.end()
    writer.end()
    assert tool("-v", 6, rc=1).stderr.startswith("vmastat: Failed to identify process")


def test_the_heading_comes_again_when_the_screen_is_full(writer, tool):
    # 2 heading lines, 9 a cycle: 11, 20, 29 - the fourth cycle begins a new screen.
    p = tool("-c", 3, "-i", 1)
    assert p.stdout.count("total offloaded") == 1
    p = tool("-c", 4, "-i", 1)
    assert p.stdout.count("total offloaded") == 2


def between_looks(p):
    """The tool has read the file and sleeps in poll() or ppoll() until the interval is over."""
    return pathlib.Path(f"/proc/{p.pid}/syscall").read_text().split()[0] in ("7", "271")


def test_deltas_are_a_second_s_worth(writer, programs, directory):
    p = popen(programs, directory, "-d", 2, "-c", 1, "-i", 2, "-s", 14)
    assert "stats for application" in p.stdout.readline()
    wait_for(lambda: between_looks(p), 5, "the first look")
    writer.say("add")
    out, err = p.communicate(timeout=10 * PATIENCE)
    assert out == (
        " fd      --------------- offloaded ----------------         ---------- os ---------\n"
        "              pkt/s Kbyte/s eagain/s error/s  poll%   pkt/s Kbyte/s eagain/s error/s\n"
        " 14  Rx:        500     500        0       0  100.0       0       0       0       0\n"
        "     Tx:          0       0        0       0             10       0       0       0\n"
        "select  /s Rx Ready:2/0 [os/offload] Timeouts:0     Errors:0    Poll:0.00%   Polling CPU:70%\n" + DASHES)


def test_deltas_of_view_3_carry_the_suffix(writer, programs, directory):
    p = popen(programs, directory, "-d", 2, "-c", 1, "-v", 3, "-s", 14)
    p.stdout.readline()
    wait_for(lambda: between_looks(p), 5, "the first look")
    writer.say("add")
    out, _ = p.communicate(timeout=10 * PATIENCE)
    assert "Rx Offload: 1000 / 1000 / 0 / 0 [kilobytes/packets/eagains/errors]/s\n" in out
    assert "Rx pkt : cur 1 / max 16 / dropped/s 0\n" in out
    assert "Tx OS info: 0 / 20 / 0 / 0 [kilobytes/packets/eagains/errors]/s\n" in out
    assert "Polling CPU/s:70%\n" in out


def json_of(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("view", [4, 5, 6])
def test_json_does_not_call_totals_rates(writer, tool, view):
    """Views 4 to 6 are shown once: there is no report before to compare with."""
    totals, asked = json_of(tool("--json", "-v", view)), json_of(tool("--json", "-v", view, "-d", 2))
    assert [one["deltas"] for one in totals + asked] == [False, False]
    assert asked[0]["closed_sockets"] == totals[0]["closed_sockets"] and asked[0]["sockets"] == totals[0]["sockets"]


def test_json_has_every_field_of_the_layout(writer, tool):
    one, two = json_of(tool("--json", "-c", 2))
    assert one["pid"] == writer.pid and one["program"] == "stats_writer" and one["deltas"] is False
    udp, tcp, idle = one["sockets"]
    assert (udp["fd"], udp["rx"]["packets"], udp["rx"]["os_errors"]) == (14, 786133, 6)
    assert udp["groups"] == ["224.7.7.7", "224.4.1.3"]
    assert (tcp["local"], tcp["local_port"], tcp["state"]) == ("2001:db8::1", 44522, "ESTABLISHED")
    assert tcp["tx"]["bytes"] == 5120000000000
    assert one["select"]["ready_os"] == 15185 and one["epoll"][0]["epfd"] == 7
    assert udp["waits"]["slept_window"] == 30 and udp["waits"]["spun_in_vain"] == 30 and udp["why_ever"] == []
    assert tcp["why"]["tx"] == {"reason": "flags", "detail": 0x40} and tcp["why"]["rx"]["reason"] == ""
    assert tcp["why_ever"] == ["rule", "flags"]
    # Every member of the structs stands under its own name.
    layout = (ROOT / "include/vma/stats.h").read_text()
    for struct_name, got in (("socket", udp), ("ring", one["rings"][0]), ("cq", one["cqs"][0]),
                             ("pool", one["pools"][0]), ("iomux", one["select"]), ("counters", udp["rx"]), ("tcp", tcp["tcp"]),
                             ("header", one)):
        text = re.search(r"struct vma_stats_%s \{(.*?)\n\};" % struct_name, layout, re.S).group(1)
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        for declaration in text.split(";"):
            for name in re.sub(r"^\s*(struct )?\w+\s", "", declaration.strip() + " ").split(","):
                name = re.sub(r"\[.*", "", name).strip()
                if name and not name.startswith("reserved") and name not in (
                        "enabled", "base", "magic", "header_size", "socket_size", "release", "num_groups", "rx_by_user", "tx_by_user"):
                    assert name in got, f"{struct_name}.{name} is not in the JSON"


def by_schema(result):
    """The objects, each as docs/vma_stats.schema.json says."""
    rules = json.loads((ROOT / "docs/vma_stats.schema.json").read_text())
    objects = json_of(result)
    for o in objects:
        assert not schema.mistakes(o, rules, rules)
    return objects


def test_json_is_as_the_schema_says(writer, tool):
    by_schema(tool("--json", "-c", 2, "-d", 2))
    one, = by_schema(tool("--json", "-c", 1))
    assert len(one["sockets"]) == 3 and one["rings"] and one["epoll"], "nothing of the schema was left out"
    by_schema(tool("--json", "-v", 5))
    # Whatever stands in the pages.
    scribble(writer.path, 32, b"\xff" * (writer.path.stat().st_size - 32))
    assert len(by_schema(tool("--json", "-c", 1))[0]["sockets"]) == 4


def test_the_schema_finds_mistakes(writer, tool):
    rules = json.loads((ROOT / "docs/vma_stats.schema.json").read_text())

    def with_(change):
        one = json_of(tool("--json", "-c", 1))[0]
        change(one)
        return schema.mistakes(one, rules, rules)
    assert with_(lambda o: o.pop("pid")) == ["$: pid is missing"]
    assert with_(lambda o: o["rings"][0].update(new=1)) == ["$.rings[0]: new is not in the schema"]
    assert with_(lambda o: o["sockets"][1]["tcp"].update(mss=-1)) == ["$.sockets[1].tcp.mss: -1 is less than 0"]
    assert with_(lambda o: o["sockets"][0]["rx"].update(bytes=True)) == ["$.sockets[0].rx.bytes: True is no integer"]
    assert with_(lambda o: o["sockets"][2].update(state="OPEN"))[0].startswith("$.sockets[2].state: 'OPEN' is none of")


def test_zeroing_hides_what_was_and_loses_nothing(writer, tool):
    before = writer.path.read_bytes()
    r = tool("-z", "-s", 14)
    assert r.stdout.endswith("Zero counters...\n")
    writer.say("add")
    udp, tcp, _ = json_of(tool("--json", "-c", 1))[0]["sockets"]
    assert udp["rx"]["packets"] == 1000 and udp["tx"]["packets"] == 0 and udp["rx_poll_miss"] == 0
    assert udp["rx_ready_packets"] == 1, "a state is not a counter"
    assert tcp["tx"]["packets"] == 5000000000, "-s 14 spares fd 15"
    # The library's own counter went on from where it was.
    after = writer.path.read_bytes()
    assert struct.pack("<Q", 787133) in after and struct.pack("<Q", 786133) in before
    # The block's next socket does not inherit the base.
    writer.say("close 14")
    writer.say("open 14")
    assert [s["rx"]["packets"] for s in json_of(tool("--json", "-c", 1))[0]["sockets"] if s["fd"] == 14] == [786133]


def test_control_words_reach_the_library(writer, tool):
    r = tool("-l", "debug", "-D", 2, "-S", 14, "fine")
    assert r.stdout.endswith("Dumping Fd 14 to VMA using log level = FINE...\n")
    assert writer.say("control") == "dump 14 6 control level 5 details 2"
    assert writer.say("control") == "control level 5 details 2"
    assert tool("-S", 0).stdout.endswith("Dumping all Fd's to VMA using log level = INFO...\n")
    assert writer.say("control") == "dump 0 3 control level 5 details 2"


def test_a_dump_at_no_level_is_a_mistake(writer, tool):
    r = tool("-S", 14, "none", rc=1)
    print(r.stderr)
    assert "-S level 'none': nothing would be written; give one of panic, " in r.stderr
    assert writer.say("control") == "control level 3 details 0", "nothing has been asked for"


def test_a_dump_goes_to_the_log(writer, tool):
    tool("-S", 14)
    assert writer.say("log") == "log level 3 details 0"
    tool("-S", 99)
    assert writer.say("log") == "log level 3 details 0"
    writer.end()
    err = writer.process.stderr.read()
    for line in ("============ DUMPING FD 14 STATISTICS ============", "Fd number : 14", "Bind info : 0.0.0.0:11111",
                 "Protocol : PROTO_UDP", "Is closed : false", "Is blocking : true", "Is offloaded : true",
                 "Tx Offload : 20 KB / 10 / 0 / 0 [bytes/packets/eagains/errors]",
                 "Rx OS info : 4 KB / 3 / 6 [bytes/packets/errors]",
                 "Rx byte : max 23520 / dropped 700 (0.00%) / limit 16777216",
                 "Rx poll : 100 / 300 (75.00%) [miss/hit]",
                 "fd 99: no statistics: it is not an offloaded socket"):
        assert f"log 3: {line}\n" in err
    assert "FD 15" not in err


def test_the_statistics_file_is_written_at_close(writer, tmp_path):
    writer.say(f"at_close {tmp_path}/closed")
    writer.say("close 14")
    assert (tmp_path / "closed").read_text() == UDP_FULL


def test_scribbled_control_words_are_not_obeyed(writer):
    data = writer.path.read_bytes()
    at = data.index(struct.pack("<iiii", 3, 0, -1, 0), 136)
    with open(writer.path, "r+b") as f:
        f.seek(at)
        f.write(struct.pack("<iiii", 99, -7, -5, 1000))
    assert writer.say("control") == "control level 3 details 0"
    assert writer.path.read_bytes()[at:at + 12] == struct.pack("<iii", 3, 0, -1)


def test_readers_map_read_only(writer, tool, programs, directory):
    """The file's bytes are the same after every view, and a view does not open it for writing."""
    before = writer.path.read_bytes()
    for view in range(1, 6):
        tool("-v", view, "-c", 1)
    assert writer.path.read_bytes() == before
    p = popen(programs, directory, "-c", 0)
    p.stdout.readline()
    maps = [l for l in pathlib.Path(f"/proc/{p.pid}/maps").read_text().splitlines() if "vmastat." in l]
    assert maps and all(" r--s " in l for l in maps), maps
    p.send_signal(signal.SIGINT)
    out, _ = p.communicate(timeout=10 * PATIENCE)
    assert p.returncode == 0 and out.endswith("Got Ctrl-C (interrupted by user)\n")


def test_end_of_the_process_is_told_at_once(writer, programs, directory):
    p = popen(programs, directory, "-i", 60)
    p.stdout.readline()
    writer.end()
    out, _ = p.communicate(timeout=10 * PATIENCE)
    assert p.returncode == 0 and out.endswith(f"vmastat: Proccess {writer.pid} ended - exiting\n")
    assert not writer.path.exists()


def test_find_by_name_and_by_pid(writer, tool):
    tool("-n", "stats_writer", "-c", 1)
    for option in (["-p", writer.pid], [f"--pid={writer.pid}"]):
        assert body(tool(*option, "-v", 4), writer.pid)
    r = tool("-n", "nobody", "-c", 1, rc=1)
    assert r.stderr == "vmastat: Failed to identify process please provide pid of active proccess...\n"
    r = tool("-p", 1, "-c", 1, rc=1)
    assert r.stderr == "vmastat: VMA statistics data for process id 1 not found\n"


def test_stale_files_go_unless_forbidden(writer, tool, directory):
    ended = subprocess.Popen(["true"])
    ended.wait()
    stale = directory / f"vmastat.{ended.pid}"
    stale.write_bytes(b"x")
    other = directory / "vmastat.notapid"
    other.write_bytes(b"x")
    tool("-F", "-c", 1)
    assert stale.exists()
    tool("-c", 1)
    assert not stale.exists() and other.exists() and writer.path.exists()


def test_another_version_says_so(writer, tool):
    layout = int(re.search(r"VMA_STATS_VERSION (\d+)u", (ROOT / "include/vma/stats.h").read_text()).group(1))
    scribble(writer.path, VERSION, struct.pack("<I", layout + 1))
    scribble(writer.path, RELEASE, bytes((9, 8, 84, 3)))
    ours = re.search(r"vma_stats (\d+\.\d+\.\d+)", tool("-V").stdout).group(1)
    for args in (("-c", 1), ("-v", 3, "-c", 1), ("-v", 5), ("-z",)):
        r = tool(*args, rc=1)
        assert r.stderr == f"vmastat: Version {ours}.{layout} is not compatible with VMA version 9.8.84.3\n", args


@pytest.mark.parametrize("offset, data, words", [
    (MAGIC, b"\0" * 8, "is not a VMA statistics file"),
    (MAX_SOCKETS, struct.pack("<I", 0xffffffff), "claims 4294967295 sockets, more than 1024"),
    (MAX_SOCKETS, struct.pack("<I", 1024), "is truncated"),
    (PID, struct.pack("<I", 1), "it is of process 1"),
])
def test_a_scribbled_header_gives_one_line(writer, tool, offset, data, words):
    scribble(writer.path, offset, data)
    r = tool("-c", 1, rc=1)
    assert words in r.stderr and r.stderr.count("\n") == 1 and r.stdout == ""


def test_scribbled_blocks_are_printed_without_harm(writer, tool):
    size = writer.path.stat().st_size
    socket_size = struct.unpack("<I", writer.path.read_bytes()[SOCKET_SIZE:SOCKET_SIZE + 4])[0]
    header_size = struct.unpack("<I", writer.path.read_bytes()[HEADER_SIZE:HEADER_SIZE + 4])[0]
    scribble(writer.path, 32, b"\xff" * (size - 32))
    for view in (1, 2, 3, 4, 5):
        tool("-v", view, "-c", 1)
    out = tool("--json", "-c", 1).stdout
    got = json.loads(out)
    assert got["program"] == "?" * 63 and len(got["sockets"]) == 4
    assert len(got["sockets"][0]["groups"]) == 64
    assert header_size + 4 * socket_size <= size


def test_truncated_files_give_one_line(writer, tool, directory):
    data = writer.path.read_bytes()
    copy = directory / f"vmastat.{os.getpid()}"
    for size in (0, 8, 31, 32, 100, 4000, len(data) - 4096):
        copy.write_bytes(data[:size])
        r = tool("-p", os.getpid(), "-c", 1, rc=1)
        assert "is truncated" in r.stderr and r.stderr.count("\n") == 1, (size, r.stderr)


def test_a_file_cut_while_it_is_watched_gives_one_line(writer, programs, directory):
    copy = directory / f"vmastat.{os.getpid()}"
    data = bytearray(writer.path.read_bytes())
    data[PID:PID + 4] = struct.pack("<I", os.getpid())
    copy.write_bytes(data)
    p = popen(programs, directory, "-p", os.getpid())
    p.stdout.readline()
    os.truncate(copy, 100)
    _, err = p.communicate(timeout=10 * PATIENCE)
    assert p.returncode == 1 and "is truncated: it shrank" in err and err.count("\n") == 1


def test_links_and_foreign_files_are_refused(writer, tool, directory, programs):
    link = directory / f"vmastat.{os.getpid()}"
    link.symlink_to(writer.path)
    assert "it is a symbolic link" in tool("-p", os.getpid(), "-c", 1, rc=1).stderr
    link.unlink()
    os.mkfifo(link)
    assert "is not a regular file" in tool("-p", os.getpid(), "-c", 1, rc=1).stderr
    link.unlink()
    # A file of user 12345 for a process of root: made up by that user.
    link.write_bytes(writer.path.read_bytes())
    os.chown(link, 12345, 12345)
    assert "belongs to user id 12345" in tool("-p", os.getpid(), "-c", 1, rc=1).stderr


def test_the_file_is_readable_by_all_and_written_by_one(writer, programs, directory):
    assert writer.path.stat().st_mode & 0o7777 == 0o1644
    w = Writer(programs, directory, preexec_fn=lambda: os.umask(0o077))
    assert w.path.stat().st_mode & 0o7777 == 0o1644
    w.end()
    assert sorted(p.name for p in directory.iterdir()) == [writer.path.name]


def test_another_user_reads_with_no_privilege(programs):
    """One's own processes and root's: a file of a third user may be made up."""
    with tempfile.TemporaryDirectory() as d, contextlib.ExitStack() as ends:
        here, shm = pathlib.Path(d), pathlib.Path(d) / "shm"
        here.chmod(0o755)
        shm.mkdir()
        shm.chmod(0o1777)  # as /dev/shm
        for name in ("vma_stats", "stats_writer"):
            shutil.copy(programs / name, here)
        writers = {}
        for uid in (0, 65533, 65534):
            writers[uid] = Writer(here, shm, user=uid, group=uid, extra_groups=[])
            ends.callback(writers[uid].end)
        pids = {uid: w.pid for uid, w in writers.items()}

        def asked(by, of, *args):
            return subprocess.run([here / "vma_stats", "-k", shm, "-p", str(pids[of]), *args], text=True, capture_output=True, timeout=20 * PATIENCE,
                                  user=by, group=by, extra_groups=[])
        for by, of in ((65534, 65534), (65534, 0), (0, 65534), (0, 65533)):
            assert body(asked(by, of, "-c", "1"), pids[of]) == BASIC, (by, of)
        refused = asked(65534, 65533, "-c", "1")
        assert refused.returncode == 1 and "belongs to user id 65533: run vma_stats as that user or as root" in refused.stderr
        # What changes something is for the user of the process, and root.
        assert asked(65534, 65534, "-z").returncode == 0
        refused = asked(65534, 0, "-z")
        assert refused.returncode == 1 and "cannot be opened for writing: Permission denied" in refused.stderr, refused


def test_a_directory_that_is_missing_costs_one_line(programs, tmp_path):
    w = Writer(programs, tmp_path / "nothing")
    assert w.ready == "ready -2\n"
    assert w.say("add") == "add level 3 details 0"
    w.end()
    assert "vma_stats will not see this process" in w.process.stderr.read()


def test_stats_file_at_close_is_view_3(writer, tmp_path):
    path = tmp_path / "stats.%d"
    assert writer.say(f"file {path}").startswith("0 file")
    assert writer.say(f"file {path}").startswith("0 file")
    assert (tmp_path / f"stats.{writer.pid}").read_text() == UDP_FULL * 2
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    assert writer.say(f"file {link}").startswith("-40 file")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("args", [("-v", "7"), ("-i", "0"), ("-s", "4-"), ("-s", "9-4"), ("-s", ","), ("-s", "4294967310"), ("-D", "4"),
                                  ("-l", "loud"), ("-p", "x"), ("more",), ("-S", "-1")])
def test_mistakes_are_named(tool, args):
    r = tool(*args, rc=1)
    assert r.stderr.startswith("vmastat: ") and r.stderr.count("\n") == 1 and args[-1] in r.stderr


def test_help_and_version(tool):
    assert tool("-h").stdout.startswith("\nVMA Statistics\nUsage:\n\t")
    assert re.fullmatch(r"vma_stats \d+\.\d+\.\d+-\d+\n", tool("-V").stdout)


# A sysfs of the test's own, where only the tool sees it.
MODULE = """set -e
mount -t tmpfs none /sys/kernel
mkdir -p /sys/kernel/vma/process/"$1"
cat "$2" >/sys/kernel/vma/process/"$1"/pages
shift 2
exec "$@"
"""


@pytest.fixture
def with_module(programs):
    """vma_stats of the process, whose pages the module would show as those of the file."""
    def run(pid, pages, view):
        argv = ["unshare", "--mount", "sh", "-c", MODULE, "sh", str(pid), pages, programs / "vma_stats", "-p", str(pid), "-v", str(view), "-c", "1"]
        return subprocess.run(argv, text=True, capture_output=True, timeout=20 * PATIENCE)
    return run


def test_a_process_of_another_pid_namespace_is_shown_by_the_module(writer, with_module, tmp_path):
    """It knows itself by another number than the one that the module names it by."""
    pages = bytearray(writer.path.read_bytes())
    struct.pack_into("=I", pages, PID, 7)
    (tmp_path / "pages").write_bytes(pages)
    shown = with_module(writer.pid, tmp_path / "pages", 5)
    print(shown.stdout, shown.stderr)
    assert shown.returncode == 0 and f" {writer.pid}/stats_writer" in shown.stdout


def test_a_process_that_shows_the_module_no_pages_is_shown_by_its_file(programs, with_module):
    """VMA_STATS_FD_NUM=0."""
    w = Writer(programs, "/tmp", 0)
    try:
        shown = with_module(w.pid, "/dev/null", 3)
        print(shown.stdout, shown.stderr)
        assert shown.returncode == 0 and f"stats_writer with pid: {w.pid}\n" in shown.stdout + shown.stderr
    finally:
        w.end()


COMPLETE = """source "$1"; shift
COMP_WORDS=(vma_stats "$@"); COMP_CWORD=$#
_vma_stats
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words):
    """What bash offers for the last word."""
    done = subprocess.run(["bash", "-c", COMPLETE, "bash", ROOT / "etc/vma_stats.bash", *map(str, words)], capture_output=True, text=True,
                          check=True)
    assert not done.stderr
    return done.stdout.split()


def test_completion_knows_every_option(tool):
    said = re.findall(r"^  (?:(-\w), |    )(--\w+)(=?)", tool("--help").stdout, re.M)
    assert len(said) > 15
    offered = completed("")
    for short, name, value in said:
        assert (not short or short in offered) and name + value in offered, (short, name, offered)
    assert completed("--pro") == ["--prometheus"] and "capture" in offered


def test_completion_offers_values_and_processes(writer, tool, directory):
    assert completed("-v", "") == list("123456") == completed("--view", "=", "")
    assert completed("-l", "de") == ["details", "debug"] or completed("-l", "de") == ["debug", "details"]
    assert str(writer.pid) in completed("-k", directory, "-p", "")
    assert "stats_writer" in completed("-k", directory, "-n", "stats")
    assert completed("capture", "-") == ["-p", "-i", "-w"] and "lo" in completed("capture", "-i", "")
