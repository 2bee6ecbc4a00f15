# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# shellcheck shell=bash
# Completion of vma_stats(8) for bash; needs nothing of the package bash-completion.

# Pids of the processes that have statistics: their files, and the module's folders.
_vma_stats_pids()
{
	local dir=$1 file

	for file in "$dir"/vmastat.* /sys/kernel/vma/process/*; do
		file=${file##*[./]}
		[[ -d /proc/$file && $file == +([0-9]) ]] && echo "$file"
	done
}

_vma_stats_names()
{
	local pid

	for pid in $(_vma_stats_pids "$1"); do
		cat "/proc/$pid/comm" 2>/dev/null
	done
}

_vma_stats_interfaces()
{
	local path

	for path in /sys/class/net/*; do
		[[ -d $path ]] && echo "${path##*/}"
	done
}

# What an option asks for, as words; fails where it asks for nothing that can be listed.
_vma_stats_values()
{
	local dir=$2

	case $1 in
	-p | --pid) _vma_stats_pids "$dir" ;;
	-n | --name) _vma_stats_names "$dir" ;;
	-v | --view) echo 1 2 3 4 5 6 ;;
	-d | --details) echo 1 2 ;;
	-D | --details_level) echo 0 1 2 3 ;;
	-l | --log_level) echo none panic error warn info details debug fine finer all ;;
	*) return 1 ;;
	esac
	return 0
}

_vma_stats_capture()
{
	local cur=$1 prev=$2 words

	case $prev in
	-p) words=$(_vma_stats_pids /tmp) ;;
	-i) words=$(_vma_stats_interfaces) ;;
	-w)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	*) [[ $cur == -* ]] && words="-p -i -w" || words="host port tcp udp and or not" ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

_vma_stats()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} dir=/tmp words i
	local long="--pid= --name= --find_pid --directory= --forbid_clean --interval= --cycles= --view= --details= --sockets=
		--zero --log_level= --fd_dump= --details_level= --json --live --prometheus --listen= --version --help"
	local short="-p -n -f -k -F -i -c -v -d -s -z -l -S -D -V -h"

	COMPREPLY=()
	if [[ ${COMP_WORDS[1]} == capture && $COMP_CWORD -gt 1 ]]; then
		_vma_stats_capture "$cur" "$prev"
		return
	fi
	for ((i = 1; i < COMP_CWORD; i++)); do
		[[ ${COMP_WORDS[i]} == -k ]] && dir=${COMP_WORDS[i + 1]}
	done
	# --view=3 is three words: bash divides at "=".
	if [[ $cur == = ]]; then
		cur=
	elif [[ $prev == = ]]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	if [[ $prev == -k || $prev == --directory ]]; then
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
	fi
	if ! words=$(_vma_stats_values "$prev" "$dir"); then
		words=$short$'\n'$long
		[[ $COMP_CWORD -eq 1 ]] && words+=" capture"
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	[[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}

complete -F _vma_stats vma_stats
