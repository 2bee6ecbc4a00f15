# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A Debian system that has the library in /etc/ld.so.preload starts, serves and ends as without it: systemd is the first process of
namespaces of its own (boot.sh), with services that their packages brought, some of which may make few system calls only.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from netns import KERNEL, PYTHON, ROOT, children, flow_table, ip, proc, wait_for
from test_system import SSH

SERVICES = "cron nginx ssh redis-server memcached haproxy systemd-networkd chrony systemd-resolved systemd-timesyncd"
# What a service may do that systemd keeps small; the default answer to any other call is the end of the process.
HARD = """
DynamicUser=yes ProtectSystem=strict PrivateTmp=yes NoNewPrivileges=yes SystemCallFilter=@system-service RestrictNamespaces=yes
MemoryDenyWriteExecute=yes LockPersonality=yes ProtectKernelTunables=yes PrivateDevices=yes
""".split()
TALK = "import socket; a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(('127.0.0.1', 0)); a.sendto(b'x', a.getsockname()); " \
    "print(a.recv(9)); l = socket.create_server(('', 0)); s = socket.create_connection(('127.0.0.1', l.getsockname()[1])); " \
    "l.accept()[0].send(b'y'); print(s.recv(9))"

ASK_TIME = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20); s.connect(('{own}', 123)); " \
    "s.send(bytes([0x23]) + bytes(47)); print(len(s.recv(99)))"


def talking(*properties):
    """A unit with them that has sockets of both kinds."""
    words = " ".join(f"-p '{p}'" for p in properties)
    return f'systemd-run -q --wait --pipe {words} /usr/bin/python3 -c "{TALK}"; echo $?'


