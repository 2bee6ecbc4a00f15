# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sequence numbers and time stamps of one process go on where another's have ended (RFC 6528): secret.c."""

import contextlib
import os
import pathlib
import socket
import stat
import struct

from netns import PYTHON

PORT = 7300
SECRET = pathlib.Path(f"/dev/shm/vma-tcp-secret-{os.geteuid()}")
CLIENT = """
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[3])))
s.connect((sys.argv[2], int(sys.argv[3])))
assert s.recv(10) == b""  # the server ends the connection, and has it in TIME_WAIT
s.close()
"""


def syns(wire):
    """(sequence number, time stamp) of the SYNs to PORT that have come since."""
    found = []
    with contextlib.suppress(TimeoutError):
        while True:
            frame = wire.recv(200)
            tcp = frame[34:]
            if frame[12:14] != b"\x08\x00" or frame[23] != 6 or tcp[13] & 0x12 != 2 or struct.unpack_from("!H", tcp, 2)[0] != PORT:
                continue
            options, stamp = tcp[20:(tcp[12] >> 4) * 4], None
            while options and options[0]:
                if options[0] == 8:
                    stamp = struct.unpack_from("!I", options, 2)[0]
                options = options[1:] if options[0] == 1 else options[options[1]:]
            found.append((struct.unpack_from("!I", tcp, 4)[0], stamp))
    return found


def rises(numbers):
    return all(0 < (b - a) % 2**32 < 2**31 for a, b in zip(numbers, numbers[1:]))


def test_processes_from_one_port(net):
    """Each of eight connects at once, though the peer has the connection of the one before in TIME_WAIT."""
    net.neighbours()
    with net.a.socket(kind=socket.SOCK_STREAM) as l, net.a.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3), 0.2) as wire:
        l.bind((net.a.ip4, PORT))
        l.listen()
        wire.bind((net.a.dev, 3))
        for _ in range(8):
            client = net.b.python(CLIENT, True, [net.b.ip4, net.a.ip4, PORT], env={"VMA_TCP_TIMESTAMP_OPTION": 1})
            l.accept()[0].close()
            assert client.wait() == 0, client.text
        seen = list({n: (n, t) for n, t in syns(wire)}.values())  # one that is sent again is none
    print(f"SYNs: {seen}")
    assert len(seen) == 8, "one SYN for each connection"
    assert rises([n for n, _ in seen])
    assert rises([t for _, t in seen])


def test_the_secret_is_its_owners(net):
    """Nobody else can read it, and it stays."""
    def connects():
        with net.a.socket(kind=socket.SOCK_STREAM) as l:
            l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            l.bind((net.a.ip4, PORT))
            l.listen()
            client = net.b.python(CLIENT, True, [net.b.ip4, net.a.ip4, PORT], env={"VMA_TRACELEVEL": "DEBUG"})
            l.accept()[0].close()
            assert client.wait() == 0, client.text
        return client

    net.neighbours()
    connects()
    st = SECRET.lstat()
    assert stat.S_ISREG(st.st_mode) and st.st_mode & 0o77 == 0 and st.st_uid == os.geteuid() and st.st_size == 32
    before = SECRET.read_bytes()
    assert before.count(0) < 16
    connects()
    assert SECRET.read_bytes() == before


def test_what_somebody_else_has_put_there_is_not_used(net):
    """In a /dev/shm of its own: connections are made, and the file stays as it is."""
    net.neighbours()
    prepared = [f"head -c 32 /dev/zero > {SECRET}; chmod 644 {SECRET}", f"head -c 32 /dev/zero > {SECRET}; chmod 600 {SECRET}; chown 65534 {SECRET}",
                f"head -c 32 /dev/zero > /dev/shm/other; chmod 600 /dev/shm/other; ln -s /dev/shm/other {SECRET}", f"mkfifo -m 600 {SECRET}",
                f"head -c 31 /dev/zero > {SECRET}; chmod 600 {SECRET}", "mount -o remount,ro /dev/shm"]
    for script in prepared:
        with net.a.socket(kind=socket.SOCK_STREAM) as l:
            l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            l.bind((net.a.ip4, PORT))
            l.listen()
            client = net.b.popen(["unshare", "-m", "sh", "-c", f"mount -t tmpfs none /dev/shm && {script} && ls -li /dev/shm && "
                                  f'{PYTHON} -c "$0" "$@" && ls -li /dev/shm', CLIENT, net.b.ip4, net.a.ip4, PORT],
                                 True, {"VMA_TRACELEVEL": "DEBUG"})
            l.accept()[0].close()
            assert client.wait() == 0, client.text
        assert "sequence numbers are this process's own" in client.text, client.text
        listing = [line for line in client.text.splitlines() if "vma-tcp-secret" in line and "rw" in line]
        assert len(set(listing)) <= 1, listing
