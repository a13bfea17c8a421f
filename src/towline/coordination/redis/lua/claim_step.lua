-- COORD-R03: the steps of a claim, in this order.
local EPOCHS_PER_JUMP = 1048576
local AVOID_DEPTH = 8

local function no_work()
  return { 'no_work', call('HGET', META, 'work_version') }
end

local function repeated(id, session, token)
  local text = call('HGET', LASTCLAIM, id)
  if not text then
    return nil
  end
  local last_session, epoch, length, rest = string.match(text, '^([^|]*)|(%d+)|(%d+)|(.*)$')
  local task = string.sub(rest, tonumber(length) + 1)
  if last_session ~= session or string.sub(rest, 1, tonumber(length)) ~= token or not is_held(task, epoch, session) then
    return nil
  end
  return task
end

local function granted(task)
  local lease = lease_of(task)
  local left = tonumber(call('ZSCORE', EXPIRY, task)) - NOW
  return { 'lease', task, num(lease.epoch), lease.claimed, num(left), call('HGET', PAYLOAD, task) }
end

local function head(bucket, id, others_fit)
  local from = string.format('%04d:', bucket)
  local members = call('ZRANGEBYLEX', QUEUE, '[' .. from, '(' .. string.format('%04d;', bucket), 'LIMIT', 0,
    others_fit and AVOID_DEPTH or 1)
  for _, member in ipairs(members) do
    local row = row_of(string.sub(member, 39))
    if not (others_fit and row.avoid == id and row.avoid_until > NOW) then
      return row
    end
  end
  return nil
end

local function best_row(id)
  sweep()
  local buckets, wanted = {}, {}
  for bucket in string.gmatch(call('HGET', FITS, id) or '', '%d+') do
    buckets[#buckets + 1] = bucket
    wanted[#wanted + 1] = '#' .. bucket
    wanted[#wanted + 1] = '@' .. bucket
  end
  if #buckets == 0 then
    return nil
  end
  local facts = call('HMGET', BUCKETS, unpack(wanted))
  local best, best_key = nil, nil
  for i, bucket in ipairs(buckets) do
    local always, clause_count = string.match(facts[2 * i - 1], '^(%d)|(%d+)|')
    if M.signal ~= 'pipeline_failed' or always == '1' then
      local live = tonumber(facts[2 * i])
      local row = head(tonumber(bucket), id, live > 1)
      if row then
        local key = string.sub(row.member, 6, 9) .. string.format('%06d%02d', live, 99 - tonumber(clause_count))
          .. string.sub(row.member, 11, 37)
        if not best_key or key < best_key then
          best, best_key = row, key
        end
      end
    end
  end
  return best
end

-- `is_unasked`: made for a worker that stands idle; a task that must not be lost is left for it to ask for (COORD-C45).
local function claim(id, session, token, waits, is_unasked)
  if M.completed == '1' or (M.signal ~= 'running' and M.signal ~= 'pipeline_failed') then
    call('ZREM', IDLE, id)
    return { 'closed', M.completed == '1' and 'completed' or 'stopped' }
  end
  local again = repeated(id, session, token)
  if again then
    return granted(again)
  end
  local worker, refusal = session_of(id, session)
  if refusal then
    return refusal
  end
  local row = worker.final == '0' and best_row(id) or nil
  if not row or (is_unasked and row.once == '1') then
    if waits == '1' then
      call('ZADD', IDLE, 'NX', num(call('HINCRBY', META, 'idle_seq', 1)), id)
      call('HSET', LASTCLAIM, '?' .. id, table.concat({ session, num(NOW), token }, '|'))
      live_on(IDLE, LASTCLAIM)
    end
    return no_work()
  end
  call('ZREM', IDLE, id)
  call('ZREM', QUEUE, row.member)
  row.state = 'l'
  row.epoch = 1 + math.max(row.epoch, row.floor, EPOCHS_PER_JUMP * tonumber(M.epoch_jumps))
  save_row(row)
  call('HSET', LEASES, row.task, table.concat({ num(row.epoch), num(NOW), id, session, token }, '|'))
  call('ZADD', EXPIRY, num(NOW + M.timeout), row.task)
  call('HSET', LASTCLAIM, id, table.concat({ session, num(row.epoch), #token, token .. row.task }, '|'))
  live_on(LEASES, EXPIRY, LASTCLAIM)
  feed('claimed', row.task, row.epoch, id)
  return { 'lease', row.task, num(row.epoch), num(NOW), num(M.timeout), call('HGET', PAYLOAD, row.task) }
end