# What is asked of the system, in it, or from the peer's namespace.
QUESTIONS = {
    "it is up": "for i in {1..600}; do [ \"$(systemctl is-system-running 2>/dev/null)\" = running ] && break; sleep 0.05; done; systemctl is-system-running",
    "ports": "for i in {1..600}; do [ $(ss -Hltn '( sport = 22 or sport = 80 or sport = 6379 or sport = 8081 or sport = 11211 )' | wc -l) -ge 7 ] && "
    "break; sleep 0.05; done; ss -Hltnu | awk '{print $1, $2, $5}' | sort",
    "nginx": "{peer} curl -sS http://{own}/index.txt | sha256sum",
    "nginx, its configuration read anew": "systemctl reload nginx && systemctl show -P Result nginx && {peer} curl -sS http://{own}/index.txt | sha256sum",
    "nginx, started anew": "systemctl restart nginx && systemctl show -P Result nginx && {peer} curl -sS http://{own}/index.txt | sha256sum",
    "redis": "redis-cli set k v; redis-cli get k",
    "memcached": "printf 'set k 0 0 1\\r\\nv\\r\\nget k\\r\\nquit\\r\\n' | socat - TCP:127.0.0.1:11211",
    "haproxy": "{peer} curl -sS http://{own}:8081/index.txt | sha256sum",
    "ssh in": "{peer} ssh {ssh} root@{own} 'id -un; cat; exit 5' </etc/hostname; echo $?",
    "a session of its own": "{peer} ssh {ssh} root@{own} 'loginctl show-user root -P State; cat /proc/self/cgroup' | sed 's/session-.*/session/'",
    "cron": "for i in {1..400}; do [ -e /root/cron ] && break; sleep 0.05; done; cat /root/cron",
    "a unit": "systemd-run -q --wait --pipe id -un",
    "a unit that talks": talking(),
    "a hardened unit": talking(*HARD),
    "one with IPv4 alone": talking(*HARD, "RestrictAddressFamilies=AF_INET"),
    "one that may ask for routes": talking(*HARD, "RestrictAddressFamilies=AF_INET AF_NETLINK"),
    "one that may send frames": talking("RestrictAddressFamilies=AF_INET AF_NETLINK AF_PACKET"),
    "one that may have no port below 1024 but by right": talking(*HARD, "AmbientCapabilities=CAP_NET_BIND_SERVICE"),
    "one that has the capabilities and no system call": talking("SystemCallFilter=@system-service"),
    "one without bpf()": talking("SystemCallFilter=~bpf"),
    "one without bpf(), told so": talking("SystemCallFilter=~bpf", "SystemCallErrorNumber=EPERM"),
    "one that sees nobody": talking("ProtectProc=invisible", "ProcSubset=pid", "TemporaryFileSystem=/dev/shm:ro", "ProtectSystem=strict"),
    "one with few files": talking("LimitNOFILE=16"),
    "one with few processes": talking("TasksMax=3"),
    "a socket's unit": "systemctl start upper.socket; echo line | socat -t 9 - TCP:127.0.0.1:8082",
    "a timer": "systemd-run -q --on-active=0.1 --timer-property=AccuracySec=1ms sh -c 'echo due >/root/timer'; "
    "for i in {1..400}; do [ -e /root/timer ] && break; sleep 0.05; done; cat /root/timer",
    "a unit that is killed": "systemd-run -q --unit gone -p Restart=no sleep 1000; "
    # The log names what it kills: before its exec() the process has another name.
    "for i in {1..400}; do [ $(< /proc/$(systemctl show -P MainPID gone)/comm) = sleep ] && break; sleep 0.05; done; systemctl kill -s KILL gone; "
    "for i in {1..400}; do systemctl is-active -q gone || break; sleep 0.05; done; systemctl show -P Result gone",
    # It gives itself a seccomp filter.
    "chrony": f'{{peer}} /usr/bin/python3 -c "{ASK_TIME}"; chronyc -n serverstats | grep -c NTP; systemctl show -P ActiveState chrony',
    # Three that systemd lets make few system calls.
    "names": "resolvectl query -4 --legend=no one.test; resolvectl query --legend=no many.test | sort | sha256sum; resolvectl query absent.test",
    "names by the stub": "getent ahostsv4 one.test; getent ahostsv4 many.test | wc -l; getent hosts absent.test; echo $?",
    "time": "for i in {1..400}; do timedatectl show-timesync | grep -q NTPMessage && break; sleep 0.05; done; "
    "timedatectl show-timesync | grep -o 'ServerAddress=.*\\|Mode=[0-9]*\\|Stratum=[0-9]*'",
    "a journal from elsewhere": "logger -t far 'a line from far away'; journalctl -q --sync; "
    "{peer} timeout 50 /lib/systemd/systemd-journal-upload -u http://{own}:19532 --follow=no; echo $?; "
    "for i in {1..400}; do journalctl -q -D /var/log/journal/remote -t far -o cat 2>/dev/null | grep . && break; sleep 0.05; done",
    "networkd": "networkctl --no-legend --no-pager list lo",
    "logged": "logger -t here 'a line'; journalctl -q --sync; journalctl -q -t here -o cat",
    "units": "systemctl list-units --plain --no-legend --no-pager --type=service,socket,timer,target | awk '{print $1, $2, $3, $4}' | "
    "grep -v '^user\\|^run-' | sort",
    "nobody has more than it had": "for s in nginx redis-server cron ssh; do systemctl show -P ExecMainStatus $s; done",
}
BOOT = ROOT / "tests/integration/boot.sh"
HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
listen l
    bind :8081
    server s 127.0.0.1:80
