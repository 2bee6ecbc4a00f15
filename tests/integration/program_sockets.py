# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The sockets of a script (program_scripts.py), and what is known of each.

That is what must be known for the next call to have one answer only: what has been sent to it and not been read, whether
that is certain to have come, who has a descriptor of it. What follows from timing is waited for.
"""

import random

FAMILIES = {"4": "AF_INET", "6": "AF_INET6", "m": "AF_INET6"}


class Sock:
    """A socket, of the program or of a child, too, and what is known of it."""

    def __init__(self, slot, kind, fam):
        self.slot, self.kind, self.fam = slot, kind, fam  # kind: udp, tcp, listener
        self.peer = None  # its peer's name
        self.waiting = []  # UDP: lengths of datagrams that have been sent to it; TCP: one number
        self.certain = True  # that they have come
        self.out = 0  # TCP: what the peer has not read
        self.nonblock = False
        self.owners = set()  # processes that have it open
        self.maker = None  # the process that made it
        self.reader = None  # a listener: who alone is served (served_alone())
        self.used = False  # UDP: somebody has sent or received
        self.early = False  # UDP: it waited before that, or waits with what did
        self.resets = False  # SO_LINGER with 0 s: close() is a reset
        self.waited = False  # a listener: somebody has waited for it
        self.shared = False  # a listener: nobody had when it came to have several owners
        self.gone = None  # "end" (the peer's FIN), "reset"
        self.shut = False  # our FIN
        self.deaf = False  # UDP: shut for reading, so that nobody waits for what comes
        self.port = None
        self.connected = False
        self.cloexec = False
        self.sets = set()  # slots of epoll sets that watch it

    @property
    def bytes(self):
        return sum(self.waiting)


class Sockets:
    """A script as it grows: its sockets, what they send and receive, and their ends."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.lines = []
        self.socks = []
        self.processes = {"m": None}  # alive, and the parent of each
        self.ended = []  # children
        self.threads = set()
        self.slots = list(range(32))
        self.ports = list(range(8))
        self.peer_ports = list(range(8))
        self.names = 0
        self.starts = 0
        self.epolls = {}  # slot: {sock: events}
        self.euid = 0  # of the first process
        self.channels = {}  # child: the slots of a socket pair, its parent's end first

    # --- lines

    ONE_THREADS = ("fork", "exec", "spawn", "vfork", "wait", "thread", "cancel", "join", "fds", "threads", "end", "handler", "close_loop",
                   "close_range")

    def do(self, actor, call, how=":"):
        if actor == "m" and how == ":" and self.threads and call.split()[0] not in self.ONE_THREADS and self.r.random() < 0.3:
            actor = self.one(self.threads)
        elif how == ":" and self.r.random() < 0.1 and not call.startswith(self.ONE_THREADS):
            how = "&"
        self.lines.append(f"{actor}{how} {call}")

    def peer(self, call):
        self.lines.append(f"p: {call}")

    def name(self):
        self.names += 1
        return f"x{self.names}"

    def start(self):
        self.starts += 97
        return self.starts % 4000

    def one(self, choices):
        choices = sorted(choices) if isinstance(choices, set) else choices
        return self.r.choice(choices) if choices else None

    def size(self, top=1400):
        return self.one([1, 2, 7, 100, 512, 1000, 1200, self.r.randint(1, top)])

    # --- what there is

    def slot(self):
        return self.slots.pop(0) if len(self.slots) > 2 else None

    def add(self, kind, fam, actor):
        slot = self.slot()
        if slot is None:
            return None
        s = Sock(slot, kind, fam)
        s.owners.add(actor)
        s.maker = actor
        self.socks.append(s)
        return s

    def some(self, test):
        return self.one([s for s in self.socks if s.owners and test(s)])

    def owner(self, s):
        """A process that has it."""
        return self.one(s.owners)

    def may(self, actor, s):
        """It can be asked what there is: not where docs/limits.md says that another process alone is told."""
        return actor in s.owners and not (s.kind == "listener" and s.reader not in (None, actor) and s.reader in s.owners)

    def served_alone(self, s, actor):
        """Of several that share a listener for which nobody had waited before, the first is served (docs/limits.md)."""
        if s.kind == "listener":
            s.waited = True
            if s.shared:
                s.reader = s.reader if s.reader in s.owners else actor
                return s.reader
        return actor

    def settle(self, s, actor):
        """What was sent to it has come."""
        if s.certain and not (s.kind == "udp" and s.waiting and len(s.owners) > 1):  # each process is told by a thread of its own
            return
        if s.kind == "tcp" and s.waiting:
            self.do(actor, f"await_bytes s{s.slot} {s.bytes}")
        elif s.waiting:
            self.do(actor, f"await 5000 s{s.slot}:POLLIN")
        if s.gone == "end":
            self.do(actor, f"await 5000 s{s.slot}:POLLRDHUP")
        elif s.gone == "reset":
            self.do(actor, f"await 5000 s{s.slot}:0")
        s.certain = True

    # --- sockets begin

    def udp(self):
        actor, fam = self.one(list(self.processes)), self.one("446m")
        s = self.add("udp", fam, actor)
        if not s:
            return
        flags = self.one(["", "", "|SOCK_NONBLOCK", "|SOCK_CLOEXEC"])
        s.nonblock, s.cloexec = "NONBLOCK" in flags, "CLOEXEC" in flags
        self.do(actor, f"socket s{s.slot} {FAMILIES[fam]} SOCK_DGRAM{flags} {self.one(['0', 'IPPROTO_UDP'])}")
        s.peer = self.name()
        peer_port = self.peer_ports.pop(0) if self.peer_ports else None
        if peer_port is None:
            self.close(s, actor)
            return
        self.peer(f"udp {s.peer} {fam} {peer_port}")
        if self.ports and self.r.random() < 0.7:
            s.port = self.ports.pop(0)
            self.do(actor, f"bind s{s.slot} {fam}{self.one('A*')}:{s.port}")
        s.to = f"{fam}B:{peer_port}"
        if s.port is None or self.r.random() < 0.5:
            self.do(actor, f"connect s{s.slot} {s.to}")
            s.connected = True
        if s.port is None:  # the peer has to learn where it is
            self.do(actor, f"send s{s.slot} 3 0 0")
            self.peer(f"recvfrom {s.peer}")
            s.used = True

    def tcp_connect(self):
        actor, fam = self.one(list(self.processes)), self.one("446m")
        if not self.peer_ports:
            return
        s = self.add("tcp", fam, actor)
        if not s:
            return
        port, listener, s.peer = self.peer_ports.pop(0), self.name(), self.name()
        self.peer(f"listen {listener} {fam} {port}")
        s.nonblock = self.r.random() < 0.3
        self.do(actor, f"socket s{s.slot} {FAMILIES[fam]} SOCK_STREAM{'|SOCK_NONBLOCK' if s.nonblock else ''} 0")
        if self.r.random() < 0.2:
            self.do(actor, f"bind s{s.slot} {fam}A:z")
        self.do(actor, f"connect s{s.slot} {fam}B:{port}")
        if s.nonblock:
            self.do(actor, f"await 5000 s{s.slot}:POLLOUT")
            self.do(actor, f"getsockopt s{s.slot} SOL_SOCKET SO_ERROR 4")
            # The next connect() says once more that it is done. A connection that has gone to the kernel forgets that.
            self.do(actor, f"connect s{s.slot} {fam}B:{port}")
        self.peer(f"accept {listener} {s.peer}")
        self.peer(f"close {listener}")
        s.connected = True
        s.waiting = []

    def tcp_refused(self):
        actor, fam = self.one(list(self.processes)), self.one("446m")
        if not self.peer_ports or len(self.slots) < 3:
            return
        port, slot = self.peer_ports.pop(0), self.slots.pop(0)
        self.do(actor, f"socket s{slot} {FAMILIES[fam]} SOCK_STREAM 0")
        self.do(actor, f"connect s{slot} {fam}B:{port}")
        self.do(actor, f"getsockopt s{slot} SOL_SOCKET SO_ERROR 4")
        self.do(actor, f"getpeername s{slot} 28")
        if self.r.random() < 0.5:
            self.do(actor, f"poll 0 s{slot}:POLLIN|POLLOUT")
            self.do(actor, f"send s{slot} 3 0 0")
            self.do(actor, f"recv s{slot} 3 0")
        self.do(actor, f"close s{slot}")
        self.slots.insert(0, slot)

    def listener(self):
        actor, fam = self.one(list(self.processes)), self.one("446m")
        if not self.ports:
            return
        s = self.add("listener", fam, actor)
        if not s:
            return
        s.nonblock = self.r.random() < 0.4
        s.port = self.ports.pop(0)
        self.do(actor, f"socket s{s.slot} {FAMILIES[fam]} SOCK_STREAM{'|SOCK_NONBLOCK' if s.nonblock else ''} 0")
        if self.r.random() < 0.5:
            self.do(actor, f"setsockopt s{s.slot} SOL_SOCKET SO_REUSEADDR 1")
        self.do(actor, f"bind s{s.slot} {fam}{self.one('A*')}:{s.port}")
        self.do(actor, f"listen s{s.slot} {self.one([1, 8, 128])}")

    def accept(self):
        listener = self.some(lambda s: s.kind == "listener")
        if not listener:
            return
        actor = self.served_alone(listener, self.owner(listener))
        s = self.add("tcp", listener.fam, actor)
        if not s:
            return
        s.peer = self.name()
        if listener.nonblock and self.r.random() < 0.5:
            self.do(actor, f"accept s{s.slot} s{listener.slot} 0")
        self.peer(f"connect {s.peer} {listener.fam} {listener.port}")
        if listener.nonblock or self.r.random() < 0.5:
            self.do(actor, f"await 5000 s{listener.slot}:POLLIN")
        flags = self.one(["0", "0", "SOCK_NONBLOCK", "SOCK_CLOEXEC"])
        s.nonblock, s.cloexec = flags == "SOCK_NONBLOCK", flags == "SOCK_CLOEXEC"
        self.do(actor, f"accept s{s.slot} s{listener.slot} {flags}")
        s.connected, s.resets = True, listener.resets

    # --- data

    def usable(self, s):
        return s.kind in ("udp", "tcp") and not s.gone and s.connected | (s.kind == "udp")

    def send(self):
        s = self.some(lambda s: self.usable(s) and not s.shut and s.out < 20000)
        if not s:
            return
        actor, n, start = self.owner(s), self.size(), self.start()
        call = self.one(["send", "write", "writev", "sendmsg", "sendto"])
        if s.kind == "tcp" and self.r.random() < 0.2:
            n = self.r.randint(1400, 20000)
        if s.kind == "udp" and not s.connected:
            call = self.one(["sendto", "sendmsg"])
        to = s.to if s.kind == "udp" and not s.connected else "unspec"
        if call in ("send", "write"):
            self.do(actor, f"{call} s{s.slot} {n} {start}{self.one([' 0', ' MSG_DONTWAIT']) if call == 'send' else ''}")
        elif call == "writev":
            self.do(actor, f"writev s{s.slot} {n} {start} {self.r.randint(1, 4)}")
        elif call == "sendmsg":
            self.do(actor, f"sendmsg s{s.slot} {n} {start} 0 {self.r.randint(1, 4)} {'-' if to == 'unspec' else to}")
        elif to == "unspec":
            self.do(actor, f"send s{s.slot} {n} {start} MSG_NOSIGNAL")
        else:
            self.do(actor, f"sendto s{s.slot} {n} {start} 0 {to}")
        s.used = True
        if s.kind == "udp":
            self.peer(f"recvfrom {s.peer}")
        else:
            s.out += n
            if self.r.random() < 0.6:
                self.peer_reads(s)

    def sends_file(self):
        """Into a connection, or out of it, without the program's memory."""
        s = self.some(lambda s: s.kind == "tcp" and not s.gone and not s.nonblock and (s.waiting or not s.shut and s.out < 20000))
        if not s:
            return
        actor, n = self.owner(s), self.one([1, 1000, self.r.randint(1, 20000)])
        if s.waiting:
            self.settle(s, actor)
            self.do(actor, f"splice_in s{s.slot} {s.bytes}")
            s.waiting = []
        else:
            self.do(actor, f"{self.one(['sendfile', 'splice_out'])} s{s.slot} {n} {self.start()}")
            s.out += n

    def peer_reads(self, s):
        if s.out:
            self.peer(f"recv {s.peer} {s.out}")
        s.out = 0

    def arrives(self):
        s = self.some(lambda s: self.usable(s) and s.bytes < 20000)
        if not s:
            return
        n = self.size()
        if s.kind == "tcp":
            n = self.one([n, n, self.r.randint(1, 12000)])
        s.early |= s.kind == "udp" and not s.used
        self.sends(s, n)
        s.waiting.append(n)
        s.certain = False

    def sends(self, s, n):
        """Its peer sends to it."""
        if s.kind == "tcp":
            self.peer(f"send {s.peer} {n} {self.start()}")
        elif s.port is not None:
            self.peer(f"sendto {s.peer} {s.fam} {s.port} {n} {self.start()}")
        else:
            self.peer(f"reply {s.peer} {n} {self.start()}")

    def receive(self):
        s = self.some(lambda s: s.kind in ("tcp", "udp") and s.waiting and s.gone != "reset")
        if not s:
            return
        (self.receive_stream if s.kind == "tcp" else self.receive_datagram)(s, self.owner(s))

    def receive_stream(self, s, actor):
        have = s.bytes
        n = self.one([have, have, max(1, have // 2), have + 10, 1])
        if not s.certain and not s.nonblock and n <= have and self.r.random() < 0.5:
            self.do(actor, f"recv s{s.slot} {n} MSG_WAITALL")
        else:
            self.settle(s, actor)
            if self.r.random() < 0.2:
                self.do(actor, f"recv s{s.slot} {n} MSG_PEEK")
            self.do(actor, self.one([f"recv s{s.slot} {n} 0", f"read s{s.slot} {n}", f"recv s{s.slot} {n} MSG_DONTWAIT",
                                     f"readv s{s.slot} {n} {self.r.randint(1, 4)}", f"recvfrom s{s.slot} {n} 0 28",
                                     f"recvmsg s{s.slot} {n} 0 {self.r.randint(1, 4)} 64"]))
        left = have - min(n, have)
        s.waiting = [left] if left else []

    def receive_datagram(self, s, actor):
        n = self.one([2000, 2000, s.waiting[0], max(1, s.waiting[0] // 2)])
        if s.nonblock or self.r.random() < 0.5:
            self.do(actor, f"await 5000 s{s.slot}:POLLIN")
            if self.r.random() < 0.2:
                self.do(actor, f"ioctl s{s.slot} FIONREAD 0")
        if self.r.random() < 0.2:
            self.do(actor, f"recv s{s.slot} {n} MSG_PEEK{self.one(['', '|MSG_TRUNC'])}")
        self.do(actor, self.one([f"recv s{s.slot} {n} {self.one(['0', 'MSG_TRUNC'])}", f"read s{s.slot} {n}",
                                 f"readv s{s.slot} {n} {self.r.randint(1, 4)}",
                                 f"recvfrom s{s.slot} {n} 0 {self.one([28, 16, 128, 4, 0])}",
                                 f"recvmsg s{s.slot} {n} 0 {self.r.randint(1, 4)} 64",
                                 f"recvmmsg s{s.slot} 1 {n} 0 -1"]))
        s.waiting.pop(0)
        s.certain = not s.waiting
        s.early &= bool(s.waiting)
        s.used = True

    def keep_order(self, s, actor):
        """Before another process gets it: of what came before its first use and what came later the order is not kept (docs/limits.md)."""
        while s.early and len(s.waiting) > 1:
            self.receive_datagram(s, actor)

    # --- the end of a socket

    def close(self, s, actor):
        if len(s.owners) > 1 or actor != "m":
            for e in sorted(s.sets):
                self.do("m", f"epoll_ctl s{e} EPOLL_CTL_DEL s{s.slot} 0")
                self.epolls[e].pop(s, None)
            s.sets.clear()
        self.before_close(s)
        self.do(actor, f"close s{s.slot}")
        s.owners.discard(actor)
        self.is_closed(s)

    def before_close(self, s):
        """Where a reset follows, what was sent has arrived."""
        if s.resets and not s.shut and s.peer:
            self.peer_reads(s)

    def is_closed(self, s):
        if s.owners:
            return
        for e in s.sets:
            self.epolls[e].pop(s, None)
        self.socks.remove(s)
        if len(self.processes) == 1:
            self.slots.insert(0, s.slot)
        if s.kind == "tcp" and s.peer and not s.shut:
            self.peer(f"rest {s.peer}")

    def closes(self):
        s = self.some(lambda s: True)
        if s:
            self.settle(s, self.owner(s))
            self.close(s, self.owner(s))

    def last(self):
        """What is open at the end of the first process."""
        for s in self.socks:
            self.settle(s, "m")
        if self.r.random() < 0.5:
            for s in list(self.socks):
                self.close(s, "m")
            return
        for s in self.socks:
            self.before_close(s)
        self.do("m", self.one(["close_loop 3 900", "close_range 3 899 0", "close_loop 3 100"]))
        for s in list(self.socks):
            s.owners.clear()
            self.is_closed(s)

    # --- the end of a connection, of either side

    def quiet(self, test=lambda s: True):
        """A socket to which nothing is on its way."""
        return self.some(lambda s: s.kind in ("udp", "tcp") and not s.waiting and s.certain and not s.gone and not s.deaf and test(s))

    def shuts(self):
        s = self.some(lambda s: s.kind == "tcp" and not s.gone and not s.shut)
        if s:
            self.before_it_is_over(s)
            self.settle(s, self.owner(s))
            self.do(self.owner(s), f"shutdown s{s.slot} {self.one(['SHUT_WR', 'SHUT_WR', 'SHUT_RDWR'])}")
            self.peer(f"rest {s.peer}")
            if self.lines[-2].endswith("RDWR"):  # what the peer sends then is nobody's
                s.gone, s.waiting = "both", []  # also what has come
            s.shut, s.out = True, 0
            self.after_end(s)

    def peer_shuts(self):
        s = self.some(lambda s: s.kind == "tcp" and not s.gone)
        if s:
            self.before_it_is_over(s)
            self.peer_reads(s)
            self.peer(f"shut {s.peer}")
            s.gone, s.certain = "end", False
            if self.r.random() < 0.7:
                self.settle(s, self.owner(s))
                self.after_end(s)

    def peer_aborts(self):
        s = self.some(lambda s: s.kind == "tcp" and not s.gone)
        if s:
            self.before_it_is_over(s)
            if s.waiting:
                self.settle(s, self.owner(s))
            self.peer(f"abort {s.peer}")
            s.gone, s.peer, s.certain = "reset", None, False
            self.is_reset(s, self.owner(s))

    def peer_closes(self):
        """It has ended; who still sends to it gets a reset."""
        s = self.some(lambda s: s.kind == "tcp" and not s.gone and not s.shut)
        if s:
            actor = self.owner(s)
            self.before_it_is_over(s)
            self.peer_reads(s)
            self.settle(s, actor)
            self.peer(f"close {s.peer}")
            s.gone, s.peer, s.certain = "end", None, False
            self.settle(s, actor)
            self.do(actor, f"send s{s.slot} 10 0 0")
            s.gone, s.certain = "reset", False
            self.is_reset(s, actor)

    def before_it_is_over(self, s):
        """Who made a connection reads what has come: once it is over, other processes cannot (docs/limits.md)."""
        if len(s.owners) > 1 and s.maker in s.owners and s.waiting:
            self.do(s.maker, f"recv s{s.slot} {s.bytes} MSG_WAITALL" if not s.nonblock else f"await_bytes s{s.slot} {s.bytes}")
            if s.nonblock:
                self.do(s.maker, f"recv s{s.slot} {s.bytes} 0")
            s.waiting, s.certain = [], True

    def is_reset(self, s, actor):
        self.settle(s, actor)
        if len(s.owners) > 1 and s.maker in s.owners:
            # Of a connection that ends before a child uses it, the child sees the end only (docs/limits.md).
            self.do(s.maker, f"getsockopt s{s.slot} SOL_SOCKET SO_ERROR 4")
        self.after_end(s)

    def after_end(self, s):
        for _ in range(self.r.randint(0, 4)):
            actor = self.owner(s)
            self.do(actor, self.one([f"recv s{s.slot} 100 MSG_DONTWAIT", f"getsockopt s{s.slot} SOL_SOCKET SO_ERROR 4",
                                     f"poll 0 s{s.slot}:POLLIN|POLLOUT|POLLRDHUP", f"getpeername s{s.slot} 28",
                                     f"select 0 0 s{s.slot}:7", f"shutdown s{s.slot} SHUT_WR" if s.shut or s.gone == "reset" else
                                     f"getsockname s{s.slot} 28",
                                     f"send s{s.slot} 5 0 MSG_DONTWAIT" if s.shut or s.gone == "reset" else f"read s{s.slot} 0"]))
            if self.lines[-1].split()[1] == "recv" and s.waiting:
                left = max(0, s.bytes - 100)
                s.waiting = [left] if left else []
