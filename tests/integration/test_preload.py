# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The library in front of libc: programs must not notice it.

preload_calls.c calls every intercepted function and prints what it got; here that is compared with what it prints
without the library. tests/preload/forward.c puts an object behind every UDP socket and epoll set that calls the kernel,
so that the code for offloaded fds (messages, copies, splice, dup) is compared with the kernel's, too.
"""

import difflib
import json
import os
import pathlib
import re
import socket
import shutil
import subprocess

import pytest

from differential import differential
from netns import PATIENCE, PYTHON, ROOT, made_once

HERE = pathlib.Path(__file__).parent
MAP = ROOT / "lib" / "preload" / "libvma.map"
FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", f"-I{ROOT}/lib",
         f"-I{ROOT}/include"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


def compile_c(out, sources, *flags):
    done = subprocess.run(["gcc", *FLAGS, *flags, "-o", str(out), *map(str, sources), "-lpthread", "-ldl"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def stdout(host, cmd, preload=False, env=None, check=True):
    """What the program prints on its standard output (the library's log is on the other)."""
    shell = ["sh", "-c", 'exec 2>/dev/null; exec "$@"', "sh", *cmd]
    return host.run(shell, preload=preload, env=env, check=check, timeout=60).text


def assert_same(plain, other):
    diff = list(difflib.unified_diff(plain.splitlines(), other.splitlines(), "without", "with", lineterm="", n=2))
    assert not diff, "\n".join(diff)


@pytest.fixture
def calls(library, tmp_path):
    data = tmp_path / "data"
    data.write_bytes(bytes(i * 31 % 251 for i in range(20000)))
    return [library.helpers / "preload_calls", data]


@pytest.fixture
def forward(library, tmp_path_factory):
    """preload and its two tables before libc itself; returns the environment that preloads it."""
    core = [ROOT / "lib" / name for name in ("runtime/atfork.c", "runtime/libc.c", "runtime/signals.c", "runtime/lock.c",
                                       "runtime/own_fd.c", "runtime/backtrace.c", "stats/sockopt_names.c", "fd/table.c", "fd/closing.c", "fd/turn.c")]
    entry = [f for f in sorted((ROOT / "lib" / "preload").glob("*.c")) if f.name not in ("start.c", "parts.c")]
    flags = ["-shared", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec", f"-Wl,--version-script={MAP}"]
    if not library.sanitize:
        flags.append("-Wl,-z,defs")  # what forward.c lacks is said here, not by the loader
    if library.sanitize:
        flags += SANITIZE
    sources = [*core, *entry, ROOT / "tests" / "preload" / "forward.c"]
    so = made_once(tmp_path_factory, "forward", lambda out: compile_c(out / "forward.so", sources, *flags)) / "forward.so"
    env = library.environment()
    env["LD_PRELOAD"] = " ".join([*library.before, str(so)])
    return env


def test_every_intercepted_function_is_called():
    """preload_calls.c leaves none of the version map's names out."""
    text = re.sub(r"/\*.*?\*/", "", MAP.read_text(), flags=re.S)
    names = re.findall(r"(\w+);", text.split("local:")[0])
    source = (HERE / "preload_calls.c").read_text().split("static const char *kind;")[1]
    assert len(names) > 100
    # liburing's are called by uring.c, libaio's by aio.c.
    assert [n for n in names if not n.startswith("io_uring_") and n != "io_submit" and not re.search(rf"\b{n}\(", source)] == []


def test_every_call_gives_the_same_with_the_library(net, calls):
    plain = stdout(net.a, calls)
    print(f"{len(plain.splitlines())} results compared")
    assert len(plain.splitlines()) > 1500
    assert_same(plain, stdout(net.a, calls, preload=True))


@pytest.mark.whole  # compiles half the library
@pytest.mark.parametrize("form", ["message", "short"])
def test_every_call_gives_the_same_through_an_object(net, calls, forward, form):
    env = dict(forward, **({"FORWARD_SHORT": "1"} if form == "short" else {}))
    assert_same(stdout(net.a, calls), stdout(net.a, calls, env=env))
    said = net.a.run(calls, env=env).text
    through = [int(n) for n in re.findall(r"forward: (\d+) operations", said)]
    print(f"{sum(through)} operations went through objects")
    assert sum(through) > 300


ALLOCATOR = r"""
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* An allocator that reads a file at each of its first calls, before anything has been set up; it never frees. */
static char heap[64 << 20] __attribute__((aligned(16)));
static size_t used;
static int calls;

void *malloc(size_t n)
{
	char line[64];

	if (calls < 1000 && calls++ >= 0) {
		int fd = open("/proc/self/statm", O_RDONLY);

		if (fd < 0 || read(fd, line, sizeof(line)) <= 0 || close(fd))
			_exit(55);
	}
	n = (n + 31) & ~(size_t)15;
	used += n;
	if (used > sizeof(heap))
		_exit(56);
	*(size_t *)(heap + used - n) = n - 16;
	return heap + used - n + 16;
}

void free(void *p)
{
	(void)p;
}

void *calloc(size_t a, size_t b)
{
	return malloc(a * b); /* .bss is zero */
}

void *realloc(void *p, size_t n)
{
	void *q = malloc(n);

	if (p) {
		size_t had = ((size_t *)p)[-2];

		memcpy(q, p, had < n ? had : n);
	}
	return q;
}
"""


@pytest.mark.no_sanitize
@pytest.mark.parametrize("order", ["before", "after"])
def test_an_allocator_that_makes_calls_of_its_own(net, library, tmp_path, order):
    """It calls open, read and close before our constructor has run, and perhaps inside our dlsym."""
    (tmp_path / "alloc.c").write_text(ALLOCATOR)
    alloc = compile_c(tmp_path / "alloc.so", [tmp_path / "alloc.c"], "-shared", "-fPIC", "-fno-builtin")
    both = [str(alloc), str(library.path)]
    env = {"LD_PRELOAD": " ".join(both if order == "before" else both[::-1])}
    assert stdout(net.a, ["/bin/ls", "/etc/passwd"], env=env) == "/etc/passwd\n"
    assert stdout(net.a, ["bash", "-c", "echo $(echo inner | cat)"], env=env) == "inner\n"


PROGRAMS = {
    "bash": """bash -c '
        set -o pipefail; seq 1000 | sort -rn | head -3; (exit 7); echo $?; trap "echo trapped" USR1; kill -USR1 $$
        cat < <(echo substituted); exec 5<>/dev/null; echo to >&5; wait; coproc cat; echo hi >&${COPROC[1]}
        read -u ${COPROC[0]} line; echo $line; echo x > /dev/udp/127.0.0.1/9; echo sent $?; ulimit -n 64; ls / | wc -l'""",
    "perl": r"""perl -MSocket -MIO::Select -e '
        socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0); syswrite $a, "ping"; sysread $b, my $x, 4; print "$x\n";
        print `echo backtick`; pipe(R, W); if (!fork) { print W "child\n"; close W; exit 3 } close W; print <R>; wait;
        print $? >> 8, "\n"; socket(my $u, AF_INET, SOCK_DGRAM, 0); bind($u, sockaddr_in(0, INADDR_LOOPBACK));
        socket(my $v, AF_INET, SOCK_DGRAM, 0); send($v, "datagram", 0, getsockname $u);
        print scalar(IO::Select->new($u)->can_read(5)), "\n"; recv($u, my $d, 100, 0); print "$d\n";
        local $SIG{ALRM} = sub { die "alarm\n" }; alarm 1; eval { recv($u, $d, 100, 0) }; print $@;'""",
    "git": """sh -c 'rm -rf r c && git init -q r && cd r && echo one > f && git add f &&
        git -c user.name=n -c user.email=e@e -c commit.gpgsign=false commit -qm first && cd .. &&
        git clone -q file://$PWD/r c && git -C c log --format=%s && git -C c fsck 2>&1 | tail -1 && cat c/f'""",
    "tar": "sh -c 'tar -C /etc -cf - passwd | gzip | gunzip | tar -tf -'",
    "python-asyncio": r"""python3 -c '
import asyncio, subprocess, sys, multiprocessing, signal
class P(asyncio.DatagramProtocol):
    def connection_made(self, t): self.t = t
    def datagram_received(self, d, a): self.t.sendto(d.upper(), a)
class C(asyncio.DatagramProtocol):
    def __init__(self): self.got = asyncio.get_event_loop().create_future()
    def datagram_received(self, d, a): self.got.set_result(d)
async def main():
    loop = asyncio.get_running_loop()
    st, _ = await loop.create_datagram_endpoint(P, local_addr=("127.0.0.1", 0))
    ct, c = await loop.create_datagram_endpoint(C, remote_addr=st.get_extra_info("sockname"))
    ct.sendto(b"hello"); print(await asyncio.wait_for(c.got, 5))
    async def serve(r, w): w.write((await r.readline()).upper()); await w.drain(); w.close()
    s = await asyncio.start_server(serve, "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*s.sockets[0].getsockname()); w.write(b"line\n"); print(await r.readline())
    p = await asyncio.create_subprocess_exec("sh", "-c", "cat; exit 4", stdin=-1, stdout=-1)
    print(await p.communicate(b"child"), p.returncode)
asyncio.run(main())
print(subprocess.run(["sh", "-c", "echo out; exit 3"], capture_output=True), subprocess.getoutput("echo shell"))
signal.signal(signal.SIGALRM, lambda *a: 1 / 0)
ends = multiprocessing.Pipe()
try: signal.setitimer(signal.ITIMER_REAL, 0.05); ends[0].poll(5)
except ZeroDivisionError: print("interrupted")
'""",
    "python-pools": r"""python3 -c '
import asyncio, multiprocessing
async def main():
    s = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*s.sockets[0].getsockname()); print(await r.read()); w.close()
asyncio.run(main())
with multiprocessing.get_context("fork").Pool(2) as p: print(p.map(abs, [-1, -2, 3]))
with multiprocessing.get_context("forkserver").Pool(1) as p: print(p.map(abs, [-4]))
'""",
    "python-close-range": r"""python3 -c '
import os, socket, subprocess
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0)); n = u.fileno(); u.detach()
e = os.eventfd(0); os.closerange(n, n + 1)
try: os.write(n, b"x")
except OSError as x: print(x)
print(subprocess.run(["sh", "-c", "ls /proc/self/fd | wc -l"], capture_output=True, close_fds=True).stdout)
v = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); v.bind(("127.0.0.1", 0))
w = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); w.sendto(b"again", v.getsockname()); print(v.recv(10))
'""",
    # The signal waits when the child begins: it is met half forked, if it can be.
    "killed children": r"""python3 -c "
import os, signal, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((\"127.0.0.1\", 0))
ends = set()
for i in range(300):
    pid = os.fork()
    if not pid:
        signal.pause(); os._exit(1)
    os.kill(pid, signal.SIGTERM)
    signal.alarm(20)
    ends.add(os.waitpid(pid, 0)[1])
print(ends)
" """,
    "daemon": r"""sh -c 'python3 -c "
import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((\"127.0.0.1\", 0))
if os.fork(): os._exit(0)
os.setsid()
t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); t.sendto(b\"to the daemon\", s.getsockname())
print(s.recv(100)); sys.stdout.flush()
" | cat'""",
}


# A pool forks beside threads that allocate: Debian's libasan leaves its allocator locked in such a child, now and then.
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.no_sanitize] * (n == "python-pools")) for n in PROGRAMS])
def test_a_program_runs_unchanged(net, tmp_path, name):
    cmd = ["sh", "-c", f"cd {tmp_path} && {PROGRAMS[name]}"]
    plain = stdout(net.a, cmd)
    print(plain)
    assert plain.strip()
    assert_same(plain, stdout(net.a, cmd, preload=True))


