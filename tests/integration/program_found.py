# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What scripts have found, as short as it showed, by what went wrong. Each is a test of its own."""

FOUND = {
    "FIONREAD asked the kernel socket while what it had was read and more had come by the ring": """
        m: socket s0 AF_INET SOCK_DGRAM 0
        p: udp x 4 0
        m: bind s0 4A:0
        p: sendto x 4 0 734 1
        m: await 5000 s0:POLLIN
        m: recv s0 2000 0
        p: sendto x 4 0 10 1
        m: await 5000 s0:POLLIN
        m: ioctl s0 FIONREAD 0
        m: recv s0 2000 0""",
    "the state of a connection was asked before an address of the kernel's was refused": """
        p: listen x 4 0
        m: socket s0 AF_INET SOCK_STREAM 0
        m: connect s0 4B:0
        p: accept x y
        m: bad s0 3 1
        m: bad s0 3 3
        p: abort y
        m: await 5000 s0:0
        m: recv s0 10 0
        m: bad s0 3 0
        m: bad s0 3 1
        m: bad s0 3 2
        m: bad s0 3 3""",
    "what a datagram socket had queued came behind what the kernel got once the socket was its": """
        m: socket s0 AF_INET SOCK_DGRAM 0
        p: udp x 4 0
        m: bind s0 4A:0
        p: sendto x 4 0 6 1
        m: recv s0 2000 0
        p: sendto x 4 0 7 1
        p: sendto x 4 0 8 1
        p: sendto x 4 0 9 1
        m: await 5000 s0:POLLIN
        m: dup2 s0 0
        p: sendto x 4 0 10 1
        p: sendto x 4 0 11 1
        m: recv s0 2000 0
        m: recv s0 2000 0
        m: recv s0 2000 0
        m: recv s0 2000 0
        m: recv s0 2000 0""",
    "a connect() that did not wait was concluded by another one after shutdown()": """
        p: listen x 4 0
        m: socket s0 AF_INET SOCK_STREAM|SOCK_NONBLOCK 0
        m: connect s0 4B:0
        m: await 5000 s0:POLLOUT
        p: accept x y
        m: shutdown s0 SHUT_WR
        p: rest y
        m: connect s0 4B:0""",
    "a wait ran on past its time in a set in which a thread had been cancelled": """
        p: listen x 4 0
        m: epoll_create s0 0
        m: socketpair s1 s2 SOCK_STREAM
        m: epoll_ctl s0 EPOLL_CTL_ADD s1 EPOLLIN
        m: thread 1
        t: epoll_wait s0 16 -1 0 >
        m: cancel 1
        m: join 1
        m: socket s3 AF_INET SOCK_STREAM 0
        m: connect s3 4B:0
        p: accept x y
        m: epoll_ctl s0 EPOLL_CTL_ADD s3 EPOLLIN
        m: epoll_wait s0 16 1 2
        m: epoll_wait s0 16 30 0""",
    "who had seteuid() of another user could not leave late clients to its children": """
        m: socket s0 AF_INET SOCK_STREAM 0
        m: bind s0 4A:0
        m: listen s0 8
        m: fork 3 0
        m: poll 0 s0:POLLIN
        m: seteuid 65534
        p: connect x 4 0
        c: await 5000 s0:POLLIN
        c: accept s1 s0 0
        c! exit 0
        m: wait""",
    "datagrams were lost to a child when its parent closed the socket": """
        m: socket s0 AF_INET6 SOCK_DGRAM 0
        p: udp x m 1
        m: bind s0 m*:1
        m: fork 3 0
        m: poll 0 s0:POLLIN
        p: sendto x m 1 2 97
        m: await 5000 s0:POLLIN
        m: close s0
        c: await 5000 s0:POLLIN
        c: recv s0 100 0
        c! exit 0
        m: wait""",
    "datagrams were lost to a child when its parent ended": """
        p: udp x 4 1
        m: fork 4 0
        d: socket s0 AF_INET SOCK_DGRAM 0
        d: bind s0 4A:1
        d: poll 0 s0:POLLIN
        d: fork 3 0
        p: sendto x 4 1 5 97
        d: await 5000 s0:POLLIN
        d! exit 0
        m: wait
        c: await 5000 s0:POLLIN
        c: recv s0 100 0
        c! exit 0""",
    "the kernel did not learn that a connection was shut for reading": """
        p: listen x 4 0
        m: socket s0 AF_INET SOCK_STREAM 0
        m: connect s0 4B:0
        p: accept x y
        m: shutdown s0 SHUT_RDWR
        p: rest y
        m: poll 0 s0:POLLIN|POLLOUT|POLLRDHUP
        m: dup2 s0 0
        m: poll 0 s0:POLLIN|POLLOUT|POLLRDHUP
        m: recv s0 10 MSG_DONTWAIT""",
    "the program of a child waited for ever for clients of a listener that its parent had used": """
        m: socket s0 AF_INET SOCK_STREAM 0
        m: bind s0 4A:0
        m: listen s0 8
        p: connect x 4 0
        m: accept s1 s0 0
        m: fork 3 0
        c: exec
        p: connect y 4 0
        c: await 5000 s0:POLLIN
        c: accept s2 s0 0
        p: connect z 4 0
        m: accept s2 s0 0
        c! exit 0
        m: wait""",
    "to a child a connection that was over was one that had never been": """
        p: listen x 4 0
        m: socket s0 AF_INET SOCK_STREAM 0
        m: connect s0 4B:0
        p: accept x y
        m: fork 3 0
        p: abort y
        m: await 5000 s0:0
        m: recv s0 10 0
        c: poll 0 s0:POLLIN|POLLOUT|POLLRDHUP
        c: recv s0 10 0
        c: send s0 10 0 0
        c! exit 0
        m: wait""",
    "a listener was the kernel's because another process had been given it, and a child took its clients": """
        m: socket s0 AF_INET SOCK_STREAM 0
        m: bind s0 4A:0
        m: listen s0 8
        m: socketpair s1 s2 SOCK_STREAM
        m: sendmsg s1 1 0 0 1 - s0
        m: recvmsg s2 1 0 1 64 s3
        p: connect x 4 0
        m: accept s4 s0 0
        m: fork 3 0
        c: poll 0 s0:POLLIN
        p: connect y 4 0
        m: await 5000 s0:POLLIN
        m: accept s5 s0 0
        c! exit 0
        m: wait""",
    "the FIN of a connection that went to the kernel after seteuid() did not": """
        p: listen x 4 0
        m: socket s0 AF_INET SOCK_STREAM 0
        m: connect s0 4B:0
        p: accept x y
        m: seteuid 65534
        m: fork 3 0
        p: close y
        c: await 5000 s0:POLLRDHUP
        c: recv s0 10 0
        c! exit 0
        m: wait""",
    "datagrams that waited when their socket went to the kernel after seteuid() did not": """
        p: udp x 4 0
        m: socket s0 AF_INET SOCK_DGRAM 0
        m: bind s0 4*:0
        m: fork 3 0
        m: seteuid 65534
        p: sendto x 4 0 1000 194
        m: await 5000 s0:POLLIN
        m: recv s0 1200 0
        p: sendto x 4 0 1200 291
        c: await 5000 s0:POLLIN
        c: recv s0 2000 0
        c! exit 0
        m: wait""",
    "a listener was the library's although another process had been given its socket before": """
        m: socket s0 AF_INET SOCK_STREAM 0
        m: bind s0 4A:0
        m: socketpair s1 s2 SOCK_STREAM
        m: sendmsg s1 1 0 0 1 - s0
        m: recvmsg s2 1 0 1 64 s3
        m: listen s0 8
        m: poll 0 s0:POLLIN
        p: connect x 4 0
        m: await 5000 s3:POLLIN
        m: accept s4 s3 0""",
    "a connection was the library's although another process had been given its socket before": """
        p: listen x 4 0
        m: socket s0 AF_INET SOCK_STREAM 0
        m: socketpair s1 s2 SOCK_STREAM
        m: sendmsg s1 1 0 0 1 - s0
        m: recvmsg s2 1 0 1 64 s3
        m: connect s0 4B:0
        p: accept x y
        m: send s3 10 0 0
        p: recv y 10""",
    "a child's poll() that does not wait was not told of a datagram": """
        p: udp x 4 0
        m: socket s0 AF_INET SOCK_DGRAM 0
        m: connect s0 4B:0
        m: send s0 3 0 0
        p: recvfrom x
        m: fork 3 0
        p: reply x 12 97
        c: await 5000 s0:POLLIN
        c: recv s0 2000 0
        c: poll 0 s0:POLLIN
        p: reply x 1200 97
        m: await 5000 s0:POLLIN
        c: poll 0 s0:POLLIN
        m: recv s0 2000 0
        c! exit 0
        m: wait""",
    "an accepted connection had not the time of its listener's SO_LINGER that is off": """
        m: socket s0 AF_INET SOCK_STREAM 0
        m: bind s0 4A:0
        m: listen s0 1
        m: linger s0 1 5
        m: linger s0 0 7
        m: poll 0 s0:POLLIN
        p: connect x 4 0
        m: accept s1 s0 0
        m: getsockopt s1 SOL_SOCKET SO_LINGER 8
        m: linger s1 0 9
        m: getsockopt s1 SOL_SOCKET SO_LINGER 8""",
    "EPOLL_CTL_MOD of a listener that is not in the set took its clients from a child": """
        m: socket s0 AF_INET SOCK_STREAM 0
        m: bind s0 4A:0
        m: listen s0 32
        m: epoll_create s1 0
        m: fork 3 0
        c: exec
        m: epoll_ctl s1 EPOLL_CTL_MOD s0 EPOLLIN
        p: connect x 4 0
        c: await 5000 s0:POLLIN
        c: accept s2 s0 0
        p: connect y 4 0
        c: await 5000 s0:POLLIN
        c: accept s3 s0 0
        c! exit 0
        m: wait
        p: rest x
        p: rest y""",
    "a program behind exec() did not get the clients of a listener that its parent waits for, too": """
        m: socket s0 AF_INET SOCK_STREAM 0
        m: bind s0 4A:0
        m: listen s0 32
        m: fork 3 0
        c: exec
        m: poll 0 s0:POLLIN
        p: connect x 4 0
        c: await 5000 s0:POLLIN
        c: accept s2 s0 0
        p: connect y 4 0
        c: await 5000 s0:POLLIN
        c: accept s3 s0 0
        c! exit 0
        m: wait
        p: rest x
        p: rest y""",
    "a child's first call found nothing of what had come before": """
        p: udp x 4 0
        m: socket s0 AF_INET SOCK_DGRAM 0
        m: bind s0 4A:0
        m: connect s0 4B:0
        m: send s0 3 0 0
        p: recvfrom x
        p: sendto x 4 0 12 97
        p: sendto x 4 0 1200 98
        p: sendto x 4 0 13 99
        m: await 5000 s0:POLLIN
        m: fork 3 0
        c: recv s0 2000 MSG_DONTWAIT
        p: sendto x 4 0 14 100
        c: poll 0 s0:POLLIN
        c: recv s0 2000 MSG_DONTWAIT
        m: recv s0 2000 MSG_DONTWAIT
        m: await 5000 s0:POLLIN
        m: recv s0 2000 MSG_DONTWAIT
        c! exit 0
        m: wait""",
}

# A race: as often as one script has room for.
FOUND["a child went on with a connection before its parent's epoll set knew the kernel socket"] = "\n".join([
    "m: socket s0 AF_INET SOCK_STREAM 0", "m: bind s0 4A:0", "m: listen s0 32", "m: epoll_create s1 0", "m: pipe s2 s3 0",
    *(line for i in range(4, 31) for line in (f"p: connect x{i} 4 0", f"m: accept s{i} s0 0", f"m: epoll_ctl s1 EPOLL_CTL_ADD s{i} EPOLLIN")),
    "m: fork 3 0",
    *(line for i in range(4, 31) for line in (
        f"p: send x{i} 5 1", f"m: await_bytes s{i} 5", "m& read s2 1", "m> epoll_wait s1 16 0 0", f"c& getpeername s{i} 28",
        "c: write s3 1 0", "m<", f"c: recv s{i} 5 0")),
    "c! exit 0", "m: wait"])


def found(name):
    """That script, with the end that each has."""
    return [line.strip() for line in FOUND[name].strip().splitlines()] + ["m: fds", "m: end"]
