# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whole programs, differentially: a script of calls is carried out with kernel sockets and with the library, and compared.

A script (program_scripts.py makes one of a seed) is a list of lines. Each begins with who acts and how:

    m: recv s1 10 0        the actor carries it out, and its answer is waited for
    t& close s1            sent together with the actor's next line, so that the two calls follow each other at once
    t> recv s1 10 0        begun; others act meanwhile
    t<                     its answer is waited for
    t~                     interrupted by SIGUSR1, again and again, until it answers
    m! exit 0              has no answer
    any t u                the answer of whichever of them comes first, without a name
    p: send c1 10 0        the peer: kernel sockets of this process, in the other namespace (Peer)

Actors are m (the program's first thread), and t, u, c, d: threads and children, as the script begins them. program.c knows
the calls. What a step must not find out by chance the script waits for first (await, await_bytes): nothing here
tolerates anything, each answer is compared. One process carries out several scripts.
"""

import contextlib
import fcntl
import os
import re
import select
import signal
import socket
import struct
import termios
import threading
import time
import zlib

from netns import PATIENCE, ip, where

ACTORS = {name: i for i, name in enumerate("mtucd")}
STEP_LIMIT = 10 * PATIENCE
PORTS = 8  # of a script, at either side
FIRST_PORT = 1100
LAST_PORT = 31000  # below the ports that the kernel chooses
PATTERN = bytes(((i * i + (i >> 3)) & 0xff for i in range(4093)))
NUMBERS = {"SO_RCVTIMEO": 20, "SO_SNDTIMEO": 21, "FIONREAD": termios.FIONREAD, "FIONBIO": termios.FIONBIO, "TIOCOUTQ": termios.TIOCOUTQ,
           "SIOCATMARK": 0x8905, "POLLRDHUP": 0x2000, "SA_RESTART": 0x10000000, "EPOLL_CTL_ADD": 1, "EPOLL_CTL_DEL": 2,
           "EPOLL_CTL_MOD": 3, "SO_TIMESTAMP": 29, "CLOSE_RANGE_CLOEXEC": 4, "MSG_ZEROCOPY": 0x4000000, "IP_RECVTTL": 12,
           "IP_RECVTOS": 13, "IP_PKTINFO": 8, "IPV6_RECVPKTINFO": 49, "IPV6_RECVHOPLIMIT": 51, "IPV6_RECVTCLASS": 66,
           "SO_INCOMING_CPU": 49, "SO_ACCEPTCONN": 30, "SO_PROTOCOL": 38, "SO_DOMAIN": 39, "TCP_INQ": 36, "SO_RXQ_OVFL": 40}


def number_of(name):
    for module in (socket, select, os, fcntl):
        if hasattr(module, name):
            return int(getattr(module, name))
    return NUMBERS[name]


def numbers(text):
    """A line with the names of constants as numbers, as program.c reads it."""
    def value(m):
        total = 0
        for name in m[0].split("|"):
            total |= number_of(name)
        return str(total & 0xffffffff)
    return re.sub(r"\b[A-Z][A-Z0-9_]{2,}(\|[A-Z][A-Z0-9_]+)*", value, text)


def payload(n, start):
    start %= len(PATTERN)
    return (PATTERN * ((start + n) // len(PATTERN) + 1))[start:start + n]


class Peer:
    """Kernel sockets at the other end. Each waits for so long and no longer."""

    HOSTS = {"4": ("10.77.0.1", "10.77.0.2"), "6": ("fd77::1", "fd77::2")}

    def __init__(self, base_own, base_peer):
        self.base_own, self.base_peer = base_own, base_peer
        self.sockets = {}
        self.last = {}

    def new(self, name, fam, kind, port=None):
        fam = "6" if fam == "6" else "4"
        s = socket.socket(socket.AF_INET6 if fam == "6" else socket.AF_INET, kind)
        s.settimeout(STEP_LIMIT / 2)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if port is not None:
            s.bind((self.HOSTS[fam][1], self.base_peer + int(port)))
        self.sockets[name] = s
        return fam, s

    def udp(self, name, fam, port):
        self.new(name, fam, socket.SOCK_DGRAM, port)

    def listen(self, name, fam, port):
        self.new(name, fam, socket.SOCK_STREAM, port)[1].listen(16)

    def full(self, name, fam, port):
        """A listener that has no room for another client."""
        fam, s = self.new(name, fam, socket.SOCK_STREAM, port)
        s.listen(0)
        self.new(f"{name}'s client", fam, socket.SOCK_STREAM)[1].connect(s.getsockname()[:2])

    def connect(self, name, fam, port):
        fam, s = self.new(name, fam, socket.SOCK_STREAM)
        s.connect((self.HOSTS[fam][0], self.base_own + int(port)))

    def accept(self, listener, name):
        s, _ = self.sockets[listener].accept()
        s.settimeout(STEP_LIMIT / 2)
        self.sockets[name] = s

    def send(self, name, n, start):
        self.sockets[name].sendall(payload(int(n), int(start)))

    def sendto(self, name, fam, port, n, start):
        host = self.HOSTS["6" if fam == "6" else "4"][0]
        self.sockets[name].sendto(payload(int(n), int(start)), (host, self.base_own + int(port)))

    def reply(self, name, n, start):
        self.sockets[name].sendto(payload(int(n), int(start)), self.last[name])

    def recv(self, name, n):
        got = b""
        while len(got) < int(n):
            more = self.sockets[name].recv(int(n) - len(got))
            if not more:
                break
            got += more
        return f"{len(got)} data {zlib.crc32(got):08x}"

    def recvfrom(self, name):
        got, self.last[name] = self.sockets[name].recvfrom(65536)
        port = self.last[name][1] - self.base_own
        return f"{len(got)} data {zlib.crc32(got):08x} from {port if 0 <= port < PORTS else 'some port'}"

    def rest(self, name):
        """Everything until the connection's end."""
        got = b""
        while True:
            more = self.sockets[name].recv(1 << 16)
            if not more:
                return f"{len(got)} data {zlib.crc32(got):08x}, end"
            got += more

    def shut(self, name):
        self.sockets[name].shutdown(socket.SHUT_WR)

    def close(self, name):
        self.sockets.pop(name).close()

    def abort(self, name):
        s = self.sockets.pop(name)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()

    def do(self, text):
        name, *args = text.split()
        try:
            return getattr(self, name)(*args) or "0"
        except OSError as e:
            return "nothing comes" if isinstance(e, TimeoutError) else os.strerror(e.errno)
        except KeyError as e:
            return f"no {e}"

    def end(self):
        for s in self.sockets.values():
            s.close()


class Hang(Exception):
    pass


class Gone(Exception):
    pass


class Program:
    """program.c in net.a, for as many scripts as it lives."""

    def __init__(self, net, preload):
        self.net, self.preload = net, preload
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in ACTORS]
        theirs = [b.fileno() for _, b in pairs]
        argv = [net.library.helpers / "program", ",".join(map(str, theirs))]
        self.process = net.a.popen(argv, preload, {"VMA_TRACELEVEL": "WARN"}, pass_fds=theirs)
        self.controls = {}
        for name, (a, b) in zip(ACTORS, pairs):
            b.close()
            a.settimeout(STEP_LIMIT)
            self.controls[name] = a
        self.queued = {}
        self.lines = {}

    def alive(self):
        return self.process.alive()

    def send(self, actor, calls):
        """calls: what the transcript says of them; they begin at once."""
        self.lines[actor] = calls
        self.controls[actor].send("\n".join(numbers(c) for c in calls).encode())

    def receive(self, actor):
        end = time.monotonic() + STEP_LIMIT
        while not select.select([self.controls[actor]], [], [], 0.5)[0]:
            if not self.alive():
                raise Gone(f"the program ended with {self.process.popen.poll()}")
            if time.monotonic() > end:
                raise Hang(f"{actor} does not return from {self.lines[actor]}")
        answers = self.controls[actor].recv(1 << 16).decode().splitlines()
        return list(zip(self.lines.pop(actor), answers))

    def interrupt(self, actor):
        """SIGUSR1 until it answers: one that comes before the call begins is none."""
        end = time.monotonic() + STEP_LIMIT
        while not select.select([self.controls[actor]], [], [], 0.01)[0]:
            if time.monotonic() > end:
                raise Hang(f"{actor} is not interrupted in {self.lines[actor]}")
            self.process.kill(signal.SIGUSR1)
        return self.receive(actor)

    def first_of(self, actors):
        ready = select.select([self.controls[a] for a in actors], [], [], STEP_LIMIT)[0]
        for actor in actors:
            if self.controls[actor] in ready:
                return self.receive(actor)
        raise Hang(f"none of {actors} returns")

    def step(self, line, peer):
        """[(what, answer), ...]"""
        if line.startswith("any "):
            return [(line, answer) for _, answer in self.first_of(line.split()[1:])]
        actor, how, call = line[0], line[1], line[2:].strip()
        if actor == "p":
            return [(line, peer.do(call))]
        if actor not in self.controls:
            return [(line, "nobody")]
        if how == "&":
            self.queued.setdefault(actor, []).append(call)
            return []
        if how in ":>!":
            self.send(actor, self.queued.pop(actor, []) + [call])
        if how == ":" or how == "<":
            answers = self.receive(actor)
        elif how == "~":
            answers = self.interrupt(actor)
        else:
            return [(line, "")]
        return [(f"{actor}: {what}", answer) for what, answer in answers]

    def ended(self):
        """How it ends when nobody has more to say."""
        for control in self.controls.values():
            control.close()
        return self.process.wait(STEP_LIMIT)

    def kill(self):
        """With its children: whatever is in the namespace is theirs."""
        for control in self.controls.values():
            control.close()
        self.process.stop(signal.SIGKILL)
        for pid in ip("netns", "pids", self.net.a.name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self.net.a.processes.remove(self.process)


def carry_out(program, script, base_own, base_peer):
    """The transcript of one script, [(what, answer), ...]; its last line says what stopped it, if something did."""
    peer = Peer(base_own, base_peer)
    lines = []
    try:
        for line in [f"m: begin {base_own} {base_peer}", *script]:
            lines += program.step(line, peer)
    except (Hang, Gone, OSError) as e:
        print("\n".join(f"    {what} = {answer}" for what, answer in lines))
        print(f"{e}\n{program.process.text}{where(program.process.pid) if program.alive() else ''}")
        lines.append(("stopped", f"{type(e).__name__}: {e}"))
    finally:
        peer.end()
    # The ports are a script's own, and differ from script to script only.
    return [(what, answer) for what, answer in lines if "begin" not in what]


class Side:
    """Kernel or library: a pair of namespaces, and the program in it."""

    def __init__(self, net, preload):
        self.net, self.preload = net, preload
        self.transcripts = {}
        self.scripts = 0  # so far: each has ports of its own, for what is in TIME_WAIT

    def run(self, scripts):
        """{seed: script}. One process carries them out as long as it lives."""
        program = None
        self.transcripts = {}
        with self.net.b.entered():
            for seed, script in scripts.items():
                if not program:
                    program = Program(self.net, self.preload)
                base = FIRST_PORT + self.scripts * PORTS % (LAST_PORT - FIRST_PORT)
                self.scripts += 1
                self.transcripts[seed] = done = carry_out(program, script, base, base)
                if done and done[-1][0] == "stopped":
                    program.kill()
                    program = None
                elif script and script[-1].startswith("m!"):
                    done.append(("the program's end", str(self.end(program))))
                    program = None
            if program:
                self.transcripts[seed].append(("the program's end", str(self.end(program))))

    def end(self, program):
        try:
            return program.ended()
        finally:
            program.kill()


class Both:
    """Kernel and library, at the same time, each in its own namespaces."""

    def __init__(self, kernel, library):
        self.sides = [Side(kernel, False), Side(library, True)]

    def transcripts(self, scripts):
        """{seed: (the kernel's, the library's)}"""
        threads = [threading.Thread(target=s.run, args=(scripts,)) for s in self.sides]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return {seed: tuple(s.transcripts.get(seed, [("stopped", "never begun")]) for s in self.sides) for seed in scripts}

    def shrink(self, script):
        """The script without the lines that the difference does not need."""
        def differs(candidate):
            kernel, library = self.transcripts({0: candidate})[0]
            return not any(what == "stopped" for what, _ in kernel) and bool(difference(kernel, library))

        size = len(script) // 2
        while size:
            at = 0
            while at < len(script):
                candidate = script[:at] + script[at + size:]
                if differs(candidate):
                    script = candidate
                else:
                    at += size
            size //= 2
        return script


def difference(kernel, library):
    """The first line in which they differ, with what led to it, or ""."""
    for i in range(max(len(kernel), len(library))):
        k = kernel[i] if i < len(kernel) else ("", "(has ended)")
        o = library[i] if i < len(library) else ("", "(has ended)")
        if k != o:
            before = "\n".join(f"    {what} = {answer}" for what, answer in kernel[:i])
            return f"{before}\n  kernel:  {k[0]} = {k[1]}\n  library: {o[0]} = {o[1]}"
    return ""
