/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The names and numbers of the log's levels, enum log_level (runtime/log.h): for VMA_TRACELEVEL and
 * for vma_stats.
 */
#ifndef VMA_LOG_NAMES_H
#define VMA_LOG_NAMES_H

/*
 * Level, name; a level's first name is the one that is shown. The numbers are those of the manual,
 * in which DETAILS has none: they are not those of enum log_level.
 */
#define LOG_LEVEL_NAMES(X)                                                                         \
	X(LOG_NONE, "NONE")                                                                        \
	X(LOG_PANIC, "PANIC")                                                                      \
	X(LOG_PANIC, "0")                                                                          \
	X(LOG_ERROR, "ERROR")                                                                      \
	X(LOG_ERROR, "1")                                                                          \
	X(LOG_WARN, "WARNING")                                                                     \
	X(LOG_WARN, "warn")                                                                        \
	X(LOG_WARN, "2")                                                                           \
	X(LOG_INFO, "INFO")                                                                        \
	X(LOG_INFO, "information")                                                                 \
	X(LOG_INFO, "3")                                                                           \
	X(LOG_DETAILS, "DETAILS")                                                                  \
	X(LOG_DEBUG, "DEBUG")                                                                      \
	X(LOG_DEBUG, "4")                                                                          \
	X(LOG_FINE, "FINE")                                                                        \
	X(LOG_FINE, "func")                                                                        \
	X(LOG_FINE, "5")                                                                           \
	X(LOG_FINER, "FINER")                                                                      \
	X(LOG_FINER, "func+")                                                                      \
	X(LOG_FINER, "funcall")                                                                    \
	X(LOG_FINER, "func_all")                                                                   \
	X(LOG_FINER, "func-all")                                                                   \
	X(LOG_FINER, "6")                                                                          \
	X(LOG_ALL, "ALL")                                                                          \
	X(LOG_ALL, "7")

#endif
