/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * signal_gap gap|storm|kernel ADDRESS PEER PORT
 *
 * Signals for a thread that waits for a datagram, of which PEER's port echoes each. Built once more
 * as a library (-DINTERPOSER) this file is a ppoll() which raises a signal in its own thread before
 * it asks the kernel: what it is preloaded behind believes to be asleep, and is not yet.
 *
 * gap: each kind of wait gets its signal there. storm: another thread sends signals at random;
 * before that, what a handler for one time (SA_RESETHAND) is. What a call may answer is what the
 * kernel's says (signal(7)); who sleeps on is killed by alarm().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef INTERPOSER
static volatile int shots, shot_sig;

/* The next n calls of ppoll() are preceded by sig. */
void gap_load(int sig, int n)
{
	shot_sig = sig;
	shots = n;
}

int gap_left(void)
{
	return shots;
}

int ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
	static int (*next)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);

	if (!next)
		next = (int (*)(struct pollfd *, nfds_t, const struct timespec *,
				const sigset_t *))dlsym(RTLD_NEXT, "ppoll");
	if (shots > 0) {
		shots--;
		pthread_kill(pthread_self(), shot_sig);
	}
	return next(p, n, t, mask);
}
#else

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : failed(#what, __LINE__))
#define PATIENCE_S 60 /* for one wait, on a busy machine */

enum how {
	RECV,
	RECV_TIMED,
	POLL,
	POLL_TIMED,
	SELECT,
	EPOLL,
	PPOLL,
	PSELECT,
	EPOLL_PWAIT,
	NUM_HOW
};
static const char *const how_name[] = {
	"recv",	      "recv with a timeout", "poll",  "poll with a timeout",
	"select",     "epoll_wait",	     "ppoll", "pselect",
	"epoll_pwait"};

static int fd, timed_fd, epfd;
static volatile int how; /* what waits now */
static volatile sig_atomic_t ran, leaves, answers;
static sigjmp_buf jump;
static sigset_t none;

/* The end, also from a handler. NOLINTBEGIN(bugprone-signal-handler) */
static void failed(const char *what, int line)
{
	fprintf(stderr, "line %d, %s: %s (errno %s)\n", line, how_name[how], what, strerror(errno));
	exit(1);
}
/* NOLINTEND(bugprone-signal-handler) */

static int udp(const char *from, const char *to, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(s >= 0 && inet_pton(AF_INET, from, &a.sin_addr) == 1);
	CHECK(!bind(s, (struct sockaddr *)&a, sizeof(a)));
	a.sin_port = htons((uint16_t)port);
	CHECK(inet_pton(AF_INET, to, &a.sin_addr) == 1);
	CHECK(!connect(s, (struct sockaddr *)&a, sizeof(a)));
	return s;
}

static int wait_fd(void)
{
	return how == RECV_TIMED ? timed_fd : fd;
}

/* Sleeps for a datagram. >= 0 or -errno. */
static int wait_once(void)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct epoll_event ev;
	fd_set rd;
	char c;
	ssize_t r;

	FD_ZERO(&rd);
	FD_SET(fd, &rd);
	alarm(PATIENCE_S);
	switch (how) {
	case RECV:
	case RECV_TIMED:
		r = recv(wait_fd(), &c, 1, MSG_PEEK);
		break;
	case POLL:
		r = poll(&p, 1, -1);
		break;
	case POLL_TIMED:
		r = poll(&p, 1, 1000 * 2 * PATIENCE_S);
		break;
	case SELECT:
		r = select(fd + 1, &rd, NULL, NULL, NULL);
		break;
	case EPOLL:
		r = epoll_wait(epfd, &ev, 1, -1);
		break;
	case PPOLL:
		r = ppoll(&p, 1, NULL, &none);
		break;
	case PSELECT:
		r = pselect(fd + 1, &rd, NULL, NULL, NULL, &none);
		break;
	default:
		r = epoll_pwait(epfd, &ev, 1, -1, &none);
	}
	return r < 0 ? -errno : (int)r;
}

static void ask(void)
{
	CHECK(send(wait_fd(), "?", 1, 0) == 1);
}

static void take(void)
{
	char c;

	CHECK(recv(wait_fd(), &c, 1, MSG_DONTWAIT) == 1);
}

