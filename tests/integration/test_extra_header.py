# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""include/mellanox/vma_extra.h: its layout is the published one's to the byte, and C and C++ programs compile with it."""

import subprocess

import pytest

from netns import ROOT

LAYOUT = ROOT / "tests" / "integration" / "vma_extra.layout"
COMPILERS = {"c": ["gcc", "-x", "c", "-std=gnu11"], "c++": ["g++", "-x", "c++", "-std=gnu++11", "-Wno-invalid-offsetof"]}


def assertions():
    """A line for each line of the table."""
    for line in LAYOUT.read_text().splitlines():
        what, *words, number = line.split()
        if what == "type":
            of, wanted = line.removeprefix("type ").split(": ")
            member = of.rsplit(" ", 1)
            found = member[1] if member[0] == "-" else f"(({member[0]} *)0)->{member[1]}"
            yield f'CHECK(SAME({found}, {wanted}), "{line}");'
            continue
        # An empty struct is of one byte in C++.
        if what == "#" or not number.isdigit() or (what == "size" and number == "0"):
            continue
        if what == "offset":
            expression = f"offsetof({' '.join(words[:-1])}, {words[-1]})"
        else:
            expression = {"size": "sizeof(%s)", "value": "(long long)(%s)"}[what] % " ".join(words)
        yield f'CHECK({expression} == {number}, "{line}");'


def compiled(tmp_path, language, text):
    source = tmp_path / "program"
    source.write_text(text)
    return subprocess.run([*COMPILERS[language], "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include",
                           "-fsyntax-only", source], capture_output=True, text=True)


HEAD = """#include <mellanox/vma_extra.h>
#ifdef __cplusplus
#include <type_traits>
#define CHECK static_assert
#define SAME(found, ...) std::is_same<__typeof__(found), __typeof__(__VA_ARGS__)>::value
#else
#define CHECK _Static_assert
#define SAME(found, ...) __builtin_types_compatible_p(__typeof__(found), __typeof__(__VA_ARGS__))
#endif
"""
# As the manual of libvma 6.6.4 has it in chapter 7, and sockperf had it before that.
OLD = """#include <arpa/inet.h>
#include <mellanox/vma_extra.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *held[3];
static unsigned packets;

static vma_rcv_callback_retval_t hold(int fd, size_t sz_iov, struct iovec iov[], struct vma_info_t *vma_info, void *context)
{
	(void)fd, (void)sz_iov, (void)iov, (void)context;
	held[packets++] = vma_info->packet_id;
	return VMA_PACKET_HOLD;
}

static struct vma_datagram_t *received(struct vma_api_t *api, int fd, char *buf, size_t len)
{
	int flags = 0;

	if (api->recvfrom_zcopy(fd, buf, len, &flags, NULL, NULL) < 0 || !(flags & MSG_VMA_ZCOPY))
		exit(3);
	return (struct vma_datagram_t *)buf;
}

int main(int argc, char **argv)
{
	struct vma_api_t *api = vma_get_api();
	vma_rcv_callback_t callback = hold;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct pollfd p = {fd, POLLIN, 0};
	struct sockaddr_in at;
	vma_datagram_t *d;
	char buf[256], none;

	memset(&at, 0, sizeof(at));
	at.sin_family = AF_INET;
	at.sin_port = htons(7000);
	if (argc != 2 || !api || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1 || bind(fd, (struct sockaddr *)&at, sizeof(at)))
		return 2;
	recv(fd, &none, 1, MSG_DONTWAIT);
	puts("ready"), fflush(stdout);
	d = received(api, fd, buf, sizeof(buf));
	printf("%zu pieces: %.*s\\n", d->sz_iov, (int)d->iov[0].iov_len, (char *)d->iov[0].iov_base);
	printf("freed %d", api->free_datagrams(fd, &d->datagram_id, 1));
	printf(", again %d\\n", api->free_datagrams(fd, &d->datagram_id, 1));
	if (api->register_rcv_callback(fd, callback, NULL))
		return 4;
	puts("holding"), fflush(stdout);
	while (packets < 3)
		poll(&p, 1, 100);
	printf("freed %d", api->free_datagrams(fd, held, packets));
	for (unsigned i = 0; i < packets; i++)
		printf(", again %d", api->free_datagrams(fd, &held[i], 1));
	puts("");
	return api->register_rcv_callback(fd, NULL, NULL);
}
"""


@pytest.mark.parametrize("language", COMPILERS)
def test_the_layout_is_the_published_one(tmp_path, language):
    lines = list(assertions())
    print(f"{len(lines)} sizes, offsets, values and types")
    assert len(lines) > 205
    run = compiled(tmp_path, language, HEAD + "\n".join(lines) + "\nint main(void) { return !vma_get_api(); }\n")
    assert run.returncode == 0, run.stderr
    # The table can fail.
    for wrong in (lines[0].replace(" == ", " != "), lines[-1].replace(", int)", ", long)")):
        run = compiled(tmp_path, language, HEAD + wrong + "\n")
        assert run.returncode != 0 and "static assertion" in run.stderr, wrong


@pytest.mark.parametrize("language", COMPILERS)
def test_it_brings_no_names_that_programs_use(tmp_path, language):
    """sockperf has members of its own that sys/uio.h's names are macros for; the published header does not include that."""
    run = compiled(tmp_path, language, "#include <mellanox/vma_extra.h>\nint readv, clock_gettime, pthread_create;\n")
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("language", COMPILERS)
def test_a_program_with_the_names_of_6_6_compiles_and_runs(net, tmp_path, language):
    """Three packets are freed by one call: each id counts, though the array is not the one that free_packets() takes."""
    (tmp_path / "program.c").write_text(OLD)
    subprocess.run([*COMPILERS[language], "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "-o", tmp_path / "program",
                    tmp_path / "program.c"], check=True)
    p = net.a.popen([tmp_path / "program", net.a.ip4], preload=True)
    peer = net.b.socket()
    p.wait_text("^ready")
    peer.sendto(b"first", (net.a.ip4, 7000))
    p.wait_text("^holding")
    for i in range(3):
        peer.sendto(b"held %d" % i, (net.a.ip4, 7000))
    assert p.wait() == 0, p.text
    print(p.text)
    assert "1 pieces: first\nfreed 0, again -1\n" in p.text
    assert "freed 0, again -1, again -1, again -1" in p.text


@pytest.mark.no_sanitize
def test_make_install_installs_it(tmp_path):
    """From build/ as it is: another BUILD, or other flags, would build the library anew under the tests that run beside."""
    subprocess.run(["make", "-s", "-C", ROOT, "-o", "all", f"DESTDIR={tmp_path}", "PREFIX=/usr", "install"],
                   check=True, capture_output=True)
    assert (tmp_path / "usr/include/mellanox/vma_extra.h").read_text() == (ROOT / "include/mellanox/vma_extra.h").read_text()
    text = (tmp_path / "usr/lib/pkgconfig/libvma.pc").read_text()
    print(text)
    flags = subprocess.run(["pkg-config", "--libs", "--cflags", "libvma"], capture_output=True, text=True,
                           env={"PKG_CONFIG_PATH": f"{tmp_path}/usr/lib/pkgconfig", "PATH": "/usr/bin:/bin"}, check=True).stdout
    assert "-lvma" in flags
