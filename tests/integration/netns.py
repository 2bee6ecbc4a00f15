# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Network namespaces and programs in them: the part that the tests and the benchmarks share.

What cannot be done, and what does not happen in time, is an AssertionError that says what was seen.
"""

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"
CLONE_NEWNET = 0x40000000
SIOCGIFHWADDR, RTF_LOCAL = 0x8927, 0x80000000
KERNEL = tuple(int(n) for n in os.uname().release.split("-")[0].split(".")[:2])
# By how much everything may take longer than on a machine of its own: an emulated processor is slow (scripts/vm).
PATIENCE = float(os.environ.get("TEST_PATIENCE", 1))
_numbers = itertools.count()


def wait_for(fact, timeout=5.0, what=None, every=0.01):
    """Returns fact() as soon as it is true; AssertionError when it is not within timeout seconds."""
    timeout *= PATIENCE
    end = time.monotonic() + timeout
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what or fact}")
        time.sleep(every)


def stop(*pids):
    """
    SIGSTOP for these processes, and all their threads have stopped. After the signal alone they still run, until the thread that takes
    it has a processor: on a busy machine the others receive and acknowledge meanwhile.
    """
    def all_stopped():
        tasks = [task for pid in pids for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
        try:
            return all(re.search(r"^State:\tT", (task / "status").read_text(), re.M) for task in tasks)
        except (FileNotFoundError, ProcessLookupError):  # a thread that was about to end
            return False

    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    wait_for(all_stopped, what="all threads have stopped")


def go_on(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def stopped(*pids):
    try:
        stop(*pids)
        yield
    finally:
        go_on(*pids)


# print() on an unbuffered file is a write() for each word and one for the end of the line: the lines of several processes mix.
WHOLE_LINES = "import sys; sys.stdout.reconfigure(line_buffering=True, write_through=False)\n"


# seccomp(): from now on the calling thread (flags 1: every thread) has that answer (SECCOMP_RET_*) to the system call of that number,
# command: where that is its first argument. By libc's own syscall(): the library would leave the process where its calls are refused
# (sandbox.c); libc=None is the program's, that of the library.
SECCOMP = """
import ctypes, struct
def seccomp(number, answer, command=None, flags=0, libc="libc.so.6"):
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number)]
    if command is not None:
        steps = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, command)]
    steps += [(0x06, 0, 0, answer), (0x06, 0, 0, 0x7fff0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(libc, use_errno=True)
    assert not libc.prctl(38, 1, 0, 0, 0) and not libc.syscall(317, 1, flags, program), ("seccomp", ctypes.get_errno())
"""


def python_argv(source, *args):
    """
    Runs the source text with Debian's Python; what it prints is in the file at once, each line in one piece. Without what packages bring
    (-S): half of the start goes there, and there are thousands.
    """
    return [PYTHON, "-S", "-u", "-c", WHOLE_LINES + source, *args]


def made_once(tmp_path_factory, name, make):
    """The directory in which make(directory) has left what it makes: of pytest-xdist's workers one does it for all."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    directory, part = base / name, base / f"{name}.part"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            make(part)
            part.rename(directory)
    return directory


def interposers(tmp_path_factory, *names):
    """The directory with NAME.so, made of NAME.c with -DINTERPOSER: libraries that come between ours and libc."""
    def make(directory):
        for name in names:
            subprocess.run(["gcc", "-shared", "-fPIC", "-DINTERPOSER", "-o", directory / f"{name}.so",
                            ROOT / f"tests/integration/{name}.c"], check=True)
    return made_once(tmp_path_factory, "-".join(names), make)


# Of the threads that the build with CHECK_LOCKS=1 perturbs.
SEED = os.environ.get("LOCK_CHECK_SEED") or str(random.randrange(1, 1 << 32))


class Library:
    """What is preloaded, and what a sanitizer has said about it."""

    def __init__(self, build, sanitize):
        """
        sanitize: "" (or False), "address" (which the programs need not know of), "thread" (programs built with it only),
        "locks" (lib/runtime/lock_check.h).
        """
        self.build = pathlib.Path(build)
        self.path = self.build / "libvma.so"
        self.sanitize = sanitize
        self.helpers = self.build / "tests" / "integration"
        self.vma_stats = self.build / "vma_stats"
        # Of each worker of pytest-xdist: what is found there belongs to the test that just ran.
        self.reports = self.build / "reports" / os.environ.get("PYTEST_XDIST_WORKER", "main")
        self.before, self.after = [], []  # what is preloaded besides
        if sanitize:
            if sanitize == "address":
                self.before = [self._runtime("libasan.so"), self._runtime("libubsan.so")]
            self.reports.mkdir(parents=True, exist_ok=True)
            for old in self.reports.iterdir():
                old.unlink()

    @staticmethod
    def _runtime(name):
        out = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        return os.path.realpath(out.stdout.strip())

    def helper_environment(self):
        """Of a program with the library or without: ours are built with ThreadSanitizer, too."""
        if self.sanitize != "thread":
            return {}
        # A handler's call closes what the call that it interrupts has held: that one is never inside malloc() then.
        # A suppression goes by the stacks of both sides: of one that its thread has forgotten meanwhile nothing is known.
        known = ROOT / "tests" / "integration" / "tsan.supp"
        return {"TSAN_OPTIONS": f"log_path={self.reports / 'report'}:log_exe_name=1:history_size=7:io_sync=0:report_signal_unsafe=0:suppressions={known}"}

    def environment(self):
        env = {"LD_PRELOAD": " ".join([*self.before, str(self.path), *map(str, self.after)])}
        log = self.reports / "report"
        if self.sanitize == "locks":
            env["LOCK_CHECK_REPORTS"] = str(self.reports)
            env["LOCK_CHECK_SEED"] = SEED
        if self.sanitize == "address":
            # Leaks are the programs' own as a rule; the unit tests look for the library's.
            env["ASAN_OPTIONS"] = f"detect_leaks=0:log_path={log}:log_exe_name=1:handle_segv=1"
            env["UBSAN_OPTIONS"] = f"print_stacktrace=1:log_path={log}:log_exe_name=1"
        return env

    def take_reports(self, processes):
        """What the sanitizers said, each text once: ASan to its file, UBSan (its log_path fails here) to stderr."""
        if not self.sanitize:
            return []
        texts = [f"{p}:\n{p.text}" for p in processes if re.search(r"runtime error: |SUMMARY: \w+Sanitizer", p.text)]
        for report in sorted(self.reports.iterdir()):
            texts.append(f"{report.name}:\n{report.read_text(errors='replace')}")
            report.unlink()
        return texts


def children(pid):
    """What it, or a thread of it, has forked and not waited for."""
    with contextlib.suppress(OSError):
        return [int(p) for task in os.listdir(f"/proc/{pid}/task")
                for p in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return []


def proc(pid, name):
    """The text of /proc/PID/name; "" when the process has ended, which one of somebody else's may do at any time."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/{name}").read_text()
    return ""


def where(pid):
    """Where its threads and those of its children stand, if there is a debugger to tell."""
    if not shutil.which("gdb"):
        return ""
    text = ""
    for p in [pid, *children(pid)]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            text += f"\n--- {p}\n" + subprocess.run(["gdb", "-p", str(p), "-batch", "-ex", "thread apply all bt 12"],
                                                   capture_output=True, text=True, timeout=30 * PATIENCE).stdout[-12000:]
    return text


def know(name, dev, address, peer, peer_dev):
    """In the namespace the MAC of that address, the one of the peer's interface, is known for good."""
    mac = ip("-n", peer, "-br", "link", "show", peer_dev).split()[2]
    ip("-n", name, "neigh", "replace", address, "lladdr", mac, "dev", dev, "nud", "permanent")


def bpftool(*words):
    """What it answers. None where what it was asked for is not there."""
    done = subprocess.run(["bpftool", "-j", *words], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def fdinfo(pid):
    """What the kernel says of each of its descriptors. Nothing of a process that is gone."""
    for info in pathlib.Path(f"/proc/{pid}/fdinfo").glob("*"):
        with contextlib.suppress(OSError):
            yield info.read_text()


def bpf_object(path, source, *options):
    """Compiles a BPF program; the path."""
    subprocess.run(["clang", "-O2", *options, "-target", "bpf", "-x", "c", "-c", "-", "-o", path], input=source, text=True, check=True)
    return path


def bpf_maps(pid, kind, entries=None):
    """The numbers of the BPF maps of that kind (enum bpf_map_type), for so many entries, that the process has open."""
    for text in fdinfo(pid):
        if f"map_type:\t{kind}\n" in text and (entries is None or f"max_entries:\t{entries}\n" in text):
            yield re.search(r"map_id:\t(\d+)", text)[1]


def flow_map(pid):
    """The number of the steering program's table, which the process has open. None: it has none."""
    return next(bpf_maps(pid, 1, 65536), None)


def flow_table(pid):
    """The entries of that table. None: the process has none."""
    number = flow_map(pid)
    entries = number and bpftool("map", "dump", "id", number)
    # One that goes while bpftool looks has an error instead of a value, and bpftool begins again behind it: what it has shown comes twice.
    return entries and list({str(e["formatted"]["key"]): e for e in entries if "formatted" in e}.values())


class Process:
    """A program in a namespace. Its output goes to a file, so that it never blocks on a pipe."""

    def __init__(self, host, argv, env, output, **options):
        self.argv = argv
        self.output = output
        with open(output, "wb") as out:
            self.popen = subprocess.Popen(
                host.argv(argv), env=env, stdout=out, stderr=subprocess.STDOUT,
                stdin=options.pop("stdin", subprocess.DEVNULL), start_new_session=True, **options)
        self.pid = self.popen.pid  # ip netns exec becomes the program

    def __repr__(self):
        return f"<{shlex.join(self.argv)}: pid {self.pid}, exit {self.popen.poll()}>"

    @property
    def text(self):
        return self.output.read_text(errors="replace")

    def alive(self):
        return self.popen.poll() is None

    def wait_text(self, pattern, timeout=10.0):
        """
        Returns the match of the regular expression in what it has printed; fails when it ends without it. The banner's line of
        the command does not count: it has what a Python program is going to print.
        """
        def look():
            ended = not self.alive()
            found = re.search(pattern, re.sub("^.*VMA INFO: Cmd Line: .*$", "", self.text, flags=re.M), re.M)
            if not found and ended:
                raise AssertionError(f"{self} ended without {pattern!r}:\n{self.text}")
            return found
        return wait_for(look, timeout, lambda: f"{pattern!r} from {self}; it printed:\n{self.text}")

    def kill(self, number):
        self.popen.send_signal(number)

    def wait(self, timeout=20.0):
        """Waits for its end; returns the exit status (negative: the signal)."""
        try:
            return self.popen.wait(timeout * PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} did not end within {timeout} s:\n{self.text}{where(self.pid)}")

    def stop(self, number=signal.SIGTERM, timeout=10.0):
        """Ends it with the signal, for good after timeout; returns the exit status."""
        if self.alive():
            self.kill(number)
            try:
                self.popen.wait(timeout * PATIENCE)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        return self.popen.wait()


class Host:
    """One of the two namespaces."""

    def __init__(self, net, name, dev, ip4, ip6):
        self.net = net
        self.name = name
        self.dev = dev
        self.ip4 = ip4
        self.ip6 = ip6
        self.processes = []

    def ip(self, family):
        """The address of the family: 4 or 6, or socket.AF_INET or AF_INET6."""
        return self.ip6 if family in (6, socket.AF_INET6) else self.ip4

    def argv(self, argv):
        return ["ip", "netns", "exec", self.name, *[str(a) for a in argv]]

    def _environment(self, preload, env):
        full = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("VMA_")}
        full.update(self.net.library.helper_environment())
        if preload:
            full.update(self.net.library.environment())
            full["VMA_STATS_SHMEM_DIR"] = full["TEST_EXITS"] = str(self.net.tmp)  # exits.c
            # Whole suites under other parameters: TEST_VMA="VMA_RING_ALLOCATION_LOGIC_RX=20 ..."
            full.update(word.split("=", 1) for word in os.environ.get("TEST_VMA", "").split())
        full.update({k: str(v) for k, v in (env or {}).items()})
        return full

    def popen(self, cmd, preload=False, env=None, cpu=None, **options):
        """Starts a program (list or one shell-quoted line) and returns a Process; it is ended after the test."""
        argv = shlex.split(cmd) if isinstance(cmd, str) else [str(a) for a in cmd]
        full = self._environment(preload, env)
        if "LD_PRELOAD" in full:
            # ip and taskset, which come before the program, run without it.
            argv = ["env", f"LD_PRELOAD={full.pop('LD_PRELOAD')}", *argv]
        if cpu is not None:
            argv = ["taskset", "-c", str(cpu % os.cpu_count()), *argv]
        output = self.net.tmp / f"out-{next(_numbers)}"
        process = Process(self, argv, full, output, **options)
        self.processes.append(process)
        if preload:
            Net.pids_started.add(process.pid)
        return process

    def run(self, cmd, preload=False, env=None, cpu=None, timeout=30.0, check=True, stdin=None):
        """Runs a program to its end; returns the Process. Fails the test when check and it did not exit with 0."""
        process = self.popen(cmd, preload, env, cpu, stdin=stdin or subprocess.DEVNULL)
        status = process.wait(timeout)
        if check and status != 0:
            raise AssertionError(f"{process} exited with {status}:\n{process.text}")
        return process

    def python(self, source, preload=False, args=(), **options):
        """Starts Python with the source text; a Process. Print with flush=True to be waited for."""
        return self.popen(python_argv(source, *args), preload, **options)

    @contextlib.contextmanager
    def entered(self):
        """The calling thread is in the namespace meanwhile: sockets that it makes stay there."""
        libc = ctypes.CDLL(None, use_errno=True)

        def enter(fd):
            if libc.setns(fd, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"setns to {self.name}")

        task = f"/proc/self/task/{threading.get_native_id()}/ns/net"
        with open(task, "rb") as here, open(f"/run/netns/{self.name}", "rb") as there:
            enter(there.fileno())
            try:
                yield
            finally:
                enter(here.fileno())

    def socket(self, family=socket.AF_INET, kind=socket.SOCK_DGRAM, proto=0, timeout=5.0):
        """A kernel socket of the test process, in the namespace: the peer that is known to be right."""
        with self.entered():
            s = socket.socket(family, kind, proto)
        s.settimeout(timeout * PATIENCE)
        return s

    def _snmp(self):
        """{"UdpInDatagrams": n, "Udp6InDatagrams": n, "IpReasmOKs": n, ...}, read in the namespace."""
        with self.entered():
            v4 = pathlib.Path("/proc/thread-self/net/snmp").read_text()
            v6 = pathlib.Path("/proc/thread-self/net/snmp6").read_text()
        counters = {}
        lines = v4.splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            group = names.split(":")[0]
            counters.update(zip((group + n for n in names.split()[1:]), map(int, values.split()[1:])))
        counters.update((line.split()[0], int(line.split()[1])) for line in v6.splitlines())
        return counters

    def counters(self):
        """The kernel's own IP, UDP, TCP and ICMP counters of the namespace (both families)."""
        return self._snmp()

    @contextlib.contextmanager
    def bypassed(self, at_most=0):
        """Proves that no more than at_most UDP datagrams, of either family, passed the kernel's UDP meanwhile."""
        names = ("UdpInDatagrams", "UdpOutDatagrams", "Udp6InDatagrams", "Udp6OutDatagrams", "UdpNoPorts",
                 "Udp6NoPorts", "UdpInErrors", "Udp6InErrors")
        before = self.counters()
        yield
        after = self.counters()
        seen = {n: after[n] - before[n] for n in names if after[n] != before[n]}
        assert sum(seen.values()) <= at_most, f"{self.name}: passed the kernel's UDP stack: {seen}"

    @contextlib.contextmanager
    def tcp_bypassed(self, at_most=0, opens=0):
        """
        Proves that no more than so many TCP segments and connections passed the kernel's TCP meanwhile. What it only answers
        by a RST does not count: segments that come when their program is gone.
        """
        names = ("TcpInSegs", "TcpOutSegs", "TcpOutRsts", "TcpActiveOpens", "TcpPassiveOpens")
        before = self.counters()
        yield
        after = self.counters()
        seen = {n: after[n] - before[n] for n in names}
        segments = seen["TcpInSegs"] + seen["TcpOutSegs"] - 2 * seen["TcpOutRsts"]
        assert segments <= at_most, f"{self.name}: passed the kernel's TCP stack: {seen}"
        assert seen["TcpActiveOpens"] + seen["TcpPassiveOpens"] <= opens, f"{self.name}: made by the kernel: {seen}"

    def mac(self):
        """Of its interface."""
        with self.socket(kind=socket.SOCK_DGRAM) as s:
            return fcntl.ioctl(s, SIOCGIFHWADDR, struct.pack("16s24x", self.dev.encode()))[18:24].hex(":")

    def receives_at_ip6(self):
        """ip has left the address to a work queue of the kernel's, which makes the local route: until then a datagram is dropped."""
        with self.entered():
            routes = pathlib.Path("/proc/thread-self/net/ipv6_route").read_text()
        address = socket.inet_pton(socket.AF_INET6, self.ip6).hex()
        return any(line.startswith(f"{address} 80 ") and int(line.split()[8], 16) & RTF_LOCAL for line in routes.splitlines())

    def interface_packets(self):
        """(received, sent) by the interface."""
        base = self.run(["cat", "/proc/net/dev"]).text
        words = re.search(rf"^\s*{self.dev}:(.*)$", base, re.M).group(1).split()
        return int(words[1]), int(words[9])

    def bound(self, port, proto="udp"):
        flags = "-Hlun" if proto == "udp" else "-Hltn"
        return bool(self.run(["ss", flags, f"sport = :{port}"]).text.strip())

    def wait_bound(self, port, proto="udp", timeout=10.0):
        """Until some socket is bound (UDP) or listens (TCP) on the port; the shadow socket tells so for ours."""
        wait_for(lambda: self.bound(port, proto), timeout, f"{proto} port {port} bound in {self.name}", 0.05)

    def steered(self, port, proto="udp"):
        """Packets for a socket on the port go to user space: the steering program's table says so."""
        keys = [e["formatted"]["key"] for process in self.processes for e in flow_table(process.pid) or []]
        return any(k["local_port"] == port and k["proto"] == (17 if proto == "udp" else 6) for k in keys)

    def wait_steered(self, port, proto="udp", timeout=10.0):
        """After wait_bound(): what comes from now on does not come by the kernel. The ring's program is there before its rules."""
        wait_for(lambda: self.steered(port, proto), timeout, f"{proto} port {port} of {self.name} steered", 0.05)

    def stats(self, process, *options):
        """What vma_stats says about the process: with no options, its text of view 3."""
        args = options or ("-v", "3", "-c", "1")
        return self.run([self.net.library.vma_stats, "-p", process.pid, "-k", f"{self.net.tmp}/", *args]).text

    def close(self):
        for process in self.processes:
            process.stop(signal.SIGTERM, 2.0)


class Net:
    """The pair of namespaces; close() ends everything in them and removes them."""

    pids_started = set()  # of programs with the library

    def __init__(self, library, tmp, mtu=1500, queues=1):
        self.library = library
        self.tmp = tmp
        self.mtu = mtu
        self.queues = queues
        stem = f"vma-it-{os.getpid()}-{next(_numbers)}"
        self.a = Host(self, stem + "a", "veth-a", "10.77.0.1", "fd77::1")
        self.b = Host(self, stem + "b", "veth-b", "10.77.0.2", "fd77::2")
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self):
        ip_batch([f"netns add {host.name}" for host in (self.a, self.b)])
        self.link()

    def link(self):
        """The veth pair, also anew when one end of it was deleted."""
        a, b = self.a, self.b
        pair = f"mtu {self.mtu} numrxqueues {self.queues} numtxqueues {self.queues}"
        self._configure([f"link add {a.dev} {pair} type veth peer name {b.dev} {pair} netns {b.name}"])

    def configure(self):
        """Addresses for the interfaces that are there."""
        self._configure([])

    def _configure(self, first):
        for host, before in ((self.a, first), (self.b, [])):
            ip_batch([*before, f"addr add {host.ip4}/24 dev {host.dev}", f"addr add {host.ip6}/64 dev {host.dev} nodad",
                      "link set lo up", f"link set {host.dev} up"], host.name)
        # Not LOWER_UP: that the carrier is there the kernel works out later, and an interface that does not run is not offloaded.
        for host in (self.a, self.b):
            wait_for(lambda h=host: " state UP " in ip("-n", h.name, "link", "show", h.dev), what="the interfaces up")
            wait_for(host.receives_at_ip6, what=f"{host.ip6} on {host.dev} of {host.name}")

    def neighbours(self, v6=True):
        """Both know the other's MAC for good: no datagram goes to the kernel for want of it."""
        for host, peer in ((self.a, self.b), (self.b, self.a)):
            mac = peer.mac()
            ip_batch([f"neigh replace {address} lladdr {mac} dev {host.dev} nud permanent"
                      for address in ((peer.ip4, peer.ip6) if v6 else (peer.ip4,))], host.name)

    def close(self):
        for host in (self.a, self.b):
            host.close()
            remove_namespace(host.name)


class LossyNet(Net):
    """
    The same two hosts at the ends of a long and lossy wire: between their interfaces stands a third namespace with the
    program lossy_link. No frame is longer than the MTU. Nothing passes but inside `with net.wire(...)`.

        net.a [ veth-a ] ---- [ wire-a  lossy_link  wire-b ] ---- [ veth-b ] net.b
    """

    def _make(self):
        self.middle = Host(self, self.a.name[:-1] + "c", None, None, None)
        ip("netns", "add", self.middle.name)
        for host, end in ((self.a, "wire-a"), (self.b, "wire-b")):
            ip("netns", "add", host.name)
            ip("-n", host.name, "link", "add", host.dev, "mtu", self.mtu, "type", "veth",
               "peer", "name", end, "mtu", self.mtu, "netns", self.middle.name)
            ip("-n", host.name, "addr", "add", f"{host.ip4}/24", "dev", host.dev)
            ip("-n", host.name, "link", "set", "lo", "up")
            ip("-n", host.name, "link", "set", host.dev, "up")
            ip("-n", self.middle.name, "link", "set", end, "up")
            host.run(["ethtool", "-K", host.dev, "tso", "off", "gro", "off"])
            # The middle host only carries frames: it says nothing itself.
            self.middle.run(["sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1"])
        self.neighbours(v6=False)

    @contextlib.contextmanager
    def wire(self, rtt_ms, loss_percent, seed, mbit=0):
        """The wire, for as long as the block runs; gives its Process, whose text tells at the end what was lost. mbit: 0 is any rate."""
        link = self.middle.popen([self.library.build / "bench" / "bin" / "lossy_link", "wire-a", "wire-b",
                                  round(rtt_ms * 500), round(loss_percent * 10000), seed, mbit])
        try:
            link.wait_text("^ready$")
            yield link
        finally:
            link.stop()

    def close(self):
        super().close()
        if hasattr(self, "middle"):
            self.middle.close()
            remove_namespace(self.middle.name)


def pids_in(name):
    """The processes of the namespace, as `ip netns pids`."""
    namespace = os.stat(f"/run/netns/{name}")
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), namespace):
                yield int(pid)


