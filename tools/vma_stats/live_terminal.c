/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "live_terminal.h"

#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include <curses.h>

#include "live_state.h"

static SCREEN *screen;
/* For an end in disorder: what the terminal was, and what brings its old page back. */
static struct termios before;
static char leave[64];

bool terminal_usable(void)
{
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

/* ncurses itself may be what was interrupted. */
static void on_fault(int number)
{
	ssize_t ignored = write(STDOUT_FILENO, leave, strlen(leave));

	(void)ignored;
	tcsetattr(STDIN_FILENO, TCSANOW, &before);
	signal(number, SIG_DFL);
	raise(number);
}

static void watch_faults(void)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGQUIT};
	struct sigaction action = {.sa_handler = on_fault};

	for (unsigned i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigaction(faults[i], &action, NULL);
}

static void add_leave(const char *capability)
{
	if (capability && strlen(leave) + strlen(capability) < sizeof(leave))
		strcat(leave, capability);
}

int terminal_open(bool *utf8)
{
	setlocale(LC_CTYPE, "");
	*utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	if (tcgetattr(STDIN_FILENO, &before))
		return -1;
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return -1;
	if (!tigetstr("cup") || !tigetstr("clear")) {
		terminal_close();
		return -1;
	}
	add_leave(tigetstr("cnorm"));
	add_leave(tigetstr("rmcup"));
	watch_faults();
	cbreak();
	noecho();
	nonl();
	set_escdelay(25);
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	curs_set(0);
	return 0;
}

void terminal_size(unsigned *rows, unsigned *columns)
{
	*rows = LINES > 0 ? (unsigned)LINES : 0;
	*columns = COLS > 0 ? (unsigned)COLS : 0;
}

static chtype attribute(enum look look)
{
	switch (look) {
	case LOOK_TITLE:
		return A_BOLD;
	case LOOK_HEADING:
		return A_REVERSE;
	case LOOK_SELECTED:
		return A_STANDOUT | A_BOLD;
	case LOOK_FAINT:
		return A_DIM;
	default:
		return A_NORMAL;
	}
}

void terminal_show(const struct page *p)
{
	erase();
	for (unsigned i = 0; i < p->rows; i++) {
		attrset(attribute(p->line[i].look));
		mvaddstr((int)i, 0, p->line[i].text);
	}
	attrset(A_NORMAL);
	move(0, 0);
	refresh();
}

int terminal_key(void)
{
	int c = getch();

	switch (c) {
	case ERR:
		return 0;
	case KEY_UP:
		return LIVE_KEY_UP;
	case KEY_DOWN:
		return LIVE_KEY_DOWN;
	case KEY_PPAGE:
		return LIVE_KEY_PAGE_UP;
	case KEY_NPAGE:
		return LIVE_KEY_PAGE_DOWN;
	case KEY_HOME:
		return LIVE_KEY_HOME;
	case KEY_END:
		return LIVE_KEY_END;
	case KEY_ENTER:
	case KEY_RIGHT:
	case '\r':
	case '\n':
		return LIVE_KEY_ENTER;
	case KEY_BACKSPACE:
	case KEY_LEFT:
	case 0x7f:
	case '\b':
		return LIVE_KEY_BACK;
	case 0x1b:
		return LIVE_KEY_ESCAPE;
	case KEY_RESIZE:
		/* The terminal may have moved what was on it: all of it is drawn anew. */
		clearok(curscr, TRUE);
		return -1;
	default:
		return c >= ' ' && c < 0x7f ? c : -1;
	}
}

void terminal_close(void)
{
	endwin();
	delscreen(screen);
}
