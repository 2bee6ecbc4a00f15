# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A service of an ordinary user with the documented capabilities, on Debian 12's kernel."""

from test_capabilities import (  # noqa: F401 (they run here, too)
    test_a_service_starts_three_times,
    test_the_missing_capability_is_named,
    test_who_keeps_cap_net_admin_alone_detaches,
)
