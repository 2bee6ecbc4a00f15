# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What each level of the log shows, the boxes in their situations, and what the library does at SIGSEGV and SIGINT."""

import pathlib
import re
import signal
import socket
import subprocess

import pytest

from differential import App
from netns import PYTHON, wait_for

UDP = """
import ctypes, os, select, signal, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 7000))
"""
CRASH = "print('now', flush=True)\nctypes.string_at(8)\n"


def crash(host, code=CRASH, **env):
    p = host.python(UDP + code, True, args=[host.ip4], env=env)
    return p, p.wait()


@pytest.mark.no_asan  # which handles SIGSEGV itself
def test_a_segmentation_fault_leaves_a_backtrace_and_ends_the_process_by_the_signal(unet):
    p, status = crash(unet.a, VMA_HANDLE_SIGSEGV=1, VMA_TRACELEVEL="panic")
    assert status == -signal.SIGSEGV
    lines = p.text.split("now\n")[1].splitlines()
    print("\n".join(lines))
    assert lines[0] == " VMA PANIC: Segmentation fault (SIGSEGV) at address 0x8:"
    assert all(re.fullmatch(r" VMA PANIC: #\d+ +\S.*\[0x[0-9a-f]+\]", line) for line in lines[1:]) and len(lines) > 3
    assert re.search(r"#\d+ +\S*libffi\S*\(\+0x[0-9a-f]+\)", "\n".join(lines[:8])), "not where it has happened"
    assert "libvma" not in "".join(lines), "the library's own handler is not of interest"


@pytest.mark.no_asan
def test_without_the_parameter_there_is_no_backtrace(unet):
    p, status = crash(unet.a, VMA_TRACELEVEL="panic")
    assert (status, p.text) == (-signal.SIGSEGV, "now\n")


OWN = """
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda sig: (os.write(1, b'own\\n'), os._exit(7)))
ctypes.CDLL(None).signal(signal.SIGSEGV, handler)
"""


@pytest.mark.no_asan
def test_a_programs_own_handler_runs_after_the_backtrace(unet):
    p, status = crash(unet.a, OWN + CRASH, VMA_HANDLE_SIGSEGV=1, VMA_TRACELEVEL="panic")
    assert status == 7
    assert re.search(r"now\n VMA PANIC: Segmentation fault .*\n(?: VMA PANIC: #.*\n)+own\n$", p.text), p.text


# signal() of libc's sets SA_RESTART; Python's handlers do not.
WAIT = """
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda sig: os.write(1, b'handler\\n') and None)
libc = ctypes.CDLL(None, use_errno=True)
libc.signal(signal.SIGINT, handler)
b = ctypes.create_string_buffer(10)
print('waits', flush=True)
got = libc.recv(s.fileno(), b, 10, 0), ctypes.get_errno()
libc.signal(signal.SIGINT, ctypes.c_void_p(1)) # more may come until this is read
print(*got, flush=True)
"""


@pytest.mark.parametrize("poll", [0, -1])
def test_sigint_ends_a_wait_that_its_handler_would_restart(unet, poll):
    p = unet.a.python(UDP + WAIT, True, args=[unet.a.ip4], env={"VMA_HANDLE_SIGINTR": 1, "VMA_RX_POLL": poll, "VMA_TRACELEVEL": "warn"})
    p.wait_text("^waits$")
    end = "handler\n-1 4\n"
    wait_for(lambda: end in p.text or p.kill(signal.SIGINT), what="the call's end")
    assert p.wait() == 0


def test_without_the_parameter_it_goes_on_after_sigint(unet):
    p = unet.a.python(UDP + WAIT, True, args=[unet.a.ip4], env={"VMA_TRACELEVEL": "warn"})
    p.wait_text("^waits$")
    p.kill(signal.SIGINT)
    p.wait_text("^handler$")
    peer = unet.b.socket()
    peer.sendto(b"data", (unet.a.ip4, 7000))
    p.wait_text("^4 0$")
    assert p.wait() == 0


CALLS = """
import socket, sys
me, peer = sys.argv[1:3]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((me, 7000))
s.connect((peer, 7001))
s.send(b'four')
assert s.recv(100) == b'answer'
s.getsockname()
s.shutdown(socket.SHUT_RD)
s.close()
t = socket.socket()
t.setblocking(False)
t.connect_ex((peer, 1))
t.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
t.close()
l = socket.create_server((me, 7002))
print('ready', flush=True)
l.accept()
"""


