# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Each command that README and the documents show is run: here, in the namespaces of a Net, or by a test that is named here with
the reason why not here. In a `sh` block and in the EXAMPLES of a manual page each line is a command, with what it is for behind
it; in a `console` block a command stands behind "# ", and below it what it prints.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request

import pytest

import terminal
from differential import App
from netns import ROOT, wait_for
from screen import Terminal

pytestmark = pytest.mark.no_sanitize  # programs of every kind, and nothing of theirs is new here

FENCE = re.compile(r"^(?:<!-- (\w+)[^\n]*-->\n)?```([^\n]*)\n(.*?)^```$", re.M | re.S)
# What a block may be. The last three hold no commands.
KINDS = ("sh", "console", "text", "promql")
# Of each manual page the section whose .nf blocks are commands; None: it shows none (other tests below try what it shows).
PAGES = {"vma_stats.8": "EXAMPLES", "vmad.8": None, "libvma.7.in": "SETCAP PROGRAMS", "libvma.conf.5": None, "vma_extra.3": None}


def markdown_blocks():
    """(document, marker, kind, text)"""
    for document in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        for marker, kind, text in FENCE.findall(document.read_text()):
            yield document.name, marker, kind, text


def page_blocks(page, section):
    """The .nf blocks of a section, as a reader sees them."""
    text = (ROOT / "docs" / page).read_text()
    body = re.search(rf"^\.SH {section}$(.*?)(?=^\.SH |\Z)", text, re.M | re.S)[1]
    for block in re.findall(r"^\.nf$\n(.*?)^\.fi$", body, re.M | re.S):
        yield re.sub(r"\\(.)", lambda m: {"&": "", "e": "\\"}.get(m[1], m[1]), block)


def bare(line):
    """The command of a line, without what stands behind it to explain it."""
    return re.split(r"\s+# |\s{3,}", line.strip())[0]


def commands():
    """{command: (documents that show it, what they say that it prints)}, without README's session (test_readme.py)."""
    found = {}
    for document, marker, kind, text in markdown_blocks():
        if marker == "session":
            continue
        for line in text.splitlines():
            if kind == "sh" and line.strip():
                found.setdefault(bare(line), ([], []))[0].append(document)
            elif kind == "console" and line.startswith(terminal.PROMPT):
                last = found.setdefault(line[len(terminal.PROMPT):], ([], []))
                last[0].append(document)
            elif kind == "console":
                last[1].append(line)
    for page, section in PAGES.items():
        for block in page_blocks(page, section) if section else ():
            for line in filter(str.strip, block.splitlines()):
                found.setdefault(bare(line), ([], []))[0].append(page)
    return found


COMMANDS = commands()

