/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the peer said last, once more: its FIN, its acknowledgement of ours, its RST. It will not
 * say so again, and TCP_REPAIR cannot tell a socket: the kernel gets it from us, as if from the
 * wire, by way of its own loopback.
 */
#include <netinet/in.h>
#include <string.h>

#include "handover/internal.h"
#include "tcp/tcp.h"
#include "runtime/runtime.h"

static int send_segment(const struct tcp_image *im, uint8_t flags, uint32_t seq, uint32_t ack)
{
	struct replay_to to = {
		.src = im->tuple.remote, .dst = im->tuple.local, .proto = IPPROTO_TCP};
	struct tcp_hdr_spec h = {
		.sport = im->tuple.rport,
		.dport = im->tuple.lport,
		.seq = seq,
		.ack = ack,
		.wnd = (uint16_t)(im->snd_wnd >> im->snd_wscale),
		.flags = flags,
	};
	uint8_t segment[TCP_HDR_MAX];
	struct iovec iov = {segment, tcp_hdr_write(segment, &h)};
	uint16_t check = replay_csum(&to, &iov, 1);
	struct replay by = REPLAY_NONE;
	int err = replay_open(&by, &to.dst);

	memcpy(segment + 16, &check, sizeof(check));
	if (!err)
		err = replay_send(&by, &to, &iov, 1);
	replay_close(&by);
	return err;
}

int tcp_sock_fin_may_replay(const struct tcp_image *im)
{
	struct replay by = REPLAY_NONE;
	int err = replay_open(&by, &im->tuple.local);

	replay_close(&by);
	return err;
}

int tcp_sock_fin_replay(const struct tcp_image *im)
{
	return send_segment(im, TCPHDR_FIN | TCPHDR_ACK, im->rcv_nxt, im->snd_una);
}

int tcp_sock_fin_acked(const struct tcp_image *im)
{
	return send_segment(im, im->fin_rcvd ? TCPHDR_FIN | TCPHDR_ACK : TCPHDR_ACK, im->rcv_nxt,
			    im->write_seq + 1);
}

int tcp_sock_rst_replay(const struct tcp_image *im)
{
	return send_segment(im, TCPHDR_RST, im->rcv_nxt + im->fin_rcvd, 0);
}