"""
UPPER = {
    "upper.socket": "[Socket]\nListenStream=127.0.0.1:8082\nAccept=yes\n",
    "upper@.service": "[Service]\nStandardInput=socket\nExecStart=/usr/bin/tr a-z A-Z\n",
}
# Of systemd's own services. The clock is this machine's, too: who sets it may not.
SETTINGS = {
    "resolved.conf.d/upstream.conf": "[Resolve]\nDNS={upstream}\nFallbackDNS=\n",
    "timesyncd.conf.d/upstream.conf": "[Time]\nNTP={upstream}\n",
    "system/systemd-timesyncd.service.d/clock.conf": "[Unit]\nConditionCapability=\nConditionVirtualization=\n"
    "[Service]\nAmbientCapabilities=\nCapabilityBoundingSet=CAP_CHOWN\n",
    "system/systemd-journal-remote.service.d/plain.conf": "[Service]\nExecStart=\n"
    "ExecStart=/lib/systemd/systemd-journal-remote --listen-http=-3 --output=/var/log/journal/remote/\n",
    "system/multi-user.target.d/remote.conf": "[Unit]\nWants=systemd-journal-remote.socket\n",
}
# What differs from boot to boot.
VARIES = [(r"\b\d[\d.]*(?=(min|ms|us|s|M|K|B)\b)", "N"), (r"\d+", "N"), (r"0x[0-9a-fA-F]+", "N"), (r"[0-9a-f]{8,}", "ID"),
          (r"run-\w+", "run"), (r"N(\.N)+", "N"), (r" (consumed|Consumed).*", "")]
pytestmark = [pytest.mark.no_sanitize, pytest.mark.skipif(not os.path.exists("/lib/systemd/systemd"), reason="not installed: systemd")]


class System:
    """One that is booted."""

    def __init__(self, host, peer, library):
        self.host = host
        self.work = host.net.tmp / "boot"
        self._files(pathlib.Path(f"{self.work}.files"), peer.ip4 if peer is not host else "127.0.0.1")
        self.work.mkdir(exist_ok=True)
        # The namespace of the peer is known by name outside only: ask() opens it.
        self.words = {"{peer}": "nsenter --net=/proc/self/fd/9", "{own}": host.ip4 if peer is not host else "127.0.0.1",
                      "{ssh}": SSH.format(keys="/root/.ssh")}
        self.peer = peer
        self.env = {"SERVICES": SERVICES, "CONTROL_GROUP": f"{host.name}-boot"}
        self.process = host.popen(["unshare", "-m", BOOT, self.work, *library], env=self.env)
        self.init = wait_for(self._init, 20, f"systemd as the first process: {self.process}")

    @staticmethod
    def _files(files, upstream):
        """What the new system has besides."""
        if files.exists():
            return
        for directory in ("var/www/html", "etc/haproxy", "root/.ssh", "etc/cron.d", "etc/systemd/system"):
            (files / directory).mkdir(parents=True)
        (files / "var/www/html/index.txt").write_text("".join(f"{n}\n" for n in range(200000)))
        (files / "etc/haproxy/haproxy.cfg").write_text(HAPROXY)
        for directory in ("default", "chrony"):
            (files / "etc" / directory).mkdir()
        (files / "etc/resolv.conf").write_text("nameserver 127.0.0.53\n")
        for name, text in SETTINGS.items():
            (files / "etc/systemd" / name).parent.mkdir(parents=True, exist_ok=True)
            (files / "etc/systemd" / name).write_text(text.replace("{upstream}", upstream))
        (files / "etc/chrony/chrony.conf").write_text("local stratum 3\nallow all\n")
        # Debian's, but that it leaves the clock alone.
        (files / "etc/default/chrony").write_text('DAEMON_OPTS="-F 1 -x"\n')
        (files / "etc/cron.d/once").write_text("@reboot root echo \"as $(id -un)\" >/root/cron.new; mv /root/cron.new /root/cron\n")
        for name, text in UPPER.items():
            (files / "etc/systemd/system" / name).write_text(text)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", files / "root/.ssh/id"], check=True)
        shutil.copy(files / "root/.ssh/id.pub", files / "root/.ssh/authorized_keys")
        for directory in ("root", "root/.ssh"):
            (files / directory).chmod(0o700)

    def _init(self):
        for child in children(self.process.pid):
            if proc(child, "comm") == "systemd\n":
                return child
        assert self.process.alive(), self.process.text
        return None

    def ask(self, command, timeout=60):
        for word, text in self.words.items():
            command = command.replace(word, text)
        enter = f'exec 9</run/netns/{self.peer.name}; exec nsenter -t "$0" -m -p -u -i -C -n timeout -k 1 50 bash -c "$1"'
        run = self.host.run(["bash", "-c", enter, self.init, command], timeout=timeout, check=False,
                            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C"})
        return re.sub(r"after \d+ ms", "after a while", f"{run.wait()}: {run.text}")  # curl's errors

    def journal(self):
        """What was logged, without what differs from boot to boot: lines by who said them."""
        self.ask("journalctl -q --sync")
        lines = set()
        for line in self.ask("journalctl -q -b --no-pager -o short").splitlines():
            found = re.match(r"\w+ +\d+ [\d:]+ \S+ ([^:\[]+)(?:\[\d+\])?: (.*)", line)
            # What systemd says of each unit, and (sd-pam) of a session, depends on when, and is lost until journald is there; but not
            # what went wrong.
            by_chance = found and re.match(r"\(?systemd|\(sd-pam|dbus-daemon", found[1])
            if found and (not by_chance or re.search("(?i)fail|error|kill|time.?out|refus|cannot|denied", found[2])):
                lines.add(f"{found[1]}: {normal(found[2])}")
        return lines

    def end(self):
        """systemctl poweroff; how the first process has ended."""
        self.ask("systemctl poweroff")
        return self.process.wait(60)

    def clear(self):
        """However it has ended."""
        self.process.stop(signal.SIGKILL)
        self.host.run(["unshare", "-m", BOOT, self.work, "--end"], env=self.env)


def normal(text):
    for pattern, instead in VARIES:
        text = re.sub(pattern, instead, text)
    return text


def whole(host, peer, library, between=lambda system: None):
    """The life of a system: the answers to all questions, what was logged, how it ended."""
    system = System(host, peer, library)
    try:
        # systemd-timesyncd asks nobody where there is no interface.
        answers = {name: system.ask(question) for name, question in QUESTIONS.items() if name != "time" or peer is not host}
        between(system)
        journal = system.journal()
        return answers, journal, system.end()
    finally:
        system.clear()


def small_service_is_offloaded(system, net):
    """As docs/limits.md says."""
    system.ask("systemd-run -q --unit small -E VMA_TRACELEVEL=WARNING -p 'SystemCallFilter=@system-service bpf mount pidfd_getfd' -p "
               "'RestrictAddressFamilies=AF_INET AF_NETLINK AF_PACKET AF_XDP' /usr/bin/python3 -c 'import socket; "
               "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((\"\", 7000))\nwhile True: s.recv(9)'")

    def rules():
        with net.b.socket() as peer:
            peer.sendto(b"x", (net.a.ip4, 7000))
        pids = [pid for pid in ip("netns", "pids", net.a.name).split() if "7000" in proc(pid, "cmdline")]
        return [pid for pid in pids if flow_table(pid)]

    wait_for(rules, what=lambda: f"a rule of the small service: {system.ask('journalctl -q -u small --no-pager -o cat')}")
    assert system.ask("systemctl stop small; systemctl show -P Result small") == "0: success\n"


@pytest.mark.parametrize("interface", [pytest.param("none", marks=pytest.mark.whole), "offloaded"])
def test_a_system_boots_serves_and_ends_as_without_the_library(net, interface):
    peer = net.b
    if interface == "none":
        net.a.run(["ip", "link", "del", net.a.dev])
        peer = net.a
    words = ["127.0.0.1"] if interface == "none" else [net.b.ip4, "time"]
    peer.popen([PYTHON, ROOT / "tests/integration/upstream.py", *words]).wait_text("serving")
    plain, said, status = whole(net.a, peer, [])
    seen = []

    def look(system):
        """Each process has the library, the interface is offloaded, and a service with what docs/limits.md asks for is, too."""
        pids = ip("netns", "pids", net.a.name).split()
        have = [pid for pid in pids if "libvma.so" in proc(pid, "maps")]
        seen.extend([len(have), "xdp" in ip("-n", net.a.name, "link")])
        if interface == "offloaded" and KERNEL >= (6, 17):  # nginx has a ring, and others may share it
            small_service_is_offloaded(system, net)

    ours, said_too, status_too = whole(net.a, peer, [net.library.path], look)
    wrong = [f"{name}\n   without: {plain[name]}\n   with:    {ours[name]}" for name in plain if plain[name] != ours[name]]
    assert not wrong, "\n".join(wrong)
    assert not said ^ said_too, f"logged without it: {sorted(said - said_too)}\nwith it: {sorted(said_too - said)}"
    assert status == status_too
    assert seen[0] >= 10 and seen[1] == (interface == "offloaded"), seen
    for name, answer in plain.items():
        print(f"{name}: {answer[:300]!r}")
    print(f"{seen[0]} processes have the library; {len(said)} different lines in the journal")
