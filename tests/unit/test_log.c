/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The log: form of a line, levels, destinations, and that it never disturbs the program. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log_capture.h"
#include "runtime/libc.h"
#include "runtime/log_syslog.h"
#include "runtime/own_fd.h"

static void a_line_has_module_level_and_text(void **state)
{
	static const struct {
		int level;
		const char *line;
	} t[] = {
		{LOG_PANIC, " VMA PANIC: x 7\n"},     {LOG_ERROR, " VMA ERROR: x 7\n"},
		{LOG_WARN, " VMA WARNING: x 7\n"},    {LOG_INFO, " VMA INFO: x 7\n"},
		{LOG_DETAILS, " VMA DETAILS: x 7\n"}, {LOG_DEBUG, " VMA DEBUG: x 7\n"},
		{LOG_FINE, " VMA FINE: x 7\n"},	      {LOG_FINER, " VMA FINER: x 7\n"},
		{LOG_ALL, " VMA ALL: x 7\n"},
	};
	unsigned i;

	(void)state;
	capture_at(LOG_ALL);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		capture_clear();
		log_at(t[i].level, "x %d", 7);
		assert_string_equal(captured(), t[i].line);
	}
}

static void the_level_decides(void **state)
{
	int level, at;

	(void)state;
	for (at = LOG_NONE; at <= LOG_ALL; at++) {
		capture_at(at);
		for (level = LOG_PANIC; level <= LOG_ALL; level++)
			log_at(level, "line");
		assert_int_equal(captured_lines(), at + 1);
	}
}

static void what_is_tried_again_is_said_once(void **state)
{
	struct log_told told = {0};

	(void)state;
	capture_at(LOG_INFO);
	capture_clear();
	for (int turn = 0; turn < 3; turn++) {
		log_news_begin(&told);
		log_warn("%s: cannot be had", "eth0");
		log_info("%s: cannot be had", turn ? "eth0" : "eth1");
		log_box("two\nlines");
		log_news_end();
	}
	log_warn("%s: cannot be had", "eth0");
	print_message("%s", captured());
	/* Two lines, a box of four, and what is said outside. */
	assert_int_equal(captured_lines(), 7);
	capture_at(LOG_DEBUG);
	capture_clear();
	log_news_begin(&told);
	log_warn("%s: cannot be had", "eth0");
	log_news_end();
	assert_string_equal(captured(), " VMA DEBUG: eth0: cannot be had\n");
	told = (struct log_told){0};
	log_news_begin(&told);
	for (unsigned i = 0; i < 3 * sizeof(told.lines) / sizeof(told.lines[0]); i++)
		log_info("line %u", i);
	log_news_end();
	assert_int_equal(captured_lines(), 1 + 3 * sizeof(told.lines) / sizeof(told.lines[0]));
}

/* log_panic() in a child: the signal that has ended it. */
static int panic_at(enum log_level level)
{
	int status;
	pid_t pid;

	capture_at(level);
	capture_clear();
	pid = fork();
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGABRT, SIG_DFL); /* the test program's own would go on */
		log_panic("no %s is left", "way");
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	return WTERMSIG(status);
}

static void a_panic_is_the_last_line_and_ends_the_process_by_sigabrt(void **state)
{
	(void)state;
	assert_int_equal(panic_at(LOG_PANIC), SIGABRT);
	assert_string_equal(captured(), " VMA PANIC: no way is left\n");
}

static void a_panic_ends_the_process_also_where_nothing_is_logged(void **state)
{
	(void)state;
	assert_int_equal(panic_at(LOG_NONE), SIGABRT);
	assert_string_equal(captured(), "");
}

