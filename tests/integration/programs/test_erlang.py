# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Erlang: an echo server for streams and datagrams, a process of Erlang's for each connection, by the emulator's own poll loop and by its
newer sockets. RabbitMQ, which is written in it, is opt-in: 25 MB more, and ten seconds to start on a machine that does nothing else.
RABBITMQ=/usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/sbin/rabbitmq-server runs it (rabbitmq-server).
"""

import contextlib
import os
import socket

import pytest

from netns import wait_for
from serving import OURS, ended, no_kernel_connections, no_kernel_datagrams, start, taken_by_the_library

RABBITMQ = os.environ.get("RABBITMQ")
ECHO = """#!/usr/bin/env escript
%%! +S 2
main([Own, Backend]) ->
    {ok, Ip} = inet:parse_address(Own),
    Kind = [{inet_backend, list_to_atom(Backend)}],
    {ok, L} = gen_tcp:listen(8080, Kind ++ [binary, {ip, Ip}, {active, false}, {reuseaddr, true}, {backlog, 50}]),
    {ok, U} = gen_udp:open(8080, Kind ++ [binary, {ip, Ip}, {active, true}]),
    spawn_link(fun() -> accepts(L) end),
    datagrams(U).
accepts(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = spawn_link(fun() -> receive go -> stream(S) end end),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    accepts(L).
stream(S) ->
    inet:setopts(S, [{active, once}]),
    receive
        {tcp, S, Data} -> ok = gen_tcp:send(S, Data), stream(S);
        {tcp_closed, S} -> gen_tcp:close(S)
    end.
datagrams(U) ->
    receive {udp, U, Ip, Port, Data} -> ok = gen_udp:send(U, Ip, Port, Data), datagrams(U) end.
"""


def streams(net, times):
    """Open at the same time."""
    data = bytes(range(250)) * 200
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(net.b.socket(kind=socket.SOCK_STREAM)) for _ in range(times)]
        for s in clients:
            s.connect((net.a.ip4, 8080))
            s.sendall(data)
        for s in clients:
            with s.makefile("rb") as f:
                assert f.read(len(data)) == data
                s.shutdown(socket.SHUT_WR)
                assert f.read() == b""


@pytest.mark.parametrize("backend", ["inet", "socket"])
def test_echo(net, backend):
    (net.tmp / "echo").write_text(ECHO)
    server = start(net, ["escript", net.tmp / "echo", net.a.ip4, backend], 8080)
    with no_kernel_connections(net.a, 50):
        for _ in range(5):
            streams(net, 10)
    with net.b.socket() as s:
        def words(n):
            for i in range(n):
                s.sendto(b"word %d" % i, (net.a.ip4, 8080))
                assert s.recv(99) == b"word %d" % i
        words(5)
        with no_kernel_datagrams(net, 2):
            words(100)
    ended(server)


if RABBITMQ:
    CONF = """
listeners.tcp.1 = {a}:5672
mqtt.listeners.tcp.1 = {a}:1883
mqtt.allow_anonymous = true
loopback_users = none
log.console.level = error
"""

    def test_rabbitmq(net):
        """Its MQTT listener, with mosquitto's clients."""
        (net.tmp / "rabbit.conf").write_text(CONF.format(a=net.a.ip4))
        (net.tmp / "plugins").write_text("[rabbitmq_mqtt].\n")
        net.a.popen(["epmd"], env={"ERL_EPMD_ADDRESS": "127.0.0.1"})
        net.a.wait_bound(4369, "tcp")
        env = {"HOME": net.tmp, "RABBITMQ_BASE": net.tmp, "RABBITMQ_MNESIA_BASE": net.tmp / "db", "RABBITMQ_LOGS": "-",
               "RABBITMQ_NODENAME": "rabbit@localhost", "RABBITMQ_CONFIG_FILE": net.tmp / "rabbit.conf", "RABBITMQ_DIST_PORT": "25672",
               "RABBITMQ_ENABLED_PLUGINS_FILE": net.tmp / "plugins", "RABBITMQ_PID_FILE": net.tmp / "pid"}
        server = net.a.popen([RABBITMQ], preload=OURS, env=env)
        net.a.wait_bound(1883, "tcp", 120)
        if OURS:
            wait_for(lambda: taken_by_the_library(net, 1883), 10, "port 1883 offloaded")
        at = ["-h", net.a.ip4, "-q", "1"]
        with no_kernel_connections(net.a):
            hears = [net.b.popen(["stdbuf", "-oL", "mosquitto_sub", *at, "-d", "-t", "t/#", "-C", "50"]) for _ in range(3)]
            for sub in hears:
                sub.wait_text("received SUBACK", 30)
            lines = net.tmp / "lines"
            lines.write_text("".join(f"message {n} {'x' * 2000}\n" for n in range(50)))
            with open(lines) as stdin:
                net.b.run(["mosquitto_pub", *at, "-t", "t/one", "-l"], stdin=stdin)
            for sub in hears:
                assert sub.wait(60) == 0, sub.text
                assert [f"message {n} x" in sub.text for n in range(50)] == [True] * 50
        ended(server)
