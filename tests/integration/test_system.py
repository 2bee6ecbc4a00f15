# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A whole system with the library in /etc/ld.so.preload: programs that nobody started with it do what they did before. In a
namespace with its own mounts each command runs without the library and with it, once where no interface can be offloaded
and once beside one that can: exit status and output are equal, to the letter.
"""

import hashlib
import json
import pathlib
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
git init -q r && cd r && git -c user.name=n -c user.email=e commit -q --allow-empty -m m && git log --format=%s \
&& cd .. && git clone -q r s && git -C s status -s
tar cf - /etc/hostname 2>/dev/null | tar tf -
printf 'int main(void){return 42;}' >m.c && gcc m.c -o m && ./m
printf 'all:\\n\\t@echo made\\n' >Makefile && make -s
curl -s -o /dev/null -w '%{http_code} %{size_download}\\n' http://{peer}:8088/
curl -s http://127.0.0.1:1/
curl -sS http://{peer}:1/
git ls-remote http://{peer}:8088/none.git 2>&1 | sed -n 1p
ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -p 1 {peer} true
ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i {keys}/id \
-p 8022 {peer} 'echo in; cat; exit 5' </etc/hostname
GIT_SSH_COMMAND='ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i {keys}/id -p 8022' \
git clone -q ssh://{peer}{keys}/repo.git t && git -C t log --format=%s
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

SSH = "-q -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i {keys}/id"

# The same of several lines. `up` waits until somebody listens on the port; `ask` runs a program at the peer; `down` ends the
# server that was started last, and says how it ended.
HELPERS = """
up() { for i in {1..400}; do ss -Hltn "sport = :$1" | grep -q . && return; sleep 0.05; done; echo "nobody on $1"; }
ask() { {enter} "$@"; }
down() { kill -${1:-TERM} $!; wait $!; echo "ended: $?"; }
"""
SCRIPTS = {
    "apt: update, download, install into a folder": """
        chown _apt .; chmod 755 .
        mkdir -p etc/{apt.conf,preferences}.d lists/partial archives/partial root/var/lib/dpkg/info root/var/lib/dpkg/updates
        touch status root/var/lib/dpkg/status
        echo 'deb [trusted=yes] http://{peer}:8088/apt ./' >etc/sources.list
        cat >apt.conf <<END
Dir::Etc "$PWD/etc"; Dir::State::lists "$PWD/lists"; Dir::State::status "$PWD/status"; Dir::Cache "$PWD";
END
        export APT_CONFIG=$PWD/apt.conf
        apt-get -qq update; echo $?
        apt-get -qq download tiny 2>&1; echo $?
        sha256sum <tiny_1_all.deb
        dpkg --root="$PWD/root" --force-not-root -i tiny_1_all.deb 2>&1; echo $?
        cat root/usr/share/tiny""",
    "apt: a server that is not there": """
        mkdir -p etc lists/partial
        echo 'deb [trusted=yes] http://{peer}:1/apt ./' >etc/sources.list
        apt-get -q -o Dir::Etc=$PWD/etc -o Dir::State::lists=$PWD/lists -o Acquire::Retries=0 update 2>&1 | grep -o 'connect.*refused' | sort -u""",
    "cron runs a job": """
        cat >job <<END
