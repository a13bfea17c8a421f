-- COORD-R16: nothing is written for a run that is not there, so that an eviction makes no half run. COORD-C65.
if not M.owner_epoch then
  return { 'run_unknown' }
end
if ARGV[2] ~= '' and ARGV[2] ~= M.owner_epoch then
  return { 'master_replaced', M.owner_epoch }
end
