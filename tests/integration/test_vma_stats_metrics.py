# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vma_stats --prometheus and --listen: the metrics, and the small server that gives them away."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import struct

import pytest

import exposition
from netns import PATIENCE, wait_for
from stats_tool import PID, ROOT, Writer, directory, popen, programs, scribble, tool, writer  # noqa: F401

PROGRAM = 40 + 32  # of struct vma_stats_header: behind start_time and library_version
PROGRAM_SIZE = 64


def metrics(tool, *args, **options):
    return exposition.parse(tool("--prometheus", *args, **options).stdout)


def test_the_metrics_have_what_the_process_counted(writer, tool):
    m = metrics(tool)
    me = {"pid": str(writer.pid), "program": "stats_writer"}
    assert m["vma_processes"].value(readable="true") == 1 and m["vma_processes"].value(readable="false") == 0
    assert m["vma_process_info"].value(**me) == 1
    assert m["vma_process_open_sockets"].value(**me) == 3
    packets = m["vma_socket_packets_total"]
    assert packets.value(fd="14", direction="rx", path="offloaded", **me) == 786133
    assert packets.value(fd="14", direction="rx", path="kernel", **me) == 3
    assert packets.value(fd="15", direction="tx", path="offloaded", protocol="tcp", **me) == 5000000000
    assert m["vma_process_packets_total"].value(direction="tx", path="offloaded", **me) == 5000000010
    assert m["vma_process_tx_retransmits_total"].value(**me) == 9
    assert m["vma_socket_rx_poll_hit_total"].value(fd="14") == 300
    info = m["vma_socket_info"]
    assert info.value(fd="15", local="[2001:db8::1]:44522", remote="[2001:db8::2]:6666", state="ESTABLISHED", offloaded="true") == 1
    assert m["vma_ring_drop_checksum_total"].value(ring="0", interface="veth0", type="RING_XDP") == 4
    assert m["vma_pool_no_buffers_total"].value(direction="tx") == 3
    assert m["vma_iomux_ready_os_total"].value(call="select") == 15185
    assert m["vma_iomux_polling_ratio"].value(call="select") == 0.7
    assert m["vma_iomux_timeouts_total"].value(call="epoll", epfd="7") == 2


def test_every_field_is_a_metric_or_is_left_out_on_purpose(writer, tool):
    """tools/vma_stats/fields.c says what makes one; the JSON has all of them."""
    names = set(metrics(tool))
    got = json.loads(tool("--json", "-c", 1).stdout)
    left_out = {"rcv_nxt", "rcv_wup", "snd_una", "snd_nxt", "snd_wl1", "write_seq", "retransmits", "flags",
                "unacked_last_seq", "unacked_first_len"}
    assert all(f"vma_socket_{k}_total" in names for k in ("packets", "bytes", "eagain", "errors"))
    for prefix, block, not_fields in (("socket", got["sockets"][0], {"fd", "inode", "mc_if", "rx_tid", "tx_tid", "generation",
                                                                     "local_port", "remote_port", "rx_ring_user", "tx_ring_user"}),
                                      ("tcp", got["sockets"][1]["tcp"], left_out), ("ring", got["rings"][0], {"index", "ifindex"}),
                                      ("cq", got["cqs"][0], {"index"}), ("pool", got["pools"][0], {"index"}),
                                      ("iomux", got["select"], {"epfd", "tid", "polling_cpu"})):
        for field, value in block.items():
            if type(value) is not int or field in not_fields:
                continue
            base = f"vma_{prefix}_{re.sub(r'_us(ec)?$', '_seconds', field)}"
            assert base in names or base + "_total" in names, base


