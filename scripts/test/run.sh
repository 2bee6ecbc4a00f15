# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash disable=SC2154 # what test.sh sets
#
# run.sh, to be sourced by test.sh: runs the steps that plan() names and shows how far they are. Of test.sh it has logs, only,
# all, repeat and load. A step leaves in build/test its NAME.log, and NAME.begun and NAME.end while this runs.

lanes="beside first main vm lint"
passed=0 failed=0 skipped=0
declare -A lane_of command_of reported expected_seconds expected_tests
names=() children=()

step()
{
	local lane=$1 when=$2 name=$3

	shift 3
	unknown=${unknown/,$name,/,}
	if [ -n "$only" ]; then
		case ",$only," in *",$name,"*) ;; *) return ;; esac
	else
		case $when,$all in all, | few,?*) return ;; esac
	fi
	names+=("$name")
	lane_of[$name]=$lane
	command_of[$name]=$(printf '%q ' "$@")
}

# --- what runs in the background

run_lane()
{
	local name rc begun

	for name in "${names[@]}"; do
		[ "${lane_of[$name]}" = "$1" ] || continue
		rc=0 begun=$SECONDS
		echo "$begun" >"$logs/$name.begun"
		eval "${command_of[$name]}" >"$logs/$name.log" 2>&1 || rc=$?
		echo "$rc $((SECONDS - begun))" >"$logs/$name.ended"
		mv "$logs/$name.ended" "$logs/$name.end"
	done
}

# In a process group of its own, which can be ended with all that is in it.
start()
{
	set -m
	"$@" </dev/null &
	children+=($!)
	set +m
}

end_children()
{
	local pid

	for pid in "${children[@]}"; do
		kill -TERM -- "-$pid" 2>/dev/null
	done
	wait
	children=()
}

endless_loop()
{
	exec timeout 7200 bash -c 'while :; do :; done'
}

# --- how far they are

clock()
{
	printf '%d:%02d' $(($1 / 60)) $(($1 % 60))
}

# What the last run took, else the one whose times are in the repository.
read_times()
{
	local name seconds tests

	while read -r name seconds tests; do
		expected_seconds[$name]=$seconds
		expected_tests[$name]=$tests
	done < <(cat scripts/test/times "$logs/times" 2>/dev/null)
}

write_times()
{
	local name

	for name in "${!expected_seconds[@]}"; do
		echo "$name ${expected_seconds[$name]} ${expected_tests[$name]}"
	done | sort >"$logs/times.new" && mv "$logs/times.new" "$logs/times"
}

# The tests that a step has done so far: pytest's dots and the unit programs' lines.
done_in()
{
	awk '/^[.FEsxX]+( +\[ *[0-9]+%\])?$/ { n += length($1) }
		/^  ok .* [0-9]+ passed/ { for (i = 3; i <= NF; i++) if ($i ~ /^passed/) n += $(i - 1) }
		END { print n + 0 }' "$1" 2>/dev/null
}

runs()
{
	[ -e "$logs/$1.begun" ] && [ -z "${reported[$1]:-}" ]
}

# One line: what runs, tests done of all, time so far and expected.
progress()
{
	local name lane n now="" tests=$((passed + failed + skipped)) all_tests=0 left longest=0 e

	for name in "${names[@]}"; do
		all_tests=$((all_tests + ${expected_tests[$name]:-0}))
		runs "$name" || continue
		n=$(done_in "$logs/$name.log")
		tests=$((tests + n))
		now="$now${now:+, }$name"
		[ "${expected_tests[$name]:-0}" -le 1 ] || [ "$n" = 0 ] || now="$now $n/${expected_tests[$name]}"
	done
	for lane in $lanes; do
		left=0
		for name in "${names[@]}"; do
			if [ "${lane_of[$name]}" != "$lane" ] || [ -n "${reported[$name]:-}" ]; then
				continue
			fi
			e=${expected_seconds[$name]:-0}
			! runs "$name" || e=$((e - SECONDS + $(cat "$logs/$name.begun")))
			left=$((left + (e > 0 ? e : 0)))
		done
		[ $left -le $longest ] || longest=$left
	done
	[ "$all_tests" -ge "$tests" ] || all_tests=$tests
	printf '%s of about %s: %d of %d tests; %s' "$(clock $SECONDS)" "$(clock $((SECONDS + longest)))" "$tests" "$all_tests" "$now"
}

# A terminal has one line that is written anew, a file one in half a minute.
show_progress()
{
	if [ -t 1 ]; then
		printf '\r%.*s\033[K' "$(($(tput cols 2>/dev/null || echo 100) - 1))" "$(progress)"
	elif [ $((SECONDS - shown)) -ge 30 ]; then
		shown=$SECONDS
		printf '       %s\n' "$(progress)"
	fi
}

# --- what came of them

# Adds up "12 passed, 1 failed, ..." of the lines with which pytest ended, or else of the last line that has such words;
# errors are failures.
tally()
{
	local lines words n

	lines=$(grep -E '^=* *[0-9]+ (passed|failed|errors?|skipped).* in [0-9.]+s' "$1")
	[ -n "$lines" ] || lines=$(grep -E '[0-9]+ (passed|failed|error|skipped)' "$1" | tail -n 1)
	while read -r n words; do
		case $words in
		passed) passed=$((passed + n)) ;;
		failed | error | errors) failed=$((failed + n)) ;;
		skipped) skipped=$((skipped + n)) ;;
		esac
	done < <(grep -oE '[0-9]+ (passed|failed|errors?|skipped)' <<<"$lines")
}