#!/bin/sh
echo "as \\$(id -un)"; exec /usr/bin/python3 -c 'import socket; print(socket.socket().fileno())'
END
        chmod 755 job
        unshare --mount bash -c '
            mount -t tmpfs none /run; mount -t tmpfs none /var/spool/cron; mkdir /var/spool/cron/crontabs
            echo "@reboot $PWD/job >$PWD/out 2>&1; echo \\$? >>$PWD/out; mv $PWD/out $PWD/done" | crontab -
            crontab -l | grep -c reboot
            cron -f & for i in {1..200}; do [ -e done ] && break; sleep 0.05; done
            kill $!; wait $!; echo "ended: $?"'
        cat done""",
    "ssh in": """
        /usr/sbin/sshd -D -f {keys}/sshd.own 2>/dev/null & up 8023
        ask ssh {ssh} -p 8023 {own} 'cat; id -un; echo err >&2; exit 5' </etc/hostname; echo $?
        ask ssh {ssh} -p 8023 {own} 'head -c 3000000 /dev/zero' | sha256sum
        down""",
    "scp and sftp, out": """
        seq 100000 >n
        scp {ssh} -P 8022 n root@{peer}:$PWD/copy; echo $?
        scp {ssh} -P 8022 root@{peer}:$PWD/copy back; cmp n back; echo $?
        printf 'get %s/copy again\\nrename %s/copy %s/third\\nls %s/nothing\\n' $PWD $PWD $PWD $PWD |
            sftp {ssh} -P 8022 -b - root@{peer} 2>&1 | grep -v "^sftp>"
        cmp n again; ls""",
    "scp and sftp, in": """
        seq 100000 >n
        /usr/sbin/sshd -D -f {keys}/sshd.own 2>/dev/null & up 8023
        ask scp {ssh} -P 8023 n root@{own}:$PWD/copy; echo $?
        printf 'get %s/copy again\\n' $PWD | ask sftp {ssh} -P 8023 -b - root@{own} 2>&1 | grep -v "^sftp>"
        down
        cmp n copy; cmp n again; ls""",
    "tar over ssh": """
        mkdir d; for i in 1 2 3; do seq ${i}0000 >d/$i; done
        tar cf - d | ssh {ssh} -p 8022 {peer} "tar xf - -C $PWD --transform s/d/e/"; echo ${PIPESTATUS[@]}
        diff -r d e; echo $?""",
    "rsync over ssh, and a daemon": """
        mkdir d; for i in 1 2 3; do seq ${i}0000 >d/$i; done
        rsync -a -e 'ssh {ssh} -p 8022' d/ root@{peer}:$PWD/e/; echo $?; diff -r d e
        printf 'use chroot = no\\n[m]\\npath = %s\\nread only = no\\nuid = root\\n' $PWD >conf
        rsync --daemon --no-detach --config=conf --port 8730 --address {own} --log-file=/dev/null & up 8730
        ask rsync rsync://{own}:8730/ ; echo $?
        ask rsync -a rsync://{own}:8730/m/d/ f/; echo $?; diff -r d f
        ask rsync -a d/ rsync://{own}:8730/m/g/; echo $?; diff -r d g
        ask rsync rsync://{own}:8730/none/; echo $?
        down""",
    "git over http": """
        git clone -q http://{peer}:8088/repo.git r; echo $?
        git -C r log --format=%s""",
    "a compiler with make -j, and its program": """
        for i in 1 2 3 4; do echo "int f$i(void) { return $i; }" >f$i.c; done
        echo 'int f1(void), f2(void), f3(void), f4(void); int main(void) { return f1() + f2() + f3() + f4(); }' >main.c
        printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n\\tcc -o main $^\\n' >Makefile
        make -s -j4; echo $?; ./main; echo $?""",
    "bwrap beside the network": """
        bwrap --ro-bind / / --dev /dev --unshare-pid --unshare-user --die-with-parent curl -s -o /dev/null -w '%{http_code}\\n' http://{peer}:8088/
        bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all sh -c 'ls /sys/class/net; exit 7'; echo $?""",
    "nginx with two workers": """
        chmod 755 .; seq 200000 >file
        cat >conf <<END
daemon off; worker_processes 2; pid $PWD/pid; error_log $PWD/error.log; user www-data;
events { } http { access_log off; sendfile on; client_body_temp_path $PWD/t; proxy_temp_path $PWD/t; fastcgi_temp_path $PWD/t;
uwsgi_temp_path $PWD/t; scgi_temp_path $PWD/t; server { listen {own}:8080; root $PWD; } }
END
        nginx -t -q -c $PWD/conf; echo $?
        nginx -c $PWD/conf & up 8080
        for i in 1 2 3; do ask curl -sS http://{own}:8080/file | cmp - file; echo ${PIPESTATUS[@]}; done
        ask curl -s -o /dev/null -w '%{http_code}\\n' http://{own}:8080/none
        down QUIT""",
    "redis": """
        redis-server --port 8379 --bind {own} --save '' --protected-mode no --dir $PWD --daemonize no >/dev/null 2>&1 & up 8379
        ask redis-cli -h {own} -p 8379 set k v; ask redis-cli -h {own} -p 8379 get k
        ask redis-benchmark -h {own} -p 8379 -q -n 2000 -t set | grep -c 'requests per second'
        down""",
    "postgresql": """
        chown nobody .; chmod 755 .
        PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
        as='setpriv --reuid nobody --regid nogroup --clear-groups'
        $as initdb -D data -A trust -U me -N >/dev/null; echo $?
        echo 'host all all all trust' >>data/pg_hba.conf
        $as postgres -D data -h {own} -p 8432 -k $PWD 2>/dev/null & up 8432
        for i in {1..100}; do ask pg_isready -q -h {own} -p 8432 && break; sleep 0.05; done
        ask psql -h {own} -p 8432 -U me -d postgres -Atc 'create table t as select generate_series(1, 20000) n' -c 'select sum(n) from t' -c 'select 1/0' 2>&1
        ask psql -h {own} -p 8432 -U me -d postgres -Atc 'copy t to stdout' | sha256sum
        down INT""",
    "systemd-socket-activate": """
        systemd-socket-activate -l {own}:8099 --inetd -a tr a-z A-Z 2>/dev/null & up 8099
        for i in 1 2; do echo "line $i" | ask socat -t 5 - TCP:{own}:8099; done
        down""",
    "a server of Python's": """
        seq 200000 >file
        python3 -m http.server -b {own} 8098 >/dev/null 2>&1 & up 8098
        for i in 1 2 3; do ask curl -sS http://{own}:8098/file | cmp - file; done; echo $?
        down""",
}

# Runs every command in a directory of its own; the lines of COMMANDS come as JSON on standard input, and what they did goes out.
RUNNER = """
import json, os, pathlib, signal, subprocess, sys, tempfile
libraries, etc = sys.argv[1], sys.argv[2]
subprocess.run(["mount", "--bind", etc, "/etc"], check=True)
pathlib.Path("/etc/ld.so.preload").write_text(libraries + "\\n")
done = []
for command in json.load(sys.stdin):
    # Files, not pipes: what a command leaves behind would keep a pipe open.
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        run = subprocess.Popen(["timeout", "-k", "1", "40", "bash", "-c", command], cwd=home, stdin=subprocess.DEVNULL,
                               stdout=out, stderr=err, start_new_session=True,
                               env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home, "LANG": "C"})
        run.wait()
        for file in (out, err):
            file.seek(0)
        done.append([run.returncode, out.read().replace(home, "HOME"), err.read().replace(home, "HOME")])
