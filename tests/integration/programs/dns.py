# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Questions to the name servers of this folder, all of which have the address of name.here."""


def asked(net, port, times, *options):
    """dig asks so often; each answer is right."""
    for _ in range(times):
        text = net.b.run(["dig", f"@{net.a.ip4}", "-p", port, "+short", "+tries=1", "+time=5", *options, "name.here", "A"]).text
        assert text.strip() == "192.0.2.7", text


ZONE = "$ORIGIN here.\n@ 60 SOA ns a 1 60 60 60 60\n@ 60 NS ns\nns 60 A 192.0.2.1\nname 60 A 192.0.2.7\n"
