"""SGLang plugin: the CPU attention backend (tree masks, verification) on the stand-in's operators."""


def register():
    from sglang.srt.layers.attention import attention_registry as r

    r.ATTENTION_BACKENDS["torch_native"] = r.create_intel_amx_backend
