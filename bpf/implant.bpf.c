/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A connection of user space's enters the queue of a listener of the kernel's: of one segment, sent
 * once more over the loopback, this program says that it answers a SYN-ACK, with what the two had
 * agreed on, and the kernel makes the connection as if it had sent a SYN cookie (Linux 6.9).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>
#include "vma/implant.h"
#include "vma/kernel_calls.h"

#define TCX_NEXT (-1) /* whoever else has a program there; else the kernel */
#define TCX_DROP 2
#define STATE_TIME_WAIT 6
#define STATE_LISTEN 10
#define NOT_YET (-2) /* result, as long as nothing has been tried: -ENOENT */
#define IN_THE_WAY (-17) /* -EEXIST: a connection of the same name */
#define OLD_IN_THE_WAY (-98) /* -EADDRINUSE: one that has ended */

/* As the kernel has them, as far as they are named here. */
struct sock {
	int unused;
};
struct bpf_tcp_req_attrs {
	__u32 rcv_tsval, rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale, snd_wscale, ecn_ok, wscale_ok, sack_ok, tstamp_ok, usec_ts_ok, reserved[3];
};
static int (*const assign_tcp_reqsk)(struct __sk_buff *skb, struct sock *sk,
				     struct bpf_tcp_req_attrs *attrs,
				     int attrs__sz) = (void *)VMA_CALL_ASSIGN_REQSK;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vma_implant);
} implants SEC(".maps");

/* The addresses as a socket is looked up by them. Returns the length of that, 0: it is no TCP. */
static __always_inline __u32 addresses(void *data, void *end, struct bpf_sock_tuple *t,
				       struct tcphdr **tcp)
{
	struct ethhdr *eth = data;
	struct iphdr *ip4 = (void *)(eth + 1);
	struct ipv6hdr *ip6 = (void *)(eth + 1);

	if ((void *)(ip4 + 1) > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		*tcp = (void *)(ip4 + 1);
		if (ip4->ihl != 5 || ip4->protocol != IPPROTO_TCP || (void *)(*tcp + 1) > end)
			return 0;
		t->ipv4.saddr = ip4->saddr;
		t->ipv4.daddr = ip4->daddr;
		t->ipv4.sport = (*tcp)->source;
		t->ipv4.dport = (*tcp)->dest;
		return sizeof(t->ipv4);
	}
	if (eth->h_proto != bpf_htons(ETH_P_IPV6) || (void *)(ip6 + 1) > end)
		return 0;
	*tcp = (void *)(ip6 + 1);
	if (ip6->nexthdr != IPPROTO_TCP || (void *)(*tcp + 1) > end)
		return 0;
	__builtin_memcpy(t->ipv6.saddr, &ip6->saddr, 16);
	__builtin_memcpy(t->ipv6.daddr, &ip6->daddr, 16);
	t->ipv6.sport = (*tcp)->source;
	t->ipv6.dport = (*tcp)->dest;
	return sizeof(t->ipv6);
}

static __always_inline bool is_ours(const struct vma_implant *im, const struct tcphdr *tcp)
{
	return tcp->source == im->rport && tcp->dest == im->lport && tcp->ack_seq == im->ack;
}

/* True: the segment makes the connection. */
static __always_inline bool assign(struct __sk_buff *skb, struct vma_implant *im,
				   struct bpf_sock *listener)
{
	struct bpf_tcp_req_attrs attrs = {
		.rcv_tsval = im->tsval,
		.rcv_tsecr = im->tsecr,
		.mss = im->mss,
		.rcv_wscale = im->rcv_wscale,
		.snd_wscale = im->snd_wscale,
		.wscale_ok = im->wscale_ok,
		.sack_ok = im->sack_ok,
		.tstamp_ok = im->ts_ok,
	};
	struct sock *sk = (struct sock *)bpf_skc_to_tcp_sock(listener);

	if (!sk)
		return false;
	im->result = assign_tcp_reqsk(skb, sk, &attrs, sizeof(attrs));
	return !im->result;
}

/* True: sk is the connection that was made here. Another's of the same name gets nothing. */
static __always_inline bool note(struct vma_implant *im, struct bpf_sock *sk)
{
	struct bpf_tcp_sock *tp = bpf_tcp_sock(sk);

	if (im->result == NOT_YET)
		im->result = sk->state == STATE_TIME_WAIT ? OLD_IN_THE_WAY : IN_THE_WAY;
	if (!tp || im->result)
		return false;
	im->rcv_nxt = tp->rcv_nxt;
	im->is_there = 1;
	return true;
}

/*
 * What is sent once more and finds neither goes no further: the kernel would answer it by a RST,
 * and that goes to the peer, who has to believe it.
 */
SEC("tc")
int implant(struct __sk_buff *skb)
{
	struct vma_implant *im;
	struct bpf_sock_tuple t = {};
	struct tcphdr *tcp = NULL;
	struct bpf_sock *sk;
	__u32 zero = 0, len;
	bool first, known = false;

	len = addresses((void *)(long)skb->data, (void *)(long)skb->data_end, &t, &tcp);
	im = bpf_map_lookup_elem(&implants, &zero);
	if (!len || !tcp || !im || !is_ours(im, tcp))
		return TCX_NEXT;
	first = tcp->seq == im->seq;
	sk = bpf_skc_lookup_tcp(skb, &t, len, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return TCX_DROP;
	if (sk->state != STATE_LISTEN)
		known = note(im, sk);
	else if (first)
		known = assign(skb, im, sk);
	bpf_sk_release(sk);
	return known ? TCX_NEXT : TCX_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