@pytest.mark.no_sanitize  # curl hangs at its start under libasan alone
def test_curl_gets_a_file(net, tmp_path):
    (tmp_path / "page").write_bytes(os.urandom(300000))
    net.a.popen([PYTHON, "-m", "http.server", "--bind", net.a.ip4, "--directory", tmp_path, "8000"], preload=True)
    net.a.wait_bound(8000, "tcp")
    net.b.run(["curl", "-sS", "-o", tmp_path / "got", f"http://{net.a.ip4}:8000/page"], preload=True)
    assert (tmp_path / "got").read_bytes() == (tmp_path / "page").read_bytes()


CHAIN = r"""
import os, socket, subprocess, sys
step = int(sys.argv[1])
if step == 0:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[2], 5555)); s.set_inheritable(True)
    t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    print("first program", flush=True)
    os.execv(sys.executable, [sys.executable, "-c", os.environ["CHAIN"], "1", str(s.fileno())])
s = socket.socket(fileno=int(sys.argv[2]))
if step == 1:
    p = subprocess.Popen([sys.executable, "-c", os.environ["CHAIN"], "2", str(s.fileno())], pass_fds=[s.fileno()])
    sys.exit(p.wait())
print("third program", s.getsockname()[1], flush=True)
s.settimeout(10)
data, peer = s.recvfrom(100)
s.sendto(data.upper(), peer)
"""


