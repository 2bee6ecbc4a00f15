# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A call that succeeds leaves errno as it was: programs set it to 0 and look at it afterwards (strtol(3) and its like).

errno_kept.c calls on sockets that user space serves. preload_calls.c has plain descriptors and every function of the version
map: it poisons errno before each."""

import pytest

UDP_PORT, TCP_PORT, OWN_PORT = 7301, 7302, 7303

PEER = """
import socket, sys, threading
own, other = sys.argv[1:3]

def echo(c):
    while True:
        data = c.recv(4000)
        if not data:
            return c.close()
        c.sendall(data)

def serve():
    while True:
        threading.Thread(target=echo, args=(lst.accept()[0],), daemon=True).start()

lst = socket.create_server((own, %d))
threading.Thread(target=serve, daemon=True).start()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((own, %d))
print("ready", flush=True)
while True:
    data, who = u.recvfrom(4000)
    if data == b"!":
        threading.Thread(target=echo, args=(socket.create_connection((other, %d)),), daemon=True).start()
    else:
        u.sendto(data, who)
""" % (TCP_PORT, UDP_PORT, OWN_PORT)


def run(net, library, what, preload):
    net.b.python(PEER, args=(net.b.ip4, net.a.ip4)).wait_text("ready")
    argv = [library.helpers / "errno_kept", what, net.a.ip4, net.b.ip4, UDP_PORT, TCP_PORT, OWN_PORT]
    done = net.a.run(argv, preload=preload, env={"VMA_TRACELEVEL": "ERROR"}, check=False, timeout=60)
    print(done.text)
    assert done.popen.returncode == 0
    return done.text


@pytest.mark.parametrize("preload", [False, True], ids=["kernel", "ours"])
def test_a_call_that_succeeds_on_a_socket_leaves_errno_alone(net, library, preload):
    if not preload:
        run(net, library, "sockets", False)
        return
    with net.a.tcp_bypassed(at_most=4), net.a.bypassed(at_most=2):
        run(net, library, "sockets", True)


@pytest.mark.parametrize("preload", [False, True], ids=["kernel", "ours"])
def test_a_call_that_hands_sockets_over_leaves_errno_alone(net, library, preload):
    run(net, library, "processes", preload)
