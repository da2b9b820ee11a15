import torch


def reconstruct_indices_from_tree_mask(
    tree_mask,
    verified_seq_len,
    positions,
    retrieve_index,
    retrieve_next_token,
    retrieve_next_sibling,
    batch_size,
    n,
):
    """Torch version of the contract in sglang/kernels/ops/speculative/reconstruct_tree.py."""
    m = tree_mask.view(-1)[: batch_size * n * n].view(batch_size, n, n).bool()
    ix = torch.arange(n)
    anc = m & (ix[None, :] < ix[:, None])
    positions.view(-1)[: batch_size * n] = (
        (anc.sum(2) + verified_seq_len[:batch_size, None]).flatten().to(positions.dtype)
    )
    retrieve_index.view(-1)[: batch_size * n] = torch.arange(batch_size * n).to(retrieve_index.dtype)
    parent = torch.where(anc, ix[None, None, :], -1).amax(2)
    child = torch.where(anc, ix[None, :, None], n).amin(1)
    retrieve_next_token.view(-1)[: batch_size * n] = (
        torch.where(child < n, child, -1).flatten().to(retrieve_next_token.dtype)
    )
    same = (parent[:, :, None] == parent[:, None, :]) & (ix[:, None] > ix[None, :])
    sib = torch.where(same, ix[None, :, None], n).amin(1)
    sib = torch.where((parent >= 0) & (sib < n), sib, -1)
    retrieve_next_sibling.view(-1)[: batch_size * n] = sib.flatten().to(retrieve_next_sibling.dtype)