static void details_stand_in_front(void **state)
{
	struct log_config c = {.level = LOG_INFO, .file = capture_path};
	unsigned pid, tid, n;
	double ms;

	(void)state;
	for (c.details = 0; c.details <= 3; c.details++) {
		log_setup(&c);
		capture_clear();
		log_info("hello");
		n = 0;
		switch (c.details) {
		case 0:
			assert_string_equal(captured(), " VMA INFO: hello\n");
			continue;
		case 1:
			assert_int_equal(sscanf(captured(), " Tid: %u VMA INFO: hello%n", &tid, &n),
					 1);
			pid = (unsigned)getpid();
			break;
		case 2:
			assert_int_equal(sscanf(captured(), " Pid: %u Tid: %u VMA INFO: hello%n",
						&pid, &tid, &n),
					 2);
			break;
		case 3:
			assert_int_equal(sscanf(captured(),
						" Time: %lf Pid: %u Tid: %u VMA INFO: hello%n", &ms,
						&pid, &tid, &n),
					 3);
			assert_true(ms >= 0 && ms < 600000);
			assert_int_equal(strcspn(captured(), "P"), strlen(" Time: 12345.789 "));
			break;
		}
		assert_int_equal(n + 1, strlen(captured()));
		assert_int_equal(pid, getpid());
		assert_int_equal(tid, gettid());
	}
}

static void what_a_stranger_says_stays_on_its_line(void **state)
{
	static char longer[5000];

	(void)state;
	capture_at(LOG_INFO);
	log_info("a\nb\r\033[31mc\x7f\td\n\n");
	assert_string_equal(captured(), " VMA INFO: a?b??[31mc?\td\n");
	capture_clear();
	log_info("%s", "\xc3\xa9t\xc3\xa9"); /* UTF-8 is left alone */
	assert_string_equal(captured(), " VMA INFO: \xc3\xa9t\xc3\xa9\n");
	memset(longer, 'y', sizeof(longer) - 1);
	capture_clear();
	log_info("%s", longer);
	assert_int_equal(captured_lines(), 1);
	assert_true(strlen(captured()) > 2000 && strlen(captured()) < 2050);
	assert_string_equal(captured() + strlen(captured()) - 5, "y...\n");
}

static void errno_is_kept(void **state)
{
	(void)state;
	capture_at(LOG_INFO);
	errno = ENOTTY;
	log_info("x");
	assert_int_equal(errno, ENOTTY);
}

/* stderr becomes fd while the test runs; returns the real one. */
static int stderr_swap(int fd)
{
	int real = dup(2);

	assert_true(real >= 0);
	assert_int_equal(dup2(fd, 2), 2);
	return real;
}

static void stderr_back(int real)
{
	assert_int_equal(dup2(real, 2), 2);
	close(real);
}

/* On a packet socket each write is one packet. */
static void a_line_is_one_write(void **state)
{
	struct log_config c = {.level = LOG_INFO, .details = 3, .file = ""};
	char buf[4096];
	int sv[2], real;
	ssize_t n;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv), 0);
	real = stderr_swap(sv[1]);
	log_stderr_note(); /* it was a socket from the start, as under systemd */
	log_setup(&c);
	log_info("one");
	log_error("two");
	stderr_back(real);
	log_stderr_note();
	n = recv(sv[0], buf, sizeof(buf), MSG_DONTWAIT);
	assert_true(n > 10 && buf[n - 1] == '\n');
	assert_non_null(memmem(buf, (size_t)n, "INFO: one\n", 10));
	n = recv(sv[0], buf, sizeof(buf), MSG_DONTWAIT);
	assert_true(n > 10 && buf[n - 1] == '\n');
	assert_non_null(memmem(buf, (size_t)n, "ERROR: two\n", 11));
	assert_int_equal(recv(sv[0], buf, sizeof(buf), MSG_DONTWAIT), -1);
	close(sv[0]);
	close(sv[1]);
}

