"""Every change of state is one Lua script; this package holds the scripts and the only code that talks to Redis.

`calls` says what each script takes and what its answer means; `gateway` sends calls and translates errors.
"""
