if ARGV[6] == '0' then
  call('ZREM', IDLE, ARGV[3]) -- it waits no more for what an earlier call found missing
end
return claim(ARGV[3], ARGV[4], ARGV[5], ARGV[6])
