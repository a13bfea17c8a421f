-- COORD-R15: mastership, and the life of everything under the run.
call('HSET', META, 'master_beat', num(NOW))
live_on(unpack(KEYS))
return { 'ok', M.epoch_jumps }
