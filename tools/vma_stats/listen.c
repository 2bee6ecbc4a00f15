/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http.h"
#include "prometheus.h"
#include "say.h"
#include "source.h"
#include "stop.h"

/* "9100" to 65535, 0 for any; -1: it is none. */
static int port_of(const char *text)
{
	size_t n = strspn(text, "0123456789");

	if (!n || n > 5 || text[n])
		return -1;
	return atoi(text) <= 65535 ? atoi(text) : -1;
}

static bool set_host(union listen_at *at, const char *host, int port)
{
	memset(at, 0, sizeof(*at));
	if (!strcmp(host, "localhost"))
		host = "127.0.0.1";
	if (inet_pton(AF_INET, host, &at->v4.sin_addr) == 1) {
		at->v4.sin_family = AF_INET;
		at->v4.sin_port = htons((uint16_t)port);
		return true;
	}
	at->v6.sin6_family = AF_INET6;
	at->v6.sin6_port = htons((uint16_t)port);
	return inet_pton(AF_INET6, host, &at->v6.sin6_addr) == 1;
}

/* All of the machine's addresses at once. */
static bool is_every(const union listen_at *at)
{
	const struct in6_addr *a = &at->v6.sin6_addr;

	if (at->any.sa_family == AF_INET)
		return !at->v4.sin_addr.s_addr;
	return IN6_IS_ADDR_UNSPECIFIED(a) || (IN6_IS_ADDR_V4MAPPED(a) && !a->s6_addr32[3]);
}

/* "[::1]" without its brackets; "127.0.0.1" for none. */
static bool take_host(char host[INET6_ADDRSTRLEN], const char *text, size_t len)
{
	bool brackets = len >= 2 && text[0] == '[' && text[len - 1] == ']';

	if (brackets) {
		text++;
		len -= 2;
	}
	if (!len || len >= INET6_ADDRSTRLEN)
		return false;
	snprintf(host, INET6_ADDRSTRLEN, "%.*s", (int)len, text);
	/* An IPv6 address has brackets, another one has none. */
	return brackets == (strchr(host, ':') != NULL);
}

int listen_address(union listen_at *at, const char *text, char why[WHY_LEN])
{
	const char *colon = strrchr(text, ':');
	int port = port_of(colon ? colon + 1 : text);
	char host[INET6_ADDRSTRLEN] = "127.0.0.1";

	snprintf(why, WHY_LEN,
		 "--listen '%.100s': give an address and a port, as in 127.0.0.1:9100 or "
		 "[::1]:9100",
		 text);
	if (port < 0 || (colon && !take_host(host, text, (size_t)(colon - text))))
		return -1;
	if (!set_host(at, host, port))
		return -1;
	if (!is_every(at))
		return 0;
	snprintf(why, WHY_LEN,
		 "--listen '%.100s': everybody could read the statistics: name the one address to "
		 "listen on",
		 text);
	return -1;
}

/* The socket's own, as a URL has it: with the port that it has got. */
static void show_address(int fd, char text[INET6_ADDRSTRLEN + 16])
{
	union listen_at at = {.any = {.sa_family = AF_UNSPEC}};
	char host[INET6_ADDRSTRLEN] = "";
	socklen_t len = sizeof(at);

	getsockname(fd, &at.any, &len);
	if (at.any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &at.v4.sin_addr, host, sizeof(host));
		snprintf(text, INET6_ADDRSTRLEN + 16, "%s:%u", host, ntohs(at.v4.sin_port));
	} else {
		inet_ntop(AF_INET6, &at.v6.sin6_addr, host, sizeof(host));
		snprintf(text, INET6_ADDRSTRLEN + 16, "[%s]:%u", host, ntohs(at.v6.sin6_port));
	}
}

/* A socket that listens, or -1 with why. */
static int listen_open(const char *text, char why[WHY_LEN])
{
	union listen_at at;
	int fd, one = 1;

	if (listen_address(&at, text, why))
		return -1;
	fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) &&
	    !bind(fd, &at.any, at.any.sa_family == AF_INET ? sizeof(at.v4) : sizeof(at.v6)) &&
	    !listen(fd, 64))
		return fd;
	snprintf(why, WHY_LEN, "--listen '%.100s': %s", text, strerror(errno));
	if (fd >= 0)
		close(fd);
	return -1;
}

/* The metrics, malloc()ed; NULL without memory. */
static char *metrics(const struct options *o, size_t *len)
{
	struct processes all;
	char *text = NULL;
	FILE *f = open_memstream(&text, len);

	if (!f)
		return NULL;
	/* A directory that cannot be read has no processes in it. */
	processes_take(&all, o);
	prometheus_print(f, &all, o);
	processes_free(&all);
	if (!fclose(f))
		return text;
	free(text);
	return NULL;
}

static int page(const char *path, struct http_body *body, void *arg)
{
	static const char first[] = "vma_stats: the metrics are at /metrics\n";

	if (!strcmp(path, "/")) {
		body->type = "text/plain; charset=utf-8";
		body->text = strdup(first);
		body->len = sizeof(first) - 1;
	} else if (!strcmp(path, "/metrics")) {
		body->type = PROMETHEUS_TYPE;
		body->text = metrics(arg, &body->len);
	} else {
		return 404;
	}
	return body->text ? 200 : 503;
}

int listen_serve(const struct options *o)
{
	char why[WHY_LEN], address[INET6_ADDRSTRLEN + 16];
	int fd = listen_open(o->listen, why), err;

	if (fd < 0)
		return complain(why);
	stop_on(SIGTERM);
	stop_on(SIGHUP);
	stop_hold();
	show_address(fd, address);
	say(o, "the metrics are at http://%s/metrics", address);
	err = http_serve(fd, page, (void *)o);
	close(fd);
	if (!err)
		return 0;
	snprintf(why, sizeof(why), "--listen: %s", strerror(-err));
	return complain(why);
}

int listen_print(const struct options *o)
{
	struct processes all;
	char why[WHY_LEN];
	int status = 0, err = processes_take(&all, o);

	if (err) {
		snprintf(why, sizeof(why), "directory %.150s cannot be read: %s",
			 o->dir ? o->dir : SOURCE_DEFAULT_DIR, strerror(-err));
		return complain(why);
	}
	for (unsigned i = 0; i < all.n; i++)
		if (!all.process[i].readable)
			status = complain(all.process[i].why);
	prometheus_print(stdout, &all, o);
	processes_free(&all);
	if (!fflush(stdout))
		return status;
	snprintf(why, sizeof(why), "standard output: %s", strerror(errno));
	return complain(why);
}
