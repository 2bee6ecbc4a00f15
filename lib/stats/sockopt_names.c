/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <stdio.h>
#include <string.h>

#include "stats/stats.h"
#include "vma/sockopt_numbers.h"

#define NAME(opt)                                                                                  \
	{                                                                                          \
		opt, #opt                                                                          \
	}
struct name {
	int opt;
	const char *name;
};

static const struct name of_socket[] = {NAME(SO_ERROR),
					NAME(SO_SNDBUF),
					NAME(SO_SNDBUFFORCE),
					NAME(SO_RCVBUF),
					NAME(SO_RCVBUFFORCE),
					NAME(SO_KEEPALIVE),
					NAME(SO_OOBINLINE),
					NAME(SO_MAX_PACING_RATE),
					NAME(SO_RCVLOWAT),
					NAME(SO_LINGER),
					NAME(SO_RCVTIMEO_OLD),
					NAME(SO_RCVTIMEO_NEW),
					NAME(SO_SNDTIMEO_OLD),
					NAME(SO_SNDTIMEO_NEW),
					NAME(SO_ZEROCOPY),
					NAME(SO_MARK),
					NAME(SO_BINDTODEVICE),
					NAME(SO_BINDTOIFINDEX),
					NAME(SO_REUSEADDR),
					NAME(SO_REUSEPORT),
					NAME(SO_BROADCAST),
					NAME(SO_PRIORITY),
					NAME(SO_BUSY_POLL),
					NAME(SO_PREFER_BUSY_POLL),
					NAME(SO_BUSY_POLL_BUDGET),
					NAME(SO_INCOMING_CPU),
					NAME(SO_DEBUG),
					NAME(SO_TYPE),
					NAME(SO_DONTROUTE),
					NAME(SO_NO_CHECK),
					NAME(SO_BSDCOMPAT),
					NAME(SO_PASSCRED),
					NAME(SO_PEERCRED),
					NAME(SO_SNDLOWAT),
					NAME(SO_ATTACH_FILTER),
					NAME(SO_DETACH_FILTER),
					NAME(SO_PEERNAME),
					NAME(SO_ACCEPTCONN),
					NAME(SO_PEERSEC),
					NAME(SO_PASSSEC),
					NAME(SO_TIMESTAMP_OLD),
					NAME(SO_TIMESTAMP_NEW),
					NAME(SO_TIMESTAMPNS_OLD),
					NAME(SO_TIMESTAMPNS_NEW),
					NAME(SO_TIMESTAMPING_OLD),
					NAME(SO_TIMESTAMPING_NEW),
					NAME(SO_PROTOCOL),
					NAME(SO_DOMAIN),
					NAME(SO_RXQ_OVFL),
					NAME(SO_WIFI_STATUS),
					NAME(SO_PEEK_OFF),
					NAME(SO_NOFCS),
					NAME(SO_LOCK_FILTER),
					NAME(SO_SELECT_ERR_QUEUE),
					NAME(SO_BPF_EXTENSIONS),
					NAME(SO_ATTACH_BPF),
					NAME(SO_ATTACH_REUSEPORT_CBPF),
					NAME(SO_ATTACH_REUSEPORT_EBPF),
					NAME(SO_DETACH_REUSEPORT_BPF),
					NAME(SO_CNX_ADVICE),
					NAME(SO_MEMINFO),
					NAME(SO_INCOMING_NAPI_ID),
					NAME(SO_COOKIE),
					NAME(SO_PEERGROUPS),
					NAME(SO_TXTIME),
					NAME(SO_NETNS_COOKIE),
					NAME(SO_BUF_LOCK),
					NAME(SO_RESERVE_MEM),
					NAME(SO_TXREHASH),
					NAME(SO_RCVMARK),
					NAME(SO_PASSPIDFD),
					NAME(SO_PEERPIDFD),
					NAME(SO_DEVMEM_LINEAR),
					NAME(SO_DEVMEM_DMABUF),
					NAME(SO_DEVMEM_DONTNEED),
					NAME(SO_RCVPRIORITY),
					NAME(SO_PASSRIGHTS)};

