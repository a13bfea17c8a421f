-- Arguments: worker, session, program, fingerprint, wire, own wire, capabilities, JSON, then held task and epoch pairs.
local id, session, program, fingerprint, wire, own_wire, capabilities, json = unpack(ARGV, 3, 10)
for _, pair in ipairs({
  { 'program', M.program, program }, { 'fingerprint', M.fingerprint, fingerprint }, { 'wire', own_wire, wire },
}) do
  if pair[2] ~= pair[3] then
    return { 'program_mismatch', unpack(pair) }
  end
end
local worker = worker_of(id)
if worker and worker.session == session then
  -- COORD-C02, C10: the same process again.
  if worker.ended == 'expelled' then
    return { 'session_ended', '1' }
  end
  local held = {}
  for i = 11, #ARGV, 2 do
    held[ARGV[i] .. '\n' .. ARGV[i + 1]] = true
  end
  for _, task in ipairs(leases_by_worker(id)) do
    local lease = lease_of(task)
    if not held[task .. '\n' .. num(lease.epoch)] then
      release_lease(task, lease, true)
    end
  end
  note_unknown(id, session, 11)
  stay_alive(worker)
  local was_ended = worker.ended ~= ''
  worker.ended = ''
  count_worker(worker)
  save_worker(worker)
  if was_ended then
    feed('registered', nil, nil, id)
  end
  return run_state()
end
if worker then
  if is_live(worker) then
    return { 'worker_id_taken', num(NOW + M.timeout - worker.alive_until), worker.json }
  end
  -- COORD-C04: its process is gone; a session that ended was told already.
  if worker.ended == '' and worker.final == '0' then
    feed('worker_gone', nil, nil, id, 'replaced')
  end
  count_worker(worker)
  worker.ended = 'replaced'
  save_worker(worker)
  for _, task in ipairs(leases_by_worker(id)) do
    lose_lease(task, lease_of(task))
  end
end
local fits = {}
for number = 0, tonumber(M.bucket_count) - 1 do
  -- A run that was cleaned up keeps its header alone: a late worker is let in, to be sent home by its first claim.
  local facts = call('HGET', BUCKETS, '#' .. num(number))
  if facts and fits_clauses(string.match(facts, '^%d|%d+|(.*)$'), capabilities) then
    fits[#fits + 1] = num(number)
  end
end
call('HSET', FITS, id, table.concat(fits, ','))
call('HDEL', STATUS, id)
call('ZREM', IDLE, id)
call('HDEL', LASTCLAIM, id)
worker = { id = id, session = session, ended = '', final = '0', counted = '0', capabilities = capabilities, json = json }
stay_alive(worker)
count_worker(worker)
save_worker(worker)
note_unknown(id, session, 11)
live_on(WORKERS, STATUS, ALIVE, FITS)
feed('registered', nil, nil, id)
return run_state()
