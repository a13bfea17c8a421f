-- COORD-C61, R14. A stored word of a newer version counts as the highest.
local RANKS = { running = 0, pipeline_failed = 1, stopped = 2 }
local signal = ARGV[3]
if (RANKS[signal] or 2) > (RANKS[M.signal] or 2) then
  call('HSET', META, 'signal', signal)
  call('PUBLISH', RUN .. 'signal', '')
  raise_work_version()
  return { 'ok', signal }
end
return { 'ok', M.signal }