def test_metrics_of_several_processes_stand_together(writer, programs, directory, tool):
    other = Writer(programs, directory)
    m = metrics(tool)
    assert m["vma_processes"].value(readable="true") == 2
    for w in (writer, other):
        assert m["vma_socket_packets_total"].value(pid=str(w.pid), fd="14", direction="rx", path="offloaded") == 786133
    only = metrics(tool, "-p", other.pid, "-s", 14)
    assert {dict(k)["pid"] for k in only["vma_socket_info"].samples} == {str(other.pid)}
    assert {dict(k)["fd"] for k in only["vma_socket_info"].samples} == {"14"}
    assert not metrics(tool, "-n", "nobody")["vma_process_info"].samples
    other.end()


def test_a_name_cannot_leave_its_label(writer, tool):
    scribble(writer.path, PROGRAM, b'a"} 1\n# x\\{evil="1",\0'.ljust(PROGRAM_SIZE, b"z"))
    m = metrics(tool)
    assert {dict(k)["program"] for k in m["vma_process_info"].samples} == {'a"} 1?# x\\{evil="1",'}


def test_scribbled_pages_make_metrics_that_can_be_read(writer, programs, directory, tool):
    """A sample that came twice would cost the whole scrape, also the other process's part."""
    other = Writer(programs, directory)
    scribble(writer.path, 32, b"\xff" * (writer.path.stat().st_size - 32))
    m = metrics(tool, "-p", writer.pid)
    assert len(m["vma_socket_info"].samples) == 4 and len(m["vma_ring_kicks_total"].samples) == 16
    assert m["vma_socket_rx_ready_bytes"].value(slot="3") == 2.0 ** 64
    scribble(other.path, 0, b"\0" * 8)
    r = tool("--prometheus", rc=1)
    assert r.stderr == f"vmastat: vmastat.{other.pid} is not a VMA statistics file\n"
    assert exposition.parse(r.stdout)["vma_processes"].value(readable="false") == 1
    other.end()


def test_no_process_has_metrics_too(tool):
    m = metrics(tool)
    assert m["vma_processes"].value(readable="true") == 0 and "vma_socket_packets_total" in m


@pytest.mark.parametrize("args, words", [
    (("--json", "--prometheus"), "choose one of them"), (("--listen", "1", "--json"), "choose one of them"),
    (("--prometheus", "-z"), "need a call each"), (("--listen", "1", "-l", "debug"), "need a call each"),
])
def test_what_cannot_be_together_is_said(tool, args, words):
    r = tool(*args, rc=1)
    assert words in r.stderr and r.stderr.count("\n") == 1


@pytest.mark.parametrize("where", ["", "x", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:1x", ":9100", "::1:9100", "[::1]",
                                   "[127.0.0.1]:9100", "example.org:9100", "1" * 300, "[" + "1" * 300 + "]:1", "127.0.0.1:-1"])
def test_what_is_no_address_is_refused(tool, where):
    r = tool("--listen", where, rc=1)
    assert r.stderr.startswith("vmastat: --listen '") and "give an address and a port" in r.stderr and r.stderr.count("\n") == 1


@pytest.mark.parametrize("where", ["0.0.0.0:9100", "[::]:9100", "[::ffff:0.0.0.0]:9100"])
def test_nobody_listens_on_all_addresses_by_accident(tool, where):
    r = tool("--listen", where, rc=1)
    assert "name the one address" in r.stderr and r.stderr.count("\n") == 1


class Server:
    """vma_stats --listen on a port that the kernel chose."""

    def __init__(self, programs, directory, where="127.0.0.1:0"):
        self.process = popen(programs, directory, "--listen", where)
        line = self.process.stdout.readline()
        m = re.fullmatch(r"vmastat: the metrics are at http://(\[?[0-9a-f.:]+?\]?):(\d+)/metrics\n", line)
        assert m, (line, self.process.stderr.read() if self.process.poll() is not None else "")
        self.at = (m.group(1).strip("[]"), int(m.group(2)))

    def connect(self):
        return socket.create_connection(self.at, timeout=20 * PATIENCE)

    def ask(self, request):
        """The answer's status, its fields and its text."""
        with self.connect() as s:
            s.sendall(request)
            return answer_of(s)

    def get(self, path="/metrics"):
        return self.ask(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=20 * PATIENCE)
        assert (self.process.returncode, out, err) == (0, "", "")


