/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The steering program with a driver that answers: in place of the calls that ask it stand the
 * answers (a veth's time stamp is always 0).
 *
 *   steer_metadata NS TCI WANTED   has the program look at a datagram of a registered flow: what it
 *                                  returns, and what stands in front of the frame then
 */
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <net/ethernet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vma/flow.h"
#include "vma/kernel_calls.h"
#include "vma/steer.h"

#include "steer.skel.h"

#define PORT 7000

static struct {
	struct ether_header eth;
	struct iphdr ip;
	struct udphdr udp;
	uint8_t data[18];
} __attribute__((packed)) frame;

static int die(const char *what)
{
	perror(what);
	return 1;
}

/* Writes through a pointer in reg: what the function of the kernel would have written there. */
static void answer(struct bpf_insn *in, uint8_t size, uint8_t reg, int32_t value)
{
	*in = (struct bpf_insn){
		.code = (uint8_t)(BPF_ST | BPF_MEM | size), .dst_reg = reg, .imm = value};
}

/* How many calls there were. */
static unsigned answers_enter(struct bpf_program *prog, int32_t ns, int32_t tci)
{
	size_t n = bpf_program__insn_cnt(prog);
	struct bpf_insn *insns = calloc(n, sizeof(*insns));
	unsigned calls = 0;

	memcpy(insns, bpf_program__insns(prog), n * sizeof(*insns));
	for (size_t i = 0; i < n; i++) {
		if (insns[i].code != (BPF_JMP | BPF_CALL))
			continue;
		calls += insns[i].imm == VMA_CALL_RX_TIMESTAMP ||
			 insns[i].imm == VMA_CALL_RX_VLAN_TAG;
		if (insns[i].imm == VMA_CALL_RX_TIMESTAMP)
			answer(&insns[i], BPF_DW, BPF_REG_2, ns);
		else if (insns[i].imm == VMA_CALL_RX_VLAN_TAG)
			answer(&insns[i], BPF_H, BPF_REG_3, tci);
	}
	if (bpf_program__set_insns(prog, insns, n))
		calls = 0;
	free(insns);
	return calls;
}

static void frame_fill(void)
{
	frame.eth.ether_type = htons(ETHERTYPE_IP);
	frame.ip = (struct iphdr){.version = 4,
				  .ihl = 5,
				  .protocol = IPPROTO_UDP,
				  .saddr = htonl(0x0a4d0001),
				  .daddr = htonl(0x0a4d0002)};
	frame.udp.dest = htons(PORT);
}

static int run(struct steer_bpf *skel)
{
	const struct vma_port port = {.flags = VMA_PORT_3TUPLE | VMA_PORT_SOLE4,
				      .local = frame.ip.daddr};
	uint32_t index = VMA_PORT_INDEX_UDP + PORT;
	uint8_t out[256];
	struct xdp_md ctx_in = {.data_end = sizeof(frame)}, ctx = {.data = 0};
	struct vma_rx_stamp t = {.magic = 0};
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = &frame, .data_size_in = sizeof(frame),
		    .data_out = out, .data_size_out = sizeof(out), .ctx_in = &ctx_in,
		    .ctx_size_in = sizeof(ctx_in), .ctx_out = &ctx, .ctx_size_out = sizeof(ctx),
		    .repeat = 1);

	if (bpf_map_update_elem(bpf_map__fd(skel->maps.ports), &index, &port, BPF_ANY))
		return die("ports");
	if (bpf_prog_test_run_opts(bpf_program__fd(skel->progs.steer), &o))
		return die("BPF_PROG_TEST_RUN");
	if (ctx.data >= sizeof(t))
		memcpy(&t, out + ctx.data - sizeof(t), sizeof(t));
	printf("returned %u front %u stamp %lld frame %d\n", o.retval, ctx.data,
	       t.magic == VMA_RX_STAMP_MAGIC ? (long long)t.ns : -1,
	       !memcmp(out + ctx.data, &frame, sizeof(frame)));
	return 0;
}

int main(int argc, char **argv)
{
	struct steer_bpf *skel = steer_bpf__open();
	int err;

	if (argc != 4 || !skel)
		return die("steer_metadata NS TCI WANTED");
	skel->rodata->tells = VMA_RX_TELLS_STAMP | VMA_RX_TELLS_VLAN;
	skel->bss->stamps = (uint32_t)atoi(argv[3]);
	if (answers_enter(skel->progs.steer, atoi(argv[1]), atoi(argv[2])) != 2)
		return die("the calls");
	err = steer_bpf__load(skel);
	if (err)
		return die("load");
	frame_fill();
	err = run(skel);
	steer_bpf__destroy(skel);
	return err;
}
