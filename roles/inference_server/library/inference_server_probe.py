#!/usr/bin/python
"""Look at the engines, models and accounts of a node, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: inference_server_probe
short_description: Look at the engines, models and accounts of a node
description:
  - Asks each engine for its build, and for its flags where the build isn't the one of the last call.
  - An engine that is there and gives no answer is no failure here, since its GPUs may still be dead.
  - Programs are run, and models read, as the user that the units will run as.
options:
  engines:
    description:
      - Engines to ask; each with C(name), C(command), C(launcher_path), C(environment), and
        C(version_argv) or C(package).
    type: list
    elements: dict
    required: true
  models:
    description:
      - Models to look for; each with C(name), C(path), C(needs) and C(as_file).
      - One that is not there yet, and takes its place later, has the names of its files in C(files).
    type: list
    elements: dict
    required: true
  credentials:
    description: Paths of files with a secret, whose content is looked at and never told.
    type: list
    elements: path
    default: []
  user:
    description: User of the units; C(nobody) stands in while it doesn't exist.
    type: str
    required: true
  group:
    description: Group that may use the control socket.
    type: str
    required: true
  cache_dir:
    description: Folder that keeps the flags of a build.
    type: path
    required: true
  keep:
    description: Whether the flags of a new build are put there.
    type: bool
    default: true
  known:
    description: Answers of an earlier call, by engine; each with C(key) and C(options).
    type: dict
    default: {}
  hidden:
    description: Folders that the units can't see.
    type: list
    elements: path
    default: []
attributes:
  check_mode:
    support: full
    description: Nothing is changed in either mode; the cache is not written in check mode.
  diff_mode:
    support: none
author: recover-and-bench
"""

EXAMPLES = r"""
- name: Ask the engine
  inference_server_probe:
    engines:
      - name: sglang
        command: [/opt/sglang/bin/python, -m, sglang.launch_server]
        package: sglang
    models: []
    user: inference
    group: bench
    cache_dir: /var/lib/inference-server/engines
"""

RETURN = r"""
engines:
  description: Build, options, key of the build, problem and its fault of each engine, by name.
  type: dict
  returned: always
models:
  description: Path, file and problem of each model, by name; C(fault) is hidden where its unit can't see it.
  type: dict
  returned: always
credentials:
  description: What is wrong with each secret's file, by path; none where it is right.
  type: dict
  returned: always
gpus:
  description: UUIDs of the GPUs that can be used here, by CUDA's index.
  type: list
  elements: str
  returned: always
user_exists:
  type: bool
  returned: always
group_exists:
  type: bool
  returned: always
launchers:
  description: sha256 of each engine's launcher on the node, by engine; none where it has none or isn't there.
  type: dict
  returned: always
progress:
  description: Engines that are there and gave no answer.
  type: str
  returned: when there are such engines
waited_s:
  description: Seconds that engines took to answer.
  type: dict
  returned: always
"""

import grp
import os
import pwd
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.inference_server.build import NOBODY, Account, describe_engine, sha256_of
from ansible.module_utils.inference_server.credentials import describe_credential
from ansible.module_utils.inference_server.gpus import list_gpus
from ansible.module_utils.inference_server.models import describe_model


def account_of(user: str) -> tuple[Account, bool]:
    """The account to run as, and whether the user exists yet."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        uid, gid, exists = NOBODY, NOBODY, False
    else:
        uid, gid, exists = entry.pw_uid, entry.pw_gid, True
    if os.geteuid() != 0:
        return Account(pwd.getpwuid(os.geteuid()).pw_name, None, None), exists
    return Account(user, uid, gid), exists


def group_exists(group: str) -> bool:
    try:
        grp.getgrnam(group)
    except KeyError:
        return False
    return True


def hidden_by(path: str, folders: list[str]) -> str | None:
    return next((folder for folder in folders if path == folder or path.startswith(f"{folder}/")), None)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "engines": {"type": "list", "elements": "dict", "required": True},
            "models": {"type": "list", "elements": "dict", "required": True},
            "credentials": {"type": "list", "elements": "path", "default": []},
            "user": {"type": "str", "required": True},
            "group": {"type": "str", "required": True},
            "cache_dir": {"type": "path", "required": True},
            "keep": {"type": "bool", "default": True},
            "known": {"type": "dict", "default": {}},
            "hidden": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    given = module.params
    account, user_exists = account_of(given["user"])
    started = time.monotonic()
    engines = {}
    for engine in given["engines"]:
        name = engine["name"]
        cache = Path(given["cache_dir"]) / f"{name}.json"
        engines[name] = describe_engine(
            engine,
            account,
            cache,
            known=given["known"].get(name),
            keep=given["keep"] and not module.check_mode,
        )
        folder = hidden_by(engine["command"][0], given["hidden"])
        if folder:
            unseen = (
                f"engine {name} is below {folder}, which its hardened unit cannot see:"
                " install it elsewhere (/opt), or set inference_server_hardening_enabled to false"
            )
            engines[name].update(problem=unseen, fault="hidden")
    waited_s = round(time.monotonic() - started, 3)
    models = {}
    for model in given["models"]:
        folder = hidden_by(model["path"], given["hidden"])
        unseen = f"is below {folder}, which its hardened unit cannot see: stage it elsewhere (/dev/shm)"
        models[model["name"]] = (
            {"path": model["path"], "file": None, "problem": unseen, "fault": "hidden"}
            if folder
            else describe_model(model, account)
        )
    silent = [found["problem"] for found in engines.values() if found["fault"] == "silent"]
    module.exit_json(
        **({"progress": f"{'; '.join(silent)}; its flags are not checked yet"} if silent else {}),
        changed=False,
        engines=engines,
        models=models,
        credentials={path: describe_credential(Path(path)) for path in given["credentials"]},
        gpus=list_gpus(),
        launchers={engine["name"]: sha256_of(engine.get("launcher_path")) for engine in given["engines"]},
        user_exists=user_exists,
        group_exists=group_exists(given["group"]),
        waited_s={"engine_load": waited_s},
    )


if __name__ == "__main__":
    main()