def answer_of(s):
    data = b""
    while chunk := s.recv(65536):
        data += chunk
    head, text = data.split(b"\r\n\r\n", 1)
    first, *rest = head.decode().split("\r\n")
    version, status, reason = first.split(" ", 2)
    fields = dict(line.split(": ", 1) for line in rest)
    assert version == "HTTP/1.1" and reason and fields["Connection"] == "close"
    return int(status), fields, text.decode()


@pytest.fixture
def server(programs, directory):
    s = Server(programs, directory)
    yield s
    if s.process.poll() is None:
        s.end()
    s.process.stdout.close()
    s.process.stderr.close()


def test_the_server_gives_the_metrics_of_now(writer, server):
    status, fields, text = server.get()
    assert status == 200 and fields["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert int(fields["Content-Length"]) == len(text)
    before = exposition.parse(text)["vma_socket_packets_total"]
    writer.say("add")
    after = exposition.parse(server.get("/metrics?x=y")[2])["vma_socket_packets_total"]
    rx = {"fd": "14", "direction": "rx", "path": "offloaded"}
    assert after.value(**rx) == before.value(**rx) + 1000
    writer.end()
    assert not exposition.parse(server.get()[2])["vma_process_info"].samples


def test_head_has_the_fields_alone(writer, server):
    status, fields, text = server.ask(b"HEAD /metrics HTTP/1.0\r\n\r\n")
    assert status == 200 and int(fields["Content-Length"]) > 1000 and text == ""


def test_the_first_page_names_the_other(server):
    assert server.get("/")[0] == 200 and "/metrics" in server.get("/")[2]


@pytest.mark.parametrize("path", ["/metric", "/metrics/", "/../metrics", "//metrics", "/" + "m" * 4000, "/%6detrics"])
def test_other_pages_are_not_found(server, path):
    status, _, text = server.get(path)
    assert status == 404 and text == "404 Not Found\n"


@pytest.mark.parametrize("request_", [
    b"\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics\r\n\r\n", b"GET /metrics HTTP/2.0\r\nHost: x\r\n\r\n", b"GET /metrics HTTP/1.1\r\n\r\n",
    b"GET metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"GET http://x/metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET  /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /metrics HTTP/1.1 \r\nHost: x\r\n\r\n", b"GET /met\trics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", b"GET /metrics HTTP/1.1\r\nHost x\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", b"GET /metrics HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\0y\r\n\r\n", b"G\0T /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /m\0etrics HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\rGET\r\n\r\n", b"\xff" * 40 + b"\r\n\r\n", b"\n\n", b" \n\n", b"GET ? HTTP/1.1\r\nHost: x\r\n\r\n",
])
def test_what_is_no_request_is_answered_400(server, request_):
    status, _, text = server.ask(request_)
    assert status == 400 and text == "400 Bad Request\n"
    assert server.get()[0] == 200


def test_other_methods_are_told_which_there_are(server):
    status, fields, _ = server.ask(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
    assert status == 405 and fields["Allow"] == "GET, HEAD"


def test_a_head_without_an_end_is_refused(server):
    status, _, _ = server.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 8192)
    assert status == 431


def test_a_request_may_come_in_pieces(writer, server):
    with server.connect() as s:
        for byte in b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n":
            s.sendall(bytes([byte]))
        assert answer_of(s)[0] == 200


def test_half_requests_keep_nobody_from_an_answer(writer, server):
    """More of them than the server has places for clients."""
    with contextlib.ExitStack() as all_:
        waiting = [all_.enter_context(server.connect()) for _ in range(50)]
        for s in waiting:
            s.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert server.get()[0] == 200
        # Those that had no place any more are closed; the others get their answer when they are late.
        assert answer_of(waiting[-1])[0] == 408
    assert server.get()[0] == 200


def test_clients_that_do_not_read_keep_nobody_from_an_answer(programs, directory, server):
    """Their answers are longer than what the sockets' buffers take."""
    with contextlib.ExitStack() as all_:
        w = Writer(programs, directory, 1024)
        all_.callback(w.end)
        header, size = struct.unpack_from("<II", w.path.read_bytes(), 12)
        scribble(w.path, header, w.path.read_bytes()[header:header + size] * 1024)
        for _ in range(5):
            s = all_.enter_context(socket.socket())
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            s.connect(server.at)
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        status, _, text = server.get()
        assert status == 200 and text.count("\nvma_socket_info{") == 1024


def test_clients_that_go_leave_nothing(server):
    """Without a request, amid one, before the answer, and by a reset."""
    fds = f"/proc/{server.process.pid}/fd"
    before = len(os.listdir(fds))
    for text in (b"", b"GET /m", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
        for linger in (False, True):
            with server.connect() as s:
                s.sendall(text)
                if linger:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert server.get()[0] == 200
    wait_for(lambda: len(os.listdir(fds)) == before, 20, "the server's descriptors of clients are closed")


def test_a_server_without_descriptors_serves_again_when_it_has_some(programs, directory, server):
    import resource
    old = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    held = {int(n) for n in os.listdir(f"/proc/{server.process.pid}/fd")}
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (min(set(range(len(held) + 1)) - held), old[1]))
    with server.connect() as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not select.select([s], [], [], 0.3)[0]
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, old)
        assert answer_of(s)[0] == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_server_ends_by_a_signal(server, number):
    with server.connect() as s:
        s.sendall(b"GET /")
        server.end(number)


