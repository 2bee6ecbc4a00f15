# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tests ask for stands in net_fixtures.py, which tests/vm has, too."""

pytest_plugins = ["net_fixtures"]
