# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Scripts for whole_programs.py: script(seed) is what one program does, the same for the same seed."""

from program_sockets import FAMILIES, Sockets


class Script(Sockets):
    """With all else that a program does."""

    # --- waiting

    def look(self):
        """What all kinds of poll say of some of them at once."""
        actor = self.one(list(self.processes))
        socks = [s for s in self.socks if self.may(actor, s)]
        socks = self.r.sample(socks, min(len(socks), self.r.randint(1, 5)))
        for s in socks:
            self.settle(s, actor)
        call = self.one(["poll 0", "poll 0", "ppoll 0 0", "select 0 0", "pselect 0 0"])
        events = ["POLLIN", "POLLIN|POLLOUT", "POLLOUT", "POLLIN|POLLPRI", "POLLIN|POLLRDHUP", "0"]
        if call == "poll 0" and any(s.waiting for s in socks) and self.r.random() < 0.3:
            call, events = "poll -5", ["POLLIN", "POLLIN|POLLOUT"]  # no limit, and needs none
        # Of a listener nothing less: whether that was a wait decides who is served (served_alone()).
        asked = ["POLLIN" if s.kind == "listener" else self.one(events) for s in socks]
        for s in socks:
            self.served_alone(s, actor)
        words = [f"s{s.slot}:{event}" for s, event in zip(socks, asked)]
        if "select" not in call:
            words += self.r.sample(["-1:POLLIN", "77:POLLIN", "908:POLLIN", "2:POLLOUT"], self.r.randint(0, 1))
        if not words:
            return
        self.do(actor, f"{call} {' '.join(words)}")

    def times_out(self):
        s = self.quiet()
        if not s:
            return
        # SO_RCVTIMEO goes by the kernel's clock tick: it may end by so much earlier.
        actor, word, ms, tick = self.changed_by(s), f"s{s.slot}", self.r.randint(1, 4), 4
        wait = self.one([f"poll {ms} {word}:POLLIN", f"ppoll 0 {ms}000000 {word}:POLLIN", f"select 0 {ms}000 {word}:POLLIN",
                         f"pselect 0 {ms}000000 {word}:POLLIN|POLLPRI", f"select 0 {ms}000 {word}:POLLPRI", "recv", "recv",
                         f"poll {ms}", f"select 0 {ms}000", "recvmsg", "recvmmsg"])
        if wait in ("recv", "recvmsg", "recvmmsg"):
            if s.nonblock:
                ms = -tick
            self.do(actor, f"settime {word} SO_RCVTIMEO 0 {(ms + tick) * 1000}")
            if s.nonblock:
                self.do(actor, f"getsockopt {word} SOL_SOCKET SO_RCVTIMEO 16")
            self.do(actor, f"lasts {max(ms, 0)} " + {"recv": f"recv {word} 100 0", "recvmsg": f"recvmsg {word} 100 0 2 64",
                                             "recvmmsg": f"recvmmsg {word} 2 100 0 -1"}[wait])
            self.do(actor, f"settime {word} SO_RCVTIMEO 0 0")
            s.used = True
        else:
            self.do(actor, f"lasts {ms} {wait}")

    def bad_times(self):
        s = self.quiet()
        if s:
            word = f"s{s.slot}"
            self.do(self.owner(s), self.one([f"ppoll -1 0 {word}:POLLIN", f"ppoll 0 1000000000 {word}:POLLIN", f"ppoll 0 -1 {word}:POLLIN",
                                             f"select -1 0 {word}:POLLIN", f"select 0 -1 {word}:POLLIN", f"pselect 0 1000000000 {word}:POLLIN",
                                             f"settime {word} SO_RCVTIMEO 0 1000000", f"settime {word} SO_SNDTIMEO 0 -1",
                                             f"recvmmsg {word} 1 100 MSG_DONTWAIT 0", f"select 0 1999 {word}:0"]))

    def waits_meanwhile(self):
        """A thread waits before it comes."""
        s = self.quiet(lambda s: "m" in s.owners and not s.nonblock)
        if not s or not self.threads:
            return
        t, n, word = self.one(self.threads), self.size(), f"s{s.slot}"
        wait = self.one([f"recv {word} 2000 0", f"read {word} 2000", f"recvmsg {word} 2000 0 3 64", f"poll -1 {word}:POLLIN",
                         f"poll 5000 {word}:POLLIN|POLLPRI", f"select - 0 {word}:POLLIN", f"ppoll - 0 {word}:POLLIN",
                         f"pselect 5 0 {word}:POLLIN"])
        self.do(t, wait, ">")
        if self.r.random() < 0.3:
            self.lines.append(f"m: getsockname {word} 28")
        self.sends(s, n)
        self.lines.append(f"{t}<")
        if not wait.startswith(("recv", "read")):
            self.do(t, f"recv {word} 2000 0")
        s.used = True

    def accepts_meanwhile(self):
        listener = self.some(lambda s: s.kind == "listener" and not s.nonblock and s.owners == {"m"})
        if not listener or not self.threads:
            return
        s = self.add("tcp", listener.fam, "m")
        if not s:
            return
        self.served_alone(listener, "m")
        t, s.peer, s.connected, s.resets = self.one(self.threads), self.name(), True, listener.resets
        self.do(t, f"accept s{s.slot} s{listener.slot} 0", ">")
        self.peer(f"connect {s.peer} {listener.fam} {listener.port}")
        self.lines.append(f"{t}<")

    def is_cancelled(self):
        s = self.quiet(lambda s: "m" in s.owners and not s.nonblock)
        if s and self.threads:
            word = f"s{s.slot}"
            self.cancelled_in(self.one([f"recv {word} 10 0", f"read {word} 10", f"poll -1 {word}:POLLIN", f"select - 0 {word}:POLLIN",
                                        f"recvmsg {word} 10 0 1 0"]))

    def cancelled_in(self, call, *facts):
        """facts: calls of another thread, after which this one waits."""
        t = self.one(self.threads)
        number = {"t": 1, "u": 2}[t]
        self.do(t, call, ">")
        self.lines += [f"m: {fact}" for fact in facts]
        self.do("m", f"cancel {number}")
        self.do("m", f"join {number}")
        self.threads.discard(t)

    def is_cancelled_accepting(self):
        listener = self.some(lambda s: s.kind == "listener" and not s.nonblock and s.owners == {"m"})
        if listener and self.threads:
            self.served_alone(listener, "m")
            self.cancelled_in(f"accept s31 s{listener.slot} 0")

    def is_cancelled_in_epoll(self):
        s = self.quiet(lambda s: s.owners == {"m"})
        e = self.slot() if s and self.threads else None
        if e is None:
            return
        self.do("m", f"epoll_create s{e} 0")
        self.do("m", f"epoll_ctl s{e} EPOLL_CTL_ADD s{s.slot} EPOLLIN")
        self.cancelled_in(f"epoll_wait s{e} 16 -1 {self.r.randint(0, 2)}")
        self.do("m", f"close s{e}")
        self.slots.insert(0, e)

    def is_cancelled_connecting(self):
        slot = self.slot() if self.threads and self.peer_ports else None
        if slot is None:
            return
        fam, port = self.one("446m"), self.peer_ports.pop(0)
        self.peer(f"full {self.name()} {fam} {port}")
        self.do("m", f"socket s{slot} {FAMILIES[fam]} SOCK_STREAM 0")
        self.cancelled_in(f"connect s{slot} {fam}B:{port}", f"await_state s{slot} 2")
        self.do("m", self.one([f"poll 0 s{slot}:POLLIN|POLLOUT", f"send s{slot} 5 0 MSG_DONTWAIT", f"getpeername s{slot} 28",
                               f"getsockopt s{slot} SOL_SOCKET SO_ERROR 4", f"tcp_state s{slot}"]))
        self.do("m", f"close s{slot}")
        self.slots.insert(0, slot)

    def is_cancelled_sending(self):
        """The peer has not read for a while, and the connection ends with that."""
        s = self.quiet(lambda s: s.kind == "tcp" and s.owners == {"m"} and not s.nonblock and not s.shut and s.peer)
        if not s or not self.threads:
            return
        word = f"s{s.slot}"
        self.do("m", f"fill {word}")
        self.cancelled_in(self.one([f"send {word} 3000 0 0", f"write {word} 10", f"writev {word} 9 0 3", f"sendmsg {word} 70000 0 0 2 -"]),
                          f"poll 0 {word}:POLLOUT")
        self.do("m", f"poll 0 {word}:POLLIN|POLLOUT")
        self.peer(f"abort {s.peer}")
        s.gone, s.peer, s.certain, s.out = "reset", None, False, 0
        self.is_reset(s, "m")

    def is_interrupted(self):
        s = self.quiet(lambda s: "m" in s.owners and not s.nonblock)
        if not s or self.threads:
            return
        word = f"s{s.slot}"
        self.do("m", "handler 0")
        self.do("m", self.one([f"recv {word} 10 0", f"read {word} 10", f"poll -1 {word}:POLLIN", f"select - 0 {word}:POLLIN",
                               f"ppoll - 0 {word}:POLLIN", f"recvmsg {word} 10 0 1 0", f"recvmmsg {word} 2 10 0 -1"]), ">")
        self.lines.append("m~")

    # --- epoll, of the first process only: what children's copies of a set tell is another matter (epoll(7))

    def epoll(self):
        slot = self.slot()
        if slot is not None and len(self.epolls) < 3:
            self.do("m", f"epoll_create s{slot} {self.one(['0', 'EPOLL_CLOEXEC'])}")
            self.epolls[slot] = {}

    def epoll_ctl(self):
        e, s = self.one(list(self.epolls)), self.some(lambda s: self.may("m", s))
        if e is None or not s:
            return
        watched = self.epolls[e]
        op = self.one(["MOD", "MOD", "DEL", "ADD"] if s in watched else ["ADD", "ADD", "ADD", "MOD", "DEL"])
        events = self.one(["EPOLLIN", "EPOLLIN|EPOLLRDHUP", "EPOLLIN|EPOLLPRI", "EPOLLIN|EPOLLET", "EPOLLIN|EPOLLONESHOT", "EPOLLIN|EPOLLOUT", "0"])
        if s.kind != "udp" and self.r.random() < 0.2:
            # Not of UDP: the kernel tells of room for each datagram that its device has freed.
            events = "EPOLLIN|EPOLLOUT|EPOLLET"
        if s.kind == "listener" and "EPOLLIN" not in events:
            events = "EPOLLIN"  # as in look()
        if s.kind == "udp" and len(s.waiting) > 1 and "EPOLLET" in events:
            events = "EPOLLIN"  # whether the second has come is not known, which would be told, too
        self.settle(s, "m")
        self.do("m", f"epoll_ctl s{e} EPOLL_CTL_{op} s{s.slot} {events}")
        if op != "DEL" and (op == "ADD") == (s not in watched):
            self.served_alone(s, "m")
        if op == "ADD" and s not in watched:
            watched[s] = True
            s.sets.add(e)
        elif op == "DEL" and s in watched:
            watched.pop(s)
            s.sets.discard(e)

    def epoll_wait(self):
        e = self.one(list(self.epolls))
        if e is None:
            return
        for s in list(self.epolls[e]):
            self.settle(s, "m")
        for _ in range(self.r.randint(1, 2)):
            self.do("m", f"epoll_wait s{e} {self.one([16, 16, 16, 0, -1])} {self.one([0, 0, 1])} {self.r.randint(0, 2)}")

    def epoll_by_two(self):
        """Two threads wait for the same set: with EPOLLONESHOT one of them is told, and after the next epoll_ctl() the other."""
        s = self.quiet(lambda s: s.owners == {"m"})
        e = self.slot() if s else None
        if e is None:
            return
        while len(self.threads) < 2:
            self.thread()
        self.do("m", f"epoll_create s{e} 0")
        self.do("m", f"epoll_ctl s{e} EPOLL_CTL_ADD s{s.slot} EPOLLIN|EPOLLONESHOT")
        for t in "tu":
            self.do(t, f"epoll_wait s{e} 16 -1 {self.r.randint(0, 2)}", ">")
        self.sends(s, self.size())
        self.lines.append("any t u")
        self.lines.append(f"m: epoll_ctl s{e} EPOLL_CTL_MOD s{s.slot} EPOLLIN|EPOLLONESHOT")
        self.lines.append("any t u")
        self.do("m", f"recv s{s.slot} 2000 0")
        s.used = True
        self.do("m", f"close s{e}")
        self.slots.insert(0, e)

    # --- descriptors

    def copies(self):
        """Another number for it, by which it is used; then one of the two is closed."""
        s = self.some(lambda s: s.owners == {"m"} and not s.sets and (not s.gone or s.gone == "end" and not s.shut))
        slot = self.slot() if s else None
        if slot is None:
            return
        self.settle(s, "m")
        old, new = f"s{s.slot}", f"s{slot}"
        how = self.one(["dup", "dupfd", "scm", "dup2"])
        if how == "dup":
            self.do("m", f"dup {new} {old}")
        elif how == "dupfd":
            self.do("m", f"dupfd {new} {old} {self.one(['F_DUPFD', 'F_DUPFD_CLOEXEC'])} {self.one([0, 3, 20, 400])}")
        elif how == "dup2":
            self.standard(s)
            self.slots.insert(0, slot)
            return
        elif len(self.slots) < 4:
            self.slots.insert(0, slot)
            return
        else:
            self.keep_order(s, "m")
            a, b = self.slots[:2]
            self.do("m", f"socketpair s{a} s{b} {self.one(['SOCK_STREAM', 'SOCK_DGRAM'])}")
            self.do("m", f"sendmsg s{a} 1 0 0 1 - {old}")
            self.do("m", f"recvmsg s{b} 1 0 1 64 {new}")
            self.do("m", f"close s{a}")
            self.do("m", f"close s{b}")
        self.do("m", f"getsockname {new} 28")
        if self.r.random() < 0.5:
            self.do("m", f"close {old}")
            s.slot, slot = slot, s.slot
        else:
            self.do("m", f"close {new}")
        self.slots.insert(0, slot)

    def standard(self, s):
        """It is descriptor 0, 1 or 2 for a while."""
        self.keep_order(s, "m")
        number = self.one([0, 1, 2, 0, 50])
        self.do("m", f"dup2 s{s.slot} {number}")
        if s.connected and not s.shut and not s.gone and s.kind == "tcp":
            n = self.size()
            self.do("m", f"write {number} {n} {self.start()}")
            s.out += n
        self.do("m", f"fcntl {number} F_GETFD 0")
        self.do("m", f"close {number}" if number == 50 else f"dup2 {908 + number} {number}")

    def changed_by(self, s):
        """Who may change it: what a child does so to a datagram socket its parent does not notice (docs/limits.md)."""
        return s.maker if s.kind == "udp" and s.maker in s.owners else self.owner(s)

    def flags(self):
        s = self.some(lambda s: s.kind in ("udp", "tcp") and not s.gone)
        if s:
            actor = self.changed_by(s)
            s.nonblock = not s.nonblock
            if self.r.random() < 0.5:
                self.do(actor, f"ioctl s{s.slot} FIONBIO {int(s.nonblock)}")
            else:
                self.do(actor, f"fcntl s{s.slot} F_SETFL {'O_NONBLOCK' if s.nonblock else '0'}")
            self.do(actor, f"fcntl s{s.slot} F_GETFL 0")
            if s.nonblock and not s.waiting and s.certain:
                self.do(actor, f"recv s{s.slot} 10 0")

    def pipe(self):
        if len(self.slots) > 4:
            a, b = self.slots[:2]
            self.do("m", f"pipe s{a} s{b} {self.one(['0', 'O_NONBLOCK', 'O_CLOEXEC'])}")
            self.do("m", f"write s{b} 5 0")
            self.do("m", f"poll 0 s{a}:POLLIN s{b}:POLLOUT")
            self.do("m", f"recv s{a} 5 0")
            self.do("m", f"select 0 0 s{a}:7")
            self.do("m", f"read s{a} 10")
            for slot in self.r.sample([a, b], 2):
                self.do("m", f"close s{slot}")

    # --- questions and options

    def asks(self):
        s = self.some(lambda s: True)
        if not s:
            return
        actor, w = self.owner(s), f"s{s.slot}"
        if not self.may(actor, s):
            return
        self.settle(s, actor)
        self.do(actor, self.one([f"getsockname {w} {self.one([28, 128, 4, 0])}", f"getpeername {w} {self.one([28, 128, 4, 0])}",
                                 f"ioctl {w} FIONREAD 0", f"getsockopt {w} SOL_SOCKET SO_TYPE 4", f"getsockopt {w} SOL_SOCKET SO_ERROR 4",
                                 f"getsockopt {w} SOL_SOCKET SO_ACCEPTCONN 4", f"getsockopt {w} SOL_SOCKET SO_PROTOCOL 4",
                                 f"getsockopt {w} SOL_SOCKET SO_DOMAIN {self.one([4, 2, 0])}", f"fcntl {w} F_GETFL 0", f"fcntl {w} F_GETFD 0",
                                 f"ioctl {w} SIOCATMARK 0" if s.kind == "tcp" and not s.waiting else f"getsockopt {w} SOL_SOCKET 9999 4"]))

    OPTIONS = [("SOL_SOCKET SO_KEEPALIVE", [0, 1]), ("SOL_SOCKET SO_REUSEADDR", [0, 1]), ("SOL_SOCKET SO_BROADCAST", [0, 1]),
               ("SOL_SOCKET SO_PRIORITY", [0, 5, 9]), ("SOL_SOCKET SO_RCVLOWAT", [1]), ("SOL_SOCKET SO_OOBINLINE", [0, 1]),
               ("SOL_SOCKET SO_TYPE", [1]), ("SOL_SOCKET 9999", [1]), ("IPPROTO_IP IP_TOS", [0, 16, 255]), ("IPPROTO_IP IP_TTL", [1 + 63, 0, 300]),
               ("SOL_SOCKET SO_RCVBUF", [20000, 200000]), ("SOL_SOCKET SO_SNDBUF", [100000, 200000])]
    TCP_OPTIONS = [("IPPROTO_TCP TCP_NODELAY", [0, 1]), ("IPPROTO_TCP TCP_KEEPIDLE", [10, 0, 40000]), ("IPPROTO_TCP TCP_KEEPCNT", [3, 0, 128]),
                   ("IPPROTO_TCP TCP_KEEPINTVL", [5, -1]), ("IPPROTO_TCP TCP_USER_TIMEOUT", [1000, -1]), ("IPPROTO_TCP TCP_SYNCNT", [2, 0]),
                   ("IPPROTO_TCP TCP_LINGER2", [5, -1]), ("IPPROTO_TCP TCP_DEFER_ACCEPT", [0]), ("IPPROTO_TCP 999", [1])]

    def option(self):
        s = self.some(lambda s: not s.gone)
        if s:
            actor = self.changed_by(s)
            name, values = self.one(self.OPTIONS + (self.TCP_OPTIONS if s.kind != "udp" else []))
            self.do(actor, f"setsockopt s{s.slot} {name} {self.one(values)} {self.one([4, 4, 4, 4, 1, 0, 8])}")
            if not name.endswith("BUF"):
                self.do(actor, f"getsockopt s{s.slot} {name} {self.one([4, 4, 4, 1, 16])}")

    def lingers(self):
        # Of a listener that several have, each accepts with the options that it has set (docs/limits.md).
        s = self.some(lambda s: (s.kind == "tcp" or s.kind == "listener" and len(s.owners) == 1) and not s.gone)
        if s:
            actor, (on, seconds) = self.owner(s), self.one([(1, 0), (1, 0), (0, 5), (1, 5)])
            self.do(actor, f"linger s{s.slot} {on} {seconds}")
            self.do(actor, f"getsockopt s{s.slot} SOL_SOCKET SO_LINGER 8")
            s.resets = (on, seconds) == (1, 0)
            if s.kind == "tcp" and self.r.random() < 0.3:
                self.settle(s, actor)
                self.close(s, actor)

    def wrong(self):
        """Calls that the socket is not made for, and some that are not made for sockets."""
        s = self.some(lambda s: s.certain and not s.gone and not s.waiting)
        if not s:
            return
        actor, w = self.changed_by(s), f"s{s.slot}"  # shutdown() of a socket that is not connected ends its receiving
        calls = ["socket s31 99 SOCK_STREAM 0", "socket s31 AF_INET 77 0", "socket s31 AF_INET SOCK_STREAM IPPROTO_UDP", "recv 77 10 0",
                 "send 77 1 0 0", "close 77", "dup s31 77", f"dup2 {w} -1", f"dup2 {w} 5000000", f"dup3 {w} {w} 0", "listen 0 1",
                 f"epoll_ctl {w} EPOLL_CTL_ADD 0 EPOLLIN", f"recv {w} 0 MSG_DONTWAIT", f"recv {w} 10 MSG_ERRQUEUE|MSG_DONTWAIT",
                 f"dupfd s31 {w} F_DUPFD 5000000", f"dupfd s31 {w} F_DUPFD -1", f"recvmmsg {w} 0 10 MSG_DONTWAIT -1", f"accept s31 {w} 12345",
                 f"sendmmsg {w} 0 0 0" if s.kind == "listener" else f"recv {w} 10 MSG_DONTWAIT", f"bind {w} unspec"]
        if s.kind == "udp":
            calls += [f"listen {w} 5", f"accept s31 {w} 0", f"recv {w} 10 MSG_OOB|MSG_DONTWAIT", f"tcp_state {w}"]
            if not s.connected:
                calls += [f"send {w} 5 0 0", f"shutdown {w} SHUT_RD", f"getpeername {w} 28", f"sendto {w} 5 0 0 4B:z", f"write {w} 5 0"]
        else:
            calls += [f"bind {w} {s.fam}A:z", f"accept s31 {w} 0" if s.kind == "tcp" else f"send {w} 5 0 0", f"tcp_state {w}" if not s.shut else
                      f"getsockname {w} 28"]
        if s.kind == "tcp":
            calls += [f"connect {w} {s.fam}B:7", f"listen {w} 5", f"recv {w} 10 MSG_OOB|MSG_DONTWAIT", f"shutdown {w} 7"]
        if s.kind == "listener":
            calls += [f"recv {w} 5 0", f"connect {w} {s.fam}B:7", f"recvmsg {w} 10 0 1 10", f"listen {w} 3"]
        call = self.one(calls)
        self.do(actor, call)
        s.deaf = s.deaf or call.endswith("SHUT_RD")

    def bad(self):
        s = self.some(lambda s: s.certain and not s.waiting and not s.gone)
        if s and s.owners == {"m"}:
            self.do("m", f"bad s{s.slot} {self.r.randint(0, 3)} {self.one([i for i in range(17) if i not in (13, 14)])}")

    # --- processes and threads

    def thread(self):
        free = [t for t in "tu" if t not in self.threads]
        if free:
            self.do("m", f"thread {'tu'.index(free[0]) + 1}")
            self.threads.add(free[0])

    def fork(self):
        child = self.one([c for c in "cd" if c not in self.processes])
        if not child or len(self.ended) > 2:
            return
        parent = self.one(list(self.processes))
        self.close_what_is_over(parent)
        for s in self.socks:
            if parent in s.owners:
                self.keep_order(s, parent)
        if len(self.slots) > 4 and self.r.random() < 0.6:
            self.channels[child] = a, b = self.slots.pop(0), self.slots.pop(0)
            self.do(parent, f"socketpair s{a} s{b} {self.one(['SOCK_STREAM', 'SOCK_DGRAM'])}")
        number = {"c": 3, "d": 4}[child]
        self.do(parent, f"fork {number} {self.one([0, 0, 0, 1])}")
        self.processes[child] = parent
        for s in self.socks:
            if parent in s.owners:
                s.owners.add(child)
                s.shared |= s.kind == "listener" and not s.waited

    def close_what_is_over(self, actor):
        """A child would find a kernel socket that has ended (docs/limits.md)."""
        for s in list(self.socks):
            if actor in s.owners and s.kind == "tcp" and s.gone and (s.shut or s.gone != "end"):
                self.settle(s, actor)
                self.close(s, actor)

    def accept_by_two(self):
        """Parent and child wait for the same listener, which the parent has used: each gets one of two clients."""
        listener = self.some(lambda s: s.kind == "listener" and not s.nonblock and s.owners == {"m"} and s.waited and not s.shared)
        slot = self.slot() if listener and len(self.processes) == 1 and len(self.ended) < 3 and not self.threads else None
        if slot is None:
            return
        self.close_what_is_over("m")
        for s in self.socks:
            self.settle(s, "m")
        self.do("m", f"fork 3 {self.one([0, 1])}")
        for actor in "mc":
            self.do(actor, f"accept s{slot} s{listener.slot} 0", ">")
        clients = [self.name(), self.name()]
        for client in clients:
            self.peer(f"connect {client} {listener.fam} {listener.port}")
            self.lines.append("any m c")
        for actor in "mc":
            self.do(actor, f"close s{slot}")
        for client in clients:
            self.peer(f"rest {client}")
        self.do("c", "exit 0", "!")
        self.do("m", "wait")
        self.ended.append("c")
        self.slots.insert(0, slot)

    def child_ends(self):
        child = self.one([c for c in "cd" if c in self.processes and c not in self.processes.values()])
        if not child:
            return
        for s in self.socks:
            if s.owners == {child}:
                self.before_close(s)
        status = self.r.randint(0, 3)
        self.do(child, f"{self.one(['exit', '_exit'])} {status}", "!")
        parent = self.processes.pop(child)
        self.do(parent, "wait")
        self.ended.append(child)
        for end in self.channels.pop(child, ()):
            self.do(parent, f"close s{end}")
        for s in list(self.socks):
            if child in s.owners:
                s.owners.discard(child)
                self.is_closed(s)

    def passes(self):
        """A socket that the other has not: from parent to child or back (SCM_RIGHTS), which use it afterwards."""
        child = self.one(sorted(self.channels))
        if not child:
            return
        ends = [(self.processes[child], self.channels[child][0]), (child, self.channels[child][1])]
        (giver, out), (taker, into) = self.r.sample(ends, 2)
        s = self.some(lambda s: giver in s.owners and taker not in s.owners and not s.gone and not s.sets)
        if not s:
            return
        self.keep_order(s, giver)
        self.do(giver, f"sendmsg s{out} 1 0 0 1 - s{s.slot}")
        self.do(taker, f"recvmsg s{into} 1 {'MSG_CMSG_CLOEXEC' if s.cloexec else 0} 1 64 s{s.slot}")
        s.owners.add(taker)
        if self.r.random() < 0.3:
            self.close(s, giver)

    def becomes(self):
        """Another user for a while: what needs a privilege then (connections that go to the kernel) is done by those that are kept."""
        self.euid = 65534 - self.euid
        self.do("m", f"seteuid {self.euid}")

    def executes(self):
        actor = self.one([c for c in "cd" if c in self.processes])
        if not actor:
            return
        for s in self.socks:
            if actor in s.owners:
                self.keep_order(s, actor)
                self.settle(s, actor)
        self.do(actor, "fcntl 908 F_GETFD 0")
        self.do(actor, "exec")
        self.do(actor, "fds")
        for s in list(self.socks):
            if actor in s.owners and s.cloexec:
                s.owners.discard(actor)
                self.is_closed(s)

    def starts_program(self):
        """Another program gets all that is not closed at exec, and ends at once."""
        child = self.one([c for c in "cd" if c not in self.processes])
        if not child or len(self.processes) > 1 or len(self.ended) > 2:
            return
        for s in self.socks:
            if "m" in s.owners:
                self.keep_order(s, "m")
            self.settle(s, "m")
        self.close_what_is_over("m")
        number = {"c": 3, "d": 4}[child]
        self.do("m", f"{self.one(['spawn', 'vfork'])} {number}")
        self.do(child, "fds")
        self.do(child, f"_exit {self.r.randint(0, 3)}", "!")
        self.do("m", "wait")
        self.ended.append(child)

    # --- the whole

    WEIGHTS = {"udp": 4, "tcp_connect": 4, "tcp_refused": 1, "listener": 2, "accept": 5, "send": 12, "arrives": 12, "receive": 12,
               "closes": 2, "shuts": 1, "peer_shuts": 1, "peer_aborts": 1, "peer_closes": 1, "look": 6, "times_out": 3, "bad_times": 1,
               "waits_meanwhile": 3, "accepts_meanwhile": 1, "is_cancelled": 1, "is_cancelled_accepting": 1,
               "is_cancelled_in_epoll": 1, "is_cancelled_connecting": 1, "is_cancelled_sending": 1, "is_interrupted": 1, "epoll": 2, "epoll_ctl": 6,
               "epoll_wait": 6, "epoll_by_two": 1, "accept_by_two": 1, "copies": 2, "flags": 2, "pipe": 1, "asks": 4, "option": 4,
               "wrong": 4, "bad": 2, "thread": 1, "fork": 2, "child_ends": 1, "executes": 1, "starts_program": 1,
               "passes": 3, "becomes": 1, "lingers": 2, "sends_file": 2}

    def make(self):
        names = self.r.sample(sorted(self.WEIGHTS), self.r.randint(len(self.WEIGHTS) // 2, len(self.WEIGHTS)))
        weights = [self.WEIGHTS[name] for name in names]
        for name in self.r.sample(["udp", "tcp_connect", "listener"], 2):
            getattr(self, name)()
        for _ in range(self.r.randint(8, 40)):
            getattr(self, self.r.choices(names, weights)[0])()
        while len(self.processes) > 1:
            self.child_ends()
        for t in sorted(self.threads):
            self.do(t, "leave", "!")
            self.do("m", f"join {'tu'.index(t) + 1}")
        self.threads.clear()
        self.do("m", "fds")
        self.last()
        self.do("m", "fds")
        self.do("m", "threads")
        self.do("m", "end")
        # Together with the next line only where that is the same actor's, and is not interrupted or cancelled.
        return [line if line[1] != "&" or following[0] == line[0] and following[1] in "&:" else f"{line[0]}:{line[2:]}"
                for line, following in zip(self.lines, [*self.lines[1:], "  "])]


def script(seed):
    return Script(seed).make()
