-- Worker sessions: session|ended|final|counted|capabilities|registration JSON. `counted`: the worker stands in the
-- counts of live fitting workers of its buckets; they change by one, and are never counted anew (COORD-R04).
local function worker_of(id)
  local text = call('HGET', WORKERS, id)
  if not text then
    return nil
  end
  local worker = { id = id }
  worker.session, worker.ended, worker.final, worker.counted, worker.capabilities, worker.json =
    string.match(text, '^([^|]*)|([^|]*)|(%d)|(%d)|([^|]*)|(.*)$')
  worker.alive_until = tonumber(call('ZSCORE', ALIVE, id) or '0')
  return worker
end

local function save_worker(worker)
  call('HSET', WORKERS, worker.id, table.concat({
    worker.session, worker.ended, worker.final, worker.counted, worker.capabilities, worker.json,
  }, '|'))
end

local function is_live(worker)
  return worker.ended == '' and worker.final == '0' and worker.alive_until > NOW
end

local function count_worker(worker)
  local counted = is_live(worker) and '1' or '0'
  if counted ~= worker.counted then
    for bucket in string.gmatch(call('HGET', FITS, worker.id) or '', '%d+') do
      call('HINCRBY', BUCKETS, '@' .. bucket, counted == '1' and 1 or -1)
    end
    worker.counted = counted
  end
end

local function stay_alive(worker)
  worker.alive_until = NOW + M.timeout
  call('ZADD', ALIVE, num(worker.alive_until), worker.id)
  if M.scarcity_until == '' then
    M.scarcity_until = num(worker.alive_until)
    call('HSET', META, 'scarcity_until', M.scarcity_until)
  end
end

-- Take the workers that fell silent out of the counts, at the earliest moment that one can have.
local function sweep()
  if M.scarcity_until == '' or NOW < tonumber(M.scarcity_until) then
    return
  end
  for _, id in ipairs(call('ZRANGEBYSCORE', ALIVE, '-inf', num(NOW))) do
    local worker = worker_of(id)
    if worker and worker.counted == '1' then
      count_worker(worker)
      save_worker(worker)
    end
  end
  local next_one = call('ZRANGEBYSCORE', ALIVE, '(' .. num(NOW), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  M.scarcity_until = next_one[2] and num(tonumber(next_one[2])) or ''
  call('HSET', META, 'scarcity_until', M.scarcity_until)
end

local function fits_clauses(clauses, capabilities)
  if clauses == '' then
    return true
  end
  for clause in string.gmatch(clauses, '[^&]+') do
    local shared = false
    for name in string.gmatch(clause, '[^|]+') do
      if string.find(',' .. capabilities .. ',', ',' .. name .. ',', 1, true) then
        shared = true
        break
      end
    end
    if not shared then
      return false
    end
  end
  return true
end

-- COORD-C01, C04: which error a call of this session gets, or its worker.
local function session_of(id, session)
  local worker = worker_of(id)
  if worker and worker.session ~= session then
    return nil, { 'session_replaced', worker.session }
  end
  if not worker or worker.ended ~= '' or worker.alive_until <= NOW then
    return nil, { 'session_ended', worker and worker.ended == 'expelled' and '1' or '0' }
  end
  return worker
end

local function is_held(task, epoch, session)
  local lease = lease_of(task)
  return lease and lease.epoch == tonumber(epoch) and lease.session == session
end

-- COORD-C10: leases that a worker says it holds and the ledger knows otherwise; told by its next heartbeat.
local function note_unknown(id, session, first)
  local unknown = {}
  for i = first, #ARGV, 2 do
    if not is_held(ARGV[i], ARGV[i + 1], session) then
      unknown[#unknown + 1] = ARGV[i + 1] .. '|' .. ARGV[i]
    end
  end
  if #unknown > 0 then
    call('HSET', STATUS, '?' .. id, table.concat(unknown, '\n'))
  else
    call('HDEL', STATUS, '?' .. id)
  end
end