def test_a_port_that_is_taken_is_said(server, tool):
    r = tool("--listen", f"127.0.0.1:{server.at[1]}", rc=1)
    assert r.stderr == f"vmastat: --listen '127.0.0.1:{server.at[1]}': Address already in use\n"


@pytest.mark.parametrize("where, host", [("0", "127.0.0.1"), ("localhost:0", "127.0.0.1"), ("[::1]:0", "::1")])
def test_the_loopback_interface_is_what_is_listened_on(programs, directory, where, host):
    s = Server(programs, directory, where)
    assert s.at[0] == host and s.get("/")[0] == 200
    s.end()
    s.process.stdout.close()
    s.process.stderr.close()


def dashboard_queries():
    board = json.loads((ROOT / "docs/vma_stats.grafana.json").read_text())
    queries = [t["expr"] for p in board["panels"] for t in p["targets"]]
    return queries + [v["query"] for v in board["templating"]["list"] if v["type"] == "query"], board


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are(writer, tool):
    """docs/vma_stats.grafana.json. Prometheus itself adds the label instance."""
    families = metrics(tool)
    queries, board = dashboard_queries()
    assert len(queries) > 15
    for query in queries:
        names = re.findall(r"\bvma_\w+", query)
        assert names and set(names) <= set(families), (query, set(names) - set(families))
        # A counter has no meaning but by its rate, and nothing else has one.
        for name in names:
            assert name.endswith("_total") == bool(re.search(rf"rate\({name}\{{", query)), query
        asked = set(re.findall(r'(\w+)=~?"', query))
        for listed in re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", query):
            asked |= set(listed.split(", "))
        if m := re.fullmatch(r"label_values\(.*, (\w+)\)", query):
            asked.add(m.group(1))
        known = {"instance"}.union(*(families[n].labels() for n in names))
        assert asked <= known, (query, asked - known)
    for p in board["panels"]:
        for t in p["targets"]:
            shown = set(re.findall(r"\{\{(\w+)\}\}", t["legendFormat"]))
            known = set().union(*(families[n].labels() for n in re.findall(r"\bvma_\w+", t["expr"])))
            assert shown <= known, (p["title"], shown - known)
