/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Scripts on this machine's kernel: the test's process is alone in a network namespace whose only
 * way out is a tun device, and is itself what stands at its other end. The caller forks for each
 * case; root.
 */
#include "script_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static struct {
	int tun, listener, fd;
} k = {-1, -1, -1};

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void must_run(const char *command)
{
	if (system(command) != 0)
		script_fail("%s", command);
}

static void sysctl_text(const char *name, const char *value)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/sys/net/ipv4/%s", name);
	f = fopen(path, "w");
	if (!f || fprintf(f, "%s\n", value) < 0 || fclose(f) != 0)
		script_fail("%s: %s", path, strerror(errno));
}

static void sysctl(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	sysctl_text(name, text);
}

static void open_tun(void)
{
	struct ifreq ifr = {.ifr_flags = IFF_TUN | IFF_NO_PI};
	char command[400];

	k.tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	strcpy(ifr.ifr_name, "tun0");
	if (k.tun < 0 || ioctl(k.tun, TUNSETIFF, &ifr) != 0)
		script_fail("tun: %s", strerror(errno));
	snprintf(command, sizeof(command),
		 "ip link set lo up && ip link set tun0 mtu %u txqueuelen 10000 up && ip addr add "
		 "192.0.2.1/24 dev tun0 && "
		 "{ [ %u -lt 1280 ] || ip -6 addr add fd00::1/64 dev tun0 nodad; }",
		 script.peer.mtu, script.peer.mtu);
	must_run(command);
	snprintf(command, sizeof(command),
		 "ip route replace 192.0.2.0/24 dev tun0 proto kernel src 192.0.2.1 %s",
		 script.peer.metrics);
	if (script.peer.metrics)
		must_run(command);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void end(void)
{
	close_fd(&k.fd);
	close_fd(&k.listener);
	close_fd(&k.tun);
}

static void packet_left(uint8_t *p, unsigned n, uint64_t when)
{
	struct ip_info ip;
	const uint8_t *tcp;

	/* Router solicitations and the like. */
	if (!ip_parse(&ip, p, n))
		return;
	tcp = p + ip.hdr_len;
	if ((tcp[2] << 8 | tcp[3]) != PEER_PORT)
		return;
	script_left(tcp, n - ip.hdr_len, ip.tos, when);
}

static void collect(void)
{
	static uint8_t packet[70000];
	ssize_t n;

	while ((n = read(k.tun, packet, sizeof(packet))) > 0)
		packet_left(packet, (unsigned)n, now());
}

static void wait(uint64_t us)
{
	uint64_t until = now() + us;

	for (;;) {
		struct pollfd p = {.fd = k.tun, .events = POLLIN};
		uint64_t t = now();
		struct timespec left;

		collect();
		if (t >= until)
			return;
		left.tv_sec = (time_t)((until - t) / 1000000);
		left.tv_nsec = (long)((until - t) % 1000000) * 1000;
		ppoll(&p, 1, &left, NULL);
	}
}

static void put_packet(const uint8_t *p, unsigned n)
{
	if (write(k.tun, p, n) != (ssize_t)n)
		script_fail("write to tun: %s", strerror(errno));
}

static void raw_inject(uint8_t *tcp, unsigned n, uint8_t tos)
{
	int family = script.peer.family;
	uint8_t *p = malloc(n + 40);
	unsigned ip = ip_header(p, family, &script.theirs, &script.ours, tos, n);
	uint16_t sum = tcp_sum(family, &script.theirs, &script.ours, tcp, n);

	tcp[16] = (uint8_t)(sum >> 8);
	tcp[17] = (uint8_t)sum;
	memcpy(p + ip, tcp, n);
	put_packet(p, n + ip);
	free(p);
}

static void kernel_inject(uint8_t *tcp, unsigned n, uint8_t tos)
{
	raw_inject(tcp, n, tos);
	collect();
}

/* An IPv6 address is usable a while after it was set only: until a closed port answers. */
static void wait_for_path(void)
{
	uint64_t until = now() + 10000000;
	uint8_t syn[40] = {1, 1, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, F_SYN, 1, 0}, answer[2000];

	while (now() < until) {
		struct pollfd p = {.fd = k.tun, .events = POLLIN};
		struct ip_info ip;
		ssize_t n;

		syn[16] = syn[17] = 0;
		raw_inject(syn, 20, 0);
		poll(&p, 1, 20);
		while ((n = read(k.tun, answer, sizeof(answer))) > 0)
			if (ip_parse(&ip, answer, (size_t)n) && (answer[ip.hdr_len + 13] & F_RST))
				return;
	}
	script_fail("no answer through the tun device");
}

static void begin(void)
{
	if (unshare(CLONE_NEWNET) != 0)
		script_fail("unshare: %s", strerror(errno));
	open_tun();
	wait_for_path();
	sysctl("tcp_timestamps", script.o.timestamps);
	sysctl("tcp_sack", script.o.sack);
	sysctl("tcp_window_scaling", script.o.wscale);
	sysctl("tcp_ecn", script.o.ecn ? 1 : script.o.ecn_passive ? 2 : 0);
	sysctl("tcp_no_metrics_save", 1);
	sysctl("tcp_fastopen", 3);
	/* The engine by itself sees black holes without it. */
	sysctl("tcp_mtu_probing", script.cfg.mtu_probing ? (int)script.cfg.mtu_probing : 1);
	/* The kernel's own defaults, whatever this machine has made of them. */
	sysctl_text("tcp_rmem", "4096 131072 6291456");
	sysctl_text("tcp_wmem", "4096 16384 4194304");
}

static uint16_t plain_sum(const uint8_t *p, unsigned n)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < n; i += 2)
		sum += (uint32_t)(p[i] << 8 | p[i + 1]);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void kernel_icmp(enum tcp_icmp kind, uint32_t seq, uint32_t mtu)
{
	static const uint8_t codes[TCP_ICMP_COUNT] = {
		[TCP_ICMP_UNREACH_NET] = ICMP_NET_UNREACH,
		[TCP_ICMP_UNREACH_HOST] = ICMP_HOST_UNREACH,
		[TCP_ICMP_UNREACH_PORT] = ICMP_PORT_UNREACH,
		[TCP_ICMP_FRAG_NEEDED] = ICMP_FRAG_NEEDED,
		[TCP_ICMP_UNREACH_PROTO] = ICMP_PROT_UNREACH,
		[TCP_ICMP_SOURCE_ROUTE] = ICMP_SR_FAILED,
		[TCP_ICMP_HOST_UNKNOWN] = ICMP_HOST_UNKNOWN,
		[TCP_ICMP_HOST_ISOLATED] = ICMP_HOST_ISOLATED,
		[TCP_ICMP_REFUSED_NET] = ICMP_NET_ANO,
		[TCP_ICMP_REFUSED_HOST] = ICMP_HOST_ANO,
	};
	uint8_t p[20 + 8 + 20 + 8], *icmp = p + 20, *tcp = icmp + 28;
	uint16_t sum;

	if (script.peer.family != AF_INET || kind >= TCP_ICMP_PROHIBITED)
		script_skip("ICMPv6 is not built here");
	memset(p, 0, sizeof(p));
	ip_header(p, AF_INET, &script.theirs, &script.ours, 0, sizeof(p) - 20);
	p[9] = IPPROTO_ICMP;
	p[10] = p[11] = 0;
	sum = plain_sum(p, 20);
	p[10] = (uint8_t)(sum >> 8);
	p[11] = (uint8_t)sum;
	icmp[0] = ICMP_DEST_UNREACH;
	icmp[1] = codes[kind];
	icmp[6] = (uint8_t)(mtu >> 8);
	icmp[7] = (uint8_t)mtu;
	ip_header(icmp + 8, AF_INET, &script.ours, &script.theirs, 0, 1000);
	tcp[0] = OUR_PORT >> 8;
	tcp[1] = (uint8_t)OUR_PORT;
	tcp[2] = PEER_PORT >> 8;
	tcp[3] = (uint8_t)PEER_PORT;
	for (unsigned i = 0; i < 4; i++)
		tcp[4 + i] = (uint8_t)(seq >> (24 - 8 * i));
	sum = plain_sum(icmp, sizeof(p) - 20);
	icmp[2] = (uint8_t)(sum >> 8);
	icmp[3] = (uint8_t)sum;
	put_packet(p, sizeof(p));
	collect();
}