# Counts what a step that has ended says of itself, or else the step, and shows its end if it failed.
report()
{
	local name=$1 log=$logs/$1.log rc seconds before=$failed had=$((passed + failed + skipped)) p=$passed s=$skipped said=""

	read -r rc seconds <"$logs/$name.end"
	reported[$name]=$rc
	if grep -qE '^=* *[0-9]+ (passed|failed|errors?|skipped)' "$log"; then
		tally "$log"
		[ "$rc" -ne 0 ] && [ "$failed" -eq "$before" ] && [ "$skipped" -eq "$s" ] && failed=$((failed + 1))
		said="$((passed - p)) passed, $((failed - before)) failed, $((skipped - s)) skipped"
	elif [ "$rc" -eq 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
	[ "$rc" -ne 0 ] || { expected_seconds[$name]=$seconds expected_tests[$name]=$((passed + failed + skipped - had)); }
	[ ! -t 1 ] || printf '\r\033[K'
	printf '%-6s %-18s %4d s   %s\n' "$([ "$rc" -eq 0 ] && echo ok || echo FAILED)" "$name" "$seconds" "$said"
	[ "$rc" -eq 0 ] || show_failure "$log"
}

# What failed, by name, then the end of the log: of a long output CI keeps little more. pytest's rows of dots tell nothing.
show_failure()
{
	{
		grep -E '^(FAILED|ERROR) ' "$1"
		grep -vE '^[.FEsxX]+ +\[ *[0-9]+%\]$|^(FAILED|ERROR) ' "$1" | tail -n "${LINES_OF_FAILURE:-120}"
	} | cut -c 1-240 | sed 's/^/    /'
}

# The slowest tests of all steps, and what was skipped.
show_notes()
{
	local name log

	for name in "${names[@]}"; do
		sed -nE "s/^([0-9.]+s) (call|setup|teardown) +([^ ].*)/\1 $name \3/p" "$logs/$name.log"
	done | sort -rn | awk 'NR == 1 { print "\nthe slowest tests:" } NR <= 5 { t = $1; s = $2; $1 = $2 = ""; printf "    %8s  %-17s %s\n", t, s, substr($0, 3) }'
	for name in "${names[@]}"; do
		log=$logs/$name.log
		grep '^SKIPPED ' "$log" | sed "s/^SKIPPED /skipped: $name: /"
	done
}

# What failed, once more and short: of a long output CI keeps the beginning and the end.
show_failed()
{
	local name log said

	for name in "${names[@]}"; do
		log=$logs/$name.log
		[ "${reported[$name]:-1}" -ne 0 ] || continue
		printf '\nwhat failed in %s:\n' "$name"
		{
			grep -E '^ *(FAILED|ERROR) ' "$log" | head -n 6
			# A program's output begins with the library's banner, and ends with what was wrong.
			said=$(grep -hE '^ *E  +[^ ]|^ *(WARNING|ERROR|SUMMARY): |^ *\[ +ERROR +\] ' "$log" |
				grep -vE '^ *E  +VMA INFO: ')
			# Who was ended, or is no test, has such lines as it has.
			[ -n "$said" ] || said=$(tail -n 12 "$log")
			awk '{ line[NR] = $0 } END { for (i = 1; i <= NR; i++) if (i <= 4 || i > NR - 8) print line[i] }' <<<"$said"
		} | cut -c 1-180 | sed 's/^ */    /'
	done
}

# --- all of it

reap()
{
	local name

	for name in "${names[@]}"; do
		[ ! -e "$logs/$name.end" ] || [ -n "${reported[$name]:-}" ] || report "$name"
	done
}

# Until the processes of these lanes have ended.
follow()
{
	local pid

	for pid in "$@"; do
		while kill -0 "$pid" 2>/dev/null; do
			reap
			show_progress
			sleep 0.5
		done
	done
	reap
}

run_once()
{
	local name

	reported=()
	for name in "${names[@]}"; do
		rm -f "$logs/$name".{begun,end,ended}
	done
	start run_lane beside
	start run_lane first
	follow "${children[-1]}"
	start run_lane main
	start run_lane vm
	start run_lane lint
	follow "${children[@]}"
	for name in "${names[@]}"; do
		[ -n "${reported[$name]:-}" ] || { echo "FAILED $name: it did not end"; failed=$((failed + 1)); }
		rm -f "$logs/$name".{begun,end,ended}
	done
	show_notes
	show_failed
	write_times
}

run_all()
{
	local round n

	unknown=,${only//,/,,},
	plan
	unknown=$(tr -s , ' ' <<<"$unknown")
	[ -z "${unknown// /}" ] || { echo "test.sh: ONLY names steps that are not there:$unknown" >&2; exit 2; }
	read_times
	trap 'trap "" INT TERM HUP; end_children' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	shown=$SECONDS
	for ((n = 0; n < load; n++)); do
		start endless_loop
	done
	loops=("${children[@]}")
	for ((round = 1; round <= repeat; round++)); do
		[ "$repeat" -eq 1 ] || printf '%s--- round %d of %d\n' "$([ $round -eq 1 ] || echo $'\n')" $round "$repeat"
		children=()
		run_once
	done
	children=("${loops[@]}")
	printf '\n%s in all\n' "$(clock $SECONDS)"
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ] && [ "$skipped" -eq 0 ]
}