def calls(net, code=CALLS, **env):
    """The log of a program whose datagram is answered, and to which a client comes."""
    net.neighbours()  # until one is known the kernel sends
    peer = net.b.socket()
    peer.bind((net.b.ip4, 7001))
    p = net.a.python(code, True, args=[net.a.ip4, net.b.ip4], env=env)
    _, sender = peer.recvfrom(100)
    peer.sendto(b"answer", sender)
    if "accept" in code:
        p.wait_text("^ready$")
        with net.b.entered():
            socket.create_connection((net.a.ip4, 7002)).close()
    assert p.wait() == 0, p.text
    return p.text


def lines_of(log, level):
    return [m[1] for m in re.finditer(rf"VMA {level}: (.*)", log)]


@pytest.fixture(scope="module")
def log_of_level(module_net):
    """The log by level; each is made once."""
    logs = {}

    def of(level):
        if level not in logs:
            logs[level] = calls(module_net, VMA_TRACELEVEL=level)
        return logs[level]
    return of


@pytest.mark.parametrize("line", [
    r"socket\(AF_INET, SOCK_DGRAM\|SOCK_CLOEXEC, 0\) = {s}", r"setsockopt\({s}, SO_REUSEADDR, 1\) = 0", r"bind\({s}, {me}:7000\) = 0",
    r"connect\({s}, {peer}:7001\) = 0", r"getsockname\({s}, {me}:7000\) = 0", r"shutdown\({s}, SHUT_RD\) = 0", r"close\({s}\) = 0",
    r"connect\({s}, {peer}:1\) = -1 (EINPROGRESS \(Operation now in progress\)|ECONNREFUSED \(Connection refused\))",
    r"getsockopt\({s}, SO_TYPE, 1\) = 0", r"listen\({s}, \d+\) = 0", r"accept4\({s}, {peer}:\d+, flags 0x80000\) = \d+"])
def test_debug_has_a_line_for_each_call_about_a_socket(unet, log_of_level, line):
    wanted = line.format(s=r"\d+", me=re.escape(unet.a.ip4), peer=re.escape(unet.b.ip4))
    lines = lines_of(log_of_level("4"), "DEBUG")
    assert any(re.fullmatch(wanted, found) for found in lines), "\n".join(lines)


def test_debug_has_none_for_calls_that_move_packets(log_of_level):
    log = log_of_level("debug")
    assert not re.search(r"VMA \w+: (send|recv|\S+ (in|out): )", log) and "VMA FINE" not in log


def test_details_shows_no_calls(log_of_level):
    assert not re.search(r"VMA \w+: (socket|bind|close)\(", log_of_level("details"))


def test_func_has_a_line_for_each_call_that_moves_packets(log_of_level):
    lines = lines_of(log_of_level("5"), "FINE")
    assert any(re.fullmatch(r"send\(\d+, 4 bytes, flags 0x0\) = 4", line) for line in lines), lines
    assert any(re.fullmatch(r"recv\(\d+, 100 bytes, flags 0x0\) = 6", line) for line in lines), lines
    assert "VMA FINER" not in log_of_level("5")


# By libc's own functions: the datagram is there, or nothing is.
WAITS = """
import ctypes, os, select, socket, sys
libc = ctypes.CDLL(None)
me, peer = sys.argv[1:3]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((me, 7000))
idle = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b'four', (peer, 7001))
poll = select.poll()
poll.register(s, select.POLLIN)
poll.register(idle, select.POLLIN)
assert len(poll.poll(60000)) == 1
class Poll(ctypes.Structure): _fields_ = [('fd', ctypes.c_int), ('events', ctypes.c_short), ('revents', ctypes.c_short)]
class Time(ctypes.Structure): _fields_ = [('sec', ctypes.c_long), ('part', ctypes.c_long)]
def one(fd): return (ctypes.c_ulong * 16)(*[1 << fd % 64 if i == fd // 64 else 0 for i in range(16)])
brief, none = Time(0, 1000), Time(0, 0)
assert libc.ppoll(ctypes.byref(Poll(s.fileno(), 1, 0)), 1, None, None) == 1
assert libc.select(s.fileno() + 1, one(s.fileno()), None, None, ctypes.byref(Time(60, 5))) == 1
assert libc.select(idle.fileno() + 1, one(idle.fileno()), None, None, ctypes.byref(brief)) == 0
assert libc.pselect(s.fileno() + 1, one(s.fileno()), None, None, ctypes.byref(none), None) == 1
e = select.epoll()
e.register(s, select.EPOLLIN)
assert len(e.poll(60, 3)) == 1
events = ctypes.create_string_buffer(12 * 4)
assert libc.epoll_pwait(e.fileno(), events, 4, 0, None) == 1
assert libc.epoll_pwait2(e.fileno(), events, 4, ctypes.byref(none), None) == 1
file, pipe = os.open('/dev/null', os.O_RDONLY), os.pipe()
poll = select.poll()
poll.register(file, select.POLLIN)
assert poll.poll(111) == [(file, select.POLLIN)]
assert select.select([pipe[0]], [], [], 0.111) == ([], [], [])
assert libc.poll(ctypes.c_void_p(8), 1, 222) == -1
print(s.fileno(), idle.fileno(), e.fileno(), flush=True)
"""