/* --- the socket */

static void set_int(int fd, int level, int name, int value)
{
	if (setsockopt(fd, level, name, &value, sizeof(value)) != 0)
		script_fail("setsockopt(%d, %d, %d): %s", level, name, value, strerror(errno));
}

#define WHEN_CHANGED(field, level, name, value)                                                    \
	do {                                                                                       \
		if (o->field != d.field)                                                           \
			set_int(fd, level, name, (int)(value));                                    \
	} while (0)

/* What differs from the defaults: a buffer size that is set is fixed. */
static void apply(int fd)
{
	const struct tcp_opts *o = &script.o;
	struct tcp_opts d;

	tcp_opts_default(&d);
	WHEN_CHANGED(sndbuf, SOL_SOCKET, SO_SNDBUFFORCE, o->sndbuf / 2);
	WHEN_CHANGED(rcvbuf, SOL_SOCKET, SO_RCVBUFFORCE, o->rcvbuf / 2);
	WHEN_CHANGED(user_timeout_ms, IPPROTO_TCP, TCP_USER_TIMEOUT, o->user_timeout_ms);
	WHEN_CHANGED(keepidle_s, IPPROTO_TCP, TCP_KEEPIDLE, o->keepidle_s);
	WHEN_CHANGED(keepintvl_s, IPPROTO_TCP, TCP_KEEPINTVL, o->keepintvl_s);
	WHEN_CHANGED(keepcnt, IPPROTO_TCP, TCP_KEEPCNT, o->keepcnt);
	WHEN_CHANGED(notsent_lowat, IPPROTO_TCP, TCP_NOTSENT_LOWAT, o->notsent_lowat);
	WHEN_CHANGED(window_clamp, IPPROTO_TCP, TCP_WINDOW_CLAMP, o->window_clamp);
	WHEN_CHANGED(linger2_ms, IPPROTO_TCP, TCP_LINGER2, o->linger2_ms / 1000);
	WHEN_CHANGED(maxseg, IPPROTO_TCP, TCP_MAXSEG, o->maxseg);
	WHEN_CHANGED(defer_accept_s, IPPROTO_TCP, TCP_DEFER_ACCEPT, o->defer_accept_s);
	WHEN_CHANGED(syn_retries, IPPROTO_TCP, TCP_SYNCNT, o->syn_retries);
	set_int(fd, IPPROTO_TCP, TCP_NODELAY, o->nodelay);
	set_int(fd, IPPROTO_TCP, TCP_CORK, o->cork);
	WHEN_CHANGED(quickack, IPPROTO_TCP, TCP_QUICKACK, o->quickack);
	set_int(fd, SOL_SOCKET, SO_KEEPALIVE, o->keepalive);
	set_int(fd, SOL_SOCKET, SO_OOBINLINE, o->oobinline);
	if (o->cc == TCP_CC_NEWRENO)
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	else
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
}

