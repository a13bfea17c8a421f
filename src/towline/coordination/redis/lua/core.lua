-- Shared by all scripts: keys, time, the run's header, the feed. ARGV[1] is the time of a test, else ''; ARGV[2] the
-- owner epoch of a master's call, else ''. Numbers go out as '%.0f' strings; JSON is never read or made here (COORD-R07).
local META, PAYLOAD, INDEX, QUEUE, BUCKETS, LEASES, EXPIRY, OUTCOMES, WORKERS, STATUS, ALIVE, LASTCLAIM, FITS, FEED,
  EVENTS, EVENTSEQ, IDLE = unpack(KEYS)
local RUN = string.sub(META, 1, -5)
local call = redis.call

local function num(n)
  return string.format('%.0f', n)
end

-- COORD-R06: only the server's clock. A test gives a moment, or '+n' to shift it by n milliseconds.
local function clock(given)
  if given ~= '' and string.sub(given, 1, 1) ~= '+' then
    return tonumber(given)
  end
  local time = call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  if given ~= '' then
    now = now + tonumber(string.sub(given, 2))
  end
  return now
end
local NOW = clock(ARGV[1])

local FIELDS = {
  'owner_epoch', 'master_id', 'program', 'fingerprint', 'worker_timeout_ms', 'master_timeout_ms', 'master_lease_ms',
  'requeue_limit', 'key_life_ms', 'event_backlog', 'opening', 'completed', 'signal', 'master_beat', 'epoch_jumps',
  'requeue_after', 'bucket_count', 'scarcity_until', 'server', 'events_pending',
}
local M = {}
local function read_header()
  local values = call('HMGET', META, unpack(FIELDS))
  for i, field in ipairs(FIELDS) do
    M[field] = values[i]
  end
  M.timeout = tonumber(M.worker_timeout_ms or '0')
end
read_header()

local function live_on(...)
  for _, key in ipairs({ ... }) do
    call('PEXPIRE', key, M.key_life_ms)
  end
end

local INLINE_LIMIT = 4096

local function feed(kind, task, epoch, worker, why, outcome)
  local seq = call('HINCRBY', META, 'feed_seq', 1)
  local entry = { 'k', kind, 'a', num(NOW) }
  local function add(name, value)
    if value then
      entry[#entry + 1] = name
      entry[#entry + 1] = value
    end
  end
  add('t', task)
  add('e', epoch and num(epoch))
  add('w', worker)
  add('y', why)
  add('v', (M.events_pending or '0') == '0' and '0' or nil)
  if outcome and #outcome <= INLINE_LIMIT then
    add('o', outcome)
  end
  call('XADD', FEED, num(seq) .. '-0', unpack(entry))
  live_on(FEED)
end

local function run_state()
  if not M.owner_epoch then
    return { 'ok', 'unknown' }
  end
  local silent = math.max(0, NOW - tonumber(M.master_beat))
  local state = 'running'
  if M.completed == '1' then
    state = 'completed'
  elseif silent > tonumber(M.master_timeout_ms) then
    state = 'lost'
  end
  return { 'ok', state, M.signal, num(silent), M.opening }
end
