"""`gpusupervisorctl setup`: what is found on the machine, and what is proposed for it.

`looking` asks the service and systemd and makes `findings`; `proposals` makes of them what is proposed (pure), with
`applications` for processes that nobody knows, `model_folders` for where engines keep models, and `toml_text` for how a
file is extended. `writing` asks the person and puts files in place.
"""
