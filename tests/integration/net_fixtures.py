# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two network namespaces joined by a veth pair, and real programs in them, with or without the library.

    net.a  [ veth-a  10.77.0.1  fd77::1 ] ---- veth ---- [ veth-b  10.77.0.2  fd77::2 ]  net.b

A test asks for `net`; @pytest.mark.net(mtu=9000, queues=4) changes the pair. `make_net` makes more of them.

    def test_echo(net):
        server = net.a.popen(["sockperf", "server", "-i", net.a.ip4], preload=True)
        net.a.wait_bound(11111)
        net.b.run(["sockperf", "ping-pong", "-i", net.a.ip4, "-t", "1"], preload=True)

With -n 6 (pytest-xdist) six tests run at a time, each in namespaces of its own; `unet` is one for each file and worker then.

With --mlx5, in the guest of scripts/vm, the wire joins two cards of tests/mlx5_device in place of veths, with the same names:
the library serves them by ring/mlx5. What a card complains of fails the test. With --nic CARD, in the guest of scripts/vm -n CARD, it
joins two emulated cards with the kernel's own driver.

With --sanitize the library of build/asan is preloaded, after the sanitizers' own, and whatever a sanitizer reports
in any process fails the test in which it happened. Tests marked no_sanitize (most measure time) are left out then,
and those that do not use the library. With --tsan library and helpers are those of build/tsan: for tests whose programs
with the library are all helpers of ours. With --locks the library is that of build/check, whose locks watch themselves
(LOCK_CHECK_SEED=number runs its threads as a former run did, as far as a seed can).
"""

import os
import pathlib
import signal
import tempfile

import pytest

import nics
from cards import CardNet
from few import left_out
from netns import KERNEL, ROOT, SEED, Library, Net, remove_stale


def pytest_addoption(parser):
    parser.addoption("--sanitize", action="store_true", help="preload the ASan+UBSan library of build/asan")
    parser.addoption("--tsan", action="store_true", help="library and helpers with ThreadSanitizer, of build/tsan")
    parser.addoption("--locks", action="store_true", help="the library of build/check, whose locks watch themselves")
    parser.addoption("--mlx5", action="store_true", help="in place of the veth pair two cards of the mlx5 device in software (scripts/vm)")
    parser.addoption("--nic", metavar="CARD", help="in place of the veth pair two emulated cards of that kind (scripts/vm -n)")
    parser.addoption("--few", type=int, metavar="PART", help="what `make test` runs without ALL=1 (few.py)")
    parser.addoption("--build", default=None, help="the build directory (build, or build/asan with --sanitize)")


def pytest_configure(config):
    config.addinivalue_line("markers", "net(mtu=1500, queues=1): the veth pair that `net` gives")
    config.addinivalue_line("markers", "multi_buffer: for kernels that hand AF_XDP frames of several chunks (6.6)")
    config.addinivalue_line("markers", "no_asan: left out with --sanitize, because libasan cannot do it; --locks and --tsan can")
    config.addinivalue_line("markers", "alone: measures; scripts/test.sh runs it after the others, with nothing beside it")
    config.addinivalue_line("markers", "whole: takes long for what another step of ALL=1, or another case of the same test, sees too (few.py)")
    config.addinivalue_line("markers", "no_sanitize: left out with --sanitize, because it measures time or because libasan cannot do it")


def deselect(config, items, out):
    config.hook.pytest_deselected(items=out)
    items[:] = [i for i in items if i not in out]


def pytest_collection_modifyitems(config, items):
    if KERNEL < (6, 6):
        deselect(config, items, [i for i in items if i.get_closest_marker("multi_buffer")])
    if config.getoption("--locks"):
        deselect(config, items, [i for i in items if i.get_closest_marker("no_sanitize")])
    if config.getoption("--sanitize"):
        # What does not preload the library does the same in both runs.
        out = [i for i in items if i.get_closest_marker("no_sanitize") or i.get_closest_marker("no_asan") or "library" not in i.fixturenames]
        deselect(config, items, out)
    if config.getoption("--few") is not None:
        deselect(config, items, left_out(items, config.getoption("--few")))


def pytest_sessionstart(session):
    if os.geteuid() != 0:
        pytest.exit("these tests need root, because they make network namespaces", returncode=1)
    # Ended from outside, the run still cleans up, as it does at Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" not in os.environ:  # whose workers come later, and would be in each other's way
        remove_stale()


BUILDS = {"address": "asan", "thread": "tsan", "locks": "check", "": ""}
MAKE_ARGUMENT = {"address": " SANITIZE=1", "thread": " SANITIZE=thread", "locks": " CHECK_LOCKS=1", "": ""}


def sanitizer(config):
    for option, name in (("--sanitize", "address"), ("--tsan", "thread"), ("--locks", "locks")):
        if config.getoption(option):
            return name
    return ""


def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--locks"):
        terminalreporter.write_line(f"LOCK_CHECK_SEED={SEED}")


@pytest.fixture(scope="session")
def library(pytestconfig):
    sanitize = sanitizer(pytestconfig)
    build = pytestconfig.getoption("--build") or ROOT / "build" / BUILDS[sanitize]
    lib = Library(pathlib.Path(build).resolve(), sanitize)
    if not lib.path.exists():
        pytest.exit(f"there is no {lib.path}: run make{MAKE_ARGUMENT[sanitize]}", returncode=1)
    lib.after = [lib.helpers / "exits.so"]
    return lib


def net_kind(config):
    if config.getoption("--nic"):
        return nics.kind_of_net(config.getoption("--nic"))
    return CardNet if config.getoption("--mlx5") else Net


def leftovers(config, net):
    """Ends the programs of the Net; what they have left behind, where the tests want to know (conftest.py)."""
    hosts = (net.a, net.b)
    for host in hosts:
        host.close()
    look = getattr(config, "leftovers_of", None)
    return [what for host in hosts for what in look(host)] if look else []


@pytest.fixture
def make_net(library, tmp_path, request):
    """A function that makes a Net: make_net(mtu=1500, queues=1)."""
    nets = []
    kind = net_kind(request.config)

    def make(**options):
        nets.append(kind(library, tmp_path, **options))
        return nets[-1]

    yield make
    processes = [p for n in nets for h in (n.a, n.b) for p in h.processes]
    left = [what for n in nets for what in leftovers(request.config, n)]
    for n in nets:
        n.close()
    if getattr(request.node, "failed", False):
        print("\n".join(f"--- {p}\n{p.text}" for p in processes if p.text))
    reports = library.take_reports(processes)
    if reports:
        pytest.fail("a sanitizer reported:\n" + "\n".join(reports), pytrace=False)
    complaints = sum(n.complained() for n in nets if kind is CardNet)
    if complaints:
        pytest.fail(f"the card complained {complaints} times: see the kernel log", pytrace=False)
    if left:
        pytest.fail("left behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture
def net(make_net, request):
    mark = request.node.get_closest_marker("net")
    return make_net(**(mark.kwargs if mark else {}))


@pytest.fixture(scope="module")
def module_net(library, tmp_path_factory, pytestconfig):
    n = net_kind(pytestconfig)(library, tmp_path_factory.mktemp("net"))
    yield n
    n.close()


@pytest.fixture
def unet(module_net, library, pytestconfig):
    """A Net that the tests of one file share, because they change nothing of it."""
    yield module_net
    reports = library.take_reports(module_net.a.processes + module_net.b.processes)
    left = leftovers(pytestconfig, module_net)
    for host in (module_net.a, module_net.b):
        host.processes.clear()
    if reports:
        pytest.fail("a sanitizer reported:\n" + "\n".join(reports), pytrace=False)
    if left:
        pytest.fail("left behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture
def open_directory():
    """As /tmp: any user's. Not one of pytest's, which are root's alone again whenever another pytest begins."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o1777)
        yield pathlib.Path(directory)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    item.failed = getattr(item, "failed", False) or outcome.get_result().failed
