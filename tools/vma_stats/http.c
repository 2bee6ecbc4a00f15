/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "http.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "request.h"
#include "stop.h"

#define CLIENTS 32
#define REQUEST_MS 5000 /* a whole head has come by then */
#define ANSWER_MS 20000 /* and this long the client may take to read the answer */
#define LINGER_MS 1000 /* for the client to close behind its answer */
#define PAUSE_MS 500 /* before accept() is tried again that had no descriptor or memory */

enum client_state { READING, WRITING, LINGERING };

struct client {
	int fd; /* -1: free */
	enum client_state state;
	unsigned long long number; /* who came first has the lowest */
	long long deadline; /* ms */
	char head[REQUEST_MAX];
	size_t len;
	char *answer; /* malloc()ed */
	size_t answer_len, sent;
};

struct server {
	int listener;
	http_page page;
	void *arg;
	unsigned long long accepted; /* clients, ever */
	long long paused_until; /* ms */
	struct client client[CLIENTS];
};

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void client_close(struct client *c)
{
	close(c->fd);
	free(c->answer);
	c->answer = NULL;
	c->fd = -1;
}

static const char *reason(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 408:
		return "Request Timeout";
	case 431:
		return "Request Header Fields Too Large";
	case 503:
		return "Service Unavailable";
	default:
		return "Bad Request";
	}
}

/* Without memory the client is closed. */
static void answer(struct client *c, int status, const struct http_body *body, bool head_only)
{
	FILE *f = open_memstream(&c->answer, &c->answer_len);

	if (!f) {
		client_close(c);
		return;
	}
	fprintf(f, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n", status,
		reason(status), body->type, body->len);
	if (status == 405)
		fputs("Allow: GET, HEAD\r\n", f);
	fputs("Cache-Control: no-store\r\nConnection: close\r\n\r\n", f);
	if (!head_only)
		fwrite(body->text, 1, body->len, f);
	if (fclose(f)) {
		client_close(c);
		return;
	}
	c->sent = 0;
	c->state = WRITING;
	c->deadline = now_ms() + ANSWER_MS;
}

/* The status in words. */
static void refuse(struct client *c, int status, bool head_only)
{
	char words[64];
	struct http_body body = {.type = "text/plain; charset=utf-8", .text = words};

	body.len = (size_t)snprintf(words, sizeof(words), "%d %s\n", status, reason(status));
	answer(c, status, &body, head_only);
}

static void obey(struct server *s, struct client *c)
{
	struct http_body body = {.text = NULL};
	struct request r;

	request_parse(&r, c->head, c->len);
	if (r.status == 200)
		r.status = s->page(r.path, &body, s->arg);
	if (r.status == 200)
		answer(c, 200, &body, r.head_only);
	else
		refuse(c, r.status, r.head_only);
	free(body.text);
}

static void client_read(struct server *s, struct client *c)
{
	ssize_t n = recv(c->fd, c->head + c->len, sizeof(c->head) - c->len, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		client_close(c);
		return;
	}
	c->len += (size_t)n;
	if (request_whole(c->head, c->len))
		obey(s, c);
	else if (c->len == sizeof(c->head))
		refuse(c, 431, false);
}

/*
 * Closed at once, with bytes of the client unread, the kernel would send a reset, which may
 * overtake the answer.
 */
static void client_write(struct client *c)
{
	ssize_t n = send(c->fd, c->answer + c->sent, c->answer_len - c->sent, MSG_NOSIGNAL);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		client_close(c);
		return;
	}
	c->sent += (size_t)n;
	if (c->sent < c->answer_len)
		return;
	shutdown(c->fd, SHUT_WR);
	c->state = LINGERING;
	c->deadline = now_ms() + LINGER_MS;
}

static void client_linger(struct client *c)
{
	ssize_t n = recv(c->fd, c->head, sizeof(c->head), 0);

	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		client_close(c);
}

static void client_serve(struct server *s, struct client *c)
{
	if (c->state == READING)
		client_read(s, c);
	else if (c->state == LINGERING)
		client_linger(c);
	if (c->fd >= 0 && c->state == WRITING)
		client_write(c);
}

/* A free place; where there is none, that of the client who has been here longest. */
static struct client *place(struct server *s)
{
	struct client *oldest = &s->client[0];

	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &s->client[i];

		if (c->fd < 0)
			return c;
		if (c->number < oldest->number)
			oldest = c;
	}
	client_close(oldest);
	return oldest;
}

static void client_accept(struct server *s)
{
	/* cppcheck-suppress nullPointer ; nobody wants to know who it is */
	int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct client *c;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			s->paused_until = now_ms() + PAUSE_MS;
		return;
	}
	c = place(s);
	c->fd = fd;
	c->state = READING;
	c->len = 0;
	c->number = s->accepted++;
	c->deadline = now_ms() + REQUEST_MS;
}

/* Who is late with its request is told; who is late with anything else is only closed. */
static void client_late(struct client *c)
{
	if (c->state != READING || !c->len) {
		client_close(c);
		return;
	}
	refuse(c, 408, false);
	if (c->fd >= 0)
		client_write(c);
}

/* Ends those that are late. The time to the next deadline, -1: there is none. */
static int deadlines(struct server *s)
{
	long long now = now_ms(), next = s->paused_until > now ? s->paused_until : -1;

	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &s->client[i];

		if (c->fd >= 0 && c->deadline <= now)
			client_late(c);
		if (c->fd >= 0 && (next < 0 || c->deadline < next))
			next = c->deadline;
	}
	return next < 0 ? -1 : next > now ? (int)(next - now) : 0;
}

/*
 * One look at who has something to say. poll() takes no more entries than the process may have
 * descriptors: only those are in the list that there are.
 */
static int look(struct server *s)
{
	struct pollfd p[1 + CLIENTS];
	struct client *of[1 + CLIENTS];
	int timeout = deadlines(s), n = 0, ready;

	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &s->client[i];

		if (c->fd < 0)
			continue;
		of[n] = c;
		p[n++] = (struct pollfd){.fd = c->fd,
					 .events = c->state == WRITING ? POLLOUT : POLLIN};
	}
	if (s->paused_until <= now_ms())
		p[n] = (struct pollfd){.fd = s->listener, .events = POLLIN};
	else
		p[n] = (struct pollfd){.fd = -1};
	ready = stop_poll(p, (unsigned)n + 1, timeout);
	if (ready < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++)
		if (p[i].revents)
			client_serve(s, of[i]);
	if (p[n].revents)
		client_accept(s);
	return 0;
}

int http_serve(int listener, http_page page, void *arg)
{
	struct server *s = calloc(1, sizeof(*s));
	int err = 0;

	if (!s)
		return -ENOMEM;
	s->listener = listener;
	s->page = page;
	s->arg = arg;
	for (unsigned i = 0; i < CLIENTS; i++)
		s->client[i].fd = -1;
	while (!err && !stop_asked())
		err = look(s);
	for (unsigned i = 0; i < CLIENTS; i++)
		if (s->client[i].fd >= 0)
			client_close(&s->client[i]);
	free(s);
	return err;
}
