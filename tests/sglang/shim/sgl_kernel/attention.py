"""Attention by torch alone, registered under the names of the compiled operators."""

import torch


def _sdpa(q, k, v, mask, scale, cap, causal_off=None):  # q [E,H,D] k/v [L,Hkv,D]
    g = q.shape[1] // k.shape[1]
    k, v = k.to(q.dtype).repeat_interleave(g, 1), v.to(q.dtype).repeat_interleave(g, 1)
    if not cap:
        return torch.nn.functional.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            k.transpose(0, 1)[None],
            v.transpose(0, 1)[None],
            attn_mask=mask,
            scale=scale,
        )[0].transpose(0, 1)
    s = torch.einsum("ehd,lhd->hel", q, k) * scale
    s = cap * torch.tanh(s / cap)
    if mask is not None:
        s = s.masked_fill(~mask, float("-inf"))
    return torch.einsum("hel,lhd->ehd", s.softmax(-1), v)


def _extend(
    q,
    k,
    v,
    o,
    kb,
    vb,
    k_scale,
    v_scale,
    req_to_token,
    rpi,
    seq_lens,
    ext_lens,
    ext_start,
    max_ext,
    scale,
    cap,
    is_cross,
    window,
    encoder_lens,
    sinks,
    tree_mask,
    is_causal,
):
    Ls, Es, rs = seq_lens.tolist(), ext_lens.tolist(), rpi.tolist()
    at = off = 0
    for L, E, r in zip(Ls, Es, rs):
        idx = req_to_token[r, :L].long()
        mask = None
        if is_causal and not is_cross:
            qpos = torch.arange(L - E, L)[:, None]
            kpos = torch.arange(L)[None, :]
            mask = kpos <= qpos
            if window > 0:
                mask = mask & (kpos > qpos - window)
            if tree_mask is not None:
                mask[:, L - E :] = tree_mask.view(-1)[off : off + E * E].view(E, E).bool()
                off += E * E  # QLEN_ONLY on CPU
        o[at : at + E] = _sdpa(q[at : at + E], kb[idx], vb[idx], mask, scale, cap)
        at += E


def _decode(
    q,
    kb,
    vb,
    k_scale,
    v_scale,
    o,
    k,
    v,
    loc,
    attn_logits,
    req_to_token,
    rpi,
    seq_lens,
    scale,
    cap,
    is_cross,
    window,
    encoder_lens,
    sinks,
):
    if k is not None:
        kb[loc] = k.view(-1, kb.shape[1], kb.shape[2]).to(kb.dtype)
        vb[loc] = v.view(-1, vb.shape[1], vb.shape[2]).to(vb.dtype)
    for i, (L, r) in enumerate(zip(seq_lens.tolist(), rpi.tolist())):
        lo = max(0, L - window) if window > 0 else 0
        idx = req_to_token[r, lo:L].long()
        o[i : i + 1] = _sdpa(q[i : i + 1], kb[idx], vb[idx], None, scale, cap)


_lib = torch.library.Library("sgl_kernel", "DEF")
_lib.define(
    "extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) o, Tensor kb, Tensor vb, float ks,"
    " float vs, Tensor req_to_token, Tensor rpi, Tensor seq_lens, Tensor ext_lens, Tensor ext_start,"
    " int max_ext, float scale, float cap, bool is_cross, int window, Tensor? encoder_lens, Tensor? sinks,"
    " Tensor? tree_mask, bool is_causal) -> ()"
)
_lib.define(
    "decode_attention_cpu(Tensor q, Tensor(a!) kb, Tensor(b!) vb, float ks, float vs, Tensor(c!) o,"
    " Tensor? k, Tensor? v, Tensor loc, Tensor attn_logits, Tensor req_to_token, Tensor rpi,"
    " Tensor seq_lens, float scale, float cap, bool is_cross, int window, Tensor? encoder_lens,"
    " Tensor? sinks) -> ()"
)
_lib.impl("extend_attention_cpu", _extend, "CPU")
_lib.impl("decode_attention_cpu", _decode, "CPU")
