-- COORD-R11: an enqueue serves the idle workers that fit, those that hold nothing first and of them the one that became idle
-- last, which is warm and has what it just made: the claim that one stands with is made for it here, and the lease goes out with its wake-up. Its own repetition gets the same lease by its token
-- (COORD-C35), so nothing hangs on the message.
local GRANT_LIMIT = 16
local MESSAGE_LIMIT = 65536
local LEASES_LOOKED_AT = 256

-- A worker that asked a while ago may be stopped or cut off: it is only woken, for a lease that nobody hears of has to run
-- out. Returns session and token.
local function standing_of(id)
  local text = call('HGET', LASTCLAIM, '?' .. id)
  if not text then
    return nil
  end
  local session, asked_at, token = string.match(text, '^([^|]*)|(%d+)|(.*)$')
  if NOW - tonumber(asked_at) > M.timeout / 10 then
    return nil
  end
  return session, token
end

-- As the server would answer a call: the client reads both alike.
local function as_reply(parts)
  local text = { '*' .. #parts .. '\r\n' }
  for _, part in ipairs(parts) do
    text[#text + 1] = '$' .. #part .. '\r\n' .. part .. '\r\n'
  end
  return table.concat(text)
end

-- What the task depends on comes along while it is small: the worker need not ask for it. `inputs` is `length:id` each.
local function bring(reply, inputs)
  local at = 1
  while at <= #inputs do
    local length, from = string.match(inputs, '^(%d+):()', at)
    local task = string.sub(inputs, from, from + length - 1)
    at = from + length
    local stored = call('HGET', OUTCOMES, task)
    if stored and #stored <= INLINE_LIMIT then
      reply[#reply + 1] = task
      reply[#reply + 1] = stored
    end
  end
end

local function fits_any(id, buckets)
  for bucket in string.gmatch(call('HGET', FITS, id) or '', '%d+') do
    if buckets[bucket] then
      return true
    end
  end
  return false
end

-- Make the claim that a worker stands with, if it may be made without it; returns the message of its wake-up.
local function grant(id, inputs)
  local session, token = standing_of(id)
  if not session then
    return nil
  end
  local reply = claim(id, session, token, '0', true)
  if reply[1] ~= 'lease' then
    return nil
  end
  local parts = { session, token, unpack(reply) }
  bring(parts, inputs[reply[2]] or '')
  local message = as_reply(parts)
  return #message <= MESSAGE_LIMIT and message or '' -- too large a one is fetched by asking
end

-- With more leases than are looked at, all slots have their turn: the longest idle one first.
local function idle_workers()
  if call('HLEN', LEASES) > LEASES_LOOKED_AT then
    return call('ZRANGE', IDLE, 0, -1)
  end
  local holds = {}
  for _, text in ipairs(call('HVALS', LEASES)) do
    holds[string.match(text, '^%d+|%d+|([^|]*)|')] = true
  end
  local free, busy = {}, {}
  for _, id in ipairs(call('ZREVRANGE', IDLE, 0, -1)) do
    local list = holds[id] and busy or free
    list[#list + 1] = id
  end
  for _, id in ipairs(busy) do
    free[#free + 1] = id
  end
  return free
end

-- Give what was queued to the idle workers: `left` tasks in a set of `buckets`; `inputs`: task -> what it depends on.
local function serve(buckets, left, inputs)
  local granted = 0
  for _, id in ipairs(idle_workers()) do
    if left == 0 then
      return
    end
    if fits_any(id, buckets) then
      local channel, message = RUN .. 'wake:' .. id, nil
      if granted < GRANT_LIMIT and call('PUBSUB', 'NUMSUB', channel)[2] > 0 then
        message = grant(id, inputs)
      end
      if message then
        granted = granted + 1
      else
        call('ZREM', IDLE, id)
      end
      if call('PUBLISH', channel, message or '') > 0 then
        left = left - 1
      end
    end
  end
end