# What runs here: what it prints when there is a program with UDP at port 7000 and TCP at port 80; "" for what says nothing.
RUN = {
    "vma_stats": "",
    "vma_stats -p 4711 -d 2": r"with pid: 4711\n(.*\n)*? +14 +Rx: +\d+",
    "vma_stats -v 5": r"^udp +Yes .* 10\.77\.0\.1:7000 .*\ntcp +Yes .* 10\.77\.0\.1:80 .* LISTEN",
    "vma_stats -z -s 14; sleep 10; vma_stats -c 1 -s 14": r"^ +14 +Rx: +[1-9]",
    "vma_stats --listen 127.0.0.1:9100": "",
    "vma_stats --json -c 1 | jq '.rings[0].rx_packets'": r"^[1-9]\d*$",
    "vma_stats capture -p 4711 -w file.pcapng tcp port 80": r"^vmastat: [1-9]\d* packets captured, \d+ received, 0 lost",
    "vma_stats capture": r"UDP, length 5$",
    "vma_stats capture -p 4711 -w file.pcapng": r"^vmastat: [1-9]\d* packets captured, \d+ received, 0 lost",
    "vma_stats capture -w - tcp port 80 | tshark -r -": r"10\.77\.0\.2 → 10\.77\.0\.1 +TCP .* 80 ",
    "LD_PRELOAD=libvma.so app": r"VMA INFO: VMA_VERSION: ",
    "make -C kmod": r"\bvma\.ko$",
}
# Of those that run until Ctrl-C: what is seen before.
UNTIL = {
    "vma_stats -p 4711 -d 2": RUN["vma_stats -p 4711 -d 2"],
    "vma_stats --listen 127.0.0.1:9100": "",
    "vma_stats capture": RUN["vma_stats capture"],
    "vma_stats capture -p 4711 -w file.pcapng tcp port 80": "",
    "vma_stats capture -p 4711 -w file.pcapng": "",
}
# What cannot: {command: (file, test, reason)}.
ELSEWHERE = {
    "make demo": ("integration/test_demo.py", "test_the_demo_shows_both_sides_and_leaves_nothing", "it installs packages first"),
    "make test": ("integration/test_runner.py", "test_the_last_line_counts_all_and_the_exit_status_says_so", "it runs this test"),
    "scripts/try-card --peer 10.0.0.2": ("integration/test_try_card.py", "test_a_report_of_a_card", "for a card; there for a veth"),
    "sudo scripts/try-card eth1 10.0.0.2": ("integration/test_try_card.py", "test_a_report_of_a_card", "for a card, for two minutes; there for a veth"),
    "apt-get install ./build/deb/vma-dkms_10.0.0_all.deb": ("integration/test_deb.py", "test_all_four_are_installed_and_removed", "into a Debian"),
    "make install-kmod && dkms install vma/10.0.0": (
        "integration/test_deb.py", "test_all_four_are_installed_and_removed", "debian/rules calls the first, the package the second"),
    **dict.fromkeys((
        "cp libvma.so /usr/lib/libvma.so", "chmod u+s /usr/lib/libvma.so",
        "setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon,cap_ipc_lock=ep /usr/bin/program", "LD_PRELOAD=libvma.so program"),
        ("integration/test_log_levels.py", "test_the_recipe_of_the_manual_page_for_a_program_with_setcap", "in a copy of /usr")),
    **dict.fromkeys((
        "groupadd --system vma", "insmod kmod/vma.ko", "chgrp vma /dev/vma", "insmod vma.ko", "cat /sys/kernel/vma/stats",
        "make -C kmod install && modprobe vma"),
        ("vm/test_docs_vm.py", "test_the_module_is_installed_as_its_page_says", "it loads the module")),
}


def test_each_block_says_what_it_is():
    """Else a command could stand in one that nobody looks at."""
    wrong = [f"{document}: ```{kind} {text.splitlines()[0]}" for document, _, kind, text in markdown_blocks() if kind not in KINDS]
    assert not wrong, "\n".join(wrong)


def test_each_manual_page_is_known():
    assert {p.name for p in (ROOT / "docs").iterdir() if re.search(r"\.\d(\.in)?$", p.name)} == PAGES.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_run_by_a_test(command):
    assert (command in RUN) + (command in ELSEWHERE) == 1, f"{COMMANDS[command][0]}: add it to RUN, or to ELSEWHERE with a reason"


def test_what_is_run_stands_in_a_document():
    assert not {*RUN, *ELSEWHERE} - COMMANDS.keys()


@pytest.mark.parametrize("file, test, reason", sorted(set(ELSEWHERE.values())))
def test_each_test_that_is_named_is_there(file, test, reason):
    assert re.search(rf"^def {test}\(", (ROOT / "tests" / file).read_text(), re.M), f"{test} is not in {file}"
    assert reason


def page_names(section, page="vma_stats.8"):
    """The words behind each .TP of a section of the manual page."""
    text = re.search(rf"^\.SH {section}$(.*?)(?=^\.SH |\Z)", (ROOT / "docs" / page).read_text(), re.M | re.S)[1]
    return re.findall(r"^\.TP\n\.\w+ (.*)$", text.replace("\\-", "-"), re.M)