def test_a_raw_socket_is_the_kernels(unet):
    """It answers as without the library, which does not know it."""
    def steps(app, peer):
        app("r = socket.socket(FAM, socket.SOCK_RAW, 253); r.settimeout(5); r.bind((ME, 0)); r.connect((PEER, 0))")
        app("r.getsockname(), r.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)")
        before = unet.a.counters()
        with unet.b.socket(kind=socket.SOCK_RAW, proto=253) as other:
            app("r.send(b'there')")
            app.note("peer got", other.recv(100)[20:])
            other.sendto(b"back", app.at(0))
            app("await_ready(r), r.recv(100)[20:]")
        now = unet.a.counters()
        app.note("by the kernel", [now[name] > before[name] for name in ("IpOutRequests", "IpInDelivers")])
        # An echo request and its reply.
        app("p = socket.socket(FAM, socket.SOCK_RAW, socket.IPPROTO_ICMP); p.settimeout(5)")
        app("p.sendto(bytes.fromhex('0800f7ff00000000'), (PEER, 0)), p.recv(100)[20:]")
        if app.preload:
            app.do("s = udp(7000); await_ready(s, timeout=0.01)")
            shown = json.loads(unet.a.stats(app.popen, "--json", "-c", "1").splitlines()[-1])["sockets"]
            assert [q["fd"] for q in shown] == [app.do("s.fileno()")], shown
    answers = differential(unet, "4", steps)
    assert answers["peer got"] == b"there" and answers["by the kernel"] == [True, True]


