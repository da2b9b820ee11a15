"""The tree of drafts: its mask and links, and which of its branches the target model agrees with."""


def _parent(i, selected, parent_list, topk, n):
    """Tree position of the parent of selected token i, or None."""
    tb = selected[i] // topk
    if tb == 0:
        return 0
    t = parent_list[tb]
    return selected.index(t) + 1 if t in selected[: n - 1] else None


def _ancestors(i, parents, depth):
    """Selected token i and those above it, at most `depth`."""
    line = [i]
    while len(line) < depth and parents[line[-1]]:
        line.append(parents[line[-1]] - 1)
    return line


def build_tree_kernel_efficient_cpu(
    parent_list,
    selected_index,
    seq_lens,
    tree_mask,
    positions,
    retrieve_index,
    retrieve_next_token,
    retrieve_next_sibling,
    topk,
    depth,
    n,
    mask_mode=0,
):
    bs = seq_lens.shape[0]
    sl = seq_lens.tolist()
    pre = 0
    sel = selected_index.tolist()
    par = parent_list.reshape(bs, -1).tolist() if parent_list.numel() else [[]] * bs
    mask, pos = tree_mask.view(-1), positions.view(-1)
    ri, nt, ns = (x.view(-1) for x in (retrieve_index, retrieve_next_token, retrieve_next_sibling))
    for b in range(bs):
        L, base = sl[b], b * n
        parents = [_parent(i, sel[b], par[b], topk, n) for i in range(n - 1)]
        pos[base] = L
        for i in range(n - 1, 0, -1):
            ri[base + i] = base + i
            pp = parents[i - 1]
            if pp is not None:
                old = int(nt[base + pp])
                nt[base + pp] = i
                if old != -1:
                    ns[base + i] = old
        ri[base] = base
        for x in range(n):
            at = (n * n * b + pre * n + (L + n) * x + L + 1) if mask_mode == 0 else (n * n * b + n * x + 1)
            mask[at - 1] = 1
            mask[at : at + n - 1] = 0
            if x:
                line = _ancestors(x - 1, parents, depth)
                for each in line:
                    mask[at + each] = 1
                pos[base + x] = len(line) + L
        pre += L


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    bs = candidates.shape[0]
    steps = accept_index.shape[1]
    cand, ri, nt, ns = (
        x.reshape(bs, -1).tolist()
        for x in (candidates, retrive_index, retrive_next_token, retrive_next_sibling)
    )
    tp, pred = target_predict.reshape(-1).tolist(), predicts.view(-1)
    for b in range(bs):
        last, cur, acc = ri[b][0], 0, 0
        accept_index[b, 0] = last
        for _ in range(1, steps):
            cur = nt[b][cur]
            while cur != -1 and cand[b][cur] != tp[last]:
                cur = ns[b][cur]
            if cur == -1:
                break
            pred[last] = tp[last]
            acc += 1
            last = ri[b][cur]
            accept_index[b, acc] = last
        accept_token_num[b] = acc
        pred[last] = tp[last]
