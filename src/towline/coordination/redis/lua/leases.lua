-- Leases and outcomes. A lease is epoch|claimed_ms|worker|session|token; an outcome state|epoch|worker|JSON or a marker.
local function lease_of(task)
  local text = call('HGET', LEASES, task)
  if not text then
    return nil
  end
  local lease = {}
  lease.epoch, lease.claimed, lease.worker, lease.session, lease.token =
    string.match(text, '^(%d+)|(%d+)|([^|]*)|([^|]*)|(.*)$')
  lease.epoch = tonumber(lease.epoch)
  return lease
end

local function drop_lease(task)
  call('HDEL', LEASES, task)
  call('ZREM', EXPIRY, task)
end

-- COORD-C53, R12: the outcome is stored and every other copy of the task ends in the same step.
local function settle(task, row, state, epoch, worker, text, why)
  if row then
    if row.state == 'q' then
      call('ZREM', QUEUE, row.member)
    end
    row.state = 'f'
    save_row(row)
  end
  drop_lease(task)
  call('HDEL', PAYLOAD, task)
  call('HSET', OUTCOMES, task, table.concat({ state, num(epoch), worker, text }, '|'))
  live_on(OUTCOMES)
  feed('finished', task, epoch, worker, why, string.sub(text, 1, 1) == '{' and text or nil)
  call('PUBLISH', RUN .. 'outcome:' .. task, '')
end

local function fail_lost(row, epoch, code)
  local worker = string.match(row.lost, '([^,]*)$')
  settle(row.task, row, 'failed', epoch, worker, '!' .. code .. '|' .. row.lost .. '|' .. num(NOW), code)
end

local function add_loser(row, worker)
  row.lost = row.lost == '' and worker or row.lost .. ',' .. worker
end

local function release_lease(task, lease, started)
  local row = row_of(task)
  drop_lease(task)
  if started and row.once == '1' then
    add_loser(row, lease.worker)
    fail_lost(row, lease.epoch, 'lease_lost')
    return
  end
  put_back(row)
  feed('released', task, lease.epoch, lease.worker)
  raise_work_version()
  wake(row.bucket, 1)
end

local function lose_lease(task, lease)
  local row = row_of(task)
  drop_lease(task)
  add_loser(row, lease.worker)
  local _, commas = string.gsub(row.lost, ',', '')
  if row.once == '1' then
    fail_lost(row, lease.epoch, 'lease_lost')
  elseif commas + 1 > tonumber(M.requeue_limit) then
    fail_lost(row, lease.epoch, 'requeue_limit')
  else
    row.avoid, row.avoid_until = lease.worker, NOW + M.timeout
    put_back(row)
    feed('requeued', task, lease.epoch, lease.worker, 'expired')
    raise_work_version()
    wake(row.bucket, 1, lease.worker)
  end
end

-- Lua's own order follows the server's locale; the ledger's follows bytes (COORD-R08).
local function bytes_less(left, right)
  for i = 1, math.min(#left, #right) do
    local a, b = string.byte(left, i), string.byte(right, i)
    if a ~= b then
      return a < b
    end
  end
  return #left < #right
end

local function leases_by_worker(worker)
  local found, all = {}, call('HGETALL', LEASES)
  for i = 1, #all, 2 do
    if string.match(all[i + 1], '^%d+|%d+|([^|]*)|') == worker then
      found[#found + 1] = all[i]
    end
  end
  table.sort(found, bytes_less)
  return found
end
