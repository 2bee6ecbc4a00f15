# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The packages of `make deb`, installed and removed by apt-get in a bare Debian 12, and `make install` straight after the build.
Run by the step `deb` of scripts/test.sh, which has built the packages. The bare system stays in build/chroot; what a test
changes goes into a layer above it.
"""

import os
import re
import shutil
import subprocess

import pytest

from netns import PATIENCE, ROOT

CACHE = ROOT / "build" / "chroot"
VERSION = "10.0.0"
PACKAGES = ("libvma", "libvma-dev", "vma-utils", "vma-dkms")
# Written by every apt-get, whatever it installs.
APT = ("/var/cache/", "/var/lib/apt/", "/var/lib/dpkg/", "/var/log/")
# Opens a socket, so that the library starts; perl-base is in every Debian.
SOCKET = "perl -MSocket -e 'socket(my $s, PF_INET, SOCK_DGRAM, 0) or die'"


class Bare:
    """A layer above the bare system. What runs there has mounts, pids and a network of its own, which end with it."""

    def __init__(self, base, layer):
        self.base, self.layer = base, layer
        for d in ("upper", "work", "root"):
            (layer / d).mkdir()
        (CACHE / "archives" / "partial").mkdir(parents=True, exist_ok=True)

    def run(self, command, network=False, check=True):
        """Only apt-get has the host's network."""
        mounts = f"""set -e
            mount -t overlay overlay -o lowerdir={self.base},upperdir={self.layer}/upper,workdir={self.layer}/work {self.layer}/root
            cd {self.layer}/root
            mount --bind {CACHE}/archives var/cache/apt/archives
            mount --bind {ROOT}/build/deb mnt
            mount -t proc proc proc
            mount -t sysfs sysfs sys
            mount -t tmpfs tmpfs tmp
            mount --rbind /dev dev
            exec chroot . /bin/bash -c "$1"
        """
        own = ["--mount", "--pid", "--fork", "--kill-child"] + ([] if network else ["--net"])
        done = subprocess.run(["unshare", *own, "bash", "-c", mounts, "bash", command], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=1200 * PATIENCE,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive",
                                   **{k: v for k, v in os.environ.items() if k.lower().endswith("_proxy")}})
        if check:
            assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
        return done

    def apt(self, words):
        """The lists are as old as the bare system: read again when they do not serve."""
        command = f"apt-get -y --no-install-recommends {words}"
        return self.run(f"{command} || {{ apt-get update && {command}; }}", network=True).stdout

    def files(self):
        """All files but those that every apt-get writes, with what is in them."""
        done = self.run("find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /mnt \\) -prune -o -type f "
                        "-print0 | xargs -0 md5sum")
        return {line[34:]: line[:32] for line in done.stdout.splitlines() if not line[34:].startswith(APT)}


def mirror():
    """The machine's own, where apt tells it."""
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Codename: bookworm"], capture_output=True, text=True)
    return done.stdout.split()[:1]


@pytest.fixture(scope="module")
def base():
    """Debian's minimum, of which build/chroot keeps the one that was made first."""
    root = CACHE / "base"
    if not root.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(CACHE / "base.new", ignore_errors=True)
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--skip=cleanup/apt", "bookworm", CACHE / "base.new", *mirror()],
                       check=True)
        (CACHE / "base.new").rename(root)
    return root


@pytest.fixture
def bare(base, tmp_path):
    bare = Bare(base, tmp_path)
    yield bare
    shutil.rmtree(tmp_path / "upper")
    shutil.rmtree(tmp_path / "work")


def file_of(package):
    found = list((ROOT / "build" / "deb").glob(f"{package}_{VERSION}_*.deb"))
    assert len(found) == 1, f"{found}: `make deb` makes the packages"
    return "/mnt/" + found[0].name


def listed(bare, package):
    return set(bare.run(f"dpkg -L {package}").stdout.split())


def test_the_version_is_the_tree_s():
    text = (ROOT / "include/vma/version.h").read_text()
    assert VERSION == ".".join(re.search(rf"VMA_LIBRARY_{x} (\d+)", text).group(1) for x in ("MAJOR", "MINOR", "REVISION"))
    assert (ROOT / "debian/changelog").read_text().startswith(f"libvma ({VERSION}) ")
    assert f'PACKAGE_VERSION="{VERSION}"' in (ROOT / "kmod/dkms.conf").read_text()