@pytest.fixture(scope="module")
def waits_of_level(module_net):
    """(its own words, the log's lines at FUNC) of a program that waits in each way."""
    def of(level):
        log = calls(module_net, WAITS, VMA_TRACELEVEL=level)
        return re.search(r"^(\d+) (\d+) (\d+)$", log, re.M).groups(), lines_of(log, "FINE")
    return of


@pytest.mark.no_asan  # a bad pointer is asked about
def test_func_has_a_line_for_each_call_that_waits_for_sockets(waits_of_level):
    (s, idle, e), lines = waits_of_level("func")
    waits = [line for line in lines if re.match("p?poll|p?select|epoll", line)]
    assert waits == [
        "poll(2 descriptors, 60000 ms) = 1", "ppoll(1 descriptors, NULL) = 1",
        f"select(descriptors below {int(s) + 1}, 60.000005 s) = 1", f"select(descriptors below {int(idle) + 1}, 0.001000 s) = 0",
        f"pselect(descriptors below {int(s) + 1}, 0.000000000 s) = 1",
        f"epoll_wait({e}, at most 3, 60000 ms) = 1", f"epoll_pwait({e}, at most 4, 0 ms) = 1",
        f"epoll_pwait2({e}, at most 4, 0.000000000 s) = 1"], "\n".join(lines)


@pytest.mark.no_asan
def test_debug_has_no_line_for_a_call_that_waits(waits_of_level):
    assert waits_of_level("debug")[1] == []


def test_func_all_has_a_line_for_each_frame(unet, log_of_level):
    lines = lines_of(log_of_level("6"), "FINER")
    me, peer, dev = re.escape(unet.a.ip4), re.escape(unet.b.ip4), unet.a.dev
    for wanted in (rf"{dev} out: {me} port 7000 to {peer} port 7001: UDP, 4 bytes", rf"{dev} in: {peer} port 7001 to {me} port 7000: UDP, 6 bytes",
                   rf"{dev} in: {peer} port \d+ to {me} port 7002: TCP SYN, seq \d+, ack 0, window \d+, 0 bytes",
                   rf"{dev} out: {me} port 7002 to {peer} port \d+: TCP SYN,ACK, seq \d+, ack \d+, window \d+, 0 bytes"):
        assert any(re.fullmatch(wanted, line) for line in lines), wanted + "\n" + "\n".join(lines)


def test_counters_are_logged_at_close_as_in_the_manual(log_of_level):
    lines = lines_of(log_of_level("debug"), "DEBUG")
    fd = next(m[1] for line in lines if (m := re.match(r"bind\((\d+), .*:7000\)", line)))
    assert [line for line in lines if line.startswith(f"[fd={fd}]")][:7] == [
        f"[fd={fd}] Tx Offload: 0 KB / 1 / 0 [bytes/packets/errors]", f"[fd={fd}] Tx OS info: 0 KB / 0 / 0 [bytes/packets/errors]",
        f"[fd={fd}] Rx Offload: 0 KB / 1 / 0 [bytes/packets/errors]", f"[fd={fd}] Rx OS info: 0 KB / 0 / 0 [bytes/packets/errors]",
        *[line for line in lines if re.match(rf"\[fd={fd}\] Rx (byte|pkt |poll): ", line)][:3]]


def test_a_rings_counters_are_logged_at_the_end(unet, log_of_level):
    assert re.search(rf"VMA DEBUG: \[ring=\w+ {unet.a.dev}\] Rx: 0 KB / [1-9]\d* / \d+ \[bytes/packets/dropped\]", log_of_level("debug"))


