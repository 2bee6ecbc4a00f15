# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sockets that come and go: what one leaves behind must not be seen by the next."""

from differential import App


def test_a_new_socket_does_not_send_from_the_port_of_one_that_was_closed(unet):
    with App(unet.a, True) as app:
        peer = app.peer_socket(7003)
        for port in (7010, 7011, 7012):
            app.do(f"s = udp({port})")
            for i in range(3):  # the first may go through the kernel, which resolves the neighbour
                app.do("s.sendto(b'x', (PEER, 7003))")
                assert peer.recvfrom(10)[1][1] == port, f"datagram {i} of the socket on port {port}"
            app.do("s.close()")
        peer.close()


ECHO = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 7004))
print("bound", flush=True)
while True:
    data, who = s.recvfrom(2000)
    if who[1]:  # the kernel sends from port 0 while another thread dissolves the association
        s.sendto(data, who)
"""


def threads(net, mode, count=1, timeout=30.0):
    """Runs udp_threads.c in net.a against an echo in net.b."""
    net.b.python(ECHO, args=(net.b.ip4,)).wait_text("bound")
    program = net.library.helpers / "udp_threads"
    argv = [program, mode, net.a.ip4, net.b.ip4, 7004, count]
    p = net.a.run(argv, preload=True, env={"VMA_TRACELEVEL": "WARN"}, timeout=timeout)
    print(p.text)
    return p.text


def test_a_thread_that_is_cancelled_in_recv_leaves_no_watch_behind(unet):
    assert "10 threads cancelled" in threads(unet, "cancel", 10)


def test_waiting_needs_no_free_descriptor(unet):
    assert "waited and answered" in threads(unet, "emfile")


def test_sockets_that_come_and_go_leave_neither_memory_nor_descriptors(unet, library):
    assert "fds more" in threads(unet, "churn", 500 if library.sanitize else 5000, timeout=60.0)


def test_every_call_at_once_from_many_threads(unet):
    assert "datagrams received" in threads(unet, "hammer", 3, timeout=60.0)


def test_signal_handlers_use_sockets_whatever_they_interrupt(unet):
    assert "whose handlers used sockets" in threads(unet, "signals", 2000)
