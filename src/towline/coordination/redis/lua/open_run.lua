-- Arguments: master id, owner epoch, replaces or '', program, fingerprint, epoch jumps, server, opening JSON,
-- then the other header fields and their values. COORD-C64; the only script that makes a run (COORD-R16).
local master, epoch, replaces, program, fingerprint, jumps, server, opening = unpack(ARGV, 3, 10)
local adopts = false
if M.owner_epoch then
  if M.program ~= program then
    return { 'program_mismatch', 'program', M.program, program }
  end
  if M.fingerprint ~= fingerprint then
    return { 'program_mismatch', 'fingerprint', M.fingerprint, fingerprint }
  end
  local same_master = M.master_id == master
  adopts = epoch ~= M.owner_epoch
  if not same_master or adopts then
    if M.completed == '1' then
      return { 'run_id_used' }
    end
    local silent = NOW - tonumber(M.master_beat)
    local alive = silent < tonumber(M.master_lease_ms) and not same_master and replaces ~= M.owner_epoch
    if tonumber(epoch) <= tonumber(M.owner_epoch) or alive then
      return { 'master_alive', M.master_id, M.owner_epoch, num(silent) }
    end
  end
else
  call('HSET', META, 'completed', '0', 'signal', 'running', 'work_version', '0', 'next_place', '1', 'feed_seq', '0',
    'epoch_jumps', '0', 'requeue_after', '0', 'bucket_count', '0', 'scarcity_until', '', 'server', server)
end
call('HSET', META, 'owner_epoch', epoch, 'master_id', master, 'program', program, 'fingerprint', fingerprint,
  'opening', opening, 'master_beat', num(NOW), unpack(ARGV, 11))
if tonumber(jumps) > tonumber(M.epoch_jumps or '0') then
  call('HSET', META, 'epoch_jumps', jumps)
end
read_header()
if adopts then
  call('HSET', META, 'requeue_after', num(NOW + M.timeout))
end
live_on(unpack(KEYS))
return run_state()