def test_a_level_that_is_set_by_vma_stats_holds_for_calls_and_packets(net, library):
    with App(net.a, True) as app:
        app.do("s = udp(7000)")
        tool = [library.vma_stats, "-k", net.tmp, "-p", str(app.pid)]
        subprocess.run([*tool, "-l", "6"], check=True, stdout=subprocess.DEVNULL)
        wait_for(lambda: "configured with high log level" in app.text, what="the library follows, and warns")
        out = r"VMA FINER: \S+ out: \S+ port 7000 to \S+ port 7001: UDP, 4 bytes\n"
        # The first one may find no neighbour.
        wait_for(lambda: app.do("s.sendto(b'four', (PEER, 7001))") and re.search(out, app.text), what="a frame in the log")
        assert re.search(r"VMA FINE: sendto\(\d+, 4 bytes, flags 0x0, \S+:7001\) = 4\n", app.text)
        subprocess.run([*tool, "-l", "warn"], check=True, stdout=subprocess.DEVNULL)

        def silent():
            before = len(app.text)
            app.do("s.getsockname()")
            return len(app.text) == before

        wait_for(silent, what="the library follows")


@pytest.mark.parametrize("level, warned", [("details", False), ("debug", True), ("4", True), ("all", True)])
def test_a_high_level_is_warned_of(log_of_level, level, warned):
    lines = lines_of(log_of_level(level), "WARNING")
    box = ["*" * 77, "* VMA is currently configured with high log level", "* Application performance will decrease in this log level!",
           "* This log level is recommended for debugging purposes only", "*" * 77]
    assert (lines[:5] == box) == warned, lines


# --- boxes

WAIT_BRIEFLY = "s.settimeout(0.01)\ntry: s.recv(1)\nexcept TimeoutError: pass\n"


def box_of(host, before=(), **env):
    """The lines of the box in the log of a program that waits for a datagram, which is started by `before`."""
    p = host.popen([*before, PYTHON, "-c", UDP + WAIT_BRIEFLY, host.ip4], True, env=env)
    assert p.wait() == 0, p.text
    lines = lines_of(p.text, "WARNING")
    edges = [i for i, line in enumerate(lines) if re.fullmatch(r"\*{77}", line)]
    assert len(edges) in (0, 2), "a box once\n" + p.text
    return "\n".join(line[2:] for line in lines[edges[0] + 1:edges[1]]) if edges else ""


NO_LOCK = ["prlimit", "--memlock=65536", "setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"]


def test_too_little_lockable_memory_is_a_box_with_the_limit(unet):
    box = box_of(unet.a, NO_LOCK)
    assert "Your current max locked memory is: 65536. Please change it to unlimited." in box
    assert "`ulimit -l unlimited`" in box and re.search(rf"{unet.a.dev} .* does not let \d+ MiB be locked", box), box


