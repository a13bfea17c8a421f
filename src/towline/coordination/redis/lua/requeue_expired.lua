-- COORD-C41; nothing within one worker timeout after a take-over or restart (COORD-C47). Returns what it fed.
local before = call('HGET', META, 'feed_seq')
if NOW < tonumber(M.requeue_after) then
  return { 'ok', {} }
end
for _, task in ipairs(call('ZRANGEBYSCORE', EXPIRY, '-inf', num(NOW))) do
  lose_lease(task, lease_of(task))
end
for _, id in ipairs(call('ZRANGEBYSCORE', ALIVE, '-inf', num(NOW))) do
  local worker = worker_of(id)
  if worker.final == '0' and worker.ended == '' then
    worker.ended = 'silent'
    count_worker(worker)
    save_worker(worker)
    call('ZREM', IDLE, id)
    feed('worker_gone', nil, nil, id, 'silent')
  end
end
return { 'ok', call('XRANGE', FEED, '(' .. before .. '-0', '+') }