def test_a_socket_goes_through_exec_and_spawn(net):
    """Bound in one program, served in its grandchild, which has it from the kernel."""
    program = net.a.popen([PYTHON, "-c", CHAIN, "0", net.a.ip4], preload=True, env={"CHAIN": CHAIN})
    program.wait_text("third program 5555")
    peer = net.b.socket()
    peer.sendto(b"hello", (net.a.ip4, 5555))
    assert peer.recv(100) == b"HELLO"
    assert program.wait() == 0


@pytest.mark.no_sanitize
@pytest.mark.parametrize("name, set_uid, said", [("/nowhere/libvma.so", False, True), ("{path}", False, False),
                                                 ("libnowhere.so", True, True), ("{path}", True, False)])
def test_what_ld_so_cannot_preload_it_says(library, tmp_path, name, set_uid, said):
    """The program runs without the library then. Of a set-uid one a path is left out without a word, as libvma(7) has it."""
    program = shutil.copy("/bin/true" if set_uid else "/bin/cat", tmp_path / "program")
    if set_uid:
        os.chown(program, 65534, 65534)
        os.chmod(program, 0o4755)
    name = name.format(path=library.path)
    done = subprocess.run([program, "/proc/self/maps"], env={"LD_PRELOAD": name}, text=True, capture_output=True, timeout=20 * PATIENCE, check=True)
    print(done.stderr)
    message = f"ERROR: ld.so: object '{name}' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.\n"
    assert done.stderr == (message if said else "")
    assert set_uid or ("libvma" in done.stdout) is not said