static const struct name of_ip[] = {NAME(IP_TOS),
				    NAME(IP_TTL),
				    NAME(IP_RECVERR),
				    NAME(IP_RECVTOS),
				    NAME(IP_RECVTTL),
				    NAME(IP_PKTINFO),
				    NAME(IP_FREEBIND),
				    NAME(IP_BIND_ADDRESS_NO_PORT),
				    NAME(IP_MTU_DISCOVER),
				    NAME(IP_HDRINCL),
				    NAME(IP_OPTIONS),
				    NAME(IP_ROUTER_ALERT),
				    NAME(IP_RECVOPTS),
				    NAME(IP_RETOPTS),
				    NAME(IP_PKTOPTIONS),
				    NAME(IP_MTU),
				    NAME(IP_IPSEC_POLICY),
				    NAME(IP_XFRM_POLICY),
				    NAME(IP_PASSSEC),
				    NAME(IP_TRANSPARENT),
				    NAME(IP_RECVORIGDSTADDR),
				    NAME(IP_MINTTL),
				    NAME(IP_NODEFRAG),
				    NAME(IP_CHECKSUM),
				    NAME(IP_RECVFRAGSIZE),
				    NAME(IP_RECVERR_RFC4884),
				    NAME(IP_MULTICAST_IF),
				    NAME(IP_MULTICAST_TTL),
				    NAME(IP_MULTICAST_LOOP),
				    NAME(IP_MULTICAST_ALL),
				    NAME(IP_ADD_MEMBERSHIP),
				    NAME(IP_DROP_MEMBERSHIP),
				    NAME(IP_ADD_SOURCE_MEMBERSHIP),
				    NAME(IP_DROP_SOURCE_MEMBERSHIP),
				    NAME(IP_BLOCK_SOURCE),
				    NAME(IP_UNBLOCK_SOURCE),
				    NAME(IP_MSFILTER),
				    NAME(MCAST_JOIN_GROUP),
				    NAME(MCAST_LEAVE_GROUP),
				    NAME(MCAST_JOIN_SOURCE_GROUP),
				    NAME(MCAST_LEAVE_SOURCE_GROUP),
				    NAME(MCAST_BLOCK_SOURCE),
				    NAME(MCAST_UNBLOCK_SOURCE),
				    NAME(MCAST_MSFILTER),
				    NAME(IP_UNICAST_IF),
				    NAME(IP_LOCAL_PORT_RANGE),
				    NAME(IP_PROTOCOL)};

static const struct name of_ipv6[] = {NAME(IPV6_TCLASS),
				      NAME(IPV6_UNICAST_HOPS),
				      NAME(IPV6_V6ONLY),
				      NAME(IPV6_RECVERR),
				      NAME(IPV6_RECVTCLASS),
				      NAME(IPV6_RECVHOPLIMIT),
				      NAME(IPV6_RECVPKTINFO),
				      NAME(IPV6_FREEBIND),
				      NAME(IPV6_MTU_DISCOVER),
				      NAME(IPV6_AUTOFLOWLABEL),
				      NAME(IPV6_ADDRFORM),
				      NAME(IPV6_2292PKTINFO),
				      NAME(IPV6_2292HOPOPTS),
				      NAME(IPV6_2292DSTOPTS),
				      NAME(IPV6_2292RTHDR),
				      NAME(IPV6_2292PKTOPTIONS),
				      NAME(IPV6_2292HOPLIMIT),
				      NAME(IPV6_CHECKSUM),
				      NAME(IPV6_NEXTHOP),
				      NAME(IPV6_AUTHHDR),
				      NAME(IPV6_FLOWINFO),
				      NAME(IPV6_MULTICAST_IF),
				      NAME(IPV6_MULTICAST_HOPS),
				      NAME(IPV6_MULTICAST_LOOP),
				      NAME(IPV6_MULTICAST_ALL),
				      NAME(IPV6_ADD_MEMBERSHIP),
				      NAME(IPV6_DROP_MEMBERSHIP),
				      NAME(IPV6_JOIN_ANYCAST),
				      NAME(IPV6_LEAVE_ANYCAST),
				      NAME(MCAST_JOIN_GROUP),
				      NAME(MCAST_LEAVE_GROUP),
				      NAME(MCAST_JOIN_SOURCE_GROUP),
				      NAME(MCAST_LEAVE_SOURCE_GROUP),
				      NAME(MCAST_BLOCK_SOURCE),
				      NAME(MCAST_UNBLOCK_SOURCE),
				      NAME(MCAST_MSFILTER),
				      NAME(IPV6_ROUTER_ALERT),
				      NAME(IPV6_ROUTER_ALERT_ISOLATE),
				      NAME(IPV6_MTU),
				      NAME(IPV6_RECVERR_RFC4884),
				      NAME(IPV6_FLOWLABEL_MGR),
				      NAME(IPV6_FLOWINFO_SEND),
				      NAME(IPV6_IPSEC_POLICY),
				      NAME(IPV6_XFRM_POLICY),
				      NAME(IPV6_HDRINCL),
				      NAME(IPV6_PKTINFO),
				      NAME(IPV6_HOPLIMIT),
				      NAME(IPV6_RECVHOPOPTS),
				      NAME(IPV6_HOPOPTS),
				      NAME(IPV6_RTHDRDSTOPTS),
				      NAME(IPV6_RECVRTHDR),
				      NAME(IPV6_RTHDR),
				      NAME(IPV6_RECVDSTOPTS),
				      NAME(IPV6_DSTOPTS),
				      NAME(IPV6_RECVPATHMTU),
				      NAME(IPV6_PATHMTU),
				      NAME(IPV6_DONTFRAG),
				      NAME(IPV6_USE_MIN_MTU),
				      NAME(IPV6_ADDR_PREFERENCES),
				      NAME(IPV6_MINHOPCOUNT),
				      NAME(IPV6_RECVORIGDSTADDR),
				      NAME(IPV6_TRANSPARENT),
				      NAME(IPV6_UNICAST_IF),
				      NAME(IPV6_RECVFRAGSIZE)};

