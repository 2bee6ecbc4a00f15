# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that ask, with the library, a plain nginx: each makes many connections."""

import re

import pytest

from serving import OURS, document, no_kernel_connections

NGINX = """
daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log;
events {{ worker_connections 500; }}
http {{ access_log off; client_body_temp_path {dir}/t; proxy_temp_path {dir}/t; fastcgi_temp_path {dir}/t; uwsgi_temp_path {dir}/t;
scgi_temp_path {dir}/t; server {{ listen {ip}:8080; listen {ip}:8082 http2; root {dir}/www; autoindex on; }} }}
"""


@pytest.fixture
def site(net):
    data = document(net, 300_000)
    (net.tmp / "conf").write_text(NGINX.format(dir=net.tmp, ip=net.b.ip4))
    net.b.popen(["nginx", "-c", net.tmp / "conf"])
    net.b.wait_bound(8082, "tcp")
    return f"http://{net.b.ip4}:8080", data


def asks(net, *argv, **options):
    with no_kernel_connections(net.a, 1500):
        return net.a.run(argv, preload=OURS, env={"VMA_TRACELEVEL": "ERROR"}, timeout=60, **options).text


def test_curl_parallel(net, site):
    outs = [net.tmp / f"got-{n}" for n in range(30)]
    asks(net, "curl", "-sS", "--parallel", "--parallel-max", "10", *[word for o in outs for word in ("-o", o, f"{site[0]}/file")])
    assert all(o.read_bytes() == site[1] for o in outs)


def test_ab(net, site):
    text = asks(net, "ab", "-q", "-n", "300", "-c", "20", f"{site[0]}/file")
    assert "Complete requests:      300" in text and "Failed requests:        0" in text, text


def test_ab_with_keepalive(net, site):
    text = asks(net, "ab", "-q", "-k", "-n", "300", "-c", "20", f"{site[0]}/file")
    assert "Keep-Alive requests:    300" in text and "Failed requests:        0" in text, text


def test_siege(net, site):
    text = asks(net, "env", f"HOME={net.tmp}", "siege", "-q", "-b", "-c", "10", "-r", "20", "-j", f"{site[0]}/file")
    assert re.search(r'"successful_transactions":\s+200,', text) and re.search(r'"failed_transactions":\s+0,', text), text


def test_h2load(net, site):
    text = asks(net, "h2load", "-n", "300", "-c", "10", "-m", "10", f"http://{net.b.ip4}:8082/file")
    assert "300 succeeded, 0 failed, 0 errored, 0 timeout" in text, text


def test_wget(net, site):
    asks(net, "wget", "-q", "-O", net.tmp / "got", f"{site[0]}/file")
    assert (net.tmp / "got").read_bytes() == site[1]


def test_axel(net, site):
    asks(net, "axel", "-q", "-n", "4", "-o", net.tmp / "got", f"{site[0]}/file")
    assert (net.tmp / "got").read_bytes() == site[1]


def test_aria2(net, site):
    asks(net, "aria2c", "-q", "-x", "4", "-s", "4", "-k", "1M", "-d", net.tmp, "-o", "got", f"{site[0]}/file")
    assert (net.tmp / "got").read_bytes() == site[1]


def test_lftp(net, site):
    asks(net, "lftp", "-c", f"open {site[0]}; pget -n 3 file -o {net.tmp}/got")
    assert (net.tmp / "got").read_bytes() == site[1]