static socklen_t address(struct sockaddr_storage *ss, const struct in6_addr *a, uint16_t port)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *four = (struct sockaddr_in *)ss;

	memset(ss, 0, sizeof(*ss));
	if (script.peer.family == AF_INET6) {
		six->sin6_family = AF_INET6;
		six->sin6_addr = *a;
		six->sin6_port = htons(port);
		return sizeof(*six);
	}
	four->sin_family = AF_INET;
	memcpy(&four->sin_addr, a->s6_addr + 12, 4);
	four->sin_port = htons(port);
	return sizeof(*four);
}

static int bound_socket(void)
{
	struct sockaddr_storage ss;
	socklen_t len = address(&ss, &script.ours, OUR_PORT);
	int fd = socket(script.peer.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	apply(fd);
	if (bind(fd, (struct sockaddr *)&ss, len) != 0)
		script_fail("bind: %s", strerror(errno));
	return fd;
}

static void kernel_listen(void)
{
	k.listener = bound_socket();
	if (script.peer.fast_open) {
		set_int(k.listener, IPPROTO_TCP, TCP_FASTOPEN, (int)script.peer.fast_open);
		if (setsockopt(k.listener, IPPROTO_TCP, TCP_FASTOPEN_KEY, FAST_OPEN_KEY, 16) != 0)
			script_fail("TCP_FASTOPEN_KEY: %s", strerror(errno));
	}
	if (listen(k.listener, script.peer.backlog) != 0)
		script_fail("listen: %s", strerror(errno));
}

static int kernel_connect(void)
{
	struct sockaddr_storage ss;
	socklen_t len = address(&ss, &script.theirs, PEER_PORT);
	int rc;

	k.fd = bound_socket();
	rc = connect(k.fd, (struct sockaddr *)&ss, len) == 0 || errno == EINPROGRESS ? 0 : -errno;
	collect();
	return rc;
}

static int kernel_connect_with(const uint8_t *p, uint32_t n)
{
	struct sockaddr_storage ss;
	socklen_t len = address(&ss, &script.theirs, PEER_PORT);
	int rc;

	k.fd = bound_socket();
	set_int(k.fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, !script.peer.asks);
	rc = (int)sendto(k.fd, p, n, MSG_FASTOPEN, (struct sockaddr *)&ss, len);
	rc = rc < 0 ? -errno : rc;
	collect();
	return rc;
}

static int kernel_accept(void)
{
	int fd = accept4(k.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return -errno;
	k.fd = fd;
	return 0;
}

static int kernel_send(const uint8_t *p, uint32_t n, int flags)
{
	int rc = (int)send(k.fd, p, n, flags | MSG_NOSIGNAL);

	rc = rc < 0 ? -errno : rc;
	collect();
	return rc;
}

static int kernel_recv(uint8_t *p, uint32_t n, int flags)
{
	int rc = (int)recv(k.fd, p, n, flags);

	rc = rc < 0 ? -errno : rc;
	collect();
	return rc;
}

static int kernel_shutdown(int how)
{
	int rc = shutdown(k.fd, how) == 0 ? 0 : -errno;

	collect();
	return rc;
}

static void kernel_close(bool abort)
{
	struct linger hard = {1, 0};

	if (k.fd < 0) {
		close_fd(&k.listener);
	} else {
		if (abort)
			setsockopt(k.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
		close_fd(&k.fd);
	}
	collect();
}

static int kernel_error(void)
{
	int err = 0;
	socklen_t len = sizeof(err);

	getsockopt(k.fd, SOL_SOCKET, SO_ERROR, &err, &len);
	return err;
}

static uint32_t kernel_ready(void)
{
	static const struct {
		short event;
		uint32_t ours;
	} map[] = {{POLLIN, TCP_EV_IN},	  {POLLOUT, TCP_EV_OUT}, {POLLERR, TCP_EV_ERR},
		   {POLLHUP, TCP_EV_HUP}, {POLLPRI, TCP_EV_PRI}, {POLLRDHUP, TCP_EV_RDHUP}};
	struct pollfd p = {.fd = k.fd, .events = POLLIN | POLLOUT | POLLPRI | POLLRDHUP};
	uint32_t events = 0;

	poll(&p, 1, 0);
	for (unsigned i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		events |= p.revents & map[i].event ? map[i].ours : 0;
	return events;
}

static void diag_id(struct inet_diag_sockid *id)
{
	size_t skip = script.peer.family == AF_INET ? 12 : 0;

	id->idiag_sport = htons(OUR_PORT);
	id->idiag_dport = htons(PEER_PORT);
	memcpy(id->idiag_src, script.ours.s6_addr + skip, 16 - skip);
	memcpy(id->idiag_dst, script.theirs.s6_addr + skip, 16 - skip);
	id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

/* Also of a connection whose socket is closed: asked of sock_diag(7). */
static enum tcp_state kernel_state(void)
{
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} ask = {{sizeof(ask), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0},
		 {.sdiag_protocol = IPPROTO_TCP}};
	uint8_t answer[2000];
	struct nlmsghdr *h = (struct nlmsghdr *)answer;
	enum tcp_state st = TCPS_CLOSED;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	ask.r.sdiag_family = (uint8_t)script.peer.family;
	diag_id(&ask.r.id);
	if (send(fd, &ask, sizeof(ask), 0) == sizeof(ask) &&
	    recv(fd, answer, sizeof(answer), 0) > 0 && h->nlmsg_type == SOCK_DIAG_BY_FAMILY) {
		const struct inet_diag_msg *m = NLMSG_DATA(h);

		/* The exact tuple, or else the listener. */
		if (m->idiag_state != TCPS_LISTEN)
			st = m->idiag_state == 12 ? TCPS_SYN_RECV : (enum tcp_state)m->idiag_state;
	}
	close(fd);
	return st;
}

static void kernel_info(union tcp_info_all *ti)
{
	socklen_t len = sizeof(*ti);

	getsockopt(k.fd, IPPROTO_TCP, TCP_INFO, ti, &len);
}

static void kernel_set_opts(void)
{
	apply(k.fd >= 0 ? k.fd : k.listener);
	collect();
}

static uint32_t kernel_inq(void)
{
	int n = 0;

	ioctl(k.fd, FIONREAD, &n);
	return (uint32_t)n;
}

const struct backend kernel_backend = {
	"kernel",
	false,
	begin,
	end,
	now,
	wait,
	kernel_inject,
	kernel_icmp,
	kernel_listen,
	kernel_connect,
	kernel_connect_with,
	kernel_accept,
	kernel_send,
	kernel_recv,
	kernel_shutdown,
	kernel_close,
	kernel_error,
	kernel_ready,
	kernel_state,
	kernel_info,
	kernel_set_opts,
	kernel_inq,
};