def test_the_library_works_by_name_and_goes_without_a_trace(bare):
    before = bare.files()
    bare.apt(f"install {file_of('libvma')}")
    has = listed(bare, "libvma")
    for file in ("/usr/lib/x86_64-linux-gnu/libvma.so", "/etc/libvma.conf", "/usr/share/man/man7/libvma.7.gz",
                 "/usr/share/man/man5/libvma.conf.5.gz", "/usr/share/doc/libvma/copyright"):
        assert file in has, has
    seen = bare.run(f"VMA_TRACELEVEL=info LD_PRELOAD=libvma.so {SOCKET}")
    print(seen.stderr)
    assert f"VMA_VERSION: {VERSION}-0 Release built on" in seen.stderr + seen.stdout and "cannot be preloaded" not in seen.stderr
    # dpkg leaves out most of /usr/share/doc only where it is told to; here nobody does.
    assert bare.run("cat /usr/share/doc/libvma/VMA_VERSION").stdout == f"VMA_VERSION: {VERSION}-0\n"
    assert {"/usr/share/doc/libvma/README.md.gz", "/usr/share/doc/libvma/README.md"} & has
    bare.run("echo '# mine' >>/etc/libvma.conf")
    bare.apt("remove libvma")
    assert "# mine" in bare.run("cat /etc/libvma.conf").stdout
    bare.apt("purge libvma")
    bare.apt("autoremove --purge")
    after = bare.files()
    assert {f for f in after if before.get(f) != after[f]} == {f for f in ("/etc/ld.so.cache",) if before.get(f) != after.get(f)}


def test_an_upgrade_keeps_what_the_user_has_set(bare):
    """As `rpm -U` of the manual: a package of a higher version, else the same, over the one that is there."""
    bare.apt(f"install {file_of('libvma')}")
    bare.run("echo '# mine' >>/etc/libvma.conf")
    said = bare.run(f"cd /root && dpkg-deb -R {file_of('libvma')} new && sed -i 's/^Version: .*/Version: {VERSION}+1/' new/DEBIAN/control && "
                    "dpkg-deb --root-owner-group -b new new.deb && dpkg -i new.deb").stdout
    print(said)
    assert re.search(rf"^Unpacking libvma(:\w+)? \({re.escape(VERSION)}\+1\) over \({re.escape(VERSION)}\)", said, re.M)
    assert bare.run("dpkg-query -W -f '${Version}' libvma").stdout == f"{VERSION}+1"
    assert "# mine" in bare.run("cat /etc/libvma.conf").stdout
    seen = bare.run(f"VMA_TRACELEVEL=info LD_PRELOAD=libvma.so {SOCKET}")
    assert "VMA_VERSION: " in seen.stderr + seen.stdout and "cannot be preloaded" not in seen.stderr


def test_all_four_are_installed_and_removed(bare):
    """vma-dkms with a compiler and Debian's headers: it builds the module for their kernel."""
    bare.apt("install linux-headers-amd64 dkms gcc libc6-dev")
    before, groups = bare.files(), bare.run("cat /etc/group /etc/gshadow").stdout
    said = bare.apt("install " + " ".join(file_of(p) for p in PACKAGES))
    print(said[-3000:])
    assert re.match(r"vma_stats 10\.0\.0", bare.run("vma_stats -V").stdout)
    assert {"/usr/bin/vma_stats", "/usr/share/man/man8/vma_stats.8.gz", "/usr/share/bash-completion/completions/vma_stats",
            "/usr/share/libvma/vma_stats.schema.json"} <= listed(bare, "vma-utils")
    assert {"/usr/include/mellanox/vma_extra.h", "/usr/lib/x86_64-linux-gnu/pkgconfig/libvma.pc",
            "/usr/share/man/man3/vma_extra.3.gz"} <= listed(bare, "libvma-dev")
    assert {f"/usr/src/vma-{VERSION}/dkms.conf", f"/usr/src/vma-{VERSION}/kmod/main.c"} <= listed(bare, "vma-dkms")
    # An example is compiled with what is installed, and runs.
    bare.run("cd /tmp && cp /usr/share/doc/libvma-dev/examples/callback.c* . && { gunzip *.gz 2>/dev/null; true; } && "
             "gcc -Wall -Werror -o callback callback.c")
    assert f"vma/{VERSION}, " in bare.run("dkms status").stdout and ": installed" in bare.run("dkms status").stdout
    assert "vma.ko" in bare.run("ls /lib/modules/*/updates/dkms").stdout
    assert re.search(r"^vma:x:\d+:$", bare.run("getent group vma").stdout, re.M)
    bare.apt("purge " + " ".join(PACKAGES))
    bare.apt("autoremove --purge")
    after = bare.files()
    # Others' caches, and backups of the files that have accounts.
    other = re.compile(r"/etc/ld\.so\.cache|/etc/g(roup|shadow)-|/lib/modules/.*/modules\.|/usr/lib/modules/.*/modules\.|/etc/subgid|/etc/\.pwd")
    changed = {f for f in after if before.get(f) != after[f] and not other.match(f)}
    assert not changed, changed
    assert bare.run("cat /etc/group /etc/gshadow").stdout == groups
    assert not bare.run("find / -xdev -name '*vma*' -not -path '/proc/*' -not -path '/mnt/*' -not -path '/sys/*' -not -path '/var/log/*'"
                        " -not -path '/usr/src/linux-*' -not -path '/var/cache/*' -not -path '/tmp/*' | grep -E '/(lib)?vma[^a-z]' ",
                        check=False).stdout


def test_lintian_found_nothing():
    """scripts/deb.sh ends with an error otherwise; again, so that a package that somebody changed is seen."""
    changes = ROOT / "build/deb" / f"libvma_{VERSION}_amd64.changes"
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", changes], capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
