local worker = worker_of(ARGV[3])
if not worker then
  return { 'ok', '0' }
end
if worker.ended == '' and worker.final == '0' then
  feed('worker_gone', nil, nil, worker.id, 'expelled')
end
worker.ended = 'expelled'
count_worker(worker)
save_worker(worker)
call('ZREM', IDLE, worker.id)
for _, task in ipairs(leases_by_worker(worker.id)) do
  lose_lease(task, lease_of(task))
end
return { 'ok', '1' }