static const struct name of_tcp[] = {NAME(TCP_INFO),
				     NAME(TCP_NODELAY),
				     NAME(TCP_CORK),
				     NAME(TCP_QUICKACK),
				     NAME(TCP_MAXSEG),
				     NAME(TCP_KEEPIDLE),
				     NAME(TCP_KEEPINTVL),
				     NAME(TCP_KEEPCNT),
				     NAME(TCP_SYNCNT),
				     NAME(TCP_USER_TIMEOUT),
				     NAME(TCP_LINGER2),
				     NAME(TCP_DEFER_ACCEPT),
				     NAME(TCP_WINDOW_CLAMP),
				     NAME(TCP_NOTSENT_LOWAT),
				     NAME(TCP_CONGESTION),
				     NAME(TCP_THIN_LINEAR_TIMEOUTS),
				     NAME(TCP_THIN_DUPACK),
				     NAME(TCP_SAVE_SYN),
				     NAME(TCP_FASTOPEN),
				     NAME(TCP_MD5SIG),
				     NAME(TCP_MD5SIG_EXT),
				     NAME(TCP_REPAIR),
				     NAME(TCP_REPAIR_QUEUE),
				     NAME(TCP_QUEUE_SEQ),
				     NAME(TCP_REPAIR_OPTIONS),
				     NAME(TCP_REPAIR_WINDOW),
				     NAME(TCP_TIMESTAMP),
				     NAME(TCP_CC_INFO),
				     NAME(TCP_SAVED_SYN),
				     NAME(TCP_FASTOPEN_CONNECT),
				     NAME(TCP_FASTOPEN_KEY),
				     NAME(TCP_FASTOPEN_NO_COOKIE),
				     NAME(TCP_ULP),
				     NAME(TCP_ZEROCOPY_RECEIVE),
				     NAME(TCP_INQ),
				     NAME(TCP_TX_DELAY),
				     NAME(TCP_AO_ADD_KEY),
				     NAME(TCP_AO_DEL_KEY),
				     NAME(TCP_AO_INFO),
				     NAME(TCP_AO_GET_KEYS),
				     NAME(TCP_AO_REPAIR),
				     NAME(TCP_IS_MPTCP),
				     NAME(TCP_RTO_MAX_MS),
				     NAME(TCP_RTO_MIN_US),
				     NAME(TCP_DELACK_MAX_US)};

static const struct name of_udp[] = {NAME(UDP_CORK),	     NAME(UDP_ENCAP),
				     NAME(UDP_NO_CHECK6_TX), NAME(UDP_NO_CHECK6_RX),
				     NAME(UDP_SEGMENT),	     NAME(UDP_GRO)};

#define LEVEL(level, names)                                                                        \
	{                                                                                          \
		level, #level, names, sizeof(names) / sizeof(names[0])                             \
	}
static const struct {
	int level;
	const char *name;
	const struct name *options;
	size_t num;
} levels[] = {
	LEVEL(SOL_SOCKET, of_socket), LEVEL(IPPROTO_IP, of_ip),	  LEVEL(IPPROTO_IPV6, of_ipv6),
	LEVEL(IPPROTO_TCP, of_tcp),   LEVEL(IPPROTO_UDP, of_udp),
};

static const char *find(const struct name *names, size_t num, int opt)
{
	for (size_t i = 0; i < num; i++) {
		if (names[i].opt == opt)
			return names[i].name;
	}
	return NULL;
}

const char *sockopt_name(char text[SOCKOPT_NAME], int level, int opt)
{
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		const char *name;

		if (levels[i].level != level)
			continue;
		name = find(levels[i].options, levels[i].num, opt);
		if (name)
			snprintf(text, SOCKOPT_NAME, "%s", name);
		else
			snprintf(text, SOCKOPT_NAME, "%s, option %d", levels[i].name, opt);
		return text;
	}
	snprintf(text, SOCKOPT_NAME, "level %d, option %d", level, opt);
	return text;
}