def test_no_right_is_a_box_of_cap_net_raw(unet):
    box = box_of(unet.a, ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw"])
    assert f"Interface {unet.a.dev} will not be offloaded." in box and "CAP_NET_RAW" in box


def test_an_ordinary_start_has_no_box(unet):
    assert box_of(unet.a) == ""


def test_too_few_huge_pages_is_a_box_with_numbers_and_remedy(unet):
    free = int(pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").read_text())
    there = int(pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").read_text())
    # More than there are.
    box = box_of(unet.a, VMA_MEM_ALLOC_TYPE=2, VMA_RX_BUFS=1000 * (free + 100))
    m = re.search(r"(\d+) pages of 2 MiB are needed; (\d+) of the (\d+) there are free", box)
    assert "Not enough hugepage resources" in box and m and int(m[1]) > 0 and (int(m[2]), int(m[3])) == (free, there), box
    assert f"echo {there + int(m[1])} > /proc/sys/vm/nr_hugepages" in box


def as_bond(host, mode, mac, vlan=False):
    """
    Starts a program that sees the interface as a bond of this mode, or as a VLAN on one ("lo"), in /sys: a kernel without that
    driver has none to make.
    """
    dev, bond = host.dev, "lo" if vlan else host.dev
    script = f"""set -e
real=$(realpath /sys/class/net/lo /sys/class/net/{dev})
mount -t tmpfs none /sys/class/net
for i in $real; do mkdir /sys/class/net/${{i##*/}}; ln -s $i/* /sys/class/net/${{i##*/}}/; done
mkdir /sys/class/net/{bond}/bonding
echo 'mode {mode}' > /sys/class/net/{bond}/bonding/mode; echo 'policy {mac}' > /sys/class/net/{bond}/bonding/fail_over_mac
{f"rm /sys/class/net/{dev}/uevent /sys/class/net/{dev}/iflink" if vlan else ""}
{f"echo DEVTYPE=vlan > /sys/class/net/{dev}/uevent; echo 1 > /sys/class/net/{dev}/iflink" if vlan else ""}
exec "$@"
"""
    return ["unshare", "-m", "sh", "-c", script, "sh"]


@pytest.mark.parametrize("mode, mac, said", [(0, 0, True), (6, 0, True), (1, 2, True), (1, 0, False), (1, 1, False), (4, 0, False)])
def test_a_bond_of_a_mode_that_is_not_supported_is_a_box(net, mode, mac, said):
    box = box_of(net.a, as_bond(net.a, mode, mac))
    assert (f"VMA doesn't support current bonding configuration of {net.a.dev}." in box) == said, box
    assert not said or f"it has mode {mode}, fail_over_mac {mac}" in box


@pytest.mark.parametrize("vlan", [False, True], ids=["bond", "vlan"])
@pytest.mark.parametrize("mode, said", [(6, True), (5, False), (0, False)])
def test_a_bond_that_receives_by_several_addresses_is_left_to_the_kernel(net, mode, said, vlan):
    p = net.a.popen([*as_bond(net.a, mode, 0, vlan), PYTHON, "-c", UDP + WAIT_BRIEFLY, net.a.ip4], True, env={"VMA_TRACELEVEL": "INFO"})
    assert p.wait() == 0, p.text
    line = f'ring: {net.a.dev}: a bond in mode "balance-alb(#6)" receives by the addresses of the devices below it: sockets stay with the kernel'
    assert p.text.count(line) == int(said), p.text
    assert not said or "through the kernel: 1 socket: the interface gives no queues" in p.text, p.text


@pytest.mark.parametrize("driver, said", [("mlx5_core", True), ("ice", False)])
def test_a_bond_of_rdma_devices_is_a_box(net, driver, said):
    """RoCE LAG: a bond whose one port, in /sys, has such a device. The other is an ordinary card."""
    card = "/sys/class/net/port"
    made = f"""set -e
mkdir -p {card}/device/infiniband/mlx5_bond_0; ln -s /sys/bus/pci/drivers/{driver} {card}/device/driver
echo 'lo port' > /sys/class/net/{net.a.dev}/bonding/slaves; exec "$@"
"""
    box = box_of(net.a, [*as_bond(net.a, 4, 0), "sh", "-c", made, "sh"])
    print(box)
    assert (f"Bond {net.a.dev} will not be offloaded by its devices' own queues." in box and "RoCE LAG" in box) == said
    assert said or not box


@pytest.mark.parametrize("mac, said", [(0, False), (1, True)])
def test_a_vlan_over_a_bond_whose_address_changes_is_left_to_the_kernel_with_a_box(net, mac, said):
    before = as_bond(net.a, 1, mac, vlan=True)
    assert (f"{net.a.dev}: vlan over bond while fail_over_mac=1 is not offloaded." in box_of(net.a, before)) == said


ECHO = """
import socket, sys
print('libvma' in open('/proc/self/maps').read(), flush=True)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 7000))
print('ready', flush=True)
while True:
    data, peer = s.recvfrom(100)
    s.sendto(data, peer)
"""


@pytest.mark.no_sanitize
@pytest.mark.parametrize("mode, loaded", [("u+s", True), ("u-s", False)])
def test_the_recipe_of_the_manual_page_for_a_program_with_setcap(net, library, mode, loaded):
    """In a copy of /usr that only this program sees."""
    script = f"""set -e
mkdir {net.tmp}/over; mount -t tmpfs none {net.tmp}/over; cd {net.tmp}/over; mkdir up work
mount -t overlay none -o lowerdir=/usr,upperdir=up,workdir=work /usr
cp {library.path} /usr/lib/libvma.so; chmod {mode} /usr/lib/libvma.so
cp {pathlib.Path(PYTHON).resolve()} /usr/bin/with-caps
setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon,cap_ipc_lock=ep /usr/bin/with-caps
mount -t tmpfs none /tmp # its statistics stand there: of its environment such a program's library takes nothing
cd /; exec setpriv --reuid 65534 --regid 65534 --clear-groups env LD_PRELOAD=libvma.so /usr/bin/with-caps -uc "$@"
"""
    p = net.a.popen(["unshare", "-m", "sh", "-c", script, "sh", ECHO, net.a.ip4])
    p.wait_text("^ready$")
    assert p.text.splitlines()[0 if loaded else -2] == str(loaded), p.text
    peer = net.b.socket()

    def by_kernel():
        before = net.a.counters()["UdpInDatagrams"]
        peer.sendto(b"x", (net.a.ip4, 7000))
        assert peer.recv(10) == b"x"
        return net.a.counters()["UdpInDatagrams"] - before
    if loaded:
        wait_for(lambda: not by_kernel(), what=f"the program to be offloaded:\n{p.text}")
    else:
        assert by_kernel() == 1
