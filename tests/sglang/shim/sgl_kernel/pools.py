"""Where a request's tokens lie in the cache: copies between index tables."""

import ctypes

import torch


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start, end, out_cache_loc, pool_len):
    o = 0
    for r, s, e in zip(req_pool_indices.tolist(), start.tolist(), end.tolist()):
        req_to_token[r, s:e] = out_cache_loc[o : o + e - s].to(req_to_token.dtype)
        o += e - s


def assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, start, end, out_cache_loc, pool_len):
    o = 0
    for r, s, e in zip(req_pool_indices.tolist(), start.tolist(), end.tolist()):
        out_cache_loc[o : o + e - s] = req_to_token[r, s:e].to(out_cache_loc.dtype)
        o += e - s


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices, req_to_token, seq_lens, out_cache_loc, pool_len, topk, n
):
    w = topk * n
    for i, (r, s) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist())):
        out_cache_loc[i * w : (i + 1) * w] = req_to_token[r, s : s + w].to(out_cache_loc.dtype)


def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus_tokens, stride):
    i = torch.arange(accept_lens.numel()) * stride + accept_lens.long() - 1
    bonus_tokens[: accept_lens.numel()] = accept_tokens.flatten()[i].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out_cache_loc):
    a = accept_index.flatten()
    a = a[a > -1].long()
    accept_out_cache_loc[: a.numel()] = out_cache_loc[a].to(accept_out_cache_loc.dtype)


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    t, s = tgt_loc.tolist(), src_loc.tolist()
    for p, st in zip(data_ptrs.tolist(), strides.tolist()):
        rows = [ctypes.string_at(p + j * st, st) for j in s]
        for i, b in zip(t, rows):
            ctypes.memmove(p + i * st, b, st)


def rotate_input_ids_cpu(input_ids, start_loc, seq_lens, topk_index, select_index=None):
    for i, (s, n) in enumerate(zip(start_loc.tolist(), seq_lens.tolist())):
        if n > 1:
            input_ids[s : s + n - 1] = input_ids[s + 1 : s + n].clone()
        at = int(select_index[i]) if select_index is not None else s + n - 1
        input_ids[at] = topk_index.flatten()[i]


def build_draft_decode_metadata_cpu(req_to_token, req_pool_indices, seq_lens, topk, num_steps, pool_len):
    bs = seq_lens.shape[0]
    out = torch.zeros((bs * topk, pool_len), dtype=req_to_token.dtype)
    for i, (r, s) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist())):
        for k in range(topk):
            out[i * topk + k, :s] = req_to_token[r, :s]
            out[i * topk + k, s : s + num_steps] = req_to_token[
                r, s + k * num_steps : s + (k + 1) * num_steps
            ]
    return out
