return claim(ARGV[3], ARGV[4], ARGV[5], ARGV[6])
