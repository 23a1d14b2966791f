"""Answers of engines' APIs, in the shapes that real ones gave."""

SYSTEM_STATS = {
    "system": {
        "os": "posix", "ram_total": 25276502016, "ram_free": 23669231616, "comfyui_version": "0.3.64",
        "python_version": "3.11.7 (main, May  9 2026, 07:35:25) [GCC 12.2.0]", "pytorch_version": "2.13.0+cu130",
        "embedded_python": False, "argv": ["main.py", "--port", "8188"],
    },
    "devices": [
        {
            "name": "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync", "type": "cuda", "index": 0,
            "vram_total": 25386352640, "vram_free": 24000000000, "torch_vram_total": 0, "torch_vram_free": 0,
        }
    ],
}  # fmt: skip
PROPS = {
    "default_generation_settings": {"params": {"seed": 1}, "n_ctx": 2048},
    "total_slots": 4,
    "model_path": "/srv/models/small.gguf",
    "endpoint_slots": True,
    "endpoint_metrics": False,
    "build_info": "b0-unknown",
    "is_sleeping": False,
}
ROUTER_PROPS = {
    "role": "router", "max_instances": 2, "models_autoload": True, "model_path": "none",
    "default_generation_settings": {"params": None, "n_ctx": 0}, "build_info": "b0-unknown",
}  # fmt: skip

BY_ENGINE: dict[str, dict[str, object]] = {
    "ollama": {"/api/version": {"version": "0.33.0-rc2"}},
    "comfyui": {"/system_stats": SYSTEM_STATS},
    "llama.cpp": {"/props": PROPS},
    "llama-swap": {"/api/version": {"version": "170", "commit": "abc", "build_date": "2026-10-01"}},
    "vllm": {"/version": {"version": "0.11.0"}},
    "sglang": {
        "/server_info": {"version": "0.5.23", "mem_fraction_static": 0.85, "enable_memory_saver": False,
                         "enable_weights_cpu_backup": False,
                         "enable_metrics": True, "max_total_num_tokens": 120000, "internal_states": [{}]},
    },
    "whisper.cpp": {"/health": {"status": "ok"}},
    "speaches": {"/api/ps": {"models": ["Systran/faster-whisper-small"]}},
    "lm-studio": {"/v1/models": {"data": [{"id": "qwen3-8b", "object": "model"}], "object": "list"}},
    "localai": {
        "/version": {"version": "v4.9.0"},
        "/api/settings": {
            "watchdog_enabled": True, "watchdog_idle_enabled": True, "watchdog_busy_enabled": False,
            "watchdog_idle_timeout": "15m0s", "watchdog_busy_timeout": "5m0s", "single_backend": False,
            "max_active_backends": 2, "memory_reclaimer_enabled": False, "memory_reclaimer_threshold": 0.95,
            "force_eviction_when_busy": False, "context_size": 0, "vram_budget": "", "api_keys": None,
        },
    },
    "automatic1111": {
        "/sdapi/v1/cmd-flags": {"lowvram": False, "medvram": True, "device_id": None, "api": True, "port": 7860},
    },
    "invokeai": {
        "/api/v1/app/version": {"version": "6.7.0", "highlights": None},
        "/api/v1/app/runtime_config": {
            "set_fields": ["max_cache_vram_gb"],
            "config": {"max_cache_vram_gb": 8.0, "device_working_mem_gb": 3, "enable_partial_loading": True,
                       "model_cache_keep_alive_min": 0, "device": "auto", "generation_devices": "auto"},
        },
    },
    "tabbyapi": {
        "/.well-known/serviceinfo": {"version": 0.1, "software": {"name": "TabbyAPI"}},
        "/v1/model": {
            "id": "qwen3-8b", "object": "model", "owned_by": "tabbyAPI",
            "parameters": {"max_seq_len": 32768, "cache_size": 65536, "cache_mode": "8,8", "max_batch_size": 4,
                           "chunk_size": 2048, "use_vision": False, "draft": None},
        },
    },
    "lemonade": {
        "/v1/health": {
            "status": "ok", "version": "10.4.0", "model_loaded": "a", "max_models": {"llm": 1, "embedding": 1},
            "all_models_loaded": [{"model_name": "a", "type": "llm", "pinned": False, "is_busy": False}],
        },
    },
    "koboldcpp": {"/api/extra/version": {"result": "KoboldCpp", "version": "1.99", "protected": False, "admin": 0}},
}  # fmt: skip
"""By engine and path. The others have nothing that is asked."""
VERSIONS = {
    "ollama": "0.33.0-rc2", "comfyui": "0.3.64", "llama.cpp": "b0-unknown", "llama-swap": "170", "vllm": "0.11.0",
    "sglang": "0.5.23", "localai": "v4.9.0", "automatic1111": "", "invokeai": "6.7.0", "tabbyapi": "",
    "koboldcpp": "1.99", "speaches": "", "lm-studio": "", "whisper.cpp": "", "lemonade": "10.4.0",
}  # fmt: skip