@pytest.mark.parametrize("section, usage", [("OPTIONS", ()), ("CAPTURE", ("capture",))])
def test_the_manual_page_has_each_option_of_the_help_and_no_other(library, section, usage):
    shown = subprocess.run([library.vma_stats, *usage, "--help"], capture_output=True, text=True, check=True).stdout
    told = {o for line in shown.split("Options:")[1].splitlines() for o in re.findall(r"(?<![\w-])--?[\w-]+", line.split("\t")[0])}
    page = {o for line in page_names(section) for o in re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", line)}
    print(sorted(page))
    # Each of capture's has a --help, too.
    assert page == told - ({"-h", "--help"} if usage else set()) and len(page) > 10


@pytest.mark.parametrize("section, list_", [("WHY THE KERNEL", "VMA_WHY_LIST"), ("WAITS", "VMA_SLEPT_LIST")])
def test_the_manual_page_has_each_reason_and_no_other(section, list_):
    text = (ROOT / "include/vma/stats.h").read_text()
    names = re.findall(r'X\(\w+, "([\w-]+)"', re.search(rf"#define {list_}\(X\).*?[^\\]$", text, re.S | re.M)[0])
    print(names)
    assert names and page_names(section) == names


class Machine:
    """A host with a program that has sockets at the file descriptors 14 and 15, and a shell in which what is built is installed."""

    def __init__(self, net):
        self.net = net
        self.work = net.tmp / "work"
        self.work.mkdir()
        (net.tmp / "tree").mkdir()
        shutil.copytree(ROOT / "kmod", self.work / "kmod")
        shutil.copytree(ROOT / "include", self.work / "include")
        app = self.work / "app"
        app.write_text("#!/usr/bin/python3\nimport socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n")
        app.chmod(0o755)

    def start(self, app):
        self.app = app
        app.do("import os\nwhile os.open('/dev/null', os.O_RDONLY) < 13: pass\n"
               "s = udp(7000); l = socket.socket(); l.bind((ME, 80)); l.listen()")
        assert app.do("s.fileno()") == 14
        self.peer = app.peer_socket()
        wait_for(self.shown, 30, "the program's figures")

    def shown(self):
        """What it exchanges is counted in its statistics: the first packets may be the kernel's."""
        self.exchange()
        now = json.loads(self.net.a.stats(self.app, "--json", "-c", "1").splitlines()[-1])
        return now["rings"] and now["rings"][0]["rx_packets"] and [s for s in now["sockets"] if s["state"] == "LISTEN"]

    def exchange(self):
        """A datagram and an answer, and a connection."""
        self.peer.sendto(b"12345", self.app.at(7000))
        self.app.do("x, a = s.recvfrom(10); s.sendto(x, a)")
        self.peer.recv(10)
        self.app.start("c = l.accept()[0]; c.close()")
        with self.net.b.entered():
            subprocess.run(["bash", "-c", f": </dev/tcp/{self.net.a.ip4}/80"], check=True)
        self.app.answer()

    def of_here(self, text):
        """What a document says, for this machine: the process, the interface; and nobody sleeps for longer than an exchange."""
        for theirs, ours in (("4711", str(self.app.pid)), ("eth0", self.net.a.dev),
                             ("sleep 10", "until [ -e exchanged ]; do sleep 0.01; done")):
            text = text.replace(theirs, ours)
        return text

    def argv(self, command):
        """In a mount namespace whose /tmp has this program's statistics only, and the build, wherever the tree is."""
        tmp = self.net.tmp
        script = (f"mount --bind {self.net.library.build} {tmp}/tree && mount --rbind {tmp} /tmp && cd /tmp/work && "
                  'PATH=/tmp/tree:/tmp/work:$PATH LD_LIBRARY_PATH=/tmp/tree exec bash -o pipefail -c "$1"')
        return ["unshare", "--mount", "bash", "-c", script, "bash", self.of_here(command)]


@pytest.fixture
def machine(net):
    net.neighbours()
    machine = Machine(net)
    with App(net.a, True) as app:
        machine.start(app)
        yield machine


def metrics(machine):
    with contextlib.suppress(OSError), machine.net.a.entered():
        return urllib.request.urlopen("http://127.0.0.1:9100/metrics", timeout=20).read().decode()


def capturing(machine, process):
    """It has heard of the program: what comes now is in it."""
    process.wait_text(rf"^vmastat: capturing process {machine.app.pid}")
    machine.exchange()


# These write to a terminal, and end by its keys.
ON_A_TERMINAL = ["vma_stats", "vma_stats capture -w - tcp port 80 | tshark -r -"]


@pytest.mark.parametrize("command", [pytest.param(c, marks=[pytest.mark.whole] * (c == "make -C kmod"))
                                     for c in COMMANDS if c in RUN and c not in ON_A_TERMINAL])
def test_a_command_does_what_its_document_says(machine, command):
    process = machine.net.a.popen(machine.argv(command))
    if "capture" in command:
        capturing(machine, process)
    elif "--listen" in command:
        text = wait_for(lambda: metrics(machine), 20, "the metrics")
        assert re.search(rf'^vma_\w+\{{.*pid="{machine.app.pid}".*\}} ', text, re.M), text
    elif "; sleep" in command:
        process.wait_text("Zero counters")
        machine.exchange()
        (machine.work / "exchanged").touch()
    if command in UNTIL:
        process.wait_text(machine.of_here(UNTIL[command]))
        process_ends(process)
    assert process.wait(120) == 0, process.text
    print(process.text)
    assert re.search(machine.of_here(RUN[command]), process.text, re.M), process.text
    shown = COMMANDS[command][1]
    if shown:
        printed = [line for line in process.text.splitlines() if not line.startswith("vmastat: ")]
        assert terminal.fits([machine.of_here(line) for line in shown] + ["..."], printed), process.text


def process_ends(process):
    """By Ctrl-C, as a terminal sends it."""
    os.killpg(process.pid, signal.SIGINT)
    process.wait()


def test_without_options_a_terminal_gets_the_live_view(machine):
    t = Terminal(machine.net.a.argv(machine.argv("vma_stats")))
    try:
        t.wait(str(machine.app.pid))
        t.type("q")
        assert t.ended() == 0 and t.restored()
    finally:
        t.close()


def test_captured_packets_go_through_a_pipe_to_tshark(machine):
    t = Terminal(machine.net.a.argv(machine.argv(ON_A_TERMINAL[1])), columns=200)

    def printed(pattern):
        t.read(0.1)
        return re.search(pattern, t.raw.decode(errors="replace"))
    try:
        wait_for(lambda: printed(f"capturing process {machine.app.pid}"), 30, "the capture")
        machine.exchange()
        wait_for(lambda: printed(RUN[ON_A_TERMINAL[1]]), 30, f"the packets; it printed {t.raw}")
        t.type("\x03")
        t.ended()
    finally:
        t.close()


def test_a_file_of_captured_packets_has_what_the_filter_lets_through(machine):
    process = machine.net.a.popen(machine.argv("vma_stats capture -p 4711 -w file.pcapng tcp port 80"))
    capturing(machine, process)
    process_ends(process)
    out = subprocess.run(["tshark", "-n", "-r", machine.work / "file.pcapng", "-T", "fields", "-e", "tcp.port", "-e", "udp.port"],
                         capture_output=True, text=True, check=True).stdout
    assert out and all("80" in line.strip().split(",") for line in out.splitlines()), out


def test_the_rules_that_libvma_conf_shows_are_taken(net):
    [rules] = page_blocks("libvma.conf.5", "EXAMPLE")
    (net.tmp / "libvma.conf").write_text(rules)
    log = net.a.run(["/usr/bin/python3", "-c", "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"], preload=True,
                    env={"VMA_CONFIG_FILE": net.tmp / "libvma.conf", "VMA_APPLICATION_ID": "B1", "VMA_TRACELEVEL": "details"}).text
    assert "libvma.conf" in log and "WARNING" not in log and "ERROR" not in log, log


# What stands around the code in the manual page, in a program of a reader's.
AROUND = """
#include <mellanox/vma_extra.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>
void use();
"""


@pytest.mark.parametrize("number", range(3))
def test_the_code_that_vma_extra_shows_compiles(tmp_path, number):
    blocks = list(page_blocks("vma_extra.3", "EXAMPLES"))
    assert len(blocks) == 3
    before, dots, code = blocks[number].rpartition("...\n")
    source = f"{AROUND}{before}void example(int fd, struct vma_api_t *api) {{ size_t total = 0; (void)api; (void)fd; (void)total;\n{code}}}\n"
    if dots:
        source = source.replace("struct vma_api_t *api) {", "struct vma_api_t *unused) { (void)unused;").replace("(void)api; ", "")
    (tmp_path / "example.c").write_text(source)
    subprocess.run(["gcc", "-c", "-Wall", "-Werror", f"-I{ROOT}/include", "-o", tmp_path / "example.o", tmp_path / "example.c"], check=True)