static void handler(int sig)
{
	int err = errno; /* NOLINT(bugprone-signal-handler) */

	(void)sig;
	ran++;
	if (answers)
		ask();
	errno = err;
	if (leaves)
		siglongjmp(jump, 1);
}

static void handle(int flags)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags};

	sigemptyset(&act.sa_mask);
	CHECK(!sigaction(SIGUSR1, &act, NULL));
}

/* signal(7): only a recv() without a timeout goes on. */
static bool goes_on(int flags)
{
	return flags & SA_RESTART && how == RECV;
}

/* One datagram there and back: whatever a handler left behind must not stand in its way. */
static void works(void)
{
	ask();
	CHECK(wait_once() >= 0);
	take();
}

static void one_signal(void (*load)(int, int), int flags)
{
	int before = ran;

	handle(flags);
	answers = goes_on(flags); /* it is the handler that has the wait end */
	load(SIGUSR1, 1);
	if (answers) {
		CHECK(wait_once() == 1);
		take();
	} else {
		CHECK(wait_once() == -EINTR);
	}
	CHECK(ran == before + 1);
	answers = 0;
}

/* A handler that does not come back. */
static void one_leave(void (*load)(int, int))
{
	volatile int before = ran;

	leaves = 1;
	load(SIGUSR1, 1);
	if (!sigsetjmp(jump, 1)) {
		wait_once();
		CHECK(!"siglongjmp() came back");
	}
	leaves = 0;
	CHECK(ran == before + 1);
	for (int i = 0; i < 3; i++)
		works();
}

static void gap(void)
{
	void (*load)(int, int) = (void (*)(int, int))dlsym(RTLD_DEFAULT, "gap_load");
	int (*left)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "gap_left");
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct timespec soon = {.tv_nsec = 20000000};
	sigset_t block;
	int before;

	CHECK(load && left);
	for (how = 0; how < NUM_HOW; how++) {
		works();
		one_signal(load, 0);
		CHECK(!left());
		one_signal(load, SA_RESTART);
		one_signal(load, SA_RESETHAND);
		handle(0);
		works();
		one_leave(load);
		handle(SA_RESETHAND);
		one_leave(load);
		printf("%s: interrupted, restarted, left\n", how_name[how]);
	}
	how = PPOLL;
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	/* Blocked, but for the wait; and blocked by the wait. */
	CHECK(!sigprocmask(SIG_BLOCK, &block, NULL));
	one_signal(load, 0);
	before = ran;
	CHECK(!sigprocmask(SIG_UNBLOCK, &block, NULL) && ran == before);
	load(SIGUSR1, 1);
	CHECK(ppoll(&p, 1, &soon, &block) == 0 && ran == before + 1);
	printf("the masks hold\n");
}

/* --- storm --- */

#define ROUNDS 3000

static pthread_t waiter;
static _Atomic bool over;
static _Atomic unsigned sent;
static int storm_sig;
static volatile sig_atomic_t got, in_call, interrupts, storm_flags;

static void storm_handle(int flags);

static void counted(int sig)
{
	(void)sig;
	storm_handle(storm_flags);
	got++;
	if (in_call && leaves && got % 8 == 0)
		siglongjmp(jump, 1);
}

static void *shoot(void *arg)
{
	union sigval v = {0};
	unsigned seed = 3;

	while (!over) {
		/* More at once than the library has room for. */
		int n = rand_r(&seed) % 32 ? 1 : 40;

		/* A real-time signal is queued: each runs its handler once. */
		while (n-- > 0)
			if (pthread_sigqueue(waiter, storm_sig, v) == 0)
				sent++;
		usleep((useconds_t)(rand_r(&seed) % 4 ? rand_r(&seed) % 100 : 0));
	}
	return arg;
}

static void storm_handle(int flags)
{
	struct sigaction act = {.sa_handler = counted, .sa_flags = flags};

	sigemptyset(&act.sa_mask);
	storm_flags = flags;
	CHECK(!sigaction(storm_sig, &act, NULL));
}

/* Waits until the answer is there, through whatever interrupts it. */
static void storm_wait(int flags)
{
	for (;;) {
		int before = got, r;

		if (sigsetjmp(jump, 1))
			continue;
		in_call = 1;
		r = wait_once();
		in_call = 0;
		if (r > 0)
			return;
		CHECK(r == -EINTR && got != before && !goes_on(flags));
		interrupts++;
	}
}

