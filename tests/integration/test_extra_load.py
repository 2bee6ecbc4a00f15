# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The library without LD_PRELOAD: loaded by dlopen() when the program runs, or linked with -lvma."""

import re
import subprocess

import pytest

from netns import ROOT, wait_for

LINKED = """
#include <mellanox/vma_extra.h>
#include <stdio.h>
int main(void)
{
	struct vma_api_t *api = vma_get_api();
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	return !api || fd < 0 || api->get_socket_rings_num(fd) != 0;
}
"""


def test_little_thread_storage_is_taken(library):
    """What dlopen() gives out of is a few hundred bytes for all libraries together."""
    headers = subprocess.run(["readelf", "-lW", library.path], capture_output=True, text=True, check=True).stdout
    size = int(re.search(r"\bTLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)", headers)[1], 16)
    print(f"{size} bytes")
    assert size <= 256


@pytest.mark.no_sanitize  # the sanitizers' runtimes have to come first
def test_a_program_loads_it_when_it_likes(net, library):
    program = library.helpers / "dlopened"
    server = net.a.popen([program, library.path, "server", net.a.ip4, "7000"])
    wait_for(lambda: "ready" in server.text)
    client = net.b.run([program, library.path, "client", net.a.ip4, "7000"])
    assert "sent" in client.text
    assert server.popen.wait(20) == 0, server.text
    print(server.text)
    assert "UDP: 8 bytes of 1 ring" in server.text and "TCP: 6 bytes of 1 ring" in server.text


@pytest.mark.no_sanitize  # the sanitizers' runtimes have to come first
def test_a_program_is_linked_with_it(net, library, tmp_path):
    (tmp_path / "program.c").write_text(LINKED)
    subprocess.run(["gcc", "-Wall", "-Werror", f"-I{ROOT}/include", "-o", tmp_path / "program", tmp_path / "program.c",
                    f"-L{library.build}", "-lvma", f"-Wl,-rpath,{library.build}"], check=True)
    net.a.run([tmp_path / "program"])