def remove_namespace(name):
    """Ends what runs in it and removes it; nothing when there is none of that name."""
    if not os.path.exists(f"/run/netns/{name}"):
        return
    for pid in pids_in(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # The host's bpffs outlives the namespace: what killed processes pinned in it is the next owner's to remove, who may do so just now.
    shutil.rmtree(f"/sys/fs/bpf/vma/netns-{os.stat(f'/run/netns/{name}').st_ino}", ignore_errors=True)
    ip("netns", "delete", name)


def remove_stale():
    """Namespaces of a run that was killed with SIGKILL: their names carry the pid of a process that is gone."""
    for line in ip("netns", "list").splitlines():
        found = re.match(r"vma-it-(\d+)-\d+[abc]\b", line)
        if found and not os.path.exists(f"/proc/{found.group(1)}"):
            remove_namespace(found.group(0))


def ip_batch(lines, name=None):
    """Those commands of iproute2's in one process, in the namespace of that name: thousands of tests make theirs."""
    done = subprocess.run(["ip", *(["-n", name] if name else []), "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"ip, in {name}: {lines}: {done.stderr.strip()}")


def ip(*args):
    """iproute2; its output, or the test's end with what it said. An IPv6 address is added when the kernel receives at it."""
    words = [str(a) for a in args]
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    if "nodad" in words:
        _address_is_there(words)
    return done.stdout


def link_local(name, dev):
    """The interface's IPv6 address of that kind when it is in use: before that the kernel asks for no neighbour from it. None: not yet."""
    shown = ip("-n", name, "-6", "-o", "addr", "show", "dev", dev).split()
    return None if "tentative" in shown else next((word.split("/")[0] for word in shown if word.startswith("fe80:")), None)


def second_way(net):
    """
    Another pair of interfaces between the two hosts, two-a and two-b, with 10.78.0.1 and .2, fd78::1 and ::2. The kernel asks for a
    neighbour there from its link-local address, and drops what waits for the answer after three seconds.
    """
    ends = ((net.a.name, "two-a", 1), (net.b.name, "two-b", 2))
    ip("-n", net.a.name, "link", "add", "two-a", "type", "veth", "peer", "name", "two-b", "netns", net.b.name)
    for host, dev, n in ends:
        ip("-n", host, "addr", "add", f"10.78.0.{n}/24", "dev", dev)
        ip("-n", host, "addr", "add", f"fd78::{n}/64", "dev", dev, "nodad")
        ip("-n", host, "link", "set", dev, "up")
    wait_for(lambda: all(" state UP " in ip("-n", host, "link", "show", dev) for host, dev, _ in ends), what="the interfaces up")
    wait_for(lambda: all(link_local(host, dev) for host, dev, _ in ends), what="the link-local addresses in use")


def _address_is_there(words):
    """
    ip has left it to a work queue of the kernel's, which makes the local route: until then a datagram is dropped
    (Ip6InAddrErrors). Without carrier there is none.
    """
    ns, dev = words[words.index("-n") + 1], words[words.index("dev") + 1]
    address = next(w for w in words if "/" in w).split("/")[0]

    def there():
        return f"local {address} " in ip("-n", ns, "-6", "route", "show", "table", "local", "dev", dev)

    wait_for(lambda: "LOWER_UP" not in ip("-n", ns, "link", "show", dev) or there(), what=f"{address} on {dev} of {ns}")