static void stands(sighandler_t what, int flags)
{
	struct sigaction now;

	CHECK(!sigaction(SIGUSR1, NULL, &now));
	CHECK(now.sa_handler == what);
	CHECK((now.sa_flags & (int)(SA_RESETHAND | SA_RESTART | SA_ONSTACK | SA_SIGINFO)) == flags);
}

/* How a child ends that gets sig twice. */
static int twice(int sig, int flags)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
	int status;
	pid_t child = fork();

	if (!child) {
		int before = ran;

		CHECK(!sigaction(sig, &act, NULL));
		raise(sig);
		CHECK(ran == before + 1);
		raise(sig);
		_exit(7);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* siginterrupt() */
/* What sigaction() says of a handler for one time, and what comes after it. */
static void once(void)
{
	handle(SA_RESETHAND | SA_RESTART);
	stands(handler, SA_RESETHAND | SA_RESTART);
	raise(SIGUSR1);
	stands(SIG_DFL, SA_RESETHAND | SA_RESTART);
	handle(SA_RESETHAND | SA_ONSTACK);
	CHECK(!siginterrupt(SIGUSR1, 0));
	stands(handler, SA_RESETHAND | SA_RESTART | SA_ONSTACK);
	CHECK(signal(SIGUSR1, SIG_DFL) == handler);
	stands(SIG_DFL, SA_RESTART);
	CHECK(signal(SIGUSR1, handler) == SIG_DFL);
	stands(handler, SA_RESTART);
	CHECK(!siginterrupt(SIGUSR1, 1) && signal(SIGUSR1, handler) == handler);
	stands(handler, 0);
	CHECK(!siginterrupt(SIGUSR1, 0));
	handle(SA_RESETHAND | SA_NODEFER);
	CHECK(signal(SIGUSR1, SIG_IGN) == handler);
	raise(SIGUSR1);
	stands(SIG_IGN, SA_RESTART);
	CHECK(WTERMSIG(twice(SIGUSR1, SA_RESETHAND)) == SIGUSR1);
	CHECK(WTERMSIG(twice(SIGSEGV, SA_RESETHAND)) == SIGSEGV);
	CHECK(WTERMSIG(twice(SIGUSR1, SA_RESETHAND | SA_NODEFER)) == SIGUSR1);
	CHECK(WEXITSTATUS(twice(SIGCHLD, SA_RESETHAND)) == 7);
	printf("once is once\n");
}

static void storm(int once_too)
{
	pthread_t thread;
	int kinds[NUM_HOW] = {0};

	storm_sig = SIGRTMIN + 1;
	waiter = pthread_self();
	storm_handle(0);
	CHECK(!pthread_create(&thread, NULL, shoot, NULL));
	for (volatile unsigned i = 0; i < ROUNDS; i++) {
		static unsigned seed = 7;
		int flags = rand_r(&seed) % 2 ? SA_RESTART : 0;

		/* The handler sets it anew. */
		flags |= rand_r(&seed) % 2 ? once_too : 0;

		how = rand_r(&seed) % NUM_HOW;
		leaves = rand_r(&seed) % 4 == 0;
		kinds[how]++;
		storm_handle(flags);
		while (send(wait_fd(), "?", 1, 0) != 1)
			CHECK(errno == EINTR);
		storm_wait(flags);
		take();
	}
	over = true;
	pthread_join(thread, NULL);
	CHECK(got == (int)sent);
	for (how = 0; how < NUM_HOW; how++)
		CHECK(kinds[how] > 0);
	printf("%d datagrams, %d signals, each handled once; %d waits interrupted\n", ROUNDS, got,
	       interrupts);
}

int main(int argc, char **argv)
{
	struct timeval limit = {.tv_sec = 2 * PATIENCE_S};
	struct epoll_event ev = {.events = EPOLLIN};

	if (argc != 5)
		return 2;
	sigemptyset(&none);
	fd = udp(argv[2], argv[3], atoi(argv[4]));
	timed_fd = udp(argv[2], argv[3], atoi(argv[4]));
	CHECK(!setsockopt(timed_fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)));
	epfd = epoll_create1(0);
	CHECK(!epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev));
	if (!strcmp(argv[1], "gap")) {
		gap();
	} else {
		works();
		once();
		storm(strcmp(argv[1], "kernel") ? (int)SA_RESETHAND : 0);
	}
	return 0;
}
#endif