json.dump(done, sys.stdout)
"""

SSHD = """
Port {port}
Subsystem sftp internal-sftp
ListenAddress {address}
HostKey {keys}/host
AuthorizedKeysFile {keys}/id.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
"""


def package(source, repository):
    """A Debian package of one file, and the lists of what apt finds there."""
    (source / "DEBIAN").mkdir(parents=True)
    (source / "DEBIAN" / "control").write_text("Package: tiny\nVersion: 1\nArchitecture: all\nMaintainer: n <e>\nDescription: one file\n")
    (source / "usr" / "share").mkdir(parents=True)
    (source / "usr" / "share" / "tiny").write_text("installed\n")
    repository.mkdir()
    file = repository / "tiny_1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", source, file], check=True, stdout=subprocess.DEVNULL)
    data = file.read_bytes()
    (repository / "Packages").write_text((source / "DEBIAN" / "control").read_text() +
                                         f"Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n")


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
    subprocess.run(["git", "clone", "-q", "--bare", work, work / "repo.git"], check=True)
    subprocess.run(["git", "-C", work / "repo.git", "update-server-info"], check=True)
    package(directory / "tiny", work / "apt")
    shutil.copytree("/etc", directory / "etc", symlinks=True)
    return directory


def commands(host, keys, peer):
    """{what a failure goes by: what bash runs}; peer: the other namespace, or the same."""
    own, enter = (host.ip4, f"nsenter --net=/run/netns/{peer.name}") if peer is not host else ("127.0.0.1", "")
    words = {"{peer}": peer.ip4 if peer is not host else own, "{own}": own, "{enter}": enter, "{ssh}": SSH, "{keys}": str(keys)}
    all_of_them = {**{c: c for c in COMMANDS}, **{name: HELPERS + script for name, script in SCRIPTS.items()}}
    if not list(pathlib.Path("/").glob("usr/lib/postgresql/*/bin/initdb")):
        del all_of_them["postgresql"]  # installed for the benchmarks only
    for word, text in words.items():
        all_of_them = {name: command.replace(word, text) for name, command in all_of_them.items()}
    return all_of_them


def run_all(host, keys, todo, preloaded):
    """[[exit status, output, errors], ...] of the commands."""
    source = host.net.tmp / "commands"
    source.write_text(json.dumps(list(todo.values())))
    with open(source) as stdin:
        run = host.run(["unshare", "--mount", PYTHON, "-c", RUNNER, str(host.net.library.path) if preloaded else "", keys / "etc"],
                       timeout=300, stdin=stdin)
    return json.loads(run.text)


def serve(host, peer, keys, words):
    """Plain programs that the commands ask, and what they need for their own servers."""
    for name, port, address in (("sshd", 8022, words["peer"]), ("sshd.own", 8023, words["own"])):
        (keys / name).write_text(SSHD.format(address=address, keys=keys, port=port))
    host.run(["mkdir", "-p", "/run/sshd"])
    peer.popen([PYTHON, "-m", "http.server", "-b", words["peer"], "-d", keys / "work", 8088])
    peer.popen(["/usr/sbin/sshd", "-D", "-f", keys / "sshd"])
    for port in (8088, 8022):
        peer.wait_bound(port, "tcp")


@pytest.mark.no_sanitize
@pytest.mark.parametrize("interface", [pytest.param("none", marks=pytest.mark.whole), "offloaded"])
def test_every_program_does_what_it_did(net, keys, interface):
    peer = net.b
    if interface == "none":
        net.a.run(["ip", "link", "del", net.a.dev])
        peer = net.a
    at = {"peer": "127.0.0.1", "own": "127.0.0.1"} if peer is net.a else {"peer": peer.ip4, "own": net.a.ip4}
    serve(net.a, peer, keys, at)
    todo = commands(net.a, keys, peer)
    plain, ours = (run_all(net.a, keys, todo, preloaded) for preloaded in (False, True))
    for done in (*plain, *ours):
        done[2] = re.sub(r"after \d+ ms", "after a while", done[2])  # curl
    wrong = [f"{name}\n   without: {p}\n   with:    {o}" for name, p, o in zip(todo, plain, ours) if p != o]
    assert not wrong, "\n".join(wrong)
    statuses = [status for status, _, _ in plain]
    assert statuses.count(0) > len(todo) / 2, statuses
    for name, (status, out, err) in zip(todo, plain):
        assert status not in (124, 127) and "not found" not in err and "nobody on" not in out, f"{name}: {status} {out} {err}"
        if name in SCRIPTS:
            print(f"{name}: {out!r} {err!r}")
    print(f"{len(todo)} commands, {statuses.count(0)} of them succeed, each the same with the library")


# What a program without a network socket does with descriptors; it then says what it has.
NO_SOCKET = """
import os, select, selectors, socket, subprocess, threading
e, a = select.epoll(), socket.socketpair()
e.register(a[1], select.EPOLLIN)
assert not e.poll(0)
a[0].send(b"x")
assert e.poll(1) == [(a[1].fileno(), select.EPOLLIN)]
unix, netlink = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
run = subprocess.run(["cat"], input=b"y", capture_output=True)
assert run.stdout == b"y" and not run.stderr
t = threading.Thread(target=e.poll, args=[0.01]); t.start(); t.join()
child = os.fork()
if not child:
    os._exit(0 if e.poll(1) else 1)
