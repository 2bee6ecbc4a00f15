# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A whole system with the library in /etc/ld.so.preload: programs that nobody started with it do what they did before. In a
namespace with its own mounts each command runs without the library and with it, once where no interface can be offloaded
and once beside one that can: exit status and output are equal, to the letter.
"""

import json
import re
import shutil
import subprocess

import pytest

from netns import PYTHON

# What is run, and the name that a failure goes by. {peer}: the address of the other namespace, where plain programs serve.
COMMANDS = """
ls -d /etc /usr
bash -c 'echo out; echo err >&2; exit 3'
echo one two | tr a-z A-Z | sed s/ONE/1/ | sort
seq 2000 | xargs -n 100 echo | wc -l
python3 -c 'import socket; s = socket.socket(); print(s.fileno(), s.getsockname())'
python3 -c 'import subprocess; print(subprocess.run(["id", "-u"], capture_output=True))'
python3 -c 'import socket; a, b = socket.socketpair(); a.send(b"x"); print(b.recv(9), socket.gethostbyname("localhost"))'
python3 -c 'import multiprocessing as m; print(m.get_context("fork").Pool(2).map(abs, [-1, -2]))'
perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) or die; print fileno(S), "\\n"; connect(S, sockaddr_in(9, inet_aton("127.0.0.1"))) or print "$!\\n"'
perl -e 'exec "id", "-un"'
getent hosts localhost
getent passwd nobody
git init -q r && cd r && git -c user.name=n -c user.email=e commit -q --allow-empty -m m && git log --format=%s && cd .. && git clone -q r s && git -C s status -s
tar cf - /etc/hostname 2>/dev/null | tar tf -
printf 'int main(void){return 42;}' >m.c && gcc m.c -o m && ./m
printf 'all:\\n\\t@echo made\\n' >Makefile && make -s
curl -s -o /dev/null -w '%{http_code} %{size_download}\\n' http://{peer}:8088/
curl -s http://127.0.0.1:1/
curl -sS http://{peer}:1/
git ls-remote http://{peer}:8088/none.git 2>&1 | sed -n 1p
ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -p 1 {peer} true
ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i {keys}/id -p 8022 {peer} 'echo in; cat; exit 5' </etc/hostname
GIT_SSH_COMMAND='ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i {keys}/id -p 8022' git clone -q ssh://{peer}{keys}/repo.git t && git -C t log --format=%s
su nobody -s /bin/sh -c 'id -un; curl -s http://127.0.0.1:1/; echo $?'
setpriv --reuid nobody --clear-groups python3 -c 'import socket, os; s = socket.socket(); s.bind(("", 0)); s.listen(); print(os.getuid())'
bwrap --ro-bind / / --unshare-net --dev /dev python3 -c 'import socket; s = socket.socket(); print(s.connect_ex(("10.1.1.1", 80)))'
exec 3<>/dev/tcp/{peer}/8088; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; sed -n 1p <&3
unshare -n python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); print(s.connect_ex(("10.1.1.1", 80)))'
chroot / python3 -c 'import socket; print(socket.socket().fileno())'
timeout 0.2 sleep 9; echo $?
nohup sh -c 'echo kept' 2>&1 | tail -1
env -i python3 -c 'import socket, os; print(socket.socket().fileno(), sorted(os.environ))'
ss -Hltn | wc -l
ip -br link show lo
printf 'GET / HTTP/1.0\\r\\n\\r\\n' | socat - TCP:{peer}:8088 | sed -n 1p
python3 -c 'import os; os.closerange(3, 500); import socket; print(socket.socket().fileno())'
python3 -c 'import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))'
""".strip().splitlines()

# Runs every command in a directory of its own; the lines of COMMANDS come as JSON on standard input, and what they did goes out.
RUNNER = """
import json, os, pathlib, subprocess, sys, tempfile
libraries, etc = sys.argv[1], sys.argv[2]
if libraries:
    pathlib.Path(etc, "ld.so.preload").write_text(libraries + "\\n")
    subprocess.run(["mount", "--bind", etc, "/etc"], check=True)
done = []
for command in json.load(sys.stdin):
    with tempfile.TemporaryDirectory() as home:
        run = subprocess.run(["timeout", "60", "bash", "-c", command], cwd=home, capture_output=True, text=True,
                             env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home, "LANG": "C"})
    done.append([run.returncode, run.stdout, run.stderr])
json.dump(done, sys.stdout)
"""

SSHD = """
Port 8022
ListenAddress {address}
HostKey {keys}/host
AuthorizedKeysFile {keys}/id.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory, library):
    """A key for a host and one for a user, a repository, and a copy of /etc."""
    directory = tmp_path_factory.mktemp("keys")
    for name in ("host", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / name], check=True)
    work = directory / "work"
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", "init", "-q", work], check=True)
    subprocess.run([*git, "-C", work, "commit", "-q", "--allow-empty", "-m", "over the wire"], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", work, directory / "repo.git"], check=True)
    shutil.copytree("/etc", directory / "etc", symlinks=True)
    return directory


def run_all(host, keys, address, preloaded):
    """[[exit status, output, errors], ...] of the commands."""
    commands = [c.replace("{peer}", address).replace("{keys}", str(keys)) for c in COMMANDS]
    source = host.net.tmp / "commands"
    source.write_text(json.dumps(commands))
    with open(source) as stdin:
        run = host.run(["unshare", "--mount", PYTHON, "-c", RUNNER, str(host.net.library.path) if preloaded else "", keys / "etc"],
                       timeout=300, stdin=stdin)
    return json.loads(run.text)


def serve(host, keys, address):
    """Plain programs that the commands ask."""
    (keys / "sshd").write_text(SSHD.format(address=address, keys=keys))
    host.run(["mkdir", "-p", "/run/sshd"])
    host.popen([PYTHON, "-m", "http.server", "-b", address, "-d", keys / "work", 8088])
    host.popen(["/usr/sbin/sshd", "-D", "-f", keys / "sshd"])
    for port in (8088, 8022):
        host.wait_bound(port, "tcp")


@pytest.mark.no_sanitize
@pytest.mark.parametrize("interface", ["none", "offloaded"])
def test_every_program_does_what_it_did(net, keys, interface):
    if interface == "none":
        net.a.run(["ip", "link", "del", net.a.dev])
        server, address = net.a, "127.0.0.1"
    else:
        server, address = net.b, net.b.ip4
    serve(server, keys, address)
    plain = run_all(net.a, keys, address, False)
    ours = run_all(net.a, keys, address, True)
    for done in (*plain, *ours):
        done[2] = re.sub(r"after \d+ ms", "after a while", done[2])  # curl
    wrong = [f"{command}\n   without: {p}\n   with:    {o}" for command, p, o in zip(COMMANDS, plain, ours) if p != o]
    assert not wrong, "\n".join(wrong)
    statuses = [status for status, _, _ in plain]
    assert statuses.count(0) > len(COMMANDS) / 2, statuses
    print(f"{len(COMMANDS)} commands, {statuses.count(0)} of them succeed, each the same with the library")
