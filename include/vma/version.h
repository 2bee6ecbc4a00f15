/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The one place of the version: library, tools and statistics pages take it from here. */
#ifndef VMA_VERSION_H
#define VMA_VERSION_H

#define VMA_LIBRARY_MAJOR 10
#define VMA_LIBRARY_MINOR 0
#define VMA_LIBRARY_REVISION 0
#define VMA_LIBRARY_RELEASE 0

#define VMA_VERSION_STR2(n) #n
#define VMA_VERSION_STR(n) VMA_VERSION_STR2(n)
#define VMA_LIBRARY_VERSION                                                                        \
	VMA_VERSION_STR(VMA_LIBRARY_MAJOR)                                                         \
	"." VMA_VERSION_STR(VMA_LIBRARY_MINOR) "." VMA_VERSION_STR(                                \
		VMA_LIBRARY_REVISION) "-" VMA_VERSION_STR(VMA_LIBRARY_RELEASE)

#endif
