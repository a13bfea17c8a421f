-- Arguments: worker, session, final, JSON, then listed task and epoch pairs. COORD-C42, C43, C06.
local id, session, final, json = unpack(ARGV, 3, 6)
local worker = worker_of(id)
if worker and worker.session ~= session then
  return { 'session_replaced', worker.session }
end
if not worker or worker.ended ~= '' then
  return { 'session_ended', worker and worker.ended == 'expelled' and '1' or '0' }
end
call('HSET', STATUS, id, json)
stay_alive(worker)
local reply, told = { 'ok', M.signal, M.completed }, {}
local function lost(task, epoch, why)
  for _, part in ipairs({ task, epoch, why }) do
    reply[#reply + 1] = part
  end
end
for line in string.gmatch(call('HGET', STATUS, '?' .. id) or '', '[^\n]+') do
  local epoch, task = string.match(line, '^(%d+)|(.*)$')
  lost(task, epoch, 'unknown')
  told[task .. '\n' .. epoch] = true
end
call('HDEL', STATUS, '?' .. id)
for i = 7, #ARGV, 2 do
  local task, epoch = ARGV[i], ARGV[i + 1]
  if is_held(task, epoch, session) then
    call('ZADD', EXPIRY, num(NOW + M.timeout), task)
  elseif not told[task .. '\n' .. epoch] then
    local row = row_of(task)
    if call('HEXISTS', OUTCOMES, task) == 1 then
      lost(task, epoch, 'finished')
    elseif not row or row.state == 'a' then
      lost(task, epoch, 'unknown')
    else
      lost(task, epoch, row.state == 'l' and 'taken' or 'expired')
    end
  end
end
local says_goodbye = final == '1' and worker.final == '0'
if says_goodbye then
  worker.final = '1'
  call('ZREM', IDLE, id)
end
count_worker(worker)
save_worker(worker)
if says_goodbye then
  for _, task in ipairs(leases_by_worker(id)) do
    release_lease(task, lease_of(task), true)
  end
  feed('worker_gone', nil, nil, id, 'final')
end
return reply