assert os.waitpid(child, 0)[1] == 0
links = {}
for fd in os.listdir("/proc/self/fd"):
    try:
        links[int(fd)] = os.readlink("/proc/self/fd/" + fd).split(":")[0]
    except OSError:
        pass  # the one of listdir()
with open("/proc/self/status") as f:
    caught = [line for line in f if line.startswith("SigCgt")]
print(sorted(links.items()), len(os.listdir("/proc/self/task")), caught)
"""


@pytest.mark.no_sanitize
def test_a_process_without_network_sockets_has_nothing_of_the_library(net):
    """No thread, no descriptor, no file of counters, no signal handler, no word. Python asks for an epoll set for itself."""
    said = [re.sub(r"/out-\d+'", "/out'", net.a.run([PYTHON, "-c", NO_SOCKET], preload=preload).text) for preload in (False, True)]
    assert said[0] == said[1]
    print(said[1])


# System calls by which the loader maps a library.
LOADING = {"openat", "open", "read", "pread64", "newfstatat", "fstat", "mmap", "munmap", "close", "mprotect", "access", "brk"}


def system_calls(host, out, preload):
    """The calls of a start of /bin/true, and the files that it opens."""
    library = ["-E", f"LD_PRELOAD={host.net.library.path}"] if preload else []
    host.run(["strace", "-o", out, *library, "/bin/true"])
    lines = out.read_text().splitlines()
    calls = [m[1] for line in lines if (m := re.match(r"(\w+)\(", line))]
    return calls, {m[1] for line in lines if (m := re.match(r'open(?:at)?\(.*?"([^"]+)".* = \d+$', line))}


@pytest.mark.no_sanitize
@pytest.mark.skipif(not shutil.which("strace"), reason="not installed: strace")
def test_a_start_costs_the_loading_of_the_library_and_nothing_else(net):
    """Its time is not for a test (bench.md has it); what it asks of the kernel is the same on every machine."""
    plain, opened = system_calls(net.a, net.tmp / "plain", False)
    ours, opened_too = system_calls(net.a, net.tmp / "ours", True)
    libraries = opened_too - opened
    assert libraries and all(re.search(r"/lib[\w-]+\.so[.\d]*$", path) for path in libraries), libraries
    more = sorted(call for call in set(ours) - LOADING if ours.count(call) > plain.count(call))
    assert more == ["getpid", "gettid"], more
    assert sum(ours.count(call) for call in more) == 2
    print(f"{len(ours) - len(plain)} system calls more, for {len(libraries)} libraries: {sorted(libraries)}")