/* A daemon closes stderr; its next socket is number 2, and what it sends is its own. */
static void no_line_goes_into_a_socket_of_the_program(void **state)
{
	struct log_config c = {.level = LOG_INFO, .file = ""};
	int sv[2], null = open("/dev/null", O_WRONLY | O_CLOEXEC), real;
	char buf[100];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	real = stderr_swap(null);
	log_stderr_note();
	log_setup(&c);
	assert_int_equal(dup2(sv[1], 2), 2);
	log_error("secret");
	/* Before anything was logged, too. */
	log_setup(&c);
	log_error("secret");
	stderr_back(real);
	log_stderr_note();
	assert_int_equal(recv(sv[0], buf, sizeof(buf), MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	close(sv[0]);
	close(sv[1]);
	close(null);
}

/* What is logged when a file that is opened so stands at number 2, which was open before or not. */
static size_t logged_into(int flags, bool was_open)
{
	struct log_config c = {.level = LOG_INFO, .file = ""};
	char path[] = "/tmp/test_log.XXXXXX";
	int made = mkstemp(path), fd = open(path, flags | O_CLOEXEC), real;
	struct stat st;

	assert_true(made >= 0 && fd >= 0);
	real = dup(2);
	if (!was_open)
		close(2);
	log_stderr_note();
	assert_int_equal(dup2(fd, 2), 2);
	log_setup(&c);
	log_error("said");
	stderr_back(real);
	log_stderr_note();
	assert_int_equal(fstat(fd, &st), 0);
	close(made);
	close(fd);
	unlink(path);
	return (size_t)st.st_size;
}

static void no_line_goes_into_a_file_of_the_program(void **state)
{
	(void)state;
	for (int was_open = 0; was_open < 2; was_open++) {
		assert_int_equal(logged_into(O_RDWR, was_open), 0);
		assert_int_equal(logged_into(O_WRONLY, was_open), 0);
		assert_int_equal(logged_into(O_WRONLY | O_APPEND, was_open),
				 strlen(" VMA ERROR: said\n"));
	}
}

/* A pipe at a number that was free may be the program's; one in place of standard error is not. */
static void a_pipe_is_a_redirection_where_there_was_standard_error(void **state)
{
	struct log_config c = {.level = LOG_INFO, .file = ""};
	int p[2], real = dup(2);
	char buf[100];

	(void)state;
	for (int was_open = 0; was_open < 2; was_open++) {
		assert_int_equal(pipe2(p, O_NONBLOCK | O_CLOEXEC), 0);
		if (!was_open)
			close(2);
		log_stderr_note();
		assert_int_equal(dup2(p[1], 2), 2);
		log_setup(&c);
		log_error("said");
		assert_int_equal(dup2(real, 2), 2);
		assert_int_equal(read(p[0], buf, sizeof(buf)),
				 was_open ? (int)strlen(" VMA ERROR: said\n") : -1);
		close(p[0]);
		close(p[1]);
	}
	close(real);
	log_stderr_note();
}

static void a_closed_stderr_is_no_trouble(void **state)
{
	struct log_config c = {.level = LOG_INFO, .file = ""};
	int real = dup(2);

	(void)state;
	close(2);
	errno = 0;
	log_setup(&c);
	log_error("into nothing");
	assert_int_equal(errno, 0);
	assert_int_equal(dup2(real, 2), 2);
	close(real);
}

static void no_sigpipe_when_the_reader_is_gone(void **state)
{
	struct log_config c = {.level = LOG_INFO, .file = ""};
	struct sigaction old, dfl = {.sa_handler = SIG_DFL};
	sigset_t mask, pending;
	int p[2], real;

	(void)state;
	assert_int_equal(pipe(p), 0);
	sigaction(SIGPIPE, &dfl, &old);
	real = stderr_swap(p[1]);
	log_setup(&c);
	close(p[0]);
	log_error("nobody hears");
	stderr_back(real);
	sigaction(SIGPIPE, &old, NULL);
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	assert_int_equal(sigismember(&mask, SIGPIPE), 0);
	sigpending(&pending);
	assert_int_equal(sigismember(&pending, SIGPIPE), 0);
	close(p[1]);
}

static void a_file_is_appended_to(void **state)
{
	(void)state;
	capture_at(LOG_INFO);
	log_info("first");
	assert_int_equal(log_to_file(capture_path), 0);
	log_info("second");
	assert_string_equal(captured(), " VMA INFO: first\n VMA INFO: second\n");
}

static void the_file_takes_no_low_number(void **state)
{
	int before, after;

	(void)state;
	capture_at(LOG_INFO);
	before = dup(0);
	close(before);
	assert_int_equal(log_to_file(capture_path), 0);
	after = dup(0);
	close(after);
	assert_int_equal(before, after);
}

/* Daemons close every number they do not know; the next file of theirs may get ours. */
static void a_closed_log_file_is_opened_again(void **state)
{
	struct stat log_st, st;
	int fd, other;

	(void)state;
	capture_at(LOG_INFO);
	log_info("before");
	assert_int_equal(stat(capture_path, &log_st), 0);
	for (fd = (int)own_fd_next(3); fd < (int)OWN_FD_MAX; fd = (int)own_fd_next(fd + 1))
		if (!fstat(fd, &st) && st.st_ino == log_st.st_ino && st.st_dev == log_st.st_dev)
			break;
	assert_true(own_fd_is(fd));
	other = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(dup2(other, fd), fd);
	log_info("after");
	assert_string_equal(captured(), " VMA INFO: before\n VMA INFO: after\n");
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISCHR(st.st_mode)); /* the program's descriptor is still the program's */
	assert_false(own_fd_is(fd));
	close(fd);
	close(other);
}

static void a_file_that_cannot_be_opened_is_said_on_stderr(void **state)
{
	struct log_config c = {.level = LOG_INFO, .file = "/nonexistent/log"};
	char buf[500] = "";
	int p[2], real;

	(void)state;
	assert_int_equal(pipe(p), 0);
	real = stderr_swap(p[1]);
	log_setup(&c);
	log_info("goes on");
	stderr_back(real);
	assert_true(read(p[0], buf, sizeof(buf) - 1) > 0);
	assert_string_equal(buf, " VMA WARNING: VMA_LOG_FILE: cannot append to /nonexistent/log: "
				 "No such file or directory; "
				 "the log goes to standard error\n VMA INFO: goes on\n");
	assert_int_equal(log_to_file("/nonexistent/log"), -ENOENT);
	close(p[0]);
	close(p[1]);
}

static void colours_on_a_terminal_only(void **state)
{
	struct log_config c = {.level = LOG_ALL, .colors = true, .file = ""};
	int pty = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), tty, real;
	char buf[1000] = "";

	(void)state;
	assert_true(pty >= 0);
	assert_int_equal(grantpt(pty), 0);
	assert_int_equal(unlockpt(pty), 0);
	tty = open(ptsname(pty), O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(tty >= 0);
	real = stderr_swap(tty);
	log_setup(&c);
	log_error("e");
	log_warn("w");
	log_info("i");
	log_at(LOG_FINE, "f");
	c.colors = false;
	log_setup(&c);
	log_error("plain");
	stderr_back(real);
	/* A terminal gives back what it has, in as many pieces as it likes. */
	while (!strstr(buf, "plain\r\n"))
		assert_true(read(pty, buf + strlen(buf), sizeof(buf) - 1 - strlen(buf)) > 0);
	assert_string_equal(buf, "\033[0;31m VMA ERROR: e\033[0m\r\n"
				 "\033[0;35m VMA WARNING: w\033[0m\r\n"
				 " VMA INFO: i\r\n"
				 "\033[0;90m VMA FINE: f\033[0m\r\n"
				 " VMA ERROR: plain\r\n");
	close(tty);
	close(pty);
	c.colors = true;
	c.file = capture_path;
	log_setup(&c);
	capture_clear();
	log_error("e");
	assert_string_equal(captured(), " VMA ERROR: e\n");
}

/* A line as syslogd gets it. */
static const char *syslogged(int fd)
{
	static char line[4096];
	ssize_t n = recv(fd, line, sizeof(line) - 1, MSG_DONTWAIT);

	line[n < 0 ? 0 : n] = '\0';
	return line;
}

static int syslogd(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	unlink(path);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

/* The others fall silent meanwhile. */
static void syslog_takes_the_lines(void **state)
{
	const char *dev_log = log_syslog_path;
	char path[] = "/tmp/test_log.XXXXXX";
	int fd;

	(void)state;
	assert_non_null(mkdtemp(path));
	assert_int_equal(chdir(path), 0);
	log_syslog_path = "log";
	fd = syslogd(log_syslog_path);
	capture_at(LOG_INFO);
	log_to_syslog();
	log_debug("below the level");
	log_info("one %d", 1);
	assert_string_equal(syslogged(fd), "<14>test_log:  VMA INFO: one 1");
	log_error("two");
	assert_string_equal(syslogged(fd), "<11>test_log:  VMA ERROR: two");
	assert_string_equal(syslogged(fd), "");
	/* It is started anew, and then it does not read: nobody waits for it for long. */
	close(fd);
	log_info("lost");
	fd = syslogd(log_syslog_path);
	for (int i = 0; i < 2000; i++)
		log_info("%d", i);
	assert_string_equal(syslogged(fd), "<14>test_log:  VMA INFO: 0");
	assert_int_equal(captured_lines(), 0);
	assert_int_equal(log_to_file(capture_path), 0);
	log_info("back");
	assert_string_equal(captured(), " VMA INFO: back\n");
	close(fd);
	unlink("log");
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rmdir(path), 0);
	log_syslog_path = dev_log;
}

#define THREADS 4
#define LINES 500

static void *many_lines(void *arg)
{
	int i;

	for (i = 0; i < LINES; i++)
		log_info("thread %d line %d of many, which is long enough to be torn", *(int *)arg,
			 i);
	return NULL;
}

static void lines_of_threads_are_whole(void **state)
{
	int id[THREADS], next[THREADS] = {0}, t, i, n;
	pthread_t thread[THREADS];
	const char *s;

	(void)state;
	capture_at(LOG_INFO);
	for (t = 0; t < THREADS; t++) {
		id[t] = t;
		assert_int_equal(pthread_create(&thread[t], NULL, many_lines, &id[t]), 0);
	}
	for (t = 0; t < THREADS; t++)
		pthread_join(thread[t], NULL);
	for (s = captured(); *s; s += n) {
		n = 0;
		assert_int_equal(sscanf(s,
					" VMA INFO: thread %d line %d of many, which is long "
					"enough to be torn\n%n",
					&t, &i, &n),
				 2);
		assert_true(n > 0);
		assert_in_range(t, 0, THREADS - 1);
		assert_int_equal(i, next[t]++);
		/* sscanf's \n also eats the next line's first blank. */
		n = (int)(strchr(s, '\n') - s) + 1;
	}
	for (t = 0; t < THREADS; t++)
		assert_int_equal(next[t], LINES);
	printf("    %d lines of %d threads\n", THREADS * LINES, THREADS);
}

static volatile int handled;

static void handler(int sig)
{
	(void)sig;
	log_info("from a handler");
	handled++;
}

static void a_signal_handler_may_log(void **state)
{
	struct sigaction sa = {.sa_handler = handler}, old;
	sigset_t mask;
	int i;

	(void)state;
	capture_at(LOG_INFO);
	sigaction(SIGUSR1, &sa, &old);
	sigemptyset(&mask);
	for (i = 0; i < 20; i++) {
		log_info("normal %d", i);
		raise(SIGUSR1);
	}
	sigaction(SIGUSR1, &old, NULL);
	assert_int_equal(handled, 20);
	assert_int_equal(captured_lines(), 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_has_module_level_and_text),
		cmocka_unit_test(the_level_decides),
		cmocka_unit_test(what_is_tried_again_is_said_once),
		cmocka_unit_test(a_panic_is_the_last_line_and_ends_the_process_by_sigabrt),
		cmocka_unit_test(a_panic_ends_the_process_also_where_nothing_is_logged),
		cmocka_unit_test(details_stand_in_front),
		cmocka_unit_test(what_a_stranger_says_stays_on_its_line),
		cmocka_unit_test(errno_is_kept),
		cmocka_unit_test(a_line_is_one_write),
		cmocka_unit_test(no_line_goes_into_a_socket_of_the_program),
		cmocka_unit_test(no_line_goes_into_a_file_of_the_program),
		cmocka_unit_test(a_pipe_is_a_redirection_where_there_was_standard_error),
		cmocka_unit_test(a_closed_stderr_is_no_trouble),
		cmocka_unit_test(no_sigpipe_when_the_reader_is_gone),
		cmocka_unit_test(a_file_is_appended_to),
		cmocka_unit_test(the_file_takes_no_low_number),
		cmocka_unit_test(a_closed_log_file_is_opened_again),
		cmocka_unit_test(a_file_that_cannot_be_opened_is_said_on_stderr),
		cmocka_unit_test(colours_on_a_terminal_only),
		cmocka_unit_test(syslog_takes_the_lines),
		cmocka_unit_test(lines_of_threads_are_whole),
		cmocka_unit_test(a_signal_handler_may_log),
	};

	return cmocka_run_group_tests(tests, capture_setup, capture_teardown);
}
