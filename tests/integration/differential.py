# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The same steps with kernel sockets and with the library; what they answer must be equal.

    def steps(app, peer):
        app("s = udp(7000)")
        peer.sendto(b"x", app.at(7000))
        app("s.recvfrom(10)")

    run = differential(unet, "4", steps)

app(code) runs a line in udp_app.py inside net.a, remembers the answer and returns it; app.ask(code) does not remember
it, app.do(code) moreover fails when the line does. peer is a kernel socket of the test process in net.b. Families: "4", "6", and "mapped": an IPv6 socket
that speaks IPv4.
"""

import ast
import json
import os
import pathlib
import re
import select
import socket
import subprocess
import time

from netns import PATIENCE, PYTHON, where

APP = pathlib.Path(__file__).with_name("udp_app.py")
FAMILIES = ["4", "6", "mapped"]
PEER_PORT = 7001

# For app.do(): a forked child that runs fn and ends, and how it ended.
CHILDREN = """
import os
def child(fn):
    pid = os.fork()
    if pid: return pid
    code = 1
    try:
        fn()
        code = 0
    except BaseException:
        import traceback; traceback.print_exc()
    finally:
        os._exit(code)
def wait(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def short(value):
    """repr() with long bytes abbreviated."""
    return re.sub(r"""b(['"])((?:\\.|(?!\1).){60})(?:\\.|(?!\1).)*\1""",
                  lambda m: f"b{m[1]}{m[2]}...{m[1]}", repr(value))[:600]


class Hang(AssertionError):
    pass


class App:
    """udp_app.py in a namespace."""

    def __init__(self, host, preload, family="4", env=None, peer_host=None):
        self.host = host
        self.family = family
        self.preload = preload
        self.answers = []
        peer_host = peer_host or (host.net.b if host is host.net.a else host.net.a)
        full = host._environment(preload, {"VMA_TRACELEVEL": "WARN", **(env or {})})
        argv = [PYTHON, "-u", str(APP)]
        if "LD_PRELOAD" in full:
            argv = ["env", f"LD_PRELOAD={full.pop('LD_PRELOAD')}", *argv]
        self.log = host.net.tmp / f"app-{time.monotonic_ns()}"
        with open(self.log, "wb") as log:
            self.popen = subprocess.Popen(host.argv(argv), env=full, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          stderr=log, start_new_session=True)
        self.pid = self.popen.pid
        self.popen_ = self.popen
        self.tail = b""
        self.me = self._ip(host)
        self.other = self._ip(peer_host)
        fam = "AF_INET" if family == "4" else "AF_INET6"
        self.do(f"""
FAM = socket.{fam}; ME = {self.me!r}; PEER = {self.other!r}; ANY = {"'0.0.0.0'" if family == "4" else "'::'"}
DEV = {host.dev!r}
def udp(port=None, ip=None, *options):
    s = socket.socket(FAM, socket.SOCK_DGRAM)
    for o in options: s.setsockopt(*o)
    if port is not None: s.bind((ip or ME, port))
    return s
""")

    def _ip(self, host):
        return {"4": host.ip4, "6": host.ip6, "mapped": "::ffff:" + host.ip4}[self.family]

    # host.close() and take_reports() know Process; this is enough of it.
    @property
    def text(self):
        return self.log.read_text(errors="replace")

    def start(self, code):
        """Sends a line without waiting for its answer."""
        self.pending = code
        self.popen.stdin.write(json.dumps(code).encode() + b"\n")
        self.popen.stdin.flush()

    def answer(self, timeout=10.0):
        """The answer of the oldest line that was started."""
        timeout *= PATIENCE
        end = time.monotonic() + timeout
        fd = self.popen.stdout.fileno()
        while b"\n" not in self.tail:
            if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
                raise Hang(f"no answer within {timeout} s (preload={self.preload}) to {self.pending!r}; it printed:\n"
                           f"{self.text}{where(self.pid)}")
            more = os.read(fd, 1 << 20)
            if not more:
                raise AssertionError(f"the program ended with {self.popen.wait()}:\n{self.text}")
            self.tail += more
        line, self.tail = self.tail.split(b"\n", 1)
        value = ast.literal_eval(line.decode())
        if isinstance(value, tuple) and value and value[0] == "Exception":
            raise AssertionError(f"step: {value[1]}")
        return value

    def ask(self, code, timeout=10.0):
        """Runs a line; its answer, ("OSError", name) among them."""
        self.start(code)
        return self.answer(timeout)

    def do(self, code, timeout=10.0):
        """Runs a line that must not fail."""
        value = self.ask(code, timeout)
        assert not (isinstance(value, tuple) and value and value[0] == "OSError"), f"{code}: {value[1]}"
        return value

    def __call__(self, code, timeout=10.0):
        value = self.ask(code, timeout)
        self.answers.append((code, value))
        return value

    def note(self, what, value):
        """Remembers something that the peer saw."""
        self.answers.append((what, value))
        return value

    def at(self, port):
        """The address under which the peer reaches the application."""
        return (self.host.ip6 if self.family == "6" else self.host.ip4, port)

    def peer_socket(self, port=PEER_PORT, timeout=3.0):
        other = self.host.net.b if self.host is self.host.net.a else self.host.net.a
        family = socket.AF_INET6 if self.family == "6" else socket.AF_INET
        s = other.socket(family, timeout=timeout)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        s.bind((other.ip(6 if self.family == "6" else 4), port))
        return s

    def close(self, timeout=10.0):
        if self.popen.poll() is None:
            self.popen.stdin.close()
            try:
                self.popen.wait(timeout * PATIENCE)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
                raise Hang(f"did not end within {timeout} s (preload={self.preload}):\n{self.text}")
        return self.popen.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            status = self.close(timeout=10.0 if kind is None else 0.5)
            assert status == 0, f"the program ended with {status}:\n{self.text}"
        except AssertionError:
            if kind is None:
                raise
        finally:
            self.popen.stdout.close()


def differential(net, family, steps, env=None, rounds=(False, True)):
    """Runs steps(app, peer) with the kernel, then with the library; fails when an answer differs. Returns the answers."""
    seen = []
    for preload in rounds:
        with App(net.a, preload, family, env) as app:
            peer = app.peer_socket()
            try:
                steps(app, peer)
            except Exception as e:
                so_far = "\n".join(f"  {c} -> {v!r}"[:300] for c, v in app.answers[-8:])
                raise AssertionError(f"{'library' if preload else 'kernel'}: {type(e).__name__}: {e}\n{so_far}\n"
                                     f"{app.text}") from e
            finally:
                peer.close()
            seen.append(app.answers)
            text = app.text
        # ASan goes to its file, UBSan to stderr.
        assert "runtime error: " not in text, text
    kernel, ours = seen[0], seen[-1]

    def parts(a, b):
        """Of two dicts only what differs: a line is cut somewhere."""
        if not isinstance(a, dict) or not isinstance(b, dict):
            return a, b
        keys = [k for k in {**a, **b} if a.get(k) != b.get(k)]
        return {k: a.get(k) for k in keys}, {k: b.get(k) for k in keys}

    differ = [f"{i}: {kc}\n    kernel:  {short(parts(kv, ov)[0])}\n    library: {short(parts(kv, ov)[1])}"
              for i, ((kc, kv), (oc, ov)) in enumerate(zip(kernel, ours)) if kv != ov or kc != oc]
    assert not differ and len(kernel) == len(ours), "answers differ:\n" + "\n".join(differ)
    print(f"{len(kernel)} answers equal the kernel's")
    return dict(ours)
