"""The atomic steps of the Redis state store, each one Lua script (STATE-19). Values are opaque to all of them.

``KEYS`` of those that write a document: it, the index of keys, the owner epoch, the cursor document of the fence's
task. ``ARGV``: kind of fence, its mark, life of a key in milliseconds (0: for ever), then what the step needs.
"""

from __future__ import annotations

from typing import Final

from towline.access.redis_calls import RedisScript

_FENCE = """
local KIND, MARK, LIFE = ARGV[1], ARGV[2], tonumber(ARGV[3])
local function version(key)
  local data = redis.call('GET', key)
  return data and redis.sha1hex(data) or ''
end
local function refused()
  if KIND == 'owner' then
    local epoch = tonumber(redis.call('GET', KEYS[3]) or '0')
    if epoch ~= tonumber(MARK) then
      return { 'owner', string.format('%.0f', epoch) }
    end
  elseif KIND == 'task' and version(KEYS[4]) ~= MARK then
    return { 'judge' }
  end
end
local function kept(key, name)
  redis.call('ZADD', KEYS[2], 0, name)
  if LIFE > 0 then
    redis.call('PEXPIRE', key, LIFE)
    redis.call('PEXPIRE', KEYS[2], LIFE)
  end
  return { 'ok' }
end
local no = refused()
if no then
  return no
end
"""

WRITE: Final = RedisScript(
    _FENCE
    + """
local name, expect, data, new, repeated = unpack(ARGV, 4, 8)
if expect ~= '*' or repeated == '1' then
  local found = version(KEYS[1])
  if repeated == '1' and found == new then
    return { 'ok' }
  end
  if expect ~= '*' and found ~= expect then
    return { 'conflict', found }
  end
end
redis.call('SET', KEYS[1], data)
return kept(KEYS[1], name)
"""
)
"""Compare and set. ``expect``: a version, '' for absent, '*' for anything."""

APPEND: Final = RedisScript(
    _FENCE
    + """
local name, line, repeated = unpack(ARGV, 4, 6)
if repeated ~= '1' or redis.call('GETRANGE', KEYS[1], -#line, -1) ~= line then
  redis.call('APPEND', KEYS[1], line)
end
return kept(KEYS[1], name)
"""
)
"""Add a line. A repetition first looks whether its line is the last one (STATE-07)."""

REMOVE: Final = RedisScript(
    _FENCE
    + """
local name, expect = unpack(ARGV, 4, 5)
if expect ~= '*' then
  local found = version(KEYS[1])
  if found ~= '' and found ~= expect then
    return { 'conflict', found }
  end
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], name)
return { 'ok' }
"""
)

PUBLISH: Final = RedisScript(
    _FENCE
    + """
local name, draft = ARGV[4], KEYS[5]
if redis.call('EXISTS', draft) == 1 then
  redis.call('RENAME', draft, KEYS[1])
  redis.call('PERSIST', KEYS[1])
elseif redis.call('EXISTS', KEYS[1]) == 0 then
  return { 'lost' }
end
return kept(KEYS[1], name)
"""
)
"""Put a draft in the place of a document; one that is gone was put there by an earlier try."""

COMMIT: Final = RedisScript(
    _FENCE
    + """
-- KEYS[1] journal, KEYS[4] results, KEYS[5] owner. A size that is not the expected one: the server has lost data.
local lease, journal, journal_size, results, results_size = unpack(ARGV, 4, 8)
local function state(key, size, lines)
  local have = redis.call('STRLEN', key)
  return have == tonumber(size) and 'new' or have == tonumber(size) + #lines and 'done' or 'lost'
end
local first, second = state(KEYS[1], journal_size, journal), state(KEYS[4], results_size, results)
if first == 'lost' or second == 'lost' then
  return { 'lost' }
end
if second == 'new' and #results > 0 then
  redis.call('APPEND', KEYS[4], results)
  kept(KEYS[4], 'results.jsonl')
end
if first == 'new' and #journal > 0 then
  redis.call('APPEND', KEYS[1], journal)
end
redis.call('PEXPIRE', KEYS[5], lease)
return kept(KEYS[1], 'plan.journal')
"""
)
"""One group of journal records with the results that they name; it renews the ownership, too."""

ACQUIRE: Final = RedisScript(
    """
-- KEYS: owner, epoch. ARGV: holder, lease in milliseconds, the epoch that is known to have been, life of a key.
local held = redis.call('GET', KEYS[1])
if held == ARGV[1] then
  return { 'ok', redis.call('GET', KEYS[2]) }
elseif held then
  return { 'owned', held, redis.call('PTTL', KEYS[1]) }
end
local before = math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(ARGV[3]))
local epoch = string.format('%.0f', before + 1)
redis.call('SET', KEYS[2], epoch)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return { 'ok', epoch }
"""
)

RENEW: Final = RedisScript(
    """
-- KEYS: owner, epoch, index, base, cancel. ARGV: holder, epoch, lease in milliseconds, life of all documents or 0.
local epoch = redis.call('GET', KEYS[2]) or '0'
if epoch ~= ARGV[2] then
  return { 'owner', epoch }
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
if ARGV[4] ~= '0' then
  for _, name in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    redis.call('PEXPIRE', KEYS[4] .. name, ARGV[4])
  end
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
return { 'ok', redis.call('GET', KEYS[5]) or '' }
"""
)
"""Prolong the lease, and with a life of keys that of all documents: none may go while others stay (STATE-21).

The answer brings what others ask of the owner (CTL-28)."""

ASK_CANCEL: Final = RedisScript(
    """
-- KEYS: owner, cancel. ARGV: holder, request, its life in milliseconds.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return { 'gone' }
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return { 'ok' }
"""
)
"""Leave a request for one owner, while it is the owner (CTL-28)."""

RELEASE: Final = RedisScript(
    """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return { 'ok' }
"""
)
