/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What /sys tells of an interface's device, before anything of rdma-core is loaded. `sys` is "/sys"
 * but in tests.
 */
#ifndef RING_MLX5_DEVICE_H
#define RING_MLX5_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The name of the RDMA device that has the same parent as the interface. False: there is none, or
 * another vendor's driver's.
 */
bool device_name(const char *sys, const char *ifname, char *name, size_t size);
/* Is such a device below the interface, which is a bond? */
bool device_in_bond(const char *sys, const char *ifname);
/*
 * Is the interface a representor of a virtual function's or a subfunction's port (switchdev mode)?
 * It has the RDMA device of the uplink, and rules there would take the uplink's frames.
 */
bool device_is_representor(const char *sys, const char *ifname);
/*
 * Of so many completion vectors of a device, which are interrupts of different processors, the one
 * for the next ring: another one each time, and from another one on in each process.
 */
int device_vector(int vectors);
/* The device's port that the interface is, from 1. */
uint8_t device_port(const char *sys, const char *ifname);

#endif
